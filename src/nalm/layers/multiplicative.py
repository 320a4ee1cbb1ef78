"""Layers that multiply: the NAC-mul family and iMNAC (in log space), NMU and its stochastic relatives (directly)."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from nalm.layers.base import (
    EXPONENTS,
    SATURATED,
    BoxUnit,
    NACUnit,
    Unit,
    distance_to_bits,
    distance_to_integers,
    fill_row_,
    nac_weight,
    parameter,
    reset_inalu_,
    reset_nac_,
    saturation_shortfall,
    solve_nac_,
)
from nalm.layers.products import affine_product, noised_product

__all__ = [
    "NMU",
    "NACMul",
    "NACMulNMU",
    "NACMulSigmoid",
    "iMNAC",
    "imnac",
    "log_product",
    "nmu",
    "sNMU",
    "sNMUBatch",
    "snmu",
    "stgNMU",
]

LOG_EPSILON = 1e-7
"""Added to magnitudes before the logarithm, in every layer of the NAC and NALU families."""

IMNAC_CAP = 20.0
"""Largest exponent of the iMNAC: its output magnitude is at most exp(20), about 4.9e8."""


def log_product(x: Tensor, weight: Tensor, epsilon: float = LOG_EPSILON) -> Tensor:
    """Product of powers of magnitudes, (..., in), (out, in) -> (..., out): ``y_o = exp(sum_i w_oi ln(|x_i| + epsilon))``."""
    return F.linear((x.abs() + epsilon).log(), weight).exp()


def imnac(x: Tensor, weight: Tensor, epsilon: float = LOG_EPSILON, cap: float = IMNAC_CAP) -> Tensor:
    """Capped product of powers with its sign, (..., in), (out, in) -> (..., out).

    ``y_o = exp(min(sum_i w_oi ln max(|x_i|, epsilon), cap)) * prod_i (|w_oi| sign(x_i) + 1 - |w_oi|)``
    """
    magnitude = F.linear(x.abs().clamp_min(epsilon).log(), weight).clamp_max(cap).exp()
    share = weight.abs()
    return magnitude * affine_product(x.sign(), share, 1 - share)


def nmu(x: Tensor, weight: Tensor) -> Tensor:
    """Neural Multiplication Unit, (..., in), (out, in) -> (..., out): ``y_o = prod_i (w_oi x_i + 1 - w_oi)``."""
    return affine_product(x, weight, 1 - weight)


def snmu(x: Tensor, weight: Tensor, noise: Tensor) -> Tensor:
    """NMU of noised inputs, divided by the NMU of the noise: ``y = nmu(noise * x, w) / nmu(noise, w)``.

    Each factor is divided on its own, so that thousands of noises cannot overflow. Where a weight is 0 or 1 its noise cancels.
    Shapes: x and noise (..., in), weight (out, in), result (..., out).
    """
    return noised_product(x, weight, noise)


class NACMul(NACUnit):
    r"""Multiplicative NAC: products of powers of magnitudes, with exponents drawn to -1, 0, 1.

    .. math:: y_o = \exp\Big(\sum_i W_{oi} \ln(|x_i| + 10^{-7})\Big), \qquad W = \tanh(\hat W) \odot \sigma(\hat M)

    Exact: mul, div, reciprocal, sqrt, identity, for positive inputs (signs are lost; 1 / 0 gives 1e7). The papers train it
    without a penalty; `penalty` is the mean distance of W to -1, 0, 1.

    Shapes: x (..., in_features) -> (..., out_features); `w_hat` and `m_hat` (out_features, in_features).

    Reference: Trask et al., Neural Arithmetic Logic Units, NeurIPS 2018.
    """

    operations = ("mul", "div", "reciprocal", "sqrt", "identity")
    domain = "positive"

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw both raw weights from U(-r, r), r by `nac_bound`."""
        reset_nac_(self, generator)

    def penalties(self) -> dict[str, Tensor]:
        """`weight`: mean distance of the effective weight to -1, 0, 1."""
        return {"weight": distance_to_integers(nac_weight(self.w_hat, self.m_hat)).mean()}

    def express_(self, operation: str, operands: tuple[int, ...]) -> None:
        solve_nac_(self, operands, EXPONENTS[operation])

    def forward(self, x: Tensor) -> Tensor:
        """(..., in_features) -> (..., out_features)."""
        self.check_input(x)
        return log_product(x, nac_weight(self.w_hat, self.m_hat))


