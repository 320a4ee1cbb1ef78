"""Kernels of NLRL and NSR."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from numba import njit

from nalm.engine.kernels.loops import (
    LOG_EPSILON,
    SUMS,
    add_scaled,
    clip_box,
    dot,
    fill_row,
    largest_distance,
    pull_to_bits,
    weighted_sum,
)
from nalm.native import SAFE
from nalm.vector import exp_, log_magnitude, sigmoid_, tanh_

MOST_PATHS = 24
"""Largest redundancy of an NSR: its selections share the rows of scratch over weights."""


class NLRL(NamedTuple):
    """Neural Logic Rule Layer; parameters: weights, raw negations, raw gates."""

    inputs: int
    disjunctions: int = 1
    """Whether OR is computed; else the gate negates AND."""


@njit(**SAFE)
def _sigmoid(x: Any) -> Any:
    return 1 / (1 + math.exp(-x))


@njit(**SAFE)
def _truth(x: Any, negation: Any, out: Any) -> None:
    """Out = x, negated by a share."""
    slope = x.dtype.type(1) - x.dtype.type(2) * negation
    for b in range(out.size):
        out[b] = negation + slope * x[b]


@njit(**SAFE)
def _not_chosen(v: Any, w: Any, before: Any, after: Any) -> None:
    """After = before * (1 - w v)."""
    one = v.dtype.type(1)
    for b in range(after.size):
        after[b] = before[b] * (one - w * v[b])


@njit(**SAFE)
def _mix(gate: Any, every: Any, other: Any, y: Any) -> None:
    rest = y.dtype.type(1) - gate
    for b in range(y.size):
        y[b] = rest * every[b] + gate * other[b]


@njit(**SAFE)
def _one_minus(x: Any, out: Any) -> None:
    one = x.dtype.type(1)
    for b in range(out.size):
        out[b] = one - x[b]


@njit(**SAFE)
def nlrl_forward(k: Any, p: Any, x: Any, noise: Any, training: Any, t: Any, w: Any, y: Any) -> None:
    n = x.shape[0]
    truth, logs, before, every, other = t[0:n], t[n : 2 * n], t[2 * n : 3 * n + 1], t[3 * n + 1], t[3 * n + 2]
    for i in range(n):
        w[0, i] = _sigmoid(p[n + i])
        _truth(x[i], w[0, i], truth[i])
        log_magnitude(truth[i], p.dtype.type(LOG_EPSILON), logs[i])
    weighted_sum(p[:n], logs, every)
    exp_(every)
    if k.disjunctions:
        fill_row(p.dtype.type(1), before[0])
        for i in range(n):
            _not_chosen(truth[i], p[i], before[i], before[i + 1])
        _one_minus(before[n], other)
    else:
        _one_minus(every, other)
    w[1, 0] = _sigmoid(p[2 * n])
    _mix(w[1, 0], every, other, y)


@njit(**SUMS)
def _weight_back(pull: Any, logs: Any, running: Any, before: Any, truth: Any) -> Any:
    """Gradient of a weight, from AND (`pull` is that of its exponent) and from OR."""
    total = pull.dtype.type(0)
    for b in range(pull.size):
        total += pull[b] * logs[b] + running[b] * before[b] * truth[b]
    return total


@njit(**SAFE)
def _truth_pull(pull: Any, w: Any, truth: Any, running: Any, before: Any, out: Any) -> None:
    """Gradient of a truth value; `running` is multiplied by its factor for the next one."""
    one, zero, epsilon = out.dtype.type(1), out.dtype.type(0), out.dtype.type(LOG_EPSILON)
    for b in range(out.size):
        side = one if truth[b] > zero else (-one if truth[b] < zero else zero)
        out[b] = w * (pull[b] * side / (abs(truth[b]) + epsilon) + running[b] * before[b])
        running[b] *= one - w * truth[b]


@njit(**SAFE)
def _path_pulls(gate: Any, disjunctions: Any, every: Any, dy: Any, exponent: Any, running: Any) -> None:
    """From the gradient of the output to those of the exponent of AND and of one minus OR."""
    one, zero = dy.dtype.type(1), dy.dtype.type(0)
    share = one - gate if disjunctions else one - gate - gate
    other = gate if disjunctions else zero
    for b in range(dy.size):
        exponent[b] = dy[b] * share * every[b]
        running[b] = dy[b] * other


@njit(**SUMS)
def _difference(every: Any, other: Any, dy: Any) -> Any:
    total = dy.dtype.type(0)
    for b in range(dy.size):
        total += dy[b] * (other[b] - every[b])
    return total


@njit(**SUMS)
def _negation_back(pull: Any, x: Any) -> Any:
    one, two, total = x.dtype.type(1), x.dtype.type(2), x.dtype.type(0)
    for b in range(pull.size):
        total += pull[b] * (one - two * x[b])
    return total


@njit(**SAFE)
def nlrl_backward(k: Any, p: Any, x: Any, noise: Any, training: Any, t: Any, w: Any, y: Any, dy: Any, g: Any) -> None:
    n, gate = x.shape[0], w[1, 0]
    truth, logs, before, every, other = t[0:n], t[n : 2 * n], t[2 * n : 3 * n + 1], t[3 * n + 1], t[3 * n + 2]
    exponent, running, pull = t[3 * n + 3], t[3 * n + 4], t[3 * n + 5]
    g[2 * n] += _difference(every, other, dy) * gate * (p.dtype.type(1) - gate)
    _path_pulls(gate, k.disjunctions, every, dy, exponent, running)
    for i in range(n - 1, -1, -1):
        g[i] += _weight_back(exponent, logs[i], running, before[i], truth[i])
        _truth_pull(exponent, p[i], truth[i], running, before[i], pull)
        g[n + i] += _negation_back(pull, x[i]) * w[0, i] * (p.dtype.type(1) - w[0, i])


@njit(**SAFE)
def nlrl_pull(k: Any, p: Any, x: Any, noise: Any, training: Any, t: Any, w: Any, y: Any, dy: Any, gx: Any) -> None:
    n, one, two = x.shape[0], p.dtype.type(1), p.dtype.type(2)
    exponent, running = t[3 * n + 3], t[3 * n + 4]
    _path_pulls(w[1, 0], k.disjunctions, t[3 * n + 1], dy, exponent, running)
    for i in range(n - 1, -1, -1):
        _truth_pull(exponent, p[i], t[i], running, t[2 * n + i], gx[n])
        fill_row(p.dtype.type(0), gx[i])
        add_scaled(one - two * w[0, i], gx[n], gx[i])


@njit(**SAFE)
def _pull_sigmoids_to_bits(raw: Any, strength: Any, g: Any) -> None:
    """Gradient of strength * mean(min(s, 1 - s)) through s = sigmoid(raw)."""
    share = strength / raw.size
    for i in range(raw.size):
        s = _sigmoid(raw[i])
        side = 1 if s < 0.5 else (-1 if s > 0.5 else 0)
        g[i] += share * side * s * (1 - s)


@njit(**SAFE)
def nlrl_penalise(k: Any, p: Any, strength: Any, gate_strength: Any, g: Any) -> None:
    size = p.size // (2 * k.inputs + 1) * k.inputs
    pull_to_bits(p[:size], strength, g[:size])
    _pull_sigmoids_to_bits(p[size : 2 * size], strength, g[size : 2 * size])
    _pull_sigmoids_to_bits(p[2 * size :], gate_strength, g[2 * size :])


@njit(**SAFE)
def nlrl_project(k: Any, p: Any) -> None:
    clip_box(p[: p.size // (2 * k.inputs + 1) * k.inputs], p.dtype.type(0), p.dtype.type(1))


@njit(**SAFE)
def nlrl_sparsity(k: Any, p: Any) -> Any:
    return largest_distance(p[: p.size // (2 * k.inputs + 1) * k.inputs])


class NSR(NamedTuple):
    """Neural Status Register; parameters: two raw selections, sign weights, zero weights and biases of each path."""

    paths: int
    scale: float


@njit(**SAFE)
def _softmax(raw: Any, out: Any) -> None:
    largest, total = raw[0], raw.dtype.type(0)
    for i in range(1, raw.size):
        largest = max(largest, raw[i])
    for i in range(raw.size):
        out[i] = math.exp(raw[i] - largest)
        total += out[i]
    for i in range(raw.size):
        out[i] /= total


@njit(**SAFE)
def _add_bits(t: Any, sign: Any, zero: Any, bias: Any, z: Any) -> None:
    one, two = t.dtype.type(1), t.dtype.type(2)
    for b in range(z.size):
        z[b] += sign * t[b] + zero * (one - two * t[b] * t[b]) + bias


@njit(**SAFE)
def nsr_forward(k: Any, p: Any, x: Any, noise: Any, training: Any, t: Any, w: Any, y: Any) -> None:
    n, paths, scale = x.shape[0], k.paths, p.dtype.type(k.scale)
    free = 2 * n * paths
    fill_row(p.dtype.type(0), y)
    for r in range(paths):
        first, second, select = w[r, :n], w[r, n : 2 * n], w[paths, :n]
        _softmax(p[r * n : (r + 1) * n], first)
        _softmax(p[(paths + r) * n : (paths + r + 1) * n], second)
        for i in range(n):
            select[i] = scale * (first[i] - second[i])
        weighted_sum(select, x, t[r])
        tanh_(t[r])
        _add_bits(t[r], p[free + r], p[free + paths + r], p[free + 2 * paths + r], y)
    sigmoid_(y)


@njit(**SAFE)
def _sigmoid_pull(y: Any, dy: Any, out: Any) -> None:
    one = y.dtype.type(1)
    for b in range(out.size):
        out[b] = dy[b] * y[b] * (one - y[b])


@njit(**SAFE)
def _difference_pull(t: Any, sign: Any, zero: Any, scale: Any, dz: Any, out: Any) -> None:
    """Gradient of the difference of two operands."""
    one, four = t.dtype.type(1), t.dtype.type(4)
    for b in range(out.size):
        out[b] = dz[b] * (sign - four * zero * t[b]) * (one - t[b] * t[b]) * scale


@njit(**SUMS)
def _zero_bit_back(t: Any, dz: Any) -> Any:
    one, two, total = t.dtype.type(1), t.dtype.type(2), t.dtype.type(0)
    for b in range(dz.size):
        total += dz[b] * (one - two * t[b] * t[b])
    return total


@njit(**SUMS)
def _sum(x: Any) -> Any:
    total = x.dtype.type(0)
    for b in range(x.size):
        total += x[b]
    return total


@njit(**SAFE)
def _softmax_back(chosen: Any, pull: Any, sign: Any, g: Any) -> None:
    """Add the gradient of a raw selection, given that of the selection."""
    mean = dot(chosen, pull)
    for i in range(chosen.size):
        g[i] += sign * chosen[i] * (pull[i] - mean)


@njit(**SAFE)
def nsr_backward(k: Any, p: Any, x: Any, noise: Any, training: Any, t: Any, w: Any, y: Any, dy: Any, g: Any) -> None:
    n, paths, scale, one = x.shape[0], k.paths, p.dtype.type(k.scale), p.dtype.type(1)
    free, dz, pull, select = 2 * n * paths, t[paths], t[paths + 1], w[paths, :n]
    _sigmoid_pull(y, dy, dz)
    for r in range(paths):
        sign, zero = p[free + r], p[free + paths + r]
        g[free + r] += dot(dz, t[r])
        g[free + paths + r] += _zero_bit_back(t[r], dz)
        g[free + 2 * paths + r] += _sum(dz)
        _difference_pull(t[r], sign, zero, scale, dz, pull)
        for i in range(n):
            select[i] = dot(pull, x[i])
        _softmax_back(w[r, :n], select, one, g[r * n : (r + 1) * n])
        _softmax_back(w[r, n : 2 * n], select, -one, g[(paths + r) * n : (paths + r + 1) * n])


@njit(**SAFE)
def nsr_pull(k: Any, p: Any, x: Any, noise: Any, training: Any, t: Any, w: Any, y: Any, dy: Any, gx: Any) -> None:
    n, paths = x.shape[0], k.paths
    free, dz = 2 * n * paths, t[paths]
    _sigmoid_pull(y, dy, dz)
    for i in range(n):
        fill_row(p.dtype.type(0), gx[i])
    for r in range(paths):
        _difference_pull(t[r], p[free + r], p[free + paths + r], p.dtype.type(k.scale), dz, gx[n])
        for i in range(n):
            add_scaled(w[r, i] - w[r, n + i], gx[n], gx[i])


@njit(**SAFE)
def _selection_pull(raw: Any, strength: Any, g: Any) -> None:
    """Gradient of strength * sum(min(s, 1 - s)) through s = softmax(raw)."""
    largest, total, mean = raw[0], 0.0, 0.0
    for i in range(1, raw.size):
        largest = max(largest, raw[i])
    for i in range(raw.size):
        total += math.exp(raw[i] - largest)
    for i in range(raw.size):
        s = math.exp(raw[i] - largest) / total
        mean += s * (1 if s < 0.5 else (-1 if s > 0.5 else 0))
    for i in range(raw.size):
        s = math.exp(raw[i] - largest) / total
        g[i] += strength * s * ((1 if s < 0.5 else (-1 if s > 0.5 else 0)) - mean)


@njit(**SAFE)
def nsr_penalise(k: Any, p: Any, strength: Any, gate_strength: Any, g: Any) -> None:
    n = (p.size - 3 * k.paths) // (2 * k.paths)
    for r in range(2 * k.paths):
        _selection_pull(p[r * n : (r + 1) * n], strength / (2 * n * k.paths), g[r * n : (r + 1) * n])


@njit(**SAFE)
def nsr_sparsity(k: Any, p: Any) -> Any:
    n, worst = (p.size - 3 * k.paths) // (2 * k.paths), 0.0
    for r in range(2 * k.paths):
        largest, total = p[r * n], 0.0
        for i in range(1, n):
            largest = max(largest, p[r * n + i])
        for i in range(n):
            total += math.exp(p[r * n + i] - largest)
        for i in range(n):
            s = math.exp(p[r * n + i] - largest) / total
            distance = min(s, 1 - s)
            worst = distance if not distance <= worst else worst
    return worst
