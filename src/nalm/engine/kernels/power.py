"""Kernels of NPU, Real NPU and naive NPU."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from numba import njit

from nalm.engine.kernels.loops import (
    EPS32,
    SUMS,
    add_if_negative,
    add_scaled,
    any_negative,
    clip_box,
    copy_row,
    dot,
    fill_row,
    largest_distance,
    multiply,
    pull_to_bits,
    pull_to_integers,
    pull_to_ones,
)
from nalm.native import SAFE
from nalm.vector import exp_, log_, sincos


class NPU(NamedTuple):
    """NPU (`complex`) or Real NPU; parameters: real exponents, gate (unless it is naive), imaginary exponents."""

    complex: int = 0
    naive: int = 0
    bounded: int = 0
    clip_gate: int = 0
    skip_zero_weight: int = 0
    bounded_imaginary: int = 0
    epsilon: float = EPS32


@njit(**SAFE)
def _gated_magnitude(x: Any, gate: Any, epsilon: Any, out: Any) -> None:
    rest = x.dtype.type(1) - gate
    for b in range(out.size):
        out[b] = gate * (abs(x[b]) + epsilon) + rest


@njit(**SAFE)
def npu_forward(k: Any, p: Any, x: Any, noise: Any, training: Any, t: Any, w: Any, y: Any) -> None:
    n = x.shape[0]
    zero, one, pi = p.dtype.type(0), p.dtype.type(1), p.dtype.type(math.pi)
    magnitudes, logs = t[0:n], t[n : 2 * n]
    exponent, angle, sine, cosine = t[2 * n], t[2 * n + 1], t[2 * n + 2], t[2 * n + 3]
    imaginary = n if k.naive else 2 * n
    turning = k.complex or any_negative(x)
    w[1, 0] = one if turning else zero
    fill_row(zero, exponent)
    if turning:
        fill_row(zero, angle)
    for i in range(n):
        gate = one if k.naive else min(max(p[n + i], zero), one)
        w[0, i] = gate
        _gated_magnitude(x[i], gate, p.dtype.type(k.epsilon), magnitudes[i])
        copy_row(magnitudes[i], logs[i])
        log_(logs[i])
        add_scaled(p[i], logs[i], exponent)
        if turning:
            add_if_negative(p[i] * gate * pi, x[i], angle)
        if k.complex:
            add_if_negative(-p[imaginary + i] * gate * pi, x[i], exponent)
            add_scaled(p[imaginary + i], logs[i], angle)
    exp_(exponent)
    if turning:
        sincos(angle, sine, cosine)
        multiply(exponent, cosine, y)
    else:
        copy_row(exponent, y)


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
    imaginary = n if k.naive else 2 * n
    turning = w[1, 0] > zero
    if not turning:
        fill_row(zero, turn)
    _npu_pulls(pull, turn, y, dy)
    for i in range(n):
        gate = w[0, i]
        open_gate = not k.naive and zero <= p[n + i] <= p.dtype.type(1)
        g[i] += dot(pull, logs[i])
        slope = p[i] * _gate_back(x[i], magnitudes[i], pull, epsilon)
        if turning:
            negative_turn = _dot_negative(turn, x[i])
            g[i] += gate * pi * negative_turn
            slope += p[i] * pi * negative_turn
        if k.complex:
            negative_pull = _dot_negative(pull, x[i])
            g[imaginary + i] += dot(turn, logs[i]) - gate * pi * negative_pull
            slope += p[imaginary + i] * (_gate_back(x[i], magnitudes[i], turn, epsilon) - pi * negative_pull)
        if open_gate:
            g[n + i] += slope


@njit(**SAFE)
def _power_pull(x: Any, magnitude: Any, gate: Any, real: Any, imaginary: Any, pulls: Any, dy: Any, out: Any) -> None:
    """Gradient of an input; `pulls` holds size, (angle,) sine, (cosine,) and output of the layer."""
    one, zero = x.dtype.type(1), x.dtype.type(0)
    size, sine, y = pulls
    for b in range(out.size):
        side = one if x[b] > zero else (-one if x[b] < zero else zero)
        slope = y[b] * real - (size[b] * sine[b] * imaginary if imaginary != zero else zero)
        out[b] = dy[b] * slope * gate * side / magnitude[b]


@njit(**SAFE)
def npu_pull(k: Any, p: Any, x: Any, noise: Any, training: Any, t: Any, w: Any, y: Any, dy: Any, gx: Any) -> None:
    n = x.shape[0]
    imaginary = n if k.naive else 2 * n
    for i in range(n):
        turn = p[imaginary + i] if k.complex else p.dtype.type(0)
        _power_pull(x[i], t[i], w[0, i], p[i], turn, (t[2 * n], t[2 * n + 2], y), dy, gx[i])


@njit(**SAFE)
def npu_penalise(k: Any, p: Any, strength: Any, gate_strength: Any, g: Any) -> None:
    if k.naive:
        n = p.size // 2 if k.complex else p.size
        pull_to_integers(p[:n], strength, g[:n])
        for i in range(n, p.size):
            g[i] += strength / n * (1 if p[i] > 0 else (-1 if p[i] < 0 else 0))
        return
    n = p.size // 3 if k.complex else p.size // 2
    if k.skip_zero_weight:
        pull_to_ones(p[:n], strength, g[:n])
    else:
        pull_to_integers(p[:n], strength, g[:n])
    pull_to_bits(p[n : 2 * n], gate_strength, g[n : 2 * n])
    if k.complex and k.bounded_imaginary:
        for i in range(2 * n, 3 * n):
            g[i] += strength * (1 if p[i] > 0 else (-1 if p[i] < 0 else 0))


@njit(**SAFE)
def npu_project(k: Any, p: Any) -> None:
    n = p.size // ((1 if k.naive else 2) + k.complex)
    if k.bounded:
        clip_box(p[:n], p.dtype.type(-1), p.dtype.type(1))
    if k.clip_gate and not k.naive:
        clip_box(p[n : 2 * n], p.dtype.type(0), p.dtype.type(1))
    if k.complex and k.bounded_imaginary:
        clip_box(p[2 * n :], p.dtype.type(-1), p.dtype.type(1))


@njit(**SAFE)
def npu_sparsity(k: Any, p: Any) -> Any:
    if k.complex:
        n = p.size // 2 if k.naive else p.size // 3
        return (largest_distance(p[:n]) + largest_distance(p[p.size - n :])) / 2
    return largest_distance(p if k.naive else p[: p.size // 2])
