"""The torch engine: any `nn.Module`, all runs stacked on a leading axis and trained together. It defines what kernels compute.

Data, schedules and order of operations are those of the fused engine. A module that draws random numbers of its own, rather
than through `sample_noise` and the `noise` argument of `forward`, should be trained `alone`: they then follow from the seed.
"""

from __future__ import annotations

import contextlib
import copy
import logging
import math
import time
import traceback
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from nalm import layers, training
from nalm.engine.data import evaluation_set, fill_batches, fill_noises
from nalm.engine.search import Search, answers, error_of
from nalm.identity import UntoldError, identity
from nalm.operations import number_of
from nalm.options import LogMagnitude
from nalm.registry import one_line
from nalm.sampling import GRADIENT, NOISE, TEST, TRAIN, VALIDATION, parse
from nalm.solver import Problem
from nalm.specs import Runs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from nalm.engine.data import Job
    from nalm.options import LevenbergMarquardt

__all__ = ["PASSING", "failed_runs", "obstacle", "train"]

log = logging.getLogger(__name__)

NOISES = ("uniform", "normal", "once")
"""What a module may say that it takes as noise."""


class _UnheardError(Exception):
    """Holds what `on_share` raised."""


PASSING = (MemoryError, OSError, _UnheardError)
"""Errors that are not the module's: they end the training."""

LOSSES: dict[str, Any] = {"mse": training.MSE(), "pcc": training.PCC(), "mape": training.MAPE()}


