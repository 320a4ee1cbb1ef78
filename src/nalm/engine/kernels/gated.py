"""Kernels of NALU, G-NALU, iNALU and the multiplicative half of the iNALU."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from numba import njit

from nalm.engine.kernels.loops import (
    LOG_EPSILON,
    SUMS,
    dot,
    floored_magnitudes,
    log_magnitudes,
    mixed_factor_back,
    multiply,
    nac_back,
    nac_distance,
    nac_weights,
    product,
    pull_nac_to_integers,
    pull_to_saturation,
    sign_of,
    weighted_sum,
)
from nalm.native import SAFE
from nalm.vector import exp_, log_, sigmoid_

CAP = 20.0
"""Largest exponent of the iNALU's product."""

LOG_GOLDEN_RATIO = math.log((1 + math.sqrt(5)) / 2)


class NALU(NamedTuple):
    """NALU, or G-NALU with the logarithm of the golden ratio as `log_base`."""

    log_base: float = 1.0


@njit(**SAFE)
def mix_paths(gate: Any, additive: Any, multiplicative: Any, y: Any) -> None:
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
    nac_weights(p, n, base, w)
    log_magnitudes(x, t)
    gate, additive, multiplicative = t[n], t[n + 1], t[n + 2]
    for i in range(n):
        w[4, i] = base * p[2 * n + i]
    weighted_sum(w[0], x, additive)
    weighted_sum(w[0], t[:n], multiplicative)
    weighted_sum(w[4], x, gate)
    exp_(multiplicative)
    sigmoid_(gate)
    mix_paths(gate, additive, multiplicative, y)


@njit(**SAFE)
def nalu_backward(k: Any, p: Any, x: Any, noise: Any, training: Any, t: Any, w: Any, y: Any, dy: Any, g: Any) -> None:
    n = x.shape[0]
    base = p.dtype.type(k.log_base)
    gate, additive, multiplicative = t[n], t[n + 1], t[n + 2]
    _mix_back(gate, additive, multiplicative, base, dy)
    for i in range(n):
        w[3, i] = dot(additive, x[i]) + dot(multiplicative, t[i])
        g[2 * n + i] += dot(gate, x[i])
    nac_back(w, n, base, w[3], g)


@njit(**SAFE)
def _mix_pull(x: Any, w: Any, gate_w: Any, gate: Any, additive: Any, multiplicative: Any, dy: Any, out: Any) -> None:
    """Gradient of an input that the sum, the product and the gate weigh by w, w and gate_w."""
    one, zero, epsilon = x.dtype.type(1), x.dtype.type(0), x.dtype.type(LOG_EPSILON)
    for b in range(out.size):
        s, m = gate[b], multiplicative[b]
        side = one if x[b] > zero else (-one if x[b] < zero else zero)
        product = (one - s) * m * w * side / (abs(x[b]) + epsilon)
        out[b] = dy[b] * (s * w + product + (additive[b] - m) * s * (one - s) * gate_w)


@njit(**SAFE)
def nalu_pull(k: Any, p: Any, x: Any, noise: Any, training: Any, t: Any, w: Any, y: Any, dy: Any, gx: Any) -> None:
    n = x.shape[0]
    for i in range(n):
        _mix_pull(x[i], w[0, i], w[4, i], t[n], t[n + 1], t[n + 2], dy, gx[i])


