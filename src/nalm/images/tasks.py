"""The papers' data rules for digits: pairs by fold, moved digits, sequences; images stay bytes until a batch is asked for."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from sklearn.model_selection import KFold
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from nalm.images.digits import Digits

__all__ = ["Pairs", "Sequences", "fold_pairs", "move", "normalise", "pairs", "sequences", "split_pairs"]

MEAN, DEVIATION = 0.1307, 0.3081
"""Of the pixels of MNIST, by which all images are normalised."""
CANVAS = 42
"""Side of the image that a moved digit is placed in."""
VALIDATION_IMAGES = 5_000
"""Of MNIST's training images, the last so many are for validation in sequential tasks."""
SEEDS = {"validation": 47_430_696, "test": 88_253_339}
"""Of the order of the images in sequences that all runs share."""


def normalise(images: Tensor) -> Tensor:
    """From bytes, or numbers between 0 and 1, to the scale that the papers' networks see."""
    pixels = images.to(torch.float32).div_(255.0) if images.dtype == torch.uint8 else images
    return (pixels - MEAN) / DEVIATION


def fold_pairs(digits: Sequence[int], folds: int, fold: int) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Ordered pairs for training and for testing; over all folds each pair is tested once."""
    if not 0 <= fold < folds:
        raise ValueError(f"fold must be between 0 and {folds - 1}, got {fold}")
    listed = [(a, b) for a in digits for b in digits]
    train, test = list(KFold(folds, shuffle=True, random_state=np.random.RandomState(0)).split(listed))[fold]
    return [listed[k] for k in train], [listed[k] for k in test]


@dataclass(frozen=True)
class Pairs:
    """Samples of two images each: which images, their labels, and the number to be learned."""

    images: NDArray[np.uint8]
    """All images, (n, 28, 28)."""
    index: NDArray[np.int64]
    """(samples, 2)."""
    labels: NDArray[np.int64]
    """(samples, 2)."""
    target: NDArray[np.float32]
    """(samples)."""

    def __len__(self) -> int:
        """Number of samples."""
        return len(self.index)

    def take(self, rows: NDArray[Any] | slice) -> Pairs:
        """Some of the samples."""
        return Pairs(self.images, self.index[rows], self.labels[rows], self.target[rows])

    def batch(self, rows: NDArray[Any] | slice) -> tuple[Tensor, Tensor, Tensor]:
        """Images (rows, 2, 28, 28) as bytes, labels (rows, 2) and targets (rows)."""
        return (
            torch.from_numpy(self.images[self.index[rows]]),
            torch.from_numpy(self.labels[rows]),
            torch.from_numpy(self.target[rows]),
        )


def pairs(
    images: NDArray[np.uint8],
    labels: NDArray[np.uint8],
    chosen: Sequence[tuple[int, int]],
    samples: int,
    seed: int,
    operation: str,
) -> Pairs:
    """So many samples of each pair, drawn with replacement from the images of its digits."""
    if samples < 1:
        raise ValueError(f"samples must be at least 1, got {samples}")
    rng = np.random.RandomState(seed)
    by_digit = {digit: np.flatnonzero(labels == digit) for digit in {d for pair in chosen for d in pair}}
    for digit, own in by_digit.items():
        if not len(own):
            raise ValueError(f"there is no image of the digit {digit}")
    index = np.concatenate([np.stack([rng.choice(by_digit[d], samples) for d in pair], 1) for pair in chosen])
    known = labels[index].astype(np.int64)
    first, second = known[:, 0].astype(np.float64), known[:, 1].astype(np.float64)
    target = first * second if operation == "mul" else first / second
    return Pairs(images, index, known, target.astype(np.float32))


def split_pairs(
    data: Digits, digits: Sequence[int], folds: int, fold: int, samples: tuple[int, int], operation: str
) -> tuple[Pairs, Pairs]:
    """Training samples from training images and pairs of the fold, test samples from test images and the other pairs."""
    train, test = fold_pairs(digits, folds, fold)
    return (
        pairs(data.train_images, data.train_labels, train, samples[0], fold, operation),
        pairs(data.test_images, data.test_labels, test, samples[1], fold, operation),
    )


def move(images: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Rotate by up to 45 degrees, scale by 0.7 to 1.2 and place in 42 x 42 pixels, (..., 28, 28) -> (..., 42, 42).

    Each image has its own draw. Bytes become numbers between 0 and 1. What leaves the 28 x 28 window is cut off, as published.
    """
    flat = images.reshape(-1, 1, *images.shape[-2:])
    pixels = flat.to(torch.float32) / 255.0 if flat.dtype == torch.uint8 else flat
    count, side = len(flat), flat.shape[-1]

    def uniform(low: float, high: float) -> Tensor:
        return low + (high - low) * torch.rand(count, generator=generator)

    angle, scale = uniform(-math.pi / 4, math.pi / 4), uniform(0.7, 1.2)
    offset = torch.randint(0, CANVAS - side - 1, (count, 2), generator=generator).to(torch.float32)
    place = torch.arange(CANVAS, dtype=torch.float32) - (side - 1) / 2
    v = (place - offset[:, :1])[:, :, None].expand(count, CANVAS, CANVAS)
    u = (place - offset[:, 1:])[:, None, :].expand(count, CANVAS, CANVAS)
    inside = (u.abs() <= side / 2) & (v.abs() <= side / 2)
    cosine, sine = (torch.cos(angle) / scale)[:, None, None], (torch.sin(angle) / scale)[:, None, None]
    grid = torch.stack([cosine * u + sine * v, cosine * v - sine * u], -1) * (2 / side)
    moved = F.grid_sample(pixels, grid, align_corners=False)[:, 0] * inside
    return moved.reshape(*images.shape[:-2], CANVAS, CANVAS)


