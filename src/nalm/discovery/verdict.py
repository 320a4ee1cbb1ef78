"""Whether a formula is a law: the one place that decides it, for tables and for equations of motion.

A search always ends with the best formula of its class, also where no law is of that class: there the formula is a series that
follows the data. What speaks against it is collected as `Evidence`, and `verdict` says whether any of it is enough. Thresholds
were chosen with the development set of `benchmarks/false_claims.py`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, permutations
from typing import TYPE_CHECKING

import numpy as np
from numpy.polynomial.legendre import legvander
from scipy.stats import f as f_distribution
from threadpoolctl import threadpool_limits

from nalm.discovery.fitting import law_of, neighbours
from nalm.discovery.law import ARBITRARY, Term, coefficient_complexity
from nalm.discovery.table import EXACT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from nalm.discovery.law import Exponents, Law
    from nalm.discovery.table import Candidate, Table

__all__ = ["Evidence", "TableEvidence", "chance", "verdict"]

FEW_ROWS, SMALL_ERROR = 40, 0.05
"""With fewer rows it cannot be told whether something is left to explain; the error must then be this small."""
SURE = 10.0
"""By how much the description with a law must be shorter than that with a constant, or with another form."""
BEYOND, SAME = 5.0, 0.01
"""Laws whose values at inputs so many times as large or as small differ by no larger share than this are taken for the same."""
RARE, UNEVEN = 1e-3, 1e-5
"""Probability below which what is left over, or how large it is, does not depend on the inputs by chance."""
DEGREE = 3
"""Of the polynomials of one input that what is left over is compared with."""
OUTLIER = 5.0
CLEAR = 3.0
"""Standard errors that a coefficient above or below a fraction line must be away from zero, and from infinity."""
PARTED = 0.45
"""Rows above a law and rows below it, each with coefficients of its own, leave six tenths of the error over if it is noise."""
TRIED = 10
"""Candidates that are tried for such rows."""
DECADE = 10.0
"""Over a smaller range, a power with a decimal exponent or a third root follows any curve that rises or falls."""
HIGHEST = 4
"""Largest exponent of a term in a sum that noise leaves uncertain."""
MOST_NUMBERS = 2
"""Numbers that are no simple fractions in a law that noise leaves uncertain."""


class Evidence(ABC):
    """What is known about a formula; each method is asked only if those before it found nothing."""

    @abstractmethod
    def too_few(self) -> bool:
        """Whether there are too few numbers in the data for those of the formula."""

    @abstractmethod
    def is_idle(self) -> bool:
        """Whether the formula says no more than a constant."""

    @abstractmethod
    def leaves_something(self) -> bool:
        """Whether what is left over is no noise."""

    @abstractmethod
    def is_exact(self) -> bool:
        """Whether nothing is left over but rounding; for trajectories, but errors of a solver."""

    @abstractmethod
    def is_connected(self) -> bool:
        """Whether inputs hang together so that another formula, as simple, says the same of all the data."""

    @abstractmethod
    def follows_any_curve(self) -> bool:
        """Whether the formula is so flexible that it could follow any smooth curve within the error."""

    @abstractmethod
    def has_rivals(self) -> bool:
        """Whether another form explains the data as well."""


@threadpool_limits.wrap(limits=1, user_api="blas")
def verdict(evidence: Evidence) -> str:
    """Why a formula is not a law, in one plain sentence; nothing if it is one."""
    if evidence.too_few():
        return "there are too few rows to tell a law from a description"
    if not evidence.is_exact():
        if evidence.is_idle():
            return "no law of this form says more than a constant"
        if evidence.leaves_something():
            return "no law of this form explains the data to the noise level"
    if evidence.is_connected():
        return "these data do not tell this law from another that is as simple"
    if evidence.is_exact():
        return ""
    if evidence.follows_any_curve():
        return "within the error of the data, a formula with so many numbers follows any smooth curve"
    return "other laws explain the data as well" if evidence.has_rivals() else ""


@dataclass(frozen=True)
class TableEvidence(Evidence):
    """What a table says about the shortest of the descriptions that were found."""

    table: Table
    found: Sequence[Candidate]
    """The shortest first."""
    constant: Candidate
    operations: Sequence[str]
    unseen: Callable[[Law], bool] | None = None
    """Whether columns that were not searched say something about what a law leaves over, if there are any."""

    @property
    def _best(self) -> Candidate:
        return self.found[0]

    def too_few(self) -> bool:
        """Two rows for each unit of complexity."""
        return len(self.table.all_y) < 2 * self._best.complexity + 2 or not math.isfinite(self._best.length)

    def is_exact(self) -> bool:
        """On the rows held out."""
        return self._best.error < EXACT

    def is_idle(self) -> bool:
        """The description must be clearly shorter."""
        return self._best is self.constant or self._best.length > self.constant.length - SURE

    @np.errstate(all="ignore")
    def leaves_something(self) -> bool:
        """An error of its own, in size or in place; or, where the noise is known, more than that."""
        table, best, rows = self.table, self._best, len(self.table.all_y)
        if table.noise is not None:
            return table.excess(best.law) > 1 + 4 / math.sqrt(rows)
        if self.unseen is not None and self.unseen(best.law):
            return True
        few = rows < FEW_ROWS and best.error > SMALL_ERROR
        noise = table.looks_like_noise(best.law, list(_inside(best.law, table.all_x)))
        return few or not noise or _depends_on_inputs(table, best.law) or _parted(table, self.found)

    def is_connected(self) -> bool:
        """A part of a fraction makes no difference; columns that rise and fall together are mentioned by the report alone."""
        return bool(self._best.law.below) and _has_idle_part(self.table, self._best.law)

    def follows_any_curve(self) -> bool:
        """Third roots in sums, many arbitrary numbers, or some in a series of powers of one product; decimal exponents."""
        law = self._best.law
        if len(law.parts) == 1:
            sizes = np.abs(self.table.all_x)
            narrow = sizes.max(0) < DECADE * sizes.min(0)
            return any(narrow[i] and e.denominator > 2 for i, e in enumerate(law.parts[0].exponents))
        exponents = [e for term in law.parts for e in term.exponents]
        if any(e.denominator > 2 or abs(e) > HIGHEST for e in exponents):
            return True
        if law.power == 1 and not law.below and all(sum(map(abs, term.exponents)) <= 1 for term in law.parts):
            return False
        numbers = sum(coefficient_complexity(term.coefficient) == ARBITRARY for term in law.parts)
        saturates = law.power == 1 and (len(law.terms), len(law.below)) == (1, 2) and law.below[1].coefficient > 0
        series = not saturates and _is_series(law, self.table.all_x)
        return numbers > MOST_NUMBERS or (numbers >= (1 if law.power != 1 else 2) and series)

    @np.errstate(all="ignore")
    def has_rivals(self) -> bool:
        """Formulas as simple that lead elsewhere, with one exponent beside, or with a function in place of a power."""
        table, best = self.table, self._best
        rivals = [one for one in self.found[1:] if one.complexity <= best.complexity]
        rivals = [one for one in rivals if _leads_elsewhere(one.law, best.law, table.all_x)]
        rivals += neighbours(table, best.law, self.operations)
        if any(one.length < best.length + SURE for one in rivals):
            return True
        least = table.could_be(best) + SURE / 2
        return any(length < least for length in _with_functions(table, best.law))


@np.errstate(all="ignore")
def _leads_elsewhere(one: Law, other: Law, x: NDArray[np.float64]) -> bool:
    """Whether two laws differ beyond the table: where they do not, they are two ways to write the same."""
    beyond = np.concatenate([BEYOND * x, x / BEYOND])
    first, second = one.values(beyond), other.values(beyond)
    return bool(np.mean(np.abs(first - second) <= SAME * np.abs(second)) < 0.5)


def _is_series(law: Law, x: NDArray[np.float64]) -> bool:
    """Whether terms on one side of a fraction line are powers of one product times the same, as in a Taylor series.

    But a plain sum of two is none if it grows tenfold in units of one of them: no other curve is as straight for so long.
    """
    for pair in (pair for side in (law.terms, law.below) for pair in permutations(side, 2)):
        steps = tuple(p - q for p, q in zip(*(term.exponents for term in pair), strict=True))
        growth = 1 + Term(pair[0].coefficient / pair[1].coefficient, steps).values(x)
        long = law.power == 1 and not law.below and 0 <= DECADE * growth.min() <= growth.max()
        if min(steps) >= 0 and not long:
            return True
    return False


def chance(left: NDArray[np.float64], taken: NDArray[np.float64], basis: NDArray[np.float64]) -> float:
    """Probability that noise goes with the columns of a basis as much as this does, beside what columns `taken` explain."""
    known, _ = np.linalg.qr(taken)
    rest, sizes, _ = np.linalg.svd(basis - known @ (known.T @ basis), full_matrices=False)
    rest = rest[:, sizes > 1e-8 * max(sizes[0], 1e-300)]
    spare = len(left) - known.shape[1] - rest.shape[1]
    if spare < rest.shape[1]:
        return 1.0
    left = left - known @ (known.T @ left)
    share = float(np.square(rest.T @ left).sum())
    noise = max(float(np.square(left).sum()) - share, 1e-300)
    return float(f_distribution.sf(share / rest.shape[1] / (noise / spare), rest.shape[1], spare))


def _inside(law: Law, x: NDArray[np.float64]) -> Iterator[NDArray[np.float64]]:
    """What a jump or a wave could go with that the law follows on average: products in its terms, sums of two of these."""
    yield law.values(x)
    for term in law.parts:
        used = [i for i, e in enumerate(term.exponents) if e]
        for chosen in (some for size in range(2, len(used) + 1) for some in combinations(used, size)):
            yield Term(1.0, tuple(e if i in chosen else Fraction(0) for i, e in enumerate(term.exponents))).values(x)
    for one, other in (pair for side in (law.terms, law.below) for pair in combinations(side, 2)):
        alike = tuple(e if e == f else Fraction(0) for e, f in zip(one.exponents, other.exponents, strict=True))
        yield (one.values(x) + other.values(x)) / Term(1.0, alike).values(x)


def _depends_on_inputs(table: Table, law: Law) -> bool:
    """Whether what a law leaves over, or its size, goes with polynomials of the inputs' ranks, or these times one of its terms.

    The latter says that the coefficient of the term is none: a function of an input stands in its place.
    Rows in which the law is zero say nothing about noise in proportion to it.
    """
    some = law.values(table.all_x) != 0
    x, values, root = table.all_x[some], law.values(table.all_x[some]), np.sqrt(table.all_weight[some])[:, None]
    sizes, left = np.abs(values), table.all_y[some] - values
    scale = _scale_of_noise(table, sizes, left)
    left = left / scale
    left = left.clip(*(OUTLIER * np.sqrt(np.mean(np.square(left))) * np.array([-1, 1])))
    basis, taken = root * _polynomials(x), root / scale[:, None] * _slopes(law, x)
    if not np.isfinite(taken).all():
        return False
    even_size = root * np.column_stack([np.ones(len(left)), np.log(sizes)])
    if chance(root[:, 0] * np.sqrt(np.abs(left)), even_size, basis) < UNEVEN:
        return True
    alone = [_polynomials(column[:, None]) for column in x.T]
    bases = [basis, *(root * one for one in alone), *(part[:, None] * one for part in taken.T for one in alone)]
    return min(chance(root[:, 0] * left, taken, one) for one in bases) * len(bases) < RARE


def _scale_of_noise(table: Table, sizes: NDArray[np.float64], left: NDArray[np.float64]) -> NDArray[np.float64]:
    """What the noise of each row is in proportion to: the law, or nothing."""
    even, relative = np.log(np.mean(np.square(left)) + 1e-300), np.log(np.mean(np.square(left / sizes)) + 1e-300)
    return sizes if relative + 2 * np.log(sizes).mean() < even else np.full(len(left), table.scale)


@np.errstate(all="ignore")
def _has_idle_part(table: Table, law: Law) -> bool:
    """Whether a part of a fraction, such as the one below it, is so small that the data do not tell it from zero."""
    values = law.values(table.all_x)
    some = values != 0
    x, values, left = table.all_x[some], values[some], (table.all_y - values)[some]
    above, below = (np.stack([term.values(x) for term in side], 1) for side in (law.terms, law.below))
    slopes = np.concatenate([above / above.sum(1, keepdims=True), -below[:, 1:] / below.sum(1, keepdims=True)], 1)
    share = np.sqrt(table.all_weight[some]) / _scale_of_noise(table, np.abs(values), left)
    slopes *= float(law.power) * (share * values)[:, None]
    if not np.isfinite(slopes).all() or len(values) <= slopes.shape[1]:
        return False
    _, sizes, turned = np.linalg.svd(slopes, full_matrices=False)
    effect = 1 / np.sqrt(np.square(turned / sizes[:, None]).sum(0).max())
    return bool(effect < max(CLEAR * np.sqrt(np.mean(np.square(share * left))), EXACT * math.sqrt(len(values))))


def _polynomials(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Of each input's rank, and of pairs of inputs."""
    columns: list[NDArray[np.float64]] = []
    singles: list[NDArray[np.float64]] = []
    for column in x.T:
        _, place, count = np.unique(column, return_inverse=True, return_counts=True)
        middle = (np.cumsum(count) - (count + 1) / 2) / len(column)
        own: NDArray[np.float64] = legvander(2 * middle[place] - 1, DEGREE)[:, 1:].astype(np.float64)
        columns += [own, *(own[:, [a]] * other[:, [b]] for other in singles for a, b in ((0, 0), (0, 1), (1, 0)))]
        singles.append(own)
    return np.concatenate(columns, 1)


