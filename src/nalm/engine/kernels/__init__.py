"""Forward and backward passes of the built-in modules with one output, hand-derived, for the fused engine.

A kernel is a named tuple of the module's options; its type selects, at compile time, the functions registered for it below.
All functions work on plain arrays in the precision of the parameters: `p` the parameters, flattened in the order of
`module.parameters()`; `x` (inputs, rows) a batch with inputs as rows, so that every inner loop runs over contiguous samples;
`t` scratch over samples and `w` scratch over weights. `forward(k, p, x, noise, training, t, w, y)` writes y and keeps in t and
w what backward needs; `pull(k, p, x, noise, training, t, w, y, dy, gx)` writes the gradient of the inputs, for a layer in
front; `backward(k, p, x, noise, training, t, w, y, dy, g)` adds to g, and may use dy up. Inner loops are functions of their
own: LLVM then vectorises them before it inlines them. The torch module is the definition; the tests compare values and
gradients with it.
"""

from __future__ import annotations

from nalm.engine.kernels import additive, division, gated, logic, loops, multiplicative, power, program, stacks
from nalm.engine.kernels.additive import INAC, NAU, Linear, NACAdd, Quadratic, Rectified
from nalm.engine.kernels.dispatch import KERNELS, Kernel, backward, forward, penalise, project, pull, sparsity
from nalm.engine.kernels.division import NMRU, NRU
from nalm.engine.kernels.gated import IMNAC, INALU, LOG_GOLDEN_RATIO, NALU
from nalm.engine.kernels.logic import MOST_PATHS, NLRL, NSR
from nalm.engine.kernels.loops import SUMS
from nalm.engine.kernels.multiplicative import NMU, SNMU, NACMul, SNMUBatch, StgNMU
from nalm.engine.kernels.power import NPU
from nalm.engine.kernels.program import Program
from nalm.engine.kernels.stacks import Either, InputGated, Stack, scratch

__all__ = [
    "IMNAC",
    "INAC",
    "INALU",
    "KERNELS",
    "LOG_GOLDEN_RATIO",
    "MOST_PATHS",
    "NALU",
    "NAU",
    "NLRL",
    "NMRU",
    "NMU",
    "NPU",
    "NRU",
    "NSR",
    "SNMU",
    "SUMS",
    "Either",
    "InputGated",
    "Kernel",
    "Linear",
    "NACAdd",
    "NACMul",
    "Program",
    "Quadratic",
    "Rectified",
    "SNMUBatch",
    "Stack",
    "StgNMU",
    "backward",
    "forward",
    "penalise",
    "project",
    "pull",
    "scratch",
    "sparsity",
]


def _table() -> dict[type, Kernel]:
    add, mul, gate, div, both, free = additive, multiplicative, gated, division, stacks, loops.free_project
    box = (mul.nmu_penalise, mul.nmu_project, mul.nmu_sparsity)
    sums = (add.nau_penalise, add.nau_project, add.nau_sparsity)
    nac = (add.nac_penalise, free, add.nac_sparsity)
    plain = (add.free_penalise, free, add.linear_sparsity)
    nac_mul = (mul.nac_mul_penalise, mul.nac_mul_project, mul.nac_mul_sparsity)
    stg = (mul.stgnmu_penalise, free, mul.nmu_sparsity)
    nmru = (div.nmru_penalise, mul.nmu_project, div.nmru_sparsity)
    npu = (power.npu_penalise, power.npu_project, power.npu_sparsity)
    inalu = (gate.inalu_penalise, free, gate.inalu_sparsity)
    nalu = (gate.nalu_penalise, free, gate.nalu_sparsity)
    stack = (both.stack_penalise, both.stack_project, both.stack_sparsity)
    either = (both.either_penalise, both.either_project, both.either_sparsity)
    quadratic = (add.free_penalise, free, add.quadratic_sparsity)
    rule = (logic.nlrl_penalise, logic.nlrl_project, logic.nlrl_sparsity)
    status = (logic.nsr_penalise, free, logic.nsr_sparsity)
    network = (program.program_penalise, program.program_project, program.program_sparsity)
    mixed = (both.gated_penalise, both.gated_project, both.gated_sparsity)
    return {
        NAU: Kernel(add.nau_forward, add.nau_backward, add.sum_pull, *sums, rows=(0, 0)),
        NACAdd: Kernel(add.nac_add_forward, add.nac_add_backward, add.sum_pull, *nac, rows=(0, 0)),
        Linear: Kernel(add.linear_forward, add.linear_backward, add.sum_pull, *plain, rows=(0, 0)),
        Rectified: Kernel(add.rectified_forward, add.rectified_backward, add.rectified_pull, *plain, rows=(0, 0)),
        INAC: Kernel(add.nac_add_forward, add.nac_add_backward, add.sum_pull, add.inac_penalise, *nac[1:], rows=(0, 0)),
        Quadratic: Kernel(add.quadratic_forward, add.quadratic_backward, add.quadratic_pull, *quadratic, rows=(0, 4)),
        NACMul: Kernel(mul.nac_mul_forward, mul.nac_mul_backward, mul.nac_mul_pull, *nac_mul, rows=(1, 0)),
        NALU: Kernel(gate.nalu_forward, gate.nalu_backward, gate.nalu_pull, *nalu, rows=(1, 3)),
        INALU: Kernel(gate.inalu_forward, gate.inalu_backward, gate.inalu_pull, *inalu),
        IMNAC: Kernel(gate.imnac_forward, gate.imnac_backward, gate.imnac_pull, add.inac_penalise, *nac[1:], rows=(3, 3)),
        NMU: Kernel(mul.nmu_forward, mul.nmu_backward, mul.nmu_pull, *box, rows=(1, 0)),
        SNMU: Kernel(mul.snmu_forward, mul.snmu_backward, mul.snmu_pull, *box),
        SNMUBatch: Kernel(mul.snmu_batch_forward, mul.snmu_backward, mul.snmu_pull, *box),
        StgNMU: Kernel(mul.stgnmu_forward, mul.stgnmu_backward, mul.stgnmu_pull, *stg),
        NRU: Kernel(div.nru_forward, div.nru_backward, div.nru_pull, *sums),
        NMRU: Kernel(div.nmru_forward, div.nmru_backward, div.nmru_pull, *nmru),
        NPU: Kernel(power.npu_forward, power.npu_backward, power.npu_pull, *npu),
        NLRL: Kernel(logic.nlrl_forward, logic.nlrl_backward, logic.nlrl_pull, *rule, rows=(3, 6)),
        NSR: Kernel(logic.nsr_forward, logic.nsr_backward, logic.nsr_pull, *status, rows=(0, MOST_PATHS + 2)),
        Stack: Kernel(both.stack_forward, both.stack_backward, both.no_pull, *stack),
        Program: Kernel(program.program_forward, program.program_backward, both.no_pull, *network),
        Either: Kernel(both.either_forward, both.either_backward, both.either_pull, *either),
        InputGated: Kernel(both.gated_forward, both.gated_backward, both.gated_pull, *mixed),
    }


KERNELS.update(_table())
