"""From weights to a formula: a SymPy expression for each output of a layer or a stack, and how far it is from the model."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import singledispatch
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import sympy as sp
import torch
from sympy.logic.boolalg import Boolean, BooleanAtom, BooleanFunction
from torch import Tensor, nn

from nalm import layers
from nalm.layers import Unit, units
from nalm.layers.base import EPS32
from nalm.notation import latex, shortened

if TYPE_CHECKING:
    from sympy import Basic, Expr

__all__ = ["Readout", "formula", "readout"]

LARGEST_NUMERATOR, LARGEST_DENOMINATOR = 1e6, 12
"""Of free weights that are shown as fractions."""


@dataclass(frozen=True)
class Readout(Sequence["Expr"]):
    """The formulas of a model, one per output: a sequence of SymPy expressions that knows how good it is."""

    expressions: tuple[Expr, ...]
    """One expression per output, decimals in full precision."""
    symbols: tuple[sp.Symbol, ...]
    """The inputs."""
    residual: float
    """Largest ``|expression - model| / max(1, |model|)`` over the sampled inputs."""
    rounding: float
    """Largest change made to a weight to show it as a legal discrete value."""
    notes: tuple[str, ...]
    """What the expressions leave out."""

    @overload
    def __getitem__(self, index: int) -> Expr: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Expr, ...]: ...
    def __getitem__(self, index: int | slice) -> Expr | tuple[Expr, ...]:
        """Expression of an output."""
        return self.expressions[index]

    def __len__(self) -> int:
        """Number of outputs."""
        return len(self.expressions)

    def __str__(self) -> str:
        """One line per output, decimals to six digits."""
        return "\n".join(str(shortened(expression)) for expression in self.expressions)

    def latex(self) -> str:
        """One line of LaTeX per output, decimals to six digits."""
        return "\n".join(latex(shortened(expression)) for expression in self.expressions)


def readout(
    model: nn.Module,
    names: Sequence[str | sp.Symbol] | None = None,
    tolerance: float = 1e-2,
    inputs: Tensor | None = None,
) -> Readout:
    """Read a layer, or an `nn.Sequential` of layers, as a formula per output.

    Weights within `tolerance` of a legal discrete value are shown as that value, all others as decimals. The result says
    how much was rounded, and how far the expressions are from the model on `inputs`.

    Args:
        model: a nalm layer, or an `nn.Sequential` of such layers (linear layers and ReLU may stand between).
        names: names of the inputs, or SymPy symbols (with ``positive=True``, magnitudes and signs are simplified away).
        tolerance: how close a weight must be to a discrete value to be shown as that value.
        inputs: rows (n, in_features) on which to compare; by default 256 random rows from the domain of the layers.

    >>> layer = layers.NMU(2, 1).set_solution_("mul")
    >>> print(readout(layer, ["a", "b"]))
    a*b
    """
    if tolerance < 0:
        raise ValueError(f"tolerance must not be negative, got {tolerance}")
    in_features = _in_features(model)
    boolean = any(unit.domain == "boolean" for unit in units(model))
    symbols = _symbols(names, in_features, real=None if boolean else True)
    exact = copy.deepcopy(model).double().eval()
    rows = _sample_inputs(exact, in_features) if inputs is None else inputs.detach().double()
    if rows.ndim != 2 or rows.shape[1] != in_features:
        raise ValueError(f"inputs must have shape (n, {in_features}), got {tuple(rows.shape)}")
    reader = _Reader(tolerance, rows)
    with torch.no_grad():
        expressions = tuple(_tidy(expression) for expression in formula(exact, list(symbols), reader))
        residual = _residual(expressions, symbols, rows, exact(rows))
    return Readout(expressions, symbols, residual, reader.rounding, tuple(reader.notes))


@dataclass
class _Reader:
    """Reads weights as SymPy numbers and keeps account of what was rounded or left out."""

    tolerance: float
    values: Tensor
    rounding: float = 0.0
    notes: list[str] = field(default_factory=list)

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    def snap(self, value: float, legal: Sequence[float]) -> Expr:
        """The legal value within tolerance, else the value itself: a fraction if it is exactly a simple one, or a decimal."""
        nearest = min(legal, key=lambda candidate: abs(candidate - value), default=None)
        if nearest is None or not abs(nearest - value) <= self.tolerance:
            return _exact(value)
        self.rounding = max(self.rounding, abs(nearest - value))
        return sp.Rational(nearest)

    def weight(self, unit: Unit, name: str) -> Any:
        """An effective weight as nested lists of SymPy numbers."""
        legal = unit.legal_values.get(name, ())

        def walk(value: Any) -> Any:
            return [walk(item) for item in value] if isinstance(value, list) else self.snap(value, legal)

        return walk(unit.effective_weights()[name].tolist())

    def input_gate(self, weight: Tensor, inputs: Sequence[Expr]) -> list[Expr]:
        """A gate ``sigmoid(G x)`` per output: 0 or 1 where it is that on every sampled input, else the expression."""
        gates: list[Expr] = []
        for row, seen in zip(weight, (self.values @ weight.T).sigmoid().T, strict=True):
            for end in (0, 1):
                if bool(((seen - end).abs() <= self.tolerance).all()):
                    self.rounding = max(self.rounding, float((seen - end).abs().max()))
                    self.note("a gate that depends on the inputs is shown as it was on every sampled input")
                    gates.append(sp.Integer(end))
                    break
            else:
                gates.append(1 / (1 + sp.exp(-_dot([sp.Float(w) for w in row.tolist()], inputs))))
        return gates


@singledispatch
def formula(layer: nn.Module, inputs: list[Expr], reader: Any) -> list[Expr]:
    """Expressions of a layer's outputs, given those of its inputs; register an implementation for a new layer class."""
    raise TypeError(
        f"cannot read a formula from {type(layer).__name__}; it takes nalm layers and nn.Sequential of them "
        "(register your own class with nalm.symbolic.formula.register)"
    )


