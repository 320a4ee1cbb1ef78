"""What every layer offers: sizes, initial values, effective weights, penalty, legal box, exact solutions."""

from __future__ import annotations

import math
import warnings
from abc import ABC, abstractmethod
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor, nn

from nalm.layers.precision import Precise, is_half
from nalm.operations import OPERATIONS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from typing_extensions import Self

__all__ = ["ARITY", "EPS32", "Unit", "penalty", "project_", "select_all_", "snap_", "sparsity_error", "units"]

EPS32 = torch.finfo(torch.float32).eps
"""Machine epsilon of float32: the small constant of the power and reciprocal layers, whatever their own precision."""

SATURATED = 100.0
"""Raw value whose tanh and sigmoid (base e or golden ratio) are one to machine precision."""

ARITY = {name: len(one.coefficients or one.exponents) or one.operands or 2 for name, one in OPERATIONS.items()}
"""Number of operands that `set_solution_` takes for each operation: two where the operation takes any number."""

COEFFICIENTS = {name: one.coefficients for name, one in OPERATIONS.items() if one.coefficients}
"""Operations that are sums: the coefficient of each operand."""

EXPONENTS = {name: one.exponents for name, one in OPERATIONS.items() if one.exponents}
"""Operations that are products of powers: the exponent of each operand."""


