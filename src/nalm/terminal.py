"""What commands show on a terminal: tables, numbers with their intervals."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = ["number", "print_rows", "print_table", "with_interval"]

WIDTH = 140
"""Columns of a table that goes to a file."""


def print_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print texts below their headings, on standard output; where there is little room, each word of a heading has its line."""
    from rich.console import Console
    from rich.table import Table

    console = Console(width=None if sys.stdout.isatty() else WIDTH, markup=False, emoji=False)
    lines = list(rows)
    columns = list(zip(headings, *lines, strict=True))
    crowded = sum(2 + max(map(len, column)) for column in columns) > console.width
    table = Table(box=None, header_style="bold")
    for heading, *cells in columns:
        narrow = crowded and all(len(cell) < len(heading) for cell in cells)
        table.add_column(heading.replace(" ", "\n") if narrow else heading, overflow="fold")
    for line in lines:
        table.add_row(*line)
    console.print(table)


def print_rows(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print dictionaries with the same keys as a table; a value `x` and its standard error `x_error` share a column."""
    if not rows:
        return
    shown = [key for key in rows[0] if not key.endswith("_error") or key.removesuffix("_error") not in rows[0]]
    cells = [[_cell(row[key], row.get(f"{key}_error")) for key in shown] for row in rows]
    print_table([key.replace("_", " ") for key in shown], cells)


def _cell(value: Any, error: float | None) -> str:
    """A value as text, with its standard error if there is one."""
    if value is None:
        return ""
    text = f"{value:.3g}" if isinstance(value, float) else str(value)
    return text if error is None else f"{text} ± {error:.2g}"


def number(value: float | None, form: str) -> str:
    """A number in a format, or a dash where there is none."""
    return "-" if value is None else format(value, form)


def with_interval(row: Mapping[str, Any], name: str, form: str) -> str:
    """A mean of a row with its interval, where it has one."""
    low, mean, high = (row[f"{name}_{part}"] for part in ("low", "mean", "high"))
    return number(mean, form) if low is None or high is None else f"{mean:{form}} [{low:{form}}, {high:{form}}]"
