"""Levenberg-Marquardt in compiled code: damped Gauss-Newton steps on a fixed sample, for any kernel."""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numba import njit

from nalm.engine.kernels import backward, forward
from nalm.engine.work import Work, revision
from nalm.native import SAFE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nalm.options import LevenbergMarquardt

__all__ = ["Problem"]

TRIALS = 16
"""Dampings that are tried for one step."""
SMALLEST = 1e-14
"""Smallest damping."""


@njit(**SAFE)
def _residual(logarithmic: Any, scale: Any, target: Any, y: Any, r: Any) -> Any:
    """Write the residuals and give the sum of their squares, infinite where one is not a number."""
    total = 0.0
    for b in range(r.size):
        if logarithmic:
            known = y[b] != 0 and target[b] != 0
            r[b] = math.log(abs(y[b])) - math.log(abs(target[b])) if known else 0.0
        else:
            r[b] = scale * (y[b] - target[b])
        total += r[b] * r[b]
    return total if total < np.inf else np.inf


@njit(**SAFE)
def _jacobian(kernel: Any, logarithmic: Any, scale: Any, p: Any, x: Any, work: Any, out: Any) -> None:
    """Derivatives of the residuals by the parameters, a row a sample; `work` has room for one sample."""
    for b in range(x.shape[1]):
        for i in range(x.shape[0]):
            work.x[i, 0] = x[i, b]
        forward(kernel, p, work.x, work.noise, False, work.t, work.w, work.y)
        y = work.y[0]
        work.dy[0] = scale if not logarithmic else (1 / y if y != 0 else 0.0)
        for j in range(p.size):
            work.g[j] = 0
        backward(kernel, p, work.x, work.noise, False, work.t, work.w, work.y, work.dy, work.g)
        for j in range(p.size):
            out[b, j] = work.g[j]


@njit(**SAFE)
def _damped(normal: Any, gradient: Any, frozen: Any, damping: Any, matrix: Any, right: Any) -> None:
    """The system of a step, in which a frozen parameter does not move."""
    for i in range(gradient.size):
        for j in range(gradient.size):
            matrix[i, j] = 0.0 if frozen[i] or frozen[j] else normal[i, j]
        still = frozen[i] or normal[i, i] == 0
        matrix[i, i] = 1.0 if still else normal[i, i] * (1 + damping)
        right[i] = 0.0 if still else -gradient[i]


@cache
def _solver() -> Any:
    """The compiled solver, one specialisation per kernel; built when it is first needed."""
    mark = revision()

    @njit(nogil=True, error_model="numpy", cache=True)  # with memory of its own, for the linear algebra
    def solve(
        kernel: Any,
        options: Any,
        logarithmic: Any,
        scale: Any,
        low: Any,
        high: Any,
        x: Any,
        target: Any,
        wide: Any,
        narrow: Any,
        jacobian: Any,
        p: Any,
        state: Any,
    ) -> Any:
        """Take up to `options.every` steps from p; `state` keeps the damping. Gives whether no further step can help."""
        key = mark  # noqa: F841  (part of the key of the cache)
        size, rows = p.size, target.size
        r, trial, frozen = np.empty(rows), np.empty(size), np.zeros(size, np.bool_)
        matrix, right = np.empty((size, size)), np.empty(size)
        forward(kernel, p, x, wide.noise, False, wide.t, wide.w, wide.y)
        cost = _residual(logarithmic, scale, target, wide.y, r)
        if cost == np.inf:
            return True
        for _ in range(options.every):
            _jacobian(kernel, logarithmic, scale, p, x, narrow, jacobian)
            normal, gradient = np.dot(jacobian.T, jacobian), np.dot(jacobian.T, r)
            if not np.sum(np.abs(gradient)) + np.sum(np.abs(normal)) < np.inf:
                return True
            for i in range(size):
                frozen[i] = (p[i] <= low[i] and gradient[i] > 0) or (p[i] >= high[i] and gradient[i] < 0)
            new = np.inf
            for _ in range(TRIALS):
                _damped(normal, gradient, frozen, state[0], matrix, right)
                step = np.linalg.solve(matrix, right)
                for i in range(size):
                    trial[i] = min(max(p[i] + step[i], low[i]), high[i])
                forward(kernel, trial, x, wide.noise, False, wide.t, wide.w, wide.y)
                new = _residual(logarithmic, scale, target, wide.y, r)
                if new < cost:
                    break
                state[0] *= options.increase
            if not new < cost:
                return True
            state[0] = max(state[0] / options.decrease, SMALLEST)
            gained = (cost - new) / cost
            cost = new
            for i in range(size):
                p[i] = trial[i]
            if gained < 1e-10 or cost < 1e-26 * rows:
                return True
        return False

    return solve


class _Numbers(NamedTuple):
    """The solver's options, for compiled code."""

    every: int
    increase: float
    decrease: float


class Problem:
    """A sample to be explained by a kernel, with scratch for one thread."""

    def __init__(
        self,
        kernel: Any,
        solver: LevenbergMarquardt,
        x: NDArray[np.float64],
        target: NDArray[np.float64],
        box: tuple[NDArray[np.float64], NDArray[np.float64]],
        *,
        logarithmic: bool,
        noisy: int,
    ) -> None:
        inputs, rows = x.shape
        self.kernel, self.solver, self.x, self.target, self.box = kernel, solver, x, target, box
        self.logarithmic = logarithmic
        spread = math.sqrt(float(np.mean(np.square(target))))
        self.scale = 1 / spread if 0 < spread < math.inf else 1.0
        size = box[0].size
        self.wide, self.narrow = (Work.make(kernel, inputs, noisy, size, width, np.float64) for width in (rows, 1))
        self.jacobian = np.empty((rows, size))

    def steps(self, p: NDArray[np.float64], state: NDArray[np.float64]) -> bool:
        """Take up to `every` steps, in place; `state` holds the damping. Gives whether no further step can help."""
        numbers = _Numbers(self.solver.every, self.solver.increase, self.solver.decrease)
        arrays = (*self.box, self.x, self.target, self.wide, self.narrow, self.jacobian, p, state)
        return bool(_solver()(self.kernel, numbers, self.logarithmic, self.scale, *arrays))
