"""Run a published experiment, draw its figure, and say where the result agrees with what was published."""

from __future__ import annotations

import json
import os
import platform
import time
from dataclasses import dataclass, field
from datetime import date
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from torch.nn.utils import parameters_to_vector

from nalm import __version__, figures, metrics
from nalm.checks import known, whole
from nalm.claims import EXACT_SHARE, TRAINED_SHARE, VERDICTS, Row, Verdict, judge, judge_exact
from nalm.drawing import Drawing
from nalm.engine import fused, reference
from nalm.engine.data import Job
from nalm.exact import COMPUTATIONS
from nalm.experiments import load, load_all
from nalm.files import write, write_table
from nalm.limits import robust_limits
from nalm.models import model_of
from nalm.pages import section
from nalm.planning import estimate, questions
from nalm.progress import Progress, following
from nalm.runner import engine_for, run_cells, threshold_of
from nalm.simple_arithmetic import simple_arithmetic
from nalm.specs import Recipe
from nalm.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from matplotlib.figure import Figure

    from nalm.exact import Exact
    from nalm.experiments import Condition, Experiment
    from nalm.specs import Cell, Runs


__all__ = ["Report", "reproduce", "reproduce_all"]


@dataclass
class Report:
    """What an experiment gave: rows, verdicts on the published claims, a figure, and how long it took."""

    experiment: Experiment
    budget: str
    seeds: int
    rows: list[Row]
    table: list[dict[str, Any]]
    """What is printed and written: one dictionary a row."""
    verdicts: list[Verdict]
    seconds: float
    compile_seconds: float = 0.0
    core_seconds: float = 0.0
    """What all runs took, added over threads, whenever they were trained."""
    engine: str = ""
    iterations: tuple[int, ...] = ()
    drawing: Callable[[str], Figure | None] | None = field(default=None, repr=False)
    """Draws the figure, with a caption."""

    def counts(self) -> dict[str, int]:
        """How many claims agree, differ, or cannot be compared."""
        return {name: sum(v.verdict == name for v in self.verdicts) for name in VERDICTS}

    def caption(self) -> str:
        """What was run, in a line."""
        steps = "/".join(f"{n:,}" for n in self.iterations)
        trained = f"{self.seeds} seeds, {steps} iterations, {self.engine} engine, " if self.rows else ""
        how = f"{trained}{self.core_seconds:,.1f} s on one core, {self.budget} budget; nalm {__version__}"
        return f"{self.experiment.id}: {self.experiment.title} ({how})"

    def figure(self) -> Figure | None:
        """The experiment's figure."""
        return self.drawing(self.caption()) if self.drawing else None

    def to_json(self) -> dict[str, Any]:
        """All but the raw runs."""
        return {
            "id": self.experiment.id,
            "title": self.experiment.title,
            "budget": self.budget,
            "seeds": self.seeds,
            "engine": self.engine,
            "seconds": self.seconds,
            "compile_seconds": self.compile_seconds,
            "core_seconds": self.core_seconds,
            "iterations": list(self.iterations),
            "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
            "date": date.today().isoformat(),
            "version": __version__,
            "table": self.table,
            "claims": [
                {
                    "id": v.claim.id,
                    "what": describe(v),
                    "published": v.published,
                    "measured": v.measured,
                    "verdict": v.verdict,
                    "reason": v.reason or explanation(self.experiment, v),
                }
                for v in self.verdicts
            ],
            **self.counts(),
        }

    def write(self, folder: Path) -> list[Path]:
        """Write report.json, tables as CSV and Markdown, and the figure as PNG and SVG; give the files."""
        document = self.to_json()
        written = [folder / "report.json", folder / "report.md"]
        write(written[0], json.dumps(document, ensure_ascii=False, indent=1))
        write(written[1], "\n".join(section(document, self.experiment)) + "\n")
        written += [write_table(folder / f"{name}.csv", document[name]) for name in ("table", "claims") if document[name]]
        drawn = self.figure()
        return written + (figures.save(drawn, folder / "figure") if drawn else [])


