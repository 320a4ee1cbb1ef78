"""Kernels of NRU and NMRU and their variants."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from nalm.engine.kernels.loops import (
    EPS32,
    SUMS,
    add_if_negative,
    any_negative,
    any_zero,
    copy_row,
    factor_pull,
    fill_row,
    magnitudes,
    mixed_factor_back,
    multiply,
    multiply_by_sign,
    product,
    product_back,
    pull_to_bits,
    reciprocals,
    rescale,
    scale_by,
    scaled,
)
from nalm.engine.kernels.multiplicative import nmu_sparsity
from nalm.native import SAFE
from nalm.vector import exp_, log_, sincos, tanh_


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
    fill_row(one, prefix[0])
    fill_row(one, sign)
    for i in range(n):
        magnitudes(x[i], p.dtype.type(0), logs[i])
        log_(logs[i])
        scaled(p[i], logs[i], powers[i])
        exp_(powers[i])
        if not k.separate:
            multiply_by_sign(x[i], powers[i])
        elif np.rint(p[i]) % 2 != 0:
            multiply_by_sign(x[i], sign)
        after = prefix[i + 1] if i + 1 < n else y
        _amount_factor(powers[i], w[0, i], prefix[i], after)
    w[2, 0] = any_zero(x)
    if w[2, 0] > 0:
        _take_out_zeros(k, p, x, t, w, y)
    if k.separate:
        scale_by(sign, y)
    if w[2, 0] > 0:
        _over_zeros(p, x, p.dtype.type(math.inf), y)


@njit(**SAFE)
def _take_out_zeros(k: Any, p: Any, x: Any, t: Any, w: Any, y: Any) -> None:
    """Compute powers and products anew: a zero counts as zero where it multiplies, as one where it divides."""
    n, zero, one = x.shape[0], p.dtype.type(0), p.dtype.type(1)
    fill_row(one, t[3 * n])
    for i in range(n):
        _replace_zeros(x[i], zero, t[i])
        _replace_zeros(x[i], one if p[i] < 0 else zero, t[n + i])
        after = t[2 * n + i + 1] if i + 1 < n else y
        _amount_factor(t[n + i], w[0, i], t[2 * n + i], after)
        if k.separate:
            _turn(x[i], p[i], t[3 * n])


@njit(**SAFE)
def _replace_zeros(x: Any, value: Any, out: Any) -> None:
    for b in range(out.size):
        out[b] = value if x[b] == 0 else out[b]


@njit(**SAFE)
def _turn(x: Any, w: Any, sign: Any) -> None:
    """Sign times sign(x) to the power of w, rounded; a zero that divides does not count."""
    rounded = np.rint(w)
    if rounded % 2 != 0:
        if rounded > 0:
            multiply_by_sign(x, sign)
        else:
            _turn_negative(x, sign)
    elif rounded > 0:
        _replace_zeros(x, sign.dtype.type(0), sign)


@njit(**SAFE)
def _turn_negative(x: Any, out: Any) -> None:
    for b in range(out.size):
        out[b] = -out[b] if x[b] < 0 else out[b]


@njit(**SAFE)
def _over_zeros(p: Any, x: Any, value: Any, out: Any) -> None:
    """Multiply by `value` where an input with a negative exponent is zero; a value of zero sets to zero."""
    for i in range(p.size):
        if p[i] < 0:
            for b in range(out.size):
                if x[i, b] == 0:
                    out[b] = out[b] * value if value != 0 else value


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
        scale_by(sign, dy)
    if w[2, 0] > 0:
        _over_zeros(p, x, one - one, dy)
    for i in range(n - 1, -1, -1):
        if training:
            slope = two * w[1, i] * (one - w[1, i] * w[1, i]) * scale
        else:
            slope = one if p[i] > 0 else (-one if p[i] < 0 else p[i])
        g[i] += _power_factor_back(powers[i], logs[i], w[0, i], slope, prefix[i], dy)


@njit(**SAFE)
def _power_factor_pull(x: Any, power: Any, exponent: Any, a: Any, before: Any, running: Any, out: Any) -> None:
    """Gradient of one input through its power; `running` is multiplied by the factor for the next one."""
    zero, rest = x.dtype.type(0), x.dtype.type(1) - a
    for b in range(out.size):
        out[b] = running[b] * before[b] * a * exponent * power[b] / x[b] if x[b] != zero else zero
        running[b] *= a * power[b] + rest


@njit(**SAFE)
def nru_pull(k: Any, p: Any, x: Any, noise: Any, training: Any, t: Any, w: Any, y: Any, dy: Any, gx: Any) -> None:
    n = x.shape[0]
    copy_row(dy, gx[n])
    if k.separate:
        scale_by(t[3 * n], gx[n])
    if w[2, 0] > 0:
        _over_zeros(p, x, p.dtype.type(0), gx[n])
    for i in range(n - 1, -1, -1):
        _power_factor_pull(x[i], t[n + i], p[i], w[0, i], t[2 * n + i], gx[n], gx[i])


class NMRU(NamedTuple):
    """NMRU; without `signed`, the plain product; with `gated`, a gate on inputs and reciprocals after the weights."""

    signed: int = 1
    gated: int = 0


@njit(**SAFE)
def nmru_forward(k: Any, p: Any, x: Any, noise: Any, training: Any, t: Any, w: Any, y: Any) -> None:
    n = x.shape[0]
    m = 2 * n
    values, over = t[0:m], t[3 * m + 4]
    epsilon = p.dtype.type(EPS32) if training else p.dtype.type(0)
    for i in range(n):
        copy_row(x[i], values[i])
        reciprocals(x[i], epsilon, values[n + i])
    infinite = _any_infinite(values)
    w[2, 0] = p.dtype.type(1) if infinite else p.dtype.type(0)
    if k.gated:
        for i in range(m):
            rescale(p[m + i], values[i])
    if infinite:
        fill_row(p.dtype.type(1), over)
        for i in range(m):
            _take_out(x[i % n], p[i], k.signed, values[i], over)
    _nmru_product(k, p, t, w, y)
    if infinite:
        scale_by(over, y)


@njit(**SUMS)
def _any_infinite(values: Any) -> Any:
    count, infinity = 0, values.dtype.type(math.inf)
    for i in range(values.shape[0]):
        row = values[i]
        for b in range(row.size):
            count += 1 if abs(row[b]) == infinity else 0
    return count > 0


@njit(**SAFE)
def _take_out(x: Any, w: Any, signed: Any, value: Any, over: Any) -> None:
    """Put one, with its sign, in place of what is infinite, and remember in `over` whether it has a weight.

    A shut gate has made infinity NaN by now: it should be zero.
    """
    zero, one = value.dtype.type(0), value.dtype.type(1)
    for b in range(value.size):
        if abs(value[b]) == math.inf:
            if w != zero:
                over[b] = math.inf
            value[b] = -one if signed and value[b] < zero else one
        elif value[b] != value[b] and x[b] == x[b]:
            value[b] = zero


@njit(**SAFE)
def _nmru_product(k: Any, p: Any, t: Any, w: Any, y: Any) -> None:
    """The product of finite values, in the first rows of t, with its sign."""
    m = p.size // 2 if k.gated else p.size
    values, sizes, prefix = t[0:m], t[m : 2 * m], t[2 * m : 3 * m]
    angle, sine, cosine, size = t[3 * m], t[3 * m + 1], t[3 * m + 2], t[3 * m + 3]
    if not k.signed:
        product(p[:m], values, prefix, y)
        return
    turning = any_negative(values)
    w[1, 0] = p.dtype.type(1) if turning else p.dtype.type(0)
    for i in range(m):
        magnitudes(values[i], p.dtype.type(0), sizes[i])
    if not turning:
        product(p[:m], sizes, prefix, y)
        return
    fill_row(p.dtype.type(0), angle)
    for i in range(m):
        add_if_negative(p[i] * p.dtype.type(math.pi), values[i], angle)
    sincos(angle, sine, cosine)
    product(p[:m], sizes, prefix, size)
    multiply(size, cosine, y)


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
def _still(over: Any, dy: Any) -> None:
    """No gradient flows through rows that were divided by zero."""
    for b in range(dy.size):
        dy[b] = dy.dtype.type(0) if over[b] == math.inf else dy[b]


@njit(**SAFE)
def nmru_backward(k: Any, p: Any, x: Any, noise: Any, training: Any, t: Any, w: Any, y: Any, dy: Any, g: Any) -> None:
    m = 2 * x.shape[0]
    values, sizes, prefix = t[0:m], t[m : 2 * m], t[2 * m : 3 * m]
    sine, cosine, size = t[3 * m + 1], t[3 * m + 2], t[3 * m + 3]
    if w[2, 0] > 0:
        _still(t[3 * m + 4], dy)
    if not k.signed:
        product_back(p[:m], values, prefix, dy, g)
        return
    if w[1, 0] > 0:
        for i in range(m):
            g[i] += p.dtype.type(math.pi) * _angle_back(dy, size, sine, values[i])
        scale_by(cosine, dy)
    for i in range(m - 1, -1, -1):
        if k.gated and p[m + i] != 0:
            g[m + i] += _gated_factor_back(sizes[i], p[i], p[m + i], prefix[i], dy)
        g[i] += mixed_factor_back(sizes[i], p[i], prefix[i], dy)


@njit(**SAFE)
def _reciprocal_pull(value: Any, gate: Any, signed: Any, pull: Any, out: Any) -> None:
    """Turn the gradient of the size (or value) of gate / (x + epsilon) into that of x."""
    zero = value.dtype.type(0)
    for b in range(out.size):
        side = pull[b] if not signed or value[b] > zero else (-pull[b] if value[b] < zero else zero)
        out[b] = -side * value[b] * value[b] / gate


@njit(**SAFE)
def _value_pull(value: Any, gate: Any, signed: Any, pull: Any, out: Any) -> None:
    """Add to the gradient of x what comes through the size (or value) of gate x."""
    zero = value.dtype.type(0)
    for b in range(out.size):
        side = pull[b] if not signed or value[b] > zero else (-pull[b] if value[b] < zero else zero)
        out[b] += side * gate


@njit(**SAFE)
def nmru_pull(k: Any, p: Any, x: Any, noise: Any, training: Any, t: Any, w: Any, y: Any, dy: Any, gx: Any) -> None:
    n, zero, one = x.shape[0], p.dtype.type(0), p.dtype.type(1)
    m = 2 * n
    values, sizes, prefix, one_pull = t[0:m], t[m : 2 * m], t[2 * m : 3 * m], t[3 * m]
    copy_row(dy, gx[n])
    if k.signed and w[1, 0] > 0:
        scale_by(t[3 * m + 2], gx[n])
    if w[2, 0] > 0:
        _still(t[3 * m + 4], gx[n])
    for i in range(m - 1, -1, -1):
        gate = p[m + i] if k.gated else one
        if k.signed:
            factor_pull(sizes[i], p[i], prefix[i], gx[n], one_pull)
        else:
            factor_pull(values[i], p[i], prefix[i], gx[n], one_pull)
        if i >= n and gate != zero:
            _reciprocal_pull(values[i], gate, k.signed, one_pull, gx[i - n])
        elif i >= n:
            fill_row(zero, gx[i - n])
        else:
            _value_pull(values[i], gate, k.signed, one_pull, gx[i])


@njit(**SAFE)
def nmru_penalise(k: Any, p: Any, strength: Any, gate_strength: Any, g: Any) -> None:
    if k.gated:
        m = p.size // 2
        pull_to_bits(p[:m], strength, g[:m])
        pull_to_bits(p[m:], gate_strength, g[m:])
    else:
        pull_to_bits(p, strength, g)


@njit(**SAFE)
def nmru_sparsity(k: Any, p: Any) -> Any:
    return nmu_sparsity(k, p[: p.size // 2] if k.gated else p)
