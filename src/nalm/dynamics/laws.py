"""A system as products of powers and their coefficients: fitting it to trajectories, and making it as short as they allow.

This is the Real NPU before a linear layer with open gates, in the form in which terms can go and exponents become fractions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
import sympy as sp
from scipy.optimize import least_squares

from nalm.dynamics.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from nalm.dynamics.trajectories import Trajectories

__all__ = ["Judge", "LawSystem", "shortened"]

TINY = 1e-37
"""Added to magnitudes: zero then has a logarithm, and every other number stays what it is."""
SOLVER_ACCURACY = 1e-6
"""Error relative to the spread of a state below which all errors are alike: the solver's."""
BLOWN_UP = 1e3
"""Stands for the relative error where a solution blows up."""
FAR_OFF = 20.0
"""Factor of the error that a simpler system must come within in a few steps to be fitted to the end."""
DENOMINATOR = 3
"""Largest of a simple exponent."""
COEFFICIENT, FREE_EXPONENT = 2, 3
"""Complexity of a number that is no simple fraction."""
DIGITS = 6
"""Most significant digits of a coefficient."""
MOST_SUBSTEPS = 32


@dataclass(frozen=True)
class LawSystem:
    """``du_i/dt = sum_j C_ij prod_k u_k ** E_jk``."""

    exponents: NDArray[np.float64]
    """E, (products, states)."""
    coefficients: NDArray[np.float64]
    """C, (states, products)."""
    free: NDArray[np.bool_]
    """Which exponents adapt to the data, (products, states)."""

    @property
    def complexity(self) -> int:
        """Two for a coefficient; for each input of a product one, and one more for a power, three if it is no simple one."""
        used = self.exponents != 0
        simple = np.where(self.exponents == 1, 0, 1)
        powers = np.where(self.free, FREE_EXPONENT, simple)
        return COEFFICIENT * int((self.coefficients != 0).sum()) + int((used * (1 + powers)).sum())

    @property
    def theta(self) -> NDArray[np.float64]:
        """Parameters of the Real NPU with open gates and of the linear layer."""
        states = self.exponents.shape[1]
        return np.concatenate([self.exponents.ravel(), np.ones(states), self.coefficients.ravel()])

    def tidy(self) -> LawSystem:
        """The same without products that have no coefficient, and with equal products joined."""
        rows: dict[tuple[float, ...], int] = {}
        exponents, free = [], []
        columns: list[NDArray[np.float64]] = []
        for row, loose, column in zip(self.exponents, self.free, self.coefficients.T, strict=True):
            if not column.any():
                continue
            key = tuple(row.tolist())
            if key in rows:
                columns[rows[key]] = columns[rows[key]] + column
                continue
            rows[key] = len(columns)
            exponents.append(row)
            free.append(loose & (row != 0))
            columns.append(column)
        states = self.exponents.shape[1]
        if not columns:
            return LawSystem(np.zeros((1, states)), np.zeros((states, 1)), np.zeros((1, states), bool))
        return LawSystem(np.array(exponents), np.array(columns).T, np.array(free))

    def expressions(self, symbols: Sequence[sp.Symbol]) -> list[sp.Expr]:
        """Slope of each state in SymPy, coefficients as decimals."""
        products = [
            sp.Mul(*(symbol ** _exponent(e) for symbol, e in zip(symbols, row, strict=True) if e)) for row in self.exponents
        ]
        return [
            sp.Add(*(decimal(c) * product for c, product in zip(row, products, strict=True) if c)) for row in self.coefficients
        ]


def decimal(value: float) -> sp.Expr:
    """A number as SymPy prints it: whole, or with the digits that it has."""
    return sp.Integer(int(value)) if value == int(value) and abs(value) < 1e9 else sp.Float(value)


def _exponent(value: float) -> sp.Expr:
    simple = Fraction(value).limit_denominator(DENOMINATOR)
    return sp.Rational(simple.numerator, simple.denominator) if abs(simple - value) < 1e-12 else sp.Float(value)


