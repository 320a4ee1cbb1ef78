"""Elementary functions over arrays, written so that LLVM vectorises them: exp, log, sine and cosine, tanh, sigmoid.

In float32 they are polynomials after a reduction of the range by bit operations (the classic Cephes coefficients), within
two units in the last place of the exact value over the whole range, infinities and NaN included. They work in place: two
array arguments that might overlap would not be vectorised. In float64 they are the
library's functions, element by element: that precision is for tests.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit, types
from numba.extending import intrinsic, overload

from nalm.native import SAFE, prefer_wide_vectors

__all__ = ["exp_", "log_", "log_magnitude", "log_normal", "sigmoid_", "sincos", "tanh_"]

F = np.float32
I = np.int32  # noqa: E741


@intrinsic
def _bits(context: Any, x: Any) -> Any:
    """The bits of a float32 as an int32."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        prefer_wide_vectors(builder)
        return builder.bitcast(arguments[0], context.get_value_type(types.int32))

    return types.int32(types.float32), build


@intrinsic
def _float(context: Any, x: Any) -> Any:
    """The float32 with the bits of an int32."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        prefer_wide_vectors(builder)
        return builder.bitcast(arguments[0], context.get_value_type(types.float32))

    return types.float32(types.int32), build


@njit(**SAFE, inline="always")
def _exp(x: Any) -> Any:
    """NaN passes both bounds and every sum; beyond the bounds the result overflows to infinity or vanishes by itself."""
    top, bottom, shift = F(89), F(-104), F(12582912.0)  # adding 1.5 * 2^23 rounds to a whole number, found in the lowest bits
    inside = top if x > top else x
    inside = bottom if inside < bottom else inside
    shifted = inside * F(1.44269504088896341) + shift
    k = shifted - shift
    r = inside - k * F(0.693359375)
    r = r - k * F(-2.12194440e-4)
    p = F(1.9875691500e-4)
    p = p * r + F(1.3981999507e-3)
    p = p * r + F(8.3334519073e-3)
    p = p * r + F(4.1665795894e-2)
    p = p * r + F(1.6666665459e-1)
    p = p * r + F(5.0000001201e-1)
    y = p * (r * r) + r + F(1)
    whole = I(_bits(shifted) - I(0x4B400000 - 254))  # twice the exponents' offset of 127: the power of two comes as two factors
    half = I(whole >> I(1))
    return y * _float(I(half << I(23))) * _float(I(I(whole - half) << I(23)))


@njit(**SAFE, inline="always")
def _log(x: Any) -> Any:
    tiny = x < F(1.17549435e-38)
    y = log_normal(x * F(33554432.0) if tiny else x)
    y = y - F(17.32867951399863) if tiny else y
    y = F(-np.inf) if x == F(0) else y
    return y if x >= F(0) else F(np.nan)


@njit(**SAFE, inline="always")
def log_normal(x: Any) -> Any:
    """Logarithm of a number that is neither negative nor denormal; infinity and NaN pass through."""
    bits = _bits(x)
    above = I(bits - I(0x3F3504F3))  # bits above those of the root of a half: exponent and mantissa m around one
    e = F(I(above >> I(23)))
    m = _float(I(bits - I(above & I(-8388608)))) - F(1)
    z = m * m
    y = F(7.0376836292e-2)
    y = y * m + F(-1.1514610310e-1)
    y = y * m + F(1.1676998740e-1)
    y = y * m + F(-1.2420140846e-1)
    y = y * m + F(1.4249322787e-1)
    y = y * m + F(-1.6668057665e-1)
    y = y * m + F(2.0000714765e-1)
    y = y * m + F(-2.4999993993e-1)
    y = y * m + F(3.3333331174e-1)
    y = y * m * z
    y = y + F(-2.12194440e-4) * e
    y = y - F(0.5) * z
    y = m + y + F(0.693359375) * e
    return y if x < F(np.inf) else x


@njit(**SAFE, inline="always")
def _tanh(x: Any) -> Any:
    size = abs(x)
    z = x * x
    p = F(-5.70498872745e-3)
    p = p * z + F(2.06390887954e-2)
    p = p * z + F(-5.37397155531e-2)
    p = p * z + F(1.33314422036e-1)
    p = p * z + F(-3.33332819422e-1)
    near = p * z * x + x
    far = F(1) - F(2) / (_exp(size + size) + F(1))
    far = far if x > F(0) else -far
    y = near if size < F(0.625) else far
    return y if x == x else x


LARGE = 1e5
"""Angles above this in magnitude, rare here, go through the library."""


@njit(**SAFE)
def _sincos32(x: Any, sine: Any, cosine: Any) -> None:
    for b in range(x.size):
        angle = x[b]
        inside = angle if abs(angle) < F(LARGE) else F(0)
        wide = np.float64(inside)
        k = np.floor(wide * 0.63661977236758134308 + 0.5)
        r = F((wide - k * 1.57079632673412561417) - k * 6.07710050650619224932e-11)
        q = I(k)
        z = r * r
        s = F(-1.9515295891e-4)
        s = s * z + F(8.3321608736e-3)
        s = s * z + F(-1.6666654611e-1)
        s = s * z * r + r
        c = F(2.443315711809948e-5)
        c = c * z + F(-1.388731625493765e-3)
        c = c * z + F(4.166664568298827e-2)
        c = c * z * z - F(0.5) * z + F(1)
        odd = I(q & I(1)) == I(1)
        first, second = (c if odd else s), (s if odd else c)
        sine[b] = -first if I(q & I(2)) == I(2) else first
        cosine[b] = -second if I(I(q + I(1)) & I(2)) == I(2) else second
    for b in range(x.size):
        if not abs(x[b]) < F(LARGE):
            sine[b], cosine[b] = F(math.sin(np.float64(x[b]))), F(math.cos(np.float64(x[b])))


@njit(**SAFE)
def _exp32(x: Any) -> None:
    for b in range(x.size):
        x[b] = _exp(x[b])


@njit(**SAFE)
def _log32(x: Any) -> None:
    for b in range(x.size):
        x[b] = _log(x[b])


@njit(**SAFE)
def _log_magnitude32(x: Any, offset: Any, out: Any) -> None:
    for b in range(x.size):
        out[b] = log_normal(abs(x[b]) + offset)


@njit(**SAFE)
def _tanh32(x: Any) -> None:
    for b in range(x.size):
        x[b] = _tanh(x[b])


@njit(**SAFE)
def _sigmoid32(x: Any) -> None:
    for b in range(x.size):
        x[b] = F(1) / (F(1) + _exp(-x[b]))


@njit(**SAFE)
def _exp64(x: Any) -> None:
    for b in range(x.size):
        x[b] = np.exp(x[b])


@njit(**SAFE)
def _log64(x: Any) -> None:
    for b in range(x.size):
        x[b] = np.log(x[b])


@njit(**SAFE)
def _log_magnitude64(x: Any, offset: Any, out: Any) -> None:
    for b in range(x.size):
        out[b] = np.log(abs(x[b]) + offset)


@njit(**SAFE)
def _tanh64(x: Any) -> None:
    for b in range(x.size):
        x[b] = np.tanh(x[b])


@njit(**SAFE)
def _sigmoid64(x: Any) -> None:
    for b in range(x.size):
        x[b] = 1.0 / (1.0 + np.exp(-x[b]))


@njit(**SAFE)
def _sincos64(x: Any, sine: Any, cosine: Any) -> None:
    for b in range(x.size):
        sine[b], cosine[b] = np.sin(x[b]), np.cos(x[b])


def exp_(x: Any) -> None:
    """Replace x by exp(x). To be called from compiled code."""


def log_(x: Any) -> None:
    """Replace x by log(x). To be called from compiled code."""


def tanh_(x: Any) -> None:
    """Replace x by tanh(x). To be called from compiled code."""


def sigmoid_(x: Any) -> None:
    """Replace x by 1 / (1 + exp(-x)). To be called from compiled code."""


def log_magnitude(x: Any, offset: Any, out: Any) -> None:
    """Write log(|x| + offset), offset above 1e-37, to another array. To be called from compiled code."""


def sincos(x: Any, sine: Any, cosine: Any) -> None:
    """Write sin(x) and cos(x); neither may be `x` itself. To be called from compiled code."""


def _by_precision(function: Any, single: Any, double: Any) -> None:
    @overload(function, strict=False)
    def choose(x: Any, *others: Any) -> Any:
        chosen = single if x.dtype == types.float32 else double
        if len(others) == 2:
            return lambda x, first, second: chosen(x, first, second)
        return lambda x: chosen(x)


for _function, _single, _double in (
    (exp_, _exp32, _exp64),
    (log_, _log32, _log64),
    (log_magnitude, _log_magnitude32, _log_magnitude64),
    (tanh_, _tanh32, _tanh64),
    (sigmoid_, _sigmoid32, _sigmoid64),
    (sincos, _sincos32, _sincos64),
):
    _by_precision(_function, _single, _double)