class NACMulSigmoid(Unit):
    r"""Multiplicative NAC whose exponents are sigmoids, between 0 and 1: it selects factors and cannot divide.

    .. math:: y_o = \exp\Big(\sum_i \sigma(\hat W_{oi}) \ln(|x_i| + 10^{-7})\Big)

    Exact: mul, sqrt, identity, for positive inputs. The papers train it without a penalty; `penalty` is the mean distance
    of the weight to 0, 1.

    Shapes: x (..., in_features) -> (..., out_features); `w_hat` (out_features, in_features).

    Reference: Madsen and Johansen, Neural Arithmetic Units, ICLR 2020.
    """

    operations = ("mul", "sqrt", "identity")
    domain = "positive"
    legal_values = {"weight": (0, 1)}

    def __init__(
        self, in_features: int, out_features: int, *, device: torch.device | None = None, dtype: torch.dtype | None = None
    ) -> None:
        super().__init__(in_features, out_features)
        self.w_hat = parameter(out_features, in_features, device, dtype)
        self.reset_parameters()

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw the raw weight from Glorot's normal distribution."""
        nn.init.xavier_normal_(self.w_hat, generator=generator)

    def effective_weights(self) -> dict[str, Tensor]:
        """`weight`: sigmoid of the raw weight."""
        return {"weight": self.w_hat.sigmoid()}

    def set_weight_(self, name: str, value: Tensor) -> None:
        """Write the parameters of a discrete weight."""
        self.w_hat.copy_(SATURATED * (2 * value - 1))

    def penalties(self) -> dict[str, Tensor]:
        """`weight`: mean distance of the effective weight to 0, 1."""
        return {"weight": distance_to_bits(self.w_hat.sigmoid()).mean()}

    def express_(self, operation: str, operands: tuple[int, ...]) -> None:
        raw = [SATURATED if value == 1 else math.log(value / (1 - value)) for value in EXPONENTS[operation]]
        fill_row_(self.w_hat, operands, raw, -SATURATED)

    def forward(self, x: Tensor) -> Tensor:
        """(..., in_features) -> (..., out_features)."""
        self.check_input(x)
        return log_product(x, self.w_hat.sigmoid())


class FactorUnit(BoxUnit):
    """A unit whose weights, between 0 and 1, say which inputs are factors."""

    operations: tuple[str, ...] = ("mul", "identity")
    legal_values = {"weight": (0, 1)}
    low = 0.0

    def express_(self, operation: str, operands: tuple[int, ...]) -> None:
        fill_row_(self.weight, operands, EXPONENTS[operation])


class NACMulNMU(FactorUnit):
    r"""Multiplicative NAC with the weights of the NMU: linear, clipped to [0, 1] after each step.

    .. math:: y_o = \exp\Big(\sum_i W_{oi} \ln(|x_i| + 10^{-7})\Big), \qquad 0 \le W_{oi} \le 1

    Exact: mul, sqrt, identity, for positive inputs. `penalty` is that of the NMU. In two-layer models the published numbers
    come from a NAU in front; the paper's table prints a NAC+.

    Shapes: x (..., in_features) -> (..., out_features); `weight` (out_features, in_features).

    Reference: Madsen and Johansen, Neural Arithmetic Units, ICLR 2020.
    """

    operations = ("mul", "sqrt", "identity")
    domain = "positive"

    def forward(self, x: Tensor) -> Tensor:
        """(..., in_features) -> (..., out_features)."""
        self.check_input(x)
        return log_product(x, self.weight)


