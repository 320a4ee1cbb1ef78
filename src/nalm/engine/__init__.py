"""Engines that train many runs of a cell: `fused` (Numba kernels) and `reference` (any PyTorch module, stacked)."""
