"""Inner loops that kernels share, over the samples of a batch or over weights; each is vectorised on its own."""

from __future__ import annotations

import math
from typing import Any

from numba import njit

from nalm.native import SAFE
from nalm.vector import log_magnitude, sigmoid_, tanh_

SUMS = {**SAFE, "fastmath": {"contract", "reassoc", "nsz"}}
"""Compiler options of loops that sum: the order of additions is free, NaN and infinity are not assumed away."""

LOG_EPSILON = 1e-7
"""Added to magnitudes before the logarithm in the NAC and NALU families."""

EPS32 = 1.1920928955078125e-07
"""Machine epsilon of float32."""


@njit(**SAFE)
def fill_row(value: Any, out: Any) -> None:
    for b in range(out.size):
        out[b] = value


@njit(**SAFE)
def copy_row(x: Any, out: Any) -> None:
    for b in range(out.size):
        out[b] = x[b]


@njit(**SAFE)
def gather(p: Any, places: Any, out: Any) -> None:
    for j in range(places.size):
        out[j] = p[places[j]]


@njit(**SAFE)
def add_scaled(w: Any, x: Any, out: Any) -> None:
    for b in range(out.size):
        out[b] += w * x[b]


@njit(**SAFE)
def scaled(w: Any, x: Any, out: Any) -> None:
    for b in range(out.size):
        out[b] = w * x[b]


@njit(**SAFE)
def _add_four(w: Any, i: Any, x0: Any, x1: Any, x2: Any, x3: Any, out: Any) -> None:
    w0, w1, w2, w3 = w[i], w[i + 1], w[i + 2], w[i + 3]
    for b in range(out.size):
        out[b] += (w0 * x0[b] + w1 * x1[b]) + (w2 * x2[b] + w3 * x3[b])


@njit(**SAFE)
def weighted_sum(w: Any, x: Any, out: Any) -> None:
    """Out = sum_i w_i x_i over the rows of x."""
    n = x.shape[0]
    scaled(w[0], x[0], out)
    first = 1 + (n - 1) % 4
    for i in range(1, first):
        add_scaled(w[i], x[i], out)
    for i in range(first, n, 4):
        _add_four(w, i, x[i], x[i + 1], x[i + 2], x[i + 3], out)


@njit(**SAFE)
def factor_pull(x: Any, w: Any, before: Any, running: Any, out: Any) -> None:
    """Gradient of one input of a product of w x + 1 - w; `running` is multiplied by the factor for the next one."""
    rest = x.dtype.type(1) - w
    for b in range(out.size):
        out[b] = running[b] * before[b] * w
        running[b] *= w * x[b] + rest


@njit(**SAFE)
def product_pull(w: Any, x: Any, prefix: Any, dy: Any, gx: Any) -> None:
    """Gradients of the inputs of `product`, in all rows of gx but the last, which is scratch."""
    n = w.size
    copy_row(dy, gx[n])
    for i in range(n - 1, -1, -1):
        factor_pull(x[i], w[i], prefix[i], gx[n], gx[i])


@njit(**SAFE)
def log_pull(x: Any, w: Any, epsilon: Any, y: Any, dy: Any, out: Any) -> None:
    """Gradient of an input of y = exp(sum w ln(|x| + epsilon))."""
    one, zero = x.dtype.type(1), x.dtype.type(0)
    for b in range(out.size):
        side = one if x[b] > zero else (-one if x[b] < zero else zero)
        out[b] = dy[b] * y[b] * w * side / (abs(x[b]) + epsilon)


@njit(**SAFE)
def multiply(x: Any, y: Any, out: Any) -> None:
    for b in range(out.size):
        out[b] = x[b] * y[b]


@njit(**SAFE)
def scale_by(x: Any, out: Any) -> None:
    for b in range(out.size):
        out[b] *= x[b]


@njit(**SAFE)
def rescale(w: Any, out: Any) -> None:
    for b in range(out.size):
        out[b] *= w