class iMNAC(NACUnit):  # noqa: N801
    r"""Multiplicative half of the iNALU: products of powers that keep their sign and cannot overflow.

    .. math::
        y_o = \exp\Big(\min\big(\sum_i W_{oi} \ln\max(|x_i|, 10^{-7}),\, 20\big)\Big)
              \prod_i \big(|W_{oi}|\,\mathrm{sign}(x_i) + 1 - |W_{oi}|\big), \qquad W = \tanh(\hat W) \odot \sigma(\hat M)

    Exact: mul, div, reciprocal, identity for all inputs that are not zero, sqrt for positive ones, while the result is below
    exp(20); 1 / 0 gives 1e7 times the sign of zero, which is 0. The cap acts on the sum, as in the authors' code. Initial
    values and penalty as in `iNAC`.

    Shapes: x (..., in_features) -> (..., out_features); `w_hat` and `m_hat` (out_features, in_features).

    Reference: Schlör et al., iNALU: Improved Neural Arithmetic Logic Unit, Frontiers in AI 2020; on its own in Mistry,
    thesis 2023, chapter 7.
    """

    operations = ("mul", "div", "reciprocal", "sqrt", "identity")
    domain = "nonzero"

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw `w_hat` from N(0.88, 0.2) and `m_hat` from N(0.5, 0.2)."""
        reset_inalu_(self, generator)

    def penalties(self) -> dict[str, Tensor]:
        """`weight`: shortfall of both raw weights from saturation."""
        return {"weight": saturation_shortfall(self.w_hat) + saturation_shortfall(self.m_hat)}

    def express_(self, operation: str, operands: tuple[int, ...]) -> None:
        solve_nac_(self, operands, EXPONENTS[operation])

    def forward(self, x: Tensor) -> Tensor:
        """(..., in_features) -> (..., out_features)."""
        self.check_input(x)
        return imnac(x, nac_weight(self.w_hat, self.m_hat))


class NMU(FactorUnit):
    r"""Neural Multiplication Unit: the product of selected inputs.

    .. math:: y_o = \prod_i (W_{oi} x_i + 1 - W_{oi}), \qquad 0 \le W_{oi} \le 1

    Exact: mul, identity, for all real inputs, zero included. The forward pass uses the parameter as it is; `project_` clips
    it to [0, 1] after each step, as in the published runs. `penalty` is the mean of min(|w|, |1 - w|).

    Shapes: x (..., in_features) -> (..., out_features); `weight` (out_features, in_features). Wide layers are computed in
    blocks: no (batch, out, in) tensor is built.

    Reference: Madsen and Johansen, Neural Arithmetic Units, ICLR 2020.
    """

    def forward(self, x: Tensor) -> Tensor:
        """(..., in_features) -> (..., out_features)."""
        self.check_input(x)
        return nmu(x, self.weight)


class sNMU(FactorUnit):  # noqa: N801
    r"""Stochastic NMU: multiplies inputs by noise and takes the noise out again, in training only.

    .. math:: y_o = \frac{\prod_i (W_{oi} n_i x_i + 1 - W_{oi})}{\prod_i (W_{oi} n_i + 1 - W_{oi})}, \qquad n_i \sim U(a, b)

    One noise value a sample and input, drawn at each forward pass. Where weights are 0 or 1 the noise cancels; elsewhere it
    moves the weights off wrong optima. In eval mode the layer is the `NMU`. Exact: mul, identity, for all real inputs.
    Initial values, box and penalty of the NMU.

    Args:
        in_features: number of inputs.
        out_features: number of outputs.
        noise_range: bounds (a, b) of the noise, 0 < a < b; the published default is (1, 5).
        device: where the parameters live.
        dtype: precision of the parameters.

    Shapes: x (..., in_features) -> (..., out_features); `weight` (out_features, in_features).

    Reference: Mistry et al., Improving the Robustness of Neural Multiplication Units with Reversible Stochasticity, 2022.
    """

    noise = "uniform"

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        noise_range: tuple[float, float] = (1.0, 5.0),
        device: torch.device | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(in_features, out_features, device=device, dtype=dtype)
        low, high = noise_range
        if not 0 < low < high < math.inf:
            raise ValueError(f"noise_range must be two finite numbers with 0 < low < high, got {noise_range}")
        self.noise_range = (float(low), float(high))

    def sample_noise(self, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Uniform numbers in [0, 1) of the shape of `x`: what `forward` takes as noise."""
        return torch.rand(x.shape, generator=generator, device=x.device, dtype=x.dtype)

    def forward(self, x: Tensor, noise: Tensor | None = None) -> Tensor:
        """(..., in_features) -> (..., out_features); in training `noise`, uniform in [0, 1), replaces the layer's own draw."""
        self.check_input(x)
        if not self.training:
            return nmu(x, self.weight)
        low, high = self.noise_range
        uniform = self.sample_noise(x) if noise is None else noise
        return snmu(x, self.weight, low + (high - low) * uniform)

    def extra_repr(self) -> str:
        """Sizes, and the noise range if it is not (1, 5)."""
        shown = "" if self.noise_range == (1.0, 5.0) else f", noise_range={self.noise_range}"
        return super().extra_repr() + shown


