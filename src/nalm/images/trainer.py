"""Training of image networks: epochs with checkpoints from which a killed run goes on to the same result."""

from __future__ import annotations

import io
import logging
import pickle
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from nalm.checks import finite, shown, whole
from nalm.files import checksum, read_bytes, write
from nalm.layers import units
from nalm.training import LinearRamp

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

__all__ = ["Schedule", "Trained", "best_device", "fit"]

log = logging.getLogger(__name__)

MARK, DIGITS = b"nalm checkpoint 1\n", 32
"""What a checkpoint begins with; digits of the checksum that follows."""


@dataclass(frozen=True)
class Schedule:
    """How a network is trained."""

    epochs: int = 1_000
    batch: int = 128
    learning_rate: float = 1e-3
    penalty: float = 0.0
    """Final strength of the discretisation penalty of the NALMs in the network."""
    penalty_start: float = 30.0
    penalty_end: float = 40.0
    """It grows linearly between these epochs."""
    anneal: float = 0.0
    """Last share of the training in which the learning rate falls linearly to zero; the papers have none."""
    clip_norm: float = 0.0
    """Largest norm of the gradient of all parameters; 0 for no clipping."""
    evaluate_every: int = 1
    """Epochs between evaluations; the last one is always evaluated."""
    decay: Mapping[str, float] = field(default_factory=dict)
    """Weight decay of parameters whose name starts so."""

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        for name, low in (("epochs", 0), ("batch", 1), ("evaluate_every", 1)):
            if getattr(self, name) < low:
                raise ValueError(f"{name} must be at least {low}, got {getattr(self, name)}")
        if not 0 <= self.anneal <= 1:
            raise ValueError(f"anneal must be between 0 and 1, got {self.anneal}")
        if not self.learning_rate > 0:
            raise ValueError(f"learning_rate must be positive, got {self.learning_rate}")


class Trained(NamedTuple):
    """What training gave."""

    history: list[dict[str, Any]]
    """A dictionary for each evaluation, with `epoch` and what the evaluation said."""
    seconds: float
    """Processor time that it took, before and after interruptions."""


def best_device() -> torch.device:
    """CUDA or MPS where there is one, else the processor."""
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")


