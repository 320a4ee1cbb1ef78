"""The papers' networks around a NALM: digit classifiers, a spatial transformer by thin-plate splines, recurrent cells."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from nalm.images.tasks import normalise
from nalm.layers import NMRU, Unit
from nalm.registry import create

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "CELLS",
    "PAIR_LAYERS",
    "Cell",
    "ColourPairs",
    "DigitClassifier",
    "ImageReader",
    "IsolatedPairs",
    "SequenceNetwork",
    "SoftArgmax",
    "ThinPlateSpline",
    "last_layer",
    "product_weights",
]

PAIR_LAYERS: dict[str, tuple[str, dict[str, Any]]] = {
    "fc": ("product-fc", {}),
    "nmu": ("nmu", {}),
    "snmu": ("snmu", {"noise_range": (1.0, 5.0)}),
    "snmu-batch": ("snmu-batch", {}),
    "real-npu-mod": ("real-npu-mod", {}),
    "nru": ("nru", {}),
    "nmru": ("nmru", {}),
}
"""Last layers that are registered modules, by the names that experiments use; besides there are `solved` and `mlp`."""


class Solved(nn.Module):
    """The operation itself in place of a layer that learns it."""

    def __init__(self, operation: str) -> None:
        super().__init__()
        self.operation = operation

    def forward(self, x: Tensor) -> Tensor:
        """(..., 2) -> (..., 1)."""
        a, b = x[..., :1], x[..., 1:]
        return a * b if self.operation == "mul" else a / b


def last_layer(name: str, operation: str) -> nn.Module:
    """The layer of two labels: `solved`, `mlp` (2-256-256-1) or one of `PAIR_LAYERS`; ValueError with what there is."""
    if name == "solved":
        return Solved(operation)
    if name == "mlp":
        return nn.Sequential(nn.Linear(2, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 1))
    if name not in PAIR_LAYERS:
        raise ValueError(f"unknown layer {name!r}; there are: solved, mlp, {', '.join(PAIR_LAYERS)}")
    registered, options = PAIR_LAYERS[name]
    return create(registered, 2, 1, **options)


class SoftArgmax(nn.Module):
    """From logits to the expected digit: ``sum_k softmax(logits)_k digit_k``, (..., digits) -> (...)."""

    def __init__(self, digits: Sequence[int]) -> None:
        super().__init__()
        self.register_buffer("digits", torch.tensor(list(digits), dtype=torch.float32))

    def forward(self, logits: Tensor) -> Tensor:
        """(..., digits) -> (...)."""
        return (logits.float().softmax(-1) * self.get_buffer("digits")).sum(-1)


class ImageReader(nn.Sequential):
    """Layers from images to numbers.

    With `reduced` they are trained in bfloat16, in twice the speed where the processor has instructions for it; what comes
    after them, and every evaluation, is in float32.
    """

    reduced = False

    def forward(self, images: Tensor) -> Tensor:
        """(batch, channels, height, width) -> numbers."""
        with torch.autocast(images.device.type, torch.bfloat16, enabled=self.reduced and self.training):
            numbers: Tensor = super().forward(images)  # type: ignore[no-untyped-call]
        return numbers.float()


class DigitClassifier(ImageReader):
    """Convolutional classifier of a digit whose output is a number: the expectation of the softmax over the digits.

    The flat size is 9216 for 28 x 28 pixels and 4096 for 21 x 21. Pooling comes before the second ReLU, not after it as in the
    papers: the result is the same, and there is a quarter to rectify.
    """

    def __init__(self, digits: Sequence[int], channels: int = 1, flat: int = 9_216) -> None:
        super().__init__(
            nn.Conv2d(channels, 32, 3),
            nn.ReLU(),
            nn.Conv2d(32, 64, 3),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Dropout(0.25),
            nn.Flatten(),
            nn.Linear(flat, 128),
            nn.ReLU(),
            nn.Dropout(0.5),
            nn.Linear(128, len(digits)),
            SoftArgmax(digits),
        )
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]


class IsolatedPairs(nn.Module):
    """Two images, each classified on its own by one network, and a layer that computes with the two labels."""

    def __init__(self, layer: nn.Module, digits: Sequence[int]) -> None:
        super().__init__()
        self.classifier, self.layer = DigitClassifier(digits), layer

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Bytes (batch, 2, 28, 28) -> labels (batch, 2) and output (batch); the classifier is called once for all digits."""
        batch = images.shape[0]
        labels = self.classifier(normalise(images.reshape(2 * batch, 1, *images.shape[2:]))).reshape(batch, 2)
        return labels, self.layer(labels).squeeze(-1)


