"""What raw runs say: thresholds, which runs solved the task and when, and the papers' statistics with their intervals."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
from scipy import optimize, special

from nalm.operations import ARITHMETIC, TRUTHS, operation_of
from nalm.sampling import parse
from nalm.tasks import task_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import ArrayLike, NDArray

    from nalm.specs import Cell, Runs

__all__ = [
    "FixedThreshold",
    "GoldThreshold",
    "Interval",
    "Outcomes",
    "SimulatedThreshold",
    "Threshold",
    "beta_interval",
    "describe_runs",
    "gamma_interval",
    "outcomes",
    "select_rows",
    "summarise",
    "wilson_interval",
]

_EPS32 = float(np.finfo(np.float32).eps)
_SEED = 1234
"""Seed of the simulated thresholds."""
_CHUNK = 8_192
"""Rows that a simulation holds at a time; a power of two, which keeps Sobol points balanced."""


class Threshold(Protocol):
    """What test error counts as solved in a cell."""

    inclusive: ClassVar[bool]
    """Whether an error equal to the threshold counts."""

    def value(self, cell: Cell) -> float:
        """The threshold of a cell."""


@dataclass(frozen=True)
class FixedThreshold:
    """The same error for every cell: that of the division and of the stochastic NMU experiments."""

    error: float = 1e-5
    inclusive: ClassVar[bool] = False

    def value(self, cell: Cell) -> float:
        """The error, whatever the cell."""
        return self.error


@dataclass(frozen=True)
class SimulatedThreshold:
    """Error of a module whose weights are all off by `epsilon`, on the extrapolation distribution of the cell.

    As published for one module, with x1 and x2 the operands and p the product of (1 - epsilon |x|) over all other inputs:

    - add, sub: x1 ± x2 - epsilon (sum of |x| over all inputs);
    - mul: x1 x2 (1 - epsilon)² p;
    - div: x1 / x2 (1 - epsilon) / (1 + epsilon) p.

    The papers have no rule for the operations of one operand; by analogy:

    - identity: x1 - epsilon (sum of |x| over all inputs);
    - square: (x1 (1 - epsilon))² p;
    - reciprocal: 1 / x1 / (1 + epsilon) p;
    - sqrt: √(x1 (1 - epsilon)) p.

    In the two-step task both steps are off: sums, also negated ones, as add; products as mul; reciprocals of products
    p / (x1 x2 (1 + epsilon)²); the inputs that are no operand of a step are its other inputs. Of epsilon and -epsilon in the
    first step, the one counts that leads further off.

    Where operands are sums (two-layer tasks), the first layer's weights are off, by 1 - epsilon on the inputs of an operand
    and epsilon on the others, and the second layer is exact. As in the published simulation each operand of the arithmetic
    data set then has one input more than in the task itself.

    The operands are the first columns. In most distributions all columns are alike; where the two halves of the inputs
    differ and there are more than two inputs, both operands come from the first half.
    """

    epsilon: float = 1e-5
    samples: int = 1_000_000
    inclusive: ClassVar[bool] = False

    def value(self, cell: Cell) -> float:
        """Mean squared error over the samples, always the same ones; ValueError where that is not a finite number."""
        task = task_of(cell.task)
        operation_of(cell.operation)
        if cell.operation in TRUTHS:
            raise ValueError(f"no simulated threshold for {cell.operation}: its error is a share of wrong answers")
        if task.name == "two-step":
            return _simulate_steps(cell.operation, cell.inputs, cell.extrapolation, self.epsilon, self.samples)
        if task.name == "single-module":
            return _simulate(cell.operation, cell.inputs, cell.extrapolation, self.epsilon, self.samples)
        spans = task.spans(cell.inputs, 0, dict(cell.data))
        more = 1 if task.name == "arithmetic-dataset" else 0
        shifted = tuple((a - spans[0][0], min(b - spans[0][0] + more, cell.inputs)) for a, b in spans)
        return _simulate_sums(cell.operation, cell.inputs, shifted, cell.extrapolation, self.epsilon, self.samples)


@dataclass(frozen=True)
class GoldThreshold:
    """Test error of the exact weights in float32, which is not zero for tiny inputs, plus the float32 epsilon."""

    gold_error: float
    inclusive: ClassVar[bool] = True

    def value(self, cell: Cell) -> float:
        """The error with its margin, whatever the cell."""
        return self.gold_error + _EPS32


@cache
def _simulate(operation: str, inputs: int, extrapolation: str, epsilon: float, samples: int) -> float:
    if operation not in ARITHMETIC:
        raise ValueError(f"no simulated threshold for {operation!r}; there is one for: {', '.join(ARITHMETIC)}")
    distribution = parse(extrapolation)
    total = 0.0
    for step in range(math.ceil(samples / _CHUNK)):
        x = distribution.sample(_CHUNK, inputs, _SEED, step=step).T[:, : samples - step * _CHUNK]
        with np.errstate(all="ignore"):
            total += float(np.square(_deviation(operation, x, epsilon)).sum())
    if not math.isfinite(total):
        raise ValueError(f"no simulated threshold for {operation}: its error on {extrapolation} is not finite")
    return total / samples


@cache
def _simulate_sums(
    operation: str, inputs: int, spans: tuple[tuple[int, int], ...], extrapolation: str, epsilon: float, samples: int
) -> float:
    """Error of a stack whose first layer is off by epsilon and whose second layer is exact."""
    exact = np.zeros((len(spans), inputs))
    for row, (start, stop) in zip(exact, spans, strict=True):
        row[start:stop] = 1
    near = np.where(exact > 0, 1 - epsilon, epsilon)
    truth, distribution, total = operation_of(operation).truth, parse(extrapolation), 0.0
    for step in range(math.ceil(samples / _CHUNK)):
        x = distribution.sample(_CHUNK, inputs, _SEED, step=step).T[:, : samples - step * _CHUNK]
        with np.errstate(all="ignore"):
            total += float(np.square(truth(near @ x) - truth(exact @ x)).sum())
    if not math.isfinite(total):
        raise ValueError(f"no simulated threshold for {operation}: its error on {extrapolation} is not finite")
    return total / samples


@cache
def _simulate_steps(operation: str, inputs: int, extrapolation: str, epsilon: float, samples: int) -> float:
    """Error of two steps that are both off by epsilon, in the direction of the first in which the errors add up."""
    first, second = operation.split("-")
    distribution, totals = parse(extrapolation), np.zeros(2)
    for step in range(math.ceil(samples / _CHUNK)):
        x = distribution.sample(_CHUNK, inputs, _SEED, step=step).T[:, : samples - step * _CHUNK]

        def both(inner: float, outer: float, x: NDArray[np.float64] = x) -> Any:
            result = _step(first, x[:2], x[2:], inner)
            return _step(second, np.stack([result, x[2]]), np.delete(x, 2, axis=0), outer)

        exact = both(0, 0)
        totals += [np.square(both(side * epsilon, epsilon) - exact).sum() for side in (1, -1)]
    return float(totals.max()) / samples


def _step(operation: str, operands: NDArray[np.float64], others: NDArray[np.float64], epsilon: float) -> Any:
    """Sum, minus the sum, product or reciprocal of the product of the operands, with weights off by epsilon."""
    if operation in ("add", "sub"):
        off = epsilon * (np.abs(operands).sum(axis=0) + np.abs(others).sum(axis=0))
        return (1 if operation == "add" else -1) * operands.sum(axis=0) - off
    leak = np.prod(1 - epsilon * np.abs(others), axis=0)
    exact = operands.prod(axis=0) * (1 - epsilon) ** len(operands)
    return exact * leak if operation == "mul" else leak / (operands.prod(axis=0) * (1 + epsilon) ** len(operands))


def _deviation(operation: str, x: NDArray[np.float64], epsilon: float) -> Any:
    """Exact result minus that of weights off by epsilon, for inputs of shape (inputs, rows)."""
    record = operation_of(operation)
    if record.coefficients:
        return epsilon * np.abs(x).sum(axis=0)
    operands = len(record.exponents)
    leak = np.prod(1 - epsilon * np.abs(x[operands:]), axis=0)
    return record.truth(x[:operands]) * (1 - record.factor(epsilon) * leak)


def select_rows(validation: NDArray[np.float64], last: int = 5_000) -> NDArray[np.int64]:
    """For each run, the first of its `last` rows with the least validation error, NaNs skipped; -1 where all are NaN."""
    tail = validation[:, -last:]
    least = np.fmin.reduce(tail, axis=1)
    rows = validation.shape[1] - tail.shape[1] + np.argmax(tail == least[:, None], axis=1)
    return np.where(np.isnan(least), -1, rows)


@dataclass(frozen=True)
class Outcomes:
    """What became of each run of a cell; every array has the shape (runs)."""

    solved: NDArray[np.bool_]
    """Whether the test error at the selected row meets the threshold."""
    solved_at: NDArray[np.float64]
    """Step of the first row whose test error meets the threshold, selected or not; NaN for runs that are not solved."""
    selected: NDArray[np.int64]
    """Row with the least validation error; -1 where there is none."""
    interpolation_error: NDArray[np.float64]
    """Validation error at the selected row."""
    extrapolation_error: NDArray[np.float64]
    """Test error at the selected row."""
    sparsity_error: NDArray[np.float64]
    """Sparsity error at the selected row."""


def outcomes(runs: Runs, threshold: float, inclusive: bool = False, last: int = 5_000) -> Outcomes:
    """Judge each run by the published protocol.

    Validation error selects a row among the `last` ones; the run is solved if the test error there is below the threshold
    (or equal to it, if `inclusive`). A missing error is a failure.
    """
    selected = select_rows(runs.validation, last)

    def at_selected(values: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.where(selected < 0, np.nan, values[np.arange(len(selected)), selected])

    def meets(errors: NDArray[np.float64]) -> NDArray[np.bool_]:
        return errors <= threshold if inclusive else errors < threshold

    test = at_selected(runs.test)
    solved = meets(test)
    first = runs.steps[np.argmax(meets(runs.test), axis=1)]
    return Outcomes(
        solved=solved,
        solved_at=np.where(solved, first, np.nan),
        selected=selected,
        interpolation_error=at_selected(runs.validation),
        extrapolation_error=test,
        sparsity_error=at_selected(runs.sparsity),
    )


@dataclass(frozen=True)
class Interval:
    """A mean with its confidence interval; NaN for what is not available."""

    mean: float
    low: float
    high: float


def wilson_interval(successes: int, runs: int, level: float = 0.95) -> Interval:
    """Success rate with Wilson's score interval, without continuity correction."""
    if runs == 0:
        return Interval(math.nan, math.nan, math.nan)
    rate, z = successes / runs, _normal_quantile(level)
    centre = rate + z**2 / (2 * runs)
    half = z * math.sqrt(rate * (1 - rate) / runs + (z / (2 * runs)) ** 2)
    scale = 1 + z**2 / runs
    low = 0.0 if successes == 0 else (centre - half) / scale
    high = 1.0 if successes == runs else (centre + half) / scale
    return Interval(rate, low, high)


