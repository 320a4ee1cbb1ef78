"""Layers that divide as well as multiply, without the complex numbers of the NPU: NRU, NMRU and their variants."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from nalm.layers.base import EPS32, EXPONENTS, BoxUnit, Unit, distance_to_bits, fill_row_, parameter
from nalm.layers.products import affine_product, over_zero, power_product

__all__ = ["NMRU", "NRU", "NMRUGated", "NMRUNoSign", "NRUSepSign", "nmru", "nru", "nru_sep_sign"]

EXPRESSIBLE = ("mul", "div", "reciprocal", "identity")


def nru(x: Tensor, weight: Tensor, amount: Tensor) -> Tensor:
    """Neural Reciprocal Unit: ``y_o = prod_i (a_oi sign(x_i) |x_i|^w_oi + 1 - a_oi)``.

    Shapes: x (..., in), weight w and amount a (out, in), result (..., out).
    """
    return power_product(x, weight, amount)


def nru_sep_sign(x: Tensor, weight: Tensor, amount: Tensor) -> Tensor:
    """NRU of magnitudes times the sign: ``y_o = prod_i (a_oi |x_i|^w_oi + 1 - a_oi) * prod_i sign(x_i)^round(w_oi)``.

    Shapes: x (..., in), weight w and amount a (out, in), result (..., out). No gradient flows through the sign.
    """
    rounded = weight.detach().round()
    negatives = F.linear((x < 0).to(x.dtype), (rounded % 2).to(x.dtype))
    zeros = F.linear((x == 0).to(x.dtype), (rounded > 0).to(x.dtype))
    return power_product(x.abs(), weight, amount) * ((1 - 2 * (negatives % 2)) * (zeros == 0))


def nmru(z: Tensor, weight: Tensor) -> Tensor:
    """Neural Multiplicative Reciprocal Unit of inputs and reciprocals z: magnitude as in the NMU, sign by a cosine.

    ``y_o = prod_i (w_oi |z_i| + 1 - w_oi) * cos(pi sum_i w_oi [z_i < 0])``, z (..., 2 in), weight (out, 2 in).
    """
    size = affine_product(_finite(z).abs(), weight, 1 - weight)
    return over_zero(size * F.linear((z < 0).to(z.dtype), weight * math.pi).cos(), z.isinf(), weight != 0)


def _finite(z: Tensor) -> Tensor:
    """One, which leaves a product as it is, in place of what is infinite: reciprocals of zero, left to `over_zero`."""
    return z.masked_fill(z.isinf(), 1)


def smooth_amount(weight: Tensor, scale: float) -> Tensor:
    """Smooth stand-in for |w| that is flat at zero and one elsewhere: ``tanh(scale * w)^2``."""
    return (scale * weight).tanh().square()


def with_reciprocals(x: Tensor, epsilon: float) -> Tensor:
    """Inputs, then their reciprocals ``1 / (x + epsilon)``, infinite without a gradient at zero: (..., in) -> (..., 2 in)."""
    below = x + epsilon
    zero = below == 0
    return torch.cat([x, below.masked_fill(zero, 1).reciprocal().masked_fill(zero, math.inf)], -1)


class _NRUUnit(BoxUnit):
    """Weight, box and options that the two NRUs share."""

    operations = EXPRESSIBLE
    domain = "nonzero"
    legal_values = {"weight": (-1, 0, 1)}
    low = -1.0

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        tanh_scale: float = 1000.0,
        device: torch.device | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(in_features, out_features, device=device, dtype=dtype)
        if not 0 < tanh_scale < math.inf:
            raise ValueError(f"tanh_scale must be a positive number, got {tanh_scale}")
        self.tanh_scale = float(tanh_scale)

    def amount(self) -> Tensor:
        """How much of each power stands in the product: tanh(scale w)^2 in training, |w| in eval mode."""
        return smooth_amount(self.weight, self.tanh_scale) if self.training else self.weight.abs()

    def express_(self, operation: str, operands: tuple[int, ...]) -> None:
        fill_row_(self.weight, operands, EXPONENTS[operation])

    def extra_repr(self) -> str:
        """Sizes, and the tanh scale if it is not 1000."""
        return super().extra_repr() + ("" if self.tanh_scale == 1000 else f", tanh_scale={self.tanh_scale}")


class NRU(_NRUUnit):
    r"""Neural Reciprocal Unit: a product of inputs and reciprocals, with exponents in [-1, 1].

    .. math:: y_o = \prod_i \big(A_{oi}\,\mathrm{sign}(x_i)\,|x_i|^{W_{oi}} + 1 - A_{oi}\big), \qquad
              A = \begin{cases}\tanh(1000\,W)^2 & \text{training}\\ |W| & \text{eval}\end{cases}

    Exact: mul, div, reciprocal, identity, for inputs that are not zero. Initial values, box [-1, 1] and penalty of the NAU.

    Division by zero gives infinity with the sign of the rest, 0 / 0 gives NaN; no gradient flows through that row, so the rest
    of the batch trains on. The gradient by an input that is zero counts as zero.

    Args:
        in_features: number of inputs.
        out_features: number of outputs.
        tanh_scale: steepness of the smooth absolute value used in training.
        device: where the parameters live.
        dtype: precision of the parameters.

    Shapes: x (..., in_features) -> (..., out_features); `weight` (out_features, in_features).

    Reference: Mistry et al., Exploring the Learning Mechanisms of Neural Division Modules, 2022.
    """

    def forward(self, x: Tensor) -> Tensor:
        """(..., in_features) -> (..., out_features)."""
        self.check_input(x)
        return nru(x, self.weight, self.amount())


class NRUSepSign(_NRUUnit):
    r"""NRU that computes magnitude and sign apart.

    .. math:: y_o = \prod_i \big(A_{oi}\,|x_i|^{W_{oi}} + 1 - A_{oi}\big) \prod_i \mathrm{sign}(x_i)^{\mathrm{round}(W_{oi})}

    with the A of the `NRU`. Exact: mul, div, reciprocal, identity, for inputs that are not zero. Division by zero is as there.

    Args:
        in_features: number of inputs.
        out_features: number of outputs.
        tanh_scale: steepness of the smooth absolute value used in training.
        device: where the parameters live.
        dtype: precision of the parameters.

    Shapes: x (..., in_features) -> (..., out_features); `weight` (out_features, in_features).

    Reference: Mistry et al., Exploring the Learning Mechanisms of Neural Division Modules, 2022, appendix J.
    """

    def forward(self, x: Tensor) -> Tensor:
        """(..., in_features) -> (..., out_features)."""
        self.check_input(x)
        return nru_sep_sign(x, self.weight, self.amount())


class _NMRUUnit(BoxUnit):
    """Weight and box that the NMRUs share: in_features columns that multiply, then as many that divide."""

    operations = EXPRESSIBLE
    domain = "nonzero"
    legal_values = {"weight": (0, 1)}
    low = 0.0
    columns_per_input = 2

    def inputs_and_reciprocals(self, x: Tensor) -> Tensor:
        """The inputs and their reciprocals; in training 1 / (x + eps32), in eval mode 1 / x."""
        self.check_input(x)
        return with_reciprocals(x, EPS32 if self.training else 0.0)

    def express_(self, operation: str, operands: tuple[int, ...]) -> None:
        powers = EXPONENTS[operation]
        columns = [i if power > 0 else self.in_features + i for i, power in zip(operands, powers, strict=True)]
        fill_row_(self.weight, columns, [1.0] * len(columns))


class NMRU(_NMRUUnit):
    r"""Neural Multiplicative Reciprocal Unit: an NMU over the inputs and their reciprocals, with the sign kept apart.

    .. math:: y_o = \prod_{i=1}^{2I} (W_{oi} |z_i| + 1 - W_{oi}) \cdot \cos\Big(\pi \sum_{i=1}^{2I} W_{oi} [z_i < 0]\Big),
              \qquad z = [x, 1/x]

    Exact: mul, div, reciprocal, identity, for inputs that are not zero. In training the reciprocals are 1 / (x + eps32).
    Initial values, box [0, 1] and penalty of the NMU.

    Division by zero gives infinity with the sign of the rest, 0 / 0 gives NaN, in eval mode (in training 1 / eps32, about
    8.4 million, stands for 1 / 0); no gradient flows through that row. A zero whose reciprocal has weight 0 does no harm.

    Shapes: x (..., in_features) -> (..., out_features); `weight` (out_features, 2 in_features): first the weights of the
    inputs, then those of the reciprocals.

    Reference: Mistry et al., Exploring the Learning Mechanisms of Neural Division Modules, 2022.
    """

    def forward(self, x: Tensor) -> Tensor:
        """(..., in_features) -> (..., out_features)."""
        return nmru(self.inputs_and_reciprocals(x), self.weight)


class NMRUNoSign(_NMRUUnit):
    r"""NMRU without the sign path: the plain NMU over inputs and reciprocals.

    .. math:: y_o = \prod_{i=1}^{2I} (W_{oi} z_i + 1 - W_{oi}), \qquad z = [x, 1/x]

    Exact: mul, div, reciprocal, identity, for inputs that are not zero. The "vanilla" ablation of the paper. Division by zero
    is as in the `NMRU`.

    Shapes: x (..., in_features) -> (..., out_features); `weight` (out_features, 2 in_features).

    Reference: Mistry et al., Exploring the Learning Mechanisms of Neural Division Modules, 2022, appendix I.
    """

    def forward(self, x: Tensor) -> Tensor:
        """(..., in_features) -> (..., out_features)."""
        z = self.inputs_and_reciprocals(x)
        return over_zero(affine_product(_finite(z), self.weight, 1 - self.weight), z.isinf(), self.weight != 0)


class NMRUGated(_NMRUUnit):
    r"""NMRU whose inputs and reciprocals are scaled by learned gates first.

    .. math:: y = \mathrm{NMRU}(g \odot z), \qquad z = [x, 1/x], \quad 0 \le g_i \le 1

    The gate multiplies (a shut gate gives 0, not 1), as in the authors' code. Exact: mul, div, reciprocal, identity, for
    inputs that are not zero. `penalty` is that of the NMRU plus the mean distance of the gate to 0, 1. Division by zero is as
    in the `NMRU`.

    Shapes: x (..., in_features) -> (..., out_features); `weight` (out_features, 2 in_features), `gate` (2 in_features).

    Reference: Mistry et al., Exploring the Learning Mechanisms of Neural Division Modules, 2022, appendix I.
    """

    legal_values = {"weight": (0, 1), "gate": (0, 1)}

    def __init__(
        self, in_features: int, out_features: int, *, device: torch.device | None = None, dtype: torch.dtype | None = None
    ) -> None:
        Unit.__init__(self, in_features, out_features)
        self.weight = parameter(out_features, 2 * in_features, device, dtype)
        self.gate = parameter(2 * in_features, None, device, dtype)
        self.reset_parameters()

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw the weight from U(0.25, 0.75) and set the gate to a half."""
        super().reset_parameters(generator)
        nn.init.constant_(self.gate, 0.5)

    def effective_weights(self) -> dict[str, Tensor]:
        """`weight` and `gate`, clamped to [0, 1]."""
        return {**super().effective_weights(), "gate": self.gate.clamp(0, 1)}

    def penalties(self) -> dict[str, Tensor]:
        """`weight` and `gate`: mean distance of each to 0, 1."""
        return {**super().penalties(), "gate": distance_to_bits(self.gate).mean()}

    @torch.no_grad()
    def project_(self) -> None:
        """Clip weight and gate to [0, 1]."""
        super().project_()
        self.gate.clamp_(0, 1)

    def express_(self, operation: str, operands: tuple[int, ...]) -> None:
        super().express_(operation, operands)
        self.gate.fill_(1.0)

    def forward(self, x: Tensor) -> Tensor:
        """(..., in_features) -> (..., out_features)."""
        z = self.inputs_and_reciprocals(x)
        gated = (self.gate * _finite(z)).where(z.isfinite() | z.isnan() | (self.gate == 0), z.detach())
        return nmru(gated, self.weight)