class ThinPlateSpline(nn.Module):
    """Warps images so that the pixels at fixed control points come from given places, and all between them smoothly.

    Control points are a `side` x `side` grid over ``[-span, span]``; coordinates run from -1 to 1, x first. Where the given
    places are the control points themselves the warp is the identity (the published code spaces pixels from -1 to 1: it is half
    a pixel off at the borders).
    """

    pixels_at: Tensor
    control: Tensor

    def __init__(self, height: int, width: int, side: int = 4, span: float = 0.9) -> None:
        super().__init__()
        axis = torch.linspace(-span, span, side, dtype=torch.float64)
        y, x = torch.meshgrid(axis, axis, indexing="ij")
        control = torch.stack([x.ravel(), y.ravel()], 1)
        count = len(control)
        affine = torch.cat([torch.ones(count, 1, dtype=torch.float64), control], 1)
        system = torch.zeros(count + 3, count + 3, dtype=torch.float64)
        system[:count, :count] = _bend(control, control)
        system[:count, count:], system[count:, :count] = affine, affine.T
        rows = (torch.arange(height, dtype=torch.float64) + 0.5) * (2 / height) - 1
        columns = (torch.arange(width, dtype=torch.float64) + 0.5) * (2 / width) - 1
        v, u = torch.meshgrid(rows, columns, indexing="ij")
        points = torch.stack([u.ravel(), v.ravel()], 1)
        basis = torch.cat([_bend(points, control), torch.ones(len(points), 1, dtype=torch.float64), points], 1)
        self.height, self.width = height, width
        self.register_buffer("pixels_at", (basis @ torch.linalg.inv(system)[:, :count]).float())
        self.register_buffer("control", control.float())

    def forward(self, images: Tensor, places: Tensor) -> Tensor:
        """Images (batch, channels, h, w) and places (batch, control points, 2) -> (batch, channels, height, width)."""
        grid = (self.pixels_at @ places).reshape(len(places), self.height, self.width, 2)
        return F.grid_sample(images, grid, align_corners=False)


def _bend(points: Tensor, control: Tensor) -> Tensor:
    """Kernel of the spline: half of d² ln d², zero at distance zero."""
    squares = (points[:, None] - control).square().sum(-1)
    return 0.5 * squares * torch.where(squares > 0, squares, 1.0).log()


class Localisation(nn.Sequential):
    """Where to look for one digit in a picture of two: control points in [-1, 1], (batch, 2, 42, 42) -> (batch, 16, 2)."""

    def __init__(self, control: Tensor, identity: bool) -> None:
        super().__init__(
            nn.AvgPool2d(2),
            nn.Conv2d(2, 20, 5),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(20, 20, 5),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(320, 32),
            nn.ReLU(),
            nn.Linear(32, control.numel()),
            nn.Tanh(),
            nn.Unflatten(1, tuple(control.shape)),
        )
        if identity:
            last = self[9]
            with torch.no_grad():
                last.get_parameter("weight").zero_()
                last.get_parameter("bias").copy_(torch.atanh(control).ravel())