@dataclass(frozen=True)
class Sequences:
    """Sequences of images that stay the same throughout training; targets after each step."""

    images: NDArray[np.uint8]
    index: NDArray[np.int64]
    """(sequences, length)."""
    target: NDArray[np.float32]
    """Cumulative sum or product, (sequences, length)."""

    def __len__(self) -> int:
        """Number of sequences."""
        return len(self.index)

    def batch(self, rows: NDArray[Any] | slice) -> tuple[Tensor, Tensor]:
        """Images (rows, length, 28, 28) as bytes and targets (rows, length)."""
        return torch.from_numpy(self.images[self.index[rows]]), torch.from_numpy(self.target[rows])


def sequences(data: Digits, part: str, length: int, operation: str, seed: int, most: int | None = None) -> Sequences:
    """The sequences of a part of the data (`train`, `validation`, `test`).

    The images are permuted once and cut into pieces that share no image; what is left over is dropped. Products use the digits
    1 to 9. The last 5,000 training images, or a twelfth of a smaller set, are for validation.
    """
    if length < 1:
        raise ValueError(f"a sequence needs at least one image, got length {length}")
    if part == "test":
        images, labels = data.test_images, data.test_labels
    else:
        held = min(VALIDATION_IMAGES, len(data.train_images) // 12)
        own = slice(0, -held) if part == "train" else slice(len(data.train_images) - held, None)
        images, labels = data.train_images[own], data.train_labels[own]
    allowed = np.flatnonzero(labels > 0) if operation == "mul" else np.arange(len(labels))
    order = np.random.RandomState(seed if part == "train" else SEEDS[part]).permutation(allowed)
    count = len(order) // length
    if most is not None:
        count = min(count, most)
    if count < 1:
        raise ValueError(f"{len(order)} images of the {part} set do not make a sequence of length {length}")
    index = order[: count * length].reshape(count, length)
    values = labels[index].astype(np.float64)
    target = np.cumprod(values, 1) if operation == "mul" else np.cumsum(values, 1)
    return Sequences(images, index, target.astype(np.float32))
