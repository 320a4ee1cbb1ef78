"""The NPU paper's experiments with the fractional SIR model: a grid of trained models, its Pareto front, the best Real NPU."""

from __future__ import annotations

import hashlib
import json
import math
import threading
from dataclasses import asdict
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import sympy as sp
from matplotlib.figure import Figure

from nalm.dynamics.comparison import sindy
from nalm.dynamics.descent import Descent, Run, train_all
from nalm.dynamics.fitting import OdeFit, fit_ode, law_fit, law_of_run
from nalm.dynamics.problems import LABELS, Problem
from nalm.dynamics.record import keep_run, kept_runs
from nalm.dynamics.solving import BlowUpError
from nalm.dynamics.systems import SYSTEMS
from nalm.dynamics.trajectories import read_trajectories
from nalm.exact import Exact
from nalm.figures import COLOURS, MARKERS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from nalm.dynamics.trajectories import Trajectories

__all__ = ["STUDIES", "best_study", "front", "grid_study", "questions", "transmission"]

SOLVED = 0.1
"""Mean square below which a model counts as converged."""
FUTURE = 300.0
"""Time up to which solutions are continued."""
THRESHOLDS = (None, 1e-5)
"""Of SINDy: its default, and one that is smaller than every coefficient of the law."""


class Asked(NamedTuple):
    """A place of the grid."""

    series: str
    how: Descent
    seed: int

    @property
    def key(self) -> str:
        """Identity of the run: a hash of all that determines its result."""
        described = json.dumps([asdict(self.how), self.seed], sort_keys=True)
        return hashlib.sha256(described.encode()).hexdigest()[:16]


def questions(settings: Mapping[str, Any], series: Sequence[str] | None = None) -> list[Asked]:
    """The runs of a grid, repeat by repeat, so that a study that is cut short has something of every place."""
    shared = {key: settings[key] for key in ("optimiser", "learning_rate", "steps", "polish") if key in settings}
    places = product(range(settings["runs"]), settings["series"], settings["hidden"], settings["l1"])
    return [
        Asked(name, Descent(name, hidden, l1, **shared), seed)
        for seed, name, hidden, l1 in places
        if series is None or name in series
    ]


def _trained(data: Trajectories, asked: Sequence[Asked], folder: Path | None, on_share: Callable[[float], None]) -> list[Run]:
    """Train what the folder does not hold; every run is kept as soon as it ends."""
    file = folder / "runs.jsonl" if folder is not None else None
    known = kept_runs(file) if file is not None else {}
    missing = [one for one in asked if one.key not in known]
    on_share(len(asked) - len(missing))
    lock = threading.Lock()

    def keep(number: int, run: Run) -> None:
        with lock:
            known[missing[number].key] = run
            if file is not None:
                keep_run(file, missing[number].key, run)
            on_share(1)

    train_all(data, [(one.how, one.seed) for one in missing], keep)
    return [known[one.key] for one in asked]


def _measured() -> Trajectories:
    system = SYSTEMS["fsir"]
    return read_trajectories(*system.sample(), system.names)