@formula.register(nn.Sequential)
def _(layer: nn.Sequential, inputs: list[Expr], reader: _Reader) -> list[Expr]:
    for part in layer:
        inputs = formula(part, inputs, reader)
        reader.values = part(reader.values)
    return inputs


@formula.register(nn.Linear)
def _(layer: nn.Linear, inputs: list[Expr], reader: _Reader) -> list[Expr]:
    bias = layer.bias.tolist() if layer.bias is not None else [0.0] * layer.out_features
    return [_dot([reader.snap(w, ()) for w in row], inputs) + b for row, b in zip(layer.weight.tolist(), bias, strict=True)]


@formula.register(nn.ReLU)
def _(layer: nn.ReLU, inputs: list[Expr], reader: _Reader) -> list[Expr]:
    return [sp.Max(0, x) for x in inputs]


@formula.register(nn.Identity)
def _(layer: nn.Identity, inputs: list[Expr], reader: _Reader) -> list[Expr]:
    return inputs


@formula.register(layers.NACAdd)
@formula.register(layers.iNAC)
@formula.register(layers.NAU)
def _(layer: Unit, inputs: list[Expr], reader: _Reader) -> list[Expr]:
    return [_dot(row, inputs) for row in reader.weight(layer, "weight")]


@formula.register(layers.NACMul)
@formula.register(layers.NACMulSigmoid)
@formula.register(layers.NACMulNMU)
def _(layer: Unit, inputs: list[Expr], reader: _Reader) -> list[Expr]:
    return _magnitude_products(layer, inputs, reader)


def _magnitude_products(layer: Unit, inputs: list[Expr], reader: _Reader) -> list[Expr]:
    reader.note("1e-7 is added to magnitudes inside logarithms")
    return [_product(sp.Abs(x) ** w for w, x in zip(row, inputs, strict=True)) for row in reader.weight(layer, "weight")]


@formula.register(layers.NMU)
@formula.register(layers.sNMU)
@formula.register(layers.sNMUBatch)
@formula.register(layers.stgNMU)
def _(layer: Unit, inputs: list[Expr], reader: _Reader) -> list[Expr]:
    return [_mixed_product(row, inputs) for row in reader.weight(layer, "weight")]


@formula.register(layers.ProductFC)
def _(layer: layers.ProductFC, inputs: list[Expr], reader: _Reader) -> list[Expr]:
    return [_product(w * x for w, x in zip(row, inputs, strict=True)) for row in reader.weight(layer, "weight")]


@formula.register(layers.iMNAC)
def _(layer: layers.iMNAC, inputs: list[Expr], reader: _Reader) -> list[Expr]:
    reader.note("the output of an iMNAC is capped at exp(20), and magnitudes below 1e-7 are raised to it")

    def factor(w: Expr, x: Expr) -> Expr:
        return x**w if w in (-1, 0, 1) else sp.Abs(x) ** w * (abs(w) * sp.sign(x) + 1 - abs(w))

    return [_product(map(factor, row, inputs)) for row in reader.weight(layer, "weight")]


