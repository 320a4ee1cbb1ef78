"""The data of runs, for both engines: training batches, evaluation sets and targets, from the counter-based stream."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numba import njit

from nalm.native import SAFE
from nalm.operations import ARITHMETIC, COMPARISONS, LOGIC, TWO_STEPS, number_of
from nalm.sampling import TEST, VALIDATION, fill_normal, fill_rows, fill_uniform, parse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from nalm.specs import Recipe

__all__ = ["FIRST_OF_TRUTHS", "Job", "evaluation_inputs", "evaluation_set", "fill_batches", "fill_targets", "targets"]

VALIDATION_SEED, TEST_SEED = 43_953_907, 8_689_336
"""All runs of a cell share these evaluation inputs, as in the published code."""

ADD, SUB, MUL, DIV, RECIPROCAL, SQUARE, SQRT, IDENTITY = map(number_of, ARITHMETIC)
AND, OR, NOT, NAND, NOR, XOR, IMPLIES, EQUIVALENT, MAJORITY = map(number_of, LOGIC)
LT, LE, GT, GE, EQ, NE = map(number_of, COMPARISONS)
FIRST_OF_TWO_STEPS, FIRST_OF_TRUTHS, FIRST_OF_COMPARISONS = (number_of(family[0]) for family in (TWO_STEPS, LOGIC, COMPARISONS))


@dataclass(frozen=True)
class Job:
    """The runs of one cell: data, and for each seed the inputs that make the operands and initial parameters."""

    recipe: Recipe
    operation: str
    inputs: int
    interpolation: str
    extrapolation: str
    seeds: Sequence[int]
    spans: NDArray[np.int64]
    """First and last-plus-one input of each operand, shape (runs, operands, 2)."""
    starts: NDArray[Any]
    """Initial parameters, shape (runs, attempts, parameters); later attempts are for re-initialisation."""

    def __post_init__(self) -> None:
        """Refuse, before anything is compiled, what compiled code could not compute or would read beyond the inputs for."""
        number_of(self.operation)
        first, end = self.spans[..., 0], self.spans[..., 1]
        if not ((first >= 0) & (first < end) & (end <= self.inputs)).all():
            raise ValueError(f"operands must be made of the inputs 0 to {self.inputs - 1}, got {self.spans.tolist()}")

    def only(self, index: int) -> Job:
        """The job of one of the runs."""
        part = slice(index, index + 1)
        return replace(self, seeds=self.seeds[part], spans=self.spans[part], starts=self.starts[part])


@njit(**SAFE)
def _add(a: Any, b: Any, out: Any) -> None:
    for k in range(out.size):
        out[k] = a[k] + b[k]


@njit(**SAFE)
def _subtract(a: Any, b: Any, out: Any) -> None:
    for k in range(out.size):
        out[k] = a[k] - b[k]


@njit(**SAFE)
def _multiply(a: Any, b: Any, out: Any) -> None:
    for k in range(out.size):
        out[k] = a[k] * b[k]


@njit(**SAFE)
def _divide(a: Any, b: Any, out: Any) -> None:
    for k in range(out.size):
        out[k] = a[k] / b[k]


@njit(**SAFE)
def _invert(a: Any, out: Any) -> None:
    one = out.dtype.type(1)
    for k in range(out.size):
        out[k] = one / a[k]


@njit(**SAFE)
def _root(a: Any, out: Any) -> None:
    for k in range(out.size):
        out[k] = np.sqrt(a[k])


@njit(**SAFE)
def _copy(a: Any, out: Any) -> None:
    for k in range(out.size):
        out[k] = a[k]


@njit(**SAFE)
def _accumulate(a: Any, out: Any) -> None:
    for k in range(out.size):
        out[k] += a[k]


@njit(**SAFE)
def _scale(a: Any, out: Any) -> None:
    for k in range(out.size):
        out[k] *= a[k]


@njit(**SAFE)
def _accumulate_four(a: Any, b: Any, c: Any, d: Any, out: Any) -> None:
    for k in range(out.size):
        out[k] += (a[k] + b[k]) + (c[k] + d[k])


@njit(**SAFE)
def _sum_rows(x: Any, start: Any, stop: Any, out: Any) -> None:
    _copy(x[start], out)
    first = start + 1 + (stop - start - 1) % 4
    for i in range(start + 1, first):
        _accumulate(x[i], out)
    for i in range(first, stop, 4):
        _accumulate_four(x[i], x[i + 1], x[i + 2], x[i + 3], out)


@njit(**SAFE)
def _of_two(operation: Any, a: Any, b: Any, out: Any) -> None:
    if operation == ADD:
        _add(a, b, out)
    elif operation == SUB:
        _subtract(a, b, out)
    elif operation == MUL:
        _multiply(a, b, out)
    elif operation == DIV:
        _divide(a, b, out)
    elif operation == RECIPROCAL:
        _invert(a, out)
    elif operation == SQUARE:
        _multiply(a, a, out)
    elif operation == SQRT:
        _root(a, out)
    elif operation == IDENTITY:
        _copy(a, out)
    else:
        raise ValueError("no operation has this number")


@njit(**SAFE)
def _negate(out: Any) -> None:
    for k in range(out.size):
        out[k] = -out[k]


@njit(**SAFE)
def _cumulate(step: Any, a: Any, out: Any) -> None:
    """Sum, minus the sum, product, or one over the product of `a` and `out`, in `out`."""
    if step < 2:
        _accumulate(a, out)
        if step == 1:
            _negate(out)
    else:
        _scale(a, out)
        if step == 3:
            _invert(out, out)


@njit(**SAFE)
def _rule(function: Any, x: Any, spans: Any, out: Any) -> None:
    """A Boolean function of the operands; inputs above a half are true."""
    one, zero, count = out.dtype.type(1), out.dtype.type(0), spans.shape[0]
    for b in range(out.size):
        true = 0
        for j in range(count):
            true += 1 if x[spans[j, 0], b] > 0.5 else 0
        if function == AND:
            holds = true == count
        elif function == OR:
            holds = true > 0
        elif function in (NOT, NOR):
            holds = true == 0
        elif function == NAND:
            holds = true < count
        elif function == XOR:
            holds = true % 2 == 1
        elif function == IMPLIES:
            holds = x[spans[0, 0], b] <= 0.5 or true == count
        elif function == EQUIVALENT:
            holds = true == 0 or true == count
        elif function == MAJORITY:
            holds = 2 * true > count
        else:
            raise ValueError("no rule has this number")
        out[b] = one if holds else zero


@njit(**SAFE)
def _compare(comparison: Any, a: Any, c: Any, out: Any) -> None:
    """Whether a comparison of a and c holds."""
    one, zero = out.dtype.type(1), out.dtype.type(0)
    for b in range(out.size):
        if comparison == LT:
            holds = a[b] < c[b]
        elif comparison == LE:
            holds = a[b] <= c[b]
        elif comparison == GT:
            holds = a[b] > c[b]
        elif comparison == GE:
            holds = a[b] >= c[b]
        elif comparison == EQ:
            holds = a[b] == c[b]
        elif comparison == NE:
            holds = a[b] != c[b]
        else:
            raise ValueError("no comparison has this number")
        out[b] = one if holds else zero


@njit(**SAFE)
def targets(operation: Any, x: Any, spans: Any, sums: Any, out: Any) -> None:
    """The true results of an operation (its `number_of`) on a batch x (inputs, rows), as its `Operation.truth` has them.

    Each operand is the sum of a span of inputs; `sums` (operands, rows) is scratch for them.
    """
    if operation >= FIRST_OF_COMPARISONS:
        _compare(operation, x[spans[0, 0]], x[spans[1, 0]], out)
        return
    if operation >= FIRST_OF_TRUTHS:
        _rule(operation, x, spans, out)
        return
    operands, longest = spans.shape[0], 0
    for j in range(operands):
        longest = max(longest, spans[j, 1] - spans[j, 0])
    if longest == 1 and operands == 2:
        _of_two(operation, x[spans[0, 0]], x[spans[1, 0]], out)
        return
    for j in range(operands):
        _sum_rows(x, spans[j, 0], spans[j, 1], sums[j])
    if operation >= FIRST_OF_TWO_STEPS:
        _copy(sums[0], out)
        _cumulate((operation - FIRST_OF_TWO_STEPS) // 4, sums[1], out)
        _cumulate((operation - FIRST_OF_TWO_STEPS) % 4, sums[2], out)
        return
    _of_two(operation, sums[0], sums[1], out)
    for j in range(2, operands):
        if operation == ADD:
            _accumulate(sums[j], out)
        elif operation == MUL:
            _scale(sums[j], out)


@njit(nogil=True, error_model="numpy", cache=True)
def fill_batches(
    codes: Any, seeds: Any, purpose: Any, step: Any, operations: Any, spans: Any, x: Any, sums: Any, target: Any
) -> None:
    """Batches x (runs, inputs, rows) and targets (runs, rows) of one step of many runs."""
    for r in range(x.shape[0]):
        fill_rows(codes[r], seeds[r], purpose, step, x[r])
        targets(operations[r], x[r], spans[r], sums, target[r])


@njit(nogil=True, error_model="numpy", cache=True)
def fill_targets(operation: Any, x: Any, spans: Any, sums: Any, out: Any) -> None:
    """Targets (runs, rows) of inputs (inputs, rows) that many runs share."""
    for r in range(out.shape[0]):
        targets(operation, x, spans[r], sums, out[r])


@njit(nogil=True, cache=True)
def fill_noises(seeds: Any, purpose: Any, step: Any, normal: Any, out: Any) -> None:
    """Noise (runs, numbers) of one step of many runs: standard normal, or uniform in (0, 1)."""
    for r in range(out.shape[0]):
        if normal:
            fill_normal(seeds[r], purpose, step, out[r])
        else:
            fill_uniform(seeds[r], purpose, step, out[r])


@lru_cache(maxsize=64)
def evaluation_inputs(distribution: str, inputs: int, rows: int, purpose: int) -> NDArray[np.float64]:
    """Validation or test inputs, shape (inputs, rows), before they are rounded: the same for every run."""
    out = np.empty((inputs, rows))
    seed = VALIDATION_SEED if purpose == VALIDATION else TEST_SEED
    fill_rows(parse(distribution).encode(inputs), seed, purpose, 0, out)
    return out


def evaluation_set(job: Job, spans: NDArray[np.int64], purpose: int, dtype: Any) -> tuple[NDArray[Any], NDArray[Any]]:
    """Inputs (inputs, rows) and targets (runs, rows) of validation or test, with spans of shape (runs, operands, 2).

    As in the published code both are computed in double precision and rounded once. Training batches are computed in the
    precision of the run, which is quicker.
    """
    distribution = job.extrapolation if purpose == TEST else job.interpolation
    x = evaluation_inputs(distribution, job.inputs, job.recipe.evaluation_rows, purpose)
    target, sums = np.empty((len(spans), x.shape[1])), np.empty((spans.shape[1], x.shape[1]))
    fill_targets(number_of(job.operation), x, spans, sums, target)
    return x.astype(dtype), target.astype(dtype)
