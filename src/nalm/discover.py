"""From a table of numbers to a report: the formula, how good it is inside and outside its range, and what is open."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import sympy as sp
from matplotlib.figure import Figure

from nalm.discovery import rounded
from nalm.figures import COLOURS
from nalm.notation import condition, latex, plain, shortened, text
from nalm.regressor import NALMRegressor
from nalm.tables import MANY, cells_of, missing_rows, read_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["Discovery", "discover", "read_table"]

INSIDE = 0.8
"""Share of the rows that the range is taken to be when the error outside is measured."""
DRAWN = 5_000
"""Most rows that are drawn; more points would be a blot."""
SHORT = 3
"""Restarts that a description without the outermost rows is worth."""
LISTED = 4
"""Columns that a remark names one by one."""
TOGETHER = 0.99
"""Correlation of two columns from which data hardly tell them apart."""


@dataclass(frozen=True, repr=False)
class Discovery:
    """What a table says about one of its columns."""

    target: str
    model: NALMRegressor
    formula: sp.Expr
    """The formula, each coefficient with the digits that the data support, at most six."""
    inside: float
    """Error on rows held out at random, relative to the spread of the target."""
    outside: float | None
    """Error of a formula that was found without the outermost rows, on those rows; None where there are too few rows."""
    same_outside: bool
    """Whether that formula has the same terms."""
    table: pd.DataFrame
    inner: NDArray[np.bool_]
    """Rows that are not outermost."""
    remarks: list[str] = field(default_factory=list)
    """What the data do not say."""
    left_out: list[str] = field(default_factory=list)
    """What of the table was not used, or not as it was written."""

    def __str__(self) -> str:
        claim = "" if self.found else "    (no law found; the best short description)"
        remarks = "".join(f"\n- {remark}" for remark in (*self.left_out, *self.remarks))
        return f"{self.target} = {text(self.formula)}{claim}{remarks}"

    __repr__ = __str__

    @property
    def found(self) -> bool:
        """Whether it explains the data to the noise level."""
        return bool(self.model.found_)

    @property
    def others(self) -> list[tuple[sp.Expr, float, int]]:
        """Formula, error and complexity of the other candidates, the best first."""
        return [(shortened(formula), error, size) for formula, error, size in self.model.candidates_[1:]]

    def to_json(self) -> dict[str, Any]:
        """Everything as plain values."""
        domain = self.model.domain_
        return {
            "target": self.target,
            "found": self.found,
            "reason": self.model.reason_,
            "formula": text(self.formula),
            "latex": latex(self.formula),
            "error_inside": _plain(self.inside),
            "error_outside": _plain(self.outside),
            "same_formula_without_outer_rows": self.same_outside,
            "rows": len(self.table),
            "range": {name: [_plain(low), _plain(high)] for name, (low, high) in domain["range"].items()},
            "undefined": list(map(condition, domain["undefined"])),
            "others": [{"formula": text(f), "error": _plain(error), "complexity": size} for f, error, size in self.others],
            "remarks": self.remarks,
            "left_out": self.left_out,
        }

    def figure(self) -> Figure:
        """The formula's values beside the measured ones, and how far they are apart."""
        some = np.random.default_rng(0).permutation(len(self.table))[:DRAWN]
        table, inner = self.table.iloc[some], self.inner[some]
        y, shown = table[self.target].to_numpy(), self.model.predict(table.drop(columns=self.target))
        figure = Figure(figsize=(10, 4.2), layout="constrained")
        left, right = figure.subplots(1, 2)
        ends = [min(y.min(), np.nanmin(shown)), max(y.max(), np.nanmax(shown))]
        left.plot(ends, ends, color="0.8", linewidth=1, zorder=0)
        wide = bool(y.min() > 0 and y.max() / 30 > y.min() and np.nanmin(shown) > 0)
        missed, label = (shown / y - 1, "formula over measured, minus one") if wide else (shown - y, "formula minus measured")
        for rows, colour, name in ((inner, COLOURS[0], "inner rows"), (~inner, COLOURS[1], "outermost rows")):
            left.plot(y[rows], shown[rows], "o", markersize=4, alpha=0.7, color=colour, label=name)
            right.plot(y[rows], missed[rows], "o", markersize=4, alpha=0.7, color=colour)
        if wide:
            left.set(xscale="log", yscale="log")
            right.set_xscale("log")
        name = plain(self.target)
        left.set(xlabel=f"{name}, measured", ylabel=f"{name}, by the formula")
        right.axhline(0, color="0.8", linewidth=1, zorder=0)
        right.set(xlabel=f"{name}, measured", ylabel=label)
        left.legend(frameon=False)
        if len(table) < len(self.table):
            right.set_title(f"{len(table):,} of {len(self.table):,} rows, chosen at random", fontsize="small")
        figure.suptitle(f"{name} = ${latex(self.formula, picture=True)}$" + ("" if self.found else "  (not a law)"))
        return figure