def gamma_interval(values: ArrayLike, level: float = 0.95) -> Interval:
    """Mean of positive values with its profile likelihood interval under a gamma distribution, as published for steps.

    The fitted mean is the sample mean. The t interval, cut at zero, takes over for fewer than two values, for a standard
    deviation of 1e-5 or less, and, beyond the papers, where a value is zero (solved before the first update), for which
    the gamma distribution has no density. Values that are not finite are left out.
    """
    x = _finite(values)
    if len(x) < 2 or x.std(ddof=1) <= 1e-5 or not (x / x.mean()).min() > 0:
        return _t_interval(x, level, math.inf)
    mean = float(x.mean())
    spread = _divergence(x / mean)

    def fit(shift: float) -> tuple[float, float]:
        """Best shape, and log-likelihood per value up to a constant, where the mean is exp(shift) times the sample mean."""
        c = spread + math.expm1(-shift) + shift
        shape = optimize.brentq(lambda k: _log_minus_psi(k) - c, 0.4 / c, 1.1 / c, rtol=1e-9)
        return shape, _stirling(shape) - shape * c

    shape, best = fit(0.0)
    step = _normal_quantile(level) / math.sqrt(len(x) * shape)
    cut = best - _normal_quantile(level) ** 2 / (2 * len(x))
    low, high = (_crossing(lambda shift: cut - fit(shift)[1], 0.0, side) for side in (-step, step))
    with np.errstate(over="ignore"):
        return Interval(mean, *(mean * np.exp([low, high])).tolist())


