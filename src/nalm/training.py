"""Small objects that a plain PyTorch loop uses: losses, schedules, clipping, gradient noise, re-initialisation."""

from __future__ import annotations

import math
from array import array
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "MAPE",
    "MSE",
    "PCC",
    "ClipNorm",
    "ClipValue",
    "GradientNoise",
    "LinearRamp",
    "PCCThenMSE",
    "Reinitialisation",
    "StepwiseGrowth",
    "parameter_norm",
]

EPS32 = torch.finfo(torch.float32).eps


@dataclass(frozen=True)
class MSE:
    """Mean squared error."""

    def __call__(self, prediction: Tensor, target: Tensor, step: int = 0) -> Tensor:
        """Scalar loss; `step` is not used."""
        return (prediction - target).square().mean()


@dataclass(frozen=True)
class MAPE:
    """Mean absolute percentage error as a fraction: ``mean |(target - prediction) / target|``.

    The magnitude is taken of the whole ratio, as in the authors' code, so that negative targets count as positive ones do.
    """

    def __call__(self, prediction: Tensor, target: Tensor, step: int = 0) -> Tensor:
        """Scalar loss; `step` is not used."""
        return ((target - prediction) / target).abs().mean()


@dataclass(frozen=True)
class PCC:
    """One minus Pearson's correlation coefficient of prediction and target.

    Deviations are divided by ``sqrt(max(variance, eps32)) + eps32``: a constant batch gives one, not NaN.
    """

    def __call__(self, prediction: Tensor, target: Tensor, step: int = 0) -> Tensor:
        """Scalar loss; `step` is not used."""
        return 1 - (_standardise(prediction) * _standardise(target)).mean()


def _standardise(values: Tensor) -> Tensor:
    centred = values - values.mean()
    return centred / (centred.square().mean().clamp_min(EPS32).sqrt() + EPS32)


@dataclass(frozen=True)
class PCCThenMSE:
    """`PCC` before step `switch`, `MSE` from then on.

    Published switches: 25,000 in the single-module task, 750,000 in the arithmetic data set, 7,500 in sequential MNIST.
    """

    switch: int = 25_000

    def __call__(self, prediction: Tensor, target: Tensor, step: int = 0) -> Tensor:
        """Scalar loss at a step."""
        return PCC()(prediction, target) if step < self.switch else MSE()(prediction, target)


@dataclass(frozen=True)
class LinearRamp:
    """Strength that is zero up to step `start`, grows linearly, and is `strength` from step `end` on.

    The published schedule of every discretisation penalty.
    """

    strength: float
    start: float
    end: float

    def __post_init__(self) -> None:
        """Refuse a ramp that does not rise."""
        if not self.end > self.start:
            raise ValueError(f"a ramp must end after it starts, got start={self.start}, end={self.end}")

    def __call__(self, step: float) -> float:
        """Strength at a step."""
        return self.strength * min(max((step - self.start) / (self.end - self.start), 0.0), 1.0)


@dataclass(frozen=True)
class StepwiseGrowth:
    """Strength that goes from `start` to `end` in factors of ten, one at every `every` steps.

    The published schedule of the NPU's L1 and L2 norms. Where `end` is smaller, the factor is a tenth.
    """

    start: float
    end: float
    every: int = 10_000

    def __post_init__(self) -> None:
        """Refuse strengths that powers of ten cannot join."""
        if self.start <= 0 or self.end <= 0 or self.every < 1:
            raise ValueError(f"start, end and every must be positive, got {self.start}, {self.end}, {self.every}")

    def __call__(self, step: int) -> float:
        """Strength at a step."""
        decades = math.log10(self.end / self.start)
        factors = min(step // self.every, math.ceil(abs(decades) - 1e-9))
        return float(Decimal(repr(self.start)).scaleb(factors if decades > 0 else -factors))


def parameter_norm(model: nn.Module, order: float = 1) -> Tensor:
    """Sum over the parameter tensors of a model, gates included, of their norm: L1 by default, Euclidean for order 2."""
    return torch.stack([torch.linalg.vector_norm(p, order) for p in model.parameters()]).sum()


@dataclass(frozen=True)
class ClipValue:
    """Clip every gradient entry to [-limit, limit]."""

    limit: float

    def __call__(self, parameters: Iterable[Tensor]) -> None:
        """Clip in place, between backward and step."""
        nn.utils.clip_grad_value_(parameters, self.limit)


@dataclass(frozen=True)
class ClipNorm:
    """Scale all gradients together so that their Euclidean norm is at most `limit`."""

    limit: float

    def __call__(self, parameters: Iterable[Tensor]) -> None:
        """Clip in place, between backward and step."""
        nn.utils.clip_grad_norm_(parameters, self.limit)


@dataclass(frozen=True)
class GradientNoise:
    """Gaussian noise on every gradient, with variance ``eta / (1 + step) ** decay``."""

    eta: float
    decay: float = 0.55

    def __call__(self, parameters: Iterable[Tensor], step: int, generator: torch.Generator | None = None) -> None:
        """Add noise in place, between backward and step."""
        deviation = math.sqrt(self.eta / (1 + step) ** self.decay)
        for p in parameters:
            if p.grad is not None:
                noise = torch.randn(p.grad.shape, generator=generator, device=p.grad.device, dtype=p.grad.dtype)
                p.grad.add_(noise, alpha=deviation)


@dataclass
class Reinitialisation:
    """When to start an iNALU anew: the error is large and has not fallen for a while.

    Call `due` once a step with the latest validation error; when it says yes, call `reset_parameters` (the optimiser keeps
    its moments, as published). Every `every` steps, once more than `history` values have come in: yes if the mean of their
    first half is at most mean plus standard deviation of their second half, and the mean of the second half is above
    `tolerated`. The history then starts anew.
    """

    history: int = 5_000
    every: int = 10
    tolerated: float = 1.0
    _errors: array[float] = field(default_factory=lambda: array("d"), repr=False)

    def due(self, step: int, validation_error: float) -> bool:
        """Take in one step's validation error and say whether to re-initialise now."""
        self._errors.append(validation_error)
        if step <= 0 or step % self.every or len(self._errors) <= self.history:
            return False
        errors = np.frombuffer(self._errors)
        half = len(errors) // 2
        before, after = errors[:half].mean(), errors[half:]
        stuck = bool(before <= after.mean() + after.std() and after.mean() > self.tolerated)
        if stuck:
            self._errors = array("d")
        return stuck
