"""Networks that choose between layers: by a gate, or step by step with a scratchpad (thesis, chapter 7)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor, nn

from nalm.layers.base import EPS32
from nalm.layers.gated import mix
from nalm.layers.precision import Precise
from nalm.layers.products import affine_product

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nalm.layers.base import Unit

__all__ = ["FrozenSelector", "Gated", "RecurrentSelector", "select", "straight_through"]

TINY = 1e-7
"""Uniform numbers are kept this far from 0 and 1 before their logarithms are taken."""


def straight_through(logits: Tensor, temperature: float) -> Tensor:
    """One for the largest logit (of the last axis) and zero for the others, with the gradient of the softmax."""
    soft = (logits / temperature).softmax(-1)
    hard = (torch.arange(logits.shape[-1], device=logits.device) == logits.argmax(-1, keepdim=True)).to(logits.dtype)
    return hard + (soft - soft.detach())


def select(outputs: Tensor, logits: Tensor, gate: Tensor, temperature: float, noise: Tensor | None = None) -> Tensor:
    """Choose one of several outputs, (..., modules) -> (...), as in algorithm 1 of the thesis.

    Without noise the largest logit wins. With noise, uniform numbers (modules), the largest logit plus Gumbel noise wins
    while ``sigmoid(gate) <= 0.5``. As printed, the choice between both routes is made twice in the gradient: hard, and soft.
    """
    certain = outputs @ straight_through(logits, temperature)
    if noise is None:
        return certain
    gumbel = -torch.log(-torch.log(noise.clamp(TINY, 1 - TINY)))
    drawn = outputs @ straight_through(logits + gumbel, temperature)
    share = gate.sigmoid()
    decided = (share > 0.5).to(outputs.dtype)
    soft = share * certain + (1 - share) * drawn
    hard = decided * certain + (1 - decided) * drawn
    return hard + (soft - soft.detach())


class Gated(Precise):
    r"""Two layers of the same sizes, mixed by a gate that does not see the input.

    .. math:: y = \sigma(\hat g) \odot \mathrm{first}(x) + (1 - \sigma(\hat g)) \odot \mathrm{second}(x)

    The iNALU is the special case of an iNAC and an iMNAC. The raw gate starts from N(0, 0.2), as there.

    Shapes: x (..., in_features) -> (..., out_features); `gate_hat` (out_features).

    Reference: Mistry, thesis 2023, section 7.2.4.

    >>> from nalm import NAU, NMU
    >>> Gated(NAU(4, 5), NMU(4, 5))
    Gated(
      (first): NAU(in_features=4, out_features=5)
      (second): NMU(in_features=4, out_features=5)
    )
    """

    noise: ClassVar[str] = ""

    def __init__(self, first: Unit, second: Unit) -> None:
        super().__init__()
        if (first.in_features, first.out_features) != (second.in_features, second.out_features):
            raise ValueError(f"a gate needs two layers of the same sizes, got {first} and {second}")
        for layer in (first, second):
            if layer.noise:
                raise ValueError(f"a layer behind a gate may not draw noise, as {layer} does")
        self.in_features, self.out_features = first.in_features, first.out_features
        self.first, self.second = first, second
        self.gate_hat = nn.Parameter(torch.empty(self.out_features))
        nn.init.normal_(self.gate_hat, 0.0, 0.2)

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw both layers anew and the raw gate from N(0, 0.2)."""
        self.first.reset_parameters(generator)
        self.second.reset_parameters(generator)
        nn.init.normal_(self.gate_hat, 0.0, 0.2, generator=generator)

    def forward(self, x: Tensor) -> Tensor:
        """(..., in_features) -> (..., out_features)."""
        return mix(self.gate_hat.sigmoid(), self.first(x), self.second(x))


class _Selector(Precise, ABC):
    """Steps that each write one number to a scratchpad, the last of which is the output."""

    noise: ClassVar[str] = "once"

    def __init__(self, in_features: int, modules: int, steps: int, temperature: float, blank: float) -> None:
        super().__init__()
        if in_features < 1 or steps < 1:
            raise ValueError(f"a selector needs at least one input and one step, got {in_features} and {steps}")
        if not temperature > 0:
            raise ValueError(f"temperature must be positive, got {temperature}")
        self.in_features, self.out_features, self.steps = in_features, 1, steps
        self.temperature, self.blank = float(temperature), float(blank)
        self.noisy_inputs = steps * modules
        self.choice = nn.Parameter(torch.zeros(steps, modules))
        self.certainty = nn.Parameter(torch.full((steps,), -1.0))

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Logits zero; sigmoid(-1) = 0.27 of the weight on the route without noise."""
        nn.init.zeros_(self.choice)
        nn.init.constant_(self.certainty, -1.0)

    def sample_noise(self, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Uniform numbers in [0, 1), (1, steps times modules): one draw a forward pass, shared by the batch."""
        return torch.rand(1, self.noisy_inputs, generator=generator, dtype=x.dtype, device=x.device)

    @abstractmethod
    def outputs(self, step: int, pad: Tensor) -> Tensor:
        """What every module makes of inputs and scratchpad, (..., in_features + steps) -> (..., modules)."""

    def forward(self, x: Tensor, noise: Tensor | None = None) -> Tensor:
        """(..., in_features) -> (..., 1); in training `noise`, uniform in [0, 1), replaces the layer's own draw."""
        if x.shape[-1] != self.in_features:
            raise ValueError(
                f"{type(self).__name__} with {self.in_features} inputs takes a tensor of shape (..., {self.in_features}), "
                f"got {tuple(x.shape)}"
            )
        drawn = None
        if self.training:
            drawn = (self.sample_noise(x) if noise is None else noise).reshape(self.choice.shape)
        slots = [torch.full_like(x[..., 0], self.blank)] * self.steps
        for step in range(self.steps):
            pad = torch.cat([x, torch.stack(slots, -1)], -1)
            own = None if drawn is None else drawn[step]
            result = select(self.outputs(step, pad), self.choice[step], self.certainty[step], self.temperature, own)
            slots = [*slots[:step], result, *slots[step + 1 :]]
        return result.unsqueeze(-1)


