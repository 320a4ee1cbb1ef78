"""From a formula to a module: `from_sympy` writes an expression into the weights of power and sum layers by turns."""

from __future__ import annotations

import math
from numbers import Number
from typing import TYPE_CHECKING, Any

import sympy as sp
import torch

from nalm.checks import shown
from nalm.grammar import read
from nalm.layers import Linear, RealNPU, Stack

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["from_sympy"]

TINY = 1e-37
"""Added to magnitudes in power layers: zero then has a logarithm, and every other number stays what it is."""

Product = frozenset[tuple[Any, Any]]
"""Bases with their exponents; a base is a symbol or a sum."""


def from_sympy(expression: Any, inputs: Sequence[Any] | None = None, *, dtype: torch.dtype = torch.float64) -> Stack:
    """A stack of nalm layers with an expression as its weights; `nalm.readout` gives the expression back.

    Args:
        expression: sums, products, quotients, magnitudes and powers with constant exponents of symbols, as SymPy or text; or
            a list.
        inputs: the symbols in the order of the module's inputs; by default those of the expression, by name.
        dtype: of the weights.

    >>> import torch, nalm
    >>> module = nalm.from_sympy("(a + b) / (c - 2)**2")
    >>> round(module(torch.tensor([[1.0, 2.0, 5.0]], dtype=torch.float64)).item(), 6)
    0.333333
    >>> print(nalm.readout(module, ["a", "b", "c"]))
    (a + b)/(c - 2)**2
    """
    symbols = [_symbol(one) for one in _listed(inputs)] if inputs is not None else None
    byname = {str(symbol): symbol for symbol in symbols or ()}
    if symbols is not None and len(byname) != len(symbols):
        raise ValueError(f"each input needs a name of its own, got {shown(', '.join(map(str, symbols)), 300)}")
    wanted = [_expression(one, byname) for one in (expression if isinstance(expression, (list, tuple)) else [expression])]
    found = sorted(set().union(*(one.free_symbols for one in wanted)), key=str)
    symbols = found if symbols is None else symbols
    byname = {str(symbol): symbol for symbol in symbols}
    for symbol in found:
        if str(symbol) not in byname:
            there = shown(", ".join(byname), 300)
            raise ValueError(f"the expression has {shown(symbol)}, which is not among the inputs {there}")
    wanted = [one.subs({symbol: byname[str(symbol)] for symbol in found}) for one in wanted]
    if not symbols:
        raise ValueError(f"{shown(expression)} has no symbol; a module needs at least one input")
    sums = [_terms(one) for one in wanted]
    depth = max(_depth(one) for one in sums)
    available: list[Any] = list(symbols)
    layers: list[Any] = []
    for level in range(1, depth + 1):
        needed = _needed(sums, level)
        products = list(dict.fromkeys(product for value in needed for product, _ in _as_terms(value, level)))
        layers.append(_powers(products, available, dtype))
        layers.append(_weights([_as_terms(value, level) for value in needed], products, dtype))
        available = needed
    return Stack(*layers)


def _listed(inputs: Any) -> list[Any]:
    if isinstance(inputs, str) or not hasattr(inputs, "__iter__"):
        raise ValueError(f"inputs must be a list of names or symbols, got {shown(repr(inputs))}")
    return list(inputs)


def _symbol(name: Any) -> Any:
    """The symbol of an input."""
    if isinstance(name, sp.Symbol):
        return name
    if not isinstance(name, str) or not name.strip():
        raise ValueError(f"an input must be a name or a symbol, got {shown(repr(name))}")
    return sp.Symbol(name)


def _expression(given: Any, symbols: Mapping[str, Any]) -> Any:
    """What was given as an expression of finite numbers; text is read by the library's own grammar, never evaluated."""
    if isinstance(given, str):
        return read(given, symbols)
    if isinstance(given, Number) and not isinstance(given, bool):
        given = sp.sympify(given)
    if not isinstance(given, sp.Expr) or given.has(sp.nan, sp.zoo, sp.oo, -sp.oo):
        raise ValueError(f"an expression must be text or a SymPy expression of finite numbers, got {shown(given)!r}")
    return given


