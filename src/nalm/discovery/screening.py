"""Which columns of a wide table matter: all are looked at, alone and in pairs, before laws are searched among a few.

Two models grow term by term: a sum, of inputs, their squares, reciprocals and the products of two of these; and a product of
powers, which is a sum of logarithms. Whatever the number of pairs, a step takes a few products of matrices.
"""

from __future__ import annotations

import math
from itertools import chain, zip_longest
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

__all__ = ["ranked", "speaks"]

ROWS = 1_000
"""Most rows that are looked at."""
PAIRED = 300
"""Most columns of which pairs are looked at; of more, those that say most alone."""
STEPS = 8
"""Most terms of the sum and of the product."""
CLEAR = 0.01
"""Share of the target's variance left below which the sum, or the product, is taken for the better model of the two."""
NOTHING = 1e-9
"""Share of a term's squares below which it is made of terms that are there already."""
SURE = 20.0
"""By how much chi-square of the best of many terms must exceed what chance gives."""


@np.errstate(all="ignore")
def ranked(x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.int64]:
    """All columns, those first that explain the target in the fewest terms."""
    x, y = _filled(x[:ROWS]), y[:ROWS]
    logs, log_y = np.log(np.abs(x) + 1e-300), np.log(np.abs(y) + 1e-300)
    alone = np.argsort(-np.maximum(_alike(x, y), _alike(logs, log_y)), kind="stable")
    near = alone[:PAIRED]
    terms, one = _terms(x[:, near]), np.ones((len(y), 1))
    sums = [([int(near[i]) for i in columns], left) for columns, left in _grown(terms, terms, y, len(near))]
    products = list(_grown(one, np.column_stack([one, _unit(logs)]), log_y, x.shape[1]))
    both = sorted([sums, products], key=lambda steps: min((left for _, left in steps), default=1.0))
    clear = any(left < CLEAR for _, left in both[0])
    steps = chain(*both) if clear else chain.from_iterable(zip_longest(*both, fillvalue=([], 1.0)))
    return np.array(list(dict.fromkeys([*chain.from_iterable(columns for columns, _ in steps), *alone.tolist()])), np.int64)


@np.errstate(all="ignore")
def speaks(x: NDArray[np.float64], left: NDArray[np.float64]) -> bool:
    """Whether any column, or a product or quotient of two, says something about what a law leaves over."""
    x, left = _filled(x[:ROWS]), left[:ROWS]
    left = left - left.mean()
    terms = _terms(x[:, np.argsort(-_alike(x, left), kind="stable")[:PAIRED]])
    squares = _against(terms**2, terms**2, left**2)
    means = _against(terms, terms, np.full(len(left), 1 / len(left)))
    spread = squares - 2 * means * _against(terms, terms, left**2) + means**2 * float(left @ left)
    chi = np.square(_against(terms, terms, left)) / np.maximum(spread, NOTHING * squares)
    return float(np.nan_to_num(chi, posinf=0.0).max()) > 2 * math.log(chi.size) + SURE


def _filled(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Columns in units of their largest number, with the median in place of what is missing."""
    known = np.isfinite(x)
    usual = [float(np.median(column[rows])) if rows.any() else 0.0 for column, rows in zip(x.T, known.T, strict=True)]
    full = np.where(known, x, usual)
    result: NDArray[np.float64] = full / np.maximum(np.abs(full).max(0), 1e-300)
    return result


def _unit(values: NDArray[np.float64]) -> NDArray[np.float64]:
    centred = values - values.mean(0)
    result: NDArray[np.float64] = centred / np.maximum(np.linalg.norm(centred, axis=0), 1e-300)
    return result


def _alike(x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
    """Correlation of each column with y, without its sign."""
    result: NDArray[np.float64] = np.abs(np.nan_to_num(_unit(x).T @ _unit(y)))
    return result


def _terms(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """One, the inputs, their squares, and their reciprocals where they have one sign and stay clear of zero."""
    clear = np.abs(x).min(0) > 1e-6
    clear &= (x > 0).all(0) | (x < 0).all(0)
    every = np.column_stack([x, x**2, np.where(clear, 1 / x, 0.0)])
    size = np.sqrt(np.mean(every**2, axis=0))
    return np.column_stack([np.ones(len(x)), every / np.where(size > 0, size, 1.0)])


def _against(first: NDArray[np.float64], second: NDArray[np.float64], values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The sum over the rows of values times the product of a term of the first and one of the second."""
    result: NDArray[np.float64] = first.T @ (second * values[:, None])
    return result


def _grown(
    first: NDArray[np.float64], second: NDArray[np.float64], y: NDArray[np.float64], inputs: int
) -> Iterator[tuple[list[int], float]]:
    """The columns of the term that explains most of what is left, and the share left then, step by step.

    A term is a product of one of each kind. The first of a kind is one; behind it, the inputs stand once or several times.
    """
    rows = len(y)
    owners = [np.append(inputs, np.arange(terms.shape[1] - 1) % inputs) for terms in (first, second)]
    price = np.append(np.full(inputs, 2 * math.log(inputs + 1)), 0.0)
    directions: list[NDArray[np.float64]] = []
    full = size = _against(first**2, second**2, np.ones(rows))
    left, term = y - y.mean(), np.ones(rows)
    whole = max(float(left @ left), 1e-300)
    for _ in range(STEPS):
        for direction in directions:
            term = term - direction * (direction @ term)
        directions.append(term / np.linalg.norm(term))
        left = left - directions[-1] * (directions[-1] @ left)
        size = size - np.square(_against(first, second, directions[-1]))
        gain = np.square(_against(first, second, left)) / np.where(size > NOTHING * full, size, np.inf)
        share = np.minimum(gain / max(float(left @ left), 1e-300), 1 - 1e-15)
        cost = price[owners[0]][:, None] + np.where(owners[0][:, None] == owners[1], 0.0, price[owners[1]])
        i, j = np.unravel_index(int(np.argmax(-rows * np.log1p(-share) - cost)), cost.shape)
        if not gain[i, j] > 0:
            return
        columns = [int(owner) for owner in dict.fromkeys([owners[0][i], owners[1][j]]) if owner < inputs]
        yield columns, float(1 - share[i, j]) * float(left @ left) / whole
        price[columns] = 0.0
        term = first[:, i] * second[:, j]
