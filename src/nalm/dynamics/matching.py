"""From trajectories to a law: slopes from splines, a search for the law of each, and a fit of all to the trajectories.

The slope of each state is a column of a table, and the states are the others: `nalm.discovery` finds sums of products of
powers. Slopes are estimates, so that what it finds is only where the fit through the solver starts; that fit decides which
terms stay.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.interpolate import make_interp_spline, make_smoothing_spline

from nalm.discovery import Law, Settings, Table, Term, search
from nalm.dynamics.laws import EXACT, Judge, LawSystem, shortened

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from nalm.discovery import Candidate
    from nalm.dynamics.trajectories import Trajectories

__all__ = ["find_law", "slopes_of"]

NOISY = 2e-4
"""What a smoothing spline leaves over, relative to the spread, from which data count as noisy."""
DEGREE = 5
"""Of the spline through data without noise."""
EDGE = 2
"""Rows at either end of a trajectory whose slopes are poor."""
ROWS = 12
"""From how many rows on those are left out."""
TRIED = 4
"""Laws of each state that the trajectories choose from."""
SMALL = 1e-3
"""Share of the largest slope below which a term may be an error of the spline."""
CLOSE = 0.5
"""Error relative to the spread below which slopes are worth a correction by the model."""


def slopes_of(times: NDArray[np.float64], states: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64], bool]:
    """Values and slopes of a smooth curve at the times, (rows, states), and whether the data are noisy."""
    noisy = False
    if len(times) > DEGREE:
        smooth = [make_smoothing_spline(times, column) for column in states.T]
        left = np.stack([curve(times) for curve in smooth], 1) - states
        spread = np.maximum(states.std(0), 1e-300)
        noisy = bool((np.sqrt(np.square(left).mean(0)) > NOISY * spread).any())
    if noisy:
        return (
            np.stack([curve(times) for curve in smooth], 1),
            np.stack([curve.derivative()(times) for curve in smooth], 1),
            True,
        )
    curve = make_interp_spline(times, states, k=min(DEGREE, (len(times) - 1) | 1 if len(times) % 2 == 0 else len(times) - 2))
    return states, curve.derivative()(times), False


def find_law(
    data: Trajectories,
    *,
    max_terms: int = 4,
    restarts: int = 10,
    seed: int = 0,
    on_state: Callable[[float], None] = lambda amount: None,
) -> tuple[LawSystem, Judge]:
    """The system of sums of products of powers that describes the trajectories shortest, and the judge that says so."""
    pieces = [slopes_of(*piece) for piece in data.pieces]
    judge = Judge(data, free_starts=any(noisy for _, _, noisy in pieces))
    settings = Settings(max_terms=max_terms, restarts=restarts, quotients=False)
    kept = [slice(EDGE, -EDGE) if len(values) >= ROWS else slice(None) for values, _, _ in pieces]
    x = np.concatenate([values[rows] for (values, _, _), rows in zip(pieces, kept, strict=True)])
    slopes = np.concatenate([slope[rows] for (_, slope, _), rows in zip(pieces, kept, strict=True)])
    best = _fitted(judge, x, slopes, settings, seed, on_state)
    if EXACT < judge.error(best) < CLOSE:
        slopes = np.concatenate(_corrected(judge, best, kept))
        again = _fitted(judge, x, slopes, settings, seed + 1, lambda amount: None)
        best = min(best, again, key=judge.length)
    return best, judge


def _corrected(judge: Judge, system: LawSystem, kept: Sequence[slice]) -> list[NDArray[np.float64]]:
    """Slopes of the system along its own trajectories, plus those of what it leaves over, which splines follow better."""
    path = judge.path(system)
    assert path is not None
    with np.errstate(all="ignore"):
        logs = np.log(np.abs(path) + 1e-37)
        signs = np.where((path < 0)[:, None, :] & (system.exponents % 2 == 1), -1.0, 1.0).prod(-1)
        own = (np.exp(logs @ system.exponents.T) * signs) @ system.coefficients.T
    found, row = [], 0
    for (times, states), rows in zip(judge.data.pieces, kept, strict=True):
        here = slice(row, row + len(times))
        _, left, _ = slopes_of(times, states - path[here])
        found.append((own[here] + left)[rows])
        row += len(times)
    return found


def _fitted(
    judge: Judge,
    x: NDArray[np.float64],
    slopes: NDArray[np.float64],
    settings: Settings,
    seed: int,
    on_state: Callable[[float], None],
) -> LawSystem:
    """Laws of the slopes, fitted to the trajectories together, and shortened."""
    options = []
    for number, slope in enumerate(slopes.T):
        generator = np.random.default_rng([seed, number])
        found = search(Table(x, slope, np.ones(len(x)), generator), settings, generator)
        options.append(_laws(found, x, slope, judge.data.states))
        on_state(1)
    chosen = [laws[0] for laws in options]
    system = _joined(chosen)
    judge.refine_steps(system)
    best = judge.length(judge.fit(system))
    for number, laws in enumerate(options):
        for law in laws[1:]:
            tried = [*chosen[:number], law, *chosen[number + 1 :]]
            length = judge.length(judge.fit(_joined(tried)))
            if length < best:
                chosen, best = tried, length
    found_system = shortened(judge, _joined(chosen))
    judge.refine_steps(found_system)
    return found_system


def _laws(
    found: Sequence[Candidate], x: NDArray[np.float64], slope: NDArray[np.float64], states: NDArray[np.float64]
) -> list[Law]:
    """The best laws of one slope that have a value at every state, each also without its smallest terms."""
    distinct: dict[Any, Law] = {}
    for candidate in found[: 4 * TRIED]:
        law = candidate.law
        large = [term for term in law.terms if np.abs(term.values(x)).max() > SMALL * np.abs(slope).max()]
        for one in (law, replace(law, terms=tuple(large))):
            if one.terms and np.isfinite(one.values(states)).all():
                distinct.setdefault(one.pattern, one)
    still = Law((Term(0.0, (Fraction(0),) * x.shape[1]),))
    return list(distinct.values())[:TRIED] or [still]


def _joined(laws: Sequence[Law]) -> LawSystem:
    """One system of the laws of each state."""
    rows = list(dict.fromkeys(term.exponents for law in laws for term in law.terms))
    coefficients = np.zeros((len(laws), len(rows)))
    for number, law in enumerate(laws):
        for term in law.terms:
            coefficients[number, rows.index(term.exponents)] += law.sign * term.coefficient
    exponents = np.array([[float(e) for e in row] for row in rows])
    return LawSystem(exponents, coefficients, np.zeros(exponents.shape, bool)).tidy()
