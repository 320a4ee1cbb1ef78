"""A law: inputs times a power of a quotient of sums of products of powers, with what it takes to evaluate and print it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    import sympy as sp
    from numpy.typing import NDArray

__all__ = ["ARBITRARY", "Exponents", "Law", "Term", "coefficient_complexity"]

Exponents = tuple[Fraction, ...]
"""One for each input."""
ROOTS = 3
"""Largest denominator of a simple exponent."""
LARGEST_DENOMINATOR = 100
"""Of a number that is written as a fraction."""
ARBITRARY = 2
"""Complexity of a coefficient that is no small fraction."""


@dataclass(frozen=True)
class Term:
    """A coefficient times a product of powers of the inputs."""

    coefficient: float
    exponents: Exponents

    @np.errstate(all="ignore")
    def values(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """The term for each row of x (rows, inputs); a root of a negative number is not a number."""
        result = np.ones(len(x))
        for column, exponent in zip(x.T, self.exponents, strict=True):
            if exponent:
                result = result * _power(column, exponent)
        return self.coefficient * result

    def expression(self, symbols: Sequence[sp.Symbol]) -> sp.Expr:
        """The term in SymPy."""
        import sympy as sp

        factors = [symbol ** _number(e) for symbol, e in zip(symbols, self.exponents, strict=True)]
        return sp.Mul(_number(Fraction(self.coefficient)), *factors)

    @property
    def complexity(self) -> int:
        """One for each input; one for an exponent other than one, or three if it is no simple fraction; the coefficient."""
        used = [e for e in self.exponents if e]
        powers = sum(0 if e == 1 else 1 if e.denominator <= ROOTS else 3 for e in used)
        return len(used) + powers + coefficient_complexity(self.coefficient, bool(used))


def coefficient_complexity(value: float, used: bool = True) -> int:
    """Nothing for a sign, one for a small fraction, two for any other number."""
    if abs(value) == 1:
        return 0 if used else 1
    fraction = Fraction(value)
    return 1 if abs(fraction.numerator) * fraction.denominator <= 12 else ARBITRARY


def _power(column: NDArray[np.float64], exponent: Fraction) -> NDArray[np.float64]:
    if exponent.denominator == 1:
        result: NDArray[np.float64] = column ** float(exponent)
    else:
        result = np.where(column >= 0, np.abs(column) ** float(exponent), np.nan)
    return result


def _shortest(expression: sp.Expr) -> sp.Expr:
    """The expression, or its factors where they are shorter."""
    import sympy as sp

    if expression.atoms(sp.Float):
        return expression
    return min(expression, sp.factor(expression), key=sp.count_ops)


def _number(value: Fraction) -> Any:
    """SymPy's exact number for a fraction with a small denominator, else a decimal number."""
    import sympy as sp

    whole = abs(value) < 2**53 or value.denominator > 1
    simple = value.denominator <= LARGEST_DENOMINATOR and whole
    return sp.Rational(value.numerator, value.denominator) if simple else sp.Float(float(value))


