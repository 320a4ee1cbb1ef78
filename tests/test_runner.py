"""The benchmark as a whole: rows, stores, user modules, published facts, and what happens when things go wrong."""

import contextlib
import json
import math
import sqlite3

import numpy as np
import pytest

import nalm
from conftest import Adder
from nalm.runner import benchmark
from nalm.specs import Cell, Recipe
from nalm.store import Store, StoreWarning
from nalm.tasks import NINE_RANGES

FAST = {"iterations": 400, "log_interval": 200, "evaluation_rows": 100}


def test_rows_have_the_fields_of_the_interface():
    result = nalm.benchmark("nmu", ranges=["U[1,2)", "U[1,2) -> U[3,4)"], seeds=3, **FAST)
    fields = (
        "module operation inputs interpolation extrapolation runs success_rate success_low success_high solved_at_median "
        "solved_at_mean solved_at_low solved_at_high sparsity_mean sparsity_low sparsity_high threshold"
    )
    assert [set(row) for row in result.rows] == [set(fields.split())] * 2
    assert [row["extrapolation"] for row in result.rows] == ["U[2,6)", "U[3,4)"]
    assert len(result.runs) == 6
    assert (result.engine, result.labels) == ("fused", {"nmu": "NMU"})
    json.dumps([result.rows, result.runs])


def test_plot_writes_both_formats(tmp_path):
    result = benchmark(["nmu", "snmu"], ranges=["U[1,2)"], seeds=2, **FAST)
    assert [path.suffix for path in result.plot(tmp_path / "figure")] == [".png", ".svg"]


def test_published_success_rates():
    """The stochastic NMU always solves multiplication; the NMU fails on some seeds of two negative ranges."""
    hard = ["U[-2,-1)", "U[-1.2,-1.1)"]
    rows = benchmark(["nmu", "snmu"], ranges=hard, seeds=200).rows
    rates = {(row["module"], row["interpolation"]): row["success_rate"] for row in rows}
    assert rates["snmu", hard[0]] == rates["snmu", hard[1]] == 1
    assert 0.74 < rates["nmu", hard[0]] < 0.94
    assert 0.5 < rates["nmu", hard[1]] < 0.74


@pytest.mark.parametrize(("module", "operation"), [("nau", "add"), ("nau", "sub"), ("nru", "div"), ("nmru", "div")])
def test_modules_that_solve_all_nine_ranges(module, operation):
    rows = benchmark(module, operation=operation, seeds=4).rows
    assert [row["interpolation"] for row in rows] == list(NINE_RANGES)
    assert [row["success_rate"] for row in rows] == [1.0] * 9


def test_irrelevant_inputs():
    (row,) = benchmark("nau", operation="add", inputs=10, ranges=["U[-2,2)"], seeds=3, iterations=30_000).rows
    assert (row["inputs"], row["success_rate"]) == (10, 1.0)


def test_user_modules_run_on_the_torch_engine():
    values = {**FAST, "iterations": 1500, "learning_rate": 0.03}
    result = benchmark(Adder, operation="add", ranges=["U[-2,2)", "U[1,2)"], seeds=3, compiled=False, **values)
    assert result.engine == "torch"
    assert [row["success_rate"] for row in result.rows] == [1.0, 1.0]
    assert result.rows[0]["sparsity_mean"] is None
    with pytest.raises(ValueError, match="no kernel for Adder"):
        benchmark(Adder, operation="add", engine="fused")


def test_both_engines_judge_alike():
    fast, slow = (
        benchmark("nmu", ranges=["U[1,2)"], seeds=4, engine=engine, compiled=False, iterations=4000, learning_rate=1e-2)
        for engine in ("fused", "torch")
    )
    assert (fast.engine, slow.engine) == ("fused", "torch")
    assert fast.rows[0]["success_rate"] == slow.rows[0]["success_rate"] == 1
    for mine, theirs in zip(fast.runs, slow.runs, strict=True):
        np.testing.assert_allclose(mine["weights"], theirs["weights"], atol=1e-3)


def test_a_module_that_cannot_be_built_is_recorded(tmp_path):
    def broken(in_features, out_features):
        raise RuntimeError("no such luck")

    benchmark([broken, "nmu"], ranges=["U[1,2)"], seeds=2, out=tmp_path, **FAST)
    result = benchmark([broken, "nmu"], ranges=["U[1,2)"], seeds=2, out=tmp_path, **FAST)
    assert {run["status"] for run in result.runs if run["module"] == "broken"} == {"failed"}
    assert {run["status"] for run in result.runs if run["module"] == "nmu"} == {"ok"}
    assert result.failures[0] == "broken on mul U[1,2), seed 0: RuntimeError: no such luck"