@njit(**SAFE)
def nalu_penalise(k: Any, p: Any, strength: Any, gate_strength: Any, g: Any) -> None:
    pull_nac_to_integers(p, p.size // 3, k.log_base, strength, g)


@njit(**SAFE)
def nalu_sparsity(k: Any, p: Any) -> Any:
    return nac_distance(p, p.size // 3, k.log_base)


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
    nac_weights(p[1:], n, one, add)
    nac_weights(p[1 + 2 * n :], n, one, mul)
    logs, signs, prefix = t[0:n], t[n : 2 * n], t[2 * n : 3 * n]
    additive, exponent, sign, size = t[3 * n], t[3 * n + 1], t[3 * n + 2], t[3 * n + 3]
    for i in range(n):
        floored_magnitudes(x[i], p.dtype.type(LOG_EPSILON), logs[i])
        log_(logs[i])
        sign_of(x[i], signs[i])
        mul[3, i] = abs(mul[0, i])
    weighted_sum(add[0], x, additive)
    weighted_sum(mul[0], logs, exponent)
    product(mul[3, :n], signs, prefix, sign)
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
def _product_weights_back(w: Any, n: Any, t: Any, size: Any, sign: Any) -> None:
    """Row 3 of w: the gradients of the weights in row 0, given those of exponent and sign; t holds logs, signs, prefixes."""
    one = w.dtype.type(1)
    for i in range(n - 1, -1, -1):
        share = abs(w[0, i])
        side = one if w[0, i] > 0 else (-one if w[0, i] < 0 else share)
        w[3, i] = dot(size, t[i]) + side * mixed_factor_back(t[n + i], share, t[2 * n + i], sign)


@njit(**SAFE)
def inalu_backward(k: Any, p: Any, x: Any, noise: Any, training: Any, t: Any, w: Any, y: Any, dy: Any, g: Any) -> None:
    n = x.shape[0]
    one = p.dtype.type(1)
    add, mul = w[0:4], w[4:8]
    additive, free, sign, size = t[3 * n], t[3 * n + 1], t[3 * n + 2], t[3 * n + 3]
    gate = w[8, 0]
    g[0] += _gate_pull(additive, size, sign, dy) * gate * (one - gate)
    for i in range(n):
        add[3, i] = gate * dot(dy, x[i])
    nac_back(add, n, one, add[3], g[1:])
    _product_path_back(free, size, sign, one - gate, dy)
    _product_weights_back(mul, n, t, size, sign)
    nac_back(mul, n, one, mul[3], g[1 + 2 * n :])


@njit(**SAFE)
def _paths_pull(x: Any, add: Any, mul: Any, free: Any, size: Any, sign: Any, dy: Any, out: Any) -> None:
    """Gradient of an input; `add` and `mul` are its weights times the gate and the rest."""
    zero, epsilon = x.dtype.type(0), x.dtype.type(LOG_EPSILON)
    for b in range(out.size):
        slope = mul * size[b] * sign[b] * free[b] / x[b] if abs(x[b]) > epsilon else zero
        out[b] = dy[b] * (add + slope)


@njit(**SAFE)
def inalu_pull(k: Any, p: Any, x: Any, noise: Any, training: Any, t: Any, w: Any, y: Any, dy: Any, gx: Any) -> None:
    n, gate, rest = x.shape[0], w[8, 0], p.dtype.type(1) - w[8, 0]
    free, sign, size = t[3 * n + 1], t[3 * n + 2], t[3 * n + 3]
    for i in range(n):
        _paths_pull(x[i], gate * w[0, i], rest * w[4, i], free, size, sign, dy, gx[i])


@njit(**SAFE)
def inalu_penalise(k: Any, p: Any, strength: Any, gate_strength: Any, g: Any) -> None:
    n = (p.size - 1) // 4
    pull_to_saturation(p[:1], gate_strength, g[:1])
    for part in range(4):
        ends = (1 + part * n, 1 + (part + 1) * n)
        pull_to_saturation(p[ends[0] : ends[1]], strength, g[ends[0] : ends[1]])


@njit(**SAFE)
def inalu_sparsity(k: Any, p: Any) -> Any:
    n = (p.size - 1) // 4
    return (nac_distance(p[1:], n, 1.0) + nac_distance(p[1 + 2 * n :], n, 1.0)) / 2


class IMNAC(NamedTuple):
    """Multiplicative half of the iNALU."""

    unused: int = 0


@njit(**SAFE)
def imnac_forward(k: Any, p: Any, x: Any, noise: Any, training: Any, t: Any, w: Any, y: Any) -> None:
    n = x.shape[0]
    nac_weights(p, n, p.dtype.type(1), w)
    logs, signs, prefix = t[0:n], t[n : 2 * n], t[2 * n : 3 * n]
    exponent, sign, size = t[3 * n], t[3 * n + 1], t[3 * n + 2]
    for i in range(n):
        floored_magnitudes(x[i], p.dtype.type(LOG_EPSILON), logs[i])
        log_(logs[i])
        sign_of(x[i], signs[i])
        w[3, i] = abs(w[0, i])
    weighted_sum(w[0], logs, exponent)
    product(w[3, :n], signs, prefix, sign)
    _capped_exponential(exponent, size)
    multiply(size, sign, y)


@njit(**SAFE)
def imnac_backward(k: Any, p: Any, x: Any, noise: Any, training: Any, t: Any, w: Any, y: Any, dy: Any, g: Any) -> None:
    n, one = x.shape[0], p.dtype.type(1)
    free, sign, size = t[3 * n], t[3 * n + 1], t[3 * n + 2]
    _product_path_back(free, size, sign, one, dy)
    _product_weights_back(w, n, t, size, sign)
    nac_back(w, n, one, w[3], g)


@njit(**SAFE)
def imnac_pull(k: Any, p: Any, x: Any, noise: Any, training: Any, t: Any, w: Any, y: Any, dy: Any, gx: Any) -> None:
    n, zero = x.shape[0], p.dtype.type(0)
    for i in range(n):
        _paths_pull(x[i], zero, w[0, i], t[3 * n], t[3 * n + 2], t[3 * n + 1], dy, gx[i])
