"""The counter-based random stream, compiled, and rows of numbers drawn from a distribution with it.

Every random number is a function of (seed, purpose, step, index) and of nothing else: a run's data do not depend on the grid
it is part of, on the number of threads, or on what was drawn before.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numba import njit, types
from numba.extending import intrinsic

from nalm.native import SAFE, prefer_wide_vectors
from nalm.vector import log_normal

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["fill_normal", "fill_rows", "fill_uniform", "inverse_normal", "stream"]

TRAIN, VALIDATION, TEST, NOISE, GRADIENT, SIMULATION, CHECK = range(7)
"""Purposes of the stream; distributions that need a second number a value draw it under purpose + CHOICE, and whether a value
is a copy of its neighbour under purpose + TIE."""
CHOICE, TIE = 16, 32

STRIDE = 0x9E3779B1
"""Distance of the places of two neighbouring indices."""

_U32, _U64 = np.uint32, np.uint64


@njit(nogil=True)
def _mix(z: Any) -> Any:
    """Finaliser of splitmix64: every input bit changes every output bit with probability one half."""
    z = (z ^ (z >> _U64(30))) * _U64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> _U64(27))) * _U64(0x94D049BB133111EB)
    return z ^ (z >> _U64(31))


@njit(nogil=True)
def stream_key(seed: Any, purpose: Any, step: Any) -> Any:
    """64-bit key of the numbers with this seed, purpose and step."""
    key = _mix(_U64(seed) + _U64(0x9E3779B97F4A7C15))
    key = _mix(key ^ (_U64(purpose) + _U64(0xD1B54A32D192ED03)))
    return _mix(key ^ (_U64(step) + _U64(0x8CB92BA72F3D8DD7)))


@intrinsic
def _place(context: Any, low: Any, index: Any) -> Any:
    """Where the numbers of an index start, ``low + index * 0x9E3779B1`` modulo 2^32."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        low, index = arguments
        return builder.add(builder.mul(index, context.get_constant(types.uint32, STRIDE)), low)

    return types.uint32(types.uint32, types.uint32), build


@intrinsic
def _word(context: Any, place: Any, high: Any) -> Any:
    """32 random bits of a place: a multiplicative hash with both halves of the key mixed in.

    ``h = (h ^ h >> 16) * 0x21F0AAAD; h = (h ^ h >> 15) + high; h = (h ^ h >> 15) * 0x735A2D97; h ^ h >> 15``, all modulo 2^32.
    Written as 32-bit instructions because Numba would widen them to 64 bits, at half the speed.
    """

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        h, high = arguments
        prefer_wide_vectors(builder)

        def number(value: int) -> Any:
            return context.get_constant(types.uint32, value)

        def folded(h: Any, bits: int) -> Any:
            return builder.xor(h, builder.lshr(h, number(bits)))

        h = builder.mul(folded(h, 16), number(0x21F0AAAD))
        h = builder.add(folded(h, 15), high)
        h = builder.mul(folded(h, 15), number(0x735A2D97))
        return folded(h, 15)

    return types.uint32(types.uint32, types.uint32), build


@njit(nogil=True, inline="always")
def _unit(word: Any, like: Any) -> Any:
    """A number in (0, 1) from the upper 23 bits of a word: the middle of a cell, exact in float32, never zero or one."""
    return (like.dtype.type(np.int32(word >> _U32(9))) + like.dtype.type(0.5)) * like.dtype.type(2.0**-23)


@njit(nogil=True, cache=True)
def fill_uniform(seed: Any, purpose: Any, step: Any, out: Any) -> None:
    """Fill a flat array with uniform numbers in (0, 1), odd multiples of 2^-24, exact in float32 and float64."""
    key = stream_key(seed, purpose, step)
    low, high = _U32(key & _U64(0xFFFFFFFF)), _U32(key >> _U64(32))
    for i in range(out.size):
        out[i] = _unit(_word(_place(low, _U32(i)), high), out)


@njit(nogil=True, cache=True)
def fill_normal(seed: Any, purpose: Any, step: Any, out: Any) -> None:
    """Fill a flat array with standard normal numbers, by inversion of 32-bit uniform ones."""
    key = stream_key(seed, purpose, step)
    low, high = _U32(key & _U64(0xFFFFFFFF)), _U32(key >> _U64(32))
    for i in range(out.size):
        out[i] = inverse_normal((float(_word(_place(low, _U32(i)), high)) + 0.5) * 2.0**-32)


