"""How fast the engines are, side by side in one run: a plain PyTorch loop, the torch engine, the fused engine."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from nalm import training
from nalm.engine import fused, reference
from nalm.engine.data import Job
from nalm.layers import penalty, project_, units
from nalm.models import model_of
from nalm.registry import info, modules
from nalm.tasks import NINE_RANGES, PAIRED, task_of
from nalm.training import LinearRamp

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from nalm.specs import Recipe
    from nalm.tasks import Task

__all__ = ["fused_names", "measure", "plain_loop"]

RUNS_A_RANGE = 25
REPEATS = 3
STACKS = ("nau+nmu",)
"""Two layers that are measured with a hundred inputs."""


class _Case(NamedTuple):
    """What a module is timed on."""

    task: Task
    operation: str
    target: Callable[[Tensor, Tensor], Tensor]
    ranges: tuple[str, ...] = NINE_RANGES
    whole: tuple[int, int] | None = None
    """Range of the whole numbers that the plain loop draws; by default it draws real ones."""
    inputs: int = 2


def _less(a: Tensor, b: Tensor) -> Tensor:
    return (a < b).float()


def _case(name: str) -> _Case:
    single = _Case(task_of("single-module"), "mul", torch.mul)
    if ":" in name:
        return single
    record = info(name.rpartition("+")[2])
    if record.domain == "boolean":
        return _Case(task_of("logic"), "and", torch.mul, ("Z[0,2)",) * len(NINE_RANGES), (0, 2))
    if record.domain == "integer":
        return _Case(task_of("comparison"), "lt", _less, ("Z[-10,10)",) * len(NINE_RANGES), (-10, 10))
    if "mul" not in record.operations and (record.operations or not record.own):
        single = single._replace(operation="add", target=torch.add)
    return single._replace(task=task_of("arithmetic-dataset"), inputs=100) if "+" in name else single


def fused_names() -> list[str]:
    """Every module that the fused engine has a kernel for, and a stack."""
    return [*(name for name, record in modules().items() if record.fused), *STACKS]


def plain_loop(name: str, recipe: Recipe, seconds: float = 0.5) -> float:
    """Seconds a step of an ordinary training loop for one model takes: bare steps of the published recipe, no logging."""
    case = _case(name)
    layer: Any = model_of(name).build(case.inputs)
    (a, b), (c, d) = case.task.spans(case.inputs, 0, {}, case.operation)
    optimiser = torch.optim.Adam(layer.parameters(), recipe.learning_rate)
    ramp = LinearRamp(recipe.penalty, 0, 1)
    projected = bool(list(units(layer)))
    clips: list[Callable[..., None]] = []
    clips += [training.ClipValue(recipe.clip_value)] if recipe.clip_value else []
    clips += [training.ClipNorm(recipe.clip_norm)] if recipe.clip_norm else []
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        began, step, warm = time.perf_counter(), 0, 200
        while step <= warm or time.perf_counter() - began < seconds:
            if step == warm:
                began = time.perf_counter()
            shape = (recipe.batch, case.inputs)
            x = torch.randint(*case.whole, shape).float() if case.whole else torch.rand(shape) + 1
            target = case.target(x[:, a:b].sum(1, keepdim=True), x[:, c:d].sum(1, keepdim=True))
            output = layer(x) if case.operation != "lt" else layer(x)[..., 0]
            loss = (output - target).square().mean()
            if recipe.penalty:
                loss = loss + ramp(step) * penalty(layer)
            if recipe.norm:
                loss = loss + recipe.norm_start * training.parameter_norm(layer, recipe.norm)
            optimiser.zero_grad()
            loss.backward()
            for clip in clips:
                clip(layer.parameters())
            optimiser.step()
            if projected:
                project_(layer)
            step += 1
        return (time.perf_counter() - began) / (step - warm)
    finally:
        torch.set_num_threads(threads)


def measure(names: Sequence[str]) -> list[dict[str, Any]]:
    """Measure modules one after the other; a row each with microseconds a step and ratios to the plain loop.

    The stacked engines train nine ranges with 25 seeds each, 225 runs; their time is per step of one run, on all cores. The
    fused engine is timed as it is used, with an evaluation every 1,000 steps; the other two take bare steps. Plain loop and
    fused engine are each timed three times and the best counts, since other work on a machine only ever slows. Compilation
    is shown apart.
    """
    rows = []
    for name in names:
        model, case = model_of(name), _case(name)
        recipe = model.recipe_for(case.task.name, case.operation, case.inputs)
        plain = min(plain_loop(name, recipe) for _ in range(REPEATS))
        module = model.build(case.inputs)
        seeds = list(range(RUNS_A_RANGE))
        starts = np.stack([model.starts(module, case.inputs, seed, 16 if recipe.reinitialise else 1) for seed in seeds])
        spans = np.array([case.task.spans(case.inputs, seed, {}, case.operation) for seed in seeds])
        job = Job(recipe, case.operation, case.inputs, "", "", seeds, spans, starts)
        reason = "" if model.registered else reference.obstacle(module, job)
        if reason:
            raise ValueError(f"runs of {name} cannot be stacked ({reason}), so there is no engine to measure")
        compile_seconds, fast = 0.0, None
        if model.fused:
            compile_seconds = fused.compile_kernel(module)
            steps = 10_000 if case.inputs == 2 else 1_000
            fast = min(_fused_step(module, _shorter(steps, 1000, job, case.ranges)) for _ in range(REPEATS))
        runs = len(case.ranges) * RUNS_A_RANGE
        stacked = _stacked_step(module, _shorter(600, 10**9, job, case.ranges)) / runs
        rows.append(
            {
                "module": name,
                "operation": case.operation,
                "inputs": case.inputs,
                "plain_us": plain * 1e6,
                "torch_us": stacked * 1e6,
                "fused_us": fast and fast * 1e6,
                "torch_ratio": plain / stacked,
                "fused_ratio": fast and plain / fast,
                "plain_per_second": 1 / plain,
                "torch_per_second": 1 / stacked,
                "fused_per_second": fast and 1 / fast,
                "compile_seconds": compile_seconds,
                "cores": os.cpu_count(),
            }
        )
    return rows


def _fused_step(module: Any, jobs: Sequence[Job]) -> float:
    """Seconds that the fused engine takes for a step of one run, evaluation included."""
    began = time.perf_counter()
    steps = sum(len(runs) * (jobs[number].recipe.iterations + 1) for number, runs, _ in fused.train(module, jobs))
    return (time.perf_counter() - began) / steps


def _shorter(iterations: int, log_interval: int, template: Job, ranges: Sequence[str]) -> list[Job]:
    """The same runs on all ranges, with fewer iterations."""
    shorter = template.recipe.replace(iterations=iterations, log_interval=log_interval)
    return [replace(template, recipe=shorter, interpolation=r, extrapolation=PAIRED[r]) for r in ranges]


def _stacked_step(module: Any, jobs: Sequence[Job]) -> float:
    """Seconds that the compiled torch engine takes for a step of the whole stack, the first hundred left out."""
    marks: list[float] = []
    list(reference.train(module, jobs, compiled=True, on_share=lambda share: marks.append(time.perf_counter())))
    return (marks[-1] - marks[100]) / (len(marks) - 101)
