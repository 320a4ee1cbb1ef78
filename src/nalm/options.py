"""Training options beyond the papers' recipes, each an object with its own parameters.

They hold numbers and work on tensors of any library; a plain PyTorch loop calls them, and both engines read them from a recipe.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from nalm.checks import like

__all__ = ["Centring", "LevenbergMarquardt", "LogMagnitude", "Restarts", "Snap"]

TINY = 1e-37
"""Stands for zero where a logarithm is taken: the smallest power of ten that float32 holds with all its digits."""


def _require(condition: bool, text: str) -> None:
    if not condition:
        raise ValueError(text)


def _typed(given: Any) -> None:
    """Refuse values that are not of the kind of their defaults."""
    for field in fields(given):
        object.__setattr__(given, field.name, like(field.name, getattr(given, field.name), field.default))


@dataclass(frozen=True)
class LogMagnitude:
    """Squared error of the logarithm of the magnitude, and a term for wrong signs.

    A product of powers is linear in its exponents there: one minimum, no cliffs, and no rows that outweigh all others. Rows
    whose target or prediction is exactly zero have no logarithm and count in the sign term alone.
    """

    sign: float = 1.0
    """Strength of the sign term: the mean of ``max(-y sgn t, 0) / (|y| + |t|)``, between zero and one."""
    magnitudes: bool = True
    """Whether training sees magnitudes of inputs and targets. A product of powers then cannot have a wrong sign while it
    trains, and has the right one as soon as its exponents are whole numbers. Turn it off where sums come first."""

    def __post_init__(self) -> None:
        """Refuse a negative strength."""
        _typed(self)
        _require(self.sign >= 0, f"sign must be at least 0, got {self.sign}")

    def prepare(self, values: Any) -> Any:
        """Inputs or targets as training sees them."""
        return values.abs() if self.magnitudes else values

    def residual(self, prediction: Any, target: Any) -> Any:
        """Difference of the logarithms for each row; zero where one of them does not exist."""
        known = (prediction != 0) & (target != 0)
        return (prediction.abs().clamp_min(TINY).log() - target.abs().clamp_min(TINY).log()) * known

    def __call__(self, prediction: Any, target: Any, step: int = 0) -> Any:
        """Scalar loss; `step` is not used."""
        known = ((prediction != 0) & (target != 0)).sum().clamp_min(1)
        return self.residual(prediction, target).square().sum() / known + self.wrong_signs(prediction, target)

    def wrong_signs(self, prediction: Any, target: Any) -> Any:
        """The sign term, with its strength."""
        wrong = (-prediction * target.sign()).clamp_min(0) / (prediction.abs() + target.abs()).clamp_min(TINY)
        return self.sign * wrong.mean()


@dataclass(frozen=True)
class Centring:
    """Takes most of the batch mean out of a residual before it is squared.

    Where inputs (or their logarithms) are nearly constant, errors of all weights push the output up or down together, and the
    sum of the weights learns thousands of times faster than any of them. Without the mean, a layer that is linear in its
    weights sees centred inputs. `share` is what remains of the mean's weight in the loss: not zero, or nothing would fix it.
    """

    share: float = 0.01

    def __post_init__(self) -> None:
        """Refuse what is no share."""
        _typed(self)
        _require(0 < self.share <= 1, f"share must be above 0 and at most 1, got {self.share}")

    def __call__(self, residual: Any) -> Any:
        """Mean square of the residual around its mean, plus a share of the squared mean."""
        mean = residual.mean()
        return (residual - mean).square().mean() + self.share * mean.square()


@dataclass(frozen=True)
class LevenbergMarquardt:
    """Damped Gauss-Newton steps on a fixed sample, inside the legal box, in place of stochastic descent.

    The step solves ``(J'J + damping diag(J'J)) d = -J'r``. Parameters at a bound of their box that would leave it stay there.
    """

    rows: int = 2_000
    """Rows of the sample."""
    iterations: int = 400
    """Most accepted steps of one start."""
    damping: float = 1e-3
    """Damping of the first step."""
    increase: float = 4.0
    """Factor after a step that does not lower the error."""
    decrease: float = 5.0
    """Divisor after a step that does."""
    every: int = 10
    """Steps between checks whether the snapped weights are a solution."""

    def __post_init__(self) -> None:
        """Refuse values that cannot work."""
        _typed(self)
        for name in ("rows", "iterations", "every"):
            _require(getattr(self, name) >= 1, f"{name} must be at least 1, got {getattr(self, name)}")
        _require(self.damping > 0, f"damping must be positive, got {self.damping}")
        for name in ("increase", "decrease"):
            _require(getattr(self, name) > 1, f"{name} must be above 1, got {getattr(self, name)}")


@dataclass(frozen=True)
class Snap:
    """Rounds weights to their discrete values, and keeps them only if they explain rows that training has not seen.

    Such rows come from the training range. The relative error must be at most `tolerance`, or `noise` and a tenth more where
    the targets are noisy.
    """

    tolerance: float = 1e-4
    noise: float = 0.0
    """Relative noise of the targets, if known."""
    rows: int = 1_000
    """Rows of the check."""

    def __post_init__(self) -> None:
        """Refuse values that cannot work."""
        _typed(self)
        _require(self.tolerance > 0, f"tolerance must be positive, got {self.tolerance}")
        _require(self.noise >= 0, f"noise must be at least 0, got {self.noise}")
        _require(self.rows >= 1, f"rows must be at least 1, got {self.rows}")

    @staticmethod
    def error(prediction: Any, target: Any, each: bool = False) -> Any:
        """Relative error: root mean square of the errors over the spread of the targets.

        Over their size, a wrong choice of inputs would hardly show where targets vary little. With `each`, it is that of the
        logarithms, one where they are further apart or the sign is wrong: a few huge targets then do not outweigh all others,
        as they would for quotients by numbers close to zero. Where a target is zero, it is relative to the other targets'
        median: power layers add a little to every magnitude.
        """
        if each:
            known = target != 0
            typical = target.abs()[known].median() if bool(known.any()) else target.abs().max() + 1
            ratio = (prediction.abs().clamp_min(TINY).log() - target.abs().clamp_min(TINY).log()).abs()
            wrong = prediction.sign() != target.sign()
            missed = (ratio.clamp_max(1) * ~wrong + wrong) * known + (prediction.abs() / typical).clamp_max(1) * ~known
            return missed.square().mean().sqrt()
        size, spread = target.square().mean().sqrt(), (target - target.mean(0)).square().mean().sqrt()
        varied = bool(spread > 1e-12 * size)
        return (prediction - target).square().mean().sqrt() / (spread if varied else size).clamp_min(TINY)

    def accepts(self, error: float) -> bool:
        """Whether a relative error on the check's rows makes a verified solution."""
        return bool(error <= max(self.tolerance, 1.1 * self.noise))


@dataclass(frozen=True)
class Restarts:
    """Trains from new initial values until the snapped weights are verified, at most `limit` times.

    Where no start leads to a verified solution, the one with the smallest error on the check's rows is kept.
    """

    limit: int = 20
    start: str = "own"
    """Initial values: the module's `own`; or `selecting`: in every other start, beginning with the first, gates are open, and
    in a stack sums have weights from U(0, 0.5) and what stands behind them takes them all."""

    def __post_init__(self) -> None:
        """Refuse no start at all, and unknown initial values."""
        _typed(self)
        _require(1 <= self.limit <= 1_000_000, f"limit must be from 1 to 1,000,000, got {self.limit}")
        _require(self.start in ("own", "selecting"), f"start must be own or selecting, got {self.start!r}")