def describe(verdict: Verdict) -> str:
    """A claim in a few words."""
    claim = verdict.claim
    key, metric = claim.key.replace("/", " ").replace("_", " "), claim.metric.replace("_", " ")
    parts = [", ".join(claim.series), claim.operation, f"{claim.inputs} inputs" if claim.inputs else "", claim.group]
    parts += ["; ".join(claim.at), ", ".join(map(str, claim.varied)), key.removesuffix(metric).rstrip(), metric]
    return " ".join(part for part in parts if part)


def explanation(experiment: Experiment, verdict: Verdict) -> str:
    """Why a claim differs, if the experiment's file says so."""
    if verdict.verdict != "differ":
        return ""
    return next((note.why for note in experiment.explanations if verdict.claim.id in note.ids), "")


@cache
def _gold_error(module: str, options: Any, operation: str, inputs: int, extrapolation: str) -> float:
    """Test error of a module with exact weights in float32, by the engine that trains it: another one rounds otherwise."""
    model = model_of(module, dict(options))
    layer = model.build(inputs)
    layer.set_solution_(operation, tuple(range(min(inputs, 2))))  # type: ignore[operator]
    start = parameters_to_vector(layer.parameters()).detach().numpy()
    second = min(1, inputs - 1)
    spans = np.array([[[0, 1], [second, second + 1]]])
    untrained = Recipe(iterations=0)
    job = Job(untrained, operation, inputs, extrapolation, extrapolation, [0], spans, start[None, None])
    engine = fused if engine_for(model, "auto") == "fused" else reference
    ((_, runs, _),) = engine.train(layer, [job])
    return float(runs.test[0, 0])


def _threshold(text: str | float, cell: Cell) -> metrics.Threshold:
    if text != "gold":
        return threshold_of(text)
    return metrics.GoldThreshold(_gold_error(cell.module, cell.options, cell.operation, cell.inputs, cell.extrapolation))


def reproduce(
    identity: str,
    budget: str = "quick",
    seeds: int | None = None,
    out: str | os.PathLike[str] | None = None,
    *,
    series: Sequence[str] | None = None,
    data_dir: str | os.PathLike[str] | None = None,
    progress: Progress | bool | None = None,
) -> Report:
    """Run one experiment and compare it with what was published.

    Args:
        identity: id of a figure or table, such as ``T:fig5.7``; `nalm list experiments` shows them.
        budget: `quick`, about half a minute, or `paper`, as published.
        seeds: runs a condition, if not those of the budget.
        out: folder for a store that all experiments share, and for tables and figure of this one; what the store already
            holds is not trained again.
        series: names of the series to run, if not all.
        data_dir: folder of MNIST, for experiments with images; by default that of the environment variable NALM_DATA, or else
            the small digits of scikit-learn.
        progress: what shows progress: `True` for a bar on standard error, or an object as `nalm.benchmark` takes it.
    """
    if seeds is not None:
        seeds = whole("seeds", seeds, 1, 1_000_000)
    experiment = load(identity)
    conditions = experiment.conditions(budget, seeds, series) if experiment.kind == "training" else []
    if series is not None and experiment.kind == "exact":
        raise ValueError(f"{experiment.id} is computed and has no series, got {', '.join(series)}")
    if seeds is not None and experiment.kind == "exact":
        raise ValueError(f"{experiment.id} is computed and has no seeds, got {seeds}")
    if data_dir is not None and experiment.kind != "images":
        raise ValueError(f"{experiment.id} has no images, so it needs no folder of them, got {str(data_dir)!r}")
    folder = _folder(out, experiment)
    with following(progress) as shown:
        if experiment.kind == "exact":
            report = _compute(experiment, budget)
        elif experiment.kind == "images":
            report = _study(experiment, budget, seeds, folder, series, data_dir, shown)
        elif experiment.kind == "dynamics":
            report = _integrate(experiment, budget, seeds, folder, series, shown)
        else:
            report = _train(experiment, conditions, budget, out, shown)
    if folder is not None:
        report.write(folder)
    return report


def _folder(out: str | os.PathLike[str] | None, experiment: Experiment) -> Path | None:
    """The experiment's own folder, made before any work; ValueError where that cannot be."""
    if out is None:
        return None
    folder = Path(out) / experiment.slug
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"cannot write to {folder}: {error.strerror}") from None
    return folder