class _View(nn.Module):
    """A module with all that training asks of it behind one `forward`, so that it can be called with stacked parameters."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module
        self.units = list(layers.units(module))

    def forward(self, what: str, *arguments: Any) -> Any:
        """`output` (rows) of a batch (rows, in), `penalties` (weight and gate), `sparsity`, or `project` the parameters."""
        if what == "output":
            return answers(self.module(*arguments), arguments[0])
        if what == "penalties":
            terms = [term for unit in self.units for term in unit.penalties().items()]
            zero = next(self.parameters()).new_zeros(())
            weight = sum((value for name, value in terms if name != "gate"), zero)
            return weight, sum((value for name, value in terms if name == "gate"), zero)
        if what == "sparsity":
            return layers.sparsity_error(self.module) if self.units else next(self.parameters()).new_tensor(math.nan)
        for unit in self.units:
            unit.project_()
        return None


class _Stack:
    """Parameters and optimiser state of many runs of one module; or of one, `alone`, by plain calls in place of `vmap`."""

    def __init__(self, module: nn.Module, starts: NDArray[Any], dtype: torch.dtype, *, alone: bool = False) -> None:
        self.view = _View(copy.deepcopy(module).to(dtype))
        noise = getattr(module, "noise", "")
        self.noise = noise if noise in NOISES else ""
        self.map: Any = _plain_map if alone else vmap
        self.grad: Any = _plain_grad if alone else grad
        self.shapes = {name: p.shape for name, p in self.view.named_parameters()}
        units = {id(p) for unit in self.view.units for p in unit.parameters()}  # say themselves what moves
        self.frozen = {name for name, p in self.view.named_parameters() if not p.requires_grad and id(p) not in units}
        self.parameters = self._split(starts[:, 0], dtype)
        self.first = {name: torch.zeros_like(p) for name, p in self.parameters.items()}
        self.second = {name: torch.zeros_like(p) for name, p in self.parameters.items()}

    def _split(self, flat: NDArray[Any], dtype: torch.dtype) -> dict[str, Tensor]:
        values, parts, start = torch.tensor(flat, dtype=dtype), {}, 0
        for name, shape in self.shapes.items():
            parts[name] = values[:, start : start + shape.numel()].reshape(-1, *shape).clone()
            start += shape.numel()
        return parts

    def flat(self) -> Tensor:
        """All parameters, (runs, parameters)."""
        return torch.cat([p.flatten(1) for p in self.parameters.values()], 1)

    def restart(self, run: int, start: NDArray[Any]) -> None:
        """Give one run new initial parameters; the optimiser keeps its moments, as published."""
        for name, p in self._split(start[None], next(iter(self.parameters.values())).dtype).items():
            self.parameters[name][run] = p[0]

    def call(self, what: str, in_dims: Any = 0, *arguments: Any) -> Any:
        """Call the view with the parameters of every run."""

        def one(parameters: Mapping[str, Tensor], *arguments: Any) -> Any:
            return functional_call(self.view, dict(parameters), (what, *arguments))

        dims = (0, *([in_dims] * len(arguments)))
        return self.map(one, in_dims=dims, randomness="different")(self.parameters, *arguments)

    def project(self) -> None:
        """Clip the parameters of all runs at once: legal boxes hold for each element."""
        functional_call(self.view, self.parameters, ("project",))

    @torch.no_grad()
    def errors(self, inputs: Tensor, targets: Tensor, runs: slice, operation: str = "") -> Tensor:
        """Error of some runs on shared inputs (rows, in), in eval mode: squared, or as tests count; targets (runs, rows)."""
        self.view.eval()
        chosen = {name: p[runs] for name, p in self.parameters.items()}

        def one(parameters: Mapping[str, Tensor], target: Tensor) -> Tensor:
            output: Tensor = functional_call(self.view, dict(parameters), ("output", inputs))
            return error_of(output, target, operation)

        result: Tensor = self.map(one, chunk_size=max(1, 2**24 // inputs.numel()))(chosen, targets)
        self.view.train()
        return result


def _plain_map(function: Callable[..., Any], in_dims: Any = 0, **_: Any) -> Callable[..., Any]:
    """What `vmap` gives for a stack of one, by a plain call."""

    def call(*arguments: Any) -> Any:
        dims = in_dims if isinstance(in_dims, tuple) else [in_dims] * len(arguments)
        only = [a if dim is None else _each(lambda t: t[0], a) for a, dim in zip(arguments, dims, strict=True)]
        return _each(lambda t: t[None], function(*only))

    return call


def _plain_grad(function: Callable[..., Tensor]) -> Callable[..., dict[str, Tensor]]:
    """What `torch.func.grad` gives, by plain reverse mode."""

    def call(parameters: Mapping[str, Tensor], *others: Any) -> dict[str, Tensor]:
        leaves = {name: p.detach().requires_grad_() for name, p in parameters.items()}
        pulled = torch.autograd.grad(function(leaves, *others), list(leaves.values()), materialize_grads=True)
        return dict(zip(leaves, pulled, strict=True))

    return call


def _each(change: Callable[[Tensor], Tensor], value: Any) -> Any:
    """Change every tensor of a value."""
    if isinstance(value, dict):
        return {name: change(one) for name, one in value.items()}
    return tuple(map(change, value)) if isinstance(value, tuple) else change(value)


CHANGES = "a step changes its buffers or attributes"
REASONS = {"vmap: It looks like": "it calls .item() or branches on data", "mutate a captured Tensor": CHANGES}
"""Why runs cannot be stacked, by a part of what PyTorch says."""


def obstacle(module: nn.Module, job: Job) -> str:
    """Why runs of a module cannot be trained as one stack; nothing where they can, or where a run alone fails too.

    Either PyTorch says so, or a step changes what all runs would share: buffers, attributes, random numbers.
    """
    with torch.random.fork_rng(devices=[]):
        try:
            return _one_step(module, job, alone=False)
        except PASSING:
            raise
        except UntoldError as error:
            return str(error)
        except Exception as error:
            with contextlib.suppress(Exception):
                _one_step(module, job, alone=True)
                return next((reason for part, reason in REASONS.items() if part in str(error)), one_line(error))
    return ""


def _one_step(module: nn.Module, job: Job, *, alone: bool) -> str:
    """Try a step and an evaluation on ones; what of all that runs share is not as before."""
    runs = 1 if alone else 2
    stack = _Stack(module, np.repeat(job.starts[:1], runs, 0), torch.float32, alone=alone)
    stack.view.train(job.recipe.solver is None)
    before, drawn = _shared_state(stack), torch.get_rng_state()
    x, ones = torch.ones(runs, job.recipe.batch, job.inputs), torch.ones(runs)
    shape = (runs, job.recipe.batch if stack.noise == "uniform" else 1, getattr(module, "noisy_inputs", job.inputs))
    pull = _gradient_function(stack, job.recipe)
    pull(_criterion(job.recipe, 0), stack.parameters, x, x[..., 0], torch.ones(shape), ones, ones, ones[0])
    between = _shared_state(stack)
    stack.errors(x[0], x[..., 0], slice(None))
    if not torch.equal(torch.get_rng_state(), drawn):
        return "it draws random numbers of its own"
    return "" if before == between == _shared_state(stack) else CHANGES


def _shared_state(stack: _Stack) -> str:
    """A digest of what a module's parts hold, parameters apart; UntoldError where that cannot be told."""
    parts = [vars(part).items() for part in stack.view.module.modules()]
    return identity([[pair for pair in pairs if pair[0] not in ("_parameters", "_modules")] for pairs in parts])


