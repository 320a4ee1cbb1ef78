"""Levenberg-Marquardt in PyTorch, for any module and many starts at once; and `fit`: solve, snap, verify, start anew."""

from __future__ import annotations

import copy
import math
import time
import warnings
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, jacrev, vmap
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from nalm import layers
from nalm.options import LevenbergMarquardt, LogMagnitude, Restarts, Snap

__all__ = ["Fit", "Problem", "box_of", "damped_step", "fit", "snapped"]

FAR = 1e30
"""Stands for no bound."""
TRIALS = 16
"""Dampings that are tried for one step."""
SMALLEST = 1e-14
"""Smallest damping."""


def box_of(module: nn.Module) -> tuple[Tensor, Tensor]:
    """Lower and upper bounds of all parameters, in double precision, as `project_` sets them."""
    probe, ends = copy.deepcopy(module).double(), []
    for value in (-FAR, FAR):
        flat = parameters_to_vector(probe.parameters()).detach()
        vector_to_parameters(torch.full_like(flat, value), probe.parameters())
        for unit in layers.units(probe):
            unit.project_()
        ends.append(parameters_to_vector(probe.parameters()).detach().clone())
    return ends[0], ends[1]


def damped_step(jacobian: Tensor, residual: Tensor, damping: Tensor, frozen: Tensor) -> Tensor:
    """Solve ``(J'J + damping diag(J'J)) d = -J'r`` for d, with d zero where `frozen`.

    Shapes: jacobian (..., rows, parameters), residual (..., rows), damping (...), frozen (..., parameters).
    """
    normal = jacobian.mT @ jacobian
    gradient = (jacobian.mT @ residual.unsqueeze(-1)).squeeze(-1)
    diagonal = normal.diagonal(dim1=-2, dim2=-1)
    still = frozen | (diagonal == 0)
    moves = (~still).to(normal.dtype)
    matrix = normal * moves.unsqueeze(-1) * moves.unsqueeze(-2)
    matrix = matrix + torch.diag_embed(torch.where(still, torch.ones_like(diagonal), damping.unsqueeze(-1) * diagonal))
    step: Tensor = torch.linalg.solve(matrix, -gradient * moves)
    return step


class Problem:
    """Samples to be explained by a module, one for each of several runs.

    Args:
        module: any module whose output for a row depends on that row alone; it is used in eval mode, in double precision.
        x: inputs, (runs, rows, in).
        target: (runs, rows, out).
        solver: how to step.
        loss: `mse`, or a `LogMagnitude`, whose `prepare` is applied here.
    """

    def __init__(self, module: nn.Module, x: Tensor, target: Tensor, solver: LevenbergMarquardt, loss: Any = "mse") -> None:
        self.module = copy.deepcopy(module).double().eval()
        self.shapes = {name: p.shape for name, p in self.module.named_parameters()}
        self.low, self.high = box_of(module)
        self.solver = solver
        self.loss = loss if isinstance(loss, LogMagnitude) else None
        self.x, self.target = (self.loss.prepare(v.double()) if self.loss else v.double() for v in (x, target))
        spread = self.target.square().mean((1, 2)).sqrt()
        self.scale = torch.where((spread > 0) & spread.isfinite(), 1 / spread, torch.ones_like(spread))

    def _split(self, flat: Tensor) -> dict[str, Tensor]:
        parts = torch.split(flat, [shape.numel() for shape in self.shapes.values()])
        return {name: part.reshape(shape) for (name, shape), part in zip(self.shapes.items(), parts, strict=True)}

    def _row(self, p: Tensor, x: Tensor, target: Tensor, scale: Tensor) -> Tensor:
        output: Tensor = functional_call(self.module, self._split(p), (x,))
        result: Tensor = self.loss.residual(output, target) if self.loss else (output - target) * scale
        return result

    @torch.no_grad()
    def residuals(self, p: Tensor) -> Tensor:
        """All residuals of parameters p (runs, parameters): (runs, rows * out)."""
        found: Tensor = vmap(self._row)(p, self.x, self.target, self.scale)
        return found.flatten(1)

    def jacobians(self, p: Tensor) -> Tensor:
        """Their derivatives by the parameters: (runs, rows * out, parameters)."""
        of_rows = vmap(jacrev(self._row), in_dims=(None, 0, 0, None))
        found: Tensor = vmap(of_rows)(p, self.x, self.target, self.scale)
        return found.detach().flatten(1, 2)

    def steps(self, p: Tensor, damping: Tensor, ended: Tensor) -> None:
        """Take up to `every` steps from p (runs, parameters), in place, in all runs that have not `ended`, which it updates."""
        residual = self.residuals(p)
        cost = residual.square().sum(1)
        ended |= ~cost.isfinite()
        for _ in range(self.solver.every):
            if bool(ended.all()):
                return
            jacobian = self.jacobians(p)
            gradient = (jacobian.mT @ residual.unsqueeze(-1)).squeeze(-1)
            ended |= ~jacobian.isfinite().all(2).all(1)
            jacobian = torch.where(ended[:, None, None], 0.0, jacobian)
            frozen = ((p <= self.low) & (gradient > 0)) | ((p >= self.high) & (gradient < 0))
            waiting = ~ended
            before = cost.clone()
            for _ in range(TRIALS):
                step = damped_step(jacobian, torch.where(ended[:, None], 0.0, residual), damping, frozen)
                trial = (p + step).clamp(self.low, self.high)
                new = self.residuals(trial)
                lower = waiting & (new.square().sum(1) < cost)
                p[lower], residual[lower] = trial[lower], new[lower]
                cost[lower] = new[lower].square().sum(1)
                damping[lower] = (damping[lower] / self.solver.decrease).clamp_min(SMALLEST)
                waiting &= ~lower
                damping[waiting] *= self.solver.increase
                if not bool(waiting.any()):
                    break
            gained = (before - cost) / before
            ended |= waiting | (gained < 1e-10) | (cost < 1e-26 * residual.shape[1])


