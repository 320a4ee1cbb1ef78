"""From exponents that the search found to a law: snapping to simple fractions, coefficients, leaving out what does nothing."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import least_squares

from nalm.discovery.law import ROOTS, Law, Term
from nalm.discovery.projection import solve_exponents

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from nalm.discovery.law import Exponents
    from nalm.discovery.projection import Problem
    from nalm.discovery.table import Candidate, Table

__all__ = ["BOUND", "law_of", "neighbours", "refitted", "rounded", "simplified", "snapped"]

BOUND = 6.0
"""Largest exponent."""
CHI_SQUARE = 6.0
"""By how many times its expected growth the squared error may grow when an exponent is set to a simple fraction."""
SIMPLE = 12
"""Largest denominator of a coefficient that is taken for a fraction."""
LARGEST = 1_000
"""Its largest numerator."""
DIGITS = 3
"""Decimal digits of an exponent that is no simple fraction, at most."""
FRACTIONS = 4
"""Most fractions in one term that are all set to whole numbers at once."""
STEP = 1e-6
"""Share of a coefficient by which it is moved to see what that changes."""
PRINTED = 6
"""Most digits of a coefficient that people read."""
FAR = 1e3
"""Stands for the error where a law is not defined."""


def _grids(x: NDArray[np.float64], operations: Sequence[str], roots: int = ROOTS) -> list[NDArray[np.float64]]:
    """For each input, simple exponents that it may have: roots, up to the `roots`-th, only where it has no negative values."""
    low = 0.0 if "div" not in operations else -BOUND if "pow" in operations else -1.0
    high = BOUND if "pow" in operations else 1.0
    grids = []
    for column in x.T:
        denominators = range(1, roots + 1) if (column >= 0).all() and "pow" in operations else (1,)
        values = {k / d for d in denominators for k in range(int(-BOUND * d), int(BOUND * d) + 1)}
        grids.append(np.array(sorted(v for v in values if low <= v <= high)))
    return grids


def snapped(
    problem: Problem,
    exponents: NDArray[np.float64],
    scales: NDArray[np.float64],
    reached: float,
    x: NDArray[np.float64],
    operations: Sequence[str],
    whole: bool,
) -> list[list[Exponents]]:
    """Exponents at simple fractions, and at whole numbers if so asked, the nearest first while the others adapt.

    What makes the mean square grow from `reached` by more than noise explains is left out; but a single product of powers then
    keeps its exponents with as few digits as the data ask for.
    """
    digits = DIGITS if len(exponents) == 1 and "pow" in operations else 0
    found = [_on_grids(problem, exponents, scales, reached, _grids(x, operations), digits)]
    if whole:
        found.append(_on_grids(problem, exponents, scales, reached, _grids(x, operations, 1), 0))
    return [one for number, one in enumerate(found) if one is not None and one not in found[:number]]


def _on_grids(
    problem: Problem,
    exponents: NDArray[np.float64],
    scales: NDArray[np.float64],
    reached: float,
    grids: Sequence[NDArray[np.float64]],
    digits: int,
) -> list[Exponents] | None:
    """Exponents on grids, or with so many digits where the data ask for them; None where they do not support it."""
    rows = len(problem.logs)
    exponents, scales = exponents.copy(), scales.copy()
    free = np.ones(exponents.shape, bool)

    def supported(cost: float) -> bool:
        fixed = int((~free).sum())
        return cost <= reached * (1 + CHI_SQUARE * fixed / rows) + 1e-16 or cost <= 1e-14

    while free.any():
        nearest = np.stack([grid[np.abs(exponents[:, [i]] - grid).argmin(1)] for i, grid in enumerate(grids)], 1)
        distance = np.where(free, np.abs(exponents - nearest), np.inf)
        now = distance <= max(0.02, float(distance.min()))
        before = exponents.copy()
        exponents[now] = nearest[now]
        free &= ~now
        if supported(solve_exponents(*problem, exponents, scales, free, 20, BOUND, 1e-24)):
            continue
        if not digits:
            return None
        for number in range(1, digits + 1):
            exponents[now] = before[now].round(number)
            if supported(solve_exponents(*problem, exponents, scales, free, 20, BOUND, 1e-24)):
                break
    return [tuple(Fraction(float(e)).limit_denominator(10**DIGITS) for e in row) for row in exponents]


def law_of(
    table: Table, exponents: Sequence[Exponents], above: int, power: Fraction, sign: int, before: tuple[int, ...] = ()
) -> Candidate | None:
    """The law with these exponents, `above` of them above the fraction line, and coefficients by least squares."""
    upper, lower = list(dict.fromkeys(exponents[:above])), list(dict.fromkeys(exponents[above:]))
    found = [table.judge(law) for law in _fitted(table, upper, lower, Law((), (), power, sign, before))]
    return min(found, key=lambda one: one.length, default=None)


def _fitted(table: Table, upper: Sequence[Exponents], lower: Sequence[Exponents], frame: Law) -> Iterator[Law]:
    """Laws with coefficients for noise in proportion to the target, and for noise that is the same everywhere.

    Power, sign and inputs before the power are those of `frame`.
    """
    products = np.stack([Term(1.0, row).values(table.x) for row in (*upper, *lower)], 1)
    power, factor = frame.power, frame.sign * frame.factor(table.x)
    with np.errstate(all="ignore"):
        y = table.y / factor
        target = np.sign(y) * np.abs(y) ** float(1 / power)
    good = np.isfinite(products).all(1) & np.isfinite(target)
    if good.sum() < products.shape[1]:
        return
    products, target, y, factor = products[good], target[good], y[good], np.abs(factor[good])
    size, root = np.abs(table.y[good]), np.sqrt(table.weight[good])
    with np.errstate(all="ignore"):
        design = np.concatenate([products[:, : len(upper)], -target[:, None] * products[:, len(upper) :]], 1)
    one = Term(1.0, (Fraction(0),) * len(upper[0]))
    for noise in (np.maximum(size, 1e-3 * table.scale) / factor, np.full(len(y), table.scale) / factor):
        # noise of y becomes noise of y ** (1/p), whose derivative goes with y ** (1/p - 1)
        with np.errstate(all="ignore"):
            least = np.maximum(size, 1e-9 * table.scale) / factor
            scale = root / noise * (least ** float(1 - 1 / power) if power != 1 else 1.0)
            norms = np.linalg.norm(design * scale[:, None], axis=0)
        if not (np.isfinite(norms).all() and (norms > 0).all()):
            continue
        coefficients = np.linalg.lstsq(design * scale[:, None] / norms, target * scale, rcond=None)[0] / norms
        if power != 1 or lower:
            coefficients = _refitted(products, len(upper), float(power), y, root / noise, coefficients)
        terms = [Term(float(c), row) for c, row in zip(coefficients, (*upper, *lower), strict=True)]
        yield replace(frame, terms=tuple(terms[: len(upper)]), below=(one, *terms[len(upper) :]) if lower else ())


def _refitted(
    products: NDArray[np.float64],
    above: int,
    power: float,
    y: NDArray[np.float64],
    scale: NDArray[np.float64],
    start: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Coefficients by least squares on the target itself, from where they are; unchanged where that cannot help."""

    def quotient(factors: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        now = start * factors
        below = 1 + products[:, above:] @ now[above:]
        return products[:, :above] @ now[:above] / below, below

    @np.errstate(all="ignore")
    def missed(factors: NDArray[np.float64]) -> NDArray[np.float64]:
        inner, _ = quotient(factors)
        left = ((inner if power == 1 else inner**power) - y) * scale
        return np.where(np.isfinite(left), left, FAR)

    @np.errstate(all="ignore")
    def slopes(factors: NDArray[np.float64]) -> NDArray[np.float64]:
        inner, below = quotient(factors)
        outer = (1.0 if power == 1 else power * inner ** (power - 1)) / below * scale
        found = np.concatenate([products[:, :above], -inner[:, None] * products[:, above:]], 1) * outer[:, None] * start
        return np.where(np.isfinite(found), found, 0.0)

    ones = np.ones(len(start))
    solution = least_squares(missed, ones, slopes, method="lm" if len(y) >= len(start) else "trf", max_nfev=50)
    return start * solution.x if 2 * solution.cost < np.square(missed(ones)).sum() else start


def refitted(table: Table, law: Law) -> Candidate:
    """The law with coefficients for a table; simple fractions stay where the table supports them."""
    exponents = [term.exponents for term in (*law.terms, *law.below[1:])]
    found = law_of(table, exponents, len(law.terms), law.power, law.sign, law.before)
    known = table.judge(law)
    return known if found is None or known.length <= found.length else _with_fractions(table, found)


@np.errstate(all="ignore")
def rounded(law: Law, x: NDArray[np.float64], y: NDArray[np.float64]) -> Law:
    """The law with coefficients to the first uncertain digit, by their standard errors; uneven noise is allowed for."""
    now = np.array([term.coefficient for term in law.parts])
    values = law.values(x)

    def slope(number: int) -> NDArray[np.float64]:
        """Change of the law with the logarithm of a coefficient."""
        moved = np.where(np.arange(len(now)) == number, now * (1 + STEP), now)
        return (law.with_coefficients(moved.tolist()).values(x) - values) / STEP

    slopes = np.stack([slope(number) for number in range(len(now))], 1)
    if not np.isfinite(slopes).all() or len(x) <= len(now):
        return law
    size = np.linalg.norm(slopes, axis=0)
    solved = np.linalg.pinv(slopes / np.where(size > 0, size, 1.0)) * (values - y)
    errors = np.linalg.norm(solved, axis=1) / np.where(size > 0, size, 1.0) * math.sqrt(len(x) / (len(x) - len(now)))
    digits = np.clip(np.nan_to_num(1 - np.floor(np.log10(errors)), nan=PRINTED, posinf=PRINTED), 2, PRINTED)
    return law.with_coefficients([float(f"{c:.{int(d)}g}") for c, d in zip(now, digits, strict=True)])


def simplified(table: Table, candidate: Candidate) -> Candidate:
    """What is left when terms, exponents and digits of coefficients go that the description is shorter without."""
    while True:
        shorter = min(_simpler(table, candidate.law), key=lambda one: one.length, default=candidate)
        if shorter.length >= candidate.length:
            return _with_fractions(table, candidate)
        candidate = shorter


def _simpler(table: Table, law: Law) -> Iterator[Candidate]:
    """The law without one of its terms, without one of its inputs in one of them, or with whole exponents in one of them."""
    for place, row in enumerate(_rows(law)):
        yield from _changed(table, law, place, None)
        for other in [*(_with(row, i, Fraction(0)) for i, e in enumerate(row) if e), *_whole(row)]:
            yield from _changed(table, law, place, other)


def neighbours(table: Table, law: Law, operations: Sequence[str]) -> Iterator[Candidate]:
    """Laws that are as simple, with one exponent at the simple fraction before or after it, and coefficients of their own."""
    grids = [[Fraction(float(e)).limit_denominator(ROOTS) for e in grid] for grid in _grids(table.x, operations)]
    for place, row in enumerate(_rows(law)):
        for i, e in enumerate(row):
            if e in (0, 1) or e not in grids[i]:
                continue
            at = grids[i].index(e)
            for other in grids[i][max(at - 1, 0) : at + 2]:
                if other not in (e, 0):
                    yield from _changed(table, law, place, _with(row, i, other))


def _rows(law: Law) -> list[Exponents]:
    """The exponents of all terms that have a coefficient."""
    return [term.exponents for term in law.parts]


def _changed(table: Table, law: Law, place: int, row: Exponents | None) -> Iterator[Candidate]:
    """The law with other exponents of one term, or without it, and coefficients for them; nothing where that is no law."""
    rows = _rows(law)
    above = len(law.terms) - (row is None and place < len(law.terms))
    rows[place : place + 1] = [] if row is None else [row]
    found = law_of(table, rows, above, law.power, law.sign, law.before) if above else None
    if found is not None:
        yield found


def _with(row: Exponents, number: int, exponent: Fraction) -> Exponents:
    return (*row[:number], exponent, *row[number + 1 :])


def _whole(row: Exponents) -> Iterator[Exponents]:
    """Whole numbers on either side of the fractions of a term, in all combinations."""
    sides = [(e,) if e.denominator == 1 else (Fraction(math.floor(e)), Fraction(math.ceil(e))) for e in row]
    if 0 < sum(len(side) > 1 for side in sides) <= FRACTIONS:
        yield from product(*sides)


def _with_fractions(table: Table, candidate: Candidate) -> Candidate:
    """Coefficients at simple fractions, one after the other, where that does not make the description longer."""
    for number in range(len(candidate.law.parts)):
        now = [term.coefficient for term in candidate.law.parts]
        for denominator in (1, 2, 3, 4, 6, SIMPLE):
            simple = Fraction(now[number]).limit_denominator(denominator)
            if simple == 0 or abs(simple.numerator) > LARGEST or not math.isclose(simple, now[number], rel_tol=0.05):
                continue
            tried = table.judge(candidate.law.with_coefficients([*now[:number], float(simple), *now[number + 1 :]]))
            if tried.length <= candidate.length:
                candidate = tried
                break
    return candidate
