"""Kernels of NAU, NAC+ and iNAC, of the linear and of the quadratic layer."""

from __future__ import annotations

from typing import Any, NamedTuple

from numba import njit

from nalm.engine.kernels.loops import (
    SUMS,
    clip_box,
    dot,
    largest_distance,
    multiply,
    nac_back,
    nac_distance,
    nac_weights,
    pull_nac_to_integers,
    pull_to_integers,
    pull_to_saturation,
    scaled,
    weighted_sum,
)
from nalm.native import SAFE


class NAU(NamedTuple):
    """Neural Addition Unit."""

    unused: int = 0


@njit(**SAFE)
def nau_forward(k: Any, p: Any, x: Any, noise: Any, training: Any, t: Any, w: Any, y: Any) -> None:
    one = p.dtype.type(1)
    for i in range(p.size):
        w[0, i] = min(max(p[i], -one), one)
    weighted_sum(w[0], x, y)


@njit(**SAFE)
def nau_backward(k: Any, p: Any, x: Any, noise: Any, training: Any, t: Any, w: Any, y: Any, dy: Any, g: Any) -> None:
    for i in range(p.size):
        if abs(p[i]) <= 1:
            g[i] += dot(dy, x[i])


@njit(**SAFE)
def sum_pull(k: Any, p: Any, x: Any, noise: Any, training: Any, t: Any, w: Any, y: Any, dy: Any, gx: Any) -> None:
    for i in range(x.shape[0]):
        scaled(w[0, i], dy, gx[i])


@njit(**SAFE)
def nau_penalise(k: Any, p: Any, strength: Any, gate_strength: Any, g: Any) -> None:
    pull_to_integers(p, strength, g)


@njit(**SAFE)
def nau_project(k: Any, p: Any) -> None:
    clip_box(p, p.dtype.type(-1), p.dtype.type(1))


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
    nac_weights(p, n, p.dtype.type(1), w)
    weighted_sum(w[0], x, y)


@njit(**SAFE)
def nac_add_backward(k: Any, p: Any, x: Any, noise: Any, training: Any, t: Any, w: Any, y: Any, dy: Any, g: Any) -> None:
    n = x.shape[0]
    for i in range(n):
        w[3, i] = dot(dy, x[i])
    nac_back(w, n, p.dtype.type(1), w[3], g)


