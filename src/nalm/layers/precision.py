"""In which precision layers compute: float32 at least, whatever autocast or half-precision parameters would have them use.

A layer whose weights are exact gives exact sums and products of whole numbers as long as its arithmetic holds them: up to
16,777,216 in float32, but only up to 256 in bfloat16 and 2,048 in float16 (docs/precision.md). So the `forward` of every class
that inherits from `Precise` runs with autocast off, on inputs and parameters of float32 at least, and is rounded once.
"""

from __future__ import annotations

from contextlib import nullcontext
from functools import reduce, wraps
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["HALF", "Precise", "is_half", "precise"]

HALF = frozenset({torch.float16, torch.bfloat16})
"""Precisions in which no layer computes."""


class Precise(nn.Module):
    """A module whose `forward` computes in float32 at least and rounds once, to the precision of its parameters.

    Under autocast the result stays in float32. `forward` must not assign attributes or change buffers: half-precision
    layers run it on a copy.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        """Wrap the `forward` that the class defines or has from a class that is not `Precise`."""
        super().__init_subclass__(**options)
        if cls.forward is not nn.Module.forward and not hasattr(cls.forward, "precise"):
            cls.forward = precise(cls.forward)


def is_half(module: nn.Module) -> bool:
    """Whether a module, or one inside it, has a parameter or buffer in half precision."""
    for p in (*module._parameters.values(), *module._buffers.values()):
        if p is not None and p.dtype in HALF:
            return True
    return any(child is not None and is_half(child) for child in module._modules.values())


def precise(forward: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Wrap a `forward` as `Precise` says; where nothing is in half precision and autocast is off, it is called as it is."""

    @wraps(forward)
    def exactly(self: nn.Module, *given: Any, **named: Any) -> Tensor:
        tensors = [v for v in (*given, *named.values()) if isinstance(v, Tensor) and v.is_floating_point()]
        if not tensors:
            return forward(self, *given, **named)
        x = tensors[0]
        device, low = x.device.type, is_half(self)
        cast = torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)
        if not (cast or low or x.dtype in HALF):
            return forward(self, *given, **named)
        held: list[Tensor] = [*self.parameters()] or [b for b in self.buffers() if b.is_floating_point()]
        own = reduce(torch.promote_types, [p.dtype for p in held] or [torch.float32])
        wide = torch.promote_types(torch.promote_types(own, torch.float32), x.dtype)
        with torch.autocast(device, enabled=False) if cast else nullcontext():
            module = _raised_module(self, wide) if low else self
            y = forward(module, *(_raised(v, wide) for v in given), **{k: _raised(v, wide) for k, v in named.items()})
        return y.to(own) if low and not cast else y

    exactly.precise = True  # type: ignore[attr-defined]
    return exactly


def _raised(value: Any, wide: torch.dtype) -> Any:
    return value.to(wide) if isinstance(value, Tensor) and value.dtype in HALF else value


def _raised_module(module: nn.Module, wide: torch.dtype) -> nn.Module:
    """A shallow copy of a module with its half-precision tensors raised, so that other threads may use the module meanwhile."""
    other = module.__new__(type(module))
    other.__dict__ = {key: _raised(value, wide) for key, value in module.__dict__.items()}
    for held in ("_parameters", "_buffers"):
        other.__dict__[held] = {key: _raised(p, wide) for key, p in module.__dict__[held].items()}
    children = {key: None if child is None else _raised_module(child, wide) for key, child in module._modules.items()}
    other.__dict__["_modules"] = children
    return other