def test_store_saves_work_and_grows(tmp_path, monkeypatch):
    first = benchmark("nmu", ranges=["U[1,2)"], seeds=2, out=tmp_path, **FAST)
    more = benchmark("nmu", ranges=["U[1,2)", "U[-2,2)"], seeds=4, out=tmp_path, **FAST)
    assert more.runs[:2] == first.runs
    monkeypatch.setattr("nalm.runner.fused.train", None)
    again = benchmark("nmu", ranges=["U[1,2)", "U[-2,2)"], seeds=4, out=tmp_path, **FAST)
    assert again.rows == more.rows
    assert again.seconds == 0
    with Store(tmp_path, version="test") as store:
        assert [cell.interpolation for cell in store.cells()] == ["U[1,2)", "U[-2,2)"]


def test_a_damaged_row_is_trained_again(tmp_path):
    first = benchmark("nmu", ranges=["U[1,2)"], seeds=3, out=tmp_path, **FAST)
    with contextlib.closing(sqlite3.connect(tmp_path / "results.sqlite")) as connection:
        connection.execute("UPDATE runs SET test = zeroblob(length(test)) WHERE seed = 1")
        connection.commit()
    with pytest.warns(StoreWarning, match="results.sqlite: row 2 of runs is damaged and left out"):
        again = benchmark("nmu", ranges=["U[1,2)"], seeds=3, out=tmp_path, **FAST)
    assert again.runs == first.runs
    assert benchmark("nmu", ranges=["U[1,2)"], seeds=3, out=tmp_path, **FAST).runs == first.runs


def test_interrupted_grid_keeps_finished_cells(tmp_path):
    class Stop:
        count = 0

        def start(self, total, what):
            pass

        def advance(self, amount):
            self.count += amount
            if self.count > 6:
                raise KeyboardInterrupt

    ranges = list(NINE_RANGES[:4])
    with pytest.raises(KeyboardInterrupt):
        benchmark("nmu", ranges=ranges, seeds=4, out=tmp_path, threads=1, progress=Stop(), **FAST)
    with Store(tmp_path, version="test") as store:
        assert [cell.interpolation for cell in store.cells()] == ranges[:1]
    resumed = benchmark("nmu", ranges=ranges, seeds=4, out=tmp_path, **FAST)
    undisturbed = benchmark("nmu", ranges=ranges, seeds=4, **FAST)
    assert resumed.rows == undisturbed.rows
    assert resumed.runs == undisturbed.runs


def test_a_new_threshold_needs_no_training(tmp_path, monkeypatch):
    benchmark("nmu", ranges=["U[1,2)"], seeds=3, out=tmp_path, **FAST)
    monkeypatch.setattr("nalm.runner.fused.train", None)
    (strict,) = benchmark("nmu", ranges=["U[1,2)"], seeds=3, out=tmp_path, threshold=1e-30, **FAST).rows
    (lax,) = benchmark("nmu", ranges=["U[1,2)"], seeds=3, out=tmp_path, threshold=1e30, **FAST).rows
    (simulated,) = benchmark("nmu", ranges=["U[1,2)"], seeds=3, out=tmp_path, threshold="simulated", **FAST).rows
    assert (strict["success_rate"], lax["success_rate"]) == (0, 1)
    assert simulated["threshold"] == pytest.approx(1.202e-7, rel=0.02)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"module": "nmuu"}, "unknown module 'nmuu'"),
        ({"module": "nau", "operation": "mul"}, "nau cannot express mul; it can express: add, sub, identity"),
        ({"module": "nmu", "operation": "power"}, "unknown operation 'power'"),
        ({"module": "nmu", "task": "chess"}, "unknown task 'chess'"),
        ({"module": "nmu", "engine": "steam"}, "unknown engine 'steam'"),
        ({"module": "nmu", "seeds": 0}, "seeds must be"),
        ({"module": "nmu", "seeds": [1, 1]}, "seeds must be"),
        ({"module": "nmu", "inputs": 1}, "mul needs at least 2 inputs, got 1"),
        ({"module": "nmu", "ranges": ["U[2,1)"]}, "lower bound must be below"),
        ({"module": "nmu", "ranges": ["everything"]}, "cannot read the distribution"),
        ({"module": "nmu", "task": "arithmetic-dataset", "data": {"colour": 1}}, "has no value 'colour'; it has: subset"),
        ({"module": "nau+nmu", "task": "arithmetic-dataset", "data": {"subsets": 9}}, "9 spans of 25 inputs"),
        ({"module": "nmu", "threshold": "low"}, "threshold must be a number"),
        ({"module": "nmu", "threshold": -1}, "threshold must be positive"),
        ({"module": "nmu", "colour": 3}, "a recipe has no value 'colour'"),
        ({"module": "nmu", "loss": "hinge"}, "loss must be one of"),
        ({"module": "nmu", "optimiser": "lion"}, "optimiser must be one of"),
        ({"module": "nmu", "norm": 3}, "norm must be"),
        ({"module": "nmu", "iterations": -1}, "iterations must be at least 0"),
        ({"module": "nmu", "learning_rate": 0}, "learning_rate must be positive"),
        ({"module": "nmu", "penalty_end": 0}, "penalty_end must come after"),
        ({"module": "nmu", "module_options": 5}, "module_options must be a mapping of names to values, got 5"),
        ({"module": "nmu", "data": 5}, "data must be a mapping of names to values, got 5"),
        ({"module": "nmu", "ranges": 5}, "ranges must be a text or a list of texts, got 5"),
        ({"module": "nmu", "ranges": [5]}, "each range must be a text, got 5"),
        ({"module": "nmu", "out": 5}, "out must be a folder, got 5"),
        ({"module": "nmu", "threads": -1}, "threads must be at least 1, got -1"),
        ({"module": "nmu", "threads": "x"}, "threads must be a whole number, got 'x'"),
        ({"module": "nmu", "compiled": "no"}, "compiled must be True or False, got 'no'"),
        ({"module": ["nmu", "nmu"]}, "each module may be named once"),
        ({"module": "product-fc", "engine": "fused", "operation": "mul"}, "no kernel for product-fc"),
    ],
)
def test_bad_questions_are_refused_in_one_sentence(arguments, message):
    with pytest.raises(ValueError, match=message) as caught:
        benchmark(**arguments)
    assert "\n" not in str(caught.value)