@formula.register(layers.NRU)
def _(layer: layers.NRU, inputs: list[Expr], reader: _Reader) -> list[Expr]:
    def factor(w: Expr, x: Expr) -> Expr:
        return x**w if w in (-1, 0, 1) else abs(w) * sp.sign(x) * sp.Abs(x) ** w + 1 - abs(w)

    return [_product(map(factor, row, inputs)) for row in reader.weight(layer, "weight")]


@formula.register(layers.NRUSepSign)
def _(layer: layers.NRUSepSign, inputs: list[Expr], reader: _Reader) -> list[Expr]:
    def factor(w: Expr, x: Expr) -> Expr:
        if w in (-1, 0, 1):
            return x**w
        return (abs(w) * sp.Abs(x) ** w + 1 - abs(w)) * (sp.sign(x) if abs(w) > 0.5 else 1)

    return [_product(map(factor, row, inputs)) for row in reader.weight(layer, "weight")]


@formula.register(layers.NMRUNoSign)
def _(layer: layers.NMRUNoSign, inputs: list[Expr], reader: _Reader) -> list[Expr]:
    return [_mixed_product(row, _with_reciprocals(inputs)) for row in reader.weight(layer, "weight")]


@formula.register(layers.NMRU)
def _(layer: layers.NMRU, inputs: list[Expr], reader: _Reader) -> list[Expr]:
    return [_nmru(row, _with_reciprocals(inputs)) for row in reader.weight(layer, "weight")]


@formula.register(layers.NMRUGated)
def _(layer: layers.NMRUGated, inputs: list[Expr], reader: _Reader) -> list[Expr]:
    gated = [g * z for g, z in zip(reader.weight(layer, "gate"), _with_reciprocals(inputs), strict=True)]
    return [_nmru(row, gated) for row in reader.weight(layer, "weight")]


@formula.register(layers.NaiveNPU)
def _(layer: layers.NaiveNPU, inputs: list[Expr], reader: _Reader) -> list[Expr]:
    return _npu(layer, reader.weight(layer, "imaginary"), [sp.Integer(1)] * len(inputs), inputs, reader)


@formula.register(layers.NPU)
def _(layer: layers.NPU, inputs: list[Expr], reader: _Reader) -> list[Expr]:
    return _npu(layer, reader.weight(layer, "imaginary"), reader.weight(layer, "gate"), inputs, reader)


@formula.register(layers.RealNPU)
def _(layer: layers.RealNPU, inputs: list[Expr], reader: _Reader) -> list[Expr]:
    none = [[sp.Integer(0)] * len(inputs)] * layer.out_features
    return _npu(layer, none, reader.weight(layer, "gate"), inputs, reader)


@formula.register(layers.NALU)
@formula.register(layers.GNALU)
def _(layer: Unit, inputs: list[Expr], reader: _Reader) -> list[Expr]:
    sums = [_dot(row, inputs) for row in reader.weight(layer, "weight")]
    gates = reader.input_gate(layer.effective_weights()["gate_weight"], inputs)
    return _mix(gates, sums, _magnitude_products(layer, inputs, reader))


@formula.register(layers.NALUSeparate)
@formula.register(layers.GatedNAUNMU)
def _(layer: Any, inputs: list[Expr], reader: _Reader) -> list[Expr]:
    gates = reader.input_gate(layer.gate_weight, inputs)
    return _mix(gates, formula(layer.add, inputs, reader), formula(layer.mul, inputs, reader))


@formula.register(layers.iNALU)
def _(layer: layers.iNALU, inputs: list[Expr], reader: _Reader) -> list[Expr]:
    return _mix(reader.weight(layer, "gate"), formula(layer.add, inputs, reader), formula(layer.mul, inputs, reader))


@formula.register(layers.Gated)
def _(layer: layers.Gated, inputs: list[Expr], reader: _Reader) -> list[Expr]:
    gates = [reader.snap(value, (0, 1)) for value in layer.gate_hat.sigmoid().tolist()]
    return _mix(gates, formula(layer.first, inputs, reader), formula(layer.second, inputs, reader))