def _reported(
    experiment: Experiment, budget: str, seeds: int, compute: Callable[[], Exact], scaled: bool, share: float = EXACT_SHARE
) -> Report:
    """The report on what a computation or a study gives; `share` is how far a number may be off."""
    began = time.perf_counter()
    result = compute()
    verdicts = judge_exact(experiment, result.values, scaled=scaled, share=share)
    draw, took = result.figure, time.perf_counter() - began
    drawing = (lambda caption: figures.captioned(draw(), caption)) if draw else None
    work = took if result.core_seconds is None else result.core_seconds
    return Report(experiment, budget, seeds, [], result.table, verdicts, took, core_seconds=work, drawing=drawing)


def _compute(experiment: Experiment, budget: str) -> Report:
    settings = experiment.settings_for(budget)
    computations = {**COMPUTATIONS, "simple_arithmetic": simple_arithmetic, "robust_limits": robust_limits}
    compute = computations[known("computation", experiment.compute, computations)]
    return _reported(experiment, budget, 0, lambda: compute(settings), scaled=settings != experiment.settings)


def _check_series(experiment: Experiment, names: Sequence[str], wanted: Sequence[str] | None) -> None:
    for name in wanted or ():
        if name not in names:
            raise ValueError(f"{experiment.id} has no series {name!r} in this budget; it has: {', '.join(names)}")


def _study(
    experiment: Experiment,
    budget: str,
    seeds: int | None,
    folder: Path | None,
    series: Sequence[str] | None,
    data_dir: str | os.PathLike[str] | None,
    progress: Progress,
) -> Report:
    """Train networks on images; checkpoints stay in the experiment's folder."""
    from nalm.images.digits import VARIABLE
    from nalm.images.studies import STUDIES, questions

    settings = experiment.settings_for(budget)
    _check_series(experiment, [one["name"] for one in settings["series"]], series)
    if seeds is not None:
        settings = {**settings, "seeds": seeds, "series": [{**one, "seeds": seeds} for one in settings["series"]]}
    chosen = str(data_dir) if data_dir is not None else os.environ.get(VARIABLE)
    progress.start(len(questions(settings, chosen, series)), "runs")
    checkpoints = folder / "checkpoints" if folder is not None else None
    study = STUDIES[known("study", experiment.compute, STUDIES)]
    return _reported(
        experiment,
        budget,
        settings["seeds"],
        lambda: study(settings, chosen, checkpoints, progress.advance, series),
        scaled=budget == "quick",
    )


def _integrate(
    experiment: Experiment,
    budget: str,
    seeds: int | None,
    folder: Path | None,
    series: Sequence[str] | None,
    progress: Progress,
) -> Report:
    """Train right-hand sides of differential equations; finished runs stay in the experiment's folder."""
    from nalm.dynamics.studies import STUDIES, questions

    settings = experiment.settings_for(budget)
    _check_series(experiment, settings["series"], series)
    settings = {**settings, "runs": seeds or settings["runs"]}
    progress.start(len(questions(settings, series)), "runs")
    study = STUDIES[known("study", experiment.compute, STUDIES)]
    return _reported(
        experiment,
        budget,
        settings["runs"],
        lambda: study(settings, folder, progress.advance, series),
        scaled=budget == "quick",
        share=TRAINED_SHARE,
    )


