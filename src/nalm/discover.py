"""From a table of numbers to a report: the formula, how good it is inside and outside its range, and what is open."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import sympy as sp
from matplotlib.figure import Figure

from nalm.figures import COLOURS
from nalm.regressor import NALMRegressor

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["Discovery", "discover", "read_table"]

INSIDE = 0.8
"""Share of the rows that the range is taken to be when the error outside is measured."""
TOGETHER = 0.99
"""Correlation of two columns from which data hardly tell them apart."""


@dataclass(frozen=True)
class Discovery:
    """What a table says about one of its columns."""

    target: str
    model: NALMRegressor
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

    @property
    def formula(self) -> sp.Expr:
        """The formula, with coefficients to six digits."""
        return _shortened(self.model.formula_)

    @property
    def found(self) -> bool:
        """Whether it explains the data to the noise level."""
        return bool(self.model.found_)

    @property
    def others(self) -> list[tuple[sp.Expr, float, int]]:
        """Formula, error and complexity of the other candidates, the best first."""
        return [(_shortened(formula), error, size) for formula, error, size in self.model.candidates_[1:]]

    def to_json(self) -> dict[str, Any]:
        """Everything as plain values."""
        domain = self.model.domain_
        return {
            "target": self.target,
            "found": self.found,
            "reason": self.model.reason_,
            "formula": str(self.formula),
            "latex": sp.latex(self.formula),
            "error_inside": self.inside,
            "error_outside": self.outside,
            "same_formula_without_outer_rows": self.same_outside,
            "rows": len(self.table),
            "range": domain["range"],
            "undefined": [str(condition) for condition in domain["undefined"]],
            "others": [{"formula": str(f), "error": error, "complexity": size} for f, error, size in self.others],
            "remarks": self.remarks,
        }

    def figure(self) -> Figure:
        """The formula's values beside the measured ones, and how far they are apart."""
        x = self.table.drop(columns=self.target)
        y, shown = self.table[self.target].to_numpy(), self.model.predict(x)
        figure = Figure(figsize=(10, 4.2), layout="constrained")
        left, right = figure.subplots(1, 2)
        ends = [min(y.min(), np.nanmin(shown)), max(y.max(), np.nanmax(shown))]
        left.plot(ends, ends, color="0.8", linewidth=1, zorder=0)
        wide = bool(y.min() > 0 and y.max() > 30 * y.min() and np.nanmin(shown) > 0)
        missed, label = (shown / y - 1, "formula over measured, minus one") if wide else (shown - y, "formula minus measured")
        for rows, colour, name in ((self.inner, COLOURS[0], "inner rows"), (~self.inner, COLOURS[1], "outermost rows")):
            left.plot(y[rows], shown[rows], "o", markersize=4, alpha=0.7, color=colour, label=name)
            right.plot(y[rows], missed[rows], "o", markersize=4, alpha=0.7, color=colour)
        if wide:
            left.set(xscale="log", yscale="log")
            right.set_xscale("log")
        left.set(xlabel=f"{self.target}, measured", ylabel=f"{self.target}, by the formula")
        right.axhline(0, color="0.8", linewidth=1, zorder=0)
        right.set(xlabel=f"{self.target}, measured", ylabel=label)
        left.legend(frameon=False)
        figure.suptitle(f"{self.target} = ${sp.latex(self.formula)}$" + ("" if self.found else "  (not a law)"))
        return figure


def read_table(path: str | os.PathLike[str]) -> pd.DataFrame:
    """A table from a CSV, TSV or Parquet file, or one that comes with the library, by name."""
    file = Path(path)
    bundled = files("nalm") / "tables" / f"{path}.csv"
    if not file.is_file():
        if file.suffix or not bundled.is_file():
            raise ValueError(f"there is no file {str(path)!r}")
        file = Path(str(bundled))
    try:
        if file.suffix.lower() in (".parquet", ".pq"):
            return pd.read_parquet(file)
        return _read_text(file)
    except ImportError:
        raise ValueError("Parquet files need the package pyarrow: pip install pyarrow") from None
    except pd.errors.EmptyDataError:
        raise ValueError(f"{path} is empty") from None
    except (ValueError, OSError) as error:
        raise ValueError(f"cannot read {path}: {error}") from None


def _read_text(file: Path) -> pd.DataFrame:
    """The table with its names as they stand in the file: of two columns with one name, pandas renames the second."""
    with file.open(encoding="utf-8-sig") as lines:
        heading = next((line for line in lines if line.strip()), "")
    separator = "\t" if file.suffix.lower() in (".tsv", ".tab") else max(",;", key=heading.count)
    table = pd.read_csv(file, sep=separator, skipinitialspace=True)
    names = pd.read_csv(file, sep=separator, skipinitialspace=True, header=None, nrows=1, dtype=str).iloc[0]
    if len(names) == len(table.columns):
        table.columns = [table.columns[i] if pd.isna(name) else name for i, name in enumerate(names)]
    return table


