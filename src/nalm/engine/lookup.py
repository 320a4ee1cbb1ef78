"""The kernel of a layer or network: which one computes it, with which options."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from nalm.engine import kernels
from nalm.engine.programs import program_of

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["KERNEL_OF", "kernel_of"]

KERNEL_OF: dict[str, Callable[[Any], Any]] = {
    "NACAdd": lambda layer: kernels.NACAdd(),
    "NACMul": lambda layer: kernels.NACMul(0),
    "NACMulSigmoid": lambda layer: kernels.NACMul(1),
    "NACMulNMU": lambda layer: kernels.NACMul(2),
    "Linear": lambda layer: kernels.Linear(int(layer.bias is not None), layer.out_features),
    "NALU": lambda layer: kernels.NALU(1.0),
    "GNALU": lambda layer: kernels.NALU(kernels.LOG_GOLDEN_RATIO),
    "iNALU": lambda layer: kernels.INALU(),
    "iNAC": lambda layer: kernels.INAC(),
    "iMNAC": lambda layer: kernels.IMNAC(),
    "Quadratic": lambda layer: kernels.Quadratic(layer.out_features),
    "NAU": lambda layer: kernels.NAU(),
    "NMU": lambda layer: kernels.NMU(),
    "sNMU": lambda layer: kernels.SNMU(*layer.noise_range),
    "sNMUBatch": lambda layer: kernels.SNMUBatch(),
    "stgNMU": lambda layer: kernels.StgNMU(layer.sigma),
    "NRU": lambda layer: kernels.NRU(0, layer.tanh_scale),
    "NRUSepSign": lambda layer: kernels.NRU(1, layer.tanh_scale),
    "NMRU": lambda layer: kernels.NMRU(1, 0),
    "NMRUNoSign": lambda layer: kernels.NMRU(0, 0),
    "NMRUGated": lambda layer: kernels.NMRU(1, 1),
    "NPU": lambda layer: _npu(layer, complex_exponents=True),
    "RealNPU": lambda layer: _npu(layer, complex_exponents=False),
    "NaiveNPU": lambda layer: kernels.NPU(complex=1, naive=1),
    "NALUSeparate": lambda layer: kernels.InputGated(kernels.NACAdd(), kernels.NACMul(0), 2, 2, 0),
    "GatedNAUNMU": lambda layer: kernels.InputGated(kernels.NAU(), kernels.NMU(), 1, 1, 0),
    "SumOrProduct": lambda layer: kernels.Either(kernels.NAU(), kernels.NPU(naive=1, bounded=1, epsilon=layer.epsilon)),
    "NLRL": lambda layer: kernels.NLRL(layer.in_features, int(layer.disjunctions)),
    "NSR": lambda layer: _nsr(layer),
    "Stack": lambda layer: _stack(layer),
    "Gated": program_of,
    "RecurrentSelector": program_of,
    "FrozenSelector": program_of,
    "ReLUMLP": lambda layer: _perceptron(layer, math.inf),
    "ReLU6MLP": lambda layer: _perceptron(layer, 6.0),
}
"""How to make a kernel's options from a layer, by the name of the layer's class."""


def _npu(layer: Any, complex_exponents: bool) -> Any:
    return kernels.NPU(
        complex=int(complex_exponents),
        bounded=int(layer.bounded),
        clip_gate=int(layer.clip_gate),
        skip_zero_weight=int(layer.skip_zero_weight),
        bounded_imaginary=int(getattr(layer, "bounded_imaginary", False)),
        epsilon=layer.epsilon,
    )


def _nsr(layer: Any) -> Any:
    if layer.redundancy > kernels.MOST_PATHS:
        raise ValueError(
            f"the fused engine has NSRs with a redundancy of at most {kernels.MOST_PATHS}, not {layer.redundancy}; "
            "use the torch engine"
        )
    return kernels.NSR(layer.redundancy, layer.scale)


NOT_FIRST = ("iNALU", "NPU", "RealNPU", "NaiveNPU", "NMRUGated", "SumOrProduct", "Quadratic", "NSR", "Stack", "Gated")
"""Layers that cannot be the first of the kernel for two: not all that they do acts on each element of a parameter alone."""


def _stack(stack: Any) -> Any:
    names = [type(layer).__name__ for layer in stack]
    if len(names) != 2 or names[0] in NOT_FIRST or names[1] in ("Stack", "Gated"):
        return program_of(stack)
    first, second = stack
    return _two_layers(first, kernel_of(first), kernel_of(second))


def _perceptron(layer: Any, cap: float) -> Any:
    if len(layer.linears) != 2:
        return program_of(layer)
    first, second = layer.linears
    return _two_layers(first, kernels.Rectified(cap, 1, first.out_features), kernel_of(second))


def _two_layers(first: Any, first_kernel: Any, second_kernel: Any) -> Any:
    start, columns = 0, []
    for p in first.parameters():
        columns.append(start + np.arange(p.numel()).reshape(first.out_features, -1))
        start += p.numel()
    rows = kernels.scratch(first_kernel, first.in_features)[0]
    return kernels.Stack(first_kernel, second_kernel, np.concatenate(columns, axis=1), start, rows)


def kernel_of(layer: Any) -> Any:
    """The kernel that computes a layer or a network; ValueError where there is none."""
    name = type(layer).__name__
    if name not in KERNEL_OF:
        raise ValueError(f"the fused engine has no kernel for {name}; use the torch engine")
    return KERNEL_OF[name](layer)
