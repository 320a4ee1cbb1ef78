"""Layers that raise inputs to real or complex powers: NaiveNPU, NPU, RealNPU."""

from __future__ import annotations

import math
from abc import abstractmethod

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from nalm.layers.base import (
    EPS32,
    EXPONENTS,
    Unit,
    distance_to_bits,
    distance_to_integers,
    fill_row_,
    nau_bound,
    parameter,
)

__all__ = ["NPU", "NaiveNPU", "RealNPU", "gated_polar", "npu", "real_npu"]

EXPONENT_VALUES = (-2, -1, -0.5, 0, 0.5, 1, 2)
"""Exponents that the read-out takes for exact when a free exponent comes close to one of them."""


def gated_polar(x: Tensor, gate: Tensor | None, epsilon: float = EPS32) -> tuple[Tensor, Tensor]:
    """Magnitude and phase of each input, both drawn to those of the number one where the gate is shut.

    ``r = g (|x| + epsilon) + 1 - g`` and ``k = g pi [x < 0]``; without a gate, g is one. Shapes: x (..., in), gate (in).
    """
    magnitude, phase = x.abs() + epsilon, (x < 0).to(x.dtype) * math.pi
    return (magnitude, phase) if gate is None else (gate * magnitude + (1 - gate), gate * phase)


def npu(magnitude: Tensor, phase: Tensor, real: Tensor, imaginary: Tensor) -> Tensor:
    """Real part of a product of complex powers: ``exp(Re ln r - Im k) * cos(Re k + Im ln r)``.

    Shapes: magnitude r and phase k (..., in), exponents (out, in), result (..., out).
    """
    log = magnitude.log()
    exponent = F.linear(log, real) - F.linear(phase, imaginary)
    return exponent.exp() * (F.linear(phase, real) + F.linear(log, imaginary)).cos()


def real_npu(magnitude: Tensor, phase: Tensor, weight: Tensor) -> Tensor:
    """Real part of a product of real powers: ``exp(W ln r) * cos(W k)``.

    Shapes: magnitude r and phase k (..., in), exponents (out, in), result (..., out).
    """
    return F.linear(magnitude.log(), weight).exp() * F.linear(phase, weight).cos()


class NaiveNPU(Unit):
    r"""NPU without the relevance gate: products of complex powers of all inputs.

    .. math:: y = \exp(W^{re} \ln r - W^{im} k) \odot \cos(W^{re} k + W^{im} \ln r), \qquad
              r = |x| + \epsilon, \quad k_i = \pi\,[x_i < 0]

    Exact: mul, div, reciprocal, square, sqrt, identity and any power, for inputs that are not zero (sqrt: positive), up to
    eps32 in the magnitude; 1 / 0 gives 1 / eps32, about 8.4 million. The paper trains it with an L1 norm of the parameters;
    `penalty` is the mean distance of the real exponents to -1, 0, 1 plus the mean magnitude of the imaginary ones.

    Shapes: x (..., in_features) -> (..., out_features); `real` and `imaginary` (out_features, in_features).

    Reference: Heim, Pevný and Šmídl, Neural Power Units, NeurIPS 2020.
    """

    operations = tuple(EXPONENTS)
    domain = "nonzero"
    legal_values = {"real": EXPONENT_VALUES, "imaginary": (0,)}

    def __init__(
        self, in_features: int, out_features: int, *, device: torch.device | None = None, dtype: torch.dtype | None = None
    ) -> None:
        super().__init__(in_features, out_features)
        self.real = parameter(out_features, in_features, device, dtype)
        self.imaginary = parameter(out_features, in_features, device, dtype)
        self.reset_parameters()

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw the real exponents from Glorot's uniform distribution; the imaginary ones are zero."""
        nn.init.xavier_uniform_(self.real, generator=generator)
        nn.init.zeros_(self.imaginary)

    def effective_weights(self) -> dict[str, Tensor]:
        """`real` and `imaginary` exponents."""
        return {"real": self.real.clone(), "imaginary": self.imaginary.clone()}

    def penalties(self) -> dict[str, Tensor]:
        """`weight`: distance of the real exponents to -1, 0, 1; `imaginary`: magnitude; both means."""
        return {"weight": distance_to_integers(self.real).mean(), "imaginary": self.imaginary.abs().mean()}

    @torch.no_grad()
    def sparsity_error(self) -> Tensor:
        """Mean of the sparsity errors of real and imaginary exponents, as in the published benchmark."""
        return (distance_to_integers(self.real).amax() + distance_to_integers(self.imaginary).amax()) / 2

    def express_(self, operation: str, operands: tuple[int, ...]) -> None:
        fill_row_(self.real, operands, EXPONENTS[operation])
        self.imaginary.zero_()

    def forward(self, x: Tensor) -> Tensor:
        """(..., in_features) -> (..., out_features)."""
        self.check_input(x)
        return npu(*gated_polar(x, None), self.real, self.imaginary)