def train(
    module: nn.Module,
    jobs: Sequence[Job],
    *,
    precision: str = "float32",
    compiled: bool = False,
    alone: bool = False,
    on_share: Callable[[float], None] = lambda share: None,
) -> Iterator[tuple[int, Runs, float]]:
    """Train all runs of all jobs, which share module and recipe, as one stack; yield (job, runs, seconds) at the end.

    `on_share` is called after each step with its share of the work. With `compiled`, PyTorch's cache of compiled code is
    emptied first: each stack is compiled anew, and too many versions of one function would make the compiler give up.
    `alone`: each run is trained by itself, with plain calls, for modules that cannot be
    stacked (`obstacle`). So is every run after an error; those that raise it again are given back as failed, with the message.
    """
    began = time.perf_counter()

    def tell(share: float) -> None:
        try:
            on_share(share)
        except Exception as error:
            raise _UnheardError(error) from error

    try:
        results = _train_all(module, jobs, _How(precision, compiled, alone, tell))
    except _UnheardError as unheard:
        raise unheard.args[0] from None
    seconds = (time.perf_counter() - began) / len(jobs)
    for number, runs in enumerate(results):
        yield number, runs, seconds


class _How(NamedTuple):
    """How runs are trained, and who hears of each share of the work."""

    precision: str
    compiled: bool
    alone: bool
    """Each run by itself, with plain calls."""
    on_share: Callable[[float], None]


def _train_all(module: nn.Module, jobs: Sequence[Job], how: _How) -> list[Runs]:
    said = ""
    if not how.alone:
        try:
            return _train_seeded(module, jobs, how)
        except PASSING:
            raise
        except Exception as error:
            said = one_line(error)
    share = 1 / sum(len(job.seeds) for job in jobs)

    def advance(part: float) -> None:
        how.on_share(part * share if how.alone else 0.0)

    single = _How(how.precision, False, True, advance)
    results = [Runs.join([_train_one(module, job.only(k), single) for k in range(len(job.seeds))]) for job in jobs]
    if said and any(status != "failed" for runs in results for status in runs.status):
        log.warning("%s was trained run by run, which is slow, after an error: %s", type(module).__name__, said)
    return results


def _train_one(module: nn.Module, job: Job, how: _How) -> Runs:
    """A job of one run."""
    try:
        return _train_seeded(module, [job], how)[0]
    except PASSING:
        raise
    except Exception as error:
        return _failed(job, error)


