"""What an experiment will train, and roughly how long that takes on this machine."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from nalm import tasks
from nalm.engine.kernels import Program
from nalm.engine.kernels.program import POWERS, SIGNED
from nalm.engine.lookup import kernel_of
from nalm.models import model_of
from nalm.native import cores
from nalm.runner import cell_of, changed_data, engine_for
from nalm.variants import VARIANTS, variant

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nalm.experiments import Condition, Experiment
    from nalm.models import Model
    from nalm.specs import Cell, Recipe

__all__ = ["estimate", "questions"]


def _scaled(recipe: Recipe, scale: float) -> Recipe:
    """A recipe with all that is counted in steps made smaller, and at least fifty evaluations."""
    if scale == 1:
        return recipe
    names = ("iterations", "penalty_start", "penalty_end", "loss_switch", "norm_every")
    smaller = {name: round(getattr(recipe, name) * scale) for name in names}
    smaller["norm_every"] = max(1, smaller["norm_every"])
    smaller["log_interval"] = min(recipe.log_interval, max(1, smaller["iterations"] // 50))
    return recipe.replace(**smaller)


def questions(condition: Condition) -> list[tuple[Cell, Model]]:
    """The cells of a condition, one a range."""
    task = tasks.task_of(condition.task)
    changed = changed_data(task, condition.data)
    hidden = {**task.data, **changed}.get("hidden", 2)
    changes = dict(condition.recipe)
    named = changes.pop("named", "published")
    asked = []
    for text in condition.ranges:
        ranges = tasks.read_range(text)
        if condition.module in VARIANTS:
            model = model_of(variant(condition.module, ranges[0], condition.operation))
            model = replace(model, name=condition.module, label=condition.label, options=())
            recipe = model_of("nmu").recipe_for(task.name, condition.operation, condition.inputs)
        else:
            model = model_of(condition.module, condition.options, hidden=hidden, start=changed.get("start", ""))
            recipe = model.recipe_for(task.name, condition.operation, condition.inputs, named)
        recipe = _scaled(recipe.replace(**changes), condition.scale)
        cell = cell_of(model, task.name, condition.operation, condition.inputs, ranges, recipe, changed)
        asked.append((cell, model))
    return asked


COSTS = {
    "relu-mlp": (0.3, 0.05),
    "relu6-mlp": (0.3, 0.05),
    "nac-add": (0.25, 0.05),
    "linear": (0.2, 0.045),
    "nau": (0.2, 0.045),
    "nmu": (0.22, 0.06),
    "nac-mul": (0.25, 0.1),
    "nac-mul-sigmoid": (0.25, 0.1),
    "nac-mul-nmu": (0.25, 0.1),
    "nalu": (0.45, 0.12),
    "gnalu": (0.45, 0.12),
    "nalu-separate": (0.5, 0.15),
    "gated-nau-nmu": (0.4, 0.12),
    "inalu": (0.6, 0.17),
    "inac": (0.25, 0.05),
    "imnac": (0.5, 0.15),
    "quadratic": (0.3, 0.1),
    "snmu": (0.3, 0.15),
    "snmu-batch": (0.35, 0.17),
    "stgnmu": (0.3, 0.08),
    "naive-npu": (0.7, 0.17),
    "npu": (0.7, 0.17),
    "npu-mod": (0.7, 0.17),
    "real-npu": (0.5, 0.17),
    "real-npu-mod": (0.5, 0.17),
    "nru": (0.3, 0.2),
    "nru-sep-sign": (0.3, 0.2),
    "nmru": (0.4, 0.2),
    "nmru-no-sign": (0.25, 0.13),
    "nmru-gated": (0.4, 0.2),
    "nlrl": (1.7, 0.25),
    "nsr": (0.3, 1.15),
    "sum-or-product": (0.4, 0.1),
}
"""Microseconds that a step of one run takes one core, roughly: so many, and so many an input."""
TOGETHER, TWO_LAYERS = 0.6, 1.75
"""Share of its speed that a core keeps when all work; factor on the sum of the two layers of a stack."""
USUAL = (0.4, 0.15)
"""The same for modules that are not listed: yours, above all."""
SOLVED_INPUT = 5e-3
"""Seconds that the solver takes for a run, for each input."""
INSTRUCTION, NETWORK_INPUT, POWER_INPUT = 0.1, 0.07, 0.35
"""Microseconds for an instruction of a network, and for each of its inputs."""
IMAGES_A_SECOND = {"isolated": 700, "colour": 900, "sequence": 2_000}
"""Images that a core trains on a second, by task, in float32."""
BFLOAT16 = 1.6
"""How much faster it is in bfloat16."""
HIDDEN_UNIT = 0.1
"""Microseconds for an input of a hidden unit of a perceptron."""
HIDDEN_STEP = 7.5e-5
"""Seconds that a step of a differential equation takes one core for each hidden unit."""
STACKED_STEP, SIMPLE_STEP, COMPILING, REFERENCE_LOOP = 1.2e-3, 8e-3, 6.0, 0.0010
"""Seconds: a step of a stack of runs of the torch engine; a step of all models of the NPU paper's simple arithmetic;
compiling a kernel; the loop below on that machine."""


@cache
def machine_factor() -> float:
    """How much slower this machine is than the one of `COSTS`, by a short loop."""
    values = np.linspace(0.1, 1, 100_000, dtype=np.float32)
    times = []
    for _ in range(5):
        began = time.perf_counter()
        for _ in range(10):
            np.exp(np.log(values))
        times.append(time.perf_counter() - began)
    return min(times) / REFERENCE_LOOP


def _network_cost(program: Program) -> float:
    """Microseconds that a step of a network takes one core, roughly, by its instructions."""
    inputs, powers = program.code[:, 2], np.isin(program.code[:, 0], (POWERS, SIGNED))
    return float(np.sum(INSTRUCTION + np.where(powers, POWER_INPUT, NETWORK_INPUT) * inputs))


def _images(settings: Mapping[str, Any], seeds: int | None) -> float:
    """Seconds that a study with images takes, roughly."""
    total = 0.0
    for one in settings["series"]:
        own = {**settings, **one}
        if own["task"] == "sequence":
            images = own["length"] * own.get("train_sequences", 55_000 // own["length"])
        else:
            images = 2 * own["train_samples"] * own["pairs"]
        speed = IMAGES_A_SECOND[own["task"]] * (BFLOAT16 if own.get("bfloat16") else 1)
        total += (seeds or own["seeds"]) * own["epochs"] * images / speed
    return total / cores() + 10.0


def estimate(experiment: Experiment, budget: str, seeds: int | None = None) -> float:
    """Seconds that an experiment will take on this machine, roughly."""
    settings = experiment.settings_for(budget)
    if experiment.kind == "images":
        return _images(settings, seeds) * machine_factor()
    if experiment.kind == "dynamics":
        runs = len(settings["series"]) * len(settings["l1"]) * (seeds or settings["runs"])
        each = settings.get("steps", 3_000) + settings.get("polish", 1_000)
        trained: float = runs * sum(settings["hidden"]) * each * HIDDEN_STEP
        return (trained / cores() + 10.0) * machine_factor()
    if experiment.kind == "exact":
        steps = int(settings.get("steps", 0)) if experiment.compute == "simple_arithmetic" else 0
        return (3.0 + SIMPLE_STEP * steps) * machine_factor()
    fast = slow = 0.0
    compiled = set()
    for condition in experiment.conditions(budget, seeds):
        task = tasks.task_of(condition.task)
        hidden = {**task.data, **condition.data}.get("hidden", 2)
        cell, model = questions(replace(condition, ranges=condition.ranges[:1]))[0]
        steps = cell.recipe.iterations
        if cell.recipe.solver:
            each = SOLVED_INPUT * cell.inputs * max(1, cell.inputs / 30)
            fast += each * condition.seeds * len(condition.ranges)
            compiled.add((condition.module, cell.inputs > 1))
            continue
        if engine_for(model, "auto") == "fused":
            names = [part.name for part in model.parts]
            first = COSTS.get(names[0], USUAL) if names else (0.0, 0.0)
            each = first[0] + first[1] * cell.inputs + 0.02 * cell.inputs
            if names[:1] in (["relu-mlp"], ["relu6-mlp"]):
                each += HIDDEN_UNIT * cell.inputs * sum(model.build(cell.inputs).hidden)  # type: ignore[arg-type]
            kernel = kernel_of(model.build(cell.inputs))
            if isinstance(kernel, Program):
                each = _network_cost(kernel)
            elif len(names) == 2:
                second = COSTS.get(names[1], USUAL)
                each = 0.025 * cell.inputs + hidden * first[1] * 0.45 * cell.inputs + second[0] + 2 * second[1] * hidden
                each *= TWO_LAYERS
            fast += each * 1e-6 * steps * condition.seeds * len(condition.ranges)
            compiled.add((condition.module, condition.inputs > 1))
        else:
            slow += STACKED_STEP * steps * (1 + condition.inputs / 50)
    return machine_factor() * (fast / (TOGETHER * cores() if cores() > 1 else 1) + slow + COMPILING * len(compiled)) + 1.0
