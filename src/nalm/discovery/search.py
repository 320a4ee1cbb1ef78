"""From a table of numbers to candidate laws: structures from simple to complex, many starts of each."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from nalm.discovery.fitting import BOUND, law_of, simplified, snapped
from nalm.discovery.law import Law, Term
from nalm.discovery.projection import Problem, sign_blocks, solve_exponents
from nalm.discovery.table import EXACT, Candidate, Table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

__all__ = ["OPERATIONS", "Settings", "search"]

OPERATIONS = ("add", "sub", "mul", "div", "pow")

POWERS = (Fraction(1), Fraction(-1), Fraction(1, 2), Fraction(-1, 2), Fraction(2), Fraction(-2))
"""Powers of the whole law that are tried."""
FIELD = Fraction(-3, 2)
"""Power that is tried behind inputs only, for fields that fall with the square of a distance: x / (x**2 + y**2) ** (3/2)."""
IDLE = {True: 2, False: 6}
"""Rounds without a shorter description after which the search ends if what is left over looks like noise: of a single product
two, since its exponents follow from one start, of a sum more."""
ROUNDS_AFTER = 2
"""Rounds in which a simpler law is looked for when an exact one is found."""
STEPS = 60
GIVERS = 3
"""Most inputs before a power."""


@dataclass(frozen=True)
class Settings:
    """How far to search."""

    operations: tuple[str, ...] = OPERATIONS
    max_terms: int = 4
    """Most terms above and below the fraction line together."""
    restarts: int = 30
    """Starts of each structure."""
    rows: int = 1_000
    """Most rows that exponents are searched on."""
    quotients: bool = True
    """Whether quotients and powers of sums are tried too, or sums of products alone."""
    whole: bool = True
    """Whether all exponents are tried at whole numbers too: with noise, fractions beside them fit as well."""


class Structure(NamedTuple):
    """How many terms stand above and below, the power of the whole, and the inputs before it."""

    above: int
    below: int
    power: Fraction
    before: tuple[int, ...] = ()

    @property
    def size(self) -> int:
        """Terms in all."""
        return self.above + self.below


@threadpool_limits.wrap(limits=1, user_api="blas")
def search(table: Table, settings: Settings, generator: np.random.Generator) -> list[Candidate]:
    """All laws that were found, the one with the shortest description first.

    Linear algebra has one thread here: matrices are small, and on a busy machine threads wait for each other.
    """
    found = list(_plain_laws(table, settings))
    structures = list(_structures(settings, table))
    best, idle = _shortest(found), 0
    for attempt in range(settings.restarts):
        for structure in structures:
            if structure.size == 1 and attempt:
                continue  # one product has one minimum
            if best.error < EXACT and structure.size >= len(best.law.parts) > 1:
                break
            for solved in _solve(table, structure, settings, generator):
                candidate = simplified(table, solved) if table.could_be(solved) < best.length else solved
                if candidate.complexity < len(table.all_y):  # a law must say less than the rows themselves
                    found.append(candidate)
        shortest = _shortest(found)
        idle = 0 if shortest.length < best.length - 1e-6 else idle + 1
        best = shortest
        if best.error < EXACT and (idle >= ROUNDS_AFTER or len(best.law.parts) == 1):
            break
        if idle >= IDLE[len(best.law.parts) == 1] and table.looks_like_noise(best.law):
            break
    return sorted(found, key=lambda one: one.length)


def _shortest(found: Sequence[Candidate]) -> Candidate:
    return min(found, key=lambda one: one.length)


def _structures(settings: Settings, table: Table) -> Iterator[Structure]:
    """From simple to complex; only those that the operations and the target's sign allow."""
    most = settings.max_terms if {"add", "sub"} & set(settings.operations) else 1
    powers = list(_powers(settings, table)) if settings.quotients else [(Fraction(1), ())]
    yield Structure(1, 0, Fraction(1))
    for size in range(2, most + 1):
        yield from (Structure(size, 0, *power) for power in powers if size <= 3 or power[0] == 1)
        if "div" in settings.operations and size > 2 and settings.quotients:
            yield from (Structure(size - lower, lower, Fraction(1)) for lower in range(1, min(size - 1, 3)))