@njit(**SAFE)
def nac_penalise(k: Any, p: Any, strength: Any, gate_strength: Any, g: Any) -> None:
    pull_nac_to_integers(p, p.size // 2, 1.0, strength, g)


@njit(**SAFE)
def nac_sparsity(k: Any, p: Any) -> Any:
    return nac_distance(p, p.size // 2, 1.0)


class INAC(NamedTuple):
    """Additive half of the iNALU: a NAC+ whose raw weights are drawn to saturation."""

    unused: int = 0


@njit(**SAFE)
def inac_penalise(k: Any, p: Any, strength: Any, gate_strength: Any, g: Any) -> None:
    n = p.size // 2
    pull_to_saturation(p[:n], strength, g[:n])
    pull_to_saturation(p[n:], strength, g[n:])


class Linear(NamedTuple):
    """Linear layer; parameters: weights, then the bias if there is one."""

    bias: int = 1
    outputs: int = 1


@njit(**SAFE)
def _shift(value: Any, y: Any) -> None:
    for b in range(y.size):
        y[b] += value


@njit(**SUMS)
def _total(y: Any) -> Any:
    total = y.dtype.type(0)
    for b in range(y.size):
        total += y[b]
    return total


@njit(**SAFE)
def linear_forward(k: Any, p: Any, x: Any, noise: Any, training: Any, t: Any, w: Any, y: Any) -> None:
    n = x.shape[0]
    for i in range(n):
        w[0, i] = p[i]
    weighted_sum(w[0], x, y)
    if k.bias:
        _shift(p[n], y)


@njit(**SAFE)
def linear_backward(k: Any, p: Any, x: Any, noise: Any, training: Any, t: Any, w: Any, y: Any, dy: Any, g: Any) -> None:
    n = x.shape[0]
    for i in range(n):
        g[i] += dot(dy, x[i])
    if k.bias:
        g[n] += _total(dy)


class Rectified(NamedTuple):
    """Linear layer with a bias whose outputs are cut off below zero and above `cap`."""

    cap: float
    bias: int = 1
    outputs: int = 1


@njit(**SAFE)
def _cut(cap: Any, y: Any) -> None:
    zero = y.dtype.type(0)
    for b in range(y.size):
        y[b] = zero if y[b] < zero else (cap if y[b] > cap else y[b])


@njit(**SAFE)
def _cut_back(cap: Any, y: Any, dy: Any) -> None:
    zero = y.dtype.type(0)
    for b in range(y.size):
        dy[b] = dy[b] if zero < y[b] < cap else zero


@njit(**SAFE)
def rectified_forward(k: Any, p: Any, x: Any, noise: Any, training: Any, t: Any, w: Any, y: Any) -> None:
    linear_forward(k, p, x, noise, training, t, w, y)
    _cut(y.dtype.type(k.cap), y)


@njit(**SAFE)
def rectified_backward(k: Any, p: Any, x: Any, noise: Any, training: Any, t: Any, w: Any, y: Any, dy: Any, g: Any) -> None:
    _cut_back(y.dtype.type(k.cap), y, dy)
    linear_backward(k, p, x, noise, training, t, w, y, dy, g)


@njit(**SAFE)
def _rectified_row(cap: Any, weight: Any, y: Any, dy: Any, out: Any) -> None:
    zero = y.dtype.type(0)
    for b in range(out.size):
        out[b] = weight * dy[b] if zero < y[b] < cap else zero


@njit(**SAFE)
def rectified_pull(k: Any, p: Any, x: Any, noise: Any, training: Any, t: Any, w: Any, y: Any, dy: Any, gx: Any) -> None:
    for i in range(x.shape[0]):
        _rectified_row(y.dtype.type(k.cap), w[0, i], y, dy, gx[i])


@njit(**SAFE)
def free_penalise(k: Any, p: Any, strength: Any, gate_strength: Any, g: Any) -> None:
    """No penalty."""


@njit(**SAFE)
def linear_sparsity(k: Any, p: Any) -> Any:
    return largest_distance(p[: p.size - k.bias * k.outputs] if k.bias else p)


class Quadratic(NamedTuple):
    """(A x + a)(B x + b) + C x^2 + c; parameters: A, B, C, then a, b, c."""

    outputs: int = 1


@njit(**SAFE)
def _quadratic(first: Any, second: Any, y: Any) -> None:
    for b in range(y.size):
        y[b] += first[b] * second[b]


@njit(**SAFE)
def _add_squares(weight: Any, x: Any, y: Any) -> None:
    for b in range(y.size):
        y[b] += weight * x[b] * x[b]


@njit(**SAFE)
def quadratic_forward(k: Any, p: Any, x: Any, noise: Any, training: Any, t: Any, w: Any, y: Any) -> None:
    n = x.shape[0]
    for part in range(2):
        weighted_sum(p[part * n : (part + 1) * n], x, t[part])
        _shift(p[3 * n + part], t[part])
    for b in range(y.size):
        y[b] = p[3 * n + 2]
    for i in range(n):
        _add_squares(p[2 * n + i], x[i], y)
    _quadratic(t[0], t[1], y)


@njit(**SUMS)
def _dot_squares(dy: Any, x: Any) -> Any:
    total = dy.dtype.type(0)
    for b in range(dy.size):
        total += dy[b] * x[b] * x[b]
    return total


@njit(**SAFE)
def quadratic_backward(k: Any, p: Any, x: Any, noise: Any, training: Any, t: Any, w: Any, y: Any, dy: Any, g: Any) -> None:
    n = x.shape[0]
    multiply(dy, t[1], t[2])
    multiply(dy, t[0], t[3])
    for i in range(n):
        g[i] += dot(t[2], x[i])
        g[n + i] += dot(t[3], x[i])
        g[2 * n + i] += _dot_squares(dy, x[i])
    g[3 * n] += _total(t[2])
    g[3 * n + 1] += _total(t[3])
    g[3 * n + 2] += _total(dy)


@njit(**SAFE)
def _quadratic_row(a: Any, b: Any, c: Any, x: Any, first: Any, second: Any, dy: Any, out: Any) -> None:
    for j in range(out.size):
        out[j] = dy[j] * (a * second[j] + b * first[j] + (c + c) * x[j])


@njit(**SAFE)
def quadratic_pull(k: Any, p: Any, x: Any, noise: Any, training: Any, t: Any, w: Any, y: Any, dy: Any, gx: Any) -> None:
    n = x.shape[0]
    for i in range(n):
        _quadratic_row(p[i], p[n + i], p[2 * n + i], x[i], t[0], t[1], dy, gx[i])


@njit(**SAFE)
def quadratic_sparsity(k: Any, p: Any) -> Any:
    return largest_distance(p[: p.size - 3 * k.outputs])