@formula.register(layers.RecurrentSelector)
@formula.register(layers.FrozenSelector)
def _(network: Any, inputs: list[Expr], reader: _Reader) -> list[Expr]:
    slots = [reader.snap(network.blank, (network.blank,))] * network.steps
    rows = reader.values
    values = [torch.full_like(rows[:, :1], network.blank)] * network.steps
    for step in range(network.steps):
        chosen = int(network.choice[step].argmax())
        pad, seen = [*inputs, *slots], torch.cat([rows, *values], -1)
        if isinstance(network, layers.FrozenSelector):
            own = [x for x, k in zip(pad, network.mask[step].argmax(-1).tolist(), strict=True) if k == chosen]
            total, product = sp.Add(*own), sp.Mul(*own)
            result = (total, -total, product, 1 / product if product != 0 else sp.zoo)[chosen]
        else:
            reader.values = seen
            (result,) = formula(network.layers[chosen], pad, reader)
        slots[step], values[step] = result, network.outputs(step, seen)[:, chosen : chosen + 1]
    return [slots[-1]]


@formula.register(layers.SumOrProduct)
def _(layer: layers.SumOrProduct, inputs: list[Expr], reader: _Reader) -> list[Expr]:
    sums = [_dot(row, inputs) for row in reader.weight(layer, "add_weight")]
    none, open_gates = [[sp.Integer(0)] * len(inputs)] * layer.out_features, [sp.Integer(1)] * len(inputs)
    products = _npu(layer, none, open_gates, inputs, reader, "mul_weight")
    chosen = (layer.choice >= 0.5).tolist()
    return [total if additive else product for additive, total, product in zip(chosen, sums, products, strict=True)]


@formula.register(layers.Linear)
def _(layer: layers.Linear, inputs: list[Expr], reader: _Reader) -> list[Expr]:
    rows = reader.weight(layer, "weight")
    bias = [sp.Integer(0)] * len(rows) if layer.bias is None else reader.weight(layer, "bias")
    return [_dot(row, inputs) + b for row, b in zip(rows, bias, strict=True)]


@formula.register(layers.ReLUMLP)
@formula.register(layers.ReLU6MLP)
def _(layer: Any, inputs: list[Expr], reader: _Reader) -> list[Expr]:
    top = 6 if isinstance(layer, layers.ReLU6MLP) else sp.oo
    for k in range(len(layer.hidden) + 1):
        if k:
            inputs = [sp.Min(top, sp.Max(0, x)) for x in inputs]
        rows, bias = reader.weight(layer, f"weight{k}"), reader.weight(layer, f"bias{k}")
        inputs = [_dot(row, inputs) + b for row, b in zip(rows, bias, strict=True)]
    return inputs


@formula.register(layers.Quadratic)
def _(layer: layers.Quadratic, inputs: list[Expr], reader: _Reader) -> list[Expr]:
    first, second, square = (reader.weight(layer, name) for name in ("first", "second", "square"))
    biases = (reader.weight(layer, name) for name in ("first_bias", "second_bias", "bias"))
    squares = [x**2 for x in inputs]
    return [
        (_dot(p, inputs) + a) * (_dot(q, inputs) + b) + _dot(r, squares) + c
        for p, q, r, a, b, c in zip(first, second, square, *biases, strict=True)
    ]


@formula.register(layers.NLRL)
def _(layer: layers.NLRL, inputs: list[Any], reader: _Reader) -> list[Any]:
    weight, negation, gate = (reader.weight(layer, name) for name in ("weight", "negation", "gate"))
    outputs: list[Any] = []
    for row, negated, g in zip(weight, negation, gate, strict=True):
        used = [(n, x) for w, n, x in zip(row, negated, inputs, strict=True) if w != 0]
        free = layer.disjunctions and len(used) == 1  # AND and OR of one input are the same
        discrete = all(value in (0, 1) for value in (*row, *(n for n, _ in used), *(() if free else (g,))))
        if discrete and all(isinstance(x, Boolean) for _, x in used):
            chosen = [sp.Not(x) if n == 1 else x for n, x in used]
            every, some = sp.And(*chosen), sp.Or(*chosen) if layer.disjunctions else sp.Not(sp.And(*chosen))
            outputs.append(some if g == 1 else every)
            continue
        reader.note("1e-7 is added to truth values inside logarithms")
        truth = [n + (1 - 2 * n) * _truth_value(x) for n, x in zip(negated, inputs, strict=True)]
        both = _product(sp.Abs(v) ** w for w, v in zip(row, truth, strict=True))
        other = 1 - _product(1 - w * v for w, v in zip(row, truth, strict=True)) if layer.disjunctions else 1 - both
        outputs.append((1 - g) * both + g * other)
    return outputs


