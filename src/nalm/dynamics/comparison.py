"""SINDy on the same data: a sparse sum of fixed functions for each slope, by the package pysindy."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.integrate import solve_ivp

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["Sindy", "sindy"]


@dataclass(frozen=True)
class Sindy:
    """What SINDy finds."""

    equations: tuple[str, ...]
    parameters: int
    """Coefficients that are not zero."""
    error: float
    """Mean square of its solution minus the data, infinite where it blows up."""


def sindy(
    times: NDArray[np.float64], states: NDArray[np.float64], names: Sequence[str], threshold: float | None = None
) -> Sindy:
    """Fit with pysindy's default library, polynomials of second degree, and its default optimiser.

    Args:
        times: (rows).
        states: (rows, states).
        names: of the states.
        threshold: coefficients below it are dropped; by default pysindy's, 0.1.
    """
    try:
        import pysindy
    except ImportError:
        raise ImportError("the comparison with SINDy needs the package pysindy: pip install 'nalm[compare]'") from None
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        optimiser = {} if threshold is None else {"optimizer": pysindy.STLSQ(threshold=threshold)}
        model = pysindy.SINDy(**optimiser)
        model.fit(states, t=times, feature_names=list(names))

        def slope(_: float, state: NDArray[np.float64]) -> NDArray[np.float64]:
            found: NDArray[np.float64] = np.asarray(model.predict(state[None]))[0]
            return found

        def far(_: float, state: NDArray[np.float64]) -> float:
            return 1e6 - float(np.abs(state).max())

        far.terminal = True  # type: ignore[attr-defined]
        solution = solve_ivp(slope, (times[0], times[-1]), states[0], t_eval=times, events=far, rtol=1e-6)
        whole = solution.y.shape[1] == len(times)
        error = float(np.square(solution.y.T - states).mean()) if whole else math.inf
        return Sindy(tuple(model.equations()), int((model.coefficients() != 0).sum()), error)
