"""Where the robust recipe fails: the same problems made harder, one property of the data at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from matplotlib.figure import Figure
from torch import Tensor

from nalm.exact import Exact
from nalm.figures import COLOURS
from nalm.layers import NAU, NMRU, NMU, RealNPU, Stack
from nalm.options import LogMagnitude, Restarts, Snap
from nalm.solver import fit

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import nn

__all__ = ["robust_limits"]

LEVELS: dict[str, tuple[float, ...]] = {
    "relative noise, known": (0.0, 0.01, 0.05, 0.2, 0.5),
    "relative noise, not known": (0.0, 1e-5, 1e-3, 0.05),
    "share of exact zeros among the inputs": (0.0, 0.01, 0.1, 0.5),
    "correlation of the inputs": (0.0, 0.9, 0.99, 0.999, 0.999999),
    "inputs": (10, 30, 100, 300),
    "rows to learn from": (500, 100, 30, 15, 8),
    "layers of two sums and a product": (2, 3, 4),
}
"""What is made harder, and how far."""


def _inputs(rows: int, inputs: int, generator: torch.Generator, correlation: float = 0.0, zeros: float = 0.0) -> Tensor:
    """Numbers between 0.5 and 2 or their negatives; correlated ones share a part; some are exactly zero."""
    own = torch.rand(rows, inputs, generator=generator, dtype=torch.float64)
    shared = torch.rand(rows, 1, generator=generator, dtype=torch.float64)
    weight = correlation**0.5
    x = 0.5 + 1.5 * (weight * shared + (1 - correlation) ** 0.5 * own) / (weight + (1 - correlation) ** 0.5)
    signs = 1 - 2 * torch.randint(2, (rows if not correlation else 1, inputs), generator=generator).double()
    kept = (torch.rand(rows, inputs, generator=generator) >= zeros).double()
    result: Tensor = x * signs * kept
    return result


def _deep(layers: int) -> nn.Module:
    """Sums and products of two by turns, the last with one output."""
    kinds: list[Any] = [NAU, NMU]
    return Stack(*(kinds[k % 2](6 if k == 0 else 2, 1 if k == layers - 1 else 2) for k in range(layers)))


def _deep_truth(layers: int, x: Tensor) -> Tensor:
    a, b = x[:, 0] + x[:, 1], x[:, 2] + x[:, 3]
    values = a * b, a
    for k in range(2, layers):
        values = (values[0] + values[1], values[0]) if k % 2 == 0 else (values[0] * values[1], values[0])
    return values[0]


TASKS: dict[str, tuple[Callable[[int], nn.Module], Any, Callable[[Tensor], Tensor]]] = {
    "NAU, x1 - x2": (lambda n: NAU(n, 1), "mse", lambda x: x[:, 0] - x[:, 1]),
    "NMU, x1 x2": (lambda n: NMU(n, 1), LogMagnitude(), lambda x: x[:, 0] * x[:, 1]),
    "NMRU, x1 / x2": (lambda n: NMRU(n, 1), LogMagnitude(), lambda x: x[:, 0] / x[:, 1]),
    "Real NPU, x1 / x2": (lambda n: RealNPU(n, 1), LogMagnitude(), lambda x: x[:, 0] / x[:, 1]),
}


def _one(what: str, level: float, task: str, seed: int, starts: int) -> bool:
    """Whether the right formula is found and verified for one seed."""
    generator = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    inputs = int(level) if what == "inputs" else 10
    rows = int(level) if what == "rows to learn from" else 2_000
    noise = level if what.startswith("relative noise") else 0.0
    if what.startswith("layers"):
        x = _inputs(rows, 6, generator).abs()
        module, loss, y = _deep(int(level)), "mse", _deep_truth(int(level), x)
    else:
        correlation = level if what.startswith("correlation") else 0.0
        x = _inputs(rows, inputs, generator, correlation, level if what.startswith("share") else 0.0)
        if what.startswith("share") and "/" in task:
            x[:, 1] = torch.where(x[:, 1] == 0, 1.0, x[:, 1])  # a quotient by zero is not a number
        build, loss, truth = TASKS[task]
        module, y = build(inputs), truth(x)
    spread = y.std() if loss == "mse" else y.abs()
    noisy = y + noise * spread * torch.randn(len(y), generator=generator, dtype=torch.float64)
    snap = Snap(noise=noise) if what.endswith(", known") else Snap()
    found = fit(module, x, noisy, loss=loss, snap=snap, restarts=Restarts(starts, start="selecting"), generator=generator)
    if not found.verified:
        return False
    unseen = _inputs(200, x.shape[1], generator).abs() * 3
    right = _deep_truth(int(level), unseen) if what.startswith("layers") else TASKS[task][2](unseen)
    with torch.no_grad():
        off = (module.double()(unseen).squeeze(-1) - right).abs() / right.abs()
    return bool(off.median() < 1e-4)


def robust_limits(settings: Mapping[str, Any]) -> Exact:
    """Share of seeds for which the right formula is found, for each property and level."""
    seeds, starts = int(settings.get("seeds", 10)), int(settings.get("starts", 10))
    table: list[dict[str, Any]] = []
    for what, levels in LEVELS.items():
        tasks = ["stack"] if what.startswith("layers") else list(TASKS)
        for level in levels:
            rates = {task: sum(_one(what, level, task, seed, starts) for seed in range(seeds)) / seeds for task in tasks}
            empty = dict.fromkeys(TASKS, "")
            shown = {"NAU, x1 - x2": f"{rates['stack']:.1f} (whole stack)"} if "stack" in rates else rates
            table.append({"what": what, "level": f"{level:g}", **empty, **shown})
    return Exact(values={}, table=table, figure=lambda: _figure(table))


def _figure(table: list[dict[str, Any]]) -> Figure:
    kinds = [what for what in LEVELS if not what.startswith("layers")]
    figure = Figure(figsize=(12, 6), layout="constrained")
    for axes, what in zip(figure.subplots(2, 3, sharey=True).flat, kinds, strict=False):
        lines = [line for line in table if line["what"] == what]
        for size, colour, task in zip((11, 8, 5, 2), COLOURS, TASKS, strict=False):  # lines that coincide stay visible
            shares = [line[task] for line in lines]
            axes.plot([line["level"] for line in lines], shares, "o-", markersize=size, lw=size / 2, color=colour, label=task)
        axes.set_xlabel(what)
        axes.set_ylim(-0.05, 1.05)
    figure.axes[0].legend(fontsize=8)
    figure.supylabel("share of seeds with the right formula")
    return figure
