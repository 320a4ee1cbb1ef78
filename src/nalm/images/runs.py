"""One run of a task with images: build the data and the network, train it, and give its history. Many runs share the cores."""

from __future__ import annotations

import hashlib
import json
import logging
import multiprocessing
import os
import threading
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from nalm.images import tasks, trainer
from nalm.images.digits import Digits, load
from nalm.images.networks import ColourPairs, ImageReader, IsolatedPairs, SequenceNetwork, last_layer, product_weights
from nalm.images.trainer import Schedule, Trained, best_device, fit
from nalm.layers import Unit
from nalm.native import cores
from nalm.options import LogMagnitude
from nalm.training import MAPE, PCC

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

__all__ = ["Question", "run", "run_all"]

EVALUATION_BATCH = 500
"""Images, or sequences, that are evaluated at a time."""
SWITCH = 7_500
"""Step at which the loss `pcc-mse` becomes the squared error, where nothing else is said."""
SCHEDULE = (
    "epochs",
    "batch",
    "learning_rate",
    "penalty",
    "penalty_start",
    "penalty_end",
    "anneal",
    "evaluate_every",
    "clip_norm",
)


@dataclass(frozen=True)
class Question:
    """What one run is asked: the task, the layer, the fold or seed, and all settings of the study."""

    task: str
    """`isolated`, `colour` or `sequence`."""
    name: str
    """Name of the series."""
    layer: str
    seed: int
    settings: Mapping[str, Any]
    """Of the study and of the series."""
    data_dir: str | None = None

    @property
    def key(self) -> str:
        """Identity of the run: a hash of all that determines its result."""
        described = {**self.__dict__, "settings": dict(self.settings), "data_dir": load_cached(self.data_dir).source}
        return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()[:16]


@lru_cache(maxsize=2)
def load_cached(data_dir: str | None) -> Digits:
    """The digits of a folder, read once a process."""
    return load(data_dir)


def run(
    question: Question, folder: Path | None = None, on_share: Callable[[float], None] = lambda share: None
) -> dict[str, Any]:
    """Train one run, from its checkpoint if there is one; a dictionary with `name`, `seed`, `history` and `seconds`."""
    checkpoint = folder / f"{question.name}-{question.seed}-{question.key}.pt" if folder is not None else None
    with torch.random.fork_rng(), _logged(folder):
        torch.manual_seed(question.seed)
        trained = RUNS[question.task](question, checkpoint, on_share)
    return {"name": question.name, "seed": question.seed, **trained._asdict()}


@contextmanager
def _logged(folder: Path | None) -> Iterator[None]:
    """Append what the trainer logs to a file in the folder."""
    if folder is None:
        yield
        return
    folder.mkdir(parents=True, exist_ok=True)
    handler = logging.FileHandler(folder / "training.log")
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    trainer.log.addHandler(handler)
    level = trainer.log.level
    trainer.log.setLevel(logging.INFO)
    try:
        yield
    finally:
        trainer.log.setLevel(level)
        trainer.log.removeHandler(handler)
        handler.close()


def _schedule(settings: Mapping[str, Any], **more: Any) -> Schedule:
    return Schedule(**{key: settings[key] for key in SCHEDULE if key in settings}, **more)


LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "mse": F.mse_loss,
    "pcc": PCC(),
    "mape": MAPE(),
    "log-magnitude": LogMagnitude(),
}


def _criterion(settings: Mapping[str, Any]) -> Callable[[Tensor, Tensor, int], Tensor]:
    """The loss of a study as a function of outputs, targets and step; `pcc-mse` is one after the other."""
    name, switch = settings.get("loss", "mse"), settings.get("loss_switch", SWITCH)
    early, late = ("pcc", "mse") if name == "pcc-mse" else (name, name)
    if early not in LOSSES:
        raise ValueError(f"unknown loss {name!r}; there are: {', '.join(LOSSES)}, pcc-mse")
    return lambda output, target, step: LOSSES[early if step < switch else late](output, target)