class _GatedPowerUnit(Unit):
    """Gate, options and penalties that NPU and RealNPU share."""

    operations = tuple(EXPONENTS)
    domain = "nonzero"

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        bounded: bool = False,
        clip_gate: bool = False,
        constrained_start: bool = False,
        skip_zero_weight: bool = False,
        epsilon: float = EPS32,
        device: torch.device | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(in_features, out_features)
        if not 0 <= epsilon < math.inf:
            raise ValueError(f"epsilon must be a number from 0 up, got {epsilon}")
        self.bounded = bounded
        self.clip_gate = clip_gate
        self.constrained_start = constrained_start
        self.skip_zero_weight = skip_zero_weight
        self.epsilon = float(epsilon)
        if bounded:
            self.operations = tuple(name for name, powers in EXPONENTS.items() if max(map(abs, powers)) <= 1)
        self._build(device, dtype)
        self.reset_parameters()

    def _build(self, device: torch.device | None, dtype: torch.dtype | None) -> None:
        self.real = parameter(self.out_features, self.in_features, device, dtype)
        self.gate = parameter(self.in_features, None, device, dtype)

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw the real exponents (Glorot's uniform, or U(-r, r) with r by `nau_bound`); gates are a half."""
        if self.constrained_start:
            bound = nau_bound(self.in_features, self.out_features)
            nn.init.uniform_(self.real, -bound, bound, generator=generator)
        else:
            nn.init.xavier_uniform_(self.real, generator=generator)
        nn.init.constant_(self.gate, 0.5)

    def penalties(self) -> dict[str, Tensor]:
        """`weight`: mean distance of the real exponents to their targets; `gate`: mean distance of the gate to 0, 1."""
        distance = (1 - self.real.abs()).abs() if self.skip_zero_weight else distance_to_integers(self.real)
        return {"weight": distance.mean(), "gate": distance_to_bits(self.gate).mean()}

    @torch.no_grad()
    def project_(self) -> None:
        """Clip exponents to [-1, 1] and gates to [0, 1], each if asked for at construction."""
        if self.bounded:
            self.real.clamp_(-1, 1)
        if self.clip_gate:
            self.gate.clamp_(0, 1)

    def express_(self, operation: str, operands: tuple[int, ...]) -> None:
        powers = EXPONENTS[operation]
        fill_row_(self.real, operands, powers, 1.0 if self.skip_zero_weight else 0.0)
        fill_row_(self.gate, operands, [1.0] * len(powers))

    def polar(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Gated magnitude and phase of the inputs."""
        self.check_input(x)
        return gated_polar(x, self.gate.clamp(0, 1), self.epsilon)

    @abstractmethod
    def forward(self, x: Tensor) -> Tensor:
        """(..., in_features) -> (..., out_features)."""

    def extra_repr(self) -> str:
        """Sizes, and the options that are set."""
        options = ("bounded", "clip_gate", "constrained_start", "skip_zero_weight", "bounded_imaginary")
        shown = [f"{name}=True" for name in options if getattr(self, name, False)]
        if self.epsilon != EPS32:
            shown.append(f"epsilon={self.epsilon}")
        return ", ".join([super().extra_repr(), *shown])


class RealNPU(_GatedPowerUnit):
    r"""Real Neural Power Unit: products of real powers of the relevant inputs, with the sign of negative ones.

    .. math:: y = \exp(W \ln r) \odot \cos(W k), \qquad
              r = \hat g\,(|x| + \epsilon) + 1 - \hat g, \quad k = \hat g\,\pi\,[x < 0], \quad \hat g = \mathrm{clamp}(g, 0, 1)

    Exact: mul, div, reciprocal, square, sqrt, identity and any power, for inputs that are not zero (sqrt: positive), up to
    epsilon in the magnitude, which stays on in eval mode (1 / 0 gives 1 / epsilon). The published baseline has no
    discretisation and an L1 norm of all parameters instead; `penalty` is the mean distance of W to its targets plus that of
    the gate to 0, 1.

    The modified Real NPU of the division paper, registered as ``real-npu-mod``, sets all four options below.

    Args:
        in_features: number of inputs.
        out_features: number of outputs.
        bounded: `project_` clips W to [-1, 1]; square is then out of reach.
        clip_gate: `project_` clips g to [0, 1], so that its gradient is never cut off for good.
        constrained_start: start W from U(-r, r), r at most a half, in place of Glorot's uniform distribution.
        skip_zero_weight: the penalty draws W to -1, 1 and leaves the choice of inputs to the gate (else to -1, 0, 1).
        epsilon: added to magnitudes; the published value is float32's machine epsilon.
        device: where the parameters live.
        dtype: precision of the parameters.

    Shapes: x (..., in_features) -> (..., out_features); `real` (out_features, in_features), `gate` (in_features).

    Reference: Heim, Pevný and Šmídl, Neural Power Units, NeurIPS 2020; modifications of Mistry et al., Exploring the
    Learning Mechanisms of Neural Division Modules, 2022.
    """

    legal_values = {"real": EXPONENT_VALUES, "gate": (0, 1)}
    counted = ("real",)

    def effective_weights(self) -> dict[str, Tensor]:
        """`real` exponents and the clamped `gate`."""
        return {"real": self.real.clone(), "gate": self.gate.clamp(0, 1)}

    def forward(self, x: Tensor) -> Tensor:
        """(..., in_features) -> (..., out_features)."""
        return real_npu(*self.polar(x), self.real)


class NPU(_GatedPowerUnit):
    r"""Neural Power Unit: the real part of products of complex powers of the relevant inputs.

    .. math:: y = \exp(W^{re} \ln r - W^{im} k) \odot \cos(W^{re} k + W^{im} \ln r)

    with the gated magnitude r and phase k of the `RealNPU`. The imaginary exponents, zero at the start and in every exact
    solution, let training pass around the sign change. Exact: as the `RealNPU`. `penalty` is that of the RealNPU, plus the
    L1 norm (a sum) of the imaginary exponents where they are bounded.

    ``npu-mod`` in the registry sets the four options of the modified Real NPU and leaves the imaginary exponents free;
    `bounded_imaginary` adds the paper's "clip and regularise".

    Args:
        in_features: number of inputs.
        out_features: number of outputs.
        bounded: `project_` clips the real exponents to [-1, 1]; square is then out of reach.
        clip_gate: `project_` clips g to [0, 1].
        constrained_start: start from U(-r, r), r at most a half, in place of Glorot's uniform distribution.
        skip_zero_weight: the penalty draws the real exponents to -1, 1 (else to -1, 0, 1).
        bounded_imaginary: `project_` clips the imaginary exponents to [-1, 1] and `penalty` counts their L1 norm.
        epsilon: added to magnitudes; the published value is float32's machine epsilon.
        device: where the parameters live.
        dtype: precision of the parameters.

    Shapes: x (..., in_features) -> (..., out_features); `real` and `imaginary` (out_features, in_features), `gate`
    (in_features).

    Reference: Heim, Pevný and Šmídl, Neural Power Units, NeurIPS 2020.
    """

    legal_values = {"real": EXPONENT_VALUES, "imaginary": (0,), "gate": (0, 1)}

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        bounded: bool = False,
        clip_gate: bool = False,
        constrained_start: bool = False,
        skip_zero_weight: bool = False,
        bounded_imaginary: bool = False,
        epsilon: float = EPS32,
        device: torch.device | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(
            in_features,
            out_features,
            bounded=bounded,
            clip_gate=clip_gate,
            constrained_start=constrained_start,
            skip_zero_weight=skip_zero_weight,
            epsilon=epsilon,
            device=device,
            dtype=dtype,
        )
        self.bounded_imaginary = bounded_imaginary

    def _build(self, device: torch.device | None, dtype: torch.dtype | None) -> None:
        super()._build(device, dtype)
        self.imaginary = parameter(self.out_features, self.in_features, device, dtype)

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw the real exponents; the imaginary ones are zero, the gates a half."""
        super().reset_parameters(generator)
        nn.init.zeros_(self.imaginary)

    def effective_weights(self) -> dict[str, Tensor]:
        """`real` and `imaginary` exponents and the clamped `gate`."""
        return {"real": self.real.clone(), "imaginary": self.imaginary.clone(), "gate": self.gate.clamp(0, 1)}

    def penalties(self) -> dict[str, Tensor]:
        """`weight` and `gate` of the RealNPU; `imaginary`, the L1 norm, where bounded."""
        terms = super().penalties()
        return {**terms, "imaginary": self.imaginary.abs().sum()} if self.bounded_imaginary else terms

    @torch.no_grad()
    def project_(self) -> None:
        """Clip what was asked for at construction."""
        super().project_()
        if self.bounded_imaginary:
            self.imaginary.clamp_(-1, 1)

    @torch.no_grad()
    def sparsity_error(self) -> Tensor:
        """Mean of the sparsity errors of real and imaginary exponents, as in the published benchmark."""
        return (distance_to_integers(self.real).amax() + distance_to_integers(self.imaginary).amax()) / 2

    def express_(self, operation: str, operands: tuple[int, ...]) -> None:
        super().express_(operation, operands)
        self.imaginary.zero_()

    def forward(self, x: Tensor) -> Tensor:
        """(..., in_features) -> (..., out_features)."""
        return npu(*self.polar(x), self.real, self.imaginary)