def beta_interval(values: ArrayLike, level: float = 0.95, published: bool = False) -> Interval:
    """Mean of sparsity errors with its profile likelihood interval under a beta distribution on [0, 0.5].

    The papers mean this but evaluate the density at x in place of 2x, so that their means are about half the true ones;
    `published` does as they do. Values are clipped to [1e-16, 0.5 - 1e-16] for the fit, whose mean is close to that of the
    sample unless values pile up at both ends. The t interval, cut to [0, 0.5], takes over for fewer than two values and for
    a standard deviation of 1e-10 or less; it shows the true mean either way. Values that are not finite are left out.
    """
    x = _finite(values)
    if len(x) < 2 or x.std(ddof=1) <= 1e-10:
        return _t_interval(x, level, 0.5)
    y = np.clip(x, 1e-16, 0.5 - 1e-16) * (1 if published else 2)

    def fit(logit: float) -> tuple[float, float, float]:
        """Best sum of shapes, log-likelihood per value up to a constant, and its slope, at a mean of y."""
        p, q = _expit(logit), _expit(-logit)
        c = p * _divergence(y / p) + q * _divergence((1 - y) / q)

        def excess(v: float) -> float:
            return p * _log_minus_psi(p * v) + q * _log_minus_psi(q * v) - _log_minus_psi(v) - c

        v = optimize.brentq(excess, 0.4 / c, 1.6 / c, rtol=1e-9)
        slope = _log_minus_psi(p * v) - _log_minus_psi(q * v) + np.mean(np.log(y / p) - np.log((1 - y) / q))
        return v, _stirling(p * v) + _stirling(q * v) - _stirling(v) - v * c, slope

    centre = optimize.brentq(lambda logit: fit(logit)[2], -40, 40, xtol=1e-13)
    v, best, _ = fit(centre)
    step = _normal_quantile(level) / math.sqrt(len(x) * v * _expit(centre) * _expit(-centre))
    cut = best - _normal_quantile(level) ** 2 / (2 * len(x))
    low, high = (_crossing(lambda logit: cut - fit(logit)[1], centre, side) for side in (-step, step))
    return Interval(_expit(centre) / 2, _expit(low) / 2, _expit(high) / 2)


