"""From trajectories to a law: slopes from splines, a search for the law of each, and a fit of all to the trajectories.

The slope of each state is a column of a table, and the states are the others: `nalm.discovery` finds sums of products of
powers. Slopes are estimates whose errors are no noise, so that what it finds is only where the fit through the solver starts,
and exponents are not drawn to whole numbers there; that fit decides which terms stay.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.interpolate import make_interp_spline, make_smoothing_spline

from nalm.discovery import Law, Settings, Table, Term, search
from nalm.dynamics.laws import SOLVER_ACCURACY, TINY, Judge, LawSystem, shortened

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from nalm.discovery import Candidate
    from nalm.dynamics.trajectories import Trajectories

__all__ = ["find_law", "slopes_of"]

DEGREE = 5
"""Of the spline through data without noise."""
EDGE = 2
"""Rows at either end of a trajectory whose slopes are poor."""
ROWS = 12
"""From how many rows on those are left out."""
TRIED = 4
"""Laws of each state that the trajectories choose from."""
ATTEMPTS = 5
"""Searches for the law of a slope: with few rows, one may end early."""
CLEAR = 1e-4
"""Relative error of a slope at which the first of them is enough."""
SMALL = 1e-3
"""Share of the largest slope below which a term may be an error of the spline."""
CLOSE = 0.5
"""Error relative to the spread below which slopes are worth a correction by the model."""


def slopes_of(
    times: NDArray[np.float64], states: NDArray[np.float64], smooth: bool = False
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Values and slopes at the times, (rows, states), of a curve through the data, or of a smooth one beside them."""
    if smooth and len(times) > DEGREE:
        curves = [make_smoothing_spline(times, column) for column in states.T]
        return np.stack([one(times) for one in curves], 1), np.stack([one.derivative()(times) for one in curves], 1)
    odd = min(DEGREE, len(times) - 1)
    curve = make_interp_spline(times, states, k=odd if odd % 2 else odd - 1)
    return states, curve.derivative()(times)


def find_law(
    data: Trajectories,
    *,
    max_terms: int = 4,
    restarts: int = 10,
    seed: int = 0,
    on_state: Callable[[float], None] = lambda amount: None,
) -> tuple[LawSystem, Judge]:
    """The system of sums of products of powers that describes the trajectories shortest, and the judge that says so.

    Slopes are first those of a curve through the data. Where the system found leaves something over, the data may be noisy:
    then smooth curves have their turn, trajectories may start beside the first rows, and slopes are corrected by the system.
    """
    judge = Judge(data)
    settings = Settings(max_terms=max_terms, restarts=restarts, quotients=False, whole=False)
    kept = [slice(EDGE, -EDGE) if len(times) >= ROWS else slice(None) for times, _ in data.pieces]

    def fitted(pieces: Sequence[tuple[NDArray[np.float64], NDArray[np.float64]]], number: int) -> LawSystem:
        x = np.concatenate([values[rows] for (values, _), rows in zip(pieces, kept, strict=True)])
        slopes = np.concatenate([slope[rows] for (_, slope), rows in zip(pieces, kept, strict=True)])
        return _fitted(judge, x, slopes, settings, seed + number, on_state if number == 0 else lambda amount: None)

    best = fitted([slopes_of(*piece) for piece in data.pieces], 0)
    if judge.error(best) <= SOLVER_ACCURACY:
        return best, judge
    judge.free_starts = True
    rivals = [shortened(judge, best), fitted([slopes_of(*piece, smooth=True) for piece in data.pieces], 1)]
    best = min(rivals, key=judge.best_length)
    if judge.error(best) < CLOSE:
        best = min(best, fitted(_corrected(judge, best), 2), key=judge.best_length)
    return judge.fit(best), judge


def _corrected(judge: Judge, system: LawSystem) -> list[tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """The system's trajectories, and its slopes along them plus those of what it leaves over, which is small."""
    path = judge.path(system)
    assert path is not None
    with np.errstate(all="ignore"):
        logs = np.log(np.abs(path) + TINY)
        signs = np.where((path < 0)[:, None, :] & (system.exponents % 2 == 1), -1.0, 1.0).prod(-1)
        own = (np.exp(logs @ system.exponents.T) * signs) @ system.coefficients.T
    found, row = [], 0
    for times, states in judge.data.pieces:
        here = slice(row, row + len(times))
        values, left = slopes_of(times, states - path[here], smooth=True)
        found.append((path[here] + values, own[here] + left))
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
        found: list[Candidate] = []
        for attempt in range(ATTEMPTS):
            generator = np.random.default_rng([seed, number, attempt])
            found += search(Table(x, slope, np.ones(len(x)), generator), settings, generator)
            if min(candidate.error for candidate in found) < CLEAR:
                break
        found.sort(key=lambda candidate: candidate.length)
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