@formula.register(layers.NSR)
def _(layer: layers.NSR, inputs: list[Any], reader: _Reader) -> list[Any]:
    first, second = reader.weight(layer, "first"), reader.weight(layer, "second")
    sign, zero, bias = (layer.effective_weights()[name].tolist() for name in ("sign_weight", "zero_weight", "bias"))
    outputs: list[Any] = []
    for o in range(layer.out_features):
        paths = range(layer.redundancy)
        differences = [[float(a - b) for a, b in zip(first[r][o], second[r][o], strict=True)] for r in paths]
        direction, sides = _common_direction(differences, reader)
        states = [
            sum(sign[r][o] * sides[r] * t + zero[r][o] * (1 - 2 * (sides[r] * t) ** 2) + bias[r][o] for r in paths)
            for t in (-1, 0, 1)
        ]
        certain = all(abs(float(sp.tanh(z / 2))) >= 1 - 2 * reader.tolerance for z in states)
        if direction is not None and certain:
            left, right = (_dot([max(side * c, 0) for c in direction], inputs) for side in (1, -1))
            reader.note("a comparison is shown as it is for operands that are equal or clearly apart")
            holds: Any = _relation(tuple(z > 0 for z in states), left, right)
            outputs += [holds, sp.Not(holds)]
            continue
        z = sp.Integer(0)
        for r in paths:
            t = sp.tanh(layer.scale * (_dot(first[r][o], inputs) - _dot(second[r][o], inputs)))
            z += sign[r][o] * t + zero[r][o] * (1 - 2 * t**2) + bias[r][o]
        outputs += [1 / (1 + sp.exp(-z)), 1 / (1 + sp.exp(z))]
    return outputs


def _common_direction(differences: list[list[float]], reader: _Reader) -> tuple[list[Expr] | None, list[int]]:
    """The difference of inputs that all paths of an NSR look at, the largest coefficient one, and with which sign each does.

    No direction where the paths look at different ones, or at none.
    """
    longest = max(differences, key=lambda row: max(map(abs, row)))
    size = max(longest, key=abs)
    if abs(size) <= reader.tolerance:
        return None, [0] * len(differences)
    direction = [reader.snap(value / abs(size), (-1, 0, 1)) for value in longest]
    sides = []
    for row in differences:
        share = sum(a * b for a, b in zip(row, longest, strict=True)) / sum(b * b for b in longest)
        if any(abs(a - share * b) > max(reader.tolerance, 1e-9) * abs(size) for a, b in zip(row, longest, strict=True)):
            return None, [0] * len(differences)
        sides.append(0 if abs(share) <= reader.tolerance else 1 if share > 0 else -1)
    return direction, sides


def _truth_value(x: Any) -> Any:
    """A rule as a number, one or zero; anything else as it is."""
    return sp.Piecewise((1, x), (0, True)) if isinstance(x, BooleanFunction | BooleanAtom) else x


def _relation(holds: tuple[bool, ...], left: Expr, right: Expr) -> Any:
    """The comparison that is true where the difference is negative, zero, positive as `holds` says."""
    table = {
        (True, False, False): sp.Lt,
        (True, True, False): sp.Le,
        (False, False, True): sp.Gt,
        (False, True, True): sp.Ge,
        (False, True, False): sp.Eq,
        (True, False, True): sp.Ne,
    }
    return table[holds](left, right) if holds in table else sp.S.true if holds[0] else sp.S.false


def _dot(row: Sequence[Expr], inputs: Sequence[Expr]) -> Expr:
    return sp.Add(*(w * x for w, x in zip(row, inputs, strict=True)))


def _product(factors: Any) -> Expr:
    return sp.Mul(*factors)


def _mixed_product(row: Sequence[Expr], inputs: Sequence[Expr]) -> Expr:
    return _product(w * x + 1 - w for w, x in zip(row, inputs, strict=True))


def _mix(gates: Sequence[Expr], additive: Sequence[Expr], multiplicative: Sequence[Expr]) -> list[Expr]:
    return [g * a + (1 - g) * m for g, a, m in zip(gates, additive, multiplicative, strict=True)]


def _with_reciprocals(inputs: Sequence[Expr]) -> list[Expr]:
    return [*inputs, *(1 / x for x in inputs)]


def _negative(x: Expr) -> Expr:
    """One where x is below zero, else zero."""
    return sp.Heaviside(-x, 0)


