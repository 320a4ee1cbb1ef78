"""What time series say for and against a system of equations; `nalm.discovery.verdict` weighs it.

Trajectories differ from tables in two ways. Their errors are often smooth, as those of solvers and instruments are, and a
spurious term can follow smooth errors. And their states depend on each other: on one line, or where a sum or an energy is
conserved, several equations are equal.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import combinations, product
from typing import TYPE_CHECKING

import numpy as np
from numpy.polynomial.legendre import legvander

from nalm.discovery import Evidence, chance
from nalm.dynamics.laws import SOLVER_ACCURACY, TINY, Judge, LawSystem

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["SystemEvidence"]

LARGEST_ERROR = 0.1
"""Error relative to the spread above which a system is no law."""
ROWS_EACH = 3
"""Numbers that data must have for each number of a law."""
ACCURACY = 1e-3
"""Share of a state's spread that a term must make a difference of: smaller errors of solvers and instruments are usual."""
ALIKE = 1e-4
"""Relative difference of slopes below which two laws say the same."""
NEXT_POWER, MOST = 1e-3, 0.03
"""The same for a term times a square, and with noise: true laws mostly differ by more from what that makes of them."""
DEGREE = 6
"""Of the polynomials of time that what is left over is compared with."""
RARE = 1e-3
"""Probability below which it does not go with them by chance."""
POWERS = (0.0, 1.0, 2.0, 3.0, 0.5, 1.5, -1.0)
"""Of each state, in the products that other laws are made of."""
HIGHEST = 4.0
"""Largest sum of the magnitudes of a product's powers."""
CHAIN = 3
"""Powers of one product in a slope that follow any smooth curve."""


@dataclass(frozen=True)
class SystemEvidence(Evidence):
    """What trajectories say about the equations that describe them shortest."""

    judge: Judge
    law: LawSystem
    left: NDArray[np.float64]
    """Solution minus data, (rows, states), by an adaptive solver."""

    @property
    def _shares(self) -> NDArray[np.float64]:
        return self.left / self.judge.spread

    @property
    def _sizes(self) -> NDArray[np.float64]:
        sizes: NDArray[np.float64] = np.sqrt(np.square(self._shares).mean(0))
        return sizes

    def too_few(self) -> bool:
        """Three numbers of the data for each of the law."""
        numbers = int((self.law.coefficients != 0).sum() + (self.law.exponents != 0).sum())
        return self.left.size < ROWS_EACH * numbers

    def is_exact(self) -> bool:
        """To the accuracy of the solver."""
        return bool((self._sizes < SOLVER_ACCURACY).all()) and not self.is_idle()

    def is_idle(self) -> bool:
        """A law without terms."""
        return not (self.law.coefficients != 0).any()

    def leaves_something(self) -> bool:
        """A large error, or one that goes on from row to row."""
        if not (self._sizes < LARGEST_ERROR).all():
            return True
        row = 0
        for times, _ in self.judge.data.pieces:
            own = self._shares[row : row + len(times)]
            row += len(times)
            if any(_goes_on(times, column) for column, size in zip(own.T, self._sizes, strict=True) if size >= SOLVER_ACCURACY):
                return True
        return False

    def is_connected(self) -> bool:
        """Another sum of at most two products, or the same with one product changed, gives the same slopes and is as short.

        So do terms of a series where an energy is conserved: any other power serves in place of one of them.
        """
        states, powers = self.judge.data.states, _products(self.law.exponents.shape[1])
        library = _values(states, powers)
        usable = np.isfinite(library).all(0) & (np.abs(library).max(0) < 1e12)
        library, costs = library[:, usable], [_cost(one) for one in powers[usable]]
        known = {tuple(one): number for number, one in enumerate(powers[usable].tolist())}
        for row in self.law.coefficients:
            used = np.flatnonzero(row)
            terms = _values(states, self.law.exponents[used])
            own = {known.get(tuple(one), -1) for one in self.law.exponents[used].tolist()}
            cost = sum(_cost(one) for one in self.law.exponents[used])
            if len(used) and _others(library, terms, terms @ row[used], own, (costs, cost)):
                return True
        path, bound = states + self.left, min(max(NEXT_POWER, 3 * float(self._sizes.max())), MOST)
        return any(_is_replaceable(path, self.law.exponents[row != 0], row[row != 0], bound) for row in self.law.coefficients)

    def follows_any_curve(self) -> bool:
        """Third roots in sums, three powers of one product, or a term that could be an error of the data."""
        for row in self.law.coefficients:
            own = self.law.exponents[row != 0]
            if len(own) > 1 and (np.abs(2 * own - np.round(2 * own)) > 1e-9).any():
                return True
            if any(_is_chain(np.array(some)) for some in combinations(own, CHAIN)):
                return True
        return any(self._error_without(i, j) < ACCURACY for i, j in np.argwhere(self.law.coefficients != 0))

    def _error_without(self, state: int, place: int) -> float:
        fewer = self.law.coefficients.copy()
        fewer[state, place] = 0.0
        kept = self.judge.starts
        shorter = self.judge.fit(replace(self.law, coefficients=fewer).tidy())
        missed = self.judge.missed(shorter)
        self.judge.starts = kept
        return float(np.sqrt(np.square(missed).mean(0)).max())

    def has_rivals(self) -> bool:
        """The search compared them on the trajectories."""
        return False


