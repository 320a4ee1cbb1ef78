"""Measured time series: reading, checking, and the grid of steps on which a model is compared with them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from nalm.tables import MANY, cells_of, missing_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["Trajectories", "columns_of", "read_trajectories"]

FEWEST = 4
"""Rows that a trajectory needs for a slope."""
LETTERS = ("x", "y", "z")


@dataclass(frozen=True)
class Trajectories:
    """One or several time series of the same states."""

    names: tuple[str, ...]
    """Of the states."""
    pieces: tuple[tuple[NDArray[np.float64], NDArray[np.float64]], ...]
    """Times (rows) and states (rows, states) of each."""
    time: str = "t"

    @cached_property
    def states(self) -> NDArray[np.float64]:
        """All rows, (rows, states)."""
        return np.concatenate([states for _, states in self.pieces])

    @property
    def spread(self) -> NDArray[np.float64]:
        """Standard deviation of each state, or its size where it does not vary."""
        found = self.states.std(0)
        usual: NDArray[np.float64] = np.where(found > 0, found, np.maximum(np.abs(self.states).max(0), 1.0))
        return usual

    def grid(self, substeps: int, first: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Lengths of the steps of a solver, and how many lead to each row; none lead to a row where a trajectory starts.

        There are `substeps` equal steps between two times. Before the second time there are `first` times as many, which grow
        from the start: there, a state close to zero may change by orders of magnitude.
        """
        lengths: list[NDArray[np.float64]] = []
        counts: list[int] = []
        for times, _ in self.pieces:
            counts.append(0)
            for row in range(1, len(times)):
                steps = substeps * (first if row == 1 else 1)
                marks = np.linspace(0, 1, steps + 1) ** (2 if row == 1 and first > 1 else 1)
                lengths.append(np.diff(marks) * (times[row] - times[row - 1]))
                counts.append(steps)
        return np.concatenate(lengths), np.array(counts)


def read_trajectories(times: Any, states: Any, names: Sequence[str] | None = None, time: str = "t") -> Trajectories:
    """Check times and states and give them as arrays; a clear error where they cannot be used.

    Args:
        times: (rows), ascending; for several trajectories a list, or one array that they share.
        states: (rows, states) or (rows), an array or a data frame; for several trajectories a list of those.
        names: of the states; by default those of the data frame, or x, y, z.
        time: name of the time.
    """
    several = isinstance(states, (list, tuple)) and len(states) > 0 and np.ndim(states[0]) >= 1 and _is_table(states[0])
    tables = list(states) if several else [states]
    shared = not (isinstance(times, (list, tuple)) and len(times) > 0 and np.ndim(times[0]) == 1)
    clocks = [times] * len(tables) if shared else list(times)
    if len(clocks) != len(tables):
        raise ValueError(f"there are {len(clocks)} series of times but {len(tables)} trajectories")
    found = [str(name) for name in getattr(tables[0], "columns", ())]
    pieces = []
    for number, (clock, table) in enumerate(zip(clocks, tables, strict=True), 1):
        where = f" of trajectory {number}" if len(tables) > 1 else ""
        if [str(name) for name in getattr(table, "columns", ())] != found:
            raise ValueError(f"trajectory {number} has other columns than the first")
        pieces.append(_checked(clock, table, found, where))
    widths = {piece[1].shape[1] for piece in pieces}
    if len(widths) > 1:
        raise ValueError(f"all trajectories must have the same states, got {', '.join(map(str, sorted(widths)))} columns")
    (width,) = widths
    usual = LETTERS[:width] if width <= len(LETTERS) else tuple(f"x{i + 1}" for i in range(width))
    chosen = tuple(map(str, names)) if names is not None else tuple(found) or usual
    if len(chosen) != width or len(set(chosen)) != width:
        raise ValueError(f"names must be {width} different names, one a state, got {', '.join(chosen)}")
    if time in chosen:
        raise ValueError(f"{time!r} is the name of the time and of a state; rename one of them")
    return Trajectories(chosen, tuple(pieces), time)


