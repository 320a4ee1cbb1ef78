"""Results go into papers and other programs: frames, LaTeX, vector figures."""

import math
import re

import numpy as np
import pytest
from torch import nn

import nalm

FAST = {
    "iterations": 20,
    "log_interval": 10,
    "evaluation_rows": 20,
    "ranges": ["U[1,2)", "U[-6,-2)|U[2,6) -> U[2,6)"],
    "seeds": 3,
}


@pytest.fixture(scope="module")
def result():
    return nalm.benchmark("nau", operation="add", **FAST)


def test_a_frame_has_a_line_for_each_cell(result):
    frame = result.to_frame()
    assert list(frame.columns) == list(result.rows[0])
    assert frame["interpolation"].tolist() == [row["interpolation"] for row in result.rows]
    assert frame["success_rate"].dtype == float
    assert math.isnan(frame["solved_at_mean"][0])


def test_the_history_has_a_line_for_each_run_and_step(result):
    history = result.history
    assert len(history) == 2 * 3 * 3
    assert history["step"].tolist()[:3] == [0, 10, 20]
    for cell, runs in result.raw.items():
        own = history[history["interpolation"] == cell.interpolation]
        for name in ("validation", "test", "sparsity"):
            np.testing.assert_array_equal(own[name].to_numpy().reshape(3, 3), getattr(runs, name))
        assert own["seed"].tolist() == np.repeat(runs.seeds, 3).tolist()


def test_a_table_in_latex_has_its_names_escaped():
    def a_b(inputs, outputs):
        return nn.Linear(inputs, outputs)

    values = {**FAST, "iterations": 2, "log_interval": 1}
    table = nalm.benchmark({"50% of a_b & c": a_b}, operation="add", compiled=False, **values).to_latex()
    lines = table.splitlines()
    assert lines[:2] == [r"\begin{tabular}{llrlll}", r"\toprule"]
    assert lines[3] == r"\midrule"
    assert lines[-2:] == [r"\bottomrule", r"\end{tabular}"]
    assert r"50\% of a\_b \& c & U[1,2) & 3 & 0.00 [0.00, 0.56] & -- & --" in lines[4]
    assert all(len(re.findall(r"(?<!\\)&", line)) == 5 and line.endswith(r" \\") for line in (lines[2], *lines[4:6]))


@pytest.mark.parametrize(("ending", "first"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF"), ("eps", b"%!PS")])
def test_figures_come_in_the_forms_that_papers_need(result, tmp_path, ending, first):
    (path,) = result.plot(tmp_path / f"figure.{ending}")
    assert path.read_bytes().startswith(first)


def test_another_ending_is_refused_with_what_there_is(result, tmp_path):
    with pytest.raises(ValueError, match=r"saved as \.png, \.svg, \.pdf, \.eps or.* got 'figure.bmp'"):
        result.plot(tmp_path / "figure.bmp")