def discover(
    table: pd.DataFrame | str | os.PathLike[str],
    target: str,
    features: Sequence[str] | None = None,
    *,
    noise: float | str = "auto",
    random_state: int = 0,
    **settings: Any,
) -> Discovery:
    """Look for the law of a column in the others.

    Args:
        table: one row a measurement; or the file that holds them.
        target: the column that the law is to give.
        features: the columns that it may use, or one of them; by default all others that hold numbers.
        noise: standard deviation of the target's noise, in its units, or `auto`.
        random_state: seed of the search.
        settings: further parameters of `NALMRegressor`.

    >>> from nalm.discover import discover, read_table
    >>> discover(read_table("planets"), "year").formula
    axis**(3/2)
    """
    table = read_table(table) if isinstance(table, (str, os.PathLike)) else table
    table, names, left_out = _numbers(table, target, [features] if isinstance(features, str) else features)
    some = table.dropna(subset=target)
    if len(some) < 2:
        raise ValueError(f"{len(some)} of {len(table)} rows have a number in {target!r}; a law needs at least two")
    settings = {"noise": noise, "random_state": random_state, "missing": "drop", **settings}
    model = NALMRegressor(**settings).fit(some[names], some[target])
    needed = [name for name, wanted in zip(names, model.needed_, strict=True) if wanted]
    gaps = {name: int(some[name].isna().sum()) for name in some.columns[:-1][~model.searched_]}
    sparse = [f"{name} ({count})" for name, count in gaps.items() if count > MANY * len(some)]
    if sparse:
        left_out.append(f"not searched, for lack of numbers in many rows: {', '.join(sparse)}")
    left_out += missing_rows(table[[*needed, target]])
    table = some.dropna(subset=needed)
    x, y = table[names], table[target]
    used = [name for name in names if sp.Symbol(name, real=True) in model.formula_.free_symbols]
    inner = _inner(x[used or needed].to_numpy())
    outside, same = None, False
    among = needed if model.found_ else used
    if not model.found_:  # not worth a long search
        settings["restarts"] = min(model.restarts, SHORT)
    if among and inner.sum() >= 5 and not inner.all():
        part = NALMRegressor(**settings).fit(x.loc[inner, among], y[inner])
        unit = float(np.abs(y).max()) or 1.0
        missed = (part.predict(x.loc[~inner, among]) - y[~inner]) / unit
        outside = float(np.sqrt(np.mean(np.square(missed)))) / (float(np.std(y / unit)) or 1.0)
        columns = np.array([names.index(name) for name in among])
        same = part.law_.widened(columns, len(names)).pattern == model.law_.pattern
    remarks = _open_questions(x, model, outside, same)
    law = rounded(model.law_, x.to_numpy(), y.to_numpy())
    formula = shortened(law.expression([sp.Symbol(name, real=True) for name in names]))
    return Discovery(target, model, formula, float(model.error_), outside, same, table, inner, remarks, left_out)