class ColourPairs(nn.Module):
    """Two moved digits in two channels: a spatial transformer for each, one classifier for both, and a layer of the labels.

    With `identity`, transformers start from the identity, as the papers intend; the published runs overwrote that by accident,
    and their control points start near zero, which is the default here.
    """

    def __init__(self, layer: nn.Module, digits: Sequence[int], identity: bool = False) -> None:
        super().__init__()
        self.spline = ThinPlateSpline(42, 42)
        self.locate = nn.ModuleList(Localisation(self.spline.control, identity) for _ in range(2))
        self.shrink = nn.AvgPool2d(2)
        self.classifier, self.layer = DigitClassifier(digits, channels=2, flat=4_096), layer

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Images (batch, 2, 42, 42), normalised -> labels (batch, 2) and output (batch)."""
        batch = len(images)
        places = torch.cat([locate(images) for locate in self.locate])
        looked = self.spline(images.repeat(2, 1, 1, 1), places)
        labels = self.classifier(self.shrink(looked)).reshape(2, batch).T
        return labels, self.layer(labels).squeeze(-1)


class DigitRegression(ImageReader):
    """Convolutional network with one number as its output, for sequences; pooling as in the classifier."""

    def __init__(self) -> None:
        super().__init__(
            nn.Conv2d(1, 20, 5),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Conv2d(20, 50, 5),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(800, 500),
            nn.ReLU(),
            nn.Linear(500, 1),
        )
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]


CELLS = {
    "add": ("solved", "nac-add", "nau", "nalu", "lstm"),
    "mul": ("solved", "nac-mul", "nac-mul-sigmoid", "nac-mul-nmu", "nmu", "snmu", "snmu-batch", "nalu", "lstm"),
}
"""Recurrent cells by operation."""


class Cell(nn.Module):
    """A recurrent cell: (number of the image, state) -> state. `solved` is the operation itself, `lstm` an LSTM of size one."""

    STATELESS: ClassVar[tuple[str, ...]] = ("nalu", "lstm")
    """Cells that start from zero for products too, as published."""

    def __init__(self, name: str, operation: str) -> None:
        super().__init__()
        if operation not in CELLS or name not in CELLS[operation]:
            known = "; ".join(f"{key}: {', '.join(names)}" for key, names in CELLS.items())
            raise ValueError(f"no cell {name!r} for {operation!r}; there are {known}")
        self.name, self.operation = name, operation
        self.first = 1.0 if operation == "mul" and name not in self.STATELESS else 0.0
        self.layer: nn.Module | None = None
        if name == "lstm":
            self.layer = nn.LSTMCell(1, 1)
        elif name != "solved":
            registered, options = PAIR_LAYERS.get(name, (name, {}))
            self.layer = create(registered, 2, 1, **options)
        self.seen: list[Tensor] = []

    def forward(self, numbers: Tensor) -> Tensor:
        """Numbers of the images (batch, length) -> states after each (batch, length)."""
        if self.layer is None:
            return numbers.cumprod(1) if self.operation == "mul" else numbers.cumsum(1)
        state = torch.full_like(numbers[:, :1], self.first)
        memory, states, seen = torch.zeros_like(state), [], []
        for step in range(numbers.shape[1]):
            number = numbers[:, step : step + 1]
            if isinstance(self.layer, nn.LSTMCell):
                state, memory = self.layer(number, (state, memory))
            else:
                seen.append(torch.cat([number, state], 1))
                state = self.layer(seen[-1])
            states.append(state)
        self.seen = seen if self.training else []
        return torch.cat(states, 1)

    def input_penalty(self) -> Tensor:
        """R_z: draws the mean of an input that is not selected to the neutral element, 1 of a product and 0 of a sum."""
        if self.layer is None or not self.seen or isinstance(self.layer, nn.LSTMCell):
            return torch.zeros(())
        mean = torch.cat(self.seen).mean(0)
        weights = self.layer.effective_weights()["weight"]  # type: ignore[operator]
        if self.operation == "mul":
            penalty: Tensor = ((1 - weights) * (1 - mean).square()).mean()
        else:
            penalty = ((1 - weights.abs()) * mean.square()).mean()
        return penalty


class SequenceNetwork(nn.Module):
    """A number for every image of a sequence, and a cell that adds them up or multiplies them."""

    def __init__(self, cell: str, operation: str) -> None:
        super().__init__()
        self.reader, self.cell = DigitRegression(), Cell(cell, operation)

    def forward(self, images: Tensor) -> Tensor:
        """Bytes (batch, length, 28, 28) -> states (batch, length); the network is called once for all images."""
        batch, length = images.shape[:2]
        numbers = self.reader(normalise(images.reshape(batch * length, 1, *images.shape[2:])))
        states: Tensor = self.cell(numbers.reshape(batch, length))
        return states


def product_weights(layer: nn.Module) -> list[float]:
    """The numbers that say how a last layer uses each of its two inputs, for trajectories; none for `solved` and `mlp`.

    The NMRU has a weight for an input and one for its reciprocal; their difference is the exponent once both are 0 or 1.
    """
    if not isinstance(layer, Unit):
        return []
    weights = layer.effective_weights()
    main = weights["weight" if "weight" in weights else "real"].detach().ravel()
    if isinstance(layer, NMRU):
        main = main[: layer.in_features] - main[layer.in_features :]
    return [float(weight) for weight in main]
