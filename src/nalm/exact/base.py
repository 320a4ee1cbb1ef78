"""What computations share: their result, small tools, heat maps and curves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from matplotlib.figure import Figure
from torch import Tensor

from nalm.figures import COLOURS, MARKERS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Normalize

__all__ = [
    "DOUBLE",
    "Exact",
    "Layer",
    "Settings",
    "doubles",
    "draw_curves",
    "draw_heat_maps",
    "draw_panels",
    "draw_uniform",
    "largest_gap",
    "plain_table",
    "six_digits",
    "spaced",
]

Settings = Mapping[str, Any]
Layer = Callable[[Tensor, Tensor], Tensor]

DOUBLE = torch.float64
doubles = partial(torch.tensor, dtype=DOUBLE)


@dataclass(frozen=True)
class Exact:
    """What a computation gives."""

    values: dict[str, float]
    """Named numbers, to which claims refer; truth is 1, falsehood 0."""
    table: list[dict[str, Any]]
    """Rows for CSV and Markdown."""
    figure: Callable[[], Figure] | None = None
    """Draws the figure, if there is one."""
    core_seconds: float | None = None
    """What its runs took one core, whenever they were trained; None where nothing is kept between runs."""


def plain_table(values: Mapping[str, float]) -> list[dict[str, Any]]:
    """The plain table: a row a value."""
    return [{"quantity": name.replace("_", " "), "value": value} for name, value in values.items()]


def spaced(ends: Sequence[float], points: int) -> Tensor:
    """Evenly spaced numbers from end to end."""
    return torch.linspace(ends[0], ends[1], points, dtype=DOUBLE)


def draw_uniform(generator: torch.Generator, low: float, high: float, *shape: int) -> Tensor:
    """Uniform numbers in double precision."""
    return low + (high - low) * torch.rand(*shape, generator=generator, dtype=DOUBLE)


def largest_gap(one: Tensor, other: Tensor) -> float:
    """Largest difference, relative to the largest entry."""
    return float((one - other).abs().max() / other.abs().max())


def six_digits(numbers: Tensor) -> str:
    """Numbers for a cell of a table."""
    return ", ".join(f"{value:.6g}" for value in numbers.tolist())


# Figures


def draw_panels(titles: Iterable[str], draw: Callable[[str, Axes], None], width: float = 3.7, height: float = 3.3) -> Figure:
    """A row of panels, each drawn by its title; with one legend, where what they show has the same names."""
    names = list(titles)
    figure = Figure(figsize=(width * len(names), height), layout="constrained")
    row = list(figure.subplots(1, len(names), squeeze=False)[0])
    for name, axes in zip(names, row, strict=True):
        axes.set_title(name, fontsize="medium")
        draw(name, axes)
    keys = [axes.get_legend_handles_labels() for axes in row]
    if keys[0][1] and all(labels == keys[0][1] for _, labels in keys):
        figure.legend(*keys[0], loc="outside lower center", ncols=len(keys[0][1]), frameon=False, fontsize="small")
    else:
        for axes, (_, labels) in zip(row, keys, strict=True):
            if labels:
                axes.legend(frameon=False, fontsize="small")
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # each drawing would move things a little
    return figure


def draw_heat_maps(
    maps: Mapping[str, tuple[Tensor, Tensor, Tensor]],
    labels: tuple[str, str, str],
    norm: Normalize,
    points: Mapping[str, tuple[float, float]] | None = None,
    colours: str = "viridis",
) -> Callable[[], Figure]:
    """A panel for each (x, y, z), z of shape (x, y), with marked points; the colour bar points to what lies beyond it."""

    def draw(title: str, axes: Axes) -> None:
        x, y, z = maps[title]
        half = [float(side[1] - side[0]) / 2 for side in (x, y)]
        extent = (float(x[0]) - half[0], float(x[-1]) + half[0], float(y[0]) - half[1], float(y[-1]) + half[1])
        image = axes.imshow(z.T.numpy(), norm=norm, cmap=colours, origin="lower", extent=extent, aspect="auto")
        ends = float(z.min()) < float(norm.vmin or 0), float(z.max()) > float(norm.vmax or 0)
        beyond = {(True, True): "both", (True, False): "min", (False, True): "max"}.get(ends, "neither")
        axes.figure.colorbar(image, ax=axes, label=labels[2], extend=beyond)
        axes.set(xlabel=labels[0], ylabel=labels[1])
        for (name, place), colour in zip((points or {}).items(), (COLOURS[1], COLOURS[3], COLOURS[6]), strict=False):
            axes.plot(*place, "X", color=colour, markeredgecolor="white", markersize=9, label=name, clip_on=False)

    return lambda: draw_panels(maps, draw, *((5.2, 4.2) if len(maps) == 1 else (3.7, 3.3)))


def draw_curves(
    panels: Mapping[str, tuple[Any, Mapping[str, Any], str, str]], marked: bool = False, scale: Mapping[str, Any] | None = None
) -> Callable[[], Figure]:
    """A panel for each (x, curves by name, label of x, label of y)."""

    def draw(title: str, axes: Axes) -> None:
        x, curves, x_label, y_label = panels[title]
        for (name, y), colour, marker in zip(curves.items(), COLOURS, MARKERS, strict=False):
            axes.plot(x, y, color=colour, marker=marker if marked else None, markersize=4, linewidth=1.4, label=name)
        axes.grid(color="0.88", linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
        axes.set(xlabel=x_label, ylabel=y_label, **(scale or {}))

    return lambda: draw_panels(panels, draw, 4.3, 3.5)


# Loss surfaces
