"""The fused engine: one compiled loop trains one run from start to end; runs are spread over threads.

Weights, optimiser state and batch of a run never leave the processor's cache, and no Python runs inside. A run's result depends
on its own description and seed alone.
"""

from __future__ import annotations

import math
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numba import njit

from nalm.engine import descent
from nalm.engine.data import FIRST_OF_TRUTHS, Job, evaluation_inputs, evaluation_set, targets
from nalm.engine.kernels import backward, forward, penalise, project, sparsity
from nalm.engine.lookup import kernel_of
from nalm.engine.search import Search
from nalm.engine.solve import Problem
from nalm.engine.work import Work, aligned, revision
from nalm.native import SAFE, cores
from nalm.operations import number_of
from nalm.options import LevenbergMarquardt, LogMagnitude, Snap
from nalm.sampling import GRADIENT, NOISE, TEST, TRAIN, VALIDATION, fill_normal, fill_rows, fill_uniform, parse
from nalm.solver import box_of
from nalm.specs import OPTIMISERS, Recipe, Runs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

__all__ = ["compile_kernel", "gradient", "train"]

NOISES = ("", "uniform", "normal", "once")


class _Plan(NamedTuple):
    """A recipe as numbers, for compiled code."""

    iterations: int
    log_interval: int
    optimiser: int
    learning_rate: float
    loss: int
    loss_switch: int
    sign: float
    magnitudes: int
    share: float
    penalty: float
    gate_penalty: float
    penalty_start: int
    penalty_end: int
    penalty_below: float
    norm: int
    norm_start: float
    norm_factor: float
    norm_steps: int
    norm_every: int
    clip_value: float
    clip_norm: float
    gradient_noise: float
    project: int
    reinitialise: int
    noise: int


def plan(recipe: Recipe, noise: int) -> _Plan:
    """The numbers of a recipe; `noise` says what a stochastic module draws."""
    log = recipe.loss if isinstance(recipe.loss, LogMagnitude) else None
    decades = math.log10(recipe.norm_end / recipe.norm_start) if recipe.norm else 0.0
    return _Plan(
        iterations=recipe.iterations,
        log_interval=recipe.log_interval,
        optimiser=OPTIMISERS.index(recipe.optimiser),
        learning_rate=recipe.learning_rate,
        loss=descent.LOSSES.index("log-magnitude" if log else str(recipe.loss)),
        loss_switch=recipe.loss_switch,
        sign=log.sign if log else 0.0,
        magnitudes=int(log is not None and log.magnitudes),
        share=recipe.centring.share if recipe.centring else 1.0,
        penalty=recipe.penalty,
        gate_penalty=recipe.penalty if recipe.gate_penalty is None else recipe.gate_penalty,
        penalty_start=recipe.penalty_start,
        penalty_end=recipe.penalty_end,
        penalty_below=math.nan if recipe.penalty_below is None else recipe.penalty_below,
        norm=recipe.norm,
        norm_start=recipe.norm_start,
        norm_factor=10.0 if decades > 0 else 0.1,
        norm_steps=math.ceil(abs(decades) - 1e-9),
        norm_every=recipe.norm_every,
        clip_value=recipe.clip_value,
        clip_norm=recipe.clip_norm,
        gradient_noise=recipe.gradient_noise,
        project=int(recipe.project),
        reinitialise=int(recipe.reinitialise),
        noise=noise,
    )


@njit(**SAFE)
def _evaluate(
    kernel: Any, p: Any, blocks: Any, answers: Any, rows: Any, count_wrong: Any, noise: Any, t: Any, w: Any, y: Any
) -> Any:
    """Squared error, or share of wrong answers, in eval mode over inputs (blocks, inputs, width), of which `rows` count."""
    width, total = blocks.shape[2], 0.0
    for k in range(blocks.shape[0]):
        forward(kernel, p, blocks[k], noise, False, t, w, y)
        own = min(width, rows - k * width)
        total += descent.wrong_answers(y, answers[k], own) if count_wrong else descent.squared_error(y, answers[k], own)
    return total / rows


