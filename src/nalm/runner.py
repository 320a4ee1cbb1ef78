"""From a question to rows: cells, what the store already has, the engine for the rest, and the papers' statistics."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, count, groupby
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import nn

from nalm import __version__, exports, metrics, tasks
from nalm.checks import fitting, of_kind, shown, whole
from nalm.engine import fused, lookup, reference
from nalm.engine.data import Job
from nalm.learnable import check_learnable
from nalm.models import Model, check_own_name, model_of
from nalm.progress import Progress, following
from nalm.specs import Cell, Runs
from nalm.store import Store

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pandas import DataFrame

    from nalm.specs import Recipe

__all__ = ["Result", "benchmark", "cell_of", "changed_data", "engine_for", "run_cells", "threshold_of"]

ENGINES = ("auto", "fused", "torch")
MOST_INPUTS, MOST_SEEDS = 1_000_000, 1_000_000
STACKED_RUNS = 512
"""Most runs that the torch engine trains as one stack."""

log = logging.getLogger(__name__)

ModuleLike = str | Callable[[int, int], nn.Module]


@dataclass
class Result:
    """What a benchmark found: `rows`, one a cell, as in the command line's JSON; and the raw runs behind them."""

    rows: list[dict[str, Any]]
    runs: list[dict[str, Any]] = field(repr=False)
    """One dictionary a run."""
    engine: str
    seconds: float
    """Wall time of training, compilation apart."""
    compile_seconds: float
    labels: dict[str, str]
    raw: dict[Cell, Runs] = field(repr=False)
    failures: list[str] = field(default_factory=list)
    """What modules said that raised errors."""

    def to_frame(self) -> DataFrame:
        """The rows as a pandas frame, one line a cell; `pandas.DataFrame(result.runs)` has one a run."""
        return exports.frame(self.rows)

    def to_latex(self) -> str:
        """A table of success rate, solved-at step and sparsity error with their intervals, for the package booktabs."""
        return exports.latex(self.rows, self.labels)

    @property
    def history(self) -> DataFrame:
        """Validation, test and sparsity error of every run at every logged step, as a pandas frame."""
        return exports.history(self.raw)

    def plot(self, path: str | PathLike[str]) -> list[Path]:
        """Draw success rate, solved-at step and sparsity error by range; the path may end in .png, .svg, .pdf or .eps."""
        from nalm import figures

        return figures.save(figures.three_panels(self.rows, labels=self.labels, caption=self.caption()), path)

    def caption(self) -> str:
        """What was run, in a line."""
        recipes = {cell.recipe.iterations for cell in self.raw}
        runs = {row["runs"] for row in self.rows}
        return (
            f"{'/'.join(map(str, sorted(runs)))} runs a point, {'/'.join(f'{n:,}' for n in sorted(recipes))} iterations, "
            f"{self.engine} engine, {self.seconds:.1f} s; means over solved runs with 95 % intervals; nalm {__version__}"
        )


@dataclass
class Trained:
    """Runs of cells, newly trained or from the store."""

    runs: dict[Cell, Runs]
    engines: set[str]
    seconds: float
    """Wall time of the training done now, compilation apart."""
    compile_seconds: float
    core_seconds: dict[Cell, float]
    """What the runs of each cell took, added over threads, whenever they were trained."""


def threshold_of(text: str | float) -> metrics.Threshold:
    """The threshold of a number, or of `simulated`: the papers' model whose weights are off by 1e-5 (`simulated:E`: by E)."""
    name, _, epsilon = str(text).partition(":")
    try:
        error = float(epsilon or 1e-5) if name == "simulated" else float(text)
    except ValueError:
        raise ValueError(f"threshold must be a number, 'simulated' or 'simulated:EPSILON', got {text!r}") from None
    if not 0 < error < math.inf:
        raise ValueError(f"threshold must be positive, got {text}")
    return metrics.SimulatedThreshold(error) if name == "simulated" else metrics.FixedThreshold(error)


