"""Every module of the papers as a PyTorch layer, with its formula as a pure function beside it."""

from nalm.layers.additive import NAU, NACAdd, iNAC, nac_add, nau
from nalm.layers.base import ARITY, Unit, penalty, project_, select_all_, snap_, sparsity_error, units
from nalm.layers.baselines import Linear, ProductFC, Quadratic, ReLU6MLP, ReLUMLP, quadratic
from nalm.layers.choice import SumOrProduct
from nalm.layers.division import NMRU, NRU, NMRUGated, NMRUNoSign, NRUSepSign, nmru, nru, nru_sep_sign
from nalm.layers.gated import GNALU, NALU, GatedNAUNMU, NALUSeparate, iNALU
from nalm.layers.logic import NLRL, NSR, conjunction, disjunction, nsr
from nalm.layers.multiplicative import (
    NMU,
    NACMul,
    NACMulNMU,
    NACMulSigmoid,
    iMNAC,
    imnac,
    log_product,
    nmu,
    sNMU,
    snmu,
    sNMUBatch,
    stgNMU,
)
from nalm.layers.power import NPU, NaiveNPU, RealNPU, npu, real_npu
from nalm.layers.products import affine_product, pairwise_product, power_product
from nalm.layers.routing import FrozenSelector, Gated, RecurrentSelector
from nalm.layers.stack import Stack

__all__ = [
    "ARITY",
    "GNALU",
    "NALU",
    "NAU",
    "NLRL",
    "NMRU",
    "NMU",
    "NPU",
    "NRU",
    "NSR",
    "FrozenSelector",
    "Gated",
    "GatedNAUNMU",
    "Linear",
    "NACAdd",
    "NACMul",
    "NACMulNMU",
    "NACMulSigmoid",
    "NALUSeparate",
    "NMRUGated",
    "NMRUNoSign",
    "NRUSepSign",
    "NaiveNPU",
    "ProductFC",
    "Quadratic",
    "ReLU6MLP",
    "ReLUMLP",
    "RealNPU",
    "RecurrentSelector",
    "Stack",
    "SumOrProduct",
    "Unit",
    "affine_product",
    "conjunction",
    "disjunction",
    "iMNAC",
    "iNAC",
    "iNALU",
    "imnac",
    "log_product",
    "nac_add",
    "nau",
    "nmru",
    "nmu",
    "npu",
    "nru",
    "nru_sep_sign",
    "nsr",
    "pairwise_product",
    "penalty",
    "power_product",
    "project_",
    "quadratic",
    "real_npu",
    "sNMU",
    "sNMUBatch",
    "select_all_",
    "snap_",
    "snmu",
    "sparsity_error",
    "stgNMU",
    "units",
]