def _powers(settings: Settings, table: Table) -> Iterator[tuple[Fraction, tuple[int, ...]]]:
    """Powers of the whole law, each with the inputs before it."""
    before = _sign_givers(table.x, table.y, GIVERS if "mul" in settings.operations else 0)
    for power in (*POWERS, FIELD) if before else POWERS:
        if power < 0 and "div" not in settings.operations:
            continue
        if abs(power) == 1:
            yield power, ()
        elif "pow" in settings.operations and before is not None:
            yield power, before


def _sign_givers(x: NDArray[np.float64], y: NDArray[np.float64], most: int) -> tuple[int, ...] | None:
    """The fewest inputs by whose product the target can be divided to have one sign; None where more than `most` are needed."""
    signs, sign = np.sign(x), np.sign(y)
    both = [i for i, column in enumerate(signs.T) if column.min() < 0 < column.max()]
    for size in range(most + 1):
        for chosen in combinations(both, size):
            product = signs[:, list(chosen)].prod(1)
            given = sign * product
            if not sign[product == 0].any() and ((given >= 0).all() or (given <= 0).all()):
                return chosen
    return None


def _solve(table: Table, structure: Structure, settings: Settings, generator: np.random.Generator) -> list[Candidate]:
    """One start of a structure: exponents, snapping, coefficients; nothing where it leads nowhere."""
    above, below, power, before = structure
    usable = (table.y != 0) & (table.x != 0).all(1)
    x, y, weight = table.x[usable], table.y[usable], table.weight[usable]
    if len(y) > settings.rows:
        chosen = generator.choice(len(y), settings.rows, replace=False)
        x, y, weight = x[chosen], y[chosen], weight[chosen]
    order, blocks = sign_blocks(x, above + 2)
    if below:
        widest = int(np.argmax(np.diff(blocks)))
        order = order[blocks[widest] : blocks[widest + 1]]
        blocks = np.array([0, len(order)])
    if len(order) < structure.size * 2 + 2:
        return []
    x, y, weight = x[order], y[order] / x[order][:, list(before)].prod(1), weight[order]
    sign = -1 if abs(power) != 1 and y[0] < 0 else 1
    target = np.sign(sign * y) * np.abs(y) ** float(1 / power)
    logs = np.log(np.abs(x))
    logs = logs - logs.mean(0)
    relative = generator.random() < 0.7 or power != 1
    spread = np.abs(target) if relative else np.full(len(target), math.sqrt(np.mean(np.square(target))))
    problem = Problem(logs, np.sqrt(weight) / spread, target, blocks, above)
    exponents = _start(structure.size, x.shape[1], settings, generator)
    scales = generator.choice([-0.3, 0.3, 1.0], below)
    reached = solve_exponents(*problem, exponents, scales, np.ones(exponents.shape, bool), STEPS, BOUND, 1e-24)
    if not math.isfinite(reached) or reached > 0.5:
        return []
    simple = snapped(problem, exponents, scales, reached, table.x, settings.operations, settings.whole)
    laws = [law_of(table, rows, above, power, sign, before) for rows in simple]
    return [law for law in laws if law is not None]


def _start(size: int, inputs: int, settings: Settings, generator: np.random.Generator) -> NDArray[np.float64]:
    values = [-2, -1, 0, 0, 1, 2] if "div" in settings.operations else [0, 0, 1, 2]
    drawn = generator.choice(values, (size, inputs)) + generator.normal(0, 0.3, (size, inputs))
    return drawn.astype(np.float64)


def _plain_laws(table: Table, settings: Settings) -> Iterator[Candidate]:
    """A constant, and a weighted sum of all inputs: what needs no search."""
    inputs = table.x.shape[1]
    none = (Fraction(0),) * inputs
    yield table.judge(Law((Term(float(np.average(table.y, weights=table.weight)), none),)))
    if {"add", "sub"} & set(settings.operations) and len(table.y) > inputs + 1:
        alone = [tuple(Fraction(int(i == j)) for j in range(inputs)) for i in range(inputs)]
        linear = law_of(table, [*alone, none], inputs + 1, Fraction(1), 1)
        linear = simplified(table, linear) if linear is not None else None
        if linear is not None and linear.complexity < len(table.all_y):
            yield linear