def _numbers(table: pd.DataFrame, target: str, features: Sequence[str] | None) -> tuple[pd.DataFrame, list[str], list[str]]:
    """Columns of numbers, the target last; their names; remarks on columns of text and on cells that are no numbers."""
    columns = [str(name) for name in table.columns]
    if table.empty:
        raise ValueError("the table has no rows")
    for name in (target, *(columns if features is None else features)):
        if name not in columns:
            raise ValueError(f"there is no column {name!r}; there are: {', '.join(columns)}")
        if columns.count(name) > 1:
            raise ValueError(f"two columns have the name {name!r}; rename one of them")
    if features is not None and target in features:
        raise ValueError(f"the target {target!r} cannot be a feature of itself")
    table = table.set_axis(columns, axis=1)
    wanted = [name for name in columns if name != target] if features is None else list(features)
    cells = {name: cells_of(table[name]) for name in (*wanted, target)}
    text = [name for name in cells if cells[name].numbers is None]
    bad = text if features is not None else [name for name in text if name == target]
    if bad:
        what = f"column {bad[0]!r} holds" if len(bad) == 1 else f"columns {', '.join(map(repr, bad))} hold"
        raise ValueError(f"{what} text; leave it out, or write it as numbers")
    names = [name for name in wanted if name not in text]
    if not names:
        raise ValueError("there is no column of numbers besides the target")
    if len(table) < 2:
        raise ValueError("the table has one row; a law needs more")
    numbers = pd.DataFrame({name: cells[name].numbers for name in (*names, target)}, index=table.index)
    remarks = [*table.attrs.get("remarks", []), *(found.remark for found in cells.values() if found.remark)]
    words = [f"column {name} is not made of numbers and was left out" for name in text if not cells[name].remark]
    return numbers, names, words + remarks


def _inner(x: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which rows are left when those with the smallest and largest values of any column go, `INSIDE` of them."""
    ranks = np.argsort(np.argsort(x, 0, kind="stable"), 0, kind="stable") / max(len(x) - 1, 1)
    far = np.abs(ranks - 0.5)[:, np.ptp(x, axis=0) > 0].max(1, initial=0.0)
    inner: NDArray[np.bool_] = np.argsort(np.argsort(far, kind="stable")) < int(INSIDE * len(x))
    return inner


def _plain(value: float | None) -> float | None:
    """A number as JSON knows it."""
    return value if value is not None and math.isfinite(value) else None


def _summary(names: Sequence[str], one: str, many: str) -> list[str]:
    """A remark on each column if they are few, or one on all."""
    if len(names) <= LISTED:
        return [f"{name} {one}" for name in names]
    return [f"{', '.join(names[:LISTED])} and {len(names) - LISTED} more columns {many}"]


def _open_questions(x: pd.DataFrame, model: NALMRegressor, outside: float | None, same: bool) -> list[str]:
    """What the data do not say."""
    remarks = []
    used = {str(symbol) for symbol in model.formula_.free_symbols}
    varying = [name for name in x if x[name].nunique() > 1]
    idle = [name for name in varying if name not in used]
    searched = set(x.columns[model.searched_])
    if not model.found_:
        remarks.append(f"{model.reason_}: the formula is only a description")
    remarks += [
        f"{name} has one value only: what it does cannot be told from a coefficient" for name in x if x[name].nunique() == 1
    ]
    if model.found_:
        remarks += _summary([name for name in idle if name in searched], "plays no part", "play no part")
    rest = "looked at and not needed" if model.found_ else "looked at and not searched"
    remarks += _summary([name for name in idle if name not in searched], f"was {rest}", f"were {rest}")
    ranks = x[varying].rank().corr() if len(varying) > 1 else pd.DataFrame()
    remarks += [
        f"{second} and {first} rise and fall together: which of them the law needs is hard to say"
        for i, first in enumerate(ranks.columns)
        for second in ranks.columns[:i]
        if abs(ranks.loc[first, second]) >= TOGETHER and {first, second} & used
    ]
    if outside is None and used:
        remarks.append("too few rows to measure the error outside the range")
    elif outside is not None and not same:
        remarks.append("without the outermost rows another formula is found: do not trust this one outside its range")
    domain = model.domain_
    remarks += [f"no value where {one}" for one in map(condition, domain["undefined"])]
    return remarks