class RecurrentSelector(_Selector):
    r"""Recurrent input selector with learnable layers.

    Every layer sees the inputs and a scratchpad with a slot a step; at each step one layer is chosen and its output written to
    the slot of that step; the last one is the output of the network. The layers are the same at each step, the choice is not.
    In training a gate of each step decides whether the likeliest layer is taken or one drawn with Gumbel noise; in eval mode it
    is always the likeliest.

    The thesis does not say what empty slots hold (its table 7.6 shows ones), nor the first logits (zero here).

    Args:
        layers: layers with one output, for `in_features` plus `steps` inputs.
        steps: number of steps.
        temperature: of the softmax in the gradient.
        blank: what empty slots hold.

    Shapes: x (..., in_features) -> (..., 1); `choice` (steps, layers), `certainty` (steps).

    Reference: Mistry, thesis 2023, section 7.2.5.
    """

    def __init__(self, layers: Sequence[Unit], *, steps: int = 2, temperature: float = 10.0, blank: float = 1.0) -> None:
        if len(layers) < 2:
            raise ValueError(f"a selector chooses between at least two layers, got {len(layers)}")
        for layer in layers:
            if layer.out_features != 1 or layer.in_features != layers[0].in_features or layer.noise:
                raise ValueError(f"layers must have the same inputs, one output and no noise, got {layer}")
        super().__init__(layers[0].in_features - steps, len(layers), steps, temperature, blank)
        self.layers = nn.ModuleList(layers)

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw every layer anew; logits as in the base class."""
        super().reset_parameters(generator)
        for layer in self.layers:
            layer.reset_parameters(generator)  # type: ignore[operator]

    def outputs(self, step: int, pad: Tensor) -> Tensor:
        """What every layer makes of inputs and scratchpad."""
        return torch.cat([layer(pad) for layer in self.layers], -1)


class FrozenSelector(_Selector):
    r"""Recurrent input selector whose operations are fixed: only the choice of inputs and of operations is learned.

    At each step every input and every slot belongs to one of four operations: the sum of what it has, minus that sum, the
    product, one over the product (zero counts as float32's epsilon there). A straight-through softmax of `mask` over the
    operations says to which. All logits start at zero, those of the slot that the step before has written at one, as published
    (which is the same to a softmax).

    Args:
        in_features: number of inputs.
        steps: number of steps.
        temperature: of the softmax in the gradient of the choice of operations.
        mask_temperature: of the softmax in the gradient of the choice of inputs; not published, 0.1 solved most.
        blank: what empty slots hold.

    Shapes: x (..., in_features) -> (..., 1); `mask` (steps, in_features + steps, 4), `choice` (steps, 4), `certainty` (steps).

    Reference: Mistry, thesis 2023, section 7.2.6.
    """

    def __init__(
        self,
        in_features: int,
        *,
        steps: int = 2,
        temperature: float = 10.0,
        mask_temperature: float = 0.1,
        blank: float = 1.0,
    ) -> None:
        super().__init__(in_features, 4, steps, temperature, blank)
        if not mask_temperature > 0:
            raise ValueError(f"mask_temperature must be positive, got {mask_temperature}")
        self.mask_temperature = float(mask_temperature)
        self.mask = nn.Parameter(torch.empty(steps, in_features + steps, 4))
        self.reset_parameters()

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Logits as published; nothing is random."""
        super().reset_parameters(generator)
        with torch.no_grad():
            self.mask.zero_()
            for step in range(1, self.steps):
                self.mask[step, self.in_features + step - 1] = 1.0

    def outputs(self, step: int, pad: Tensor) -> Tensor:
        """Sum, minus the sum, product and reciprocal of the product of what belongs to each."""
        mask = straight_through(self.mask[step], self.mask_temperature).T
        total = pad @ mask[:2].T
        products = affine_product(pad, mask[2:], 1 - mask[2:])
        below = products[..., 1:]
        return torch.cat([total * total.new_tensor([1.0, -1.0]), products[..., :1], 1 / below.where(below != 0, EPS32)], -1)
