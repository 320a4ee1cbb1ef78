"""Results for other programs: pandas frames, and tables for LaTeX."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from nalm.notation import escaped

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pandas import DataFrame

    from nalm.specs import Cell, Runs

__all__ = ["frame", "history", "latex"]

HEADINGS = ("module", "range", "runs", "success rate", "solved at", "sparsity error")


def frame(rows: Sequence[Mapping[str, Any]]) -> DataFrame:
    """Rows of a benchmark, one line each; what is not available is NaN."""
    import pandas as pd

    found = pd.DataFrame(list(rows))
    numbers = [name for name in found.columns if found[name].map(lambda value: value is None or isinstance(value, float)).all()]
    return found.astype(dict.fromkeys(numbers, float))


def history(raw: Mapping[Cell, Runs]) -> DataFrame:
    """The errors of every run at every logged step, one line each."""
    import pandas as pd

    parts = []
    for cell, runs in raw.items():
        count, steps = len(runs), len(runs.steps)
        names = ("module", "operation", "inputs", "interpolation", "extrapolation")
        parts.append(
            {
                **{name: np.full(count * steps, getattr(cell, name), object) for name in names},
                "seed": np.repeat(runs.seeds, steps),
                "step": np.tile(runs.steps, count),
                **{name: getattr(runs, name).ravel() for name in ("validation", "test", "sparsity")},
            }
        )
    return pd.concat([pd.DataFrame(part) for part in parts], ignore_index=True).astype({"inputs": int})


def latex(rows: Sequence[Mapping[str, Any]], labels: Mapping[str, str]) -> str:
    """A table of rows of a benchmark for the package booktabs; what is not available is a dash."""
    lines = [
        (
            escaped(labels.get(row["module"], row["module"])),
            escaped(row["interpolation"]),
            str(row["runs"]),
            _with_interval(row, "success_rate", "success", ".2f"),
            _with_interval(row, "solved_at_mean", "solved_at", ",.0f"),
            _with_interval(row, "sparsity_mean", "sparsity", ".1e"),
        )
        for row in rows
    ]
    body = [" & ".join(line) + r" \\" for line in (HEADINGS, *lines)]
    return "\n".join(
        [r"\begin{tabular}{llrlll}", r"\toprule", body[0], r"\midrule", *body[1:], r"\bottomrule", r"\end{tabular}", ""]
    )


def _with_interval(row: Mapping[str, Any], mean: str, interval: str, form: str) -> str:
    values = [row[mean], row[f"{interval}_low"], row[f"{interval}_high"]]
    if values[0] is None:
        return "--"
    low, high = ("--" if value is None else format(value, form) for value in values[1:])
    return f"{format(values[0], form)} [{low}, {high}]"
