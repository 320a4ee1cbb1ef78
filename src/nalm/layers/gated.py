"""Layers that choose between an additive and a multiplicative path: NALU, iNALU, G-NALU, gated NAU/NMU."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from nalm.layers.additive import NAU, NACAdd, iNAC
from nalm.layers.base import (
    COEFFICIENTS,
    EXPONENTS,
    SATURATED,
    NACUnit,
    Unit,
    distance_to_integers,
    nac_weight,
    parameter,
    reset_nac_,
    saturation_shortfall,
    solve_nac_,
)
from nalm.layers.multiplicative import NMU, NACMul, iMNAC, log_product

__all__ = ["GNALU", "NALU", "GatedNAUNMU", "NALUSeparate", "golden_sigmoid", "golden_tanh", "iNALU", "mix"]

LOG_GOLDEN_RATIO = math.log((1 + math.sqrt(5)) / 2)

INPUT_GATE = 1e9
"""Gate weight on an operand that opens or shuts an input-dependent gate for every positive input above 1e-7."""


def mix(gate: Tensor, additive: Tensor, multiplicative: Tensor) -> Tensor:
    """Weigh two paths by a gate between 0 and 1: ``g * additive + (1 - g) * multiplicative``."""
    return gate * additive + (1 - gate) * multiplicative


def golden_tanh(x: Tensor) -> Tensor:
    """Tanh to the base of the golden ratio: ``(phi^(2x) - 1) / (phi^(2x) + 1)``, computed as ``tanh(x ln phi)``."""
    return torch.tanh(x * LOG_GOLDEN_RATIO)


def golden_sigmoid(x: Tensor) -> Tensor:
    """Sigmoid to the base of the golden ratio: ``1 / (1 + phi^(-x))``."""
    return torch.sigmoid(x * LOG_GOLDEN_RATIO)


def _set_input_gate_(gate_weight: Tensor, operands: tuple[int, ...], additive: bool) -> None:
    gate_weight.zero_()
    size = min(INPUT_GATE, torch.finfo(gate_weight.dtype).max)
    gate_weight[:, list(operands)] = size if additive else -size


class _SharedNALU(NACUnit):
    """One weight for both paths and a gate weight: what NALU and G-NALU share."""

    operations = ("add", "sub", "mul", "div", "reciprocal", "sqrt", "identity")
    domain = "positive"
    log_base: ClassVar[float] = 1.0

    def __init__(
        self, in_features: int, out_features: int, *, device: torch.device | None = None, dtype: torch.dtype | None = None
    ) -> None:
        Unit.__init__(self, in_features, out_features)
        self.w_hat = parameter(out_features, in_features, device, dtype)
        self.m_hat = parameter(out_features, in_features, device, dtype)
        self.gate_weight = parameter(out_features, in_features, device, dtype)
        self.reset_parameters()

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw both raw weights as in the NAC+ and the gate weight from Glorot's uniform distribution."""
        reset_nac_(self, generator)
        nn.init.xavier_uniform_(self.gate_weight, generator=generator)

    def penalties(self) -> dict[str, Tensor]:
        """`weight`: mean distance of the effective weight to -1, 0, 1."""
        return {"weight": distance_to_integers(self.effective_weights()["weight"]).mean()}

    def express_(self, operation: str, operands: tuple[int, ...]) -> None:
        additive = operation in COEFFICIENTS
        solve_nac_(self, operands, COEFFICIENTS[operation] if additive else EXPONENTS[operation], self.log_base)
        _set_input_gate_(self.gate_weight, operands, additive)


class NALU(_SharedNALU):
    r"""Neural Arithmetic Logic Unit: a gate chooses between a NAC+ and a NAC-mul that share one weight.

    .. math:: y = g \odot a + (1 - g) \odot m, \quad a = W x, \quad m = \exp(W \ln(|x| + 10^{-7})), \quad g = \sigma(G x),
              \quad W = \tanh(\hat W) \odot \sigma(\hat M)

    Exact: add, sub, mul, div, reciprocal, sqrt, identity, for positive inputs (the gate sees the inputs and the product
    loses signs). The papers train it without a penalty; `penalty` is the mean distance of W to -1, 0, 1.

    Shapes: x (..., in_features) -> (..., out_features); `w_hat`, `m_hat`, `gate_weight` (out_features, in_features).

    Reference: Trask et al., Neural Arithmetic Logic Units, NeurIPS 2018; no bias in the gate, as in the runs of Madsen and
    Johansen and of Mistry.
    """

    def effective_weights(self) -> dict[str, Tensor]:
        """`weight` of both paths and `gate_weight`."""
        return {"weight": nac_weight(self.w_hat, self.m_hat), "gate_weight": self.gate_weight.clone()}

    def forward(self, x: Tensor) -> Tensor:
        """(..., in_features) -> (..., out_features)."""
        self.check_input(x)
        weight = nac_weight(self.w_hat, self.m_hat)
        return mix(F.linear(x, self.gate_weight).sigmoid(), F.linear(x, weight), log_product(x, weight))


