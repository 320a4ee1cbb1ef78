"""Forward and backward passes of the built-in modules with one output, hand-derived, for the fused engine.

A kernel is a named tuple of the module's options; its type selects, at compile time, the functions registered for it below.
All functions work on plain arrays in the precision of the parameters: `p` the parameters, flattened in the order of
`module.parameters()`; `x` (inputs, rows) a batch with inputs as rows, so that every inner loop runs over contiguous samples;
`t` scratch over samples and `w` scratch over weights. `forward(k, p, x, noise, training, t, w, y)` writes y and keeps in t and
w what backward needs; `backward(k, p, x, noise, training, t, w, y, dy, g)` adds to g, and may use dy up. Inner
loops are functions of their own: LLVM then vectorises them before it inlines them. The torch module is the definition; the
tests compare values and gradients with it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from numba.extending import overload

from nalm.engine.kernels.additive import (
    NAU,
    NACAdd,
    nac_add_backward,
    nac_add_forward,
    nac_penalise,
    nac_sparsity,
    nau_backward,
    nau_forward,
    nau_penalise,
    nau_project,
    nau_sparsity,
)
from nalm.engine.kernels.division import (
    NMRU,
    NRU,
    nmru_backward,
    nmru_forward,
    nmru_penalise,
    nmru_sparsity,
    nru_backward,
    nru_forward,
)
from nalm.engine.kernels.gated import (
    INALU,
    LOG_GOLDEN_RATIO,
    NALU,
    inalu_backward,
    inalu_forward,
    inalu_penalise,
    inalu_sparsity,
    nalu_backward,
    nalu_forward,
    nalu_penalise,
    nalu_sparsity,
)
from nalm.engine.kernels.loops import SUMS, free_project
from nalm.engine.kernels.multiplicative import (
    NMU,
    SNMU,
    NACMul,
    SNMUBatch,
    StgNMU,
    nac_mul_backward,
    nac_mul_forward,
    nmu_backward,
    nmu_forward,
    nmu_penalise,
    nmu_project,
    nmu_sparsity,
    snmu_backward,
    snmu_batch_forward,
    snmu_forward,
    stgnmu_backward,
    stgnmu_forward,
    stgnmu_penalise,
)
from nalm.engine.kernels.power import NPU, npu_backward, npu_forward, npu_penalise, npu_project, npu_sparsity

__all__ = [
    "INALU",
    "KERNELS",
    "LOG_GOLDEN_RATIO",
    "NALU",
    "NAU",
    "NMRU",
    "NMU",
    "NPU",
    "NRU",
    "SNMU",
    "SUMS",
    "Kernel",
    "NACAdd",
    "NACMul",
    "SNMUBatch",
    "StgNMU",
    "backward",
    "forward",
    "penalise",
    "project",
    "sparsity",
]


class Kernel(NamedTuple):
    """The functions of one kernel."""

    forward: Any
    backward: Any
    penalise: Any
    project: Any
    sparsity: Any


KERNELS: dict[type, Kernel] = {
    NAU: Kernel(nau_forward, nau_backward, nau_penalise, nau_project, nau_sparsity),
    NACAdd: Kernel(nac_add_forward, nac_add_backward, nac_penalise, free_project, nac_sparsity),
    NACMul: Kernel(nac_mul_forward, nac_mul_backward, nac_penalise, free_project, nac_sparsity),
    NALU: Kernel(nalu_forward, nalu_backward, nalu_penalise, free_project, nalu_sparsity),
    INALU: Kernel(inalu_forward, inalu_backward, inalu_penalise, free_project, inalu_sparsity),
    NMU: Kernel(nmu_forward, nmu_backward, nmu_penalise, nmu_project, nmu_sparsity),
    SNMU: Kernel(snmu_forward, snmu_backward, nmu_penalise, nmu_project, nmu_sparsity),
    SNMUBatch: Kernel(snmu_batch_forward, snmu_backward, nmu_penalise, nmu_project, nmu_sparsity),
    StgNMU: Kernel(stgnmu_forward, stgnmu_backward, stgnmu_penalise, free_project, nmu_sparsity),
    NRU: Kernel(nru_forward, nru_backward, nau_penalise, nau_project, nau_sparsity),
    NMRU: Kernel(nmru_forward, nmru_backward, nmru_penalise, nmu_project, nmru_sparsity),
    NPU: Kernel(npu_forward, npu_backward, npu_penalise, npu_project, npu_sparsity),
}


def forward(k: Any, p: Any, x: Any, noise: Any, training: Any, t: Any, w: Any, y: Any) -> None:
    """Write the outputs of a batch to y. To be called from compiled code, as are the four functions below."""


def backward(k: Any, p: Any, x: Any, noise: Any, training: Any, t: Any, w: Any, y: Any, dy: Any, g: Any) -> None:
    """Add the gradient of the parameters to g, given that of the outputs, which is used up."""


def penalise(k: Any, p: Any, strength: Any, gate_strength: Any, g: Any) -> None:
    """Add the gradient of the module's penalty to g."""


def project(k: Any, p: Any) -> None:
    """Clip the parameters to their legal box."""


def sparsity(k: Any, p: Any) -> Any:
    """The sparsity error of the parameters."""


@overload(forward, strict=False)
def _forward(k: Any, p: Any, x: Any, noise: Any, training: Any, t: Any, w: Any, y: Any) -> Any:
    chosen = KERNELS[k.instance_class].forward
    return lambda k, p, x, noise, training, t, w, y: chosen(k, p, x, noise, training, t, w, y)


@overload(backward, strict=False)
def _backward(k: Any, p: Any, x: Any, noise: Any, training: Any, t: Any, w: Any, y: Any, dy: Any, g: Any) -> Any:
    chosen = KERNELS[k.instance_class].backward
    return lambda k, p, x, noise, training, t, w, y, dy, g: chosen(k, p, x, noise, training, t, w, y, dy, g)


@overload(penalise, strict=False)
def _penalise(k: Any, p: Any, strength: Any, gate_strength: Any, g: Any) -> Any:
    chosen = KERNELS[k.instance_class].penalise
    return lambda k, p, strength, gate_strength, g: chosen(k, p, strength, gate_strength, g)


@overload(project, strict=False)
def _project(k: Any, p: Any) -> Any:
    chosen = KERNELS[k.instance_class].project
    return lambda k, p: chosen(k, p)


@overload(sparsity, strict=False)
def _sparsity(k: Any, p: Any) -> Any:
    chosen = KERNELS[k.instance_class].sparsity
    return lambda k, p: chosen(k, p)
