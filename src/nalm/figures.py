"""The figure of the single-module benchmark: success rate, speed of convergence and sparsity error, side by side."""

from __future__ import annotations

import math
import textwrap
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib import rc_context
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import EngFormatter, MaxNLocator

from nalm.files import replacing

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping, Sequence

    from matplotlib.axes import Axes
    from numpy.typing import NDArray

__all__ = ["Surface", "captioned", "histograms", "pareto", "ready", "save", "shares", "surfaces", "three_panels"]

PANELS = {
    "Success rate": ("success_rate", "success_low", "success_high"),
    "Solved at iteration step": ("solved_at_mean", "solved_at_low", "solved_at_high"),
    "Sparsity error": ("sparsity_mean", "sparsity_low", "sparsity_high"),
}
"""Title of each panel, with the fields of the point and of the ends of its interval."""

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito's colour-blind-safe palette without its yellow, which is too pale on white."""

MARKERS = "osD^vPX<"
"""One more than there are colours, so that a pair comes again only after 56 modules."""

SMALLEST = 1e-8
"""Sparsity error below which the logarithmic scale turns linear, so that zero has its place."""

FORMS: dict[str, dict[str, Any] | None] = {
    ".png": None,
    ".svg": {"Date": None},
    ".pdf": {"CreationDate": None},
    ".eps": None,
}
"""Suffixes of figures, with what must be left out of each so that equal figures are equal files."""

_saving = threading.Lock()
"""Settings of matplotlib belong to the process, so that only one thread may change them at a time."""


def three_panels(
    rows: Sequence[Mapping[str, Any]],
    *,
    labels: Mapping[str, str] | None = None,
    caption: str = "",
    vary: str = "interpolation",
) -> Figure:
    """Draw success rate, solved at iteration step and sparsity error of every module, with their intervals.

    Values run downwards and modules within them, both in the order in which the rows name them; each operation has a row of
    panels. A field that is None is not drawn.

    Args:
        rows: the benchmark's rows, as ``nalm bench --json`` prints them.
        labels: how to print a module's name, where not as it is.
        caption: small text under the figure.
        vary: the field whose values stand on the vertical axis.
    """
    if not rows:
        raise ValueError("a figure needs at least one row, got none")
    for row in rows:
        if vary not in row:
            raise ValueError(f"cannot vary {vary!r}: a row has only {', '.join(row)}")
    modules = _unique(row["module"] for row in rows)
    groups = [[row for row in rows if row["operation"] == name] for name in _unique(row["operation"] for row in rows)]
    values = [_unique(row[vary] for row in group) for group in groups]
    counts = [len(each) for each in values]
    names = [(labels or {}).get(module, module) for module in modules]
    columns = min(len(names), max(1, int(110 / (6 + max(map(len, names))))))
    legend_height, value_height = 0.2 * math.ceil(len(names) / columns), max(0.3, 0.1 + 0.085 * len(names))

    figure = Figure(figsize=(10, 0.4 + legend_height + sum(0.7 + value_height * n for n in counts)), layout="constrained")
    grid = figure.subplots(len(groups), len(PANELS), sharey="row", squeeze=False, height_ratios=counts)
    for line, group, each in zip(grid, groups, values, strict=True):
        for axes, (title, fields) in zip(line, PANELS.items(), strict=True):
            _draw(axes, group, modules, each, vary, fields)
            axes.set_title(title, fontsize="medium")
        plain = [name for name, module in zip(names, modules, strict=True) if _is_plain(group, module)]
        if plain:
            line[-1].annotate(
                f"no discrete weights: {', '.join(plain)}", (0.5, 0.5), xycoords="axes fraction", ha="center", fontsize="small"
            )
        _arrange(line, each)
        heading = f"{group[0]['operation']} by {vary.replace('_', ' ')}"
        line[0].annotate(heading, (0, 1), (-3.5, 6), "axes fraction", "offset points", ha="right", va="baseline")
    handles = [Line2D([], [], label=name, **_style(i)) for i, name in enumerate(names)]
    figure.legend(
        handles=handles, loc="outside upper center", ncols=columns, frameon=False, handletextpad=0.2, columnspacing=1.5
    )
    return captioned(figure, caption)


@dataclass(frozen=True)
class Surface:
    """A function of two numbers over a square, beside the true one."""

    title: str
    axis: NDArray[Any]
    learnt: NDArray[Any]
    true: NDArray[Any]