class GNALU(_SharedNALU):
    r"""Golden-ratio NALU (G-NALU): every exponential has the golden ratio as its base.

    .. math:: y = g \odot a + (1 - g) \odot m, \quad a = W x, \quad m = \varphi^{W \ln(|x| + 10^{-7}) / \ln\varphi}, \quad
              g = \sigma_\varphi(G x), \quad W = \tanh_\varphi(\hat W) \odot \sigma_\varphi(\hat M)

    Exact: as the `NALU`. The product path equals that of the NALU; weights and gate saturate more slowly. The thesis speaks
    of the weight alone; the published run replaced the sigmoid of the gate too, and so does this layer. Initial values of
    the NALU (base e), as published.

    Shapes: x (..., in_features) -> (..., out_features); `w_hat`, `m_hat`, `gate_weight` (out_features, in_features).

    Reference: Rana et al., Exploring Numerical Calculations with CalcNet, ICTAI 2019; Mistry, thesis 2023, chapter 2.
    """

    log_base = LOG_GOLDEN_RATIO

    def effective_weights(self) -> dict[str, Tensor]:
        """`weight` of both paths and `gate_weight` (in units of a base-e sigmoid)."""
        return {
            "weight": golden_tanh(self.w_hat) * golden_sigmoid(self.m_hat),
            "gate_weight": self.gate_weight * LOG_GOLDEN_RATIO,
        }

    def forward(self, x: Tensor) -> Tensor:
        """(..., in_features) -> (..., out_features)."""
        self.check_input(x)
        weight = golden_tanh(self.w_hat) * golden_sigmoid(self.m_hat)
        return mix(golden_sigmoid(F.linear(x, self.gate_weight)), F.linear(x, weight), log_product(x, weight))


class _TwoPaths(Unit):
    """An additive and a multiplicative unit side by side; the outputs are mixed by a gate."""

    counted = ("add_weight", "mul_weight")

    def __init__(self, in_features: int, out_features: int, add: Unit, mul: Unit) -> None:
        super().__init__(in_features, out_features)
        self.add = add
        self.mul = mul

    def effective_weights(self) -> dict[str, Tensor]:
        """`add_weight` and `mul_weight` of the two paths."""
        return {"add_weight": self.add.effective_weights()["weight"], "mul_weight": self.mul.effective_weights()["weight"]}

    def penalties(self) -> dict[str, Tensor]:
        """`weight`: the penalties of both paths, added."""
        return {"weight": self.add.penalty() + self.mul.penalty()}

    @torch.no_grad()
    def snap_(self) -> None:
        """Set the weights of both paths, and a gate of its own, to the nearest discrete values."""
        self.add.snap_()
        self.mul.snap_()
        if "gate" in self.legal_values:
            self.set_weight_("gate", self.effective_weights()["gate"].round())

    def project_(self) -> None:
        """Clip both paths to their legal boxes."""
        self.add.project_()
        self.mul.project_()

    def _solve_paths(self, operation: str, operands: tuple[int, ...]) -> bool:
        """Give the path that can the operation and the other the plain first operand; say whether it is the additive one."""
        additive = operation in self.add.operations
        (self.add if additive else self.mul).express_(operation, operands)
        (self.mul if additive else self.add).express_("identity", operands[:1])
        return additive


class _InputGated(_TwoPaths):
    """Two paths mixed by ``g = sigmoid(G x)``."""

    domain = "positive"

    def __init__(self, in_features: int, out_features: int, add: Unit, mul: Unit, gate_weight: nn.Parameter) -> None:
        super().__init__(in_features, out_features, add, mul)
        self.gate_weight = gate_weight
        nn.init.xavier_uniform_(self.gate_weight)

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw both paths anew and the gate weight from Glorot's uniform distribution."""
        self.add.reset_parameters(generator)
        self.mul.reset_parameters(generator)
        nn.init.xavier_uniform_(self.gate_weight, generator=generator)

    def effective_weights(self) -> dict[str, Tensor]:
        """`add_weight`, `mul_weight` and `gate_weight`."""
        return {**super().effective_weights(), "gate_weight": self.gate_weight.clone()}

    def express_(self, operation: str, operands: tuple[int, ...]) -> None:
        _set_input_gate_(self.gate_weight, operands, self._solve_paths(operation, operands))

    def forward(self, x: Tensor) -> Tensor:
        """(..., in_features) -> (..., out_features)."""
        self.check_input(x)
        return mix(F.linear(x, self.gate_weight).sigmoid(), self.add(x), self.mul(x))