def _prepared(network: nn.Module, settings: Mapping[str, Any]) -> None:
    """Put a network on its device, and let its readers train in the precision of the study."""
    network.to(best_device())
    for part in network.modules():
        if isinstance(part, ImageReader):
            part.reduced = settings.get("bfloat16", False)


def _pairs(question: Question, checkpoint: Path | None, on_share: Callable[[float], None]) -> Trained:
    """Two digits and the product or ratio of their labels; colour channels with moved digits, or digits side by side."""
    settings, device = question.settings, best_device()
    operation, moved = settings["operation"], question.task == "colour"
    digits = range(1 if operation == "div" else 0, 10)
    samples = settings["train_samples"], settings["test_samples"]
    train, test = tasks.split_pairs(
        load_cached(question.data_dir), digits, settings["folds"], question.seed, samples, operation
    )
    layer = last_layer(question.layer, operation)
    if "layer_seed" in settings and isinstance(layer, Unit):
        layer.reset_parameters(torch.Generator().manual_seed(settings["layer_seed"]))
    if moved:
        network: nn.Module = ColourPairs(layer, digits, identity=settings.get("identity", False))
        order = np.random.RandomState(0).permutation(len(train))
        train = train.take(order[: round(0.85 * len(order))])
    else:
        network = IsolatedPairs(layer, digits)
    _prepared(network, settings)

    def seen(images: Tensor, generator: torch.Generator | None = None) -> Tensor:
        return (tasks.normalise(tasks.move(images, generator)) if moved else images).to(device)

    criterion = _criterion(settings)

    def loss(rows: Any, step: int) -> Tensor:
        images, _, target = train.batch(rows)
        return criterion(network(seen(images))[1], target.to(device), step)

    learned = train.take(np.linspace(0, len(train) - 1, min(len(train), len(test))).astype(np.int64))

    def scores(part: tasks.Pairs) -> dict[str, Any]:
        generator = torch.Generator().manual_seed(0)
        results = [
            network(seen(part.batch(slice(k, k + EVALUATION_BATCH))[0], generator))
            for k in range(0, len(part), EVALUATION_BATCH)
        ]
        labels, output = (torch.cat(one).cpu().numpy() for one in zip(*results, strict=True))
        return _scores(labels, output, part, operation)

    def evaluate() -> dict[str, Any]:
        return {"weights": product_weights(layer), **scores(test), "train": scores(learned)}

    decay = {"layer": 1e-3} if question.layer == "mlp" else {}
    schedule = _schedule(settings, decay=decay)
    known: dict[str, Any] = {"images": 2 * len(train), "name": f"{question.name} {question.seed}"}
    return fit(
        network, len(train), loss, evaluate, schedule, seed=question.seed, checkpoint=checkpoint, on_epoch=on_share, **known
    )


def _scores(labels: Any, output: Any, part: tasks.Pairs, operation: str) -> dict[str, Any]:
    """Accuracies: strict, rounded (quotients: to five digits), and within five per cent; confusions."""
    guessed = np.clip(np.rint(labels), 0, 9).astype(int)
    confusion = np.zeros((10, 10), int)
    np.add.at(confusion, (part.labels.ravel(), guessed.ravel()), 1)
    rounded = np.rint(output) == part.target if operation == "mul" else np.round(output, 5) == np.round(part.target, 5)
    return {
        "accuracy": float(np.mean(rounded)),
        "exact": float(np.mean(output == part.target)),
        "close": float(np.mean(np.abs(output - part.target) <= 0.05 * np.abs(part.target))),
        "label1": float(np.mean(guessed[:, 0] == part.labels[:, 0])),
        "label2": float(np.mean(guessed[:, 1] == part.labels[:, 1])),
        "error": float(np.mean((output - part.target).astype(np.float64) ** 2)),
        "confusion": confusion.tolist(),
    }