def snapped(module: nn.Module, p: Tensor) -> Tensor:
    """Parameters p with all discrete weights at their nearest values; `module` serves as scratch."""
    vector_to_parameters(p.clone(), module.parameters())
    layers.snap_(module)
    return parameters_to_vector(module.parameters()).detach().clone()


@dataclass(frozen=True)
class Fit:
    """What `fit` found."""

    verified: bool
    """Whether the snapped weights explain rows that training has not seen."""
    starts: int
    """Starts up to the one that is kept, which all count: success after twenty starts is not success at once."""
    error: float
    """Relative error on those rows."""
    seconds: float


def _loss_at(module: nn.Module, p: Tensor, loss: str | LogMagnitude) -> str | LogMagnitude:
    """The loss at parameters p: a module that says there that it is no product takes no logarithms."""
    if isinstance(loss, LogMagnitude) and hasattr(module, "multiplicative"):
        vector_to_parameters(p.clone(), module.parameters())
        return loss if module.multiplicative else "mse"
    return loss


def fit(
    module: nn.Module,
    x: Tensor,
    y: Tensor,
    *,
    loss: str | LogMagnitude = "mse",
    solver: LevenbergMarquardt | None = None,
    snap: Snap | None = None,
    restarts: Restarts | None = None,
    generator: torch.Generator | None = None,
) -> Fit:
    """Fit a module of nalm layers to data, in place: Levenberg-Marquardt from many starts, snapping, verification.

    The first start is the module as it is, or as `restarts.start` wants it; all starts are solved together. A fifth of the
    rows, but no more than `snap.rows`, is kept for verification. Where no start is verified, the module gets the weights with
    the smallest error on them.

    Args:
        module: one of this library's layers, or a container of them.
        x: inputs, (rows, in).
        y: targets, (rows, out) or (rows).
        loss: `mse`, or a `LogMagnitude` for products of powers.
        solver: how to step, and on how many of the rows.
        snap: when rounded weights count as a solution.
        restarts: how many starts there may be.
        generator: source of the new starts and of the split of the rows.

    Everything is computed in float64; weights in half precision are rounded at the end, with a warning if that moved them.

    >>> import torch, nalm
    >>> x = torch.rand(500, 3, generator=torch.Generator().manual_seed(0)) + 1
    >>> layer = nalm.RealNPU(3, 1)
    >>> nalm.fit(layer, x, x[:, 0] / x[:, 2], loss=nalm.LogMagnitude()).verified
    True
    """
    began = time.perf_counter()
    solver, snap, restarts = solver or LevenbergMarquardt(), snap or Snap(), restarts or Restarts(start="selecting")
    if loss != "mse" and not isinstance(loss, LogMagnitude):
        raise ValueError(f"loss must be mse or a LogMagnitude, got {loss!r}")
    target = y.reshape(len(x), -1)
    held = min(snap.rows, max(1, len(x) // 5))
    if len(x) < 2:
        raise ValueError(f"fit needs at least two rows, got {len(x)}")
    order = torch.randperm(len(x), generator=generator)
    seen, unseen = order[held : held + solver.rows], order[:held]
    kept = parameters_to_vector(module.parameters()).detach()
    scratch = copy.deepcopy(module).double().eval()
    starts = []
    for number in range(restarts.limit):
        if number:
            for unit in layers.units(scratch):
                unit.reset_parameters(generator)
        if restarts.start == "selecting" and number % 2 == 0:
            layers.select_all_(scratch, generator)
        starts.append(parameters_to_vector(scratch.parameters()).detach().clone())
    p = torch.stack(starts)
    losses = [_loss_at(scratch, start, loss) for start in p]
    groups = []
    for one in dict.fromkeys(losses):
        members = [run for run in range(len(p)) if losses[run] == one]
        inputs, targets = (values[seen].expand(len(members), -1, -1) for values in (x, target))
        damping, ended = torch.full((len(members),), solver.damping, dtype=p.dtype), torch.zeros(len(members), dtype=torch.bool)
        groups.append((Problem(module, inputs, targets, solver, one), members, p[members], damping, ended))

    def error(parameters: Tensor, run: int) -> float:
        vector_to_parameters(parameters.clone(), scratch.parameters())
        each = isinstance(losses[run], LogMagnitude)
        with torch.no_grad():
            found = snap.error(scratch(x[unseen].double()), target[unseen].double(), each=each)
        return float(found) if found.isfinite() else math.inf

    best, least, number, verified = p[0], math.inf, len(p), False
    for _ in range(-(-solver.iterations // solver.every)):
        for problem, members, own, damping, ended in groups:
            problem.steps(own, damping, ended)
            p[members] = own
        for run, end in enumerate(p):
            rounded = snapped(scratch, end)
            off = error(rounded, run)
            if snap.accepts(off):
                best, least, number, verified = rounded, off, run + 1, True
                break
        if verified or all(bool(ended.all()) for *_, ended in groups):
            break
    if not verified:
        errors = [error(end, run) for run, end in enumerate(p)]
        least = min(errors)
        best = p[errors.index(least)]
    vector_to_parameters(best.to(kept.dtype), module.parameters())
    moved = float((best - best.to(kept.dtype)).abs().amax())
    if moved and kept.dtype in layers.precision.HALF:
        warnings.warn(
            f"{kept.dtype} cannot hold the weights that were found: storing them moved one by {moved:.1g}; use a float32 layer",
            stacklevel=2,
        )
    return Fit(verified, number, least, time.perf_counter() - began)
