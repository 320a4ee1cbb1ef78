"""`NALMRegressor`: a scikit-learn estimator that finds the law in a table of numbers, or says that it found none."""

from __future__ import annotations

import copy
import math
import numbers
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from nalm.discovery import (
    OPERATIONS,
    Candidate,
    Settings,
    Table,
    TableEvidence,
    ranked,
    refitted,
    search,
    speaks,
    verdict,
)

if TYPE_CHECKING:
    import sympy as sp
    from numpy.typing import NDArray
    from torch import nn

    from nalm.discovery import Law

__all__ = ["NALMRegressor"]

STAGES = (6, 12)
"""Inputs among which laws are searched: of wider tables the few that explain the target best, then more if they give no law."""
FEWER = 5
"""Among more inputs a start takes longer: there are so many times fewer of them."""
MOST_ROWS = 5_000
"""Rows on which laws are searched and compared; of longer tables so many are drawn, and the coefficients are of all rows."""
USUAL = 300
"""Power of two beyond which targets are searched in other units."""
LISTED = 20
"""Candidates that are kept."""


class _Found(NamedTuple):
    """What a search gave for one target."""

    law: Law
    error: float
    doubt: str
    """Why it is not to be trusted, if so."""
    candidates: list[Candidate]
    searched: NDArray[np.int64]
    """Columns among which the law was searched."""
    needed: NDArray[np.int64]
    """Columns in which a row must have a value to have counted."""