def _nmru(row: Sequence[Expr], inputs: Sequence[Expr]) -> Expr:
    """Whole factors keep their own sign; the others share the cosine."""
    factors, angle = [], sp.Integer(0)
    for w, z in zip(row, inputs, strict=True):
        if w in (0, 1):
            factors.append(z if w == 1 else sp.Integer(1))
        else:
            factors.append(w * sp.Abs(z) + 1 - w)
            angle += sp.pi * w * _negative(z)
    return _product([*factors, sp.cos(angle)])


def _npu(
    layer: Unit, imaginary: Any, gate: Sequence[Expr], inputs: Sequence[Expr], reader: _Reader, name: str = "real"
) -> list[Expr]:
    """Whole powers of selected inputs keep their own sign; all else goes through magnitude and phase."""
    reader.note(f"{getattr(layer, 'epsilon', EPS32):.3g} is added to magnitudes")
    outputs = []
    for row, twists in zip(reader.weight(layer, name), imaginary, strict=True):
        factors, angle = [], sp.Integer(0)
        for w, v, g, x in zip(row, twists, gate, inputs, strict=True):
            if g == 1 and v == 0 and w.is_Integer:
                factors.append(x**w)
            elif g != 0:
                magnitude, phase = g * sp.Abs(x) + 1 - g, g * sp.pi * _negative(x)
                factors.append(magnitude**w * sp.exp(-v * phase))
                angle += w * phase + v * sp.log(magnitude)
        outputs.append(_product([*factors, sp.cos(angle)]))
    return outputs


def _in_features(model: nn.Module) -> int:
    kinds = (Unit, nn.Linear, layers.Gated, layers.RecurrentSelector, layers.FrozenSelector)
    sized = next((part for part in model.modules() if isinstance(part, kinds)), None)
    if sized is None:
        raise TypeError(f"cannot read a formula from {type(model).__name__}: it holds no nalm layer")
    return int(sized.in_features)


def _symbols(names: Sequence[str | sp.Symbol] | None, count: int, real: bool | None) -> tuple[sp.Symbol, ...]:
    if names is None:
        names = [f"x{i + 1}" for i in range(count)]
    if isinstance(names, str) or len(names) != count or len(set(map(str, names))) != count:
        raise ValueError(f"names must be {count} different names, one an input, got {names!r}")
    return tuple(name if isinstance(name, sp.Symbol) else sp.Symbol(name, real=real) for name in names)


def _sample_inputs(model: nn.Module, in_features: int) -> Tensor:
    """Rows on which every layer of the model is at home."""
    generator = torch.Generator().manual_seed(0)
    shape = (256, in_features)
    domains = {unit.domain for unit in units(model)}
    if "boolean" in domains:
        return torch.randint(0, 2, shape, generator=generator).double()
    if "integer" in domains:
        return torch.randint(-3, 4, shape, generator=generator).double()
    size = 0.5 + 2.5 * torch.rand(shape, generator=generator, dtype=torch.float64)
    sign = 1 - 2 * torch.randint(0, 2, shape, generator=generator)
    return size if "positive" in domains else size * sign


def _residual(expressions: Sequence[Basic], symbols: Sequence[sp.Symbol], rows: Tensor, outputs: Tensor) -> float:
    evaluate = sp.lambdify(symbols, list(expressions), "numpy")
    with np.errstate(all="ignore"):
        shown = np.stack([np.broadcast_to(np.asarray(v, dtype=float), len(rows)) for v in evaluate(*rows.numpy().T)], -1)
        actual = outputs.reshape(len(rows), -1).numpy()
        difference = np.abs(shown - actual) / np.maximum(1, np.abs(actual))
    same = (shown == actual) | (np.isnan(shown) & np.isnan(actual))
    return float(np.where(same, 0.0, difference).max(initial=0.0))


def _tidy(expression: Any) -> Any:
    """Gather signs and common factors of a formula without decimals; simplify a rule, its negations at the inputs."""
    if isinstance(expression, BooleanFunction):
        return sp.to_nnf(sp.simplify_logic(expression), simplify=False)
    decimals = not isinstance(expression, sp.Expr) or expression.atoms(sp.Float)
    return expression if decimals else sp.factor_terms(expression)


def _exact(value: float) -> Expr:
    """A number that is exactly a simple fraction as that, any other as a decimal."""
    if abs(value) < LARGEST_NUMERATOR:  # not so for NaN
        simple = Fraction(value).limit_denominator(LARGEST_DENOMINATOR)
        if float(simple) == value:
            return sp.Rational(simple.numerator, simple.denominator)
    return sp.Float(value)
