"""Kernels of NAU, NAC+ and the linear layer."""

from __future__ import annotations

from typing import Any, NamedTuple

from numba import njit

from nalm.engine.kernels.loops import (
    SUMS,
    clip_box,
    dot,
    largest_distance,
    nac_back,
    nac_distance,
    nac_weights,
    pull_nac_to_integers,
    pull_to_integers,
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
def free_penalise(k: Any, p: Any, strength: Any, gate_strength: Any, g: Any) -> None:
    """No penalty."""


@njit(**SAFE)
def linear_sparsity(k: Any, p: Any) -> Any:
    return largest_distance(p[: p.size - k.bias * k.outputs] if k.bias else p)