def _goes_on(times: NDArray[np.float64], left: NDArray[np.float64]) -> bool:
    """Whether what is left over at a row says something about the next one, or goes with a polynomial of time."""
    alike = float(np.sum(left[1:] * left[:-1]) / max(np.sum(np.square(left)), 1e-300))
    basis: NDArray[np.float64] = legvander(2 * (times - times[0]) / (times[-1] - times[0]) - 1, DEGREE).astype(np.float64)
    return alike > 3 / math.sqrt(len(left)) or chance(left, basis[:, :1], basis[:, 1:]) < RARE


def _products(states: int) -> NDArray[np.float64]:
    """Powers of the states in products of which other laws could be made, (products, states)."""
    found = np.array([one for one in product(POWERS, repeat=min(states, 3)) if sum(map(abs, one)) <= HIGHEST])
    return found if states <= 3 else np.concatenate([np.eye(states), 2 * np.eye(states), np.zeros((1, states)), _pairs(states)])


def _pairs(states: int) -> NDArray[np.float64]:
    rows = [np.eye(states)[i] + np.eye(states)[j] for i, j in combinations(range(states), 2)]
    return np.array(rows).reshape(-1, states)


@np.errstate(all="ignore")
def _values(states: NDArray[np.float64], powers: NDArray[np.float64]) -> NDArray[np.float64]:
    """Products of powers at the states, as the law means them: whole odd powers keep the sign, (rows, products)."""
    sizes = np.exp(np.log(np.abs(states) + TINY) @ powers.T)
    signs = np.where((states < 0)[:, None, :] & (powers % 2 == 1), -1.0, 1.0).prod(-1)
    values: NDArray[np.float64] = sizes * signs
    return values


def _cost(powers: NDArray[np.float64]) -> int:
    """Of one product in the description, beside its coefficient."""
    return int((powers != 0).sum() + ((powers != 0) & (powers != 1)).sum())


def _others(
    library: NDArray[np.float64],
    terms: NDArray[np.float64],
    slope: NDArray[np.float64],
    own: set[int],
    costs: tuple[list[int], int],
) -> bool:
    """Whether other products from the library, as cheap, give a slope."""
    each, most = costs
    count = terms.shape[1]
    others = [number for number in range(library.shape[1]) if number not in own and each[number] <= most]

    def same(columns: NDArray[np.float64]) -> bool:
        return _rest(columns, slope) < ALIKE

    if any(same(library[:, [one]]) for one in others):
        return True
    if count == 2:
        pairs = combinations(range(library.shape[1]), 2)
        some = (pair for pair in pairs if each[pair[0]] + each[pair[1]] <= most and set(pair) != own)
        return any(same(library[:, pair]) for pair in some)
    changed = (np.column_stack([np.delete(terms, place, 1), library[:, one]]) for place in range(count) for one in others)
    return count > 2 and any(same(columns) for columns in changed)


def _rest(columns: NDArray[np.float64], slope: NDArray[np.float64]) -> float:
    """Share of a slope that other columns leave over."""
    known, _ = np.linalg.qr(columns / np.maximum(np.linalg.norm(columns, axis=0), 1e-300))
    return float(np.linalg.norm(slope - known @ (known.T @ slope)) / max(float(np.linalg.norm(slope)), 1e-300))


def _is_replaceable(path: NDArray[np.float64], powers: NDArray[np.float64], row: NDArray[np.float64], bound: float) -> bool:
    """Whether one of several terms can give way to one of them times the square of a state, on the path of the law itself."""
    if len(row) < 2:
        return False
    terms = _values(path, powers)
    higher = (powers[:, None, :] + 2 * np.eye(powers.shape[1])).reshape(-1, powers.shape[1])
    others = [column for one, column in zip(higher, _values(path, higher).T, strict=True) if not (one == powers).all(1).any()]
    changed = (np.column_stack([np.delete(terms, place, 1), other]) for place in range(len(row)) for other in others)
    return any(np.isfinite(columns).all() and _rest(columns, terms @ row) < bound for columns in changed)


def _is_chain(powers: NDArray[np.float64]) -> bool:
    """Whether products are powers of one product times the same."""
    ordered = powers[np.lexsort(powers.T)]
    steps = np.diff(ordered, axis=0)
    return bool(((steps >= 0).all() or (steps <= 0).all()) and np.linalg.matrix_rank(steps) == 1)