class NALMRegressor(MultiOutputMixin, RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Finds a formula: a power of a quotient of sums of products of powers, times inputs that give it their sign.

    Exponents are found by Levenberg-Marquardt steps from many starts for every structure, set to integers, halves and thirds
    where the data support it, and coefficients by least squares. Of all candidates that with the shortest description is
    chosen: what it leaves over, as noise, and the formula itself.

    Args:
        operations: which of `add`, `sub`, `mul`, `div` and `pow` the formula may use.
        max_terms: most terms, above and below the fraction line together.
        restarts: starts for each structure; a start takes milliseconds.
        noise: standard deviation of the noise of the target, in its units, or `auto` if it is not known.
        random_state: seed of the split into rows to learn from and rows held out, and of the starts.
        missing: what to do about rows with missing inputs: `raise` an error, or `drop` those that lack a value that is needed.

    After `fit`, with a list where there are several targets:

    - `formula_`: SymPy expression;
    - `found_`: whether one law explains the data to the noise level; if not, `formula_` is the best short description, and not
      to be trusted outside the training range, and `reason_` says why;
    - `error_`: error on rows held out, relative to the spread of the target;
    - `candidates_`: formula, error and complexity of the shortest descriptions, at most twenty, the shortest first;
    - `domain_`: `range`, smallest and largest training value of each column; `undefined`, SymPy conditions under which the
      formula has no value;
    - `searched_`: for each column, whether laws were searched in it. Of more than twelve columns, all are looked at alone and
      in pairs, and the six, or if these give no law the twelve, that explain the target best are searched;
    - `module_`: an `nn.Module` that computes all formulas, in double precision, and can be trained further.

    >>> import numpy as np
    >>> x = np.random.default_rng(0).uniform(1, 2, (200, 3))
    >>> model = NALMRegressor(random_state=0).fit(x, 5 * x[:, 0] / x[:, 2] ** 2)
    >>> model.formula_
    5*x1/x3**2
    >>> model.found_
    True
    """

    def __init__(
        self,
        operations: tuple[str, ...] = OPERATIONS,
        max_terms: int = 4,
        restarts: int = 30,
        noise: float | str = "auto",
        random_state: Any = None,
        missing: str = "raise",
    ) -> None:
        self.operations = operations
        self.max_terms = max_terms
        self.restarts = restarts
        self.noise = noise
        self.random_state = random_state
        self.missing = missing

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> NALMRegressor:  # noqa: N803
        """Search for the law of each target."""
        self._check_parameters()
        _check_columns(X)
        rules: dict[str, Any] = {"multi_output": True, "y_numeric": True, "ensure_min_samples": 2}
        inputs, targets = validate_data(self, X, y, dtype=np.float64, ensure_all_finite=self._finite(), **rules)
        weight = _check_sample_weight(sample_weight, inputs, dtype=np.float64, ensure_non_negative=True)
        used = weight > 0
        if used.sum() < 2:
            raise ValueError("only one row has a weight above zero")
        self._single = np.ndim(targets) == 1
        columns = np.asarray(targets, np.float64).reshape(len(inputs), -1)[used]
        generator = np.random.default_rng(check_random_state(self.random_state).randint(2**31 - 1))
        settings = Settings(tuple(self.operations), self.max_terms, self.restarts)
        noise = None if self.noise == "auto" else float(self.noise)
        self._found = [_find_in_units(_Rows(inputs[used], one, weight[used]), settings, noise, generator) for one in columns.T]
        self._range = np.stack([np.fmin.reduce(inputs[used]), np.fmax.reduce(inputs[used])], 1)
        self.__dict__.pop("module_", None)  # of an earlier fit
        return self

    def _finite(self) -> bool | str:
        return "allow-nan" if self.missing == "drop" else True

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self.missing == "drop"
        return tags

    def _check_parameters(self) -> None:
        if isinstance(self.operations, str) or not set(self.operations) <= set(OPERATIONS):
            raise ValueError(f"operations must be a tuple of some of {', '.join(OPERATIONS)}; got {self.operations!r}")
        for name in ("max_terms", "restarts"):
            value = getattr(self, name)
            if not isinstance(value, numbers.Integral) or value < 1:
                raise ValueError(f"{name} must be a whole number that is at least 1, got {value!r}")
        if self.missing not in ("raise", "drop"):
            raise ValueError(f"missing must be raise or drop, got {self.missing!r}")
        if self.noise != "auto" and not (isinstance(self.noise, numbers.Real) and 0 <= self.noise < math.inf):
            raise ValueError(f"noise must be auto or a number that is at least 0, got {self.noise!r}")

    def predict(self, X: Any) -> NDArray[np.float64]:  # noqa: N803
        """The formula's values, also outside the training range; NaN where it is not defined."""
        check_is_fitted(self)
        inputs = validate_data(self, X, reset=False, dtype=np.float64, ensure_all_finite=self._finite())
        values = np.stack([one.law.values(inputs) for one in self._found], 1)
        return values[:, 0] if self._single else values

    def _symbols(self) -> list[sp.Symbol]:
        import sympy as sp

        check_is_fitted(self)
        names = getattr(self, "feature_names_in_", [f"x{i + 1}" for i in range(self.n_features_in_)])
        return [sp.Symbol(str(name), real=True) for name in names]

    def _of_each(self, values: list[Any]) -> Any:
        return values[0] if self._single else values

    @property
    def formula_(self) -> Any:
        """SymPy expression of each target."""
        symbols = self._symbols()
        return self._of_each([one.law.expression(symbols) for one in self._found])

    @property
    def law_(self) -> Any:
        """The law of each target as terms with exponents and coefficients, of which the formula is made."""
        check_is_fitted(self)
        return self._of_each([one.law for one in self._found])

    @property
    def found_(self) -> Any:
        """Whether one law, and no other as simple, explains the data to the noise level."""
        check_is_fitted(self)
        return self._of_each([not one.doubt for one in self._found])

    @property
    def reason_(self) -> Any:
        """Why no law was found; empty where one was."""
        check_is_fitted(self)
        return self._of_each([one.doubt for one in self._found])

    @property
    def error_(self) -> Any:
        """Error on the rows held out, relative to the spread of the target."""
        check_is_fitted(self)
        return self._of_each([one.error for one in self._found])

    @property
    def searched_(self) -> Any:
        """For each column, whether laws were searched in it; all others were looked at and not needed."""
        check_is_fitted(self)
        return self._of_each([np.isin(np.arange(self.n_features_in_), one.searched) for one in self._found])

    @property
    def needed_(self) -> Any:
        """For each column, whether rows without a value in it were left out."""
        check_is_fitted(self)
        return self._of_each([np.isin(np.arange(self.n_features_in_), one.needed) for one in self._found])

    @property
    def candidates_(self) -> Any:
        """Formula, error and complexity of the best candidates, that with the shortest description first."""
        symbols = self._symbols()
        listed = [
            [(c.law.expression(symbols), c.error, c.complexity) for c in _different(one.candidates, symbols)]
            for one in self._found
        ]
        return self._of_each(listed)

    @property
    def domain_(self) -> dict[str, Any]:
        """Training range of each column, and where the formula is not defined."""
        symbols = self._symbols()
        ranges = {str(symbol): (float(low), float(high)) for symbol, (low, high) in zip(symbols, self._range, strict=True)}
        undefined = [condition for one in self._found for condition in one.law.undefined(symbols)]
        return {"range": ranges, "undefined": undefined}

    @cached_property
    def module_(self) -> nn.Module:
        """A module that computes the formula of every target, in double precision; to train it does not change `formula_`."""
        from nalm.composing import from_sympy

        symbols = self._symbols()
        return from_sympy([one.law.expression(symbols) for one in self._found], symbols)

    def to_torch(self) -> nn.Module:
        """A copy of `module_` in single precision."""
        return copy.deepcopy(self.module_).float()

    def latex(self) -> Any:
        """The formula in LaTeX."""
        from nalm.notation import latex

        symbols = self._symbols()
        return self._of_each([latex(one.law.expression(symbols)) for one in self._found])


def _check_columns(table: Any) -> None:
    """Refuse a data frame with two columns of one name, or with text."""
    names = [str(name) for name in getattr(table, "columns", [])]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"two columns have the name {twice[0]!r}; rename one of them")
    for name, kind in zip(names, getattr(table, "dtypes", []), strict=False):
        if str(kind) in ("str", "string", "category") or (str(kind) == "object" and table[name].map(_is_text).any()):
            raise ValueError(f"column {name!r} holds text; leave it out, or write it as numbers")


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