def _sequence(question: Question, checkpoint: Path | None, on_share: Callable[[float], None]) -> Trained:
    """Digits one after the other and their cumulative sum or product."""
    settings, device = question.settings, best_device()
    operation, data = settings["operation"], load_cached(question.data_dir)
    most = settings.get("train_sequences")
    train = tasks.sequences(data, "train", settings["length"], operation, question.seed, most)
    validation = tasks.sequences(data, "validation", settings["length"], operation, question.seed)
    tests = {length: tasks.sequences(data, "test", length, operation, 0) for length in settings["lengths"]}
    network = SequenceNetwork(question.layer, operation)
    _prepared(network, settings)
    strength, criterion = settings.get("input_penalty", 1.0), _criterion(settings)

    def loss(rows: Any, step: int) -> Tensor:
        images, target = train.batch(rows)
        total = criterion(network(images.to(device)).ravel(), target.to(device).ravel(), step)
        return total + strength * network.cell.input_penalty() if strength else total

    def numbers(images: Any) -> Tensor:
        parts = [torch.from_numpy(images[k : k + EVALUATION_BATCH]) for k in range(0, len(images), EVALUATION_BATCH)]
        return torch.cat([network.reader(tasks.normalise(part[:, None].to(device)))[:, 0] for part in parts])

    def error(known: Tensor, wanted: tasks.Sequences) -> float:
        states = network.cell(known[torch.from_numpy(wanted.index)])
        return float((states.double() - torch.from_numpy(wanted.target).to(device)).square().mean())

    def evaluate() -> dict[str, Any]:
        held, test = numbers(validation.images), numbers(data.test_images)
        weights = product_weights(network.cell.layer) if network.cell.layer is not None else []
        return {
            "weights": weights,
            "validation": error(held, validation),
            "errors": [error(test, wanted) for wanted in tests.values()],
        }

    schedule = _schedule(settings)
    known: dict[str, Any] = {"images": train.index.size, "name": f"{question.name} {question.seed}"}
    return fit(
        network, len(train), loss, evaluate, schedule, seed=question.seed, checkpoint=checkpoint, on_epoch=on_share, **known
    )


RUNS: dict[str, Callable[..., Trained]] = {"isolated": _pairs, "colour": _pairs, "sequence": _sequence}

_line: tuple[Any, Any]
"""In a worker: the queue on which it tells how far it is, and the event that tells it to stop."""


def _begin(queue: Any, stop: Any) -> None:
    global _line
    _line = queue, stop
    torch.set_num_threads(1)


def _work(question: Question, folder: Path | None, parent: int) -> dict[str, Any]:
    def tell(share: float) -> None:
        queue, stop = _line
        if os.getppid() != parent:  # nobody is waiting for this any more; the checkpoint of the last epoch stays
            os._exit(1)
        if stop.is_set():
            raise InterruptedError("training was stopped")
        queue.put(share)

    return run(question, folder, tell)


def run_all(
    questions: Sequence[Question], folder: Path | None = None, on_share: Callable[[float], None] = lambda share: None
) -> list[dict[str, Any]]:
    """Train many runs, on a processor one on each core (which is faster than one on all cores), and give them in order."""
    for folder_of_data in {question.data_dir for question in questions}:
        load_cached(folder_of_data)  # refuses damaged files before any work
    free = cores()
    if best_device().type != "cpu" or free == 1 or len(questions) == 1:
        return [run(question, folder, on_share) for question in questions]
    context = multiprocessing.get_context("spawn")
    queue, stop = context.SimpleQueue(), context.Event()
    workers = min(free, len(questions))
    with ProcessPoolExecutor(workers, mp_context=context, initializer=_begin, initargs=(queue, stop)) as pool:
        listener = threading.Thread(target=_listen, args=(queue, on_share), daemon=True)
        listener.start()
        try:
            futures = [pool.submit(_work, question, folder, os.getpid()) for question in questions]
            return [future.result() for future in futures]
        except BaseException:
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
        finally:
            queue.put(None)
            listener.join()


def _listen(queue: Any, on_share: Callable[[float], None]) -> None:
    while (share := queue.get()) is not None:
        on_share(share)
