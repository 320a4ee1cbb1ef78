"""The papers' tasks with random numbers as inputs: which inputs make an operand, and the papers' pairs of ranges."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from nalm.checks import finite, known, of_kind, whole
from nalm.operations import ARITHMETIC, COMPARISONS, LOGIC, TRUTHS, TWO_STEPS, operation_of
from nalm.sampling import parse

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = [
    "COMPARISONS",
    "LOGIC",
    "NINE_RANGES",
    "PAIRED",
    "RANGE_SETS",
    "TASKS",
    "TRUTHS",
    "TWO_STEPS",
    "Task",
    "read_range",
    "task_of",
]


def _share(name: str, value: Any) -> float:
    number = finite(name, value, 0.0)
    if number > 1:
        raise ValueError(f"{name} is a share from 0 to 1, got {number:g}")
    return number


CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "subset": _share,
    "overlap": _share,
    "subsets": lambda name, value: whole(name, value, 2, 1_000),
    "hidden": lambda name, value: whole(name, value, 1, 10_000),
    "operands": lambda name, value: whole(name, value, 1, 1_000),
    "start": lambda name, value: known(name, value, ("", "heim")),
}
"""What each value of a task's data may be."""


@dataclass(frozen=True)
class Task:
    """How operands are made of the inputs: each is the sum of a span of neighbouring inputs."""

    name: str
    summary: str
    inputs: int
    """Number of inputs where none is given."""
    data: Mapping[str, Any] = field(default_factory=dict)
    """What can be set, with the published values: `subset` (share of the inputs in a span), `overlap` (share of a span in
    the next one), `subsets` (number of spans), `hidden` (outputs of the layers of a stack but the last), `operands` (of a
    Boolean function)."""
    operations: tuple[str, ...] = ARITHMETIC
    """What can be learned."""
    ranges: tuple[str, ...] = ()
    """Training distributions where none are given; none for the papers' nine."""

    def values(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """The task's data with some values changed; ValueError for what it does not have or cannot be."""
        there = {**self.data, "start": ""}
        for name, value in data.items():
            if name not in there:
                raise ValueError(f"task {self.name} has no value {name!r}; it has: {', '.join(there)}")
            there[name] = CHECKS[name](name, value)
        return there

    def distribution(self, text: str, operation: str) -> str:
        """What inputs are drawn from for a range: where numbers are compared, neighbours are equal in a share of the rows."""
        if self.name != "comparison" or "~" in text:
            return text
        return f"{text}~{0.5 if operation in ('eq', 'ne') else 0.25}"

    def spans(self, inputs: int, seed: int, data: Mapping[str, Any], operation: str = "") -> list[tuple[int, int]]:
        """First and last-plus-one input of each operand, drawn per seed with the generator of the published code."""
        if self.name in ("logic", "comparison"):
            count = operation_of(operation).operands or self.values(data).get("operands", 2)
            if not 1 <= count <= inputs:
                raise ValueError(f"{operation} of {count} operands needs at least {max(count, 1)} inputs, got {inputs}")
            start = _offset(seed, inputs - count)
            return [(start + k, start + k + 1) for k in range(count)]
        if self.name == "single-module":
            start = _offset(seed, inputs - 2) if inputs > 2 else 0
            return [(start, start + 1), (min(start + 1, inputs - 1), min(start + 2, inputs))]
        if self.name == "function4":
            if inputs < 4:
                raise ValueError(f"function4 needs at least 4 inputs, got {inputs}")
            return [(0, 4), (0, 2)]
        if self.name == "two-step":
            if inputs < 3:
                raise ValueError(f"two-step needs at least 3 inputs, got {inputs}")
            return [(0, 1), (1, 2), (2, 3)]
        values = self.values(data)
        size = _whole(values["subset"] * inputs, self.name)
        shared = _whole(values["overlap"] * size, self.name)
        starts = [k * (size - shared) for k in range(values["subsets"])]
        used = starts[-1] + size
        if size < 1 or used > inputs:
            raise ValueError(
                f"{self.name}: {values['subsets']} spans of {size} inputs that share {shared} need {used} inputs, got {inputs}"
            )
        start = 0 if self.name == "large-scale" else _offset(seed, inputs - used)
        return [(start + first, start + first + size) for first in starts]


def _whole(value: float, name: str) -> int:
    """Length of a span: rounded down, in the NPU paper's task to the nearest."""
    return round(value) if name == "large-scale" else math.floor(value + 1e-9)


def _offset(seed: int, largest: int) -> int:
    return int(np.random.RandomState(seed).randint(0, largest + 1))


TASKS = {
    task.name: task
    for task in (
        Task("single-module", "one module learns one operation of two inputs, among any number of irrelevant ones", 2),
        Task(
            "arithmetic-dataset",
            "two layers learn an operation of sums of overlapping spans of many inputs",
            100,
            {"subset": 0.25, "overlap": 0.5, "subsets": 2, "hidden": 2},
        ),
        Task("function4", "two layers learn an operation of x1 + x2 + x3 + x4 and x1 + x2", 4, {"hidden": 2}),
        Task(
            "large-scale",
            "the NPU paper's variant: fixed spans, a hundred hidden units",
            100,
            {"subset": 0.5, "overlap": 0.25, "subsets": 2, "hidden": 100},
        ),
        Task(
            "two-step",
            "a network learns op2(op1(a, b), c), such as (a + b) c, with an irrelevant fourth input",
            4,
            {"hidden": 5},
            TWO_STEPS,
            ("U[1,2)",),
        ),
        Task(
            "logic",
            "a module learns a Boolean function of two inputs, or of as many as asked, among irrelevant ones",
            6,
            {"operands": 2, "hidden": 8},
            LOGIC,
            ("Z[0,2)",),
        ),
        Task("comparison", "a module learns to compare two inputs", 2, {"hidden": 2}, COMPARISONS, ("Z[-10,10)",)),
    )
}
"""Tasks by name."""


def task_of(name: str) -> Task:
    """The task of a name; ValueError with those that there are."""
    if name not in TASKS:
        raise ValueError(f"unknown task {name!r}; there are: {', '.join(TASKS)}")
    return TASKS[name]


NINE_RANGES = (
    "U[-20,-10)",
    "U[-2,-1)",
    "U[-1.2,-1.1)",
    "U[-0.2,-0.1)",
    "U[-2,2)",
    "U[0.1,0.2)",
    "U[1,2)",
    "U[1.1,1.2)",
    "U[10,20)",
)
"""Training ranges of the benchmark."""

PAIRED = {
    "U[-20,-10)": "U[-40,-20)",
    "U[-2,-1)": "U[-6,-2)",
    "U[-1.2,-1.1)": "U[-6.1,-1.2)",
    "U[-0.2,-0.1)": "U[-2,-0.2)",
    "U[-2,2)": "U[-6,-2)|U[2,6)",
    "U[0,1)": "U[1,5)",
    "U[0.1,0.2)": "U[0.2,2)",
    "U[1,2)": "U[2,6)",
    "U[1.1,1.2)": "U[1.2,6)",
    "U[10,20)": "U[20,40)",
    "U[-2,-0.1)&U[0.1,2)": "U[-6,-2)&U[2,6)",
    "U[-2,-1)&U[1,2)": "U[-6,-2)&U[2,6)",
    "U[0.1,2)&U[-2,-0.1)": "U[2,6)&U[-6,-2)",
    "U[1,2)&U[-2,-1)": "U[2,6)&U[-6,-2)",
    "TN(-1,3)[-5,10)": "TN(-10,3)[-15,-5)",
    "TN(0,1)[-5,5)": "TN(10,1)[5,15)",
    "TN(1,3)[-10,5)": "TN(10,3)[5,15)",
    "B[10,100)": "B[100,1000)",
    "U[-100,100)": "U[-200,-100)|U[100,200)",
    "U[-50,50)": "U[-100,-50)|U[50,100)",
    "U[0,0.0001)": "U[0,0.0001)",
    "U[0,0.001)": "U[0,0.001)",
    "U[0,0.01)": "U[0,0.01)",
    "U[0,0.1)": "U[0,0.1)",
    "Sobol(-1,1)": "Sobol(-2,2)",
    "Z[0,2)": "Z[0,2)",
    "Z[-10,10)": "Z[-10000,10000)",
    "U[-10,10)": "U[-10000,10000)",
}
"""The test distribution that goes with each training distribution: as in the papers, or a thousand times as large."""

RANGE_SETS = {
    "nine": NINE_RANGES,
    "negative": NINE_RANGES[:4],
    "positive": NINE_RANGES[5:],
    "seven": ("U[-2,-1)", "U[-2,2)", "U[0,1)", "U[0.1,0.2)", "U[1.1,1.2)", "U[1,2)", "U[10,20)"),
    "mixed-sign": (
        "U[-2,-0.1)&U[0.1,2)",
        "U[-2,-1)&U[1,2)",
        "U[-2,2)",
        "U[0.1,2)&U[-2,-0.1)",
        "U[1,2)&U[-2,-1)",
    ),
    "truncated-normal": ("TN(-1,3)[-5,10)", "TN(0,1)[-5,5)", "TN(1,3)[-10,5)"),
    "large": ("U[-100,100)", "U[-50,50)"),
    "benford": ("B[10,100)",),
    "distributions": ("TN(-1,3)[-5,10)", "TN(0,1)[-5,5)", "TN(1,3)[-10,5)", "B[10,100)", "U[-100,100)", "U[-50,50)"),
    "near-zero": ("U[0,0.0001)", "U[0,0.001)", "U[0,0.01)", "U[0,0.1)", "U[0,1) -> U[0,1)"),
}
"""Sets of training distributions, by name."""


def read_range(text: str) -> tuple[str, str]:
    """Training and test distribution, in their normal text form, of ``A`` (paired as in the papers) or of ``A -> B``."""
    of_kind("each range", text, str, "a text")
    interpolation, arrow, extrapolation = text.partition("->")
    known = str(parse(interpolation))
    if arrow:
        return known, str(parse(extrapolation))
    if known not in PAIRED:
        raise ValueError(f'no paper pairs a test range with {known}: give one, such as "{known} -> U[2,6)"')
    return known, PAIRED[known]