def front(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Of points (parameters, error), those that no other beats in one without being worse in the other, by parameters."""
    kept: list[tuple[float, float]] = []
    for one in sorted(points):
        if math.isfinite(one[1]) and (not kept or one[1] < kept[-1][1]):
            kept.append(one)
    return kept


def grid_study(
    settings: Mapping[str, Any],
    folder: Path | None = None,
    on_share: Callable[[float], None] = lambda share: None,
    series: Sequence[str] | None = None,
) -> Exact:
    """Error and number of parameters of every model of the grid, and their Pareto fronts, beside SINDy and the search.

    Settings: `series` (models), `hidden`, `l1`, `runs` (repeats), `optimiser`, `learning_rate`, `steps`, `polish`.
    """
    data = _measured()
    asked = questions(settings, series)
    runs = _trained(data, asked, folder, on_share)
    points: dict[str, list[tuple[float, float]]] = {}
    table: list[dict[str, Any]] = []
    values: dict[str, float] = {}
    for name in dict.fromkeys(one.series for one in asked):
        mine = [(one, run) for one, run in zip(asked, runs, strict=True) if one.series == name]
        points[name] = [(float(run.parameters), run.error) for _, run in mine if run.status == "ok"]
        table += [_line(LABELS[name], l1, [run for one, run in mine if one.how.l1 == l1]) for l1 in settings["l1"]]
        errors = np.array([run.error if run.status == "ok" else math.inf for _, run in mine])
        values |= {f"{name}/median": float(np.median(errors)), f"{name}/least": float(errors.min())}
        values[f"{name}/converged"] = float((errors < SOLVED).mean())
    for first, second in product(points, points):
        if first != second:
            beaten = [any(a < c and b < d for a, b in points[first]) for c, d in front(points[second])]
            values[f"front of {second} beaten by {first}"] = float(np.mean(beaten)) if beaten else math.nan
            values[f"{first} over {second}"] = values[f"{first}/median"] / values[f"{second}/median"]
    marks = _others(data, table)
    return Exact(values, table, lambda: _draw_grid(points, marks, data), sum(run.seconds for run in runs))


def _line(label: str, l1: float | None, runs: Sequence[Run]) -> dict[str, Any]:
    good = [run for run in runs if run.status == "ok"]
    best = min(good, key=lambda run: run.error, default=None)
    sparse = min((run.parameters for run in good if run.error < SOLVED), default=None)
    return {
        "model": label,
        "l1": l1,
        "runs": len(runs),
        "diverged": len(runs) - len(good),
        "median_error": float(np.median([run.error for run in good])) if good else None,
        "least_error": best.error if best else None,
        "its_parameters": best.parameters if best else None,
        "converged": sum(run.error < SOLVED for run in good),
        "fewest_parameters": sparse,
        "equations": "",
    }


def _others(data: Trajectories, table: list[dict[str, Any]]) -> dict[str, tuple[float, float]]:
    """SINDy and the search on the same data: lines of the table, and marks of the figure."""
    times, states = data.pieces[0]
    marks: dict[str, tuple[float, float]] = {}
    blank = {**_line("", None, []), "runs": 1}
    for threshold in THRESHOLDS:
        label = "SINDy" if threshold is None else f"SINDy, threshold {threshold:g}"
        try:
            found = sindy(times, states, data.names, threshold)
        except ImportError as missing:
            table.append({**blank, "model": label, "runs": 0, "equations": str(missing)})
            continue
        error, laws = found.error, "; ".join(found.equations)
        line = {"model": label, "median_error": error, "least_error": error, "its_parameters": found.parameters}
        table.append({**blank, **line, "diverged": int(not math.isfinite(error)), "equations": laws})
        marks[label] = (float(found.parameters), error)
    law = fit_ode(times, states, names=data.names)
    count = sum(int((p.detach().abs() > 0).sum()) for name, p in law.module.named_parameters() if "gate" not in name)
    line = {"model": "Real NPU by search", "median_error": law.error, "least_error": law.error, "its_parameters": count}
    table.append({**blank, **line, "converged": int(law.error < SOLVED), "equations": "; ".join(str(law).splitlines())})
    marks["Real NPU by search"] = (float(count), law.error)
    return marks


def _draw_grid(
    points: Mapping[str, Sequence[tuple[float, float]]], marks: Mapping[str, tuple[float, float]], data: Trajectories
) -> Figure:
    figure = Figure(figsize=(10.5, 4.6), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[1.4, 1])
    least = min((error for one in points.values() for _, error in one if error > 0), default=1e-3)
    floor = 0.1 * least
    for number, (name, own) in enumerate(points.items()):
        style = {"color": COLOURS[number], "marker": MARKERS[number]}
        x, y = [count for count, _ in own], [error for _, error in own]
        left.plot(x, y, linestyle="none", markersize=4, alpha=0.35, **style)
        edge = front(own)
        left.step(
            [a for a, _ in edge], [b for _, b in edge], where="post", linewidth=1.5, label=LABELS[name], markersize=4, **style
        )
    for number, (name, (count, error)) in enumerate(marks.items(), len(points)):
        if math.isfinite(error):
            shown = f"{name} (error {error:.2g}, below the axis)" if error < floor else name
            left.plot(count, max(error, floor), "*", color=COLOURS[number % len(COLOURS)], markersize=11, label=shown)
    left.set(yscale="log", xlabel="parameters above 0.001 in magnitude", ylabel="mean squared error on the data")
    left.legend(frameon=False, fontsize="small")
    _draw_series(right, data)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    return figure


def _followed(fit: OdeFit, clock: NDArray[np.float64]) -> NDArray[np.float64] | None:
    """The solution, or None where it blows up."""
    try:
        return fit.predict(clock)
    except BlowUpError:
        return None


def _draw_series(axes: Axes, data: Trajectories, fit: OdeFit | None = None) -> None:
    times, states = data.pieces[0]
    clock = np.linspace(times[0], FUTURE, 400)
    path = _followed(fit, clock) if fit is not None else None
    for number, name in enumerate(data.names):
        axes.plot(times, states[:, number], "o", color=COLOURS[number], markersize=3, label=name)
        if path is not None:
            axes.plot(clock, path[:, number], color=COLOURS[number], linewidth=1.2)
    axes.set_xlabel("t")
    axes.legend(frameon=False, fontsize="small")


class Reading(NamedTuple):
    """What a Real NPU says about the fractional SIR model."""

    kappa: float
    """Exponent of S in the transmission term."""
    gamma: float
    """Exponent of I in it."""
    beta: float
    alpha: float
    eta: float
    power_of_r: float
    """Exponent of R in the term that brings R back to S."""


def transmission(exponents: NDArray[np.float64], coefficients: NDArray[np.float64]) -> Reading:
    """Read the constants of the model off exponents (hidden, 3) and coefficients (3, hidden), in the order S, I, R.

    The transmission term is the product of both S and I that is taken from S and added to I; recovery is the one of I, and
    return to S the one of R, that have the largest coefficient. NaN where there is none.
    """
    s, i, r = exponents.T
    moved = -coefficients[0] * coefficients[1] * np.minimum(np.abs(s), np.abs(i))
    found = dict.fromkeys(Reading._fields, math.nan)
    if moved.max(initial=0.0) > 0:
        j = int(moved.argmax())
        found |= {"kappa": s[j], "gamma": i[j], "beta": (coefficients[1, j] - coefficients[0, j]) / 2}
    for column, other, target in ((i, s, "alpha"), (r, i, "eta")):
        alone = (column > 0.1) & (np.abs(other) < column)
        if target == "alpha":
            size = np.where(alone & (np.abs(s) < 0.5 * column), np.maximum(-coefficients[1], 0), 0.0)
        else:
            size = np.where(alone, np.maximum(-coefficients[2], 0), 0.0)
        if size.max(initial=0.0) > 0:
            j = int(size.argmax())
            found[target] = float(size[j])
            if target == "eta":
                found["power_of_r"] = float(r[j])
    return Reading(**{name: float(value) for name, value in found.items()})


def best_study(
    settings: Mapping[str, Any],
    folder: Path | None = None,
    on_share: Callable[[float], None] = lambda share: None,
    series: Sequence[str] | None = None,
) -> Exact:
    """The Real NPU of the grid that describes the data shortest: as trained, and refitted without L1, beside the truth.

    Settings: those of `grid_study`.
    """
    data, system = _measured(), SYSTEMS["fsir"]
    asked = questions(settings, series)
    runs = _trained(data, asked, folder, on_share)
    size = data.states.size
    one, run = min(
        ((one, run) for one, run in zip(asked, runs, strict=True) if run.status == "ok"),
        key=lambda pair: size * math.log(pair[1].error) + pair[1].parameters * math.log(size),
    )
    hidden, n = one.how.hidden, len(data.names)
    exponents, gates = run.theta[: hidden * n].reshape(hidden, n), run.theta[hidden * n : hidden * n + n]
    coefficients = run.theta[hidden * n + n :].reshape(n, hidden)
    trained = transmission(exponents, coefficients)
    law, judge = law_of_run(data, run, hidden)
    fit = law_fit(law, judge, "descent", [run])
    refitted = transmission(law.exponents, law.coefficients)
    clock, future = system.sample(121, FUTURE)
    path = _followed(fit, clock)
    ahead = math.inf if path is None else _gap(path, future)
    truth = Reading(0.5, 0.5, 0.06, 0.05, 0.01, 1.0)
    table = [
        {"quantity": key, "true": true, "trained": a, "refitted": b}
        for key, true, a, b in zip(Reading._fields, truth, trained, refitted, strict=True)
    ]
    rows = [
        ("error on the data", 0.0, run.error, fit.error),
        ("parameters", None, float(run.parameters), float((law.exponents != 0).sum() + (law.coefficients != 0).sum())),
        (f"largest error up to t = {FUTURE:g}, share of the state's range", 0.0, _own_gap(data, one, run), ahead),
        ("hidden units", None, float(hidden), float(len(law.exponents))),
        ("L1", None, one.how.l1, 0.0),
    ]
    table += [{"quantity": name, "true": t, "trained": a, "refitted": b} for name, t, a, b in rows]
    values = {f"trained {name}": value for name, value in trained._asdict().items()}
    values |= {f"refitted {name}": value for name, value in refitted._asdict().items()}
    values |= {"trained error": run.error, "refitted error": fit.error, "refitted future": ahead}
    drawn = (exponents, gates, coefficients, law, fit)
    took = sum(run.seconds for run in runs)
    return Exact(values, [_printable(line) for line in table], lambda: _draw_best(data, *drawn), took)


def _gap(path: NDArray[np.float64], truth: NDArray[np.float64]) -> float:
    """Largest distance, in units of what the state ranges over."""
    return float((np.abs(path - truth) / np.ptp(truth, axis=0)).max())


def _own_gap(data: Trajectories, one: Asked, run: Run) -> float:
    """The same for a model as it was trained, by the solver of its training."""
    system = SYSTEMS["fsir"]
    times, future = system.sample(61, FUTURE)
    problem = Problem(read_trajectories(times, future, data.names), one.series, one.how.hidden, substeps=2)
    return _gap(problem.path, future) if math.isfinite(problem.loss(run.theta)) else math.inf


def _printable(line: dict[str, Any]) -> dict[str, Any]:
    return {key: None if isinstance(value, float) and not math.isfinite(value) else value for key, value in line.items()}


def _draw_best(
    data: Trajectories,
    exponents: NDArray[np.float64],
    gates: NDArray[np.float64],
    coefficients: NDArray[np.float64],
    law: Any,
    fit: OdeFit,
) -> Figure:
    figure = Figure(figsize=(12, 7.4), layout="constrained")
    rows: Any = figure.subfigures(2, 1, height_ratios=[1, 1.05])
    upper, lower = rows
    widths = [coefficients.shape[1], exponents.shape[1], 1]
    first, second, third = upper.subplots(1, 3, width_ratios=widths)
    slopes = [f"d{name}/dt" for name in data.names]
    order = np.argsort(-np.abs(coefficients).max(0))
    _matrix(first, coefficients[:, order], slopes, [f"h{k + 1}" for k in range(len(order))], "linear layer")
    _matrix(second, exponents[order], [f"h{k + 1}" for k in range(len(order))], list(data.names), "exponents of the Real NPU")
    _matrix(third, gates[:, None].clip(0, 1), list(data.names), ["gate"], "relevance")
    upper.suptitle("as trained, with L1", fontsize="medium")
    series, text = lower.subplots(1, 2, width_ratios=[1.1, 1])
    _draw_series(series, data, fit)
    series.axvline(data.pieces[0][0][-1], color="0.7", linestyle="--", linewidth=1)
    series.spines[["top", "right"]].set_visible(False)
    series.set_title("data, and the refitted model beyond them", fontsize="medium")
    text.set_axis_off()
    system = SYSTEMS["fsir"]
    true = [
        rf"$\frac{{d{name}}}{{dt}} = {sp.latex(expression, full_prec=False)}$" for name, expression in system.equations.items()
    ]
    mine = [f"${line}$" for line in fit.latex().splitlines()]
    text.text(0, 0.95, "\n".join(["refitted without L1, gates open:", *mine, "", "true:", *true]), va="top", linespacing=2.0)
    return figure


def _matrix(axes: Axes, values: NDArray[np.float64], rows: list[str], columns: list[str], title: str) -> None:
    limit = max(float(np.abs(values).max()), 1e-9)
    axes.imshow(values, cmap="RdBu_r", vmin=-limit, vmax=limit, aspect="auto")
    for (row, column), value in np.ndenumerate(values):
        if abs(value) > 1e-3:
            colour = "white" if abs(value) > 0.6 * limit else "black"
            axes.text(column, row, f"{value:.2g}", ha="center", va="center", fontsize="small", color=colour)
    axes.set_xticks(range(len(columns)), columns, fontsize="small")
    axes.set_yticks(range(len(rows)), rows, fontsize="small")
    axes.set_title(title, fontsize="medium")
    axes.tick_params(length=0)


STUDIES = {"ode_grid": grid_study, "ode_best": best_study}
"""Studies by the name that experiment files use."""