def _train_seeded(module: nn.Module, jobs: Sequence[Job], how: _How) -> list[Runs]:
    """Train the jobs; what the module draws follows from the first seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(jobs[0].seeds[0])
        return (_search if jobs[0].recipe.snap else _train_stack)(module, jobs, how)


def _failed(job: Job, error: Exception) -> Runs:
    return failed_runs(job, job.seeds, error, job.starts.shape[-1])


def failed_runs(cell: Any, seeds: Sequence[int], error: Exception, parameters: int = 0) -> Runs:
    """Runs of a cell or job that could not be trained, with a message that names cell and seed."""
    rows = len(cell.recipe.steps)
    nothing = np.full((len(seeds), rows), np.nan)
    said = " ".join("".join(traceback.format_exception_only(error)).split())
    messages = [f"{cell.operation} {cell.interpolation}, seed {seed}: {said}" for seed in seeds]
    weights = np.full((len(seeds), parameters), np.nan)
    kept, status = np.asarray(seeds, np.int64), ["failed"] * len(seeds)
    return Runs(kept, cell.recipe.steps, nothing, nothing.copy(), nothing.copy(), weights, status, messages)


def _train_stack(module: nn.Module, jobs: Sequence[Job], how: _How) -> list[Runs]:
    recipe, inputs = jobs[0].recipe, jobs[0].inputs
    precision = how.precision
    dtype: torch.dtype = getattr(torch, precision)
    stack = _Stack(module, np.concatenate([job.starts for job in jobs]), dtype, alone=how.alone)
    starts = np.concatenate([job.starts for job in jobs])
    seeds = np.concatenate([job.seeds for job in jobs]).astype(np.int64)
    spans = np.concatenate([job.spans for job in jobs])
    operations = np.concatenate([[number_of(job.operation)] * len(job.seeds) for job in jobs])
    ends = np.cumsum([len(job.seeds) for job in jobs])
    slices = [slice(end - len(job.seeds), end) for job, end in zip(jobs, ends, strict=True)]
    codes = np.concatenate([np.repeat(parse(job.interpolation).encode(inputs)[None], len(job.seeds), 0) for job in jobs])
    runs, rows = len(seeds), len(recipe.steps)
    batch, target = np.empty((runs, inputs, recipe.batch), precision), np.empty((runs, recipe.batch), precision)
    sums = np.empty((spans.shape[1], recipe.batch), precision)
    normal = stack.noise == "normal"
    noisy_inputs = getattr(module, "noisy_inputs", inputs)
    noise = np.empty((runs, noisy_inputs * (recipe.batch if stack.noise == "uniform" else 1)), precision)
    gradient_noise = np.empty((runs, sum(shape.numel() for shape in stack.shapes.values())), precision)
    x, y = torch.from_numpy(batch).transpose(1, 2), torch.from_numpy(target)
    drawn = torch.from_numpy(noise).reshape(runs, noisy_inputs, -1).transpose(1, 2)
    evaluation = [_evaluation_sets(job, precision) for job, part in zip(jobs, slices, strict=True)]
    curves = np.full((3, runs, rows), np.nan)
    alive = np.ones(runs, bool)
    last_error = torch.full((runs,), math.inf, dtype=dtype)
    rules = [training.Reinitialisation() for _ in range(runs)] if recipe.reinitialise else []
    attempts = np.zeros(runs, int)
    pull = _gradient_function(stack, recipe)
    if how.compiled:
        torch.compiler.reset()
        pull = torch.compile(pull)
    stack.view.train()
    for step in range(recipe.iterations + 1):
        if step % recipe.log_interval == 0:
            row = step // recipe.log_interval
            alive &= stack.flat().isfinite().all(1).numpy()
            for job, (val_x, val_y, test_x, test_y), part in zip(jobs, evaluation, slices, strict=True):
                curves[0, part, row] = stack.errors(val_x, val_y, part).numpy()
                curves[1, part, row] = stack.errors(test_x, test_y, part, job.operation).numpy()
            with torch.no_grad():
                curves[2, :, row] = stack.call("sparsity").double().numpy()
            curves[:, ~alive, row] = np.nan
            last_error = torch.from_numpy(curves[0, :, row].copy()).to(dtype)
        fill_batches(codes, seeds, TRAIN, step, operations, spans, batch, sums, target)
        if isinstance(recipe.loss, LogMagnitude) and recipe.loss.magnitudes:
            np.abs(batch, out=batch)
            np.abs(target, out=target)
        if stack.noise:
            fill_noises(seeds, NOISE, step, normal, noise)
        strength, gate_strength = _strengths(recipe, step, last_error)
        norm = training.StepwiseGrowth(recipe.norm_start, recipe.norm_end, recipe.norm_every)(step) if recipe.norm else 0.0
        criterion = _criterion(recipe, step)
        gradients = pull(criterion, stack.parameters, x, y, drawn, strength, gate_strength, torch.tensor(norm, dtype=dtype))
        gradients = {name: g for name, g in gradients.items() if name not in stack.frozen}
        if recipe.gradient_noise:
            fill_noises(seeds, GRADIENT, step, True, gradient_noise)
            deviation = math.sqrt(recipe.gradient_noise / (1 + step) ** 0.55)
            split = stack._split(gradient_noise, dtype)
            gradients = {name: g + deviation * split[name] for name, g in gradients.items()}
        _update(stack, _clipped(gradients, recipe.clip_value, recipe.clip_norm), recipe, step)
        if recipe.project:
            stack.project()
        for run, rule in enumerate(rules):
            if rule.due(step, float(last_error[run])):
                attempts[run] = (attempts[run] + 1) % starts.shape[1]
                stack.restart(run, starts[run, attempts[run]])
        how.on_share(1 / (recipe.iterations + 1))
    weights = stack.flat().double().numpy()
    alive &= np.isfinite(weights).all(1)
    return [
        Runs(
            seeds=seeds[part],
            steps=recipe.steps,
            validation=curves[0, part],
            test=curves[1, part],
            sparsity=curves[2, part],
            weights=weights[part],
            status=["ok" if ok else "diverged" for ok in alive[part]],
            messages=[""] * (part.stop - part.start),
        )
        for part in slices
    ]


def _search(module: nn.Module, jobs: Sequence[Job], how: _How) -> list[Runs]:
    """Train all runs from one start after the other, those together that have no verified solution yet."""
    recipe = jobs[0].recipe
    plain = recipe.replace(snap=None, restarts=None, solver=None)
    searches = [[Search(module, job, index) for index in range(len(job.seeds))] for job in jobs]
    runs = [(job, search) for job, part in zip(jobs, searches, strict=True) for search in part]
    curves: dict[int, Any] = {}
    while waiting := [(job, search) for job, search in runs if not search.done]:
        loss = waiting[0][1].loss
        pending = [(job, search) for job, search in waiting if search.loss == loss]
        if recipe.solver:
            trained = _solve(module, [search for _, search in pending], recipe.solver)
        else:
            starts = [
                replace(job.only(s.index), recipe=plain.replace(loss=loss), starts=s.start[None, None]) for job, s in pending
            ]
            results = _train_stack(module, starts, how._replace(on_share=lambda share: None))
            trained = [result.weights[0] for result in results]
            for (_, search), result in zip(pending, results, strict=True):
                curves[id(search)] = np.stack([result.validation, result.test, result.sparsity])[:, 0]
        for (_, search), p in zip(pending, trained, strict=True):
            search.offer(p)
            search.close(p)
        how.on_share(sum(search.done for _, search in pending) / len(runs))
    once = not (recipe.solver or recipe.restarts)
    return [Runs.join([search.runs(curves[id(search)] if once else None) for search in part]) for part in searches]


def _solve(module: nn.Module, searches: Sequence[Search], solver: LevenbergMarquardt) -> list[NDArray[np.float64]]:
    """Levenberg-Marquardt from the present start of each search, all together."""
    samples = [search.sample(solver.rows) for search in searches]
    x = torch.from_numpy(np.stack([x.T for x, _ in samples]))
    target = torch.from_numpy(np.stack([t[:, None] for _, t in samples]))
    p = torch.from_numpy(np.stack([search.start for search in searches]))
    problem = Problem(module, x, target, solver, searches[0].loss)
    damping, ended = torch.full((len(p),), solver.damping, dtype=p.dtype), torch.zeros(len(p), dtype=torch.bool)
    for _ in range(-(-solver.iterations // solver.every)):
        problem.steps(p, damping, ended)
        for k, search in enumerate(searches):
            if not search.verified and search.offer(p[k].numpy()):
                ended[k] = True
        if bool(ended.all()):
            break
    return list(p.numpy())


def _evaluation_sets(job: Job, precision: str) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Validation and test inputs (rows, in), each with the targets (runs, rows)."""
    sets: list[Tensor] = []
    for purpose in (VALIDATION, TEST):
        columns, target = evaluation_set(job, job.spans, purpose, precision)
        sets += [torch.from_numpy(columns).T.contiguous(), torch.from_numpy(target)]
    return sets[0], sets[1], sets[2], sets[3]


