"""Systems with known laws, as examples and tests; each is itself a stack of nalm layers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import sympy as sp

from nalm.composing import from_sympy
from nalm.dynamics.solving import integrate
from nalm.grammar import read

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from nalm.layers import Stack

__all__ = ["SYSTEMS", "System"]


@dataclass(frozen=True)
class System:
    """A law, where it starts, and how long and how often it is measured."""

    label: str
    laws: dict[str, str]
    """Slope of each state."""
    start: tuple[float, ...]
    end: float
    points: int

    @property
    def names(self) -> tuple[str, ...]:
        """Of the states."""
        return tuple(self.laws)

    @property
    def equations(self) -> dict[str, sp.Expr]:
        """Slope of each state in SymPy."""
        symbols = {name: sp.Symbol(name, real=True) for name in self.laws}
        return {name: read(text, symbols) for name, text in self.laws.items()}

    def module(self) -> Stack:
        """The right-hand side as layers."""
        found = self.equations
        return from_sympy(list(found.values()), [sp.Symbol(name, real=True) for name in found])

    def sample(
        self, points: int | None = None, end: float | None = None, start: Sequence[float] | None = None
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Times (points), evenly spaced from zero, and states (points, states), by an adaptive solver."""
        times = np.linspace(0, self.end if end is None else end, self.points if points is None else points)
        return times, integrate(self.module(), self.start if start is None else start, times)


SYSTEMS = {
    "logistic": System("logistic growth", {"P": "0.8*P - 0.016*P**2"}, (2.0,), 15.0, 50),
    "cooling": System("Newton's cooling", {"T": "2 - 0.1*T"}, (90.0,), 40.0, 40),
    "lotka-volterra": System(
        "Lotka-Volterra",
        {"prey": "1.1*prey - 0.4*prey*hunters", "hunters": "0.1*prey*hunters - 0.4*hunters"},
        (10.0, 5.0),
        40.0,
        100,
    ),
    "fsir": System(
        "fractional SIR",
        {"S": "-0.06*sqrt(I)*sqrt(S) + 0.01*R", "I": "0.06*sqrt(I)*sqrt(S) - 0.05*I", "R": "0.05*I - 0.01*R"},
        (100.0, 0.01, 0.0),
        200.0,
        40,
    ),
}
"""Systems by name; `fsir` is that of the NPU paper, with its constants, start and times."""