@njit(nogil=True)
def inverse_normal(p: Any) -> Any:
    """Quantile of the standard normal distribution (Wichura's algorithm AS 241, about 16 digits)."""
    q = p - 0.5
    if abs(q) <= 0.425:
        r = 0.180625 - q * q
        top = _horner(r, _CENTRE_TOP)
        return q * top / _horner(r, _CENTRE_BOTTOM)
    r = math.sqrt(-math.log(p if q < 0 else 1.0 - p))
    if r <= 5.0:
        r -= 1.6
        x = _horner(r, _MIDDLE_TOP) / _horner(r, _MIDDLE_BOTTOM)
    else:
        r -= 5.0
        x = _horner(r, _TAIL_TOP) / _horner(r, _TAIL_BOTTOM)
    return -x if q < 0 else x


@njit(nogil=True, inline="always")
def _horner(r: Any, coefficients: Any) -> Any:
    total = 0.0
    for c in coefficients:
        total = total * r + c
    return total


_CENTRE_TOP = np.array(
    [
        2.5090809287301226727e3,
        3.3430575583588128105e4,
        6.7265770927008700853e4,
        4.5921953931549871457e4,
        1.3731693765509461125e4,
        1.9715909503065514427e3,
        1.3314166789178437745e2,
        3.3871328727963666080,
    ]
)
_CENTRE_BOTTOM = np.array(
    [
        5.2264952788528545610e3,
        2.8729085735721942674e4,
        3.9307895800092710610e4,
        2.1213794301586595867e4,
        5.3941960214247511077e3,
        6.8718700749205790830e2,
        4.2313330701600911252e1,
        1.0,
    ]
)
_MIDDLE_TOP = np.array(
    [
        7.74545014278341407640e-4,
        2.27238449892691845833e-2,
        2.41780725177450611770e-1,
        1.27045825245236838258,
        3.64784832476320460504,
        5.76949722146069140550,
        4.63033784615654529590,
        1.42343711074968357734,
    ]
)
_MIDDLE_BOTTOM = np.array(
    [
        1.05075007164441684324e-9,
        5.47593808499534494600e-4,
        1.51986665636164571966e-2,
        1.48103976427480074590e-1,
        6.89767334985100004550e-1,
        1.67638483018380384940,
        2.05319162663775882187,
        1.0,
    ]
)
_TAIL_TOP = np.array(
    [
        2.01033439929228813265e-7,
        2.71155556874348757815e-5,
        1.24266094738807843860e-3,
        2.65321895265761230930e-2,
        2.96560571828504891230e-1,
        1.78482653991729133580,
        5.46378491116411436990,
        6.65790464350110377720,
    ]
)
_TAIL_BOTTOM = np.array(
    [
        2.04426310338993978564e-15,
        1.42151175831644588870e-7,
        1.84631831751005468180e-5,
        7.86869131145613259100e-4,
        1.48753612908506148525e-2,
        1.36929880922735805310e-1,
        5.99832206555887937690e-1,
        1.0,
    ]
)

_BENFORD = np.cumsum([0.301, 0.176, 0.125, 0.097, 0.079, 0.067, 0.058, 0.051, 0.046])
"""Cumulative probability of the leading digits 1 to 9, as printed in the papers."""

UNIFORM, NORMAL, BENFORD, EXPONENTIAL, WHOLE = range(5)
ONE, EITHER, HALVES, SEQUENCE = range(4)
SOBOL_BITS = 24
"""Bits of a Sobol point: enough for 16 million points, and for the precision of float32."""


@njit(nogil=True)
def _value(part: Any, u: Any, v: Any) -> Any:
    """A value of one part of a distribution from one or two uniform numbers."""
    kind = int(part[0])
    if kind == NORMAL:
        return part[1] + part[2] * inverse_normal(part[3] + (part[4] - part[3]) * u)
    if kind == BENFORD:
        digit = 1.0
        for k in range(8):
            digit += 1.0 if u >= _BENFORD[k] else 0.0
        rest = math.floor(part[1] + (part[2] - part[1]) * v)
        return digit * part[3] + rest
    if kind == EXPONENTIAL:
        return -part[1] * math.log(1.0 - u)
    if kind == WHOLE:
        return part[1] + math.floor(part[2] * u)
    return part[1] + part[2] * u