def _criterion(recipe: Any, step: int) -> Any:
    loss, centring = recipe.loss, recipe.centring
    if isinstance(loss, LogMagnitude):
        return (lambda y, t: centring(loss.residual(y, t)) + loss.wrong_signs(y, t)) if centring else loss
    if centring:
        return lambda y, t: centring(y - t)
    if recipe.loss == "pcc-mse":
        return LOSSES["pcc" if step < recipe.loss_switch else "mse"]
    return LOSSES[recipe.loss]


def _strengths(recipe: Any, step: int, last_error: Tensor) -> tuple[Tensor, Tensor]:
    """Strength of the penalty's weight and gate terms for every run."""
    if recipe.penalty_below is None:
        share = min(max((step - recipe.penalty_start) / max(recipe.penalty_end - recipe.penalty_start, 1), 0.0), 1.0)
        shares = torch.full_like(last_error, share)
    else:
        shares = ((last_error < recipe.penalty_below) & (step > recipe.penalty_start)).to(last_error.dtype)
    gate = recipe.penalty if recipe.gate_penalty is None else recipe.gate_penalty
    return recipe.penalty * shares, gate * shares


def _gradient_function(stack: _Stack, recipe: Any) -> Any:
    """Gradients of the whole loss for every run, given the batch and the strengths of this step."""
    penalised = bool(recipe.penalty or recipe.gate_penalty)

    def loss(
        criterion: Any,
        parameters: dict[str, Tensor],
        x: Tensor,
        y: Tensor,
        noise: Tensor,
        weight: Tensor,
        gate: Tensor,
        norm: Tensor,
    ) -> Tensor:
        arguments = (x, noise) if stack.noise else (x,)
        output = functional_call(stack.view, parameters, ("output", *arguments))
        total: Tensor = criterion(output, y)
        if penalised:
            on_weights, on_gates = functional_call(stack.view, parameters, ("penalties",))
            total = total + weight * on_weights + gate * on_gates
        if recipe.norm:
            total = total + norm * sum(torch.linalg.vector_norm(p, recipe.norm) for p in parameters.values())
        return total

    def gradients(criterion: Any, *arguments: Any) -> dict[str, Tensor]:
        def of(*arguments: Any) -> dict[str, Tensor]:
            pulled: dict[str, Tensor] = stack.grad(lambda *a: loss(criterion, *a))(*arguments)
            return pulled

        dims = (0, 0, 0, 0 if stack.noise else None, 0, 0, None)
        result: dict[str, Tensor] = stack.map(of, in_dims=dims, randomness="different")(*arguments)
        return result

    return gradients


