"""Modules that only one published experiment uses, and that nobody should: kept so that the experiment can be run again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from nalm.layers import NMU, nmu, sNMU
from nalm.sampling import parse

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["VARIANTS", "variant"]


class PowerDenoisedNMU(sNMU):
    r"""Stochastic NMU that divides by the noise to the power of the weights (the sNMU paper's rejected alternative).

    .. math:: y = \prod_i (n_i x_i w_i + 1 - w_i) \Big/ \prod_i n_i^{w_i}
    """

    def forward(self, x: Tensor, noise: Tensor | None = None) -> Tensor:
        """(..., in_features) -> (..., out_features)."""
        self.check_input(x)
        if not self.training:
            return nmu(x, self.weight)
        low, high = self.noise_range
        drawn = low + (high - low) * (self.sample_noise(x) if noise is None else noise)
        return nmu(x * drawn, self.weight) / torch.exp(torch.log(drawn) @ self.weight.T)


class _Scaled(nn.Module):
    """An NMU between a scaling of the inputs and one of the outputs, by statistics of the training distribution."""

    noise = ""

    def __init__(self, inputs: int, interpolation: str, operation: str) -> None:
        super().__init__()
        self.unit = NMU(inputs, 1)
        x = torch.from_numpy(parse(interpolation).sample(100_000, inputs, seed=0)).float()
        y = x[:, 0] * x[:, 1] if operation == "mul" else x[:, 0] + x[:, 1]
        spread, y_spread = x.amax(0) - x.amin(0), y.amax() - y.amin()
        values = torch.cat([x.mean(0), x.std(0), spread, torch.stack([y.mean(), y.std(), y_spread])])
        self.statistics = nn.Parameter(values)  # never trained: a parameter so that runs on all ranges can be stacked

    def scales(self) -> tuple[Tensor, ...]:
        """Mean, deviation and range of the inputs; mean, deviation and range of the output."""
        n = self.unit.in_features
        fixed = self.statistics.detach()
        return fixed[:n], fixed[n : 2 * n], fixed[2 * n : 3 * n], fixed[3 * n], fixed[3 * n + 1], fixed[3 * n + 2]


class MinMaxNMU(_Scaled):
    r"""NMU with learnt scales after dividing by the range, as in symbolic regression tools.

    .. math:: \hat y = (w_o\,\mathrm{NMU}(w_i \odot 2 (x - \bar x) / r_x + b_i) + b_o)\, r_y / 2
    """

    def __init__(self, inputs: int, interpolation: str, operation: str) -> None:
        super().__init__(inputs, interpolation, operation)
        self.w_in, self.b_in = nn.Parameter(torch.ones(inputs)), nn.Parameter(torch.zeros(inputs))
        self.w_out, self.b_out = nn.Parameter(torch.ones(1)), nn.Parameter(torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        """(..., inputs) -> (..., 1)."""
        mean, _, spread, _, _, y_spread = self.scales()
        inner: Tensor = self.unit(2 * (x - mean) / spread * self.w_in + self.b_in)
        return (inner * self.w_out + self.b_out) * y_spread / 2


class StandardisedNMU(_Scaled):
    r"""NMU of inputs with mean zero and deviation one, scaled back.

    .. math:: \hat y = \bar y + s_y\,\mathrm{NMU}((x - \bar x) / s_x)
    """

    def forward(self, x: Tensor) -> Tensor:
        """(..., inputs) -> (..., 1)."""
        mean, deviation, _, y_mean, y_deviation, _ = self.scales()
        inner: Tensor = self.unit((x - mean) / deviation)
        return y_mean + y_deviation * inner


VARIANTS = ("snmu-power", "nmu-minmax", "nmu-zscore")
"""Names that experiments use."""


def variant(name: str, interpolation: str, operation: str) -> Callable[[int, int], nn.Module]:
    """How to build a variant for a training distribution."""

    def build(inputs: int, outputs: int) -> nn.Module:
        if name == "snmu-power":
            return PowerDenoisedNMU(inputs, outputs)
        scaled = MinMaxNMU if name == "nmu-minmax" else StandardisedNMU
        return scaled(inputs, interpolation, operation)

    return build
