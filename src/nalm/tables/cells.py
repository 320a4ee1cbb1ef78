"""Cells of a table as numbers: a column that is nearly all numbers keeps them, and cells that are none are named."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["MANY", "Cells", "cells_of", "missing_rows"]

NEARLY = 0.8
"""Share of the cells of a column that must be numbers for the others to be taken for mistakes."""
MANY = 0.1
"""Share of the rows that a column must lack for that to be mentioned, or the column left out."""
NAMED = 3
"""Mistakes that are shown."""
DATES = (r"\d{4}-\d{2}-\d{2}([T ].*)?", "ISO8601"), (r"\d{1,2}\.\d{1,2}\.\d{4}", "%d.%m.%Y")
"""Dates that can be read in one way only."""
DAY = pd.Timedelta(days=1)


class Cells(NamedTuple):
    """A column as numbers, and what is to be said about it."""

    numbers: NDArray[np.float64] | None
    """NaN where there is none; None where the column holds text."""
    remark: str = ""


def cells_of(column: pd.Series) -> Cells:
    """The numbers of a column; dates become days since the first."""
    column = column.infer_objects()
    if isinstance(column.dtype, pd.PeriodDtype) or pd.api.types.is_complex_dtype(column):
        return Cells(None)
    if pd.api.types.is_timedelta64_dtype(column):
        return Cells(column.dt.total_seconds().to_numpy(), f"column {column.name} holds lengths of time: they became seconds")
    if pd.api.types.is_numeric_dtype(column):
        values = column.to_numpy(np.float64, na_value=np.nan)
        return Cells(np.where(np.isfinite(values), values, np.nan))
    texts = column.map(lambda cell: cell.strip() if isinstance(cell, str) else cell).replace("", None)
    there = texts.notna().to_numpy()
    days, first = _days(texts)
    values = pd.to_numeric(texts, errors="coerce").to_numpy(np.float64, na_value=np.nan) if days is None else days
    values = np.where(np.isfinite(values), values, np.nan)
    wrong = np.flatnonzero(there & np.isnan(values))
    if len(wrong) == there.sum() > 0:
        return Cells(None)
    if len(wrong) > (1 - NEARLY) * there.sum():
        return Cells(None, f"{_mistakes(column, wrong)}; it was left out")
    remark = f"column {column.name} holds dates: they became days since {first:%Y-%m-%d}" if days is not None else ""
    return Cells(values, _mistakes(column, wrong) if len(wrong) else remark)


def _days(texts: pd.Series) -> tuple[NDArray[np.float64] | None, pd.Timestamp]:
    """Days since the first date, and that date; None where the column holds none."""
    kind = next((kind for form, kind in DATES if texts.dropna().astype(str).str.fullmatch(form).mean() >= NEARLY), None)
    if kind is None:
        return None, pd.NaT
    dates = pd.to_datetime(texts.astype(str), format=kind, errors="coerce", utc=True)
    return ((dates - dates.min()) / DAY).to_numpy(np.float64), dates.min()


def _mistakes(column: pd.Series, wrong: NDArray[np.int64]) -> str:
    where = column.index.name or "row"
    shown = [f"{column.iloc[i]!r} in {where} {column.index[i]}" for i in wrong[:NAMED]]
    more = f" and {len(wrong) - NAMED:,} more" if len(wrong) > NAMED else ""
    what = "a cell that is" if len(wrong) == 1 else f"{len(wrong):,} cells that are"
    return f"column {column.name} has {what} no number: {', '.join(shown)}{more}"


def missing_rows(needed: pd.DataFrame) -> list[str]:
    """A remark on the rows that lack a number in a column that is needed, if there are any."""
    lacking = needed.isna()
    rows = int(lacking.any(axis=1).sum())
    counts = [f"{name} ({count})" for name, count in lacking.sum().items() if count]
    return [f"{rows} of {len(needed)} rows were left out, which lack a number in {', '.join(counts)}"] if rows else []
