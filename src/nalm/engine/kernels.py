"""Forward and backward passes of the built-in modules with one output, hand-derived, for the fused engine.

A kernel is a named tuple of the module's options; its type selects, at compile time, the functions registered for it below.
All functions work on plain arrays in the precision of the parameters: `p` the parameters, flattened in the order of
`module.parameters()`; `x` (inputs, rows) a batch with inputs as rows, so that every inner loop runs over contiguous samples;
`t` scratch of shape (rows of scratch, rows). Inner loops are functions of their own: LLVM then vectorises them before it
inlines them. The torch module is the definition; the tests compare values and gradients with it.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numba.extending import overload

from nalm.engine.vector import SAFE, exp_, log_, log_magnitude, sigmoid_, sincos, tanh_

__all__ = ["KERNELS", "Kernel", "backward", "forward", "penalise", "project", "sparsity"]

SUMS = {**SAFE, "fastmath": {"contract", "reassoc", "nsz"}}
"""Compiler options of loops that sum: the order of additions is free, NaN and infinity are not assumed away."""

LOG_EPSILON = 1e-7
CAP = 20.0
LOG_GOLDEN_RATIO = math.log((1 + math.sqrt(5)) / 2)


# ---------------------------------------------------------------------------------------------------------------------
# Inner loops over the samples of a batch


@njit(**SAFE)
def _fill(value: Any, out: Any) -> None:
    for b in range(out.size):
        out[b] = value


@njit(**SAFE)
def _copy(x: Any, out: Any) -> None:
    for b in range(out.size):
        out[b] = x[b]


@njit(**SAFE)
def _add_scaled(w: Any, x: Any, out: Any) -> None:
    for b in range(out.size):
        out[b] += w * x[b]


@njit(**SAFE)
def _scaled(w: Any, x: Any, out: Any) -> None:
    for b in range(out.size):
        out[b] = w * x[b]


@njit(**SAFE)
def _weighted_sum(w: Any, x: Any, out: Any) -> None:
    """Out = sum_i w_i x_i over the rows of x."""
    _scaled(w[0], x[0], out)
    for i in range(1, x.shape[0]):
        _add_scaled(w[i], x[i], out)


@njit(**SAFE)
def _multiply(x: Any, y: Any, out: Any) -> None:
    for b in range(out.size):
        out[b] = x[b] * y[b]


@njit(**SAFE)
def _scale_by(x: Any, out: Any) -> None:
    for b in range(out.size):
        out[b] *= x[b]


@njit(**SAFE)
def _rescale(w: Any, out: Any) -> None:
    for b in range(out.size):
        out[b] *= w


@njit(**SUMS)
def _dot(x: Any, y: Any) -> Any:
    total = x.dtype.type(0)
    for b in range(x.size):
        total += x[b] * y[b]
    return total


@njit(**SAFE)
def _magnitudes(x: Any, offset: Any, out: Any) -> None:
    for b in range(out.size):
        out[b] = abs(x[b]) + offset


@njit(**SAFE)
def _floored_magnitudes(x: Any, floor: Any, out: Any) -> None:
    for b in range(out.size):
        size = abs(x[b])
        out[b] = floor if size < floor else size


@njit(**SAFE)
def _signs(x: Any, out: Any) -> None:
    one, zero = x.dtype.type(1), x.dtype.type(0)
    for b in range(out.size):
        out[b] = one if x[b] > zero else (-one if x[b] < zero else zero)


@njit(**SAFE)
def _reciprocals(x: Any, epsilon: Any, out: Any) -> None:
    one = x.dtype.type(1)
    for b in range(out.size):
        out[b] = one / (x[b] + epsilon)


@njit(**SAFE)
def _mixed_factor(x: Any, w: Any, before: Any, after: Any) -> None:
    """After = before * (w x + 1 - w)."""
    rest = x.dtype.type(1) - w
    for b in range(after.size):
        after[b] = before[b] * (w * x[b] + rest)


@njit(**SUMS)
def _mixed_factor_back(x: Any, w: Any, before: Any, pull: Any) -> Any:
    """Gradient of one weight of a product of w x + 1 - w; `pull` is multiplied by the factor for the next one."""
    one = x.dtype.type(1)
    rest, total = one - w, x.dtype.type(0)
    for b in range(pull.size):
        total += pull[b] * before[b] * (x[b] - one)
        pull[b] *= w * x[b] + rest
    return total


@njit(**SAFE)
def _product(w: Any, x: Any, prefix: Any, y: Any) -> None:
    """Y = prod_i (w_i x_i + 1 - w_i), with the products of the factors before each in `prefix`."""
    _fill(x.dtype.type(1), prefix[0])
    last = w.size - 1
    for i in range(last):
        _mixed_factor(x[i], w[i], prefix[i], prefix[i + 1])
    _mixed_factor(x[last], w[last], prefix[last], y)


@njit(**SAFE)
def _product_back(w: Any, x: Any, prefix: Any, pull: Any, g: Any) -> None:
    """Gradients of the weights of `_product`; `pull` (the gradient of y) is used up."""
    for i in range(w.size - 1, -1, -1):
        g[i] += _mixed_factor_back(x[i], w[i], prefix[i], pull)


@njit(**SAFE)
def _nac_weights(p: Any, n: Any, base: Any, w: Any) -> None:
    """Rows of `w`: weight, tanh and sigmoid of n raw weights p[:n] and p[n:2n], with the logarithm of their base."""
    for i in range(n):
        w[1, i] = base * p[i]
        w[2, i] = base * p[n + i]
    tanh_(w[1, :n])
    sigmoid_(w[2, :n])
    for i in range(n):
        w[0, i] = w[1, i] * w[2, i]


@njit(**SAFE)
def _nac_back(w: Any, n: Any, base: Any, gw: Any, g: Any) -> None:
    """From the gradient of a NAC weight to those of its raw weights, added to g[:n] and g[n:2n]."""
    one = w.dtype.type(1)
    for i in range(n):
        t, s = w[1, i], w[2, i]
        g[i] += gw[i] * base * (one - t * t) * s
        g[n + i] += gw[i] * base * t * s * (one - s)


# ---------------------------------------------------------------------------------------------------------------------
# What draws parameters to their targets, in the form of gradients


@njit(**SAFE)
def _pull_to_integers(w: Any, strength: Any, g: Any) -> None:
    """Gradient of strength * mean(min(|w|, |1 - |w||))."""
    share = strength / w.size
    for i in range(w.size):
        size = abs(w[i])
        rest = abs(1 - size)
        side = 1 if w[i] > 0 else (-1 if w[i] < 0 else 0)
        if size < rest:
            g[i] += share * side
        elif size > rest:
            g[i] += share * side * (-1 if size < 1 else (1 if size > 1 else 0))


@njit(**SAFE)
def _pull_to_bits(w: Any, strength: Any, g: Any) -> None:
    """Gradient of strength * mean(min(|w|, |1 - w|))."""
    share = strength / w.size
    for i in range(w.size):
        size, rest = abs(w[i]), abs(1 - w[i])
        if size < rest:
            g[i] += share * (1 if w[i] > 0 else (-1 if w[i] < 0 else 0))
        elif size > rest:
            g[i] -= share * (1 if w[i] < 1 else (-1 if w[i] > 1 else 0))


@njit(**SAFE)
def _pull_to_ones(w: Any, strength: Any, g: Any) -> None:
    """Gradient of strength * mean(|1 - |w||)."""
    share = strength / w.size
    for i in range(w.size):
        side = 1 if w[i] > 0 else (-1 if w[i] < 0 else 0)
        g[i] += share * side * (-1 if abs(w[i]) < 1 else (1 if abs(w[i]) > 1 else 0))


@njit(**SAFE)
def _pull_to_saturation(w: Any, strength: Any, g: Any) -> None:
    """Gradient of strength * mean(max(20 - |w|, 0))."""
    share = strength / w.size
    for i in range(w.size):
        if abs(w[i]) <= 20:
            g[i] -= share * (1 if w[i] > 0 else (-1 if w[i] < 0 else 0))


@njit(**SAFE)
def _clip(p: Any, low: Any, high: Any) -> None:
    for i in range(p.size):
        p[i] = low if p[i] < low else (high if p[i] > high else p[i])


@njit(**SAFE)
def _largest_distance(w: Any) -> Any:
    """Largest distance of a value to the nearest of -1, 0, 1."""
    largest = 0.0
    for i in range(w.size):
        size = abs(w[i])
        distance = min(size, abs(1 - size))
        largest = distance if not distance <= largest else largest
    return largest


# ---------------------------------------------------------------------------------------------------------------------
# Kernels. `forward(k, p, x, noise, training, t, w, y)` writes y and keeps what backward needs in t (scratch over samples)
# and w (scratch over weights); `backward(k, p, x, noise, training, t, w, y, dy, g)` adds to g, and may use dy up.


class NAU(NamedTuple):
    """Neural Addition Unit."""

    unused: int = 0


@njit(**SAFE)
def nau_forward(k: Any, p: Any, x: Any, noise: Any, training: Any, t: Any, w: Any, y: Any) -> None:
    one = p.dtype.type(1)
    _fill(p.dtype.type(0), y)
    for i in range(p.size):
        _add_scaled(min(max(p[i], -one), one), x[i], y)


@njit(**SAFE)
def nau_backward(k: Any, p: Any, x: Any, noise: Any, training: Any, t: Any, w: Any, y: Any, dy: Any, g: Any) -> None:
    for i in range(p.size):
        if abs(p[i]) <= 1:
            g[i] += _dot(dy, x[i])


@njit(**SAFE)
def nau_penalise(k: Any, p: Any, strength: Any, gate_strength: Any, g: Any) -> None:
    _pull_to_integers(p, strength, g)


@njit(**SAFE)
def nau_project(k: Any, p: Any) -> None:
    _clip(p, p.dtype.type(-1), p.dtype.type(1))


@njit(**SAFE)
def nau_sparsity(k: Any, p: Any) -> Any:
    largest = 0.0
    for i in range(p.size):
        size = min(abs(p[i]), 1)
        distance = min(size, 1 - size)
        largest = distance if not distance <= largest else largest
    return largest


class NACAdd(NamedTuple):
    """Additive Neural Accumulator."""

    unused: int = 0


@njit(**SAFE)
def nac_add_forward(k: Any, p: Any, x: Any, noise: Any, training: Any, t: Any, w: Any, y: Any) -> None:
    n = x.shape[0]
    _nac_weights(p, n, p.dtype.type(1), w)
    _weighted_sum(w[0], x, y)


@njit(**SAFE)
def nac_add_backward(k: Any, p: Any, x: Any, noise: Any, training: Any, t: Any, w: Any, y: Any, dy: Any, g: Any) -> None:
    n = x.shape[0]
    for i in range(n):
        w[3, i] = _dot(dy, x[i])
    _nac_back(w, n, p.dtype.type(1), w[3], g)


@njit(**SAFE)
def _nac_sparsity(p: Any, n: Any, base: Any) -> Any:
    largest = 0.0
    for i in range(n):
        size = abs(math.tanh(base * p[i]) / (1 + math.exp(-base * p[n + i])))
        distance = min(size, abs(1 - size))
        largest = distance if not distance <= largest else largest
    return largest


@njit(**SAFE)
def _nac_penalise(p: Any, n: Any, base: Any, strength: Any, g: Any) -> None:
    """Gradient of strength * mean(min(|w|, |1 - |w||)) through w = tanh sigmoid."""
    for i in range(n):
        t, s = math.tanh(base * p[i]), 1 / (1 + math.exp(-base * p[n + i]))
        size = abs(t * s)
        side = (1 if t > 0 else (-1 if t < 0 else 0)) * (1 if size < 0.5 else (-1 if size > 0.5 else 0))
        pull = strength / n * side * base
        g[i] += pull * (1 - t * t) * s
        g[n + i] += pull * t * s * (1 - s)


@njit(**SAFE)
def nac_penalise(k: Any, p: Any, strength: Any, gate_strength: Any, g: Any) -> None:
    _nac_penalise(p, p.size // 2, 1.0, strength, g)


@njit(**SAFE)
def free_project(k: Any, p: Any) -> None:
    """Nothing to clip."""


@njit(**SAFE)
def nac_sparsity(k: Any, p: Any) -> Any:
    return _nac_sparsity(p, p.size // 2, 1.0)


class NACMul(NamedTuple):
    """Multiplicative Neural Accumulator."""

    unused: int = 0


@njit(**SAFE)
def _log_magnitudes(x: Any, t: Any) -> None:
    """Rows of t: ln(|x_i| + 1e-7)."""
    for i in range(x.shape[0]):
        log_magnitude(x[i], x.dtype.type(LOG_EPSILON), t[i])


@njit(**SAFE)
def nac_mul_forward(k: Any, p: Any, x: Any, noise: Any, training: Any, t: Any, w: Any, y: Any) -> None:
    n = x.shape[0]
    _nac_weights(p, n, p.dtype.type(1), w)
    _log_magnitudes(x, t)
    _weighted_sum(w[0], t[:n], y)
    exp_(y)


@njit(**SAFE)
def nac_mul_backward(k: Any, p: Any, x: Any, noise: Any, training: Any, t: Any, w: Any, y: Any, dy: Any, g: Any) -> None:
    n = x.shape[0]
    _scale_by(y, dy)
    for i in range(n):
        w[3, i] = _dot(dy, t[i])
    _nac_back(w, n, p.dtype.type(1), w[3], g)


class NALU(NamedTuple):
    """NALU, or G-NALU with the logarithm of the golden ratio as `log_base`."""

    log_base: float = 1.0


@njit(**SAFE)
def _mix(gate: Any, additive: Any, multiplicative: Any, y: Any) -> None:
    one = y.dtype.type(1)
    for b in range(y.size):
        y[b] = gate[b] * additive[b] + (one - gate[b]) * multiplicative[b]


@njit(**SAFE)
def _mix_back(gate: Any, additive: Any, multiplicative: Any, base: Any, dy: Any) -> None:
    """Replace gate, additive path and product by the gradients of the gate's argument, of the sum and of the exponent."""
    one = dy.dtype.type(1)
    for b in range(dy.size):
        s, a, m, pull = gate[b], additive[b], multiplicative[b], dy[b]
        gate[b] = pull * (a - m) * s * (one - s) * base
        additive[b] = pull * s
        multiplicative[b] = pull * (one - s) * m


