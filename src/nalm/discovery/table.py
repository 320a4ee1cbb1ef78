"""Rows to learn from and rows held out, and how well a law explains them: error, description length, what is left over."""

from __future__ import annotations

import copy
import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.spatial import cKDTree

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from nalm.discovery.law import Law

__all__ = ["EXACT", "Candidate", "Table"]

EXACT = 1e-9
"""Relative error below which a law is taken to be exact."""
FEW_ROWS = 10
"""Below so many rows none is held out."""
NEIGHBOURS = 6


class Candidate(NamedTuple):
    """A law with its relative error on rows that were held out, and its description length on all rows."""

    law: Law
    error: float
    length: float

    @property
    def complexity(self) -> int:
        """Of the law."""
        return self.law.complexity


class Table:
    """A table of numbers whose rows are split in two: one part to learn from, one held out.

    Args:
        x: inputs, (rows, inputs).
        y: target, (rows).
        weight: of each row, (rows).
        generator: chooses the rows that are held out, a fifth.
        noise: standard deviation of the target's noise, if known.
    """

    def __init__(
        self,
        x: NDArray[np.float64],
        y: NDArray[np.float64],
        weight: NDArray[np.float64],
        generator: np.random.Generator,
        noise: float | None = None,
    ) -> None:
        self.noise = noise
        self.all_x, self.all_y, self.all_weight = x, y, weight / weight.mean()
        self._order = order = generator.permutation(len(y))
        held = len(y) // 5 if len(y) >= FEW_ROWS else 0
        seen, self._held = order[held:], order[:held] if held else order
        self.x, self.y, self.weight = x[seen], y[seen], self.all_weight[seen]
        self.scale = float(np.sqrt(np.average(np.square(y), weights=weight))) or 1.0

    def with_column(self, column: NDArray[np.float64]) -> Table:
        """The same table, split alike, with one more input."""
        wider = copy.copy(self)
        wider.all_x = np.column_stack([self.all_x, column])
        wider.x = wider.all_x[self._order[len(self.all_y) - len(self.y) :]]
        return wider

    def judge(self, law: Law) -> Candidate:
        """The law with its error and its description length, both infinite where it is not defined on every row."""
        values = law.values(self.all_x)
        if not np.isfinite(values).all():
            return Candidate(law, math.inf, math.inf)
        return Candidate(law, self._error(values), self._length(values, law.complexity))

    def _error(self, values: NDArray[np.float64]) -> float:
        """Root mean square on the rows held out over the spread of the target."""
        y, weight = self.all_y[self._held], self.all_weight[self._held]
        spread = math.sqrt(np.average(np.square(y - np.average(y, weights=weight)), weights=weight))
        return math.sqrt(np.average(np.square(values[self._held] - y), weights=weight)) / (spread or self.scale)

    def _length(self, values: NDArray[np.float64], complexity: int) -> float:
        """Twice the description length in nats: what the law leaves over as normal noise, and the law itself.

        The noise is the same for all rows, or in proportion to the law, whichever describes the rows better; the
        latter leaves no noise where the law is zero, so that the target must be zero there too. Errors below `EXACT` are
        rounding and all alike. Few rows are easily explained by as many numbers, which does not count.
        """
        rows, missed = len(values), np.square(values - self.all_y)
        if self.noise is not None:
            least = self.noise**2 + (EXACT * self.scale) ** 2
            return float((self.all_weight * missed).sum()) / least + self._own_length(complexity)
        even = rows * math.log(np.mean(self.all_weight * missed) / self.scale**2 + EXACT**2)
        sizes, some = np.abs(values) / self.scale, values != 0
        if some.any() and not missed[~some].any():
            share = np.average(missed[some] / np.square(values[some]), weights=self.all_weight[some]) + EXACT**2
            exact = (rows - some.sum()) * math.log(EXACT**2)
            even = min(even, some.sum() * math.log(share) + 2 * float(np.log(sizes[some]).sum()) + exact)
        return even + self._own_length(complexity)

    def _own_length(self, complexity: int) -> float:
        rows = len(self.all_y)
        return complexity * math.log(rows) + rows * math.log(rows / max(rows - complexity, 0.5))

    def could_be(self, candidate: Candidate) -> float:
        """What the description length would be if the law itself took nothing."""
        return candidate.length - self._own_length(candidate.complexity)

    def excess(self, law: Law) -> float:
        """Mean square of what a law leaves over, in units of the known noise."""
        missed = np.square(law.values(self.all_x) - self.all_y)
        return float(np.mean(self.all_weight * missed)) / ((self.noise or 0.0) ** 2 + (EXACT * self.scale) ** 2)

    def looks_like_noise(self, law: Law, along: Sequence[NDArray[np.float64]] = ()) -> bool:
        """Whether what a law leaves over at a row says nothing about the rows next to it, in any pair of its inputs.

        Nor, if other quantities are given, about the rows next to it in one of these. Rows come in an order of their own here:
        among rows with the same inputs, none may be nearer because its target is.
        """
        x, y = np.column_stack([self.all_x, *along])[self._order], self.all_y[self._order]
        with np.errstate(all="ignore"):
            left = (y - law.values(self.all_x[self._order])) / np.maximum(np.abs(y), 1e-3 * self.scale)
        ranks = np.argsort(np.argsort(left)) / len(left) - 0.5
        places = np.argsort(np.argsort(x, 0), 0) / len(left)
        columns = range(self.all_x.shape[1])
        views = [[i] for i in range(x.shape[1])] + [[i, j] for i in columns for j in range(i)] + [list(columns)]
        worst = 0.0
        for view in views:
            _, near = cKDTree(places[:, view]).query(places[:, view], min(NEIGHBOURS + 1, len(left)))
            share = ranks * ranks[near[:, 1:]].mean(1)
            worst = max(worst, float(share.sum() / max(np.sqrt(np.square(share).sum()), 1e-300)))
        return worst < 1.4 * (3 + math.log10(len(views)))  # neighbours are mostly mutual, which adds to the spread of the sum