class sNMUBatch(FactorUnit):  # noqa: N801
    r"""Stochastic NMU whose noise range follows the batch: the less the inputs vary, the more noise.

    .. math:: n_i \sim U(1, 1 + 1/s), \qquad s = \text{standard deviation of all elements of the layer's input}

    Otherwise the `sNMU`: the noise cancels where weights are 0 or 1, and is absent in eval mode. Exact: mul, identity, for
    all real inputs. No gradient flows through s (unbiased, at least float32's epsilon); a single element has no spread and
    gets no noise.

    Shapes: x (..., in_features) -> (..., out_features); `weight` (out_features, in_features).

    Reference: Mistry et al., Improving the Robustness of Neural Multiplication Units with Reversible Stochasticity, 2022.
    """

    noise = "uniform"

    def sample_noise(self, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Uniform numbers in [0, 1) of the shape of `x`: what `forward` takes as noise."""
        return torch.rand(x.shape, generator=generator, device=x.device, dtype=x.dtype)

    def forward(self, x: Tensor, noise: Tensor | None = None) -> Tensor:
        """(..., in_features) -> (..., out_features); in training `noise`, uniform in [0, 1), replaces the layer's own draw."""
        self.check_input(x)
        if not self.training or x.numel() < 2:
            return nmu(x, self.weight)
        uniform = self.sample_noise(x) if noise is None else noise
        spread = x.detach().std().clamp_min(torch.finfo(torch.float32).eps)
        return snmu(x, self.weight, 1 + uniform / spread)


class stgNMU(Unit):  # noqa: N801
    r"""NMU with stochastic gates: Gaussian noise on the weights in training, clamped to [0, 1].

    .. math:: y_o = \prod_i (w_{oi} x_i + 1 - w_{oi}), \qquad w = \mathrm{clamp}(\mu + \epsilon, 0, 1),
              \quad \epsilon \sim N(0, \sigma^2)

    One draw of noise a forward pass, shared by the batch; none in eval mode. Exact: mul, identity, for all real inputs.
    `penalty` is the expected number of open gates, sum of Phi(mu / sigma): it draws gates shut and is not zero at the
    solution. This is the module of the thesis and the paper; the only public code, marked unused, leaves out the term
    ``1 - w`` and starts from other values, and which of the two made the published figure is not known.

    Args:
        in_features: number of inputs.
        out_features: number of outputs.
        sigma: standard deviation of the noise.
        device: where the parameters live.
        dtype: precision of the parameters.

    Shapes: x (..., in_features) -> (..., out_features); `mu` (out_features, in_features).

    Reference: Mistry et al., Improving the Robustness of Neural Multiplication Units with Reversible Stochasticity, 2022,
    after Yamada et al., Feature Selection using Stochastic Gates, ICML 2020.
    """

    operations = ("mul", "identity")
    legal_values = {"weight": (0, 1)}
    noise = "normal"

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        sigma: float = 0.5,
        device: torch.device | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(in_features, out_features)
        if not 0 < sigma < math.inf:
            raise ValueError(f"sigma must be a positive number, got {sigma}")
        self.sigma = float(sigma)
        self.mu = parameter(out_features, in_features, device, dtype)
        self.reset_parameters()

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Set every gate to a half; nothing is drawn."""
        nn.init.constant_(self.mu, 0.5)

    def effective_weights(self) -> dict[str, Tensor]:
        """`weight`: mu clamped to [0, 1], without noise."""
        return {"weight": self.mu.clamp(0, 1)}

    def set_weight_(self, name: str, value: Tensor) -> None:
        """Write the parameters of a discrete weight."""
        self.mu.copy_(value)

    def penalties(self) -> dict[str, Tensor]:
        """`open_gates`: expected number of weights above zero."""
        return {"open_gates": torch.special.ndtr(self.mu / self.sigma).sum()}

    def sample_noise(self, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Standard normal numbers of the shape of `mu`: what `forward` takes as noise."""
        return torch.randn(self.mu.shape, generator=generator, device=self.mu.device, dtype=self.mu.dtype)

    def express_(self, operation: str, operands: tuple[int, ...]) -> None:
        fill_row_(self.mu, operands, EXPONENTS[operation])

    def forward(self, x: Tensor, noise: Tensor | None = None) -> Tensor:
        """(..., in_features) -> (..., out_features); in training `noise`, standard normal, replaces the layer's own draw."""
        self.check_input(x)
        gate: Tensor = self.mu
        if self.training:
            gate = gate + self.sigma * (self.sample_noise(x) if noise is None else noise)
        return nmu(x, gate.clamp(0, 1))

    def extra_repr(self) -> str:
        """Sizes, and sigma if it is not a half."""
        return super().extra_repr() + ("" if self.sigma == 0.5 else f", sigma={self.sigma}")