@njit(**SAFE)
def nalu_forward(k: Any, p: Any, x: Any, noise: Any, training: Any, t: Any, w: Any, y: Any) -> None:
    n = x.shape[0]
    base = p.dtype.type(k.log_base)
    _nac_weights(p, n, base, w)
    _log_magnitudes(x, t)
    gate, additive, multiplicative = t[n], t[n + 1], t[n + 2]
    for i in range(n):
        w[4, i] = base * p[2 * n + i]
    _weighted_sum(w[0], x, additive)
    _weighted_sum(w[0], t[:n], multiplicative)
    _weighted_sum(w[4], x, gate)
    exp_(multiplicative)
    sigmoid_(gate)
    _mix(gate, additive, multiplicative, y)


@njit(**SAFE)
def nalu_backward(k: Any, p: Any, x: Any, noise: Any, training: Any, t: Any, w: Any, y: Any, dy: Any, g: Any) -> None:
    n = x.shape[0]
    base = p.dtype.type(k.log_base)
    gate, additive, multiplicative = t[n], t[n + 1], t[n + 2]
    _mix_back(gate, additive, multiplicative, base, dy)
    for i in range(n):
        w[3, i] = _dot(additive, x[i]) + _dot(multiplicative, t[i])
        g[2 * n + i] += _dot(gate, x[i])
    _nac_back(w, n, base, w[3], g)