def _finite(values: ArrayLike) -> NDArray[np.float64]:
    array = np.asarray(values, dtype=np.float64)
    return array[np.isfinite(array)]


def _normal_quantile(level: float) -> float:
    """How many standard deviations around the mean hold this share of a normal distribution."""
    return float(special.ndtri((1 + level) / 2))


def _t_interval(x: NDArray[np.float64], level: float, largest: float) -> Interval:
    """Student's interval, cut to [0, largest]."""
    if len(x) < 2:
        return Interval(float(x[0]) if len(x) else math.nan, math.nan, math.nan)
    mean = float(x.mean())
    half = float(special.stdtrit(len(x) - 1, (1 + level) / 2) * x.std(ddof=1)) / math.sqrt(len(x))
    return Interval(mean, max(mean - half, 0.0), min(mean + half, largest))


def _crossing(rise: Callable[[float], float], start: float, step: float) -> float:
    """Where a function that is negative at `start` and grows in the direction of `step` becomes zero."""
    while rise(start + step) < 0:
        step *= 2
    return float(optimize.brentq(rise, start, start + step, xtol=1e-8 * abs(step)))


# The log-likelihoods are written in terms of three small functions that stay accurate for concentrated data, where shapes
# are huge and the usual sums of logarithms of gamma functions cancel. A gamma distribution with shape k and mean m has,
# per value, stirling(k) - k divergence(x / m); a beta distribution with mean p and sum of shapes v has
# stirling(p v) + stirling((1 - p) v) - stirling(v) - v (p divergence(y / p) + (1 - p) divergence((1 - y) / (1 - p))).
# With k (log k - psi(k)) between 1/2 and 1, the best k lies between 1/2 and 1 over the divergence, the best v between
# 1/2 and 3/2 over its own; the brackets above are a little wider.


