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
    if not layered and not _one_layer_does(operation, task.spans(inputs, 0, data, operation), inputs):
        raise ValueError(
            f"one layer of {name} cannot express {operation} as {task.name} asks it, which needs two; use {_enough(operation)}"
        )


def _one_layer_does(operation: str, spans: Sequence[tuple[int, int]], inputs: int) -> bool:
    """Whether one sum with weights in [-1, 1], or one product, of the inputs gives the operation of its operands."""
    record, steps = operation_of(operation), operation.split("-")
    if record.coefficients or set(steps) <= {"add", "sub"}:
        places = np.arange(inputs)
        operands = np.stack([(start <= places) & (places < stop) for start, stop in spans]).astype(float)
        return bool(np.abs(record.truth(operands)).max() <= 1)
    if operation in TWO_STEPS:
        return set(steps) <= {"mul", "div"}
    return all(stop - start == 1 for start, stop in spans)


def _enough(operation: str) -> str:
    """Two layers that can."""
    product = "real-npu" if {"div", "reciprocal", "sqrt"} & set(operation.split("-")) else "nmu"
    steps = operation.split("-") if operation in TWO_STEPS else ("add", operation)
    return "+".join("nau" if step in ("add", "sub", "identity") else product for step in steps)