def _slopes(law: Law, x: NDArray[np.float64]) -> NDArray[np.float64]:
    """How the law's values go with its coefficients, in shares of these, (rows, parts)."""
    now, step = np.array([term.coefficient for term in law.parts]), 1e-6
    shifted = [law.with_coefficients((now * (1 + step * unit)).tolist()).values(x) for unit in np.eye(len(now))]
    slopes: NDArray[np.float64] = (np.stack(shifted, 1) - law.values(x)[:, None]) / step
    return slopes


def _parted(table: Table, found: Sequence[Candidate]) -> bool:
    """Whether rows above the law and rows below it follow a law each: then they are a mixture, and this is their mean."""
    left = table.all_y - found[0].law.values(table.all_x)
    worst = 0.0
    for half in (left > 0, left <= 0):
        if half.sum() < FEW_ROWS / 2:
            return False
        worst = max(worst, min(_error_after_fit(one.law, table.all_x[half], table.all_y[half]) for one in found[:TRIED]))
    return worst < PARTED * math.sqrt(np.mean(np.square(left)))


def _error_after_fit(law: Law, x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    slopes, left = _slopes(law, x), y - law.values(x)
    if not (np.isfinite(slopes).all() and np.isfinite(left).all()):
        return math.inf
    known, _ = np.linalg.qr(slopes)
    return math.sqrt(np.mean(np.square(left - known @ (known.T @ left))))


def _with_functions(table: Table, law: Law) -> Iterator[float]:
    """Description lengths, without that of the formula, with a function in place of a power or of a product in one term."""
    rows = [term.exponents for term in law.parts]
    for place, row in enumerate(rows):
        powers = [tuple(e if i == number else Fraction(0) for i, e in enumerate(row)) for number, e in enumerate(row) if e]
        whole = [Term(1.0, row).values(table.all_x)] if len(powers) > 1 else []
        inner = [table.all_x[:, next(i for i, e in enumerate(power) if e)] for power in powers]
        for taken, values in zip([*powers, row], [*inner, *whole], strict=False):
            left = (*(e - other for e, other in zip(row, taken, strict=True)), Fraction(1))
            changed: list[Exponents] = [(*one, Fraction(0)) for one in rows]
            changed[place] = left
            for column in _functions(values):
                wider = table.with_column(column)
                found = law_of(wider, changed, len(law.terms), law.power, law.sign, law.before)
                if found is not None:
                    yield wider.could_be(found)


def _functions(column: NDArray[np.float64]) -> Iterator[NDArray[np.float64]]:
    """Functions of an input, bent so much that none of them is close to a straight line."""
    share = column / np.abs(column).max()
    for rate in (-4.0, -2.0, -1.0, -0.5, 0.5, 1.0, 2.0, 4.0):
        yield np.exp(rate * share)
    for rate in (1.0, 1.5, 2.0, 3.0, 4.0):
        yield np.tanh(rate * share)
    for rate in (1.0, 1.5, 2.0, 2.5, 3.0):
        yield np.sin(rate * share)
    if (column > 0).all():
        yield np.log(column)