def _clipped(gradients: dict[str, Tensor], value: float, norm: float) -> dict[str, Tensor]:
    if value:
        gradients = {name: g.clamp(-value, value) for name, g in gradients.items()}
    if norm:
        squares = torch.stack([g.flatten(1).square().sum(1) for g in gradients.values()]).sum(0)
        factor = (norm / (squares.sqrt() + 1e-6)).clamp_max(1.0)
        gradients = {name: g * factor.reshape(-1, *[1] * (g.ndim - 1)) for name, g in gradients.items()}
    return gradients


@torch.no_grad()
def _update(stack: _Stack, gradients: dict[str, Tensor], recipe: Any, step: int) -> None:
    """One step of the optimiser on every run."""
    for name, g in gradients.items():
        p = stack.parameters[name]
        if recipe.optimiser == "sgd":
            p.sub_(g, alpha=recipe.learning_rate)
            continue
        if recipe.optimiser == "rmsprop":
            second = stack.second[name].mul_(0.9).addcmul_(g, g, value=1 - 0.9)
            p.addcdiv_(g, second.sqrt().add_(1e-8), value=-recipe.learning_rate)
            continue
        first = stack.first[name].mul_(0.9).add_(g, alpha=1 - 0.9)
        second = stack.second[name].mul_(0.999).addcmul_(g, g, value=1 - 0.999)
        rate, root = recipe.learning_rate / (1 - 0.9 ** (step + 1)), math.sqrt(1 - 0.999 ** (step + 1))
        p.addcdiv_(first, (second.sqrt() / root).add_(1e-8), value=-rate)
