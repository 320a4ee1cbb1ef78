"""Whether modules can learn what a task asks at all, so that nobody waits for what cannot be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from nalm.operations import LOGIC, OPERATIONS, TWO_STEPS, operation_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from nalm.registry import ModuleInfo
    from nalm.tasks import Task

__all__ = ["check_learnable"]

NEEDS = {"add": "add", "sub": "add", "mul": "mul", "div": "reciprocal"}
"""What expresses a step of the two-step task."""


def check_learnable(
    name: str, parts: Sequence[ModuleInfo], task: Task, operation: str, inputs: int, data: Mapping[str, Any]
) -> None:
    """Refuse a network of registered layers that cannot express an operation of a task, and say what could.

    Ordinary networks are not judged: they do not express operations but come near. Nor are modules of one's own.
    """
    if not parts or any(part.own or part.penalty == "none" for part in parts):
        return
    rest = iter(parts)
    layers = [{one for _ in layer.split("/") for one in next(rest).operations} for layer in name.split("+") if ":" not in name]
    can = {one for part in parts for one in part.operations}
    layered = "+" in name or ":" in name
    if layered and operation in LOGIC and can & set(LOGIC):
        return  # every rule is a rule of rules
    needed = {NEEDS[step] for step in operation.split("-")} if operation in TWO_STEPS else {operation}
    if layered and operation == "square":
        needed = {"mul"}
    if not needed <= can:
        listed = ", ".join(one for one in OPERATIONS if one in can)
        hint = f"use {_enough(operation)}" if layered else f"it can express: {listed}"
        raise ValueError(f"{name} cannot express {operation}; {hint}")
    if not _express(layers or [can, can], operation, task.spans(inputs, 0, data, operation), inputs):
        one = name if layered else f"one layer of {name}"
        raise ValueError(f"{one} cannot express {operation} as {task.name} asks it; use {_enough(operation)}")


def _express(layers: Sequence[set[str]], operation: str, spans: Sequence[tuple[int, int]], inputs: int) -> bool:
    """Whether layers, by what each can express, give the operation of its operands; weights of sums are in [-1, 1]."""
    record, wide = operation_of(operation), any(stop - start > 1 for start, stop in spans)
    if record.coefficients:
        places = np.arange(inputs)
        operands = np.stack([(start <= places) & (places < stop) for start, stop in spans]).astype(float)
        needed = 1 + bool(np.abs(record.truth(operands)).max() > 1)
        return not wide or sum("add" in layer for layer in layers) >= needed
    last = "mul" if operation == "square" and len(layers) > 1 else operation
    steps = [NEEDS[step] for step in operation.split("-")] if operation in TWO_STEPS else [*["add"] * wide, last]
    place = 0
    for step, before in zip(steps, steps[:1] + steps, strict=False):
        place += (step == "add") != (before == "add")  # a sum and a product do not share a layer
        place = next((k for k in range(place, len(layers)) if step in layers[k]), len(layers))
    return place < len(layers)


def _enough(operation: str) -> str:
    """Two layers that can."""
    product = "real-npu" if {"div", "reciprocal", "sqrt"} & set(operation.split("-")) else "nmu"
    steps = operation.split("-") if operation in TWO_STEPS else ("add", operation)
    return "+".join("nau" if step in ("add", "sub", "identity") else product for step in steps)