class NALUSeparate(_InputGated):
    r"""NALU whose two paths have weights of their own.

    .. math:: y = g \odot W^{a} x + (1 - g) \odot \exp(W^{m} \ln(|x| + 10^{-7})), \quad g = \sigma(G x)

    Exact: as the `NALU`. `penalty` is the sum of those of a `NACAdd` and a `NACMul`.

    Shapes: x (..., in_features) -> (..., out_features); `add` a `NACAdd`, `mul` a `NACMul`, `gate_weight` (out_features,
    in_features).

    Reference: Madsen and Johansen, Neural Arithmetic Units, ICLR 2020, appendix C.5.
    """

    operations = ("add", "sub", "mul", "div", "reciprocal", "sqrt", "identity")
    legal_values = {"add_weight": (-1, 0, 1), "mul_weight": (-1, 0, 1)}

    def __init__(
        self, in_features: int, out_features: int, *, device: torch.device | None = None, dtype: torch.dtype | None = None
    ) -> None:
        super().__init__(
            in_features,
            out_features,
            NACAdd(in_features, out_features, device=device, dtype=dtype),
            NACMul(in_features, out_features, device=device, dtype=dtype),
            parameter(out_features, in_features, device, dtype),
        )


class GatedNAUNMU(_InputGated):
    r"""A NAU and an NMU mixed by the gate of the NALU.

    .. math:: y = g \odot \mathrm{NAU}(x) + (1 - g) \odot \mathrm{NMU}(x), \qquad g = \sigma(G x)

    Exact: add, sub, mul, identity, for positive inputs (the gate sees the inputs). `penalty` is the sum of those of the two
    paths, as published.

    Shapes: x (..., in_features) -> (..., out_features); `add` a `NAU`, `mul` an `NMU`, `gate_weight` (out_features,
    in_features).

    Reference: Madsen and Johansen, Neural Arithmetic Units, ICLR 2020, appendix C.5.
    """

    operations = ("add", "sub", "mul", "identity")
    legal_values = {"add_weight": (-1, 0, 1), "mul_weight": (0, 1)}

    def __init__(
        self, in_features: int, out_features: int, *, device: torch.device | None = None, dtype: torch.dtype | None = None
    ) -> None:
        super().__init__(
            in_features,
            out_features,
            NAU(in_features, out_features, device=device, dtype=dtype),
            NMU(in_features, out_features, device=device, dtype=dtype),
            parameter(out_features, in_features, device, dtype),
        )


class iNALU(_TwoPaths):  # noqa: N801
    r"""Improved NALU: separate weights, signs kept, and a gate that does not see the input.

    .. math:: y = g \odot \mathrm{iNAC}(x) + (1 - g) \odot \mathrm{iMNAC}(x), \qquad g = \sigma(\hat g)

    Exact: add, sub, mul, div, reciprocal, identity for inputs that are not zero, sqrt for positive ones, while products stay
    below exp(20). `penalty` is the mean shortfall of every raw parameter, the gate's included, from 20 in magnitude; the
    published runs count it with weight 0.05, once the error is small. `sparsity_error` is the mean of those of the two
    paths, also where one is gated off, as published.

    Shapes: x (..., in_features) -> (..., out_features); `add` an `iNAC`, `mul` an `iMNAC`, `gate_hat` (out_features).

    Reference: Schlör et al., iNALU: Improved Neural Arithmetic Logic Unit, Frontiers in AI 2020; initial values of the
    published benchmark (see `iNAC`), gate N(0, 0.2).
    """

    operations = ("add", "sub", "mul", "div", "reciprocal", "sqrt", "identity")
    domain = "nonzero"
    legal_values = {"add_weight": (-1, 0, 1), "mul_weight": (-1, 0, 1), "gate": (0, 1)}

    def __init__(
        self, in_features: int, out_features: int, *, device: torch.device | None = None, dtype: torch.dtype | None = None
    ) -> None:
        super().__init__(
            in_features,
            out_features,
            iNAC(in_features, out_features, device=device, dtype=dtype),
            iMNAC(in_features, out_features, device=device, dtype=dtype),
        )
        self.gate_hat = parameter(out_features, None, device, dtype)
        self.reset_parameters()

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw both paths anew and the raw gate from N(0, 0.2)."""
        self.add.reset_parameters(generator)
        self.mul.reset_parameters(generator)
        nn.init.normal_(self.gate_hat, 0.0, 0.2, generator=generator)

    def effective_weights(self) -> dict[str, Tensor]:
        """`add_weight`, `mul_weight` and `gate`."""
        return {**super().effective_weights(), "gate": self.gate_hat.sigmoid()}

    def penalties(self) -> dict[str, Tensor]:
        """`weight`: shortfall of all raw weights; `gate`: shortfall of the raw gate."""
        return {**super().penalties(), "gate": saturation_shortfall(self.gate_hat)}

    @torch.no_grad()
    def sparsity_error(self) -> Tensor:
        """Mean of the sparsity errors of the two paths, as in the published benchmark."""
        return (self.add.sparsity_error() + self.mul.sparsity_error()) / 2

    def express_(self, operation: str, operands: tuple[int, ...]) -> None:
        self.gate_hat.fill_(SATURATED if self._solve_paths(operation, operands) else -SATURATED)

    def forward(self, x: Tensor) -> Tensor:
        """(..., in_features) -> (..., out_features)."""
        self.check_input(x)
        return mix(self.gate_hat.sigmoid(), self.add(x), self.mul(x))