def _train(
    experiment: Experiment,
    conditions: Sequence[Condition],
    budget: str,
    out: str | os.PathLike[str] | None,
    progress: Progress,
) -> Report:
    asked = [(condition, cell, model) for condition in conditions for cell, model in questions(condition)]
    raw: dict[tuple[Cell, int], Runs] = {}
    times: dict[tuple[Cell, int], float] = {}
    engines: set[str] = set()
    seconds = compiling = core_seconds = 0.0
    shown = _Joined(progress, sum(condition.seeds for condition, _, _ in asked))
    store = Store(out, version=__version__) if out is not None else None
    try:
        for count, part in groupby(sorted(asked, key=lambda one: one[0].seeds), key=lambda one: one[0].seeds):
            distinct = list({cell: (cell, model) for _, cell, model in part}.values())
            trained = run_cells(distinct, range(count), store=store, progress=shown)
            raw |= {(cell, count): runs for cell, runs in trained.runs.items()}
            engines |= trained.engines
            seconds, compiling = seconds + trained.seconds, compiling + trained.compile_seconds
            core_seconds += sum(trained.core_seconds.values())
            times |= {(cell, count): took / count for cell, took in trained.core_seconds.items()}
    finally:
        if store is not None:
            store.close()
    rows = [_row(one, cell, raw[cell, one.seeds], times[cell, one.seeds]) for one, cell, _ in asked]
    table = _table(experiment, rows)
    return Report(
        experiment=experiment,
        budget=budget,
        seeds=max(condition.seeds for condition in conditions),
        rows=rows,
        table=table,
        verdicts=judge(experiment, rows, budget, any(condition.shortened for condition in conditions)),
        seconds=seconds,
        compile_seconds=compiling,
        core_seconds=core_seconds,
        engine="+".join(sorted(engines)),
        iterations=tuple(sorted({cell.recipe.iterations for _, cell, _ in asked})),
        drawing=Drawing(experiment, rows, table, asked, raw),
    )


class _Joined:
    """Shows several pieces of work as one."""

    def __init__(self, progress: Progress, total: float) -> None:
        self.progress = progress
        progress.start(total, "runs")

    def start(self, total: float, what: str) -> None:
        """A piece begins; the whole has begun already."""

    def advance(self, amount: float) -> None:
        """Move the whole on."""
        self.progress.advance(amount)

    def say(self, text: str) -> None:
        """Pass it on."""
        self.progress.say(text)


def _row(condition: Condition, cell: Cell, runs: Runs, seconds: float) -> Row:
    threshold = _threshold(condition.threshold, cell)
    limit, rows = threshold.value(cell), {"last": 1} if condition.judged == "last" else {}
    return Row(
        series=condition.series,
        module=condition.module,
        operation=cell.operation,
        inputs=cell.inputs,
        interpolation=cell.interpolation,
        varied=condition.varied,
        summary={**metrics.summarise(cell, runs, threshold, **rows), "label": condition.label},
        outcomes=metrics.outcomes(runs, limit, threshold.inclusive, **rows),
        threshold=limit,
        parameters=runs.weights.shape[1],
        seconds=seconds,
    )


def _table(experiment: Experiment, rows: Sequence[Row]) -> list[dict[str, Any]]:
    if experiment.table == "problems":
        return _problems(experiment, rows)
    if experiment.table == "networks":
        return _networks(experiment, rows)
    return _grouped(experiment, rows) if experiment.groups else [_printed(experiment, row) for row in rows]


def _problems(experiment: Experiment, rows: Sequence[Row]) -> list[dict[str, Any]]:
    """A line for each series: success over all its runs, and at the first start alone, beside what was published."""
    table = []
    for series in experiment.series:
        here = [row for row in rows if row.series == series["name"]]
        if not here:
            continue
        solved = np.concatenate([row.outcomes.solved for row in here])
        starts = np.concatenate([row.outcomes.solved_at for row in here])
        counted = np.nanmax(starts, initial=0.0) < 1_000  # starts, not steps
        interval = metrics.wilson_interval(int(solved.sum()), len(solved))
        rates = [row.outcomes.solved.mean() for row in here]
        reach = series.get("reach")
        table.append(
            {
                "problem": series.get("problem", ""),
                "module": series.get("label", series["name"]),
                "ranges": len(here),
                "runs": len(solved),
                "success": float(solved.mean()),
                "success_low": interval.low,
                "success_high": interval.high,
                "ranges_full": int(sum(rate == 1 for rate in rates)),
                "first_start": float(np.mean(solved & (starts == 1))) if counted else None,
                "starts": float(np.nanmean(starts)) if counted and solved.any() else None,
                "seconds": float(np.mean([row.seconds for row in here])),
                "published": series.get("published", ""),
                "reach": reach,
                "reached": None if reach is None else bool(min(rates) >= 1 if reach == 1 else solved.mean() >= reach),
            }
        )
    return table