@njit(nogil=True)
def _fill_range(low: Any, high: Any, offset: Any, start: Any, width: Any, row: Any) -> None:
    """Fill a row with uniform numbers from start to start + width; a function of its own so that it is vectorised."""
    first, factor = row.dtype.type(start), row.dtype.type(width)
    place = _place(low, _U32(offset))
    for b in range(row.size):
        row[b] = first + factor * _unit(_word(place, high), row)
        place = _place(place, _U32(1))


@njit(nogil=True)
def _fill_sequence(code: Any, first: Any, out: Any) -> None:
    """Fill `out` with consecutive points of the Sobol sequence, the first of them at a place in it (Gray code order)."""
    bits, low, width = code.shape[1], code[0, 1], code[0, 2]
    for i in range(out.shape[0]):
        gray, point = first ^ (first >> 1), 0
        for j in range(bits):
            point ^= int(code[3 + i, j]) if (gray >> j) & 1 else 0
        for b in range(out.shape[1]):
            out[i, b] = low + width * (point * 2.0**-SOBOL_BITS)
            index, j = first + b + 1, 0
            while index & 1 == 0:
                index >>= 1
                j += 1
            point ^= int(code[3 + i, j]) if j < bits else 0


@njit(nogil=True, inline="always")
def _open_unit(word: Any) -> Any:
    """A double in (0, 1) from all 32 bits of a word."""
    return (np.float64(word) + 0.5) * 2.0**-32


@njit(**SAFE)
def _fill_normal_range(low: Any, high: Any, offset: Any, part: Any, row: Any) -> None:
    """Fill a row with truncated normal numbers: `inverse_normal` with both branches computed, so that it is vectorised.

    The logarithm is that of float32: good to seven digits, as is what float32 rows hold. 32 bits do not reach the far tail.
    """
    mean, deviation, start, width = part[1], part[2], part[3], part[4] - part[3]
    place = _place(low, _U32(offset))
    for b in range(row.size):
        p = start + width * _open_unit(_word(place, high))
        q = p - 0.5
        r = 0.180625 - q * q
        top, bottom = 0.0, 0.0
        for k in range(8):
            top = top * r + _CENTRE_TOP[k]
            bottom = bottom * r + _CENTRE_BOTTOM[k]
        centre = q * top / bottom
        side = p if q < 0 else 1.0 - p
        r = math.sqrt(-np.float64(log_normal(np.float32(side)))) - 1.6
        top, bottom = 0.0, 0.0
        for k in range(8):
            top = top * r + _MIDDLE_TOP[k]
            bottom = bottom * r + _MIDDLE_BOTTOM[k]
        tail = -top / bottom if q < 0 else top / bottom
        row[b] = mean + deviation * (centre if abs(q) <= 0.425 else tail)
        place = _place(place, _U32(1))


@njit(nogil=True)
def _fill_benford(low: Any, high: Any, other_low: Any, other_high: Any, offset: Any, part: Any, row: Any) -> None:
    """Fill a row with whole numbers after Benford's law."""
    place, other = _place(low, _U32(offset)), _place(other_low, _U32(offset))
    for b in range(row.size):
        u = _open_unit(_word(place, high))
        digit = 1.0
        for k in range(8):
            digit += 1.0 if u >= _BENFORD[k] else 0.0
        v = np.float64(_word(other, other_high)) * 2.0**-32
        row[b] = digit * part[3] + math.floor(part[1] + (part[2] - part[1]) * v)
        place, other = _place(place, _U32(1)), _place(other, _U32(1))


@njit(nogil=True)
def _fill_either(low: Any, high: Any, other_low: Any, other_high: Any, offset: Any, code: Any, row: Any) -> None:
    """Fill a row with values from one of two uniform ranges each."""
    start, width = row.dtype.type(code[1, 1]), row.dtype.type(code[1, 2])
    other_start, other_width = row.dtype.type(code[2, 1]), row.dtype.type(code[2, 2])
    place, other = _place(low, _U32(offset)), _place(other_low, _U32(offset))
    for b in range(row.size):
        u = _unit(_word(place, high), row)
        first = np.int32(_word(other, other_high)) >= np.int32(0)
        row[b] = start + width * u if first else other_start + other_width * u
        place, other = _place(place, _U32(1)), _place(other, _U32(1))