def fit(
    network: nn.Module,
    samples: int,
    loss: Callable[[Any, int], Tensor],
    evaluate: Callable[[], dict[str, Any]],
    schedule: Schedule,
    *,
    seed: int = 0,
    images: int = 0,
    name: str = "",
    checkpoint: Path | None = None,
    on_epoch: Callable[[float], None] = lambda share: None,
) -> Trained:
    """Train a network and give its history and the time it took.

    `loss(rows, step)` is the loss on the samples of an array of indices. The order of an epoch, dropout and noise follow from
    seed and epoch alone, so that a run that is continued from a checkpoint ends as one that was not interrupted. A checkpoint
    is written after every epoch, whole or not at all. `images` (of an epoch) and `name` are for the log.
    """
    ramp = LinearRamp(schedule.penalty, start=schedule.penalty_start, end=schedule.penalty_end) if schedule.penalty else None
    fused = next(network.parameters()).device.type in ("cpu", "cuda")
    optimiser = torch.optim.Adam(_groups(network, schedule.decay), lr=schedule.learning_rate, fused=fused)
    nalms = list(units(network))
    history: list[dict[str, Any]] = []
    start, before = _resume(checkpoint, network, optimiser, history, schedule.epochs)
    clock = time.process_time()

    def save(epochs: int) -> None:
        if checkpoint is not None:
            state = {"network": network.state_dict(), "optimiser": optimiser.state_dict(), "history": history}
            _save(checkpoint, {"epoch": epochs, "seconds": before + time.process_time() - clock, **state})

    on_epoch(start / max(schedule.epochs, 1))
    step = start * -(-samples // schedule.batch)
    with torch.random.fork_rng():
        for epoch in range(start, schedule.epochs):
            torch.manual_seed(_mixed(seed, epoch))
            if epoch % schedule.evaluate_every == 0:
                history.append({"epoch": epoch, **_evaluated(network, evaluate)})
            network.train()
            began, order = time.perf_counter(), np.random.default_rng([seed, epoch]).permutation(samples)
            for first in range(0, samples, schedule.batch):
                passed = epoch + first / samples
                for group in optimiser.param_groups:
                    group["lr"] = schedule.learning_rate * _left(passed / schedule.epochs, schedule.anneal)
                total = loss(order[first : first + schedule.batch], step)
                if ramp is not None and nalms:
                    strength = ramp(passed)
                    if strength > 0:
                        total = total + strength * torch.stack([unit.penalty() for unit in nalms]).sum()
                optimiser.zero_grad()
                total.backward()  # type: ignore[no-untyped-call]
                if schedule.clip_norm:
                    nn.utils.clip_grad_norm_(network.parameters(), schedule.clip_norm)
                optimiser.step()
                for unit in nalms:
                    unit.project_()
                step += 1
                on_epoch(min(schedule.batch, samples - first) / samples / schedule.epochs)
            seconds = time.perf_counter() - began
            log.info("%s epoch %d: %.0f images a second, loss %.4g", name, epoch, images / seconds, float(total.detach()))
            save(epoch + 1)
        if not history or history[-1]["epoch"] != schedule.epochs:
            history.append({"epoch": schedule.epochs, **_evaluated(network, evaluate)})
            save(schedule.epochs)
    return Trained(history, before + time.process_time() - clock)


def _groups(network: nn.Module, decay: Mapping[str, float]) -> list[dict[str, Any]]:
    groups = [
        {"params": [p for n, p in network.named_parameters() if n.startswith(name)], "weight_decay": d}
        for name, d in decay.items()
    ]
    rest = [p for n, p in network.named_parameters() if not any(n.startswith(name) for name in decay)]
    return [{"params": rest}, *groups]


def _left(passed: float, anneal: float) -> float:
    """Factor on the learning rate after a share of the training."""
    return min(1.0, (1 - passed) / anneal) if anneal else 1.0


def _mixed(seed: int, epoch: int) -> int:
    return int(np.random.SeedSequence([seed, epoch]).generate_state(1, np.uint64)[0] >> 1)


@torch.no_grad()
def _evaluated(network: nn.Module, evaluate: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    network.eval()
    return evaluate()


def _save(path: Path, state: dict[str, Any]) -> None:
    packed = io.BytesIO()
    torch.save(state, packed)
    write(path, MARK + checksum(packed.getvalue()).encode() + packed.getvalue())


def _resume(
    path: Path | None, network: nn.Module, optimiser: Any, history: list[dict[str, Any]], epochs: int
) -> tuple[int, float]:
    """Load a checkpoint, if there is one, and give the epoch to go on with and the seconds that were spent on it.

    A damaged one is reported and not used: training begins anew.
    """
    if path is None or not path.exists():
        return 0, 0.0
    data = read_bytes(path)
    mark, packed = data[: len(MARK) + DIGITS], data[len(MARK) + DIGITS :]
    if mark != MARK + checksum(packed).encode():
        log.warning("%s is damaged, or no checkpoint of this version: this run is trained from the start", path)
        return 0, 0.0
    try:
        state = torch.load(io.BytesIO(packed), weights_only=True)
        epoch, seconds = whole("epoch", state["epoch"], 0, epochs), finite("seconds", state["seconds"], 0)
        known = list(state["history"])
        if not all(isinstance(entry, dict) and 0 <= entry["epoch"] <= epoch for entry in known):
            raise ValueError("its history does not fit its epoch")
        network.load_state_dict(state["network"])
        optimiser.load_state_dict(state["optimiser"])
    except (RuntimeError, KeyError, ValueError, TypeError, IndexError, EOFError, pickle.UnpicklingError) as error:
        raise ValueError(f"{path} is not a checkpoint of this network ({shown(error)}): remove it to start anew") from None
    history.extend(known)
    return epoch, seconds