def columns_of(table: pd.DataFrame, time: str, states: Sequence[str] | None = None) -> tuple[Any, pd.DataFrame, list[str]]:
    """Times, states and remarks on what was left out, from a table with a column of times."""
    columns = [str(name) for name in table.columns]
    for name in (time, *(states or ())):
        if columns.count(name) != 1:
            what = "no column" if name not in columns else "more than one column"
            raise ValueError(f"there is {what} {name!r}; there are: {', '.join(columns)}")
    table = table.set_axis(columns, axis=1)
    cells = {name: cells_of(table[name]) for name in columns if columns.count(name) == 1}
    numeric = [name for name, found in cells.items() if name != time and found.numbers is not None]
    for name in states or ():
        if name not in numeric:
            raise ValueError(f"column {name!r} is the time or holds text; leave it out, or write it as numbers")
    if cells[time].numbers is None:
        raise ValueError(f"the column of times {time!r} holds text")
    chosen = list(states) if states is not None else numeric
    if not chosen:
        raise ValueError(f"there is no column of numbers besides the time {time!r}")
    others = [name for name in columns if name not in (time, *numeric)]
    remarks = [*table.attrs.get("remarks", []), *(cells[name].remark for name in (time, *chosen) if cells[name].remark)]
    remarks += [f"column {name} is not made of numbers and was left out" for name in others]
    numbers = pd.DataFrame({name: cells[name].numbers for name in (time, *chosen)})
    gaps = numbers.dropna(subset=time).drop(columns=time).isna().mean()
    sparse = [] if states is not None else [name for name in chosen if gaps[name] > MANY]
    if sparse and len(sparse) < len(chosen):
        remarks.append(f"left out, for lack of numbers in many rows: {', '.join(sparse)}")
        numbers = numbers.drop(columns=sparse)
    lacking, numbers = missing_rows(numbers), numbers.dropna()
    if lacking and len(numbers) < FEWEST:
        raise ValueError(f"a trajectory needs at least {FEWEST} rows, got {len(numbers)}: {lacking[0]}")
    return numbers[time], numbers.drop(columns=time), remarks + lacking


def _is_table(value: Any) -> bool:
    return hasattr(value, "columns") or np.ndim(value) == 2


def _numbers(values: Any, what: str) -> NDArray[np.float64]:
    try:
        array = np.asarray(values, float)
    except (TypeError, ValueError):
        raise ValueError(f"{what} must be numbers") from None
    return array


def _checked(clock: Any, table: Any, columns: Sequence[str], where: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    for name in columns:
        _numbers(table[name], f"the values of {name!r}{where}")
    times, states = _numbers(clock, f"the times{where}"), _numbers(table, f"the states{where}")
    if times.ndim != 1:
        raise ValueError(f"times{where} must be one column, got shape {times.shape}")
    states = states[:, None] if states.ndim == 1 else states
    if states.ndim != 2 or states.shape[1] == 0:
        raise ValueError(f"states{where} must have shape (rows, states), got {states.shape}")
    if len(times) != len(states):
        raise ValueError(f"there are {len(times)} times but {len(states)} rows of states{where}")
    if len(times) < FEWEST:
        raise ValueError(f"a trajectory needs at least {FEWEST} rows, got {len(times)}{where}")
    for values, what in ((times, "time"), (states, "state")):
        bad = ~np.isfinite(values.reshape(len(values), -1)).all(1)
        if bad.any():
            raise ValueError(
                f"{int(bad.sum())} rows{where} have a {what} that is missing or infinite, the first is row "
                f"{int(np.flatnonzero(bad)[0]) + 1}; remove those rows or fill them in"
            )
    gaps = np.diff(times)
    for wrong, what in ((gaps == 0, "comes twice"), (gaps < 0, "is smaller than the one before")):
        if wrong.any():
            row = int(np.flatnonzero(wrong)[0]) + 1
            raise ValueError(f"times{where} must ascend: {times[row]:g} in row {row + 1} {what}")
    return times, states
