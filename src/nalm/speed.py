"""How fast the engines are, side by side in one run: a plain PyTorch loop, the torch engine, the fused engine."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from nalm import training
from nalm.engine import fused, reference
from nalm.engine.data import Job
from nalm.layers import penalty, project_
from nalm.models import model_of
from nalm.registry import info, modules
from nalm.tasks import NINE_RANGES, PAIRED, task_of
from nalm.training import LinearRamp

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from nalm.specs import Recipe
    from nalm.tasks import Task

__all__ = ["fused_names", "measure", "plain_loop"]

RUNS_A_RANGE = 25
REPEATS = 3
STACKS = ("nau+nmu",)
"""Two layers that are measured with a hundred inputs."""


def fused_names() -> list[str]:
    """Every module of real numbers that the fused engine has a kernel for, and a stack."""
    real = [name for name, record in modules().items() if record.domain not in ("boolean", "integer")]
    return [*(name for name in real if info(name).fused), *STACKS]


def _operation(name: str) -> str:
    return "mul" if "mul" in info(name.rpartition("+")[2]).operations else "add"


def _inputs(name: str) -> int:
    return 100 if "+" in name else 2


def _task(name: str) -> Task:
    return task_of("arithmetic-dataset" if "+" in name else "single-module")


def plain_loop(name: str, operation: str, recipe: Recipe, seconds: float = 0.5) -> float:
    """Seconds a step of an ordinary training loop for one model takes: bare steps of the published recipe, no logging."""
    inputs = _inputs(name)
    layer: Any = model_of(name).build(inputs)
    combine = torch.mul if operation == "mul" else torch.add
    (a, b), (c, d) = _task(name).spans(inputs, 0, {})
    optimiser = torch.optim.Adam(layer.parameters(), recipe.learning_rate)
    ramp = LinearRamp(recipe.penalty, 0, 1)
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
            x = torch.rand(recipe.batch, inputs) + 1
            target = combine(x[:, a:b].sum(1, keepdim=True), x[:, c:d].sum(1, keepdim=True))
            loss = (layer(x) - target).square().mean()
            if recipe.penalty:
                loss = loss + ramp(step) * penalty(layer)
            if recipe.norm:
                loss = loss + recipe.norm_start * training.parameter_norm(layer, recipe.norm)
            optimiser.zero_grad()
            loss.backward()
            for clip in clips:
                clip(layer.parameters())
            optimiser.step()
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
        model, inputs, task = model_of(name), _inputs(name), _task(name)
        operation = _operation(name)
        recipe = model.recipe_for(task.name, operation, inputs)
        plain = min(plain_loop(name, operation, recipe) for _ in range(REPEATS))
        module = model.build(inputs)
        seeds = list(range(RUNS_A_RANGE))
        starts = np.stack([model.starts(module, inputs, seed, 16 if recipe.reinitialise else 1) for seed in seeds])

        spans = np.array([task.spans(inputs, seed, {}) for seed in seeds])
        job = Job(recipe, operation, inputs, "", "", seeds, spans, starts)
        compile_seconds = fused.compile_kernel(module)
        fast = min(_fused_step(module, _shorter(10_000 if inputs == 2 else 1_000, 1000, job)) for _ in range(REPEATS))
        runs = len(NINE_RANGES) * RUNS_A_RANGE
        stacked = _stacked_step(module, _shorter(600, 10**9, job)) / runs
        rows.append(
            {
                "module": name,
                "operation": operation,
                "inputs": inputs,
                "plain_us": plain * 1e6,
                "torch_us": stacked * 1e6,
                "fused_us": fast * 1e6,
                "torch_ratio": plain / stacked,
                "fused_ratio": plain / fast,
                "plain_per_second": 1 / plain,
                "torch_per_second": 1 / stacked,
                "fused_per_second": 1 / fast,
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


def _shorter(iterations: int, log_interval: int, template: Job) -> list[Job]:
    """The same runs on all nine ranges, with fewer iterations."""
    shorter = template.recipe.replace(iterations=iterations, log_interval=log_interval)
    return [replace(template, recipe=shorter, interpolation=r, extrapolation=PAIRED[r]) for r in NINE_RANGES]


def _stacked_step(module: Any, jobs: Sequence[Job]) -> float:
    """Seconds that the compiled torch engine takes for a step of the whole stack, the first hundred left out."""
    marks: list[float] = []
    list(reference.train(module, jobs, compiled=True, on_share=lambda share: marks.append(time.perf_counter())))
    return (marks[-1] - marks[100]) / (len(marks) - 101)
