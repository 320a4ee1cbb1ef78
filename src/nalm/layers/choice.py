"""A layer that is a sum or a product: which of them is a hard choice, found by competition."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from nalm.layers.base import COEFFICIENTS, EXPONENTS, Unit, distance_to_integers, fill_row_, nau_bound, parameter
from nalm.layers.power import gated_polar, real_npu

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["SumOrProduct"]


class SumOrProduct(Unit):
    r"""A sum with weights in [-1, 1], or a product of powers with exponents in [-1, 1]; a hard choice says which.

    .. math:: y = \begin{cases} W^+ x & c \ge 1/2 \\ \prod_i |x_i|^{w_i} \cos(\pi \sum_i w_i [x_i < 0]) & c < 1/2 \end{cases}

    One layer for all four operations, without a hint which. A gate that mixes both paths, as in the NALU, trains each path on
    what the other leaves over, and neither arrives; here each start trains one path as if the other were not there, on the
    loss that suits it, and the path whose snapped weights explain unseen rows is kept. That is what the recipe `robust` and
    `nalm.fit` do. Gradients reach the chosen path alone; new initial values choose at random, for all outputs together.

    Exact: add, sub, mul, div, reciprocal, sqrt, identity, for inputs that are not zero (1 / 0 gives 1e37). `penalty` is the
    mean distance of the chosen path's weights to -1, 0, 1.

    Shapes: x (..., in_features) -> (..., out_features); `add_weight` and `mul_weight` (out_features, in_features), `choice`
    (out_features).

    Reference: this library; the paths are those of Madsen and Johansen's NAU and of Heim et al.'s Real NPU, without its gate.
    """

    operations = tuple(dict.fromkeys([*COEFFICIENTS, "mul", "div", "reciprocal", "sqrt"]))
    domain = "nonzero"
    legal_values: ClassVar[Mapping[str, tuple[float, ...]]] = {
        "add_weight": (-1, 0, 1),
        "mul_weight": (-1, 0, 1),
        "choice": (0, 1),
    }
    counted = ("add_weight", "mul_weight")
    epsilon: ClassVar[float] = 1e-37
    """Added to magnitudes, so that zero has a logarithm and every other number stays what it is."""

    def __init__(
        self, in_features: int, out_features: int, *, device: torch.device | None = None, dtype: torch.dtype | None = None
    ) -> None:
        super().__init__(in_features, out_features)
        self.add_weight = parameter(out_features, in_features, device, dtype)
        self.mul_weight = parameter(out_features, in_features, device, dtype)
        self.choice = parameter(out_features, None, device, dtype).requires_grad_(False)
        self.reset_parameters()

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw both weights from U(-r, r) with r by `nau_bound`, and one choice for all outputs: sum (1) or product (0)."""
        bound = nau_bound(self.in_features, self.out_features)
        nn.init.uniform_(self.add_weight, -bound, bound, generator=generator)
        nn.init.uniform_(self.mul_weight, -bound, bound, generator=generator)
        with torch.no_grad():
            self.choice.fill_(float(torch.randint(2, (), generator=generator)))

    @property
    def multiplicative(self) -> bool:
        """Whether all outputs are products at the present choice."""
        return bool((self.choice < 0.5).all())

    def effective_weights(self) -> dict[str, Tensor]:
        """`add_weight`, clamped to [-1, 1], and `mul_weight`, zero for the path not chosen; and the rounded `choice`."""
        chosen = (self.choice >= 0.5).to(self.choice.dtype)
        shown = chosen.unsqueeze(-1)
        return {
            "add_weight": self.add_weight.clamp(-1, 1) * shown,
            "mul_weight": self.mul_weight * (1 - shown),
            "choice": chosen,
        }

    def penalties(self) -> dict[str, Tensor]:
        """`weight`: mean distance of the chosen path's weights to -1, 0, 1."""
        chosen = torch.where((self.choice >= 0.5).unsqueeze(-1), self.add_weight, self.mul_weight)
        return {"weight": distance_to_integers(chosen).mean()}

    @torch.no_grad()
    def project_(self) -> None:
        """Clip both weights to [-1, 1] and the choice to [0, 1]."""
        self.add_weight.clamp_(-1, 1)
        self.mul_weight.clamp_(-1, 1)
        self.choice.clamp_(0, 1)

    def express_(self, operation: str, operands: tuple[int, ...]) -> None:
        additive = operation in COEFFICIENTS
        self.choice.fill_(float(additive))
        fill_row_(self.add_weight, operands if additive else (), COEFFICIENTS[operation] if additive else ())
        fill_row_(self.mul_weight, () if additive else operands, () if additive else EXPONENTS[operation])

    def forward(self, x: Tensor) -> Tensor:
        """(..., in_features) -> (..., out_features)."""
        self.check_input(x)
        total = F.linear(x, self.add_weight.clamp(-1, 1))
        product = real_npu(*gated_polar(x, None, self.epsilon), self.mul_weight)
        return torch.where(self.choice >= 0.5, total, product)