def test_one_range_may_be_a_text():
    (row,) = benchmark(Adder, operation="add", ranges="U[1,2)", seeds=1, **{**FAST, "iterations": 1}).rows
    assert row["interpolation"] == "U[1,2)"


def test_only_names_and_functions_are_modules():
    with pytest.raises(TypeError, match="registry name or a function"):
        benchmark([3])


def test_cells_have_one_text_and_one_key():
    recipe = Recipe(penalty=10)
    cell = Cell("snmu", "mul", 2, "U[1,2)", "U[2,6)", recipe, options=(("sigma", 1.0), ("noise_range", (1.0, 2.0))))
    same = Cell.from_json(cell.to_json())
    assert same == cell
    assert same.key == cell.key
    assert Cell("nmu", "mul", 2, "a", "b", Recipe(penalty=10.0)).key == Cell("nmu", "mul", 2, "a", "b", recipe).key
    assert Cell("nmu", "mul", 2, "a", "b", Recipe(penalty=9.0)).key != Cell("nmu", "mul", 2, "a", "b", recipe).key


def test_recipes_are_the_published_ones():
    records = nalm.modules()

    def values(name, operation, inputs, *fields):
        recipe = records[name].recipe_for(operation, inputs)
        return tuple(getattr(recipe, field) for field in fields)

    ramp = ("penalty", "penalty_start", "penalty_end", "iterations")
    assert values("nmu", "mul", 2, *ramp) == (10, 20_000, 35_000, 50_000)
    assert values("nau", "add", 2, *ramp) == (0.01, 20_000, 35_000, 50_000)
    assert values("nau", "add", 10, *ramp) == (0.01, 50_000, 75_000, 100_000)
    assert values("real-npu-mod", "div", 2, *ramp) == (1, 40_000, 50_000, 50_000)
    assert values("nru", "div", 2, "learning_rate") == (1,)
    assert values("nru", "div", 10, "learning_rate") == (1e-3,)
    assert values("nmru", "div", 2, "learning_rate", "clip_norm") == (1e-2, 1)
    growth = ("learning_rate", "norm", "norm_start", "norm_end")
    assert values("npu", "mul", 2, *growth) == (5e-3, 1, 1e-7, 1e-5)
    assert values("npu", "div", 2, *growth) == (5e-3, 1, 1e-9, 1e-7)
    assert values("inalu", "add", 2, "penalty", "penalty_below", "penalty_start", "clip_value", "reinitialise") == (
        0.05,
        1,
        10_000,
        0.1,
        True,
    )
    assert math.isclose(records["nalu"].recipe_for("add", 2).penalty, 0)
