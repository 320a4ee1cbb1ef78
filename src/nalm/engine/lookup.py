"""The kernel of a layer: which one computes it, with which options."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from nalm.engine import kernels

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
    "Stack": lambda layer: _stack(*layer),
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


NOT_FIRST = ("iNALU", "NPU", "RealNPU", "NaiveNPU", "NMRUGated", "SumOrProduct", "Stack")
"""Layers that cannot be the first of a fused stack: not all that they do acts on each element of a parameter alone."""


def _stack(*layers: Any) -> Any:
    if len(layers) != 2 or type(layers[0]).__name__ in NOT_FIRST:
        raise ValueError(f"the fused engine has no kernel for {', '.join(type(layer).__name__ for layer in layers)} in a stack")
    first, second = layers
    return _two_layers(first, kernel_of(first), kernel_of(second))


def _perceptron(layer: Any, cap: float) -> Any:
    if len(layer.linears) != 2:
        raise ValueError(f"the fused engine has no kernel for {len(layer.hidden)} hidden layers; use the torch engine")
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
    """The kernel that computes a layer, or a stack of two; ValueError where there is none."""
    name = type(layer).__name__
    if name not in KERNEL_OF:
        raise ValueError(f"the fused engine has no kernel for {name}; use the torch engine")
    return KERNEL_OF[name](layer)