class Unit(Precise, ABC):
    """A layer with arithmetic meaning: ``x (..., in_features) -> (..., out_features)``.

    A unit computes; when its penalty counts, and how much, belongs to the training recipe. Weights are stored as
    (out_features, in_features). `effective_weights` are the numbers that stand in the formula, which are not always the
    parameters (a sigmoid or a clamp may lie between).

    Every unit takes `in_features` and `out_features` first, then keyword options, among them `device` and `dtype`.

    A unit of your own defines `forward`, `reset_parameters`, `effective_weights` and `express_`, and, where they apply,
    `penalties`, `project_`, `set_weight_` and the class attributes below; docs/own-modules.md has an example.
    """

    operations: tuple[str, ...] = ()
    """Operations that `set_solution_` can express exactly (on `domain`)."""

    domain: ClassVar[str] = "real"
    """Inputs for which the declared operations are exact: real, nonzero, positive, boolean or integer."""

    legal_values: ClassVar[Mapping[str, tuple[float, ...]]] = {}
    """For each effective weight with discrete solutions, the values it should end at."""

    noise: ClassVar[str] = ""
    """What `forward` takes as noise in training: `uniform` numbers of the shape of the input, `normal` ones of the shape of
    the parameter, uniform ones that the batch shares (`once`), or none."""

    counted: ClassVar[tuple[str, ...]] = ("weight",)
    """Effective weights that the published sparsity error looks at; empty where none is discrete."""

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        for name, value in (("in_features", in_features), ("out_features", out_features)):
            if not isinstance(value, int) or isinstance(value, bool):
                raise TypeError(f"{name} must be an int, got {value!r}")
            if value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        self.in_features = in_features
        self.out_features = out_features

    @abstractmethod
    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw new initial values, from `generator` if given."""

    @abstractmethod
    def effective_weights(self) -> dict[str, Tensor]:
        """The tensors that stand in the formula, by name."""

    @abstractmethod
    def express_(self, operation: str, operands: tuple[int, ...]) -> None:
        """Write the weights of a declared operation, in place; `set_solution_` calls it with operands that it has checked."""

    def sample_noise(self, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Noise for `forward(x, noise)`, in a unit that says in `noise` which it takes."""
        raise ValueError(f"{type(self).__name__} draws no noise")

    def penalties(self) -> dict[str, Tensor]:
        """The terms of `penalty` by name, so that a recipe may weigh them differently."""
        return {}

    def penalty(self) -> Tensor:
        """Unscaled scalar that draws the weights to their discrete solutions; zero for layers without one."""
        terms = list(self.penalties().values())
        return torch.stack(terms).sum() if terms else next(self.parameters()).new_zeros(())

    def project_(self) -> None:
        """Clip the parameters to their legal box, in place; to be called after each optimiser step."""

    @torch.no_grad()
    def snap_(self) -> None:
        """Set every weight that has discrete solutions to the nearest of them, in place; the others stay."""
        weights = self.effective_weights()
        for name, values in self.legal_values.items():
            legal = weights[name].new_tensor(sorted(values))
            self.set_weight_(name, legal[(weights[name].unsqueeze(-1) - legal).abs().argmin(-1)])

    def set_weight_(self, name: str, value: Tensor) -> None:
        """Give an effective weight a discrete value, by the parameter of its name or the raw one under a sigmoid.

        `snap_` calls it. Override it where an effective weight is another function of the parameters.
        """
        if name in self._parameters:
            self.get_parameter(name).copy_(value)
        else:
            self.get_parameter(f"{name}_hat").copy_(SATURATED * (2 * value - 1))

    @torch.no_grad()
    def sparsity_error(self) -> Tensor:
        """Largest distance of a counted weight to the nearest of -1, 0, 1 (a scalar, at most 0.5 for weights in [-1, 1])."""
        weights = self.effective_weights()
        distances = [distance_to_integers(weights[name]).amax() for name in self.counted]
        return torch.stack(distances).amax() if distances else next(self.parameters()).new_tensor(math.nan)

    @torch.no_grad()
    def set_solution_(self, operation: str, operands: Sequence[int] = (0, 1)) -> Self:
        """Set the weights with which every output is `operation` of the inputs `operands`, exactly in eval mode.

        An operation of one operand takes the first. Raises ValueError where the layer cannot express it.
        """
        name = type(self).__name__
        if operation not in self.operations:
            raise ValueError(f"{name} cannot express {operation!r}; it can: {', '.join(self.operations) or 'nothing exactly'}")
        arity = ARITY[operation]
        used = tuple(operands)[:1] if arity == 1 else tuple(operands)
        if len(used) != arity or len(set(used)) != arity or not all(0 <= i < self.in_features for i in used):
            raise ValueError(
                f"{operation!r} needs {arity} different operands between 0 and {self.in_features - 1}, got {tuple(operands)}"
            )
        self.express_(operation, used)
        return self

    def check_input(self, x: Tensor) -> None:
        """Raise TypeError or ValueError, in one sentence, for an input that the layer cannot take."""
        if not isinstance(x, Tensor) or not x.is_floating_point():
            given = x.dtype if isinstance(x, Tensor) else type(x).__name__
            raise TypeError(f"{type(self).__name__} takes a floating-point tensor, got {given}")
        if x.ndim == 0 or x.shape[-1] != self.in_features:
            raise ValueError(
                f"{type(self).__name__} with {self.in_features} inputs takes a tensor of shape (..., {self.in_features}), "
                f"got {tuple(x.shape)}"
            )

    def extra_repr(self) -> str:
        """Sizes, and the options that are not the default."""
        return f"in_features={self.in_features}, out_features={self.out_features}"


def units(model: nn.Module) -> Iterator[Unit]:
    """Every outermost unit of a model (a unit answers for the units inside it)."""
    if isinstance(model, Unit):
        yield model
    else:
        for child in model.children():
            yield from units(child)


def penalty(model: nn.Module) -> Tensor:
    """Sum of the penalties of every unit in a model, unscaled."""
    return torch.stack([unit.penalty() for unit in _units_of(model)]).sum()


def project_(model: nn.Module) -> None:
    """Clip every unit in a model to its legal box, in place; to be called after each optimiser step.

    Warns if parameters are in half precision, in which small steps of an optimiser are lost.
    """
    if is_half(model):
        warnings.warn(
            "these parameters are in half precision, where numbers near 1 are 0.001 (float16) or 0.008 (bfloat16) apart: "
            "smaller steps are lost. Train in float32, under autocast if you like, and convert the layer afterwards",
            stacklevel=2,
        )
    for unit in _units_of(model):
        unit.project_()


def snap_(model: nn.Module) -> None:
    """Set every weight with discrete solutions, in all units of a model, to the nearest of them, in place."""
    for unit in _units_of(model):
        unit.snap_()