def discover(
    table: pd.DataFrame,
    target: str,
    features: Sequence[str] | None = None,
    *,
    noise: float | str = "auto",
    random_state: int = 0,
    **settings: Any,
) -> Discovery:
    """Look for the law of a column in the others.

    Args:
        table: one row a measurement.
        target: the column that the law is to give.
        features: the columns that it may use; by default all others that hold numbers.
        noise: standard deviation of the target's noise, in its units, or `auto`.
        random_state: seed of the search.
        settings: further parameters of `NALMRegressor`.

    >>> from nalm.discover import discover, read_table
    >>> discover(read_table("planets"), "year").formula
    axis**(3/2)
    """
    table, names, remarks = _numbers(table, target, features)
    x, y = table[names], table[target]
    model = NALMRegressor(noise=noise, random_state=random_state, **settings).fit(x, y)
    used = [name for name in names if sp.Symbol(name, real=True) in model.formula_.free_symbols]
    inner = _inner(x[used or names].to_numpy())
    outside, same = None, False
    if inner.sum() >= 5 and not inner.all():
        part = NALMRegressor(noise=noise, random_state=random_state, **settings).fit(x[inner], y[inner])
        spread = float(np.std(y))
        outside = float(np.sqrt(np.mean(np.square(part.predict(x[~inner]) - y[~inner])))) / (spread or 1.0)
        same = part.law_.pattern == model.law_.pattern
    remarks += _open_questions(x, model, outside, same)
    return Discovery(target, model, float(model.error_), outside, same, table[[*names, target]], inner, remarks)


def _numbers(table: pd.DataFrame, target: str, features: Sequence[str] | None) -> tuple[pd.DataFrame, list[str], list[str]]:
    """The rows and columns to use, and what was left out; a clear error where nothing can be done."""
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
    numeric = {name for name in columns if columns.count(name) == 1 and pd.api.types.is_numeric_dtype(table[name])}
    for name in (target, *(features or [])):
        if name not in numeric:
            raise ValueError(f"column {name!r} holds text; leave it out, or write it as numbers")
    names = list(features) if features is not None else [name for name in columns if name in numeric and name != target]
    left_out = [name for name in columns if name not in numeric] if features is None else []
    remarks = [f"column {name} is not made of numbers and was left out" for name in left_out]
    if not names:
        raise ValueError("there is no column of numbers besides the target")
    used = table[[*names, target]].astype(float)
    for name in used:
        missing = ~np.isfinite(used[name].to_numpy())
        if missing.any():
            line = int(np.flatnonzero(missing)[0]) + 2
            raise ValueError(
                f"column {name!r} has {int(missing.sum())} values that are missing or infinite, the first in line {line}; "
                "remove those rows or fill them in"
            )
    if len(used) < 2:
        raise ValueError("the table has one row; a law needs more")
    return used, names, remarks


def _inner(x: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which rows are left when those with the smallest and largest values of any column go, `INSIDE` of them."""
    ranks = np.argsort(np.argsort(x, 0, kind="stable"), 0, kind="stable") / max(len(x) - 1, 1)
    far = np.abs(ranks - 0.5)[:, np.ptp(x, axis=0) > 0].max(1, initial=0.0)
    inner: NDArray[np.bool_] = np.argsort(np.argsort(far, kind="stable")) < int(INSIDE * len(x))
    return inner


def _shortened(expression: sp.Expr) -> sp.Expr:
    return expression.xreplace({number: sp.Float(number, 6) for number in expression.atoms(sp.Float)})


def _open_questions(x: pd.DataFrame, model: NALMRegressor, outside: float | None, same: bool) -> list[str]:
    """What the data do not say."""
    remarks = []
    used = {str(symbol) for symbol in model.formula_.free_symbols}
    varying = [name for name in x if np.ptp(x[name]) > 0]
    if not model.found_:
        remarks.append(f"{model.reason_}: the formula is only a description")
    for name in x:
        if name not in varying:
            remarks.append(f"{name} has one value only: what it does cannot be told from a coefficient")
        elif name not in used and model.found_:
            remarks.append(f"{name} plays no part")
    ranks = x[varying].rank().corr() if len(varying) > 1 else pd.DataFrame()
    remarks += [
        f"{second} and {first} rise and fall together: which of them the law needs is hard to say"
        for i, first in enumerate(ranks.columns)
        for second in ranks.columns[:i]
        if abs(ranks.loc[first, second]) >= TOGETHER and {first, second} & used
    ]
    if outside is None:
        remarks.append("too few rows to measure the error outside the range")
    elif not same:
        remarks.append("without the outermost rows another formula is found: do not trust this one outside its range")
    domain = model.domain_
    remarks += [f"no value where {condition}" for condition in map(str, domain["undefined"])]
    return remarks