def benchmark(
    module: ModuleLike | Sequence[ModuleLike] | Mapping[str, ModuleLike],
    task: str = "single-module",
    operation: str = "mul",
    ranges: str | Sequence[str] | None = None,
    seeds: int | Sequence[int] = 25,
    engine: str = "auto",
    *,
    inputs: int | None = None,
    threshold: str | float = 1e-5,
    out: str | PathLike[str] | None = None,
    module_options: Mapping[str, Any] | None = None,
    data: Mapping[str, Any] | None = None,
    threads: int | None = None,
    compiled: bool | None = None,
    progress: Progress | bool | None = None,
    recipe: str = "published",
    **changes: Any,
) -> Result:
    """Train modules on an operation over ranges and seeds, and judge them as the papers do.

    Args:
        module: registry name, a network of them (``nau+nmu`` one behind the other, ``nau/nmu`` behind a gate,
            ``recurrent:nau:nmu`` and ``recurrent:frozen`` with a scratchpad), ``package.file:Class``, a class or function
            ``(in_features, out_features) -> nn.Module``, a list of these, or a mapping of labels to them.
        task: `single-module`, `arithmetic-dataset`, `function4`, `large-scale`, `two-step`, `logic` or `comparison`; see
            `nalm list tasks`.
        operation: what is to be learned: add, sub, mul, div, reciprocal, square, sqrt or identity; of `two-step`, add-mul and
            the like; of `logic`, and, or, not, nand, nor, xor, implies, equivalent or majority; of `comparison`, lt, le, gt,
            ge, eq or ne.
        ranges: training distributions, such as ``U[1,2)`` or ``U[1,2) -> U[2,6)``, or one; by default the papers' nine.
        seeds: how many (0, 1, ...), or which.
        engine: `fused` (compiled kernels), `torch` (any module), or `auto`: fused where there is a kernel.
        inputs: number of inputs; all that are in no operand are irrelevant. By default as published for the task.
        threshold: test error below which a run is solved, or `simulated`; of `logic` and `comparison` the test error is the
            share of wrong answers.
        out: folder of a store; what it already holds is not trained again.
        module_options: constructor options of the modules.
        data: what is to differ from the published task: `subset`, `overlap`, `subsets`, `hidden`, `operands`.
        threads: threads of the fused engine; by default all cores.
        compiled: whether the torch engine compiles its step; by default where the training is long enough to gain from it.
        progress: what shows progress: `True` for a bar on standard error, or an object with `start(total, what)`,
            `advance(amount)` and, if it likes, `say(text)`.
        recipe: `published`, or `robust`: reliable training beyond the papers, for the modules that have it.
        changes: values of the recipe to change, such as ``iterations=10_000``.

    Returns:
        rows, runs and raw results; ``result.plot("figure")`` draws them.
    """
    of_kind("module_options", module_options or {}, Mapping, "a mapping of names to values")
    of_kind("data", data or {}, Mapping, "a mapping of names to values")
    of_kind("ranges", ranges or (), (str, list, tuple), "a text or a list of texts")
    of_kind("out", out or "", (str, PathLike), "a folder")
    of_kind("compiled", compiled or False, bool, "True or False")
    threads = None if threads is None else whole("threads", threads, 1, 1024)
    chosen_task = tasks.task_of(task)
    inputs = chosen_task.inputs if inputs is None else inputs
    if operation not in chosen_task.operations:
        raise ValueError(f"unknown operation {operation!r}; {task} has: {', '.join(chosen_task.operations)}")
    if engine not in ENGINES:
        raise ValueError(f"unknown engine {engine!r}; there are: {', '.join(ENGINES)}")
    least = 2 if operation in ("add", "sub", "mul", "div") else 1
    inputs = whole("inputs", inputs, high=MOST_INPUTS)
    if inputs < least:
        raise ValueError(f"{operation} needs at least {least} input{'s' * (least > 1)}, got {inputs}")
    chosen = seeds_of(seeds)
    limit = threshold_of(threshold)
    listed = [ranges] if isinstance(ranges, str) else ranges
    pairs = [tasks.read_range(text) for text in (listed or chosen_task.ranges or tasks.NINE_RANGES)]
    changed = changed_data(chosen_task, data or {})
    hidden = chosen_task.values(changed).get("hidden", 2)
    chosen_task.spans(inputs, chosen[0], changed, operation)  # refuses spans that do not fit
    models = _models_of(module, lambda one: model_of(one, module_options, hidden=hidden, start=changed.get("start", "")))
    questions: list[tuple[Cell, Model]] = []
    for model in models:
        check_learnable(model.name, model.parts, chosen_task, operation, inputs, changed)
        tuned = model.recipe_for(task, operation, inputs, recipe).replace(**changes)
        _check_memory(model, tuned, inputs, len(chosen) * len(pairs))
        questions += [(cell_of(model, task, operation, inputs, pair, tuned, changed), model) for pair in pairs]
    store = Store(out, version=__version__) if out is not None else None
    for model in models if store else ():
        if model.untold:
            log.warning("%s is trained anew and not stored: what it builds cannot be told (%s)", model.name, model.untold)
    try:
        trained = run_cells(
            questions, chosen, engine=engine, store=store, threads=threads, compiled=compiled, progress=progress
        )
    finally:
        if store is not None:
            store.close()
    raw = trained.runs
    failures = [f"{cell.module} on {message}" for cell, runs in raw.items() for message in runs.messages if message]
    if all(status == "failed" for runs in raw.values() for status in runs.status):
        raise ValueError(f"no run could be trained: {failures[0]}")
    return Result(
        rows=[metrics.summarise(cell, runs, limit) for cell, runs in raw.items()],
        runs=[row for cell, runs in raw.items() for row in metrics.describe_runs(cell, runs, limit)],
        engine="+".join(sorted(trained.engines)),
        seconds=trained.seconds,
        compile_seconds=trained.compile_seconds,
        labels={model.name: model.label for model in models},
        raw=raw,
        failures=failures,
    )