@torch.no_grad()
def select_all_(model: nn.Module, generator: torch.Generator | None = None) -> None:
    """Initial values for solvers, after `reset_parameters`: gates open; in a stack, every input has a part in every output.

    With open gates a product of powers is linear in its exponents on logarithms. In a stack, sums get weights from U(0, 0.5)
    and products take all that they can: no factor of the target is missing from the start.
    """
    found = list(units(model))
    for unit in found:
        names = {name for name, _ in unit.named_parameters()}
        if len(found) > 1 and "add" in unit.operations and names in ({"weight"}, {"w_hat", "m_hat"}):
            drawn = torch.rand((unit.out_features, unit.in_features), generator=generator) / 2
            for name, p in unit.named_parameters():
                p.copy_({"weight": drawn, "w_hat": torch.atanh(2 * drawn), "m_hat": torch.zeros(())}[name])
        elif len(found) > 1:
            for name, p in unit.named_parameters():
                p.fill_(0.0 if name in ("imaginary", "bias") else 1.0)
        else:
            for name, p in unit.named_parameters():
                if name == "gate":
                    p.fill_(1.0)


def sparsity_error(model: nn.Module) -> Tensor:
    """Largest sparsity error of the units in a model, as a scalar tensor without gradient."""
    return torch.stack([unit.sparsity_error() for unit in _units_of(model)]).amax()


def _units_of(model: nn.Module) -> list[Unit]:
    found = list(units(model))
    if not found:
        raise ValueError(
            f"{type(model).__name__} holds no nalm layer; create one with nalm.create or use a class such as nalm.NAU"
        )
    return found


class BoxUnit(Unit):
    """A unit whose one parameter, `weight`, lives in the box [low, 1] and should end at the whole numbers in it."""

    low: ClassVar[float]
    columns_per_input: ClassVar[int] = 1

    def __init__(
        self, in_features: int, out_features: int, *, device: torch.device | None = None, dtype: torch.dtype | None = None
    ) -> None:
        super().__init__(in_features, out_features)
        self.weight = parameter(out_features, in_features * self.columns_per_input, device, dtype)
        self.reset_parameters()

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw the weight: U(-r, r) with r by `nau_bound` in the box [-1, 1], U(0.25, 0.75) in the box [0, 1]."""
        if self.low < 0:
            bound = nau_bound(self.in_features, self.out_features)
            nn.init.uniform_(self.weight, -bound, bound, generator=generator)
        else:
            nn.init.uniform_(self.weight, 0.25, 0.75, generator=generator)

    def effective_weights(self) -> dict[str, Tensor]:
        """`weight`: the parameter clamped to its box."""
        return {"weight": self.weight.clamp(self.low, 1)}

    def penalties(self) -> dict[str, Tensor]:
        """`weight`: mean distance of the parameter to the whole numbers in its box."""
        distance = distance_to_integers if self.low < 0 else distance_to_bits
        return {"weight": distance(self.weight).mean()}

    @torch.no_grad()
    def project_(self) -> None:
        """Clip the weight to its box."""
        self.weight.clamp_(self.low, 1)


class NACUnit(Unit):
    """A unit whose weight is ``tanh(w_hat) * sigmoid(m_hat)``, between -1 and 1."""

    legal_values = {"weight": (-1, 0, 1)}

    def __init__(
        self, in_features: int, out_features: int, *, device: torch.device | None = None, dtype: torch.dtype | None = None
    ) -> None:
        super().__init__(in_features, out_features)
        self.w_hat = parameter(out_features, in_features, device, dtype)
        self.m_hat = parameter(out_features, in_features, device, dtype)
        self.reset_parameters()

    def effective_weights(self) -> dict[str, Tensor]:
        """`weight`: tanh times sigmoid of the raw weights."""
        return {"weight": nac_weight(self.w_hat, self.m_hat)}

    def set_weight_(self, name: str, value: Tensor) -> None:
        """Write the parameters of a discrete weight."""
        self.w_hat.copy_(SATURATED * value)
        self.m_hat.copy_(SATURATED * (2 * value.abs() - 1))


def nac_weight(w_hat: Tensor, m_hat: Tensor) -> Tensor:
    """Weight of the NAC family, between -1 and 1: ``w = tanh(w_hat) * sigmoid(m_hat)``."""
    return torch.tanh(w_hat) * torch.sigmoid(m_hat)


@lru_cache
def nac_bound(in_features: int, out_features: int) -> float:
    """Bound r of U(-r, r) for both raw weights of a NAC such that the effective weight has Glorot's variance.

    Solves ``fan * Var(r) = 2`` with ``Var(r) = (1 - tanh(r) / r) * (r - tanh(r / 2)) / (2 r)`` and
    ``fan = max(in + out, 5)``; the floor of five keeps the root below ten.
    """
    from scipy.optimize import brentq

    fan = max(in_features + out_features, 5)

    def excess(r: float) -> float:
        return fan * (1 - math.tanh(r) / r) * (r - math.tanh(r / 2)) / (2 * r) - 2

    return float(brentq(excess, 1e-3, 10.0))


def nau_bound(in_features: int, out_features: int) -> float:
    """Bound r of U(-r, r) for weights in [-1, 1]: Glorot's, but at most a half."""
    return min(0.5, math.sqrt(6 / (in_features + out_features)))