class Judge:
    """Fits systems to trajectories and says how short a description of the data they are.

    With `free_starts`, data are taken to be noisy, and trajectories may start beside the first rows.
    """

    def __init__(self, data: Trajectories) -> None:
        self.data, self.free_starts, self.substeps = data, False, 2
        self.spread = data.spread
        self._problems: dict[int, Problem] = {}
        self.starts = np.stack([states[0] for _, states in data.pieces])

    def refine_steps(self, system: LawSystem) -> None:
        """Double the steps of the solver until that makes no difference."""
        path = self.path(system)
        while path is not None and self.substeps < MOST_SUBSTEPS:
            self.substeps *= 2
            self._problems.clear()
            finer = self.path(system)
            if finer is None or float(np.abs((finer - path) / self.spread).max()) < SOLVER_ACCURACY:
                return
            path = finer

    def path(self, system: LawSystem, starts: NDArray[np.float64] | None = None) -> NDArray[np.float64] | None:
        """The system's trajectories at the times of the data; None where they blow up."""
        hidden = len(system.exponents)
        if hidden not in self._problems:
            self._problems[hidden] = Problem(self.data, "real-npu", hidden, epsilon=TINY, substeps=self.substeps)
        problem = self._problems[hidden]
        problem.starts[:] = self.starts if starts is None else starts
        return problem.path.copy() if math.isfinite(problem.loss(system.theta)) else None

    def missed(self, system: LawSystem) -> NDArray[np.float64]:
        """Trajectories minus data in units of the spread, (rows, states)."""
        path = self.path(system)
        return np.full(self.data.states.shape, BLOWN_UP) if path is None else (path - self.data.states) / self.spread

    def error(self, system: LawSystem) -> float:
        """Root mean square of what the system leaves over, in units of the spread."""
        return math.sqrt(float(np.square(self.missed(system)).mean()))

    def length(self, system: LawSystem) -> float:
        """Twice the description length: what the system leaves over, as normal noise, and the system itself."""
        squares = np.square(self.missed(system)).mean(0)
        rows = len(self.data.states)
        return float((rows * np.log(squares + SOLVER_ACCURACY**2)).sum()) + system.complexity * math.log(rows * len(squares))

    def best_length(self, system: LawSystem) -> float:
        """The same after a fit, as starts that suit one system need not suit another."""
        return self.length(self.fit(system))

    def fit(self, system: LawSystem, evaluations: int = 30) -> LawSystem:
        """The system with coefficients, free exponents and, if noisy, starts by least squares on the trajectories."""
        loose, used = system.free & (system.exponents != 0), system.coefficients != 0
        first, second = int(loose.sum()), int(used.sum())
        begun = self.starts.copy()
        values = np.concatenate([system.exponents[loose], system.coefficients[used]])
        if self.free_starts:
            values = np.concatenate([values, begun.ravel()])
        if not len(values) or len(values) > self.data.states.size:
            return system
        scale = np.concatenate(
            [np.ones(first), np.abs(values[first : first + second]), np.resize(self.spread, len(values) - first - second)]
        )

        def changed(numbers: NDArray[np.float64]) -> tuple[LawSystem, NDArray[np.float64]]:
            exponents, coefficients = system.exponents.copy(), system.coefficients.copy()
            exponents[loose], coefficients[used] = numbers[:first], numbers[first : first + second]
            starts = numbers[first + second :].reshape(begun.shape) if self.free_starts else begun
            return replace(system, exponents=exponents, coefficients=coefficients), starts

        def missed(shares: NDArray[np.float64]) -> NDArray[np.float64]:
            path = self.path(*changed(values + scale * shares))
            if path is None:
                return np.full(self.data.states.size, BLOWN_UP)
            left: NDArray[np.float64] = ((path - self.data.states) / self.spread).ravel()
            return left

        def slopes(shares: NDArray[np.float64]) -> NDArray[np.float64]:
            here, step = missed(shares), 1e-6
            return np.stack([(missed(shares + step * unit) - here) / step for unit in np.eye(len(shares))], 1)

        found = least_squares(missed, np.zeros(len(values)), slopes, method="lm", max_nfev=evaluations)
        fitted, starts = changed(values + scale * found.x)
        if self.free_starts:
            self.starts = starts.copy()
        return fitted


def shortened(judge: Judge, system: LawSystem) -> LawSystem:
    """What is left when terms, inputs and digits go, and exponents become fractions, as far as the description gets shorter."""
    system = judge.fit(system.tidy())
    if judge.path(system) is None:
        return system  # nothing to compare with
    best = judge.length(system)
    while True:
        reach = FAR_OFF * max(judge.error(system), SOLVER_ACCURACY)
        for simpler in _simpler(judge, system):
            kept = judge.starts
            candidate = judge.fit(simpler.tidy(), 5)
            if judge.error(candidate) < reach:
                candidate = judge.fit(candidate)
                length = judge.length(candidate)
                if length < best:
                    system, best = candidate, length
                    break
            judge.starts = kept
        else:
            return _rounded(judge, system)


def _simpler(judge: Judge, system: LawSystem) -> Iterator[LawSystem]:
    """The system without one of its terms, the weakest first; with an exponent at a fraction; without an input of a product."""
    with np.errstate(all="ignore"):
        logs = np.log(np.abs(judge.data.states) + TINY)
        sizes = np.exp(np.clip(logs @ system.exponents.T, -80, 80)).mean(0)
    weight = np.abs(system.coefficients) * sizes
    share = weight / np.maximum(weight.max(1, keepdims=True), 1e-300)
    places = [(i, j) for i, j in np.argwhere(system.coefficients != 0)]
    for i, j in sorted(places, key=lambda place: share[place]):
        fewer = system.coefficients.copy()
        fewer[i, j] = 0.0
        yield replace(system, coefficients=fewer)
    for j, k in np.argwhere(system.free & (system.exponents != 0)):
        now, free = system.exponents[j, k], system.free.copy()
        free[j, k] = False
        for value in sorted({round(now * d) / d for d in range(1, DENOMINATOR + 1)} | {0.0}, key=lambda v: abs(v - now)):
            exponents = system.exponents.copy()
            exponents[j, k] = value
            yield replace(system, exponents=exponents, free=free)
    for j, k in np.argwhere(~system.free & (system.exponents != 0)):
        exponents = system.exponents.copy()
        exponents[j, k] = 0.0
        yield replace(system, exponents=exponents)


def _rounded(judge: Judge, system: LawSystem) -> LawSystem:
    """Numbers with as few digits as leave the error what it is, within a unit of the description."""
    worst = judge.length(system) + 1.0
    for name, where in (("coefficients", system.coefficients != 0), ("exponents", system.free & (system.exponents != 0))):
        for row, column in np.argwhere(where):
            for digits in range(1, DIGITS + 1):
                values = getattr(system, name).copy()
                values[row, column] = float(f"{values[row, column]:.{digits}g}")
                tried = replace(system, **{name: values})
                if judge.length(tried) <= worst:
                    system = tried
                    break
    return system