def surfaces(drawn: Sequence[Surface], *, caption: str = "", trained: tuple[float, float] = (1, 2)) -> Figure:
    """Draw learnt functions and their errors, a column each; a square marks where they were trained."""
    if not drawn:
        raise ValueError("a figure needs at least one surface, got none")
    columns = len(drawn)
    figure = Figure(figsize=(1.2 + 2.3 * columns, 5.4), layout="constrained")
    grid = figure.subplots(2, columns, sharex=True, sharey=True, squeeze=False)
    errors = LogNorm(1e-3, 1e2, clip=True)
    for column, surface in enumerate(drawn):
        extent = (surface.axis[0], surface.axis[-1], surface.axis[0], surface.axis[-1])
        finite = np.abs(surface.true[np.isfinite(surface.true)])
        limit = float(np.quantile(finite, 0.95)) if finite.size else 1.0
        learnt, error = grid[0, column], grid[1, column]
        shown = learnt.imshow(surface.learnt, origin="lower", extent=extent, cmap="RdBu_r", vmin=-limit, vmax=limit)
        figure.colorbar(shown, ax=learnt, shrink=0.75)
        gap = np.abs(surface.learnt - surface.true)
        last = error.imshow(np.where(np.isfinite(gap), gap, np.nan), origin="lower", extent=extent, cmap="viridis", norm=errors)
        learnt.set_title(surface.title, fontsize="medium")
        error.set_xlabel("first input")
        for axes in (learnt, error):
            low, high = trained
            axes.plot([low, high, high, low, low], [low, low, high, high, low], color="black", linewidth=1)
    grid[0, 0].set_ylabel("learnt\nsecond input")
    grid[1, 0].set_ylabel("absolute error\nsecond input")
    figure.colorbar(last, ax=list(grid[1]), shrink=0.75)
    return captioned(figure, caption)


def histograms(panels: Mapping[str, Mapping[str, Any]], *, label: str, caption: str = "") -> Figure:
    """Draw, for each panel, how often values between 0 and 1 come up in each series."""
    figure = Figure(figsize=(1 + 3 * len(panels), 3.2), layout="constrained")
    edges = np.linspace(0, 1, 21)
    for axes, (title, series) in zip(
        figure.subplots(1, len(panels), sharey=True, squeeze=False)[0], panels.items(), strict=True
    ):
        for i, (name, values) in enumerate(series.items()):
            counts, _ = np.histogram(values, edges)
            axes.stairs(counts / max(len(values), 1), edges, color=_style(i)["color"], linewidth=1.6, label=name)
        axes.set_title(title, fontsize="medium")
        axes.set_xlabel(label)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize="small")
    figure.axes[0].set_ylabel("share of runs")
    return captioned(figure, caption)


def pareto(panels: Mapping[str, Mapping[str, tuple[Any, Any]]], *, labels: tuple[str, str], caption: str = "") -> Figure:
    """Draw two quantities of every run against each other, both better the smaller, with a line along the best trade-offs."""
    figure = Figure(figsize=(1.2 + 2.6 * len(panels), 3.6), layout="constrained")
    for axes, (title, series) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True):
        points = []
        for i, (name, (x, y)) in enumerate(series.items()):
            axes.plot(x, y, **{**_style(i), "alpha": 0.7}, label=name)
            points += [(a, b) for a, b in zip(x, y, strict=True) if np.isfinite(b)]
        front: list[tuple[float, float]] = []
        for a, b in sorted(points):
            if not front or b < front[-1][1]:
                front.append((a, b))
        axes.step([a for a, _ in front], [b for _, b in front], where="post", color="0.6", linewidth=1, zorder=0)
        axes.set_yscale("log")
        axes.set_title(title, fontsize="medium")
        axes.set_xlabel(labels[0])
        axes.spines[["top", "right"]].set_visible(False)
    figure.axes[0].set_ylabel(labels[1])
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=6, frameon=False)
    return captioned(figure, caption)


def problems(table: Sequence[Mapping[str, Any]], *, caption: str = "") -> Figure:
    """Success of each line of a table of problems as a bar with its interval; hollow where the first start alone counts."""
    figure = Figure(figsize=(11, 1.2 + 0.34 * len(table)), layout="constrained")
    axes = figure.subplots()
    height = 0.38
    for place, line in enumerate(table):
        low, high = line["success"] - line["success_low"], line["success_high"] - line["success"]
        axes.barh(place - height / 2, line["success"], height, xerr=[[max(low, 0)], [max(high, 0)]], color="C0", ecolor="0.4")
        if line["first_start"] is not None:
            axes.barh(place + height / 2, line["first_start"], height, facecolor="none", edgecolor="C0")
    names = [f"{line['problem']}\n{textwrap.fill(line['module'], 56)}" for line in table]
    axes.set_yticks(range(len(table)), names, fontsize=6, linespacing=1.0)
    figure.get_layout_engine().set(w_pad=0.15)  # type: ignore[union-attr, call-arg]  # small letters grow with the resolution
    axes.set_ylim(len(table) - 0.5, -0.5)
    axes.set_xlim(0, 1.05)
    axes.set_xlabel("success rate: filled, within the starts allowed; hollow, at the first start")
    return captioned(figure, caption)