def _divergence(ratios: NDArray[np.float64]) -> float:
    """Mean of r - 1 - log r, which is zero only where all ratios are one."""
    return float(np.mean(ratios - 1 - np.log(ratios)))


def _stirling(k: float) -> float:
    """The difference k log k - k - log gamma(k)."""
    if k > 200:
        return 0.5 * math.log(k / (2 * math.pi)) - 1 / (12 * k) + 1 / (360 * k**3)
    return k * math.log(k) - k - math.lgamma(k)


def _log_minus_psi(k: float) -> float:
    """The difference log k - psi(k), the derivative of the former."""
    if k > 200:
        return 1 / (2 * k) + 1 / (12 * k**2) - 1 / (120 * k**4)
    return math.log(k) - float(special.psi(k))


def _expit(logit: float) -> float:
    return float(special.expit(logit))


def summarise(cell: Cell, runs: Runs, threshold: Threshold, last: int = 5_000) -> dict[str, Any]:
    """The row of a cell: success rate, solved-at step and sparsity error with 95 % intervals; None where not available.

    Runs are judged at the one of their `last` rows with the least validation error. Steps and sparsity errors are those of
    solved runs. A failed run that logged nothing is not counted among the runs;
    a run that failed or diverged later is judged by the rows that it logged.
    """
    limit = threshold.value(cell)
    judged = outcomes(runs, limit, threshold.inclusive, last)
    silent = np.array([status == "failed" for status in runs.status], dtype=bool)
    silent &= np.isnan(runs.validation).all(axis=1) & np.isnan(runs.test).all(axis=1)
    count = len(runs) - int(silent.sum())
    steps = judged.solved_at[judged.solved]
    success = wilson_interval(len(steps), count)
    solved_at = gamma_interval(steps)
    sparsity = beta_interval(judged.sparsity_error[judged.solved])
    return {
        "module": cell.module,
        "operation": cell.operation,
        "inputs": cell.inputs,
        "interpolation": cell.interpolation,
        "extrapolation": cell.extrapolation,
        "runs": count,
        "success_rate": _number(success.mean),
        "success_low": _number(success.low),
        "success_high": _number(success.high),
        "solved_at_median": _number(np.median(steps)) if len(steps) else None,
        "solved_at_mean": _number(solved_at.mean),
        "solved_at_low": _number(solved_at.low),
        "solved_at_high": _number(solved_at.high),
        "sparsity_mean": _number(sparsity.mean),
        "sparsity_low": _number(sparsity.low),
        "sparsity_high": _number(sparsity.high),
        "threshold": limit,
    }


def describe_runs(cell: Cell, runs: Runs, threshold: Threshold) -> list[dict[str, Any]]:
    """One dictionary a run, failed ones included; None for numbers that are not finite."""
    judged = outcomes(runs, threshold.value(cell), threshold.inclusive)
    return [
        {
            "module": cell.module,
            "operation": cell.operation,
            "interpolation": cell.interpolation,
            "seed": int(runs.seeds[k]),
            "solved": bool(judged.solved[k]),
            "solved_at": _number(judged.solved_at[k]),
            "interpolation_error": _number(judged.interpolation_error[k]),
            "extrapolation_error": _number(judged.extrapolation_error[k]),
            "sparsity_error": _number(judged.sparsity_error[k]),
            "weights": [_number(weight) for weight in runs.weights[k]],
            "status": runs.status[k],
        }
        for k in range(len(runs))
    ]


def _number(value: Any) -> float | None:
    """A plain float, or None where it is not finite."""
    return float(value) if math.isfinite(value) else None
