"""Layers one behind the other."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from torch import Tensor, nn

from nalm.layers.precision import Precise

if TYPE_CHECKING:
    import torch

    from nalm.layers.base import Unit

__all__ = ["Stack"]


class Stack(Precise, nn.Sequential):
    """Layers one behind the other, trained as one; only the last may draw noise.

    >>> from nalm import NAU, NMU
    >>> Stack(NAU(100, 2), NMU(2, 1))
    Stack(
      (0): NAU(in_features=100, out_features=2)
      (1): NMU(in_features=2, out_features=1)
    )
    """

    def __init__(self, *layers: Unit) -> None:
        if not layers:
            raise ValueError("a stack needs at least one layer")
        for before, after in pairwise(layers):
            if before.out_features != after.in_features:
                raise ValueError(f"{before} gives {before.out_features} outputs, but {after} takes {after.in_features} inputs")
            if before.noise:
                raise ValueError(f"only the last layer of a stack may draw noise, not {before}")
        super().__init__(*layers)
        self.in_features, self.out_features = layers[0].in_features, layers[-1].out_features
        self.noise, self.noisy_inputs = layers[-1].noise, layers[-1].in_features

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw new initial values for every layer, from `generator` if given."""
        for layer in self:
            layer.reset_parameters(generator)  # type: ignore[operator]

    def sample_noise(self, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Noise for `forward`, as the last layer draws it."""
        *others, last = self
        for layer in others:
            x = layer(x)
        noise: Tensor = last.sample_noise(x, generator)  # type: ignore[operator]
        return noise

    def forward(self, x: Tensor, noise: Tensor | None = None) -> Tensor:
        """(..., in_features) -> (..., out_features); `noise` is that of the last layer."""
        *others, last = self
        for layer in others:
            x = layer(x)
        result: Tensor = last(x) if noise is None else last(x, noise)
        return result
