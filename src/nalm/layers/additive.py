"""Layers that add and subtract: NAC+, iNAC, NAU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.nn import functional as F  # noqa: N812

from nalm.layers.base import (
    COEFFICIENTS,
    BoxUnit,
    NACUnit,
    distance_to_integers,
    fill_row_,
    nac_weight,
    reset_inalu_,
    reset_nac_,
    saturation_shortfall,
    solve_nac_,
)

if TYPE_CHECKING:
    import torch
    from torch import Tensor

__all__ = ["NAU", "NACAdd", "iNAC", "nac_add", "nau"]


def nac_add(x: Tensor, w_hat: Tensor, m_hat: Tensor) -> Tensor:
    """Neural Accumulator, (..., in), (out, in), (out, in) -> (..., out): ``y = W x``, ``W = tanh(w_hat) sigmoid(m_hat)``."""
    return F.linear(x, nac_weight(w_hat, m_hat))


def nau(x: Tensor, weight: Tensor) -> Tensor:
    """Neural Addition Unit, (..., in), (out, in) -> (..., out): ``y_o = sum_i clamp(w_oi, -1, 1) x_i``."""
    return F.linear(x, weight.clamp(-1, 1))


class NACAdd(NACUnit):
    r"""Neural Accumulator (NAC+): sums with weights drawn to -1, 0, 1.

    .. math:: y_o = \sum_i W_{oi} x_i, \qquad W = \tanh(\hat W) \odot \sigma(\hat M)

    Exact: add, sub, identity, for all real inputs. Both raw weights start from U(-r, r) with Glorot's variance for W; for
    two inputs and one output r is 9.47, so that W starts close to -1, 0 or 1. The papers train it without a penalty;
    `penalty` is the mean distance of W to -1, 0, 1.

    Shapes: x (..., in_features) -> (..., out_features); `w_hat` and `m_hat` (out_features, in_features).

    Reference: Trask et al., Neural Arithmetic Logic Units, NeurIPS 2018; initial values of Madsen and Johansen,
    Neural Arithmetic Units, ICLR 2020.
    """

    operations = tuple(COEFFICIENTS)

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw both raw weights from U(-r, r), r by `nac_bound`."""
        reset_nac_(self, generator)

    def penalties(self) -> dict[str, Tensor]:
        """`weight`: mean distance of the effective weight to -1, 0, 1."""
        return {"weight": distance_to_integers(nac_weight(self.w_hat, self.m_hat)).mean()}

    def express_(self, operation: str, operands: tuple[int, ...]) -> None:
        solve_nac_(self, operands, COEFFICIENTS[operation])

    def forward(self, x: Tensor) -> Tensor:
        """(..., in_features) -> (..., out_features)."""
        self.check_input(x)
        return nac_add(x, self.w_hat, self.m_hat)


class iNAC(NACUnit):  # noqa: N801
    r"""Additive half of the iNALU.

    .. math:: y_o = \sum_i W_{oi} x_i, \qquad W = \tanh(\hat W) \odot \sigma(\hat M)

    Exact: add, sub, identity, for all real inputs. The formula of the NAC+ with the initial values and the penalty of the
    iNALU: the mean shortfall of the raw weights from 20 in magnitude. The initial values N(0.88, 0.2) and N(0.5, 0.2) made
    the published benchmark numbers; the iNALU paper and the thesis print means 1 and -1.

    Shapes: x (..., in_features) -> (..., out_features); `w_hat` and `m_hat` (out_features, in_features).

    Reference: Schlör et al., iNALU: Improved Neural Arithmetic Logic Unit, Frontiers in AI 2020; on its own in Mistry,
    thesis 2023, chapter 7.
    """

    operations = tuple(COEFFICIENTS)

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw `w_hat` from N(0.88, 0.2) and `m_hat` from N(0.5, 0.2)."""
        reset_inalu_(self, generator)

    def penalties(self) -> dict[str, Tensor]:
        """`weight`: shortfall of both raw weights from saturation."""
        return {"weight": saturation_shortfall(self.w_hat) + saturation_shortfall(self.m_hat)}

    def express_(self, operation: str, operands: tuple[int, ...]) -> None:
        solve_nac_(self, operands, COEFFICIENTS[operation])

    def forward(self, x: Tensor) -> Tensor:
        """(..., in_features) -> (..., out_features)."""
        self.check_input(x)
        return nac_add(x, self.w_hat, self.m_hat)


class NAU(BoxUnit):
    r"""Neural Addition Unit: sums with linear weights in [-1, 1].

    .. math:: y_o = \sum_i \mathrm{clamp}(W_{oi}, -1, 1) \, x_i

    Exact: add, sub, identity, for all real inputs. The clamp acts in the forward pass and, through `project_`, on the
    parameter after each step. `penalty` is the mean of min(|w|, |1 - |w||) over the raw parameter, as in the authors' code.

    Shapes: x (..., in_features) -> (..., out_features); `weight` (out_features, in_features).

    Reference: Madsen and Johansen, Neural Arithmetic Units, ICLR 2020.
    """

    operations = tuple(COEFFICIENTS)
    legal_values = {"weight": (-1, 0, 1)}
    low = -1.0

    def express_(self, operation: str, operands: tuple[int, ...]) -> None:
        fill_row_(self.weight, operands, COEFFICIENTS[operation])

    def forward(self, x: Tensor) -> Tensor:
        """(..., in_features) -> (..., out_features)."""
        self.check_input(x)
        return nau(x, self.weight)