@njit(**SAFE)
def nalu_penalise(k: Any, p: Any, strength: Any, gate_strength: Any, g: Any) -> None:
    _nac_penalise(p, p.size // 3, k.log_base, strength, g)


@njit(**SAFE)
def nalu_sparsity(k: Any, p: Any) -> Any:
    return _nac_sparsity(p, p.size // 3, k.log_base)


class INALU(NamedTuple):
    """Improved NALU; parameters: raw gate, then raw weights of the sum, then those of the product."""

    unused: int = 0


@njit(**SAFE)
def _capped_exponential(exponent: Any, out: Any) -> None:
    """Out = exp(min(exponent, 20)), with `exponent` replaced by one where the cap is not reached, else zero."""
    one, zero, cap = out.dtype.type(1), out.dtype.type(0), out.dtype.type(CAP)
    for b in range(out.size):
        out[b] = cap if exponent[b] > cap else exponent[b]
        exponent[b] = zero if exponent[b] > cap else one
    exp_(out)


@njit(**SAFE)
def _weigh_paths(gate: Any, additive: Any, size: Any, sign: Any, y: Any) -> None:
    rest = y.dtype.type(1) - gate
    for b in range(y.size):
        y[b] = gate * additive[b] + rest * size[b] * sign[b]


@njit(**SAFE)
def inalu_forward(k: Any, p: Any, x: Any, noise: Any, training: Any, t: Any, w: Any, y: Any) -> None:
    n = x.shape[0]
    one = p.dtype.type(1)
    add, mul = w[0:4], w[4:8]
    _nac_weights(p[1:], n, one, add)
    _nac_weights(p[1 + 2 * n :], n, one, mul)
    logs, signs, prefix = t[0:n], t[n : 2 * n], t[2 * n : 3 * n]
    additive, exponent, sign, size = t[3 * n], t[3 * n + 1], t[3 * n + 2], t[3 * n + 3]
    for i in range(n):
        _floored_magnitudes(x[i], p.dtype.type(LOG_EPSILON), logs[i])
        log_(logs[i])
        _signs(x[i], signs[i])
        mul[3, i] = abs(mul[0, i])
    _weighted_sum(add[0], x, additive)
    _weighted_sum(mul[0], logs, exponent)
    _product(mul[3, :n], signs, prefix, sign)
    _capped_exponential(exponent, size)
    w[8, 0] = one / (one + math.exp(-p[0]))
    _weigh_paths(w[8, 0], additive, size, sign, y)


@njit(**SUMS)
def _gate_pull(additive: Any, size: Any, sign: Any, dy: Any) -> Any:
    total = dy.dtype.type(0)
    for b in range(dy.size):
        total += dy[b] * (additive[b] - size[b] * sign[b])
    return total


@njit(**SAFE)
def _product_path_back(free: Any, size: Any, sign: Any, rest: Any, dy: Any) -> None:
    """`size` becomes the gradient of the exponent, `sign` that of the product of signs."""
    for b in range(dy.size):
        pull = dy[b] * rest * size[b]
        size[b] = pull * sign[b] * free[b]
        sign[b] = pull


@njit(**SAFE)
def inalu_backward(k: Any, p: Any, x: Any, noise: Any, training: Any, t: Any, w: Any, y: Any, dy: Any, g: Any) -> None:
    n = x.shape[0]
    one = p.dtype.type(1)
    add, mul = w[0:4], w[4:8]
    logs, signs, prefix = t[0:n], t[n : 2 * n], t[2 * n : 3 * n]
    additive, free, sign, size = t[3 * n], t[3 * n + 1], t[3 * n + 2], t[3 * n + 3]
    gate = w[8, 0]
    g[0] += _gate_pull(additive, size, sign, dy) * gate * (one - gate)
    for i in range(n):
        add[3, i] = gate * _dot(dy, x[i])
    _nac_back(add, n, one, add[3], g[1:])
    _product_path_back(free, size, sign, one - gate, dy)
    for i in range(n - 1, -1, -1):
        share = abs(mul[0, i])
        side = one if mul[0, i] > 0 else (-one if mul[0, i] < 0 else share)
        mul[3, i] = _dot(size, logs[i]) + side * _mixed_factor_back(signs[i], share, prefix[i], sign)
    _nac_back(mul, n, one, mul[3], g[1 + 2 * n :])


@njit(**SAFE)
def inalu_penalise(k: Any, p: Any, strength: Any, gate_strength: Any, g: Any) -> None:
    n = (p.size - 1) // 4
    _pull_to_saturation(p[:1], gate_strength, g[:1])
    for part in range(4):
        ends = (1 + part * n, 1 + (part + 1) * n)
        _pull_to_saturation(p[ends[0] : ends[1]], strength, g[ends[0] : ends[1]])


@njit(**SAFE)
def inalu_sparsity(k: Any, p: Any) -> Any:
    n = (p.size - 1) // 4
    return (_nac_sparsity(p[1:], n, 1.0) + _nac_sparsity(p[1 + 2 * n :], n, 1.0)) / 2


class NMU(NamedTuple):
    """Neural Multiplication Unit."""

    unused: int = 0


@njit(**SAFE)
def nmu_forward(k: Any, p: Any, x: Any, noise: Any, training: Any, t: Any, w: Any, y: Any) -> None:
    _product(p, x, t, y)


@njit(**SAFE)
def nmu_backward(k: Any, p: Any, x: Any, noise: Any, training: Any, t: Any, w: Any, y: Any, dy: Any, g: Any) -> None:
    _product_back(p, x, t, dy, g)


@njit(**SAFE)
def nmu_penalise(k: Any, p: Any, strength: Any, gate_strength: Any, g: Any) -> None:
    _pull_to_bits(p, strength, g)


@njit(**SAFE)
def nmu_project(k: Any, p: Any) -> None:
    _clip(p, p.dtype.type(0), p.dtype.type(1))


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
def _noised(x: Any, low: Any, width: Any, uniform: Any, noise: Any, out: Any) -> None:
    for b in range(out.size):
        noise[b] = low + width * uniform[b]
        out[b] = noise[b] * x[b]


@njit(**SAFE)
def _divide(top: Any, bottom: Any, y: Any) -> None:
    for b in range(y.size):
        y[b] = top[b] / bottom[b]


@njit(**SAFE)
def _divide_back(bottom: Any, y: Any, dy: Any) -> None:
    """Dy becomes the gradient of the numerator, `bottom` that of the denominator."""
    for b in range(dy.size):
        dy[b] = dy[b] / bottom[b]
        bottom[b] = -dy[b] * y[b]


@njit(**SAFE)
def _snmu_forward(p: Any, x: Any, low: Any, width: Any, noise: Any, t: Any, y: Any) -> None:
    n = x.shape[0]
    for i in range(n):
        _noised(x[i], low, width, noise[i], t[i], t[n + i])
    top, bottom = t[4 * n], t[4 * n + 1]
    _product(p, t[n : 2 * n], t[2 * n : 3 * n], top)
    _product(p, t[0:n], t[3 * n : 4 * n], bottom)
    _divide(top, bottom, y)


@njit(**SAFE)
def snmu_forward(k: Any, p: Any, x: Any, noise: Any, training: Any, t: Any, w: Any, y: Any) -> None:
    if training and x.size > 1:
        _snmu_forward(p, x, p.dtype.type(k.low), p.dtype.type(k.high - k.low), noise, t, y)
    else:
        _product(p, x, t, y)


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
        width = p.dtype.type(1 / max(_spread(x), 1.1920928955078125e-07))
        _snmu_forward(p, x, p.dtype.type(1), width, noise, t, y)
    else:
        _product(p, x, t, y)


@njit(**SAFE)
def snmu_backward(k: Any, p: Any, x: Any, noise: Any, training: Any, t: Any, w: Any, y: Any, dy: Any, g: Any) -> None:
    if not training or x.size < 2:
        _product_back(p, x, t, dy, g)
        return
    n = x.shape[0]
    bottom = t[4 * n + 1]
    _divide_back(bottom, y, dy)
    _product_back(p, t[n : 2 * n], t[2 * n : 3 * n], dy, g)
    _product_back(p, t[0:n], t[3 * n : 4 * n], bottom, g)


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
    _product(w[0, : p.size], x, t, y)


@njit(**SAFE)
def stgnmu_backward(k: Any, p: Any, x: Any, noise: Any, training: Any, t: Any, w: Any, y: Any, dy: Any, g: Any) -> None:
    _fill(p.dtype.type(0), w[2])
    _product_back(w[0, : p.size], x, t, dy, w[2])
    for i in range(p.size):
        g[i] += w[1, i] * w[2, i]


@njit(**SAFE)
def stgnmu_penalise(k: Any, p: Any, strength: Any, gate_strength: Any, g: Any) -> None:
    for i in range(p.size):
        z = p[i] / k.sigma
        g[i] += strength * math.exp(-0.5 * z * z) / (math.sqrt(2 * math.pi) * k.sigma)


class NRU(NamedTuple):
    """Neural Reciprocal Unit; with `separate`, the sign is computed apart from the magnitude."""

    separate: int = 0
    tanh_scale: float = 1000.0


@njit(**SUMS)
def _power_factor_back(power: Any, log: Any, a: Any, slope: Any, before: Any, pull: Any) -> Any:
    """Gradient of one exponent; `slope` is that of the amount a."""
    one = power.dtype.type(1)
    rest, total = one - a, power.dtype.type(0)
    for b in range(pull.size):
        total += pull[b] * before[b] * (a * power[b] * log[b] + (power[b] - one) * slope)
        pull[b] *= a * power[b] + rest
    return total


@njit(**SAFE)
def nru_forward(k: Any, p: Any, x: Any, noise: Any, training: Any, t: Any, w: Any, y: Any) -> None:
    n = x.shape[0]
    one, scale = p.dtype.type(1), p.dtype.type(k.tanh_scale)
    logs, powers, prefix, sign = t[0:n], t[n : 2 * n], t[2 * n : 3 * n], t[3 * n]
    for i in range(n):
        w[1, i] = scale * p[i]
    tanh_(w[1, :n])
    for i in range(n):
        w[0, i] = w[1, i] * w[1, i] if training else abs(p[i])
    _fill(one, prefix[0])
    _fill(one, sign)
    for i in range(n):
        _magnitudes(x[i], p.dtype.type(0), logs[i])
        log_(logs[i])
        _scaled(p[i], logs[i], powers[i])
        exp_(powers[i])
        if k.separate:
            if abs(np.rint(p[i])) > 0:
                _multiply_by_sign(x[i], sign)
        else:
            _multiply_by_sign(x[i], powers[i])
        after = prefix[i + 1] if i + 1 < n else y
        _amount_factor(powers[i], w[0, i], prefix[i], after)
    if k.separate:
        _scale_by(sign, y)


@njit(**SAFE)
def _multiply_by_sign(x: Any, out: Any) -> None:
    one, zero = x.dtype.type(1), x.dtype.type(0)
    for b in range(out.size):
        out[b] *= one if x[b] > zero else (-one if x[b] < zero else zero)


@njit(**SAFE)
def _amount_factor(power: Any, a: Any, before: Any, after: Any) -> None:
    """After = before * (a power + 1 - a)."""
    rest = power.dtype.type(1) - a
    for b in range(after.size):
        after[b] = before[b] * (a * power[b] + rest)


@njit(**SAFE)
def nru_backward(k: Any, p: Any, x: Any, noise: Any, training: Any, t: Any, w: Any, y: Any, dy: Any, g: Any) -> None:
    n = x.shape[0]
    one, two, scale = p.dtype.type(1), p.dtype.type(2), p.dtype.type(k.tanh_scale)
    logs, powers, prefix, sign = t[0:n], t[n : 2 * n], t[2 * n : 3 * n], t[3 * n]
    if k.separate:
        _scale_by(sign, dy)
    for i in range(n - 1, -1, -1):
        if training:
            slope = two * w[1, i] * (one - w[1, i] * w[1, i]) * scale
        else:
            slope = one if p[i] > 0 else (-one if p[i] < 0 else p[i])
        g[i] += _power_factor_back(powers[i], logs[i], w[0, i], slope, prefix[i], dy)


class NMRU(NamedTuple):
    """NMRU; without `signed`, the plain product; with `gated`, a gate on inputs and reciprocals after the weights."""

    signed: int = 1
    gated: int = 0


@njit(**SAFE)
def _add_if_negative(w: Any, x: Any, out: Any) -> None:
    zero = x.dtype.type(0)
    for b in range(out.size):
        out[b] += w if x[b] < zero else zero


@njit(**SAFE)
def nmru_forward(k: Any, p: Any, x: Any, noise: Any, training: Any, t: Any, w: Any, y: Any) -> None:
    n = x.shape[0]
    m = 2 * n
    values, sizes, prefix = t[0:m], t[m : 2 * m], t[2 * m : 3 * m]
    angle, sine, cosine, size = t[3 * m], t[3 * m + 1], t[3 * m + 2], t[3 * m + 3]
    epsilon = p.dtype.type(1.1920928955078125e-07) if training else p.dtype.type(0)
    for i in range(n):
        _copy(x[i], values[i])
        _reciprocals(x[i], epsilon, values[n + i])
    if k.gated:
        for i in range(m):
            _rescale(p[m + i], values[i])
    if not k.signed:
        _product(p[:m], values, prefix, y)
        return
    turning = _any_negative(values)
    w[1, 0] = p.dtype.type(1) if turning else p.dtype.type(0)
    for i in range(m):
        _magnitudes(values[i], p.dtype.type(0), sizes[i])
    if not turning:
        _product(p[:m], sizes, prefix, y)
        return
    _fill(p.dtype.type(0), angle)
    for i in range(m):
        _add_if_negative(p[i] * p.dtype.type(math.pi), values[i], angle)
    sincos(angle, sine, cosine)
    _product(p[:m], sizes, prefix, size)
    _multiply(size, cosine, y)


@njit(**SUMS)
def _gated_factor_back(size: Any, w: Any, gate: Any, before: Any, pull: Any) -> Any:
    """Gradient of a gate on a factor w size + 1 - w, where size is |gate z|; to be called before the weight's."""
    total = size.dtype.type(0)
    for b in range(pull.size):
        total += pull[b] * before[b] * size[b]
    return total * w / gate


@njit(**SUMS)
def _angle_back(dy: Any, size: Any, sine: Any, z: Any) -> Any:
    """Gradient of a weight through the sign: -sum dy size sin(angle) [z < 0], to be multiplied by pi."""
    zero, total = dy.dtype.type(0), dy.dtype.type(0)
    for b in range(dy.size):
        total -= dy[b] * size[b] * sine[b] if z[b] < zero else zero
    return total


@njit(**SAFE)
def nmru_backward(k: Any, p: Any, x: Any, noise: Any, training: Any, t: Any, w: Any, y: Any, dy: Any, g: Any) -> None:
    m = 2 * x.shape[0]
    values, sizes, prefix = t[0:m], t[m : 2 * m], t[2 * m : 3 * m]
    sine, cosine, size = t[3 * m + 1], t[3 * m + 2], t[3 * m + 3]
    if not k.signed:
        _product_back(p[:m], values, prefix, dy, g)
        return
    if w[1, 0] > 0:
        for i in range(m):
            g[i] += p.dtype.type(math.pi) * _angle_back(dy, size, sine, values[i])
        _scale_by(cosine, dy)
    for i in range(m - 1, -1, -1):
        if k.gated and p[m + i] != 0:
            g[m + i] += _gated_factor_back(sizes[i], p[i], p[m + i], prefix[i], dy)
        g[i] += _mixed_factor_back(sizes[i], p[i], prefix[i], dy)


@njit(**SAFE)
def nmru_penalise(k: Any, p: Any, strength: Any, gate_strength: Any, g: Any) -> None:
    if k.gated:
        m = p.size // 2
        _pull_to_bits(p[:m], strength, g[:m])
        _pull_to_bits(p[m:], gate_strength, g[m:])
    else:
        _pull_to_bits(p, strength, g)


@njit(**SAFE)
def nmru_sparsity(k: Any, p: Any) -> Any:
    return nmu_sparsity(k, p[: p.size // 2] if k.gated else p)


class NPU(NamedTuple):
    """NPU (`complex`) or Real NPU; parameters: real exponents, gate, imaginary exponents."""

    complex: int = 0
    bounded: int = 0
    clip_gate: int = 0
    skip_zero_weight: int = 0
    bounded_imaginary: int = 0
    epsilon: float = 1.1920928955078125e-07


@njit(**SAFE)
def _gated_magnitude(x: Any, gate: Any, epsilon: Any, out: Any) -> None:
    rest = x.dtype.type(1) - gate
    for b in range(out.size):
        out[b] = gate * (abs(x[b]) + epsilon) + rest


@njit(**SUMS)
def _any_negative(x: Any) -> Any:
    count = 0
    for i in range(x.shape[0]):
        row = x[i]
        for b in range(row.size):
            count += 1 if row[b] < 0 else 0
    return count > 0


@njit(**SAFE)
def npu_forward(k: Any, p: Any, x: Any, noise: Any, training: Any, t: Any, w: Any, y: Any) -> None:
    n = x.shape[0]
    zero, one, pi = p.dtype.type(0), p.dtype.type(1), p.dtype.type(math.pi)
    magnitudes, logs = t[0:n], t[n : 2 * n]
    exponent, angle, sine, cosine = t[2 * n], t[2 * n + 1], t[2 * n + 2], t[2 * n + 3]
    turning = k.complex or _any_negative(x)
    w[1, 0] = one if turning else zero
    _fill(zero, exponent)
    if turning:
        _fill(zero, angle)
    for i in range(n):
        gate = min(max(p[n + i], zero), one)
        w[0, i] = gate
        _gated_magnitude(x[i], gate, p.dtype.type(k.epsilon), magnitudes[i])
        _copy(magnitudes[i], logs[i])
        log_(logs[i])
        _add_scaled(p[i], logs[i], exponent)
        if turning:
            _add_if_negative(p[i] * gate * pi, x[i], angle)
        if k.complex:
            _add_if_negative(-p[2 * n + i] * gate * pi, x[i], exponent)
            _add_scaled(p[2 * n + i], logs[i], angle)
    exp_(exponent)
    if turning:
        sincos(angle, sine, cosine)
        _multiply(exponent, cosine, y)
    else:
        _copy(exponent, y)


@njit(**SAFE)
def _npu_pulls(size: Any, sine: Any, y: Any, dy: Any) -> None:
    """`size` becomes the gradient of the exponent, `sine` that of the angle."""
    for b in range(dy.size):
        sine[b] = -dy[b] * size[b] * sine[b]
        size[b] = dy[b] * y[b]


@njit(**SUMS)
def _dot_negative(pull: Any, x: Any) -> Any:
    zero, total = pull.dtype.type(0), pull.dtype.type(0)
    for b in range(pull.size):
        total += pull[b] if x[b] < zero else zero
    return total


@njit(**SUMS)
def _gate_back(x: Any, magnitude: Any, pull: Any, epsilon: Any) -> Any:
    """Gradient of a gate through the logarithm of its magnitude."""
    one, total = x.dtype.type(1), x.dtype.type(0)
    for b in range(pull.size):
        total += pull[b] * (abs(x[b]) + epsilon - one) / magnitude[b]
    return total


@njit(**SAFE)
def npu_backward(k: Any, p: Any, x: Any, noise: Any, training: Any, t: Any, w: Any, y: Any, dy: Any, g: Any) -> None:
    n = x.shape[0]
    zero, pi, epsilon = p.dtype.type(0), p.dtype.type(math.pi), p.dtype.type(k.epsilon)
    magnitudes, logs = t[0:n], t[n : 2 * n]
    pull, turn = t[2 * n], t[2 * n + 2]
    turning = w[1, 0] > zero
    if not turning:
        _fill(zero, turn)
    _npu_pulls(pull, turn, y, dy)
    for i in range(n):
        gate = w[0, i]
        open_gate = zero <= p[n + i] <= p.dtype.type(1)
        g[i] += _dot(pull, logs[i])
        slope = p[i] * _gate_back(x[i], magnitudes[i], pull, epsilon)
        if turning:
            negative_turn = _dot_negative(turn, x[i])
            g[i] += gate * pi * negative_turn
            slope += p[i] * pi * negative_turn
        if k.complex:
            negative_pull = _dot_negative(pull, x[i])
            g[2 * n + i] += _dot(turn, logs[i]) - gate * pi * negative_pull
            slope += p[2 * n + i] * (_gate_back(x[i], magnitudes[i], turn, epsilon) - pi * negative_pull)
        if open_gate:
            g[n + i] += slope


@njit(**SAFE)
def npu_penalise(k: Any, p: Any, strength: Any, gate_strength: Any, g: Any) -> None:
    n = p.size // 3 if k.complex else p.size // 2
    if k.skip_zero_weight:
        _pull_to_ones(p[:n], strength, g[:n])
    else:
        _pull_to_integers(p[:n], strength, g[:n])
    _pull_to_bits(p[n : 2 * n], gate_strength, g[n : 2 * n])
    if k.complex and k.bounded_imaginary:
        for i in range(2 * n, 3 * n):
            g[i] += strength * (1 if p[i] > 0 else (-1 if p[i] < 0 else 0))


@njit(**SAFE)
def npu_project(k: Any, p: Any) -> None:
    n = p.size // 3 if k.complex else p.size // 2
    if k.bounded:
        _clip(p[:n], p.dtype.type(-1), p.dtype.type(1))
    if k.clip_gate:
        _clip(p[n : 2 * n], p.dtype.type(0), p.dtype.type(1))
    if k.complex and k.bounded_imaginary:
        _clip(p[2 * n :], p.dtype.type(-1), p.dtype.type(1))


@njit(**SAFE)
def npu_sparsity(k: Any, p: Any) -> Any:
    if k.complex:
        n = p.size // 3
        return (_largest_distance(p[:n]) + _largest_distance(p[2 * n :])) / 2
    return _largest_distance(p[: p.size // 2])


# ---------------------------------------------------------------------------------------------------------------------
# Which functions belong to which kernel


class Kernel(NamedTuple):
    """The functions of one kernel."""

    forward: Any
    backward: Any
    penalise: Any
    project: Any
    sparsity: Any


KERNELS: dict[type, Kernel] = {
    NAU: Kernel(nau_forward, nau_backward, nau_penalise, nau_project, nau_sparsity),
    NACAdd: Kernel(nac_add_forward, nac_add_backward, nac_penalise, free_project, nac_sparsity),
    NACMul: Kernel(nac_mul_forward, nac_mul_backward, nac_penalise, free_project, nac_sparsity),
    NALU: Kernel(nalu_forward, nalu_backward, nalu_penalise, free_project, nalu_sparsity),
    INALU: Kernel(inalu_forward, inalu_backward, inalu_penalise, free_project, inalu_sparsity),
    NMU: Kernel(nmu_forward, nmu_backward, nmu_penalise, nmu_project, nmu_sparsity),
    SNMU: Kernel(snmu_forward, snmu_backward, nmu_penalise, nmu_project, nmu_sparsity),
    SNMUBatch: Kernel(snmu_batch_forward, snmu_backward, nmu_penalise, nmu_project, nmu_sparsity),
    StgNMU: Kernel(stgnmu_forward, stgnmu_backward, stgnmu_penalise, free_project, nmu_sparsity),
    NRU: Kernel(nru_forward, nru_backward, nau_penalise, nau_project, nau_sparsity),
    NMRU: Kernel(nmru_forward, nmru_backward, nmru_penalise, nmu_project, nmru_sparsity),
    NPU: Kernel(npu_forward, npu_backward, npu_penalise, npu_project, npu_sparsity),
}


def forward(k: Any, p: Any, x: Any, noise: Any, training: Any, t: Any, w: Any, y: Any) -> None:
    """Write the outputs of a batch to y. To be called from compiled code, as are the four functions below."""


def backward(k: Any, p: Any, x: Any, noise: Any, training: Any, t: Any, w: Any, y: Any, dy: Any, g: Any) -> None:
    """Add the gradient of the parameters to g, given that of the outputs, which is used up."""


def penalise(k: Any, p: Any, strength: Any, gate_strength: Any, g: Any) -> None:
    """Add the gradient of the module's penalty to g."""


def project(k: Any, p: Any) -> None:
    """Clip the parameters to their legal box."""


def sparsity(k: Any, p: Any) -> Any:
    """The sparsity error of the parameters."""


@overload(forward, strict=False)
def _forward(k: Any, p: Any, x: Any, noise: Any, training: Any, t: Any, w: Any, y: Any) -> Any:
    chosen = KERNELS[k.instance_class].forward
    return lambda k, p, x, noise, training, t, w, y: chosen(k, p, x, noise, training, t, w, y)


@overload(backward, strict=False)
def _backward(k: Any, p: Any, x: Any, noise: Any, training: Any, t: Any, w: Any, y: Any, dy: Any, g: Any) -> Any:
    chosen = KERNELS[k.instance_class].backward
    return lambda k, p, x, noise, training, t, w, y, dy, g: chosen(k, p, x, noise, training, t, w, y, dy, g)


@overload(penalise, strict=False)
def _penalise(k: Any, p: Any, strength: Any, gate_strength: Any, g: Any) -> Any:
    chosen = KERNELS[k.instance_class].penalise
    return lambda k, p, strength, gate_strength, g: chosen(k, p, strength, gate_strength, g)


@overload(project, strict=False)
def _project(k: Any, p: Any) -> Any:
    chosen = KERNELS[k.instance_class].project
    return lambda k, p: chosen(k, p)


@overload(sparsity, strict=False)
def _sparsity(k: Any, p: Any) -> Any:
    chosen = KERNELS[k.instance_class].sparsity
    return lambda k, p: chosen(k, p)