class _Rows(NamedTuple):
    """Rows of a table; inputs may be missing (NaN)."""

    x: NDArray[np.float64]
    y: NDArray[np.float64]
    weight: NDArray[np.float64]

    def varying(self) -> NDArray[np.int64]:
        """The columns that have more than one value."""
        return np.flatnonzero(np.fmax.reduce(self.x) > np.fmin.reduce(self.x))

    def affordable(self, columns: NDArray[np.int64]) -> NDArray[np.int64]:
        """Of these columns those, the first first, that together leave half of the rows complete."""
        kept: list[int] = []
        complete = np.ones(len(self.y), bool)
        for column in columns:
            now = complete & ~np.isnan(self.x[:, column])
            if now.sum() >= max(len(now) / 2, 2):
                kept.append(int(column))
                complete = now
        return np.array(kept, np.int64)

    def complete(self, columns: NDArray[np.int64]) -> _Rows:
        """These columns, and the rows in which none of them is missing."""
        rows = np.asarray(~np.isnan(self.x[:, columns]).any(1))
        return _Rows(self.x[np.ix_(rows, columns)], self.y[rows], self.weight[rows])


def _find_in_units(rows: _Rows, settings: Settings, noise: float | None, generator: np.random.Generator) -> _Found:
    """The law, searched in other units where squares of the target would be too large or small for numbers."""
    size = float(np.abs(rows.y).max())
    if size == 0 or -USUAL < math.log2(size) < USUAL:
        return _find(rows, settings, noise, generator)
    unit = 2.0 ** math.floor(math.log2(size))
    found = _find(rows._replace(y=rows.y / unit), settings, None if noise is None else noise / unit, generator)
    scaled = [one._replace(law=one.law.times(unit)) for one in found.candidates]
    kept = [one for one in scaled if all(0 < abs(term.coefficient) < math.inf for term in one.law.terms)] or scaled
    return found._replace(law=kept[0].law, error=kept[0].error, candidates=kept)