def _networks(experiment: Experiment, rows: Sequence[Row]) -> list[dict[str, Any]]:
    """A line for each network: how many expressions a seed solves, and errors, beside what was published."""
    columns = {
        "solved": ("expressions_solved", "solved"),
        "interpolation_error": ("interp_mse_mean", "interpolation_error"),
        "extrapolation_error": ("extrap_mse_mean", "extrapolation_error"),
    }
    table = []
    for series in experiment.series:
        here = [row for row in rows if row.series == series["name"]]
        if not here:
            continue
        line: dict[str, Any] = {"network": series.get("label", series["name"]), "expressions": len(here)}
        for name, (metric, raw) in columns.items():
            values = np.stack([getattr(row.outcomes, raw) for row in here])
            if name == "solved":
                counts = values.sum(0)
                line |= {"solved": float(counts.mean()), "least": int(counts.min()), "most": int(counts.max())}
            else:
                finite = values[np.isfinite(values)]
                line[name] = float(finite.mean()) if len(finite) else None
            said = [claim.value for claim in experiment.claims if claim.metric == metric and series["name"] in claim.series]
            line[f"{name} published"] = said[0] if said else None
        table.append(line)
    return table


def _printed(experiment: Experiment, row: Row) -> dict[str, Any]:
    summary = row.summary
    varied = {experiment.sweep["field"].rpartition(".")[2]: row.varied} if experiment.sweep else {}
    errors = row.outcomes.extrapolation_error
    return {
        "series": row.series,
        **varied,
        **{key: summary[key] for key in ("operation", "inputs", "interpolation", "extrapolation", "runs")},
        **{key: value for key, value in summary.items() if key.startswith(("success", "solved", "sparsity"))},
        "test_error_median": _plain(np.nanmedian(errors)) if np.isfinite(errors).any() else None,
        "threshold": row.threshold,
    }


def _plain(value: Any) -> float | None:
    return float(value) if np.isfinite(value) else None


def _grouped(experiment: Experiment, rows: Sequence[Row]) -> list[dict[str, Any]]:
    """A table of groups of rows by module: mean success rate, with the published one beside it."""
    table = []
    for group in experiment.groups:
        line: dict[str, Any] = {"group": group.name}
        for module in dict.fromkeys(row.module for row in rows):
            here = [r for r in rows if r.module == module and r.inputs == group.inputs and r.interpolation in group.at]
            names = {row.series for row in here}
            line[module] = _plain(np.mean([row.summary["success_rate"] for row in here])) if here else None
            said = [c.value for c in experiment.claims if c.group == group.name and names & set(c.series) and not c.than]
            full = [1.0 for c in experiment.claims if c.group == group.name and names & set(c.series) and c.relation == "full"]
            line[f"{module} published"] = next((v for v in [*said, *full] if v is not None), None)
        table.append(line)
    return table


def reproduce_all(
    budget: str = "quick",
    seeds: int | None = None,
    out: str | os.PathLike[str] | None = None,
    *,
    data_dir: str | os.PathLike[str] | None = None,
    progress: Progress | bool | None = None,
    on_report: Any = lambda report: None,
) -> list[Report]:
    """Run every experiment, one after the other; `on_report` is called after each."""
    shares = [estimate(one, budget, seeds) for one in load_all()]
    reports = []
    with following(progress) as shown:
        shown.start(sum(shares), "seconds of work")
        for experiment, share in zip(load_all(), shares, strict=True):
            images = data_dir if experiment.kind == "images" else None
            runs = None if experiment.kind == "exact" else seeds
            report = reproduce(experiment.id, budget, runs, out, data_dir=images, progress=_Part(shown, share))
            on_report(report)
            reports.append(report)
    return reports


class _Part:
    """Shows a piece of work as its share of a larger one."""

    def __init__(self, whole: Progress, share: float) -> None:
        self.whole, self.share, self.total = whole, share, 1.0

    def start(self, total: float, what: str) -> None:
        """The piece begins."""
        self.total = max(total, 1.0)

    def advance(self, amount: float) -> None:
        """Move the whole on by a share."""
        self.whole.advance(self.share * amount / self.total)

    def say(self, text: str) -> None:
        """Pass it on."""
        self.whole.say(text)