@njit(**SUMS)
def dot(x: Any, y: Any) -> Any:
    total = x.dtype.type(0)
    for b in range(x.size):
        total += x[b] * y[b]
    return total


@njit(**SAFE)
def magnitudes(x: Any, offset: Any, out: Any) -> None:
    for b in range(out.size):
        out[b] = abs(x[b]) + offset


@njit(**SAFE)
def floored_magnitudes(x: Any, floor: Any, out: Any) -> None:
    for b in range(out.size):
        size = abs(x[b])
        out[b] = floor if size < floor else size


@njit(**SAFE)
def sign_of(x: Any, out: Any) -> None:
    one, zero = x.dtype.type(1), x.dtype.type(0)
    for b in range(out.size):
        out[b] = one if x[b] > zero else (-one if x[b] < zero else zero)


@njit(**SAFE)
def reciprocals(x: Any, epsilon: Any, out: Any) -> None:
    one = x.dtype.type(1)
    for b in range(out.size):
        out[b] = one / (x[b] + epsilon)


@njit(**SAFE)
def mixed_factor(x: Any, w: Any, before: Any, after: Any) -> None:
    """After = before * (w x + 1 - w)."""
    rest = x.dtype.type(1) - w
    for b in range(after.size):
        after[b] = before[b] * (w * x[b] + rest)


@njit(**SUMS)
def mixed_factor_back(x: Any, w: Any, before: Any, pull: Any) -> Any:
    """Gradient of one weight of a product of w x + 1 - w; `pull` is multiplied by the factor for the next one."""
    one = x.dtype.type(1)
    rest, total = one - w, x.dtype.type(0)
    for b in range(pull.size):
        total += pull[b] * before[b] * (x[b] - one)
        pull[b] *= w * x[b] + rest
    return total


@njit(**SAFE)
def product(w: Any, x: Any, prefix: Any, y: Any) -> None:
    """Y = prod_i (w_i x_i + 1 - w_i), with the products of the factors before each in `prefix`."""
    fill_row(x.dtype.type(1), prefix[0])
    last = w.size - 1
    for i in range(last):
        mixed_factor(x[i], w[i], prefix[i], prefix[i + 1])
    mixed_factor(x[last], w[last], prefix[last], y)


@njit(**SAFE)
def product_back(w: Any, x: Any, prefix: Any, pull: Any, g: Any) -> None:
    """Gradients of the weights of `product`; `pull` (the gradient of y) is used up."""
    for i in range(w.size - 1, -1, -1):
        g[i] += mixed_factor_back(x[i], w[i], prefix[i], pull)


@njit(**SAFE)
def nac_weights(p: Any, n: Any, base: Any, w: Any) -> None:
    """Rows of `w`: weight, tanh and sigmoid of n raw weights p[:n] and p[n:2n], with the logarithm of their base."""
    for i in range(n):
        w[1, i] = base * p[i]
        w[2, i] = base * p[n + i]
    tanh_(w[1, :n])
    sigmoid_(w[2, :n])
    for i in range(n):
        w[0, i] = w[1, i] * w[2, i]


@njit(**SAFE)
def nac_back(w: Any, n: Any, base: Any, gw: Any, g: Any) -> None:
    """From the gradient of a NAC weight to those of its raw weights, added to g[:n] and g[n:2n]."""
    one = w.dtype.type(1)
    for i in range(n):
        t, s = w[1, i], w[2, i]
        g[i] += gw[i] * base * (one - t * t) * s
        g[n + i] += gw[i] * base * t * s * (one - s)


@njit(**SAFE)
def pull_to_integers(w: Any, strength: Any, g: Any) -> None:
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
def pull_to_bits(w: Any, strength: Any, g: Any) -> None:
    """Gradient of strength * mean(min(|w|, |1 - w|))."""
    share = strength / w.size
    for i in range(w.size):
        size, rest = abs(w[i]), abs(1 - w[i])
        if size < rest:
            g[i] += share * (1 if w[i] > 0 else (-1 if w[i] < 0 else 0))
        elif size > rest:
            g[i] -= share * (1 if w[i] < 1 else (-1 if w[i] > 1 else 0))


