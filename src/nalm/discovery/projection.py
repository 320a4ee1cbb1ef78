"""Quotients of sums of products of powers by variable projection, compiled.

The model is ``t = sum_k c_k m_k / (1 + sum_l d_l m_l)`` with products of powers ``m = prod_i |x_i| ** e_i``. Exponents and the
denominator's coefficients are found by Levenberg-Marquardt steps; the numerator's coefficients follow in closed form. Rows in
which every input has the same sign form a block. A term's sign is constant there, so each block has coefficients of its own
while the exponents are searched, whatever the signs will turn out to be. Residuals are weighted, usually by one over the
target: laws often span decades.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numba import njit

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Problem", "sign_blocks", "solve_exponents"]

OPTIONS = {"nogil": True, "error_model": "numpy", "fastmath": {"contract", "reassoc", "nsz"}, "cache": True}
LARGEST = 80.0
"""Largest magnitude of a term's logarithm, far beyond any start that could lead anywhere."""
RIDGE = 1e-12
TRIALS = 10


class Problem(NamedTuple):
    """What exponents are to explain; the order is that of the arguments of `solve_exponents`."""

    logs: NDArray[np.float64]
    """Logarithms of the inputs' magnitudes, (rows, inputs)."""
    weight: NDArray[np.float64]
    target: NDArray[np.float64]
    blocks: NDArray[np.int64]
    """Rows at which blocks of equal signs start, and the end."""
    above: int
    """Terms of the numerator."""


@njit(**OPTIONS)
def _products(logs: Any, exponents: Any, out: Any) -> None:
    """Products of powers, (rows, terms)."""
    for r in range(logs.shape[0]):
        for k in range(exponents.shape[0]):
            total = 0.0
            for i in range(logs.shape[1]):
                total += exponents[k, i] * logs[r, i]
            out[r, k] = math.exp(min(max(total, -LARGEST), LARGEST))


@njit(**OPTIONS)
def _weighted(weight: Any, products: Any, size: Any, scales: Any, below: Any, terms: Any) -> None:
    """The denominator of each row, and the numerator's terms over it, weighted."""
    for r in range(weight.size):
        total = 1.0
        for k in range(scales.size):
            total += scales[k] * products[r, size + k]
        below[r] = total
        for k in range(size):
            terms[r, k] = weight[r] * products[r, k] / total


@njit(**OPTIONS)
def _factor(terms: Any, start: Any, stop: Any, triangle: Any) -> None:
    """Cholesky factor of the terms' products over a block of rows."""
    size = terms.shape[1]
    for i in range(size):
        for j in range(i + 1):
            total = 0.0
            for r in range(start, stop):
                total += terms[r, i] * terms[r, j]
            triangle[i, j] = total
    for i in range(size):
        for j in range(i + 1):
            value = triangle[i, j] * (1 + RIDGE if i == j else 1.0)
            for m in range(j):
                value -= triangle[i, m] * triangle[j, m]
            triangle[i, j] = math.sqrt(max(value, 1e-300)) if i == j else value / triangle[j, j]


@njit(**OPTIONS)
def _substitute(triangle: Any, b: Any) -> None:
    """Solve the normal equations of a factored block for b, in place."""
    size = b.size
    for i in range(size):
        for m in range(i):
            b[i] -= triangle[i, m] * b[m]
        b[i] /= triangle[i, i]
    for i in range(size - 1, -1, -1):
        for m in range(i + 1, size):
            b[i] -= triangle[m, i] * b[m]
        b[i] /= triangle[i, i]


@njit(**OPTIONS)
def _project(terms: Any, target: Any, blocks: Any, triangles: Any, coefficients: Any, residual: Any) -> Any:
    """Fit the coefficients of every block; write what they leave over and give the sum of its squares."""
    cost = 0.0
    for o in range(blocks.size - 1):
        start, stop = blocks[o], blocks[o + 1]
        _factor(terms, start, stop, triangles[o])
        own = coefficients[o]
        for k in range(own.size):
            own[k] = 0.0
            for r in range(start, stop):
                own[k] += terms[r, k] * target[r]
        _substitute(triangles[o], own)
        for r in range(start, stop):
            value = target[r]
            for k in range(own.size):
                value -= terms[r, k] * own[k]
            residual[r] = value
            cost += value * value
    return cost if cost < np.inf else np.inf


@njit(**OPTIONS)
def _remove(column: Any, terms: Any, start: Any, stop: Any, triangle: Any, b: Any) -> None:
    """Take out of a column, over a block of rows, what coefficients of the terms could make of it."""
    for m in range(b.size):
        b[m] = 0.0
        for r in range(start, stop):
            b[m] += terms[r, m] * column[r]
    _substitute(triangle, b)
    for r in range(start, stop):
        for m in range(b.size):
            column[r] -= terms[r, m] * b[m]


