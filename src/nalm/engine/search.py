"""The starts of one run: which comes next, whether its snapped weights are a solution, and what each start led to."""

from __future__ import annotations

import copy
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from nalm import layers
from nalm.engine.data import evaluation_set, targets
from nalm.operations import TRUTHS, number_of
from nalm.options import LogMagnitude, Snap
from nalm.sampling import CHECK, TEST, TRAIN, VALIDATION, fill_rows, parse
from nalm.specs import Runs

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nalm.engine.data import Job


__all__ = ["Search", "answers", "error_of"]


def answers(output: torch.Tensor, inputs: torch.Tensor) -> torch.Tensor:
    """The one output of a model on inputs (rows, in); of a truth value and its negation, the truth value."""
    return output[..., 0, 0] if output.ndim > inputs.ndim else output.squeeze(-1)


def error_of(output: torch.Tensor, target: torch.Tensor, operation: str) -> torch.Tensor:
    """Mean squared error; for truth values the share of those that are wrong when rounded, NaN among them."""
    if operation in TRUTHS:
        return 1 - ((output - target).abs() < 0.5).double().mean()
    return (output - target).square().double().mean()


def _flat(module: nn.Module) -> NDArray[np.float64]:
    flat: NDArray[np.float64] = parameters_to_vector(module.parameters()).detach().double().numpy()
    return flat


class Search:
    """Looks for a verified solution of one run.

    The engine trains from `start` and offers what it has; an offer whose snapped weights explain rows that training has not
    seen ends the search. What training sees, and those rows, come from the training range alone.
    """

    def __init__(self, module: nn.Module, job: Job, index: int) -> None:
        self.recipe, self.job, self.index = job.recipe, job, index
        self.snap = job.recipe.snap or Snap()
        self.single, self.double = (copy.deepcopy(module).to(kind).eval() for kind in (torch.float32, torch.float64))
        self.check = self._tensors(*self.draw(CHECK, self.snap.rows, np.float64))
        self.limit = job.recipe.restarts.limit if job.recipe.restarts else 1
        self.attempt, self.verified = 0, False
        self.least, self.weights = math.inf, job.starts[index, 0].astype(np.float64)
        self.curves = np.full((3, self.limit + 1), np.nan)
        self.curves[:, 0] = self.errors(self.weights)

    @property
    def done(self) -> bool:
        """Whether a solution is verified or no start is left."""
        return self.verified or self.attempt == self.limit

    @property
    def start(self) -> NDArray[np.float64]:
        """Initial parameters of this start."""
        starts = self.job.starts[self.index]
        chosen: NDArray[np.float64] = starts[self.attempt % len(starts)].astype(np.float64)
        return chosen

    @property
    def loss(self) -> str | LogMagnitude:
        """What this start minimises: a module that says at its present weights that it is no product takes no logarithms."""
        if isinstance(self.recipe.loss, LogMagnitude) and hasattr(self.double, "multiplicative"):
            _load(self.double, self.start)
            return self.recipe.loss if self.double.multiplicative else "mse"
        return self.recipe.loss

    def draw(self, purpose: int, rows: int, dtype: Any) -> tuple[NDArray[Any], NDArray[Any]]:
        """Inputs (inputs, rows) from the training range, and their targets."""
        x = np.empty((self.job.inputs, rows), dtype)
        fill_rows(parse(self.job.interpolation).encode(self.job.inputs), self.job.seeds[self.index], purpose, 0, x)
        return x, self._targets(x)

    def sample(self, rows: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """A fixed sample to train on, as the loss wants it: inputs (inputs, rows) and targets."""
        x, target = self.draw(TRAIN, rows, np.float64)
        loss = self.loss
        return (np.abs(x), np.abs(target)) if isinstance(loss, LogMagnitude) and loss.magnitudes else (x, target)

    def offer(self, p: NDArray[np.float64]) -> bool:
        """Whether the snapped weights of p are a verified solution; the search is then over."""
        _load(self.double, p)
        layers.snap_(self.double)
        snapped = _flat(self.double)
        error = self._relative_error()
        if not self.verified and self.snap.accepts(error):
            self.verified, self.least, self.weights = True, error, snapped
        return self.verified

    def close(self, p: NDArray[np.float64]) -> None:
        """End this start, with parameters p if nothing was verified, and log its errors."""
        final = self.weights
        if not self.verified:
            _load(self.double, p)
            error, final = self._relative_error(), p.copy()
            if error < self.least:
                self.least, self.weights = error, final
        self.attempt += 1
        self.curves[:, self.attempt] = self.errors(final)
        if self.verified:
            self.curves[:, self.attempt :] = self.curves[:, self.attempt, None]

    def errors(self, p: NDArray[np.float64]) -> tuple[float, float, float]:
        """Validation, test and sparsity error of parameters, in single precision."""
        _load(self.single, p)
        found = []
        for purpose in (VALIDATION, TEST):
            x, target_rows = evaluation_set(self.job, self.job.spans[self.index, None], purpose, np.float32)
            inputs, target = self._tensors(x, target_rows[0])
            with torch.no_grad():
                operation = self.job.operation if purpose == TEST else ""
                found.append(float(error_of(answers(self.single(inputs), inputs), target, operation)))
        return found[0], found[1], float(layers.sparsity_error(self.single))

    def runs(self, before: NDArray[np.float64] | None = None) -> Runs:
        """The result; `before` are the curves of a single descent, to which the snapped weights add a row."""
        curves = self.curves if before is None else np.concatenate([before, self.curves[:, -1:]], 1)
        return Runs(
            seeds=np.array([self.job.seeds[self.index]], np.int64),
            steps=self.recipe.steps,
            validation=curves[:1],
            test=curves[1:2],
            sparsity=curves[2:],
            weights=self.weights[None],
            status=["ok" if np.isfinite(self.weights).all() else "diverged"],
            messages=[""],
        )

    def _relative_error(self) -> float:
        x, target = self.check
        with torch.no_grad():
            error = self.snap.error(answers(self.double(x), x), target, each=isinstance(self.recipe.loss, LogMagnitude))
        return float(error) if error.isfinite() else math.inf

    def _targets(self, x: NDArray[Any]) -> NDArray[Any]:
        spans, target = self.job.spans[self.index], np.empty(x.shape[1], x.dtype)
        targets(number_of(self.job.operation), x, spans, np.empty((len(spans), x.shape[1]), x.dtype), target)
        return target

    @staticmethod
    def _tensors(x: NDArray[Any], target: NDArray[Any]) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.from_numpy(x).T.contiguous(), torch.from_numpy(target)


def _load(module: nn.Module, p: NDArray[np.float64]) -> None:
    kind = next(module.parameters()).dtype
    vector_to_parameters(torch.tensor(p, dtype=kind), module.parameters())
