"""What a step of the compiled loop does beside the kernel: loss, norms, clipping, optimiser, and when to start anew."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

from nalm.engine import kernels
from nalm.native import SAFE
from nalm.options import TINY

__all__ = [
    "LOSSES",
    "adam",
    "clip_gradient",
    "finite",
    "loss_pull",
    "mse_pull",
    "norm_pull",
    "rmsprop",
    "squared_error",
    "stuck",
    "wrong_answers",
]

LOSSES = ("mse", "pcc", "mape", "pcc-mse", "log-magnitude")


@njit(**kernels.SUMS)
def squared_error(y: Any, target: Any, rows: Any) -> Any:
    """Sum of squared errors over the first rows."""
    total = y.dtype.type(0)
    for b in range(rows):
        total += (y[b] - target[b]) * (y[b] - target[b])
    return total


@njit(**SAFE)
def wrong_answers(y: Any, target: Any, rows: Any) -> Any:
    """How many of the first rows are not their target when rounded; NaN is wrong."""
    total = 0.0
    for b in range(rows):
        total += 0.0 if abs(y[b] - target[b]) < 0.5 else 1.0
    return total


@njit(**SAFE)
def mse_pull(y: Any, target: Any, dy: Any) -> None:
    """Gradient of the mean squared error."""
    factor = y.dtype.type(2) / y.dtype.type(y.size)
    for b in range(y.size):
        dy[b] = factor * (y[b] - target[b])


@njit(**kernels.SUMS)
def _mean_error(y: Any, target: Any) -> Any:
    total = y.dtype.type(0)
    for b in range(y.size):
        total += y[b] - target[b]
    return total / y.dtype.type(y.size)


@njit(**SAFE)
def _centred_pull(y: Any, target: Any, share: Any, dy: Any) -> None:
    """Gradient of the mean square around the mean of the error, plus a share of the squared mean."""
    factor = y.dtype.type(2) / y.dtype.type(y.size)
    taken = (y.dtype.type(1) - share) * _mean_error(y, target)
    for b in range(y.size):
        dy[b] = factor * (y[b] - target[b] - taken)


@njit(**SAFE)
def _log_pull(y: Any, target: Any, sign: Any, share: Any, dy: Any) -> None:
    """Gradient of the squared error of log magnitudes, centred if the share is below one, plus that of the sign term."""
    zero, one, tiny = y.dtype.type(0), y.dtype.type(1), y.dtype.type(TINY)
    known, total = zero, zero
    for b in range(y.size):
        there = abs(y[b]) >= tiny and target[b] != zero
        dy[b] = math.log(abs(y[b])) - math.log(max(abs(target[b]), tiny)) if there else zero
        known += one if there else zero
        total += dy[b]
    count = y.dtype.type(y.size) if share < one else max(known, one)
    taken = (one - share) * total / y.dtype.type(y.size)
    for b in range(y.size):
        there = abs(y[b]) >= tiny and target[b] != zero
        slope = y.dtype.type(2) / count * (dy[b] - taken) / y[b] if there else zero
        size = abs(y[b]) + abs(target[b])
        wrong = (y[b] > zero and target[b] < zero) or (y[b] < zero and target[b] > zero)
        side = one if y[b] > zero else -one
        dy[b] = slope + (sign / y.dtype.type(y.size) * side * abs(target[b]) / (size * size) if wrong else zero)


@njit(**SAFE)
def _mape_pull(y: Any, target: Any, dy: Any) -> None:
    one, zero = y.dtype.type(1), y.dtype.type(0)
    share = one / y.dtype.type(y.size)
    for b in range(y.size):
        ratio = (target[b] - y[b]) / target[b]
        side = one if ratio > zero else (-one if ratio < zero else ratio)
        dy[b] = -share * side / target[b]


@njit(**kernels.SUMS)
def _mean(y: Any) -> Any:
    total = y.dtype.type(0)
    for b in range(y.size):
        total += y[b]
    return total / y.dtype.type(y.size)


@njit(**kernels.SUMS)
def _pcc_pull(y: Any, target: Any, dy: Any) -> None:
    """Gradient of one minus Pearson's coefficient with floors under both deviations."""
    zero, rows = y.dtype.type(0), y.dtype.type(y.size)
    epsilon = y.dtype.type(1.1920928955078125e-07)
    y_mean, t_mean = _mean(y), _mean(target)
    yy, tt, yt = zero, zero, zero
    for b in range(y.size):
        u, v = y[b] - y_mean, target[b] - t_mean
        yy += u * u
        tt += v * v
        yt += u * v
    floored = yy / rows < epsilon
    sy = np.sqrt(max(yy / rows, epsilon))
    st = np.sqrt(max(tt / rows, epsilon)) + epsilon
    covariance = yt / rows
    along = zero if floored else covariance / (sy * (sy + epsilon))
    scale = y.dtype.type(-1) / (rows * (sy + epsilon) * st)
    for b in range(y.size):
        dy[b] = scale * ((target[b] - t_mean) - along * (y[b] - y_mean))


