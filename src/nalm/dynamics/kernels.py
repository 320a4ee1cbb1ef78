"""Right-hand sides of differential equations and their integration with exact gradients, compiled.

A run is integrated with fixed steps between the times of the data, so that what is compared with the data is never
interpolated. The backward pass is the exact derivative of the discrete steps (discretise, then differentiate): at every stage
the transposed Jacobian of the right-hand side, from states that the forward pass kept. Parameters are a flat vector, in the
order of `nn.Module.parameters`; the torch modules are the definition, and tests compare the two.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from numba import njit

from nalm.native import SAFE

__all__ = ["DENSE", "POWER", "REAL_POWER", "Track", "descend", "loss_and_gradient", "scratch_size"]

REAL_POWER, POWER, DENSE = 0, 1, 2
"""Families: Real NPU and NPU before a linear layer; a network of three layers with tanh."""
LARGEST = 40.0
"""Largest logarithm of a product of powers; beyond it the run has blown up."""
FAR = 1e8
"""Magnitude of a state from which a run counts as blown up."""


class Track(NamedTuple):
    """What a model is compared with, and the scratch of one thread."""

    hidden: int
    """Hidden units."""
    epsilon: float
    """Added to magnitudes."""
    lengths: Any
    """Of all steps."""
    counts: Any
    """How many steps lead to each row from the row before, (rows)."""
    starts: Any
    """First state of each trajectory, (trajectories, states)."""
    data: Any
    """(rows, states)."""
    stages: Any
    """Scratch, (steps, 4, states)."""
    work: Any
    """Scratch, (8 * states + `scratch_size`)."""
    gradient: Any
    """Receives the gradient."""
    path: Any
    """Receives the trajectory, (rows, states)."""


def scratch_size(states: int, hidden: int) -> int:
    """Numbers that the right-hand side and its gradient keep in between."""
    return 6 * hidden + 4 * states


@njit(**SAFE, cache=True)
def _power(theta: Any, twisted: bool, hidden: int, epsilon: float, x: Any, out: Any, work: Any) -> None:
    """`out` = C (products of powers of x); keeps log r, phase k, and of each product magnitude, cosine and sine."""
    n = x.size
    gate = hidden * n
    turn = gate + n
    mix = turn + hidden * n if twisted else turn
    for i in range(n):
        g = min(max(theta[gate + i], 0.0), 1.0)
        work[i] = math.log(g * (abs(x[i]) + epsilon) + (1.0 - g))
        work[n + i] = g * math.pi if x[i] < 0.0 else 0.0
        out[i] = 0.0
    for j in range(hidden):
        size, angle = 0.0, 0.0
        for i in range(n):
            w = theta[j * n + i]
            size += w * work[i]
            angle += w * work[n + i]
            if twisted:
                v = theta[turn + j * n + i]
                size -= v * work[n + i]
                angle += v * work[i]
        magnitude = math.exp(size) if size < LARGEST else math.inf
        cosine, sine = 1.0, 0.0
        if angle != 0.0:
            cosine, sine = math.cos(angle), math.sin(angle)
        work[4 * n + 3 * j] = magnitude
        work[4 * n + 3 * j + 1] = cosine
        work[4 * n + 3 * j + 2] = sine
        for i in range(n):
            out[i] += theta[mix + i * hidden + j] * magnitude * cosine


@njit(**SAFE, cache=True)
def _power_gradient(
    theta: Any, twisted: bool, hidden: int, epsilon: float, x: Any, pull: Any, back: Any, gradient: Any, work: Any, out: Any
) -> None:
    """Adds pull' d out / d theta to `gradient` and sets `back` to pull' d out / d x."""
    n = x.size
    gate = hidden * n
    turn = gate + n
    mix = turn + hidden * n if twisted else turn
    _power(theta, twisted, hidden, epsilon, x, out, work)
    for i in range(n):
        work[2 * n + i] = 0.0  # gradient of log r
        work[3 * n + i] = 0.0  # gradient of the phase
    for j in range(hidden):
        magnitude, cosine, sine = work[4 * n + 3 * j], work[4 * n + 3 * j + 1], work[4 * n + 3 * j + 2]
        product = magnitude * cosine
        total = 0.0
        for i in range(n):
            gradient[mix + i * hidden + j] += pull[i] * product
            total += pull[i] * theta[mix + i * hidden + j]
        size, angle = total * product, -total * magnitude * sine
        for i in range(n):
            w = theta[j * n + i]
            gradient[j * n + i] += size * work[i] + angle * work[n + i]
            work[2 * n + i] += size * w
            work[3 * n + i] += angle * w
            if twisted:
                v = theta[turn + j * n + i]
                gradient[turn + j * n + i] += angle * work[i] - size * work[n + i]
                work[2 * n + i] += angle * v
                work[3 * n + i] -= size * v
    for i in range(n):
        raw = theta[gate + i]
        g = min(max(raw, 0.0), 1.0)
        r = math.exp(work[i])
        if 0.0 <= raw <= 1.0:
            turned = math.pi if x[i] < 0.0 else 0.0
            gradient[gate + i] += work[2 * n + i] * (abs(x[i]) + epsilon - 1.0) / r + work[3 * n + i] * turned
        sign = 1.0 if x[i] > 0.0 else -1.0 if x[i] < 0.0 else 0.0
        back[i] = work[2 * n + i] * g * sign / r


@njit(**SAFE, cache=True)
def _dense(theta: Any, hidden: int, x: Any, out: Any, work: Any) -> None:
    """A linear layer, tanh, a linear layer, tanh, a linear layer, each with bias; keeps both hidden layers."""
    n, h = x.size, hidden
    first_bias = h * n
    second = first_bias + h
    second_bias = second + h * h
    third = second_bias + h
    third_bias = third + n * h
    for j in range(h):
        total = theta[first_bias + j]
        for i in range(n):
            total += theta[j * n + i] * x[i]
        work[j] = math.tanh(total)
    for j in range(h):
        total = theta[second_bias + j]
        for i in range(h):
            total += theta[second + j * h + i] * work[i]
        work[h + j] = math.tanh(total)
    for i in range(n):
        total = theta[third_bias + i]
        for j in range(h):
            total += theta[third + i * h + j] * work[h + j]
        out[i] = total


@njit(**SAFE, cache=True)
def _dense_gradient(theta: Any, hidden: int, x: Any, pull: Any, back: Any, gradient: Any, work: Any, out: Any) -> None:
    """Adds pull' d out / d theta to `gradient` and sets `back` to pull' d out / d x."""
    n, h = x.size, hidden
    first_bias = h * n
    second = first_bias + h
    second_bias = second + h * h
    third = second_bias + h
    third_bias = third + n * h
    _dense(theta, hidden, x, out, work)
    for j in range(h):
        work[2 * h + j] = 0.0
    for i in range(n):
        gradient[third_bias + i] += pull[i]
        for j in range(h):
            gradient[third + i * h + j] += pull[i] * work[h + j]
    for j in range(h):
        total = 0.0
        for i in range(n):
            total += pull[i] * theta[third + i * h + j]
        total *= 1.0 - work[h + j] * work[h + j]
        gradient[second_bias + j] += total
        for i in range(h):
            gradient[second + j * h + i] += total * work[i]
            work[2 * h + i] += total * theta[second + j * h + i]
    for i in range(n):
        back[i] = 0.0
    for j in range(h):
        total = work[2 * h + j] * (1.0 - work[j] * work[j])
        gradient[first_bias + j] += total
        for i in range(n):
            gradient[j * n + i] += total * x[i]
            back[i] += total * theta[j * n + i]


@njit(**SAFE, cache=True)
def _slope(family: int, theta: Any, hidden: int, epsilon: float, x: Any, out: Any, work: Any) -> None:
    if family == DENSE:
        _dense(theta, hidden, x, out, work)
    else:
        _power(theta, family == POWER, hidden, epsilon, x, out, work)


@njit(**SAFE, cache=True)
def _slope_gradient(
    family: int, theta: Any, hidden: int, epsilon: float, x: Any, pull: Any, back: Any, gradient: Any, work: Any, out: Any
) -> None:
    if family == DENSE:
        _dense_gradient(theta, hidden, x, pull, back, gradient, work, out)
    else:
        _power_gradient(theta, family == POWER, hidden, epsilon, x, pull, back, gradient, work, out)


@njit(**SAFE, cache=True)
def loss_and_gradient(family: int, theta: Any, track: Track) -> float:
    """Mean square of data minus trajectory; leaves gradient and trajectory in the track. Infinite where the run blows up.

    Steps are Runge and Kutta's of fourth order. A row that no step leads to is where a trajectory starts.
    """
    hidden, epsilon, lengths, counts, starts, data, stages, work, gradient, path = track
    rows, n = data.shape
    now, slope, pull, back = work[:n], work[n : 2 * n], work[2 * n : 3 * n], work[3 * n : 4 * n]
    total, lent, late, own = work[4 * n : 5 * n], work[5 * n : 6 * n], work[6 * n : 7 * n], work[8 * n :]
    gradient[:] = 0.0
    loss = 0.0
    k = piece = 0
    for row in range(rows):
        if counts[row] == 0:
            for i in range(n):
                now[i] = starts[piece, i]
            piece += 1
        for _ in range(counts[row]):
            step = lengths[k]
            for i in range(n):
                stages[k, 0, i] = now[i]
                total[i] = 0.0
            for stage in range(4):
                _slope(family, theta, hidden, epsilon, stages[k, stage], slope, own)
                share = step / 6.0 if stage in (0, 3) else step / 3.0
                reach = step / 2.0 if stage < 2 else step
                for i in range(n):
                    total[i] += share * slope[i]
                    if stage < 3:
                        stages[k, stage + 1, i] = now[i] + reach * slope[i]
            for i in range(n):
                now[i] += total[i]
                if not abs(now[i]) < FAR:
                    return math.inf
            k += 1
        for i in range(n):
            path[row, i] = now[i]
            loss += (now[i] - data[row, i]) ** 2
    count = rows * n
    for i in range(n):
        late[i] = 0.0
    for row in range(rows - 1, -1, -1):
        for i in range(n):
            late[i] += 2.0 * (path[row, i] - data[row, i]) / count
        if counts[row] == 0:
            for i in range(n):
                late[i] = 0.0
        for _ in range(counts[row]):
            k -= 1
            step = lengths[k]
            for i in range(n):
                total[i] = late[i]
                lent[i] = 0.0
            for stage in range(3, -1, -1):
                share = step / 6.0 if stage in (0, 3) else step / 3.0
                reach = step if stage == 2 else step / 2.0
                for i in range(n):
                    pull[i] = share * late[i] + reach * lent[i]
                _slope_gradient(family, theta, hidden, epsilon, stages[k, stage], pull, back, gradient, own, slope)
                for i in range(n):
                    lent[i] = back[i]
                    total[i] += back[i]
            for i in range(n):
                late[i] = total[i]
    return loss / float(count)


@njit(**SAFE, cache=True)
def descend(
    family: int,
    theta: Any,
    track: Track,
    l1: float,
    rate: float,
    steps: int,
    adam: bool,
    first: Any,
    second: Any,
    best: Any,
) -> tuple[int, float]:
    """Adam's or RMSProp's steps on mean square plus L1; steps taken, and the least loss, whose parameters are in `best`.

    Ends early where the run blows up: fewer steps than asked for then.
    """
    least = math.inf
    for p in range(theta.size):
        best[p] = theta[p]
    for step in range(1, steps + 1):
        loss = loss_and_gradient(family, theta, track)
        for p in range(theta.size):
            loss += l1 * abs(theta[p])
        if not loss < math.inf:
            return step - 1, least
        if loss < least:
            least = loss
            for p in range(theta.size):
                best[p] = theta[p]
        for p in range(theta.size):
            g = track.gradient[p] + l1 * (1.0 if theta[p] > 0.0 else -1.0 if theta[p] < 0.0 else 0.0)
            if adam:
                first[p] = 0.9 * first[p] + 0.1 * g
                second[p] = 0.999 * second[p] + 0.001 * g * g
                size = math.sqrt(second[p] / (1.0 - 0.999**step)) + 1e-8
                theta[p] -= rate * first[p] / (1.0 - 0.9**step) / size
            else:
                second[p] = 0.9 * second[p] + 0.1 * g * g
                theta[p] -= rate * g / (math.sqrt(second[p]) + 1e-8)
    return steps, least