def _models_of(
    module: ModuleLike | Sequence[ModuleLike] | Mapping[str, ModuleLike], build: Callable[[ModuleLike], Model]
) -> list[Model]:
    """The models of what was named, each under a name of its own."""
    if isinstance(module, Mapping):
        models = [replace(build(one), label=str(label)) for label, one in module.items()]
        models = [model if model.parts else replace(model, name=model.label) for model in models]
    else:
        models = [build(one) for one in ([module] if isinstance(module, str) or callable(module) else module)]
    taken: list[str] = [model.name for model in models if model.parts]
    named = []
    for model in models:
        again = (f"{model.name}-{k}" for k in count(2))
        name = next(name for name in chain([model.name], again) if model.parts or name not in taken)
        taken += [] if model.parts else [name]
        named.append(model if name == model.name else replace(model, name=name, label=name))
        if not model.parts and not model.frozen:
            check_own_name(name)
    if not named or len(set(taken)) != len(taken):
        raise ValueError(f"each module may be named once, and one at least, got {', '.join(taken) or 'none'}")
    return named


def seeds_of(seeds: Any) -> list[int]:
    """The seeds of a number of them, or those that are listed."""
    if not isinstance(seeds, (list, tuple, range)):
        return [*range(whole("seeds", seeds, 1, MOST_SEEDS))]
    chosen = [whole("each seed", seed, 0, 2**32 - 1) for seed in seeds]
    if not 1 <= len(chosen) <= MOST_SEEDS or len(set(chosen)) != len(chosen):
        raise ValueError(f"seeds must be a number of at least 1, or different numbers from 0 up, got {shown(seeds)}")
    return chosen


def _check_memory(model: Model, recipe: Recipe, inputs: int, runs: int) -> None:
    """Refuse what cannot fit into memory, before anything is built: rows of inputs, starts of all runs, logged errors."""
    layer = sum(p.numel() for p in model.build(2).parameters()) * inputs / 2 if model.registered else inputs
    rows = (2 * recipe.evaluation_rows + recipe.batch) * inputs * 4
    fitting(
        f"{model.name} with {inputs:,} inputs",
        rows + layer * 16 + runs * (8 * layer * _attempts(recipe) + 24 * len(recipe.steps)),
    )


