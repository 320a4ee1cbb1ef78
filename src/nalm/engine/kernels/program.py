"""Networks of any shape as a list of instructions for one compiled interpreter.

Registers are rows over the samples of a batch: first the inputs, then what the instructions write, one row each. An
instruction reads neighbouring registers and runs the kernel of its layer, or copies, mixes or chooses. Going back, the list is
read from its end. Since all networks share the interpreter, it is compiled once.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from nalm.engine.kernels.additive import NAU, Linear, NACAdd, Quadratic, Rectified, nau_sparsity
from nalm.engine.kernels.dispatch import backward, forward, pull
from nalm.engine.kernels.gated import IMNAC
from nalm.engine.kernels.loops import (
    EPS32,
    add_scaled,
    clip_box,
    copy_row,
    dot,
    fill_row,
    gather,
    largest_distance,
    nac_distance,
    product,
    product_back,
    product_pull,
    pull_nac_to_integers,
    pull_to_bits,
    pull_to_integers,
    pull_to_ones,
    pull_to_saturation,
    rescale,
    scaled,
    weighted_sum,
)
from nalm.engine.kernels.multiplicative import NMU, nmu_sparsity
from nalm.engine.kernels.power import NPU
from nalm.native import SAFE

COPY, CONSTANT, SUM, FACTORS, POWERS, NAC, SIGNED, LINEAR, RECTIFIED, QUADRATIC, GATE, SELECT, MASKED = range(13)
"""Instructions: the first two move numbers, the next eight are layers, the last three choose."""
TO_INTEGERS, TO_BITS, TO_ONES, TO_SATURATION, NAC_TO_INTEGERS = range(5)
"""Penalties on a span of parameters."""
BOXED_INTEGERS, BOXED_BITS, FREE_INTEGERS, NAC_INTEGERS = range(4)
"""Sparsity errors of a span of parameters."""
WEIGHT_ROWS = 5
"""Rows of scratch over weights of one instruction."""
TINY = 1e-7
"""Uniform numbers are kept this far from 0 and 1 before their logarithms are taken."""
MODULES = 4
"""Operations between which a mask chooses: sum, minus the sum, product, reciprocal of the product."""


class Program(NamedTuple):
    """A network; parameters in the order of `module.parameters()`."""

    code: Any
    """A row an instruction: what, first input register, number of inputs, output register, number of parameters, first row of
    scratch, a detail, whether the gradient of its inputs is needed."""
    numbers: Any
    """A number for each instruction: a constant, a temperature, an epsilon or a cap."""
    places: Any
    """Where the parameters of each instruction stand among all."""
    penalties: Any
    """Kind, start and stop of a span of parameters, and whether it is a gate."""
    boxes: Any
    """Start and stop of a span of parameters that has a box."""
    limits: Any
    """Ends of the box."""
    sparsities: Any
    """Kind, start and stop of a span of parameters."""
    registers: int
    widest: int
    """Most inputs of an instruction."""
    rows: int
    """Rows of scratch over samples of all instructions."""


def program_scratch(k: Program) -> tuple[int, int, int]:
    """Rows of scratch over samples, rows and columns of scratch over weights."""
    own = k.places.shape[1]
    columns = max(2 * k.widest, MODULES)
    return 2 * k.registers + k.widest + 1 + k.rows, WEIGHT_ROWS * len(k.code) + -(-2 * own // columns), columns


@njit(**SAFE)
def _argmax(values: Any, shift: Any) -> Any:
    best = 0
    for j in range(1, values.size):
        if values[j] + shift[j] > values[best] + shift[best]:
            best = j
    return best


@njit(**SAFE)
def _softmax(values: Any, shift: Any, temperature: Any, out: Any) -> None:
    """Softmax of (values + shift) / temperature."""
    top = values[_argmax(values, shift)] + shift[_argmax(values, shift)]
    total = values.dtype.type(0)
    for j in range(values.size):
        out[j] = math.exp((values[j] + shift[j] - top) / temperature)
        total += out[j]
    for j in range(values.size):
        out[j] /= total


@njit(**SAFE)
def _choose(p: Any, noise: Any, start: Any, training: Any, w: Any) -> Any:
    """Rows of w: no shift, Gumbel noise, then the likeliest, the drawn one, and which counts (1: the likeliest)."""
    n = p.size - 1
    for j in range(n):
        w[0, j] = 0
        w[1, j] = -math.log(-math.log(min(max(noise[start + j, 0], TINY), 1 - TINY))) if training else 0.0
    w[2, 0] = _argmax(p[:n], w[0, :n])
    w[2, 1] = _argmax(p[:n], w[1, :n])
    w[2, 2] = 1 if not training or p[n] > 0 else 0
    return int(w[2, 0] if w[2, 2] > 0 else w[2, 1])


@njit(**SAFE)
def _choose_back(p: Any, temperature: Any, training: Any, x: Any, w: Any, dy: Any, gx: Any, g: Any) -> None:
    """As algorithm 1 of the thesis is printed: hard and soft choice of the route both pass gradients on."""
    n, one = p.size - 1, p.dtype.type(1)
    likeliest, drawn = int(w[2, 0]), int(w[2, 1])
    for j in range(n):
        w[3, j] = dot(dy, x[j])
        fill_row(p.dtype.type(0), gx[j])
    share = one / (one + math.exp(-p[n])) if training else p.dtype.type(0)
    first = w[2, 2] + share if training else one
    second = 2 - first if training else p.dtype.type(0)
    add_scaled(p.dtype.type(first), dy, gx[likeliest])
    add_scaled(p.dtype.type(second), dy, gx[drawn])
    for route in range(2):
        strength = first if route == 0 else second
        _softmax(p[:n], w[route, :n], temperature, w[4, :n])
        mean = p.dtype.type(0)
        for j in range(n):
            mean += w[4, j] * w[3, j]
        for j in range(n):
            g[j] += strength * w[4, j] * (w[3, j] - mean) / temperature
    g[n] += (w[3, likeliest] - w[3, drawn]) * share * (one - share)


@njit(**SAFE)
def _invert(x: Any, out: Any) -> None:
    one, zero, epsilon = x.dtype.type(1), x.dtype.type(0), x.dtype.type(EPS32)
    for b in range(out.size):
        out[b] = one / (x[b] if x[b] != zero else epsilon)


@njit(**SAFE)
def _invert_back(x: Any, y: Any, dy: Any, out: Any) -> None:
    zero = x.dtype.type(0)
    for b in range(out.size):
        out[b] = -dy[b] * y[b] * y[b] if x[b] != zero else zero


@njit(**SAFE)
def _masked_forward(module: Any, p: Any, x: Any, t: Any, w: Any, y: Any) -> None:
    n = x.shape[0]
    for i in range(n):
        own = p[MODULES * i : MODULES * (i + 1)]
        best = 0
        for j in range(1, MODULES):
            best = j if own[j] > own[best] else best
        w[0, i] = 1 if best == module else 0
    mask = w[0, :n]
    if module < 2:
        weighted_sum(mask, x, y)
        if module == 1:
            rescale(p.dtype.type(-1), y)
    elif module == 2:
        product(mask, x, t, y)
    else:
        product(mask, x, t, t[n])
        _invert(t[n], y)


@njit(**SAFE)
def _masked_back(
    module: Any, p: Any, temperature: Any, x: Any, t: Any, w: Any, y: Any, dy: Any, gx: Any, inner: Any, g: Any
) -> None:
    n, sign = x.shape[0], p.dtype.type(-1 if module == 1 else 1)
    mask = w[0, :n]
    if module < 2:
        for i in range(n):
            w[1, i] = sign * dot(dy, x[i])
            if inner:
                scaled(sign * mask[i], dy, gx[i])
    else:
        if module == 3:
            _invert_back(t[n], y, dy, t[n + 1])
            copy_row(t[n + 1], dy)
        if inner:
            product_pull(mask, x, t, dy, gx)
        for i in range(n):
            w[1, i] = 0
        product_back(mask, x, t, dy, w[1])
    for i in range(n):
        own, grad = p[MODULES * i : MODULES * (i + 1)], g[MODULES * i : MODULES * (i + 1)]
        fill_row(p.dtype.type(0), w[2, :MODULES])
        _softmax(own, w[2, :MODULES], temperature, w[3, :MODULES])
        for j in range(MODULES):
            grad[j] += w[1, i] * w[3, module] * ((1 if j == module else 0) - w[3, j]) / temperature


@njit(**SAFE)
def _mix(share: Any, first: Any, second: Any, y: Any) -> None:
    rest = y.dtype.type(1) - share
    for b in range(y.size):
        y[b] = share * first[b] + rest * second[b]


@njit(**SAFE)
def program_forward(k: Any, p: Any, x: Any, noise: Any, training: Any, t: Any, w: Any, y: Any) -> None:
    flat, kind = w.reshape(w.size), p.dtype.type
    buffer = flat[w.size - k.places.shape[1] :]
    scratch = 2 * k.registers + k.widest + 1
    for i in range(x.shape[0]):
        copy_row(x[i], t[i])
    for s in range(k.code.shape[0]):
        what, first, count, out, own, start, detail, _ = k.code[s]
        gather(p, k.places[s, :own], buffer)
        q, u, result = buffer[:own], t[first : first + count], t[out]
        own_t, own_w = t[scratch + start :], w[WEIGHT_ROWS * s : WEIGHT_ROWS * (s + 1)]
        if what == COPY:
            copy_row(u[0], result)
        elif what == CONSTANT:
            fill_row(kind(k.numbers[s]), result)
        elif what == SUM:
            forward(NAU(0), q, u, noise, training, own_t, own_w, result)
        elif what == FACTORS:
            forward(NMU(0), q, u, noise, training, own_t, own_w, result)
        elif what == POWERS:
            forward(NPU(0, 0, 0, 0, 0, 0, k.numbers[s]), q, u, noise, training, own_t, own_w, result)
        elif what == NAC:
            forward(NACAdd(0), q, u, noise, training, own_t, own_w, result)
        elif what == SIGNED:
            forward(IMNAC(0), q, u, noise, training, own_t, own_w, result)
        elif what == LINEAR:
            forward(Linear(detail, 1), q, u, noise, training, own_t, own_w, result)
        elif what == RECTIFIED:
            forward(Rectified(k.numbers[s], 1, 1), q, u, noise, training, own_t, own_w, result)
        elif what == QUADRATIC:
            forward(Quadratic(1), q, u, noise, training, own_t, own_w, result)
        elif what == GATE:
            own_w[0, 0] = kind(1) / (kind(1) + math.exp(-q[0]))
            _mix(own_w[0, 0], u[0], u[1], result)
        elif what == SELECT:
            copy_row(u[_choose(q, noise, detail, training, own_w)], result)
        else:
            _masked_forward(detail, q, u, own_t, own_w, result)
    copy_row(t[k.code[k.code.shape[0] - 1, 3]], y)


@njit(**SAFE)
def _moves(row: Any) -> Any:
    size = 0.0
    for b in range(row.size):
        size += abs(row[b])
    return size != 0


@njit(**SAFE)
def program_backward(k: Any, p: Any, x: Any, noise: Any, training: Any, t: Any, w: Any, y: Any, dy: Any, g: Any) -> None:
    flat, kind, widest = w.reshape(w.size), p.dtype.type, k.places.shape[1]
    buffer, gradient = flat[w.size - widest :], flat[w.size - 2 * widest : w.size - widest]
    pulls, gx = t[k.registers : 2 * k.registers], t[2 * k.registers : 2 * k.registers + k.widest + 1]
    scratch = 2 * k.registers + k.widest + 1
    for i in range(x.shape[0], k.registers):
        fill_row(kind(0), pulls[i])
    copy_row(dy, pulls[k.code[k.code.shape[0] - 1, 3]])
    for s in range(k.code.shape[0] - 1, -1, -1):
        what, first, count, out, own, start, detail, inner = k.code[s]
        z, u, result = pulls[out], t[first : first + count], t[out]
        if what == CONSTANT or not _moves(z):
            continue
        gather(p, k.places[s, :own], buffer)
        fill_row(kind(0), gradient)
        q, h = buffer[:own], gradient[:own]
        own_t, own_w = t[scratch + start :], w[WEIGHT_ROWS * s : WEIGHT_ROWS * (s + 1)]
        if what == COPY:
            copy_row(z, gx[0])
        elif what == SUM:
            if inner:
                pull(NAU(0), q, u, noise, training, own_t, own_w, result, z, gx)
            backward(NAU(0), q, u, noise, training, own_t, own_w, result, z, h)
        elif what == FACTORS:
            if inner:
                pull(NMU(0), q, u, noise, training, own_t, own_w, result, z, gx)
            backward(NMU(0), q, u, noise, training, own_t, own_w, result, z, h)
        elif what == POWERS:
            npu = NPU(0, 0, 0, 0, 0, 0, k.numbers[s])
            if inner:
                pull(npu, q, u, noise, training, own_t, own_w, result, z, gx)
            backward(npu, q, u, noise, training, own_t, own_w, result, z, h)
        elif what == NAC:
            if inner:
                pull(NACAdd(0), q, u, noise, training, own_t, own_w, result, z, gx)
            backward(NACAdd(0), q, u, noise, training, own_t, own_w, result, z, h)
        elif what == SIGNED:
            if inner:
                pull(IMNAC(0), q, u, noise, training, own_t, own_w, result, z, gx)
            backward(IMNAC(0), q, u, noise, training, own_t, own_w, result, z, h)
        elif what == LINEAR:
            if inner:
                pull(Linear(detail, 1), q, u, noise, training, own_t, own_w, result, z, gx)
            backward(Linear(detail, 1), q, u, noise, training, own_t, own_w, result, z, h)
        elif what == RECTIFIED:
            if inner:
                pull(Rectified(k.numbers[s], 1, 1), q, u, noise, training, own_t, own_w, result, z, gx)
            backward(Rectified(k.numbers[s], 1, 1), q, u, noise, training, own_t, own_w, result, z, h)
        elif what == QUADRATIC:
            if inner:
                pull(Quadratic(1), q, u, noise, training, own_t, own_w, result, z, gx)
            backward(Quadratic(1), q, u, noise, training, own_t, own_w, result, z, h)
        elif what == GATE:
            share = own_w[0, 0]
            h[0] += (dot(z, u[0]) - dot(z, u[1])) * share * (kind(1) - share)
            scaled(share, z, gx[0])
            scaled(kind(1) - share, z, gx[1])
        elif what == SELECT:
            _choose_back(q, kind(k.numbers[s]), training, u, own_w, z, gx, h)
        else:
            _masked_back(detail, q, kind(k.numbers[s]), u, own_t, own_w, result, z, gx, inner, h)
        if inner:
            for i in range(count):
                add_scaled(kind(1), gx[i], pulls[first + i])
        for j in range(own):
            g[k.places[s, j]] += h[j]


@njit(**SAFE)
def program_penalise(k: Any, p: Any, strength: Any, gate_strength: Any, g: Any) -> None:
    for s in range(k.penalties.shape[0]):
        kind, start, stop, gate = k.penalties[s]
        own, pulled, size = p[start:stop], g[start:stop], gate_strength if gate else strength
        if kind == TO_INTEGERS:
            pull_to_integers(own, size, pulled)
        elif kind == TO_BITS:
            pull_to_bits(own, size, pulled)
        elif kind == TO_ONES:
            pull_to_ones(own, size, pulled)
        elif kind == TO_SATURATION:
            pull_to_saturation(own, size, pulled)
        else:
            pull_nac_to_integers(own, own.size // 2, 1.0, size, pulled)


@njit(**SAFE)
def program_project(k: Any, p: Any) -> None:
    for s in range(k.boxes.shape[0]):
        clip_box(p[k.boxes[s, 0] : k.boxes[s, 1]], p.dtype.type(k.limits[s, 0]), p.dtype.type(k.limits[s, 1]))


@njit(**SAFE)
def program_sparsity(k: Any, p: Any) -> Any:
    largest = 0.0 if k.sparsities.shape[0] else np.nan
    for s in range(k.sparsities.shape[0]):
        kind, start, stop = k.sparsities[s]
        own = p[start:stop]
        if kind == BOXED_INTEGERS:
            distance = nau_sparsity(NAU(0), own)
        elif kind == BOXED_BITS:
            distance = nmu_sparsity(NMU(0), own)
        elif kind == FREE_INTEGERS:
            distance = largest_distance(own)
        else:
            distance = nac_distance(own, own.size // 2, 1.0)
        largest = distance if not distance <= largest else largest
    return largest