@njit(**SAFE)
def adam(p: Any, g: Any, first: Any, second: Any, rate: Any, scale: Any) -> None:
    """One step of Adam; `rate` is the learning rate over the first bias correction, `scale` one over the second's root.

    Moments below 1e-30, far too small to matter beside the epsilon of 1e-8, are set to zero: once a run is solved they would
    fade into denormal numbers, which slow the processor down a hundredfold.
    """
    tiny, zero = p.dtype.type(1e-30), p.dtype.type(0)
    keep1, new1 = p.dtype.type(0.9), p.dtype.type(1 - 0.9)
    keep2, new2 = p.dtype.type(0.999), p.dtype.type(1 - 0.999)
    epsilon = p.dtype.type(1e-8)
    for i in range(p.size):
        m = keep1 * first[i] + new1 * g[i]
        v = keep2 * second[i] + new2 * g[i] * g[i]
        first[i] = zero if abs(m) < tiny else m
        second[i] = zero if v < tiny else v
        p[i] -= rate * m / (np.sqrt(v) * scale + epsilon)


@njit(**SAFE)
def rmsprop(p: Any, g: Any, second: Any, rate: Any) -> None:
    """One step of RMSProp; moments below 1e-30 are set to zero as in Adam."""
    tiny, zero, epsilon = p.dtype.type(1e-30), p.dtype.type(0), p.dtype.type(1e-8)
    keep, new = p.dtype.type(0.9), p.dtype.type(1 - 0.9)
    for i in range(p.size):
        v = keep * second[i] + new * g[i] * g[i]
        second[i] = zero if v < tiny else v
        p[i] -= rate * g[i] / (np.sqrt(v) + epsilon)


@njit(**SAFE)
def norm_pull(p: Any, ends: Any, order: Any, strength: Any, g: Any) -> None:
    """Gradient of strength times the sum over parameter tensors (which end at `ends`) of their norm."""
    start = 0
    for end in ends:
        if order == 1:
            for i in range(start, end):
                g[i] += strength * (1 if p[i] > 0 else (-1 if p[i] < 0 else 0))
        else:
            squares = 0.0
            for i in range(start, end):
                squares += p[i] * p[i]
            if squares > 0:
                for i in range(start, end):
                    g[i] += strength * p[i] / math.sqrt(squares)
        start = end


@njit(**SAFE)
def clip_gradient(g: Any, value: Any, norm: Any) -> None:
    """Clip each element to a value, then the whole to a norm; zero stands for no limit."""
    if value > 0:
        for i in range(g.size):
            g[i] = min(max(g[i], -value), value)
    if norm > 0:
        squares = 0.0
        for i in range(g.size):
            squares += g[i] * g[i]
        factor = norm / (math.sqrt(squares) + 1e-6)
        if factor < 1:
            for i in range(g.size):
                g[i] *= factor


@njit(**SAFE)
def loss_pull(plan: Any, step: Any, y: Any, target: Any, dy: Any) -> None:
    """Gradient of the loss of a plan, whose kind is an index into `LOSSES`, at a step."""
    kind = plan.loss
    if kind == 4:
        _log_pull(y, target, y.dtype.type(plan.sign), y.dtype.type(plan.share), dy)
    elif kind == 0 and plan.share < 1:
        _centred_pull(y, target, y.dtype.type(plan.share), dy)
    elif kind == 2:
        _mape_pull(y, target, dy)
    elif kind == 1 or (kind == 3 and step < plan.loss_switch):
        _pcc_pull(y, target, dy)
    else:
        mse_pull(y, target, dy)


@njit(**SAFE)
def magnitudes(x: Any, target: Any) -> None:
    """Take the magnitudes of a batch, in place."""
    for i in range(x.shape[0]):
        for b in range(x.shape[1]):
            x[i, b] = abs(x[i, b])
    for b in range(target.size):
        target[b] = abs(target[b])


@njit(**SAFE)
def finite(p: Any) -> Any:
    """Whether all are finite."""
    count = 0
    for i in range(p.size):
        count += 1 if abs(p[i]) < np.inf else 0
    return count == p.size


@njit(**SAFE)
def stuck(values: Any, counts: Any, groups: Any, total: Any) -> Any:
    """Whether iNALU's rule says to start anew, from a history kept as (value, how often).

    The mean of its first half is at most mean plus standard deviation of its second half, and the latter mean is above one.
    """
    half = total // 2
    seen, before, after, squares = 0, 0.0, 0.0, 0.0
    for k in range(groups):
        first = min(max(half - seen, 0), counts[k])
        second = counts[k] - first
        seen += counts[k]
        before += values[k] * first if first > 0 else 0.0
        after += values[k] * second if second > 0 else 0.0
    mean = after / (total - half)
    seen = 0
    for k in range(groups):
        first = min(max(half - seen, 0), counts[k])
        second = counts[k] - first
        seen += counts[k]
        squares += (values[k] - mean) ** 2 * second if second > 0 else 0.0
    return before / half <= mean + math.sqrt(squares / (total - half)) and mean > 1.0