def _weight(number: Any, dtype: torch.dtype) -> float:
    """A constant of an expression as the weight that it becomes."""
    try:
        value = float(number)
    except (TypeError, OverflowError):
        value = math.inf
    held = abs(torch.tensor(value, dtype=torch.float64).to(dtype).item())
    if not math.isfinite(held) or (held == 0 and number != 0):
        kind = str(dtype).removeprefix("torch.")
        raise ValueError(f"cannot build with the constant {shown(number)}: weights are real numbers in the range of {kind}")
    return value


Sum = tuple[tuple[Product, Any], ...]
"""Products with their coefficients."""


def _terms(expression: Any) -> Sum:
    """A sum as products with coefficients."""
    totals: dict[Product, Any] = {}
    for part in sp.Add.make_args(expression):
        coefficient, product = _factors(part)
        totals[product] = totals.get(product, sp.Integer(0)) + coefficient
    return tuple((product, c) for product, c in totals.items() if c != 0) or ((frozenset(), sp.Integer(0)),)


def _factors(expression: Any) -> tuple[Any, Product]:
    """A product as coefficient and powers of bases."""
    coefficient: Any = sp.Integer(1)
    powers: dict[Any, Any] = {}
    for factor in sp.Mul.make_args(expression):
        base, exponent = factor.as_base_exp() if isinstance(factor, sp.Pow) else (factor, sp.Integer(1))
        if factor.is_number:
            coefficient *= factor
            continue
        if not exponent.is_number or not exponent.is_real:
            raise ValueError(f"cannot build {shown(factor)}: exponents must be real constants")
        if isinstance(base, sp.Abs):  # the root of the square
            key = _terms(base.args[0] ** 2)
            powers[key] = powers.get(key, sp.Integer(0)) + exponent / 2
            continue
        if not isinstance(base, (sp.Symbol, sp.Add)):
            if isinstance(base, (sp.Mul, sp.Pow)):
                inner, product = _factors(base)
                if exponent.is_Integer or inner.is_positive:
                    coefficient *= inner**exponent
                    for one, power in product:
                        powers[one] = powers.get(one, sp.Integer(0)) + power * exponent
                    continue
            raise ValueError(f"cannot build {shown(base)}: only sums, products, quotients and powers can be")
        key = base if isinstance(base, sp.Symbol) else _terms(base)
        powers[key] = powers.get(key, sp.Integer(0)) + exponent
    return coefficient, frozenset((base, exponent) for base, exponent in powers.items() if exponent != 0)


def _depth(value: Any) -> int:
    """Pairs of layers that a value needs; an input needs none."""
    if isinstance(value, sp.Symbol):
        return 0
    return 1 + max((_depth(base) for product, _ in value for base, _ in product), default=0)


def _needed(outputs: Sequence[Sum], level: int) -> list[Any]:
    """Values that must stand after a level: outputs, and what deeper sums are made of."""
    if level == max(_depth(one) for one in outputs):
        return list(outputs)
    needed: dict[Any, None] = {}

    def visit(value: Any) -> None:
        if _depth(value) <= level:
            needed[value] = None
        else:
            for product, _ in value:
                for base, _ in sorted(product, key=str):
                    visit(base)

    for one in outputs:
        visit(one)
    return list(needed)


def _as_terms(value: Any, level: int) -> Sum:
    """How a value is made at a level: as the sum that it is, or passed on."""
    return value if _depth(value) == level else ((frozenset({(value, sp.Integer(1))}), sp.Integer(1)),)


@torch.no_grad()
def _powers(products: Sequence[Product], available: Sequence[Any], dtype: torch.dtype) -> RealNPU:
    layer = RealNPU(len(available), len(products), epsilon=TINY, dtype=dtype)
    layer.gate.fill_(1.0)
    layer.real.zero_()
    for row, product in enumerate(products):
        for base, exponent in product:
            layer.real[row, available.index(base)] = _weight(exponent, dtype)
    return layer


@torch.no_grad()
def _weights(sums: Sequence[Sum], products: Sequence[Product], dtype: torch.dtype) -> Linear:
    layer = Linear(len(products), len(sums), bias=False, dtype=dtype)
    layer.weight.zero_()
    for row, terms in enumerate(sums):
        for product, coefficient in terms:
            layer.weight[row, products.index(product)] = _weight(coefficient, dtype)
    return layer
