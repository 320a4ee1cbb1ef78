"""Layers for logic and comparison: NLRL, NSR."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from nalm.layers.base import SATURATED, Unit, distance_to_bits, fill_row_, parameter
from nalm.layers.products import affine_product

__all__ = ["NLRL", "NSR", "conjunction", "disjunction", "nsr"]

NLRL_EPSILON = 1e-7
"""Added to truth values before the logarithm; the sources do not give a value, this is that of the NAC family."""


def conjunction(x: Tensor, weight: Tensor, negation: Tensor, epsilon: float = NLRL_EPSILON) -> Tensor:
    """Soft AND of selected, maybe negated inputs: ``exp(sum_i a_oi ln(|v_oi| + epsilon))``, ``v = (1 - n) x + n (1 - x)``.

    Shapes: x (..., in), weight a and negation n (out, in), result (..., out).
    """
    values = torch.addcmul(negation, x.unsqueeze(-2), 1 - 2 * negation)
    return (weight * (values.abs() + epsilon).log()).sum(-1).exp()


def disjunction(x: Tensor, weight: Tensor, negation: Tensor) -> Tensor:
    """Soft OR of selected, maybe negated inputs: ``1 - prod_i (1 - a_oi v_oi)``, ``v = (1 - n) x + n (1 - x)``.

    Equal to the Kronecker expansion of the thesis, at linear cost. Shapes: x (..., in), weight a and negation n (out, in),
    result (..., out).
    """
    return 1 - affine_product(x, weight * (2 * negation - 1), 1 - weight * negation)


def nsr(
    x: Tensor, first: Tensor, second: Tensor, sign_weight: Tensor, zero_weight: Tensor, bias: Tensor, scale: float
) -> Tensor:
    """Probability that a learned comparison of two selected inputs holds.

    ``p = sigmoid(sum_r (w_r t_r + v_r (1 - 2 t_r^2) + b_r))``, ``t_r = tanh(scale * (x . softmax(V1_r) - x . softmax(V2_r)))``

    Shapes: x (..., in), first V1 and second V2 (redundancy, out, in), sign_weight w, zero_weight v and bias b (redundancy,
    out), result (..., out).
    """
    select = first.softmax(-1) - second.softmax(-1)
    sign = (scale * torch.einsum("...i,roi->...ro", x, select)).tanh()
    return (sign * sign_weight + (1 - 2 * sign.square()) * zero_weight + bias).sum(-2).sigmoid()


class NLRL(Unit):
    r"""Neural Logic Rule Layer: Boolean rules with AND, OR and NOT.

    .. math:: y = (1 - g) \odot \mathrm{AND} + g \odot \mathrm{OR}, \quad
              \mathrm{AND}_o = \exp\Big(\sum_i A_{oi} \ln(|v_{oi}| + \epsilon)\Big), \quad
              \mathrm{OR}_o = 1 - \prod_i (1 - A_{oi} v_{oi}), \quad v_{oi} = (1 - n_{oi}) x_i + n_{oi} (1 - x_i)

    with n = sigmoid(N), g = sigmoid(G) and A in [0, 1]. Exact: and, or, not, nand, nor, implies, for inputs 0 and 1, up to
    epsilon in the AND. The thesis says in words that a gate of 0 means OR and prints the formula above, in which it means AND:
    the formula is taken. Without `disjunctions`, only AND is computed and the gate negates the result (De Morgan):
    ``y = (1 - g) AND + g (1 - AND)``. Epsilon and initial values are not published: 1e-7; raw negations from N(0, 0.1), A
    from U(0.1, 0.4) and G from N(1, 0.1), without `disjunctions` A from U(0.25, 0.75) and G from
    N(0, 0.1). They were found by experiment: a layer that starts with its mind made up about negations often stays wrong, and
    one that starts as an AND may imitate an OR. `penalty` is the mean distance to 0, 1 of the weight, of the negation and of
    the gate.

    Args:
        in_features: number of inputs.
        out_features: number of outputs.
        disjunctions: compute OR as well as AND; else the AND-only form with a negated output.
        strict: refuse inputs that are not 0 or 1; for data, not for layers behind another one.
        device: where the parameters live.
        dtype: precision of the parameters.

    Shapes: x (..., in_features) -> (..., out_features); `weight`, `negation_hat` (out_features, in_features), `gate_hat`
    (out_features).

    Reference: Reimann and Schwung, Neural Logic Rule Layers, 2019; Mistry, thesis 2023, section 2.2.6.
    """

    operations = ("and", "or", "not", "nand", "nor", "implies")
    domain = "boolean"
    legal_values = {"weight": (0, 1), "negation": (0, 1), "gate": (0, 1)}

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        disjunctions: bool = True,
        strict: bool = False,
        device: torch.device | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(in_features, out_features)
        self.disjunctions = disjunctions
        self.strict = strict
        self.weight = parameter(out_features, in_features, device, dtype)
        self.negation_hat = parameter(out_features, in_features, device, dtype)
        self.gate_hat = parameter(out_features, None, device, dtype)
        self.reset_parameters()

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw undecided negations, and weights and gates that learn every rule (see the class)."""
        low, high, gate = (0.1, 0.4, 1.0) if self.disjunctions else (0.25, 0.75, 0.0)
        nn.init.uniform_(self.weight, low, high, generator=generator)
        nn.init.normal_(self.negation_hat, 0, 0.1, generator=generator)
        nn.init.normal_(self.gate_hat, gate, 0.1, generator=generator)

    def effective_weights(self) -> dict[str, Tensor]:
        """`weight` clamped to [0, 1], `negation` and `gate`."""
        return {
            "weight": self.weight.clamp(0, 1),
            "negation": self.negation_hat.sigmoid(),
            "gate": self.gate_hat.sigmoid(),
        }

    def penalties(self) -> dict[str, Tensor]:
        """`weight`, `negation`, `gate`: mean distance of each to 0, 1."""
        effective = {**self.effective_weights(), "weight": self.weight}
        return {name: distance_to_bits(value).mean() for name, value in effective.items()}

    @torch.no_grad()
    def project_(self) -> None:
        """Clip the weight to [0, 1]."""
        self.weight.clamp_(0, 1)

    def express_(self, operation: str, operands: tuple[int, ...]) -> None:
        fill_row_(self.weight, operands, [1.0] * len(operands))
        disjunction = operation in ("or", "nand", "implies")
        negated = operands[:1] if operation == "implies" else operands if operation in ("not", "nand", "nor") else ()
        if disjunction and not self.disjunctions:  # De Morgan
            negated = tuple(i for i in operands if i not in negated)
        self.negation_hat.fill_(-SATURATED)
        self.negation_hat[:, list(negated)] = SATURATED
        self.gate_hat.fill_(SATURATED if disjunction else -SATURATED)

    def forward(self, x: Tensor) -> Tensor:
        """(..., in_features) -> (..., out_features)."""
        self.check_input(x)
        if self.strict:
            _check_truths(x)
        negation, gate = self.negation_hat.sigmoid(), self.gate_hat.sigmoid()
        every = conjunction(x, self.weight, negation)
        other = disjunction(x, self.weight, negation) if self.disjunctions else 1 - every
        return (1 - gate) * every + gate * other

    def extra_repr(self) -> str:
        """Sizes, whether the layer has no disjunctions, whether it is strict."""
        shown = "" if self.disjunctions else ", disjunctions=False"
        return super().extra_repr() + shown + (", strict=True" if self.strict else "")


