"""Kernels made of kernels: two layers one behind the other, and two paths behind a gate."""

from __future__ import annotations

from typing import Any, NamedTuple

from numba import njit

from nalm.engine.kernels.dispatch import KERNELS, backward, forward, penalise, project, pull, sparsity
from nalm.engine.kernels.gated import mix_paths
from nalm.engine.kernels.loops import add_scaled, dot, fill_row, gather, weighted_sum
from nalm.engine.kernels.program import Program, program_scratch
from nalm.native import SAFE
from nalm.vector import sigmoid_

WEIGHT_ROWS = 27
"""Rows of scratch over weights of one layer: nine for a plain kernel, three times as many for two paths and their gate."""


class Stack(NamedTuple):
    """A first layer with several outputs, computed one by one, and a second layer with one.

    The first layer's penalty, box and sparsity error must act on each element of its parameters alone.
    """

    first: Any
    second: Any
    places: Any
    """For each hidden unit, where the parameters of its output stand among all, (hidden, parameters of one output)."""
    size: int
    """Number of parameters of the first layer."""
    rows: int
    """Rows of scratch over samples of one output of the first layer."""


class InputGated(NamedTuple):
    """Two paths mixed by a sigmoid of the inputs; parameters: gate, additive path, multiplicative path."""

    add: Any
    mul: Any
    add_columns: int
    mul_columns: int
    """Parameters that each path has for an input."""
    add_rows: int
    """Rows of scratch over samples of the additive path for each input."""


class Either(NamedTuple):
    """A sum or a product of the same inputs; parameters: additive weights, exponents, choice (from a half up: the sum)."""

    add: Any
    mul: Any


