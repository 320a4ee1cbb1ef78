"""What can be learned: one record an operation, with the one truth that tasks, engines, thresholds and tests compare with.

Compiled code knows an operation by its place in `OPERATIONS`. What operands are made of is for `tasks` to say, and how
they are computed quickly for the engines.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

__all__ = ["ARITHMETIC", "COMPARISONS", "LOGIC", "OPERATIONS", "TRUTHS", "TWO_STEPS", "Operation", "number_of", "operation_of"]


@dataclass(frozen=True)
class Operation:
    """An operation by name, with its result for operands of shape (operands, rows)."""

    name: str
    truth: Callable[[NDArray[Any]], NDArray[Any]]
    """Results (rows) in the precision of the operands; the first operands count where there are more than it takes."""
    coefficients: tuple[float, ...] = ()
    """Of the operands, if it is their sum."""
    exponents: tuple[float, ...] = ()
    """Of the operands, if it is a product of their powers."""
    operands: int | None = None
    """How many it takes, where that cannot be chosen."""

    def factor(self, epsilon: float) -> float:
        """By what a product changes if each of its weights is off by epsilon: 1 - epsilon in place of 1."""
        return float(np.prod([(1 - epsilon if p > 0 else 1 + epsilon) ** p for p in self.exponents]))


_STEPS: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: -(a + b),
    "mul": lambda a, b: a * b,
    "div": lambda a, b: 1 / (a * b),
}
"""Steps of the two-step task: the sum, minus the sum, the product, one over the product."""


def _two_steps(first: str, second: str) -> Operation:
    return Operation(f"{first}-{second}", lambda x: _STEPS[second](_STEPS[first](x[0], x[1]), x[2]), operands=3)


def _rule(name: str, holds: Callable[[Any], Any], operands: int | None = None) -> Operation:
    """A Boolean function; inputs above a half are true."""
    return Operation(name, lambda x: holds(x > 0.5).astype(x.dtype), operands=operands)


def _comparison(name: str, holds: Callable[[Any, Any], Any]) -> Operation:
    return Operation(name, lambda x: holds(x[0], x[1]).astype(x.dtype), operands=2)


_ARITHMETIC = (
    Operation("add", lambda x: x.sum(0), coefficients=(1, 1)),
    Operation("sub", lambda x: x[0] - x[1], coefficients=(1, -1)),
    Operation("mul", lambda x: x.prod(0), exponents=(1, 1)),
    Operation("div", lambda x: x[0] / x[1], exponents=(1, -1)),
    Operation("reciprocal", lambda x: 1 / x[0], exponents=(-1,)),
    Operation("square", lambda x: x[0] * x[0], exponents=(2,)),
    Operation("sqrt", lambda x: np.sqrt(x[0]), exponents=(0.5,)),
    Operation("identity", lambda x: x[0].copy(), coefficients=(1,), exponents=(1,)),
)
_TWO_STEPS = tuple(_two_steps(first, second) for first in _STEPS for second in _STEPS)
_LOGIC = (
    _rule("and", lambda true: true.all(0)),
    _rule("or", lambda true: true.any(0)),
    _rule("not", lambda true: ~true[0], 1),
    _rule("nand", lambda true: ~true.all(0)),
    _rule("nor", lambda true: ~true.any(0)),
    _rule("xor", lambda true: true.sum(0) % 2 == 1),
    _rule("implies", lambda true: ~true[0] | true[1], 2),
    _rule("equivalent", lambda true: true[0] == true[1], 2),
    _rule("majority", lambda true: 2 * true.sum(0) > len(true), 3),
)
_COMPARISONS = (
    _comparison("lt", np.less),
    _comparison("le", np.less_equal),
    _comparison("gt", np.greater),
    _comparison("ge", np.greater_equal),
    _comparison("eq", np.equal),
    _comparison("ne", np.not_equal),
)

OPERATIONS = {one.name: one for one in (*_ARITHMETIC, *_TWO_STEPS, *_LOGIC, *_COMPARISONS)}
"""Every operation by name; compiled code knows it by its place."""
ARITHMETIC = tuple(one.name for one in _ARITHMETIC)
"""What is learned of the operands; add and mul take all of them, the others the first one or two."""
TWO_STEPS = tuple(one.name for one in _TWO_STEPS)
"""The thesis' expressions of a, b and c: the second step of the first step of a and b, and of c."""
LOGIC = tuple(one.name for one in _LOGIC)
"""Boolean functions of the operands; not takes one, implies and equivalent two, majority three, the others as many as asked."""
COMPARISONS = tuple(one.name for one in _COMPARISONS)
"""Comparisons of two operands."""
TRUTHS = (*LOGIC, *COMPARISONS)
"""Operations whose results are true (1) or false (0): their test error is the share of wrong answers."""


def operation_of(name: str) -> Operation:
    """The operation of a name; ValueError with those that there are."""
    if name not in OPERATIONS:
        raise ValueError(f"unknown operation {name!r}; there are: {', '.join(OPERATIONS)}")
    return OPERATIONS[name]


def number_of(name: str) -> int:
    """The number of an operation in compiled code."""
    return list(OPERATIONS).index(operation_of(name).name)