def reset_nac_(unit: NACUnit, generator: torch.Generator | None) -> None:
    """Initial values of Madsen and Johansen: both raw weights from U(-r, r), r by `nac_bound`."""
    bound = nac_bound(unit.in_features, unit.out_features)
    nn.init.uniform_(unit.w_hat, -bound, bound, generator=generator)
    nn.init.uniform_(unit.m_hat, -bound, bound, generator=generator)


def reset_inalu_(unit: NACUnit, generator: torch.Generator | None) -> None:
    """Initial values of the published iNALU runs: w_hat from N(0.88, 0.2), m_hat from N(0.5, 0.2)."""
    nn.init.normal_(unit.w_hat, 0.88, 0.2, generator=generator)
    nn.init.normal_(unit.m_hat, 0.5, 0.2, generator=generator)


def solve_nac_(unit: NACUnit, operands: tuple[int, ...], values: tuple[float, ...], log_base: float = 1.0) -> None:
    """Saturate raw NAC weights so that each effective weight is `values` at `operands` and zero elsewhere.

    `log_base` is the logarithm of the base of tanh and sigmoid.
    """
    raw = [SATURATED * v if abs(v) == 1 else math.atanh(v) / log_base for v in values]
    fill_row_(unit.w_hat, operands, raw, SATURATED)
    fill_row_(unit.m_hat, operands, [SATURATED] * len(operands), -SATURATED)


def saturation_shortfall(raw: Tensor) -> Tensor:
    """Penalty of the iNALU on a raw weight: ``mean(max(20 - |raw|, 0))``, zero once tanh and sigmoid are saturated."""
    return (20 - raw.abs()).clamp_min(0).mean()


def distance_to_integers(weight: Tensor) -> Tensor:
    """Elementwise distance to the nearest of -1, 0, 1: ``min(|w|, |1 - |w||)``."""
    return torch.minimum(weight.abs(), (1 - weight.abs()).abs())


def distance_to_bits(weight: Tensor) -> Tensor:
    """Elementwise distance to the nearest of 0, 1: ``min(|w|, |1 - w|)``."""
    return torch.minimum(weight.abs(), (1 - weight).abs())


def parameter(rows: int, columns: int | None, device: torch.device | None, dtype: torch.dtype | None) -> nn.Parameter:
    """An uninitialised parameter of shape (rows, columns), or (rows,) where columns is None."""
    shape = (rows,) if columns is None else (rows, columns)
    return nn.Parameter(torch.empty(shape, device=device, dtype=dtype))


def fill_row_(weight: Tensor, operands: Sequence[int], values: Sequence[float], other: float = 0.0) -> None:
    """Set every row of a weight to `other`, except `values` at `operands`."""
    weight.fill_(other)
    for column, value in zip(operands, values, strict=True):
        weight[..., column] = value