def scratch(kernel: Any, inputs: int) -> tuple[int, int, int]:
    """Rows of scratch over samples, rows and columns of scratch over weights that a kernel needs."""
    if isinstance(kernel, Program):
        return program_scratch(kernel)
    if isinstance(kernel, Stack):
        hidden, own = kernel.places.shape
        second, _, others = scratch(kernel.second, hidden)
        columns = max(2 * inputs, others)
        return 2 * hidden + 1 + second + hidden * kernel.rows, WEIGHT_ROWS * (hidden + 1) + -(-2 * own // columns), columns
    if isinstance(kernel, InputGated):
        paths = kernel.add_rows * inputs + scratch(kernel.mul, inputs)[0]
        return paths + inputs + 6, WEIGHT_ROWS, 2 * inputs
    if isinstance(kernel, Either):
        return scratch(kernel.mul, inputs)
    each, more = KERNELS[type(kernel)].rows
    return each * inputs + more, WEIGHT_ROWS, 2 * inputs


@njit(**SAFE)
def _scatter(g: Any, places: Any, out: Any) -> None:
    for j in range(places.size):
        out[places[j]] += g[j]


@njit(**SAFE)
def stack_forward(k: Any, p: Any, x: Any, noise: Any, training: Any, t: Any, w: Any, y: Any) -> None:
    hidden, own = k.places.shape
    buffer, start = w.reshape(w.size)[w.size - own :], t.shape[0] - hidden * k.rows
    for h in range(hidden):
        gather(p, k.places[h], buffer)
        own_t, own_w = t[start + h * k.rows : start + (h + 1) * k.rows], w[27 * (h + 1) : 27 * (h + 2)]
        forward(k.first, buffer, x, noise, training, own_t, own_w, t[h])
    forward(k.second, p[k.size :], t[:hidden], noise, training, t[2 * hidden + 1 : start], w[:27], y)


@njit(**SAFE)
def stack_backward(k: Any, p: Any, x: Any, noise: Any, training: Any, t: Any, w: Any, y: Any, dy: Any, g: Any) -> None:
    hidden, own = k.places.shape
    flat, start = w.reshape(w.size), t.shape[0] - hidden * k.rows
    buffer, gradient = flat[w.size - own :], flat[w.size - 2 * own : w.size - own]
    middle, pulls, second_t, p2 = t[:hidden], t[hidden : 2 * hidden + 1], t[2 * hidden + 1 : start], p[k.size :]
    pull(k.second, p2, middle, noise, training, second_t, w[:27], y, dy, pulls)
    backward(k.second, p2, middle, noise, training, second_t, w[:27], y, dy, g[k.size :])
    for h in range(hidden):
        gather(p, k.places[h], buffer)
        for j in range(own):
            gradient[j] = 0
        own_t, own_w = t[start + h * k.rows : start + (h + 1) * k.rows], w[27 * (h + 1) : 27 * (h + 2)]
        backward(k.first, buffer, x, noise, training, own_t, own_w, middle[h], pulls[h], gradient)
        _scatter(gradient, k.places[h], g)


@njit(**SAFE)
def no_pull(k: Any, p: Any, x: Any, noise: Any, training: Any, t: Any, w: Any, y: Any, dy: Any, gx: Any) -> None:
    """A stack or a program is never behind another layer."""


@njit(**SAFE)
def stack_penalise(k: Any, p: Any, strength: Any, gate_strength: Any, g: Any) -> None:
    penalise(k.first, p[: k.size], strength, gate_strength, g[: k.size])
    penalise(k.second, p[k.size :], strength, gate_strength, g[k.size :])


@njit(**SAFE)
def stack_project(k: Any, p: Any) -> None:
    project(k.first, p[: k.size])
    project(k.second, p[k.size :])


@njit(**SAFE)
def stack_sparsity(k: Any, p: Any) -> Any:
    first, second = sparsity(k.first, p[: k.size]), sparsity(k.second, p[k.size :])
    return second if not second <= first else first


@njit(**SAFE)
def _ends(k: Any, size: Any) -> Any:
    """Where the parameters of gate and additive path end, for any number of outputs."""
    each = size // (1 + k.add_columns + k.mul_columns)
    return each, each * (1 + k.add_columns)


@njit(**SAFE)
def gated_forward(k: Any, p: Any, x: Any, noise: Any, training: Any, t: Any, w: Any, y: Any) -> None:
    n = x.shape[0]
    a, m = _ends(k, p.size)
    gate, additive, multiplicative, own = t[0], t[1], t[2], t[n + 6 :]
    weighted_sum(p[:a], x, gate)
    sigmoid_(gate)
    forward(k.add, p[a:m], x, noise, training, own[: k.add_rows * n], w[:9], additive)
    forward(k.mul, p[m:], x, noise, training, own[k.add_rows * n :], w[9:18], multiplicative)
    mix_paths(gate, additive, multiplicative, y)


@njit(**SAFE)
def _path_pulls(gate: Any, additive: Any, multiplicative: Any, dy: Any, add: Any, mul: Any, turn: Any) -> None:
    """From the gradient of the output to those of both paths and of the gate's argument."""
    one = dy.dtype.type(1)
    for b in range(dy.size):
        add[b] = dy[b] * gate[b]
        mul[b] = dy[b] * (one - gate[b])
        turn[b] = dy[b] * (additive[b] - multiplicative[b]) * gate[b] * (one - gate[b])


@njit(**SAFE)
def gated_backward(k: Any, p: Any, x: Any, noise: Any, training: Any, t: Any, w: Any, y: Any, dy: Any, g: Any) -> None:
    n = x.shape[0]
    a, m = _ends(k, p.size)
    own = t[n + 6 :]
    _path_pulls(t[0], t[1], t[2], dy, t[3], t[4], t[5])
    for i in range(n):
        g[i] += dot(t[5], x[i])
    backward(k.add, p[a:m], x, noise, training, own[: k.add_rows * n], w[:9], t[1], t[3], g[a:m])
    backward(k.mul, p[m:], x, noise, training, own[k.add_rows * n :], w[9:18], t[2], t[4], g[m:])


@njit(**SAFE)
def gated_pull(k: Any, p: Any, x: Any, noise: Any, training: Any, t: Any, w: Any, y: Any, dy: Any, gx: Any) -> None:
    n, one = x.shape[0], p.dtype.type(1)
    a, m = _ends(k, p.size)
    own, others = t[n + 6 :], t[5 : n + 6]
    _path_pulls(t[0], t[1], t[2], dy, t[3], t[4], gx[n])
    for i in range(n):
        fill_row(p.dtype.type(0), gx[i])
        add_scaled(p[i], gx[n], gx[i])
    pull(k.add, p[a:m], x, noise, training, own[: k.add_rows * n], w[:9], t[1], t[3], others)
    for i in range(n):
        add_scaled(one, others[i], gx[i])
    pull(k.mul, p[m:], x, noise, training, own[k.add_rows * n :], w[9:18], t[2], t[4], others)
    for i in range(n):
        add_scaled(one, others[i], gx[i])


@njit(**SAFE)
def gated_penalise(k: Any, p: Any, strength: Any, gate_strength: Any, g: Any) -> None:
    a, m = _ends(k, p.size)
    penalise(k.add, p[a:m], strength, gate_strength, g[a:m])
    penalise(k.mul, p[m:], strength, gate_strength, g[m:])


@njit(**SAFE)
def gated_project(k: Any, p: Any) -> None:
    a, m = _ends(k, p.size)
    project(k.add, p[a:m])
    project(k.mul, p[m:])


@njit(**SAFE)
def gated_sparsity(k: Any, p: Any) -> Any:
    a, m = _ends(k, p.size)
    first, second = sparsity(k.add, p[a:m]), sparsity(k.mul, p[m:])
    return second if not second <= first else first


@njit(**SAFE)
def either_forward(k: Any, p: Any, x: Any, noise: Any, training: Any, t: Any, w: Any, y: Any) -> None:
    n = x.shape[0]
    if p[p.size - 1] >= 0.5:
        forward(k.add, p[:n], x, noise, training, t, w, y)
    else:
        forward(k.mul, p[n : 2 * n], x, noise, training, t, w, y)


@njit(**SAFE)
def either_backward(k: Any, p: Any, x: Any, noise: Any, training: Any, t: Any, w: Any, y: Any, dy: Any, g: Any) -> None:
    n = x.shape[0]
    if p[p.size - 1] >= 0.5:
        backward(k.add, p[:n], x, noise, training, t, w, y, dy, g[:n])
    else:
        backward(k.mul, p[n : 2 * n], x, noise, training, t, w, y, dy, g[n : 2 * n])


@njit(**SAFE)
def either_pull(k: Any, p: Any, x: Any, noise: Any, training: Any, t: Any, w: Any, y: Any, dy: Any, gx: Any) -> None:
    n = x.shape[0]
    if p[p.size - 1] >= 0.5:
        pull(k.add, p[:n], x, noise, training, t, w, y, dy, gx)
    else:
        pull(k.mul, p[n : 2 * n], x, noise, training, t, w, y, dy, gx)


@njit(**SAFE)
def either_penalise(k: Any, p: Any, strength: Any, gate_strength: Any, g: Any) -> None:
    n = p.size // 2
    if p[p.size - 1] >= 0.5:
        penalise(k.add, p[:n], strength, gate_strength, g[:n])
    else:
        penalise(k.mul, p[n : 2 * n], strength, gate_strength, g[n : 2 * n])


@njit(**SAFE)
def either_project(k: Any, p: Any) -> None:
    n = p.size // 2
    project(k.add, p[:n])
    project(k.mul, p[n : 2 * n])
    p[p.size - 1] = min(max(p[p.size - 1], p.dtype.type(0)), p.dtype.type(1))


@njit(**SAFE)
def either_sparsity(k: Any, p: Any) -> Any:
    n = p.size // 2
    return sparsity(k.add, p[:n]) if p[p.size - 1] >= 0.5 else sparsity(k.mul, p[n : 2 * n])