def cell_of(
    model: Model,
    task: str,
    operation: str,
    inputs: int,
    ranges: tuple[str, str],
    recipe: Recipe,
    changed: Mapping[str, Any],
) -> Cell:
    """The cell of a model on a pair of ranges; `changed` is what of the task's data is not as published."""
    return Cell(model.name, operation, inputs, *ranges, recipe, task, model.options, tuple(changed.items()))


def changed_data(task: tasks.Task, data: Mapping[str, Any]) -> dict[str, Any]:
    """What of a task's data differs from the published; ValueError for what it does not have or cannot be."""
    published, values = task.values({}), task.values(data)
    return {name: values[name] for name in data if values[name] != published[name]}


def run_cells(
    questions: Sequence[tuple[Cell, Model]],
    seeds: Sequence[int],
    *,
    engine: str = "auto",
    store: Store | None = None,
    threads: int | None = None,
    compiled: bool | None = None,
    progress: Progress | bool | None = None,
) -> Trained:
    """Train what the store does not have yet; give the runs of every cell.

    Cells that share module, recipe and inputs are trained together. A cell is stored as soon as all its runs are done.
    """
    with following(progress) as shown:
        return _run_cells(questions, seeds, engine, store, shown, (threads, compiled))


def _run_cells(
    questions: Sequence[tuple[Cell, Model]],
    seeds: Sequence[int],
    engine: str,
    store: Store | None,
    shown: Progress,
    how: tuple[int | None, bool | None],
) -> Trained:
    plans = [(cell, model, engine_for(model, engine)) for cell, model in questions]
    stored = {cell: runs for cell, _, used in plans if store and (runs := _stored(store, cell, seeds, used))}
    missing = {cell: _others(seeds, stored.get(cell)) for cell, _, _ in plans}
    shown.start(sum(len(todo) for todo in missing.values()), "runs")
    results: dict[Cell, Runs] = {}
    times: dict[Cell, float] = {}
    training = compiling = 0.0
    for _, group in groupby(plans, key=lambda plan: _kind(plan[0], plan[2])):
        members = list(group)
        used = members[0][2]
        todo = {cell: model for cell, model, _ in members if missing[cell]}
        if not todo:
            continue
        module, jobs, broken = _prepare(todo, missing)
        for cell, runs in broken.items():
            results[cell], times[cell] = runs, 0.0
            shown.advance(len(runs))
        if not jobs:
            continue
        if used == "fused":
            shown.say(f"compiling {members[0][0].module}")
            compiling += fused.compile_kernel(module, solver=members[0][0].recipe.solver is not None)
            shown.say("")
        alone = _must_train_alone(module, next(iter(jobs.values())), next(iter(todo.values()))) if used == "torch" else False
        began = time.perf_counter()
        for cell, runs, seconds in _train(used, module, jobs, *how, shown, alone):
            results[cell], times[cell] = runs, seconds
            kept = runs.finished()
            if store and len(kept) and not todo[cell].untold:  # errors may pass, and nobody finds what has no identity
                store.add(cell, kept, engine=used, seconds=seconds * len(kept) / len(runs))
        training += time.perf_counter() - began
    for cell, _, used in plans:
        if store and cell in stored:
            joined = Runs.join([stored[cell], *([results[cell]] if cell in results else [])])
            results[cell] = joined.take([*np.searchsorted(joined.seeds, seeds)])
            times[cell] = times.get(cell, 0.0) + store.seconds(cell, stored[cell].seeds.tolist(), used)
    ordered = {cell: results[cell] for cell, _, _ in plans}
    return Trained(ordered, {used for _, _, used in plans}, training, compiling, {cell: times[cell] for cell in ordered})


def _stored(store: Store, cell: Cell, seeds: Sequence[int], engine: str) -> Runs | None:
    """What the store has of these runs, if anything; a run that failed may succeed now."""
    absent = set(store.missing(cell, seeds, engine))
    there = [seed for seed in seeds if seed not in absent]
    return store.runs(cell, there, engine).finished() if there else None


def _others(seeds: Sequence[int], runs: Runs | None) -> list[int]:
    """The seeds of which there is no run."""
    there = set(runs.seeds.tolist()) if runs else set()
    return [seed for seed in seeds if seed not in there]