def shares(values: Mapping[str, Mapping[str, float]], *, caption: str = "", label: str = "share") -> Figure:
    """A shaded square for each row and column of shares between 0 and 1, with the number in it."""
    rows, columns = list(values), list(next(iter(values.values())))
    figure = Figure(figsize=(2.8 + 0.5 * len(columns), 1.4 + 0.34 * len(rows)), layout="constrained")
    axes = figure.subplots()
    grid = np.array([[values[row].get(column, np.nan) for column in columns] for row in rows])
    image = axes.imshow(grid, vmin=0, vmax=1, cmap="Blues", aspect="auto")
    for (row, column), share in np.ndenumerate(grid):
        if share > 0:
            axes.text(
                column, row, f"{share:.2g}", ha="center", va="center", color="white" if share > 0.5 else "black", fontsize=7
            )
    axes.set_xticks(range(len(columns)), columns, rotation=60, ha="right", fontsize="small")
    axes.set_yticks(range(len(rows)), rows, fontsize="small")
    axes.set_xticks(np.arange(len(columns) + 1) - 0.5, minor=True)
    axes.set_yticks(np.arange(len(rows) + 1) - 0.5, minor=True)
    axes.grid(which="minor", color="0.9", linewidth=0.8)
    axes.tick_params(which="both", length=0)
    axes.spines[:].set_visible(False)
    figure.colorbar(image, ax=axes, label=label, shrink=0.8)
    return captioned(figure, caption)


def captioned(figure: Figure, caption: str) -> Figure:
    """Put small text under a figure, and fix its layout."""
    if caption:
        width = int(19 * figure.get_figwidth())
        figure.supxlabel(textwrap.fill(caption, width), x=0.01, ha="left", fontsize="x-small", color="0.3")
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # each drawing would move things a little, and an SVG depend on what came before
    return figure


def ready(path: str | os.PathLike[str]) -> Path:
    """Where a figure is to be saved, if its suffix is one of ours; the folder is made."""
    path = Path(path)
    if path.suffix not in ("", *FORMS):
        raise ValueError(f"a figure is saved as {', '.join(FORMS)} or, without suffix, as .png and .svg, got {path.name!r}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"cannot write {path}: {error.strerror}") from None
    return path


def save(figure: Figure, path: str | os.PathLike[str]) -> list[Path]:
    """Write a figure in the form that the path's suffix names, or as PNG and SVG where it has none; give what was written.

    Parent folders are made. A file appears whole or not at all; SVG and PDF of the same figure are the same to the byte.
    """
    path = ready(path)
    suffixes = [path.suffix] if path.suffix else [".png", ".svg"]
    return [_write(figure, path.with_suffix(suffix)) for suffix in suffixes]


def _write(figure: Figure, path: Path) -> Path:
    with replacing(path) as new, _saving, rc_context({"svg.hashsalt": "nalm", "pdf.fonttype": 42, "ps.fonttype": 42}):
        figure.savefig(new, format=path.suffix[1:], dpi=150, metadata=FORMS[path.suffix])
    return path


def _is_plain(rows: Sequence[Mapping[str, Any]], module: str) -> bool:
    """Whether a module solved something, but has no weights that could be discrete."""
    solved = [row for row in rows if row["module"] == module and row["success_rate"]]
    return bool(solved) and all(row["sparsity_mean"] is None for row in solved)


def _draw(
    axes: Axes,
    rows: Sequence[Mapping[str, Any]],
    modules: Sequence[str],
    values: Sequence[Any],
    vary: str,
    fields: tuple[str, str, str],
) -> None:
    """One panel: a line of points a module, dodged within each value, over the lines of their intervals."""
    point, low, high = fields
    for i, module in enumerate(modules):
        dodge = 0.84 * ((i + 0.5) / len(modules) - 0.5)
        shown = [(values.index(row[vary]) + dodge, row) for row in rows if row["module"] == module and row[point] is not None]
        known = [(y, row) for y, row in shown if row[low] is not None and row[high] is not None]
        style = _style(i)
        ends = [row[low] for _, row in known], [row[high] for _, row in known]
        axes.hlines([y for y, _ in known], *ends, color=style["color"], linewidth=1.2)
        axes.plot([row[point] for _, row in shown], [y for y, _ in shown], **style)


def _arrange(line: Sequence[Axes], values: Sequence[Any]) -> None:
    """Scales and ticks of one row of panels."""
    success, solved, sparsity = line
    for axes in line:
        axes.grid(axis="x", color="0.88", linewidth=0.6)
        axes.set_axisbelow(True)
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.tick_params(axis="y", length=0)
        for i in range(0, len(values), 2):
            axes.axhspan(i - 0.5, i + 0.5, color="0.955", linewidth=0, zorder=0)
    success.set_yticks(range(len(values)), map(str, values))
    success.set_ylim(len(values) - 0.5, -0.5)
    success.set_xlim(-0.03, 1.03)
    solved.set_xlim(0, max(1.0, solved.get_xlim()[1]))
    solved.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10], integer=True))
    solved.xaxis.set_major_formatter(EngFormatter(sep=""))
    sparsity.set_xscale("symlog", linthresh=SMALLEST)
    sparsity.locator_params(axis="x", numticks=6)
    sparsity.set_xlim(-SMALLEST / 2, max(1.0, sparsity.get_xlim()[1]))


def _style(index: int) -> dict[str, Any]:
    colour = COLOURS[index % len(COLOURS)]
    face = colour if index < len(COLOURS) else "white"
    marker = MARKERS[index % len(MARKERS)]
    return {"color": colour, "marker": marker, "markerfacecolor": face, "markersize": 4.5, "linestyle": "none"}


def _unique(values: Iterable[Any]) -> list[Any]:
    return list(dict.fromkeys(values))
