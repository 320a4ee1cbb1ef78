"""Kernels of NAC-mul, NMU and its stochastic relatives."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from numba import njit

from nalm.engine.kernels.additive import nac_penalise, nac_sparsity
from nalm.engine.kernels.loops import (
    EPS32,
    LOG_EPSILON,
    SUMS,
    clip_box,
    copy_row,
    dot,
    fill_row,
    log_magnitudes,
    log_pull,
    nac_back,
    nac_weights,
    product,
    product_back,
    product_pull,
    pull_to_bits,
    scale_by,
    weighted_sum,
)
from nalm.native import SAFE
from nalm.vector import exp_, sigmoid_


class NACMul(NamedTuple):
    """Multiplicative Neural Accumulator; its weights are tanh times sigmoid (0), sigmoids (1) or the parameters (2)."""

    weights: int = 0


@njit(**SAFE)
def nac_mul_forward(k: Any, p: Any, x: Any, noise: Any, training: Any, t: Any, w: Any, y: Any) -> None:
    n = x.shape[0]
    if k.weights == 0:
        nac_weights(p, n, p.dtype.type(1), w)
    else:
        for i in range(n):
            w[0, i] = p[i]
        if k.weights == 1:
            sigmoid_(w[0, :n])
    log_magnitudes(x, t)
    weighted_sum(w[0], t[:n], y)
    exp_(y)


@njit(**SAFE)
def nac_mul_backward(k: Any, p: Any, x: Any, noise: Any, training: Any, t: Any, w: Any, y: Any, dy: Any, g: Any) -> None:
    n, one = x.shape[0], p.dtype.type(1)
    scale_by(y, dy)
    for i in range(n):
        w[3, i] = dot(dy, t[i])
    if k.weights == 0:
        nac_back(w, n, one, w[3], g)
    else:
        for i in range(n):
            g[i] += w[3, i] * (w[0, i] * (one - w[0, i]) if k.weights == 1 else one)


@njit(**SAFE)
def nac_mul_pull(k: Any, p: Any, x: Any, noise: Any, training: Any, t: Any, w: Any, y: Any, dy: Any, gx: Any) -> None:
    for i in range(x.shape[0]):
        log_pull(x[i], w[0, i], p.dtype.type(LOG_EPSILON), y, dy, gx[i])


@njit(**SAFE)
def nac_mul_penalise(k: Any, p: Any, strength: Any, gate_strength: Any, g: Any) -> None:
    if k.weights == 0:
        nac_penalise(k, p, strength, gate_strength, g)
    elif k.weights == 1:
        for i in range(p.size):
            s = 1 / (1 + math.exp(-p[i]))
            g[i] += strength / p.size * s * (1 - s) * (1 if s < 0.5 else (-1 if s > 0.5 else 0))
    else:
        pull_to_bits(p, strength, g)


@njit(**SAFE)
def nac_mul_project(k: Any, p: Any) -> None:
    if k.weights == 2:
        clip_box(p, p.dtype.type(0), p.dtype.type(1))


@njit(**SAFE)
def nac_mul_sparsity(k: Any, p: Any) -> Any:
    if k.weights == 0:
        return nac_sparsity(k, p)
    if k.weights == 2:
        return nmu_sparsity(k, p)
    largest = 0.0
    for i in range(p.size):
        s = 1 / (1 + math.exp(-p[i]))
        distance = min(s, 1 - s)
        largest = distance if not distance <= largest else largest
    return largest


class NMU(NamedTuple):
    """Neural Multiplication Unit."""

    unused: int = 0


@njit(**SAFE)
def nmu_forward(k: Any, p: Any, x: Any, noise: Any, training: Any, t: Any, w: Any, y: Any) -> None:
    product(p, x, t, y)


@njit(**SAFE)
def nmu_backward(k: Any, p: Any, x: Any, noise: Any, training: Any, t: Any, w: Any, y: Any, dy: Any, g: Any) -> None:
    product_back(p, x, t, dy, g)


@njit(**SAFE)
def nmu_pull(k: Any, p: Any, x: Any, noise: Any, training: Any, t: Any, w: Any, y: Any, dy: Any, gx: Any) -> None:
    product_pull(p, x, t, dy, gx)


@njit(**SAFE)
def nmu_penalise(k: Any, p: Any, strength: Any, gate_strength: Any, g: Any) -> None:
    pull_to_bits(p, strength, g)


@njit(**SAFE)
def nmu_project(k: Any, p: Any) -> None:
    clip_box(p, p.dtype.type(0), p.dtype.type(1))


@njit(**SAFE)
def nmu_sparsity(k: Any, p: Any) -> Any:
    largest = 0.0
    for i in range(p.size):
        size = min(max(p[i], 0), 1)
        distance = min(size, 1 - size)
        largest = distance if not distance <= largest else largest
    return largest


class SNMU(NamedTuple):
    """Stochastic NMU with noise between low and high."""

    low: float = 1.0
    high: float = 5.0


class SNMUBatch(NamedTuple):
    """Stochastic NMU whose noise follows the spread of the batch."""

    unused: int = 0


@njit(**SAFE)
def _noised(low: Any, width: Any, uniform: Any, noise: Any) -> None:
    for b in range(noise.size):
        noise[b] = low + width * uniform[b]


@njit(**SAFE)
def _noised_factor(x: Any, w: Any, noise: Any, factor: Any, before: Any, after: Any) -> None:
    """Factor = (w noise x + 1 - w) / (w noise + 1 - w), after = before * factor."""
    rest = x.dtype.type(1) - w
    for b in range(after.size):
        factor[b] = (w * (noise[b] * x[b]) + rest) / (w * noise[b] + rest)
        after[b] = before[b] * factor[b]


@njit(**SUMS)
def _noised_factor_back(x: Any, w: Any, noise: Any, factor: Any, before: Any, pull: Any) -> Any:
    """Gradient of one weight; `pull` is multiplied by the factor for the next one."""
    one, total = x.dtype.type(1), x.dtype.type(0)
    rest = one - w
    for b in range(pull.size):
        below = w * noise[b] + rest
        total += pull[b] * before[b] * noise[b] * (x[b] - one) / (below * below)
        pull[b] *= factor[b]
    return total


@njit(**SAFE)
def _noised_factor_pull(w: Any, noise: Any, factor: Any, before: Any, running: Any, out: Any) -> None:
    """Gradient of one input; `running` is multiplied by the factor for the next one."""
    rest = factor.dtype.type(1) - w
    for b in range(out.size):
        out[b] = running[b] * before[b] * w * noise[b] / (w * noise[b] + rest)
        running[b] *= factor[b]


@njit(**SAFE)
def _snmu_forward(p: Any, x: Any, low: Any, width: Any, noise: Any, t: Any, y: Any) -> None:
    """Each factor is divided on its own, so that thousands of noises cannot overflow; t: noises, factors, products before."""
    n = x.shape[0]
    fill_row(p.dtype.type(1), t[2 * n])
    for i in range(n):
        _noised(low, width, noise[i], t[i])
        after = t[2 * n + i + 1] if i + 1 < n else y
        _noised_factor(x[i], p[i], t[i], t[n + i], t[2 * n + i], after)


@njit(**SAFE)
def snmu_forward(k: Any, p: Any, x: Any, noise: Any, training: Any, t: Any, w: Any, y: Any) -> None:
    if training and x.size > 1:
        _snmu_forward(p, x, p.dtype.type(k.low), p.dtype.type(k.high - k.low), noise, t, y)
    else:
        product(p, x, t, y)


@njit(**SUMS)
def _spread(x: Any) -> Any:
    """Unbiased standard deviation of all elements."""
    total = 0.0
    for i in range(x.shape[0]):
        for b in range(x.shape[1]):
            total += x[i, b]
    mean, squares = total / x.size, 0.0
    for i in range(x.shape[0]):
        for b in range(x.shape[1]):
            squares += (x[i, b] - mean) ** 2
    return math.sqrt(squares / (x.size - 1))


@njit(**SAFE)
def snmu_batch_forward(k: Any, p: Any, x: Any, noise: Any, training: Any, t: Any, w: Any, y: Any) -> None:
    if training and x.size > 1:
        width = p.dtype.type(1 / max(_spread(x), EPS32))
        _snmu_forward(p, x, p.dtype.type(1), width, noise, t, y)
    else:
        product(p, x, t, y)


@njit(**SAFE)
def snmu_backward(k: Any, p: Any, x: Any, noise: Any, training: Any, t: Any, w: Any, y: Any, dy: Any, g: Any) -> None:
    if not training or x.size < 2:
        product_back(p, x, t, dy, g)
        return
    n = x.shape[0]
    for i in range(n - 1, -1, -1):
        g[i] += _noised_factor_back(x[i], p[i], t[i], t[n + i], t[2 * n + i], dy)


@njit(**SAFE)
def snmu_pull(k: Any, p: Any, x: Any, noise: Any, training: Any, t: Any, w: Any, y: Any, dy: Any, gx: Any) -> None:
    if not training or x.size < 2:
        product_pull(p, x, t, dy, gx)
        return
    n = x.shape[0]
    copy_row(dy, gx[n])
    for i in range(n - 1, -1, -1):
        _noised_factor_pull(p[i], t[i], t[n + i], t[2 * n + i], gx[n], gx[i])


class StgNMU(NamedTuple):
    """NMU with stochastic gates."""

    sigma: float = 0.5


@njit(**SAFE)
def stgnmu_forward(k: Any, p: Any, x: Any, noise: Any, training: Any, t: Any, w: Any, y: Any) -> None:
    zero, one, sigma = p.dtype.type(0), p.dtype.type(1), p.dtype.type(k.sigma)
    for i in range(p.size):
        gate = p[i] + sigma * noise[i, 0] if training else p[i]
        w[1, i] = one if zero <= gate <= one else zero
        w[0, i] = min(max(gate, zero), one)
    product(w[0, : p.size], x, t, y)


@njit(**SAFE)
def stgnmu_backward(k: Any, p: Any, x: Any, noise: Any, training: Any, t: Any, w: Any, y: Any, dy: Any, g: Any) -> None:
    fill_row(p.dtype.type(0), w[2])
    product_back(w[0, : p.size], x, t, dy, w[2])
    for i in range(p.size):
        g[i] += w[1, i] * w[2, i]


@njit(**SAFE)
def stgnmu_pull(k: Any, p: Any, x: Any, noise: Any, training: Any, t: Any, w: Any, y: Any, dy: Any, gx: Any) -> None:
    product_pull(w[0, : p.size], x, t, dy, gx)


@njit(**SAFE)
def stgnmu_penalise(k: Any, p: Any, strength: Any, gate_strength: Any, g: Any) -> None:
    for i in range(p.size):
        z = p[i] / k.sigma
        g[i] += strength * math.exp(-0.5 * z * z) / (math.sqrt(2 * math.pi) * k.sigma)