def _kind(cell: Cell, engine: str) -> tuple[Any, ...]:
    """What cells that are trained together have in common."""
    return cell.module, cell.options, cell.recipe, cell.inputs, cell.task, cell.data, engine


def engine_for(model: Model, engine: str) -> str:
    """The engine that trains a model: the one asked for, or for `auto` the fused one if it has a kernel."""
    if engine == "torch":
        return engine
    if model.fused:
        try:
            lookup.kernel_of(model.build(2))
        except ValueError:
            if engine == "fused":
                raise
        else:
            return "fused"
    if engine == "fused":
        raise ValueError(f"the fused engine has no kernel for {model.name}; use the torch engine")
    return "torch"


def _prepare(
    cells: Mapping[Cell, Model], missing: Mapping[Cell, Sequence[int]]
) -> tuple[nn.Module, dict[Cell, Job], dict[Cell, Runs]]:
    """The module, a job for each cell, and, for a user's module that cannot be built, failed runs in its place."""
    cell, model = next(iter(cells.items()))
    inputs, attempts = cell.inputs, _attempts(cell.recipe)
    rule = cell.recipe.restarts.start if cell.recipe.restarts else "own"
    try:
        module = model.build(inputs)
        known: dict[tuple[int, int], Any] = {}
        for one, own in cells.items():
            for seed in missing[one]:
                if (id(own), seed) not in known:
                    known[id(own), seed] = own.starts(module, inputs, seed, attempts, rule)
        drawn = {one: np.stack([known[id(own), seed] for seed in missing[one]]) for one, own in cells.items()}
    except Exception as error:
        if model.registered or isinstance(error, reference.PASSING):
            raise
        failed = {one: reference.failed_runs(one, missing[one], error) for one in cells}
        return nn.Identity(), {}, failed
    jobs = {}
    for one in cells:
        seeds, stacked = list(missing[one]), drawn[one]
        task = tasks.task_of(one.task)
        spans = np.array([task.spans(inputs, seed, dict(one.data), one.operation) for seed in seeds])
        near, far = (task.distribution(text, one.operation) for text in (one.interpolation, one.extrapolation))
        jobs[one] = Job(one.recipe, one.operation, inputs, near, far, seeds, spans, stacked)
    return module, jobs, {}


def _must_train_alone(module: nn.Module, job: Job, model: Model) -> bool:
    """Whether runs of a user's module cannot be stacked; one line says that this is slow."""
    reason = "" if model.registered else reference.obstacle(module, job)
    if reason and job.recipe.solver:
        raise ValueError(
            f"{model.name} cannot be trained with a solver, only by descent: its runs cannot be stacked ({reason})"
        )
    if reason:
        log.warning("%s is trained run by run, which is slow: its runs cannot be stacked (%s)", model.name, reason)
    return bool(reason)


def _attempts(recipe: Recipe) -> int:
    """How many starts a run may need."""
    if recipe.restarts:
        return recipe.restarts.limit
    return 16 if recipe.reinitialise else 1


def _train(
    used: str,
    module: nn.Module,
    jobs: Mapping[Cell, Job],
    threads: int | None,
    compiled: bool | None,
    progress: Progress,
    alone: bool,
) -> Iterator[tuple[Cell, Runs, float]]:
    cells, work = list(jobs), list(jobs.values())
    if used == "fused":
        for number, runs, seconds in fused.train(module, work, threads=threads, on_run=lambda: progress.advance(1)):
            yield cells[number], runs, seconds
        return
    size = max(1, STACKED_RUNS // len(work[0].seeds))
    for start in range(0, len(work), size):
        part = work[start : start + size]
        runs_in_part = sum(len(job.seeds) for job in part)
        chosen = part[0].recipe.iterations > 5_000 if compiled is None else compiled

        def advance(share: float, runs: int = runs_in_part) -> None:
            progress.say("")
            progress.advance(share * runs)

        if chosen:
            progress.say(f"compiling {cells[start].module}")

        for number, runs, seconds in reference.train(module, part, compiled=chosen, alone=alone, on_share=advance):
            yield cells[start + number], runs, seconds