def _find(rows: _Rows, settings: Settings, noise: float | None, generator: np.random.Generator) -> _Found:
    """The law with the shortest description, and whether it is to be trusted."""
    order = rows.varying()
    if len(order) > STAGES[-1] or np.isnan(rows.x[:, order]).any():
        order = rows.affordable(order[ranked(rows.x[:, order], rows.y)])
    if not len(order):
        none = np.arange(0)
        found = _find_among(np.arange(1), rows._replace(x=np.zeros_like(rows.x)), settings, noise, generator)
        return found._replace(searched=none, needed=none)
    for number in STAGES if len(order) > STAGES[-1] else [len(order)]:
        found = _find_among(np.sort(order[:number]), rows, settings, noise, generator)
        if not found.doubt:
            break
        settings = replace(settings, restarts=max(settings.restarts // FEWER, 1))
    used = np.flatnonzero([any(e) for e in zip(*(term.exponents for term in found.law.parts), strict=True)])
    used = np.union1d(used, np.array(found.law.before, np.int64))
    if len(used) and not found.doubt and len(rows.complete(used).y) > len(rows.complete(found.needed).y):
        return _find_among(used, rows, settings, noise, generator)._replace(searched=found.searched)
    return found


def _find_among(
    chosen: NDArray[np.int64], rows: _Rows, settings: Settings, noise: float | None, generator: np.random.Generator
) -> _Found:
    """The law with the shortest description in some columns."""
    x, y, weight = _merged(*rows.complete(chosen))
    some = generator.choice(len(y), MOST_ROWS, replace=False) if len(y) > MOST_ROWS else np.arange(len(y))
    table = Table(x[some], y[some], weight[some], generator, noise)
    found = search(table, settings, generator)
    constant = next(one for one in found if not any(any(term.exponents) for term in one.law.parts))

    def unseen(law: Law) -> bool:
        left = rows.y - law.widened(chosen, rows.x.shape[1]).values(rows.x)
        return speaks(rows.x[np.isfinite(left)], left[np.isfinite(left)])

    others = unseen if len(chosen) < len(rows.varying()) else None
    doubt, listed = verdict(TableEvidence(table, found, constant, settings.operations, others)), _listed(found, constant)
    if len(y) > MOST_ROWS:
        listed[0] = refitted(Table(x, y, weight, generator, noise), listed[0].law)
    front = [one._replace(law=one.law.widened(chosen, rows.x.shape[1])) for one in listed]
    return _Found(front[0].law, front[0].error, doubt, front, chosen, chosen)


def _merged(
    x: NDArray[np.float64], y: NDArray[np.float64], weight: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Each row once, with the weight of all its copies, in an order of its own: neither copies nor order matter then."""
    rows, first = np.unique(np.column_stack([x, y]), axis=0, return_inverse=True)
    return np.ascontiguousarray(rows[:, :-1]), rows[:, -1].copy(), np.bincount(first.ravel(), weight).astype(np.float64)


def _different(candidates: list[Candidate], symbols: list[sp.Symbol]) -> list[Candidate]:
    """Candidates that are not another way to write one before them, for positive inputs and coefficients to six digits."""
    import sympy as sp

    positive = [sp.Symbol(str(symbol), positive=True) for symbol in symbols]
    different: dict[sp.Expr, Candidate] = {}
    for one in candidates:
        written = one.law.expression(positive)
        digits = {number: sp.Rational(f"{float(number):.6g}") for number in written.atoms(sp.Float)}
        different.setdefault(written.xreplace(digits), one)
    return list(different.values())


def _listed(found: list[Candidate], constant: Candidate) -> list[Candidate]:
    """The best candidates, each pattern of terms once, down to a constant: what is worse than that says nothing."""
    listed: dict[Any, Candidate] = {}
    for one in found:
        listed.setdefault(one.law.pattern, one)
        if one is constant:
            break
    return list(listed.values())[:LISTED]