@lru_cache(maxsize=64)
def _blocks(distribution: str, inputs: int, rows: int, width: int, purpose: int, dtype: Any) -> NDArray[Any]:
    """Evaluation inputs in blocks of the width of a batch, (blocks, inputs, width); the last is filled up from the first."""
    columns = evaluation_inputs(distribution, inputs, rows, purpose).astype(dtype)
    count = -(-rows // width)
    padded = np.take(columns, np.arange(count * width) % rows, axis=1)
    blocks = aligned((count, inputs, width), dtype)
    blocks[:] = padded.reshape(inputs, count, width).transpose(1, 0, 2)
    return blocks


def _answers(job: Job, index: int, shape: Sequence[int], dtype: Any) -> NDArray[Any]:
    """Targets of one run's validation and test blocks of that shape, (2, blocks, width)."""
    rows, (count, _, width) = np.arange(shape[0] * shape[2]) % job.recipe.evaluation_rows, shape
    sets = [evaluation_set(job, job.spans[index, None], purpose, dtype)[1][0, rows] for purpose in (VALIDATION, TEST)]
    return np.stack(sets).reshape(2, count, width)


@cache
def _trainer() -> Any:
    """The compiled training loop, one specialisation per kernel and precision; built when it is first needed."""
    mark = revision()

    @njit(**SAFE, cache=True)
    def train(
        kernel: Any,
        plan: Any,
        code: Any,
        seed: Any,
        operation: Any,
        spans: Any,
        starts: Any,
        ends: Any,
        validation_blocks: Any,
        test_blocks: Any,
        answers: Any,
        rows: Any,
        work: Any,
        p: Any,
        first: Any,
        second: Any,
        validation: Any,
        test: Any,
        sparse: Any,
        values: Any,
        counts: Any,
        stop: Any,
    ) -> Any:
        """Train one run; writes a row of errors at every log interval; gives the number of rows (negative if it diverged)."""
        key = mark  # noqa: F841  (part of the key of the cache)
        x, noise, sums, target, y, dy, t, w, g = work
        last_error, start_index, row = np.inf, 0, 0
        groups, total = 0, 0
        for i in range(p.size):
            p[i] = starts[0, i]
            first[i] = 0
            second[i] = 0
        decay1, decay2 = 1.0, 1.0
        for step in range(plan.iterations + 1):
            if step % plan.log_interval == 0:
                if not descent.finite(p):
                    return -row
                last_error = _evaluate(kernel, p, validation_blocks, answers[0], rows, False, noise, t, w, y)
                validation[row] = last_error
                truths = operation >= FIRST_OF_TRUTHS
                test[row] = _evaluate(kernel, p, test_blocks, answers[1], rows, truths, noise, t, w, y)
                sparse[row] = sparsity(kernel, p)
                row += 1
                values[groups] = last_error
                counts[groups] = 0
                groups += 1
                if stop[0]:
                    return row
            fill_rows(code, seed, TRAIN, step, x)
            targets(operation, x, spans, sums, target)
            if plan.magnitudes:
                descent.magnitudes(x, target)
            if plan.noise == 1:
                fill_uniform(seed, NOISE, step, noise.reshape(noise.size))
            elif plan.noise == 2:
                fill_normal(seed, NOISE, step, noise[:, 0])
            elif plan.noise == 3:
                fill_uniform(seed, NOISE, step, noise[:, 0])
            forward(kernel, p, x, noise, True, t, w, y)
            descent.loss_pull(plan, step, y, target, dy)
            for i in range(g.size):
                g[i] = 0
            backward(kernel, p, x, noise, True, t, w, y, dy, g)
            if plan.penalty > 0 or plan.gate_penalty > 0:
                if plan.penalty_below == plan.penalty_below:
                    share = 1.0 if last_error < plan.penalty_below and step > plan.penalty_start else 0.0
                else:
                    share = (step - plan.penalty_start) / (plan.penalty_end - plan.penalty_start)
                    share = min(max(share, 0.0), 1.0)
                if share > 0:
                    penalise(kernel, p, plan.penalty * share, plan.gate_penalty * share, g)
            if plan.norm > 0:
                factors = min(step // plan.norm_every, plan.norm_steps)
                descent.norm_pull(p, ends, plan.norm, plan.norm_start * plan.norm_factor**factors, g)
            if plan.gradient_noise > 0:
                normal = w.reshape(w.size)[: g.size]
                fill_normal(seed, GRADIENT, step, normal)
                deviation = math.sqrt(plan.gradient_noise / (1 + step) ** 0.55)
                for i in range(g.size):
                    g[i] += deviation * normal[i]
            descent.clip_gradient(g, plan.clip_value, plan.clip_norm)
            if plan.optimiser == 0:
                decay1 *= 0.9
                decay2 *= 0.999
                rate, scale = plan.learning_rate / (1 - decay1), 1 / math.sqrt(1 - decay2)
                descent.adam(p, g, first, second, p.dtype.type(rate), p.dtype.type(scale))
            elif plan.optimiser == 1:
                for i in range(p.size):
                    p[i] -= p.dtype.type(plan.learning_rate) * g[i]
            else:
                descent.rmsprop(p, g, second, p.dtype.type(plan.learning_rate))
            if plan.project:
                project(kernel, p)
            if plan.reinitialise:
                counts[groups - 1] += 1
                total += 1
                if step > 0 and step % 10 == 0 and total > 5000 and descent.stuck(values, counts, groups, total):
                    start_index = (start_index + 1) % starts.shape[0]
                    for i in range(p.size):
                        p[i] = starts[start_index, i]
                    groups, total = 1, 0
                    values[0] = last_error
                    counts[0] = 0
        return row if descent.finite(p) else -row

    return train


@njit(**SAFE)
def gradient(kernel: Any, p: Any, training: Any, work: Any) -> None:
    """Output of a kernel in work.y and gradient of its mean squared error to work.target in work.g, for tests."""
    x, noise, _, target, y, dy, t, w, g = work
    forward(kernel, p, x, noise, training, t, w, y)
    descent.mse_pull(y, target, dy)
    for i in range(g.size):
        g[i] = 0
    backward(kernel, p, x, noise, training, t, w, y, dy, g)


def train(
    layer: Any,
    jobs: Sequence[Job],
    *,
    threads: int | None = None,
    precision: str = "float32",
    on_run: Callable[[], None] = lambda: None,
) -> Iterator[tuple[int, Runs, float]]:
    """Train all runs of all jobs, which share a layer (for its kernel); yield (job, runs, seconds) as jobs are completed.

    `seconds` is the time spent in the runs of a job, added over threads. `on_run` is called after each run. When the caller
    stops listening, runs in flight end at their next log step and nothing of them is kept.
    """
    kernel, dtype = kernel_of(layer), np.dtype(precision)
    ends = np.cumsum([p.numel() for p in layer.parameters()])
    noise, noisy = NOISES.index(layer.noise), getattr(layer, "noisy_inputs", layer.in_features)
    loop, stop = _trainer(), np.zeros(1, np.int64)

    def descend(job: Job, index: int) -> tuple[Any, Any, str]:
        recipe = job.recipe
        rows, parameters = len(recipe.steps), job.starts.shape[-1]
        p, first, second = (np.zeros(parameters, dtype) for _ in range(3))
        curves = np.full((3, rows), np.nan)
        validation, test = (
            _blocks(distribution, job.inputs, recipe.evaluation_rows, recipe.batch, purpose, dtype)
            for distribution, purpose in ((job.interpolation, VALIDATION), (job.extrapolation, TEST))
        )
        logged = loop(
            kernel,
            plan(recipe, noise),
            parse(job.interpolation).encode(job.inputs),
            job.seeds[index],
            number_of(job.operation),
            job.spans[index],
            job.starts[index].astype(dtype),
            ends,
            validation,
            test,
            _answers(job, index, validation.shape, dtype),
            recipe.evaluation_rows,
            Work.make(kernel, job.inputs, noisy, parameters, recipe.batch, dtype, job.spans.shape[1]),
            p,
            first,
            second,
            *curves,
            np.empty(rows + 1),
            np.zeros(rows + 1, np.int64),
            stop,
        )
        return curves, p, "ok" if logged > 0 else "diverged"

    def run(job: Job, index: int) -> tuple[Any, ...]:
        began = time.perf_counter()
        result = _search(layer, kernel, noisy, job, index, descend, stop) if job.recipe.snap else descend(job, index)
        on_run()
        return *result, time.perf_counter() - began

    with ThreadPoolExecutor(threads or cores()) as pool:
        pending = [[pool.submit(run, job, index) for index in range(len(job.seeds))] for job in jobs]
        try:
            for number, (job, futures) in enumerate(zip(jobs, pending, strict=True)):
                curves, weights, status, seconds = zip(*[future.result() for future in futures], strict=True)
                errors = np.stack(curves)
                yield (
                    number,
                    Runs(
                        seeds=np.asarray(job.seeds, np.int64),
                        steps=job.recipe.steps,
                        validation=errors[:, 0],
                        test=errors[:, 1],
                        sparsity=errors[:, 2],
                        weights=np.stack(weights).astype(np.float64),
                        status=list(status),
                        messages=[""] * len(status),
                    ),
                    sum(seconds),
                )
        finally:
            stop[0] = 1
            pool.shutdown(cancel_futures=True)


def _search(
    layer: Any, kernel: Any, noisy: int, job: Job, index: int, descend: Any, stop: Any
) -> tuple[NDArray[np.float64], NDArray[np.float64], str]:
    """Train one run from one start after the other until a solution is verified."""
    search, solver = Search(layer, job, index), job.recipe.solver
    plain = job.recipe.replace(snap=None, restarts=None, solver=None)
    curves = search.curves
    low, high = (end.numpy() for end in box_of(layer))
    while not search.done and not stop[0]:
        p, loss = search.start, search.loss
        if solver:
            sample, logarithmic = search.sample(solver.rows), isinstance(loss, LogMagnitude)
            problem = Problem(kernel, solver, *sample, (low, high), logarithmic=logarithmic, noisy=noisy)
            state = np.array([solver.damping])
            for _ in range(-(-solver.iterations // solver.every)):
                ended = problem.steps(p, state)
                if search.offer(p) or ended:
                    break
        else:
            alone = replace(job.only(index), recipe=plain.replace(loss=loss), starts=p[None, None])
            curves, p, _ = descend(alone, 0)
            search.offer(p)
        search.close(np.asarray(p, np.float64))
    if not (job.recipe.solver or job.recipe.restarts):
        return np.concatenate([curves, search.curves[:, -1:]], 1), search.weights, "ok"
    return search.curves, search.weights, "ok" if np.isfinite(search.weights).all() else "diverged"


def compile_kernel(layer: Any, precision: str = "float32", solver: bool = False) -> float:
    """Compile the loop (or the solver) for a layer's kernel, or load it from the cache, and give the seconds it took."""
    began = time.perf_counter()
    recipe = Recipe(iterations=0, batch=2, evaluation_rows=2)
    if solver:
        recipe = recipe.replace(solver=LevenbergMarquardt(rows=2, iterations=1, every=1), snap=Snap(rows=2))
    parameters = sum(p.numel() for p in layer.parameters())
    spans, starts = np.array([[[0, 1], [0, 1]]]), np.zeros((1, 1, parameters))
    job = Job(recipe, "identity", layer.in_features, "U[1,2)", "U[1,2)", [0], spans, starts)
    list(train(layer, [job], threads=1, precision=precision))
    return time.perf_counter() - began