@njit(**OPTIONS)
def _jacobian(
    logs: Any,
    products: Any,
    scales: Any,
    below: Any,
    terms: Any,
    blocks: Any,
    triangles: Any,
    coefficients: Any,
    b: Any,
    out: Any,
) -> None:
    """Derivatives of the residuals, a row a parameter, with the coefficients following (Kaufman's approximation)."""
    inputs, size, lower = logs.shape[1], terms.shape[1], scales.size
    for o in range(blocks.size - 1):
        start, stop, own = blocks[o], blocks[o + 1], coefficients[o]
        for k in range(size):
            for i in range(inputs):
                row = out[k * inputs + i]
                for r in range(start, stop):
                    row[r] = -terms[r, k] * own[k] * logs[r, i]
        for d in range(lower):
            last = out[(size + lower) * inputs + d]
            for r in range(start, stop):
                value = 0.0
                for k in range(size):
                    value += terms[r, k] * own[k]
                last[r] = value * products[r, size + d] / below[r]
            for i in range(inputs):
                row = out[(size + d) * inputs + i]
                for r in range(start, stop):
                    row[r] = last[r] * scales[d] * logs[r, i]
        for j in range(out.shape[0]):
            _remove(out[j], terms, start, stop, triangles[o], b)


@njit(nogil=True, error_model="numpy", cache=True)
def solve_exponents(
    logs: Any,
    weight: Any,
    target: Any,
    blocks: Any,
    size: Any,
    exponents: Any,
    scales: Any,
    free: Any,
    steps: Any,
    bound: Any,
    enough: Any,
) -> Any:
    """Improve, in place, exponents (terms, inputs) where they are `free`, and the denominator's scales; give the mean square.

    The first `size` terms are the numerator's, the others belong to the scales. `blocks` are the rows at which blocks of equal
    signs start, and the end. Stops after `steps` steps, when a step gains less than a millionth, or when the mean square of
    the weighted residuals is below `enough`.
    """
    rows, inputs = logs.shape
    lower = scales.size
    count, powers = blocks.size - 1, (size + lower) * inputs
    parameters = powers + lower
    products, terms, below = np.empty((rows, size + lower)), np.empty((rows, size)), np.empty(rows)
    residual, trial, moved = np.empty(rows), np.empty_like(exponents), np.empty_like(scales)
    triangles, coefficients = np.empty((count, size, size)), np.empty((count, size))
    jacobian, scratch, aim = np.empty((parameters, rows)), np.empty(size), weight * target
    _products(logs, exponents, products)
    _weighted(weight, products, size, scales, below, terms)
    cost = _project(terms, aim, blocks, triangles, coefficients, residual)
    damping = 1e-2
    for _ in range(steps):
        if not cost < np.inf or cost < enough * rows:
            break
        _jacobian(logs, products, scales, below, terms, blocks, triangles, coefficients, scratch, jacobian)
        for k in range(size + lower):
            for i in range(inputs):
                if not free[k, i]:
                    jacobian[k * inputs + i] = 0.0
        normal, gradient = jacobian @ jacobian.T, jacobian @ residual
        floor = 1e-9 * np.trace(normal) / parameters + 1e-300
        if not floor < np.inf:
            break
        new = np.inf
        for _ in range(TRIALS):
            matrix = normal.copy()
            for j in range(parameters):
                matrix[j, j] += damping * (normal[j, j] + floor)
            step = np.linalg.solve(matrix, gradient)
            for k in range(size + lower):
                for i in range(inputs):
                    value = exponents[k, i] - step[k * inputs + i] if free[k, i] else exponents[k, i]
                    trial[k, i] = min(max(value, -bound), bound)
            for d in range(lower):
                moved[d] = scales[d] - step[powers + d]
            _products(logs, trial, products)
            _weighted(weight, products, size, moved, below, terms)
            new = _project(terms, aim, blocks, triangles, coefficients, residual)
            if new < cost:
                break
            damping *= 4
        if not new < cost:
            break
        gained = (cost - new) / cost
        cost = new
        exponents[:] = trial
        scales[:] = moved
        damping = max(damping / 6, 1e-12)
        if gained < 1e-6:
            break
    return cost / rows


def sign_blocks(x: NDArray[np.float64], least: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows ordered by the signs of their inputs, and where each block of equal signs starts, and the end.

    Rows of blocks with fewer than `least` rows are left out: they have no more rows than coefficients.
    """
    signs = np.packbits(x < 0, axis=1)
    _, which, counts = np.unique(signs, axis=0, return_inverse=True, return_counts=True)
    which = which.reshape(-1)
    order = np.argsort(which, kind="stable")
    order = order[counts[which[order]] >= least]
    kept = which[order]
    starts = np.flatnonzero(np.diff(kept)) + 1
    return order, np.concatenate([[0], starts, [len(kept)]]).astype(np.int64)