@njit(nogil=True)
def _fill_whole(low: Any, high: Any, offset: Any, part: Any, row: Any) -> None:
    """Fill a row with whole numbers, each as likely as the others."""
    place = _place(low, _U32(offset))
    for b in range(row.size):
        row[b] = part[1] + math.floor(part[2] * _open_unit(_word(place, high)))
        place = _place(place, _U32(1))


@njit(nogil=True)
def _tie_row(low: Any, high: Any, offset: Any, share: Any, before: Any, row: Any) -> None:
    """Copy values of the row before, each with a chance."""
    place = _place(low, _U32(offset))
    for b in range(row.size):
        row[b] = before[b] if _open_unit(_word(place, high)) < share else row[b]
        place = _place(place, _U32(1))


@njit(nogil=True, cache=True)
def fill_rows(code: Any, seed: Any, purpose: Any, step: Any, out: Any) -> None:
    """Fill `out` (columns, rows) with a batch of inputs; `code` comes from `Distribution.encode`.

    The numbers are computed in the precision of `out` for uniform parts, in double precision for the others.
    """
    _fill_apart(code, seed, purpose, step, out)
    share = code[0, 4]
    if share > 0:
        columns, rows = out.shape
        key = stream_key(seed, purpose + TIE, step)
        low, high = _U32(key & _U64(0xFFFFFFFF)), _U32(key >> _U64(32))
        for i in range(1, columns):
            _tie_row(low, high, i * rows, share, out[i - 1], out[i])


@njit(nogil=True)
def _fill_apart(code: Any, seed: Any, purpose: Any, step: Any, out: Any) -> None:
    """Fill `out` with values that are drawn one by one."""
    columns, rows = out.shape
    mode = int(code[0, 0])
    if mode == SEQUENCE:
        _fill_sequence(code, 1 + step * rows, out)
        return
    key = stream_key(seed, purpose, step)
    low, high = _U32(key & _U64(0xFFFFFFFF)), _U32(key >> _U64(32))
    plain = code[1, 0] == UNIFORM and (mode == ONE or code[2, 0] == UNIFORM)
    if plain and mode != EITHER:
        for i in range(columns):
            part = 2 if mode == HALVES and i >= columns // 2 else 1
            _fill_range(low, high, _U32(i * rows), code[part, 1], code[part, 2], out[i])
        return
    key = stream_key(seed, purpose + CHOICE, step)
    other_low, other_high = _U32(key & _U64(0xFFFFFFFF)), _U32(key >> _U64(32))
    for i in range(columns):
        part = 2 if mode == HALVES and i >= columns // 2 else 1
        if plain:
            _fill_either(low, high, other_low, other_high, i * rows, code, out[i])
            continue
        if mode != EITHER and code[part, 0] == NORMAL:
            _fill_normal_range(low, high, i * rows, code[part], out[i])
            continue
        if mode != EITHER and code[part, 0] == WHOLE:
            _fill_whole(low, high, i * rows, code[part], out[i])
            continue
        if mode != EITHER and code[part, 0] == BENFORD:
            _fill_benford(low, high, other_low, other_high, i * rows, code[part], out[i])
            continue
        for b in range(rows):
            index = _U32(i * rows + b)
            word, other = _word(_place(low, index), high), _word(_place(other_low, index), other_high)
            if mode == EITHER:
                part = 1 + int(other >> _U32(31))
            if code[part, 0] == UNIFORM:
                out[i, b] = out.dtype.type(code[part, 1]) + out.dtype.type(code[part, 2]) * _unit(word, out)
            else:
                out[i, b] = _value(code[part], (float(word) + 0.5) * 2.0**-32, float(other) * 2.0**-32)


def stream(seed: int, purpose: int, step: int, count: int) -> NDArray[np.float64]:
    """The first `count` uniform numbers in (0, 1) with this seed, purpose and step."""
    out = np.empty(count)
    fill_uniform(seed, purpose, step, out)
    return out