def _check_truths(x: Tensor) -> None:
    wrong = x[(x != 0) & (x != 1)]
    if wrong.numel():
        raise ValueError(f"a strict NLRL takes truth values, 0 or 1, got {wrong[0].item():g} among {x.numel()} inputs")


class NSR(Unit):
    r"""Neural Status Register: compares two selected inputs; gives the truth of the comparison and of its negation.

    .. math:: p = \sigma\Big(\sum_r w_r t_r + v_r (1 - 2 t_r^2) + b_r\Big), \quad
              t_r = \tanh\big(\lambda\,(x \cdot \mathrm{softmax}(V^1_r) - x \cdot \mathrm{softmax}(V^2_r))\big)

    Each of the `redundancy` paths r selects its own operands. Exact: lt, le, gt, ge, eq, ne, for operands that are equal or
    at least 1 / scale apart (integers, with the default scale). Initial values are not published: V from N(0, 1), w, v and b
    from U(-1, 1). `penalty` is the mean distance of the selecting softmax weights to 0, 1.

    Args:
        in_features: number of inputs.
        out_features: number of comparisons.
        redundancy: number of independent paths per comparison.
        scale: factor on the difference of the operands; the smaller the differences, the larger it should be.
        strict: refuse inputs that are NaN, which compare with nothing; else the result is NaN.
        device: where the parameters live.
        dtype: precision of the parameters.

    Shapes: x (..., in_features) -> (..., out_features, 2): probability of the comparison, then of its negation; `first`,
    `second` (redundancy, out_features, in_features), `sign_weight`, `zero_weight`, `bias` (redundancy, out_features).

    Reference: Faber and Wattenhofer, Neural Status Registers, 2020; Mistry, thesis 2023, section 2.2.7.
    """

    operations = ("lt", "le", "gt", "ge", "eq", "ne")
    domain = "integer"
    legal_values = {"first": (0, 1), "second": (0, 1)}
    counted = ("first", "second")

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        redundancy: int = 1,
        scale: float = 1.0,
        strict: bool = False,
        device: torch.device | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(in_features, out_features)
        if redundancy < 1:
            raise ValueError(f"redundancy must be at least 1, got {redundancy}")
        if not 0 < scale < math.inf:
            raise ValueError(f"scale must be a positive number, got {scale}")
        self.redundancy = redundancy
        self.scale = float(scale)
        self.strict = strict
        rows, columns = (redundancy, out_features), (redundancy, out_features, in_features)
        self.first = nn.Parameter(torch.empty(columns, device=device, dtype=dtype))
        self.second = nn.Parameter(torch.empty(columns, device=device, dtype=dtype))
        self.sign_weight = nn.Parameter(torch.empty(rows, device=device, dtype=dtype))
        self.zero_weight = nn.Parameter(torch.empty(rows, device=device, dtype=dtype))
        self.bias = nn.Parameter(torch.empty(rows, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw the selections from N(0, 1), the other weights from U(-1, 1)."""
        nn.init.normal_(self.first, generator=generator)
        nn.init.normal_(self.second, generator=generator)
        for value in (self.sign_weight, self.zero_weight, self.bias):
            nn.init.uniform_(value, -1, 1, generator=generator)

    def effective_weights(self) -> dict[str, Tensor]:
        """`first` and `second`: softmax selections; `sign_weight`, `zero_weight`, `bias` as they are."""
        return {
            "first": self.first.softmax(-1),
            "second": self.second.softmax(-1),
            "sign_weight": self.sign_weight.clone(),
            "zero_weight": self.zero_weight.clone(),
            "bias": self.bias.clone(),
        }

    def set_weight_(self, name: str, value: Tensor) -> None:
        """Write the parameters of a discrete weight."""
        self.get_parameter(name).copy_(2 * SATURATED * value)

    def penalties(self) -> dict[str, Tensor]:
        """`weight`: mean distance of both selections to 0, 1."""
        chosen = torch.stack([self.first.softmax(-1), self.second.softmax(-1)])
        return {"weight": distance_to_bits(chosen).mean()}

    def express_(self, operation: str, operands: tuple[int, ...]) -> None:
        fill_row_(self.first, operands[:1], [2 * SATURATED])
        fill_row_(self.second, operands[1:], [2 * SATURATED])
        # tanh is 0 for equal operands and at least 0.76 in magnitude for operands 1 / scale apart: cut halfway.
        sign, zero, bias = {
            "lt": (-1.0, 0.0, -0.38),
            "le": (-1.0, 0.0, 0.38),
            "gt": (1.0, 0.0, -0.38),
            "ge": (1.0, 0.0, 0.38),
            "eq": (0.0, 1.0, -0.42),
            "ne": (0.0, -1.0, 0.42),
        }[operation]
        self.sign_weight.fill_(SATURATED * sign)
        self.zero_weight.fill_(SATURATED * zero)
        self.bias.fill_(SATURATED * bias)

    def forward(self, x: Tensor) -> Tensor:
        """(..., in_features) -> (..., out_features, 2)."""
        self.check_input(x)
        if self.strict and bool(x.isnan().any()):
            column = int(x.isnan().reshape(-1, self.in_features).any(0).nonzero()[0])
            raise ValueError(f"a strict NSR compares numbers, but input {column + 1} of {self.in_features} is NaN")
        holds = nsr(x, self.first, self.second, self.sign_weight, self.zero_weight, self.bias, self.scale)
        return torch.stack([holds, 1 - holds], -1)

    def extra_repr(self) -> str:
        """Sizes, redundancy and scale if they are not one, and whether the layer is strict."""
        shown = "" if self.redundancy == 1 else f", redundancy={self.redundancy}"
        shown += "" if self.scale == 1 else f", scale={self.scale}"
        return super().extra_repr() + shown + (", strict=True" if self.strict else "")