@njit(**SAFE)
def pull_to_ones(w: Any, strength: Any, g: Any) -> None:
    """Gradient of strength * mean(|1 - |w||)."""
    share = strength / w.size
    for i in range(w.size):
        side = 1 if w[i] > 0 else (-1 if w[i] < 0 else 0)
        g[i] += share * side * (-1 if abs(w[i]) < 1 else (1 if abs(w[i]) > 1 else 0))


@njit(**SAFE)
def pull_to_saturation(w: Any, strength: Any, g: Any) -> None:
    """Gradient of strength * mean(max(20 - |w|, 0))."""
    share = strength / w.size
    for i in range(w.size):
        if abs(w[i]) <= 20:
            g[i] -= share * (1 if w[i] > 0 else (-1 if w[i] < 0 else 0))


@njit(**SAFE)
def clip_box(p: Any, low: Any, high: Any) -> None:
    for i in range(p.size):
        p[i] = low if p[i] < low else (high if p[i] > high else p[i])


@njit(**SAFE)
def largest_distance(w: Any) -> Any:
    """Largest distance of a value to the nearest of -1, 0, 1."""
    largest = 0.0
    for i in range(w.size):
        size = abs(w[i])
        distance = min(size, abs(1 - size))
        largest = distance if not distance <= largest else largest
    return largest


@njit(**SAFE)
def nac_distance(p: Any, n: Any, base: Any) -> Any:
    largest = 0.0
    for i in range(n):
        size = abs(math.tanh(base * p[i]) / (1 + math.exp(-base * p[n + i])))
        distance = min(size, abs(1 - size))
        largest = distance if not distance <= largest else largest
    return largest


@njit(**SAFE)
def pull_nac_to_integers(p: Any, n: Any, base: Any, strength: Any, g: Any) -> None:
    """Gradient of strength * mean(min(|w|, |1 - |w||)) through w = tanh sigmoid."""
    for i in range(n):
        t, s = math.tanh(base * p[i]), 1 / (1 + math.exp(-base * p[n + i]))
        size = abs(t * s)
        side = (1 if t > 0 else (-1 if t < 0 else 0)) * (1 if size < 0.5 else (-1 if size > 0.5 else 0))
        pull = strength / n * side * base
        g[i] += pull * (1 - t * t) * s
        g[n + i] += pull * t * s * (1 - s)


@njit(**SAFE)
def free_project(k: Any, p: Any) -> None:
    """Nothing to clip."""


@njit(**SAFE)
def log_magnitudes(x: Any, t: Any) -> None:
    """Rows of t: ln(|x_i| + 1e-7)."""
    for i in range(x.shape[0]):
        log_magnitude(x[i], x.dtype.type(LOG_EPSILON), t[i])


@njit(**SAFE)
def multiply_by_sign(x: Any, out: Any) -> None:
    one, zero = x.dtype.type(1), x.dtype.type(0)
    for b in range(out.size):
        out[b] *= one if x[b] > zero else (-one if x[b] < zero else zero)


@njit(**SAFE)
def add_if_negative(w: Any, x: Any, out: Any) -> None:
    zero = x.dtype.type(0)
    for b in range(out.size):
        out[b] += w if x[b] < zero else zero


@njit(**SUMS)
def any_zero(x: Any) -> Any:
    zero, one = x.dtype.type(0), x.dtype.type(1)
    count = zero
    for i in range(x.shape[0]):
        row = x[i]
        for b in range(row.size):
            count += one if row[b] == zero else zero
    return count > zero


@njit(**SUMS)
def any_negative(x: Any) -> Any:
    count = 0
    for i in range(x.shape[0]):
        row = x[i]
        for b in range(row.size):
            count += 1 if row[b] < 0 else 0
    return count > 0
