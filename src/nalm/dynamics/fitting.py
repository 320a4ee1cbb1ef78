"""From time series to a differential equation: `fit_ode` and what it gives."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import sympy as sp
from matplotlib.figure import Figure

from nalm.checks import whole
from nalm.composing import from_sympy
from nalm.discovery import verdict
from nalm.dynamics.descent import COUNTED, Descent, Run, train_all
from nalm.dynamics.evidence import SystemEvidence
from nalm.dynamics.laws import Judge, LawSystem, shortened
from nalm.dynamics.matching import find_law
from nalm.dynamics.problems import LABELS, Problem
from nalm.dynamics.solving import BlowUpError, integrate
from nalm.dynamics.trajectories import Trajectories, columns_of, read_trajectories
from nalm.figures import COLOURS
from nalm.notation import latex, plain, text
from nalm.progress import following
from nalm.symbolic import readout

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd
    from numpy.typing import ArrayLike, NDArray
    from torch import nn

    from nalm.progress import Progress

__all__ = ["OdeFit", "discover_ode", "fit_ode", "law_of_run"]

MOST_RESTARTS = 10**6
METHODS = ("auto", "search", "descent")
TRAINED = "the equations are those of a trained network"


@dataclass(frozen=True)
class OdeFit:
    """A differential equation that was fitted to time series."""

    data: Trajectories
    model: str
    """`real-npu`, `npu` or `dense`."""
    method: str
    """`search` or `descent`."""
    module: nn.Module
    """The right-hand side, (..., states) -> (..., states), in double precision."""
    equations: dict[str, sp.Expr]
    """Slope of each state in SymPy, in the units of the data; empty for a dense network."""
    loss: float
    """What was minimised: the mean square and, with descent, the L1 norm."""
    error: float
    """Mean square of trajectories minus data, by an adaptive solver; infinite where it cannot follow."""
    status: str
    """`ok`, or `diverged` where solutions blow up; the parameters are then the last good ones."""
    reason: str
    """Why the equations are a description of the data and no law; empty if they are one."""
    starts: NDArray[np.float64]
    """State at the first time of each trajectory; for data without noise, the measured one."""
    message: str = ""
    """What went wrong, if something did."""
    runs: list[dict[str, Any]] = field(default_factory=list)
    """Loss, error, parameters and status of every restart."""
    remarks: list[str] = field(default_factory=list)

    @property
    def found(self) -> bool:
        """Whether the equations, and no others that are as simple, explain the data to the noise level."""
        return not self.reason

    @property
    def relative_error(self) -> float:
        """Root mean square of trajectories minus data, each state in units of its spread."""
        try:
            return float(np.sqrt(np.mean(np.square(self._missed() / self.data.spread))))
        except BlowUpError:
            return math.inf

    def _missed(self) -> NDArray[np.float64]:
        paths = [integrate(self.module, start, times) for start, (times, _) in zip(self.starts, self.data.pieces, strict=True)]
        missed: NDArray[np.float64] = np.concatenate(paths) - self.data.states
        return missed

    def predict(self, times: ArrayLike, start: ArrayLike | None = None) -> NDArray[np.float64]:
        """States at ascending times, (times, states), also beyond the data.

        Args:
            times: by default of the first trajectory; with `start`, the first of them is the time of the start.
            start: another state to start from.

        Raises:
            BlowUpError: where the solution cannot be followed so far.
        """
        clock = np.atleast_1d(np.asarray(times, float))
        if clock.ndim != 1 or not np.isfinite(clock).all() or (np.diff(clock) <= 0).any():
            raise ValueError("times must be finite numbers in ascending order")
        if start is not None:
            first = np.asarray(start, float)
            if first.shape != (len(self.data.names),) or not np.isfinite(first).all():
                raise ValueError(f"start must be {len(self.data.names)} numbers, one a state, got {start!r}")
            return integrate(self.module, first, clock) if len(clock) > 1 else first[None]
        begin = float(self.data.pieces[0][0][0])
        if clock[0] < begin:
            raise ValueError(f"times begin at {clock[0]:g}, before the data at {begin:g}; give a start of your own")
        whole = clock if clock[0] == begin else np.concatenate([[begin], clock])
        path = integrate(self.module, self.starts[0], whole) if len(whole) > 1 else self.starts[:1]
        return path[len(whole) - len(clock) :]

    def system(self) -> list[sp.Eq]:
        """The equations with derivatives of functions of time."""
        time = sp.Symbol(self.data.time, real=True)
        functions = {sp.Symbol(name, real=True): sp.Function(name)(time) for name in self.data.names}
        return [
            sp.Eq(sp.Derivative(sp.Function(name)(time), time), expression.subs(functions))
            for name, expression in self.equations.items()
        ]

    def __str__(self) -> str:
        """One line per state."""
        if not self.equations:
            return f"a {LABELS[self.model]} network, which has no formula"
        return "\n".join(
            f"d{name}/d{self.data.time} = {text(_printed(expression))}" for name, expression in self.equations.items()
        )

    def latex(self) -> str:
        """One line of LaTeX per state."""
        return "\n".join(self._latex(picture=False))

    def _latex(self, picture: bool) -> list[str]:
        def name(of: str) -> str:
            return latex(sp.Symbol(of), picture)

        return [
            rf"\frac{{d {name(state)}}}{{d {name(self.data.time)}}} = {latex(_printed(expression), picture)}"
            for state, expression in self.equations.items()
        ]

    def to_json(self) -> dict[str, Any]:
        """Everything but the module as plain values."""
        return {
            "found": self.found,
            "reason": self.reason,
            "status": self.status,
            "message": self.message,
            "equations": {name: text(_printed(expression)) for name, expression in self.equations.items()},
            "latex": self.latex(),
            "error": _plain(self.error),
            "relative_error": _plain(self.relative_error),
            "rows": len(self.data.states),
            "trajectories": len(self.data.pieces),
            "runs": self.runs,
            "remarks": self.remarks,
        }

    def figure(self, until: float | None = None) -> Figure:
        """Data and solution of each trajectory, with the equations; the solution goes on to `until`."""
        figure = Figure(figsize=(8, 4.4), layout="constrained")
        axes = figure.subplots()
        for number, (start, (times, states)) in enumerate(zip(self.starts, self.data.pieces, strict=True)):
            clock = np.linspace(times[0], max(times[-1], times[-1] if until is None else until), 400)
            try:
                path: Any = integrate(self.module, start, clock)
            except BlowUpError:
                path = None
            for state, name in enumerate(self.data.names):
                colour = COLOURS[state % len(COLOURS)]
                label = plain(name) if number == 0 else None
                axes.plot(times, states[:, state], "o", color=colour, markersize=3.5, label=label)
                if path is not None:
                    axes.plot(clock, path[:, state], color=colour, linewidth=1.2)
        if until is not None:
            axes.axvline(max(times[-1] for times, _ in self.data.pieces), color="0.7", linewidth=1, linestyle="--")
        axes.set_xlabel(plain(self.data.time))
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False)
        lines = [f"${line}$" for line in self._latex(picture=True)] or [str(self)]
        figure.suptitle("\n".join(lines), fontsize="small")
        return figure


def _printed(expression: sp.Expr) -> sp.Expr:
    """Decimals to six digits."""
    return expression.xreplace({number: sp.Float(f"{float(number):.6g}") for number in expression.atoms(sp.Float)})


def _plain(value: float) -> float | None:
    return value if math.isfinite(value) else None


def fit_ode(
    times: Any,
    states: Any,
    model: str = "real-npu",
    *,
    method: str = "auto",
    names: Sequence[str] | None = None,
    hidden: int | None = None,
    l1: float | None = None,
    restarts: int = 10,
    max_terms: int = 4,
    steps: int = 3000,
    optimiser: str = "rmsprop",
    learning_rate: float = 5e-3,
    seed: int = 0,
    time: str = "t",
    progress: Progress | bool | None = None,
) -> OdeFit:
    """Fit ``du/dt = f(u)`` to measured time series.

    `search`, the default for the Real NPU, looks for f as a sum of products of powers for each state, from the slopes of
    splines, and lets the trajectories decide: it drops terms and turns exponents into fractions as long as the description of
    the data gets shorter. `descent` trains any of the three models through the solver from random starts, as in the NPU paper,
    with an L1 norm; the best Real NPU is then shortened in the same way. It is chosen when `hidden` or `l1` is given, or
    another model.

    Args:
        times: (rows), ascending; for several trajectories a list of such, or one that they share.
        states: (rows, states) or (rows), an array or a data frame; for several trajectories a list of such.
        model: `real-npu`, `npu` (both before a linear layer), or `dense`, a network of three layers with tanh.
        method: `search`, `descent`, or `auto`.
        names: of the states; by default those of the data frame, or x, y, z.
        hidden: hidden units, six by default (descent).
        l1: strength of the L1 norm of all parameters, 0.1 by default (descent).
        restarts: starts of the search, or trained models.
        max_terms: most terms of a slope (search).
        steps: of the optimiser, before L-BFGS (descent).
        optimiser: `rmsprop` or `adam` (descent).
        learning_rate: of the optimiser (descent).
        seed: of the first start.
        time: name of the time in equations and figures.
        progress: what shows progress: `True` for a bar on standard error, or an object with `start(total, what)` and
            `advance(amount)`.

    >>> import numpy as np
    >>> t = np.linspace(0, 5, 30)
    >>> print(fit_ode(t, 20 + 70 * np.exp(-0.5 * t), names=["T"]))
    dT/dt = 10 - 0.5*T
    """
    data = read_trajectories(times, states, names, time)
    if method not in METHODS:
        raise ValueError(f"unknown method {method!r}; there are: {', '.join(METHODS)}")
    restarts, max_terms = whole("restarts", restarts, 1, MOST_RESTARTS), whole("max_terms", max_terms, 1)
    seed = whole("seed", seed, 0)
    trained = model != "real-npu" or hidden is not None or l1 is not None
    how = Descent(
        model,
        6 if hidden is None else hidden,
        0.1 if l1 is None else l1,
        optimiser=optimiser,
        learning_rate=learning_rate,
        steps=steps,
    )
    if method == "search" and trained:
        raise ValueError("the search is for the model real-npu, without hidden and l1; those belong to method descent")
    searched = method == "search" or (method == "auto" and not trained)
    with following(progress) as shown:
        shown.start(*(len(data.names), "equations") if searched else (restarts, "runs"))
        if searched:
            law, judge = find_law(data, max_terms=max_terms, restarts=restarts, seed=seed, on_state=shown.advance)
            return law_fit(law, judge, "search")
        runs = train_all(data, [(how, seed + k) for k in range(restarts)], lambda number, run: shown.advance(1))
    return _best_of(data, how, runs)


def discover_ode(table: pd.DataFrame, time: str, states: Sequence[str] | None = None, **options: Any) -> OdeFit:
    """Fit a differential equation to the columns of a table, one of which is the time; options are those of `fit_ode`."""
    clock, columns, remarks = columns_of(table, time, states)
    found = fit_ode(clock, columns, time=time, **options)
    if not found.found:
        remarks.append(f"{found.reason}: the equations are only a description")
    if found.message:
        remarks.append(found.message)
    for name in found.data.names:
        if np.ptp(columns[name]) == 0:
            remarks.append(f"{name} has one value only: what it does cannot be told from a coefficient")
    found.remarks.extend(remarks)
    return found


def law_fit(law: LawSystem, judge: Judge, method: str, runs: Sequence[Run] = (), loss: float | None = None) -> OdeFit:
    """What a law says, as layers and as equations."""
    data = judge.data
    symbols = [sp.Symbol(name, real=True) for name in data.names]
    expressions = law.expressions(symbols)
    module = from_sympy(expressions, symbols)
    status, message, error = "ok", "", math.inf
    try:
        paths = [integrate(module, start, times) for start, (times, _) in zip(judge.starts, data.pieces, strict=True)]
        left = np.concatenate(paths) - data.states
        error = float(np.square(left).mean())
    except BlowUpError as problem:
        status, message = "diverged", str(problem)
        left = np.full(data.states.shape, np.inf)
    equations = dict(zip(data.names, expressions, strict=True))
    reason = "the solution of the equations blows up" if status != "ok" else verdict(SystemEvidence(judge, law, left))
    listed = [_listed(run) for run in runs]
    own = error if loss is None else loss
    return OdeFit(data, "real-npu", method, module, equations, own, error, status, reason, judge.starts, message, listed)


def _listed(run: Run) -> dict[str, Any]:
    return {
        "seed": run.seed,
        "loss": _plain(run.loss),
        "error": _plain(run.error),
        "parameters": run.parameters,
        "status": run.status,
        "steps": run.steps,
    }


def law_of_run(data: Trajectories, run: Run, hidden: int) -> tuple[LawSystem, Judge]:
    """A trained Real NPU with gates at one and no L1, fitted again and shortened.

    Where a gate g is open in part, ``(g x + 1 - g) ** w`` becomes ``g ** w x ** w``; the fit makes up for the rest.
    """
    n = len(data.names)
    theta = np.where(np.abs(run.theta) > COUNTED, run.theta, 0.0)
    exponents, gates = theta[: hidden * n].reshape(hidden, n), np.clip(theta[hidden * n : hidden * n + n], 0, 1)
    exponents = np.where(gates > 0, exponents, 0.0)
    scale = np.where(gates > 0, gates, 1.0) ** exponents
    coefficients = theta[hidden * n + n :].reshape(n, hidden) * scale.prod(1)
    judge = Judge(data)
    system = LawSystem(exponents, coefficients, exponents != 0).tidy()
    judge.refine_steps(system)
    return shortened(judge, system), judge


def _best_of(data: Trajectories, how: Descent, runs: Sequence[Run]) -> OdeFit:
    """The run with the least loss; a Real NPU is made as short as the data allow."""
    best = min(runs, key=lambda run: (run.status != "ok", run.loss if math.isfinite(run.loss) else math.inf))
    if how.model == "real-npu" and best.status == "ok":
        law, judge = law_of_run(data, best, how.hidden)
        if judge.path(law) is not None:
            return law_fit(law, judge, "descent", runs, best.loss)
    problem = Problem(data, how.model, how.hidden)
    module = problem.module(best.theta)
    equations: dict[str, sp.Expr] = {}
    if how.model != "dense":
        equations = dict(zip(data.names, readout(module, data.names, tolerance=COUNTED), strict=True))
    starts, status, error = problem.starts.copy(), best.status, math.inf
    message = "" if status == "ok" else f"the solution blew up after {best.steps} steps; parameters are the last good ones"
    try:
        paths = [integrate(module, start, times) for start, (times, _) in zip(starts, data.pieces, strict=True)]
        error = float(np.square(np.concatenate(paths) - data.states).mean())
    except BlowUpError as failure:
        status, message = "diverged", message or str(failure)
    listed = [_listed(run) for run in runs]
    return OdeFit(data, how.model, "descent", module, equations, best.loss, error, status, TRAINED, starts, message, listed)