@dataclass(frozen=True)
class Law:
    """``y = sign * before * (sum of terms / sum of below) ** power``; without `below`, the denominator is one."""

    terms: tuple[Term, ...]
    below: tuple[Term, ...] = ()
    power: Fraction = Fraction(1)
    sign: int = 1
    before: tuple[int, ...] = ()
    """Numbers of the inputs that are factors before the power: a root has one sign, and they give it theirs."""

    @np.errstate(all="ignore")
    def values(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """The law for each row of x (rows, inputs), NaN where it is not defined."""
        inner = self._sum(self.terms, x)
        if self.below:
            inner = inner / self._sum(self.below, x)
        return self.sign * self.factor(x) * (_power(inner, self.power) if self.power != 1 else inner)

    def factor(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """Product of the inputs before the power, for each row of x."""
        product: NDArray[np.float64] = x[:, list(self.before)].prod(1)
        return product

    @staticmethod
    def _sum(terms: tuple[Term, ...], x: NDArray[np.float64]) -> NDArray[np.float64]:
        total = np.zeros(len(x))
        for term in terms:
            total = total + term.values(x)
        return total

    @property
    def parts(self) -> tuple[Term, ...]:
        """All terms that have a coefficient of their own: the first below the fraction line is one for good."""
        return (*self.terms, *self.below[1:])

    @property
    def pattern(self) -> tuple[Any, ...]:
        """Everything but the coefficients."""
        terms, below = (frozenset(t.exponents for t in side) for side in (self.terms, self.below))
        return terms, below, self.power, self.sign, self.before

    def with_coefficients(self, coefficients: Sequence[float]) -> Law:
        """The law with other coefficients of its parts."""
        parts = tuple(replace(term, coefficient=float(c)) for term, c in zip(self.parts, coefficients, strict=True))
        size = len(self.terms)
        return replace(self, terms=parts[:size], below=self.below[:1] + parts[size:])

    def times(self, factor: float) -> Law:
        """The law multiplied by a positive number; its coefficients may then be too large for numbers."""
        with np.errstate(all="ignore"):
            inner = float(np.power(factor, float(1 / self.power)))
        return replace(self, terms=tuple(replace(term, coefficient=term.coefficient * inner) for term in self.terms))

    @property
    def complexity(self) -> int:
        """Inputs, exponents, coefficients and operations between terms."""
        parts = (*self.terms, *self.below)
        inner = sum(term.complexity for term in parts) + len(self.terms) - 1 + len(self.below)
        return inner + (2 if self.power != 1 else 0) + (self.sign < 0) + len(self.before)

    def expression(self, symbols: Sequence[sp.Symbol]) -> sp.Expr:
        """The law in SymPy."""
        import sympy as sp

        common = self._common_coefficient()
        terms = (replace(term, coefficient=math.copysign(1, term.coefficient)) for term in self.terms) if common else self.terms
        total = sp.Add(*(term.expression(symbols) for term in terms))
        if self.below:
            total = total / sp.Add(*(term.expression(symbols) for term in self.below))
        size = _number(Fraction(common ** float(self.power))) if common else 1
        factors = (self.sign, size, *(symbols[i] for i in self.before))
        return _shortest(sp.Mul(*factors) * total ** _number(self.power))

    def _common_coefficient(self) -> float:
        """The size of all coefficients above the fraction line, where it is the same decimal number for all; else zero."""
        sizes = [abs(term.coefficient) for term in self.terms]
        alike = all(math.isclose(size, sizes[0], rel_tol=1e-9) for size in sizes)
        return sizes[0] if alike and len(sizes) > 1 and Fraction(sizes[0]).denominator > LARGEST_DENOMINATOR else 0.0

    def undefined(self, symbols: Sequence[sp.Symbol]) -> list[sp.Basic]:
        """Conditions under which the law has no value: a zero below a fraction line, a root of a negative number."""
        import sympy as sp

        conditions: list[sp.Basic] = []
        for term in (*self.terms, *self.below):
            for symbol, exponent in zip(symbols, term.exponents, strict=True):
                if exponent.denominator > 1:
                    conditions.append(symbol < 0)
                if exponent < 0:
                    conditions.append(sp.Eq(symbol, 0))
        inner = sp.Add(*(term.expression(symbols) for term in self.terms))
        if self.below:
            lower = sp.Add(*(term.expression(symbols) for term in self.below))
            conditions.append(sp.Eq(lower, 0))
            inner = inner / lower
        if self.power.denominator > 1:
            conditions.append(inner < 0)
        if self.power < 0:
            conditions.append(sp.Eq(inner, 0))
        return [condition for condition in dict.fromkeys(conditions) if condition is not sp.false]

    def widened(self, columns: NDArray[np.int64], inputs: int) -> Law:
        """The law on a wider table, of which its inputs are some columns."""

        def wide(term: Term) -> Term:
            exponents = [Fraction(0)] * inputs
            for column, exponent in zip(columns, term.exponents, strict=True):
                exponents[column] = exponent
            return Term(term.coefficient, tuple(exponents))

        before = tuple(int(columns[i]) for i in self.before)
        return replace(self, terms=tuple(map(wide, self.terms)), below=tuple(map(wide, self.below)), before=before)
