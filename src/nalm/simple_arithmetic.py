"""The NPU paper's simple arithmetic: one network learns x + y, x y, x / y and the root of x at once, from positive numbers.

All runs of a model are trained together. Settings are those of the authors' code, which made the published table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from nalm.exact import Exact
from nalm.figures import COLOURS
from nalm.layers import NALU, NMU, NPU, Linear, RealNPU, Stack, iNALU, units

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["MODELS", "simple_arithmetic"]

OUTPUTS = ("add", "mul", "div", "sqrt")
HIDDEN = 6
COMPILED_ABOVE = 5_000
"""Steps from which compiling them pays."""


def _dense() -> nn.Module:
    return nn.Sequential(nn.Linear(2, 50), nn.Sigmoid(), nn.Linear(50, 50), nn.Sigmoid(), nn.Linear(50, 4))


def _behind(first: Any) -> nn.Module:
    return Stack(first(2, HIDDEN), Linear(HIDDEN, len(OUTPUTS), bias=False))


MODELS: dict[str, tuple[str, Callable[[], nn.Module], str, float]] = {
    "npu": ("NPU", lambda: _behind(NPU), "adam", 5e-3),
    "real-npu": ("Real NPU", lambda: _behind(RealNPU), "adam", 5e-3),
    "nmu": ("NMU", lambda: _behind(NMU), "adam", 5e-3),
    "nalu": ("NALU", lambda: Stack(NALU(2, HIDDEN), NALU(HIDDEN, 4)), "rmsprop", 5e-3),
    "inalu": ("iNALU", lambda: Stack(iNALU(2, HIDDEN), iNALU(HIDDEN, 4)), "rmsprop", 1e-3),
    "dense": ("Dense", _dense, "adam", 5e-3),
}
"""Label, network, optimiser and learning rate of each model."""


def truth(x: Tensor) -> Tensor:
    """The four results, (..., 2) -> (..., 4)."""
    a, b = x[..., 0], x[..., 1]
    return torch.stack([a + b, a * b, a / b, a.clamp_min(0).sqrt()], -1)


def _grid(start: float, step: float, count: int) -> Tensor:
    side = start + step * torch.arange(count, dtype=torch.float64)
    return torch.cartesian_prod(side, side).float()


def _trained(name: str, runs: int, steps: int, batch: int, interval: tuple[float, float]) -> Callable[[Tensor], Tensor]:
    """Train all runs of a model together, and give the function (rows, 2) -> (runs, rows, 4)."""
    _, build, optimiser, rate = MODELS[name]
    modules = []
    for seed in range(runs):
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            modules.append(build())
    base = modules[0]
    keys = [key for key, _ in base.named_parameters()]
    parameters = {key: torch.stack([m.get_parameter(key).detach() for m in modules]) for key in keys}
    if name == "nmu":
        parameters["0.weight"].uniform_(0, 1, generator=torch.Generator().manual_seed(0))
    first = {key: torch.zeros_like(p) for key, p in parameters.items()}
    second = {key: torch.zeros_like(p) for key, p in parameters.items()}

    def loss(own: dict[str, Tensor], x: Tensor) -> Tensor:
        output: Tensor = functional_call(base, own, (x,))
        return (output - truth(x)).square().mean()

    pull: Any = vmap(grad(loss))
    if steps > COMPILED_ABOVE:
        torch.compiler.reset()
        pull = torch.compile(pull)
    low, high = interval
    generator = torch.Generator().manual_seed(0)
    for step in range(1, steps + 1):
        x = low + (high - low) * torch.rand(runs, batch, 2, generator=generator)
        for key, g in pull(parameters, x).items():
            p = parameters[key]
            if optimiser == "adam":
                first[key].mul_(0.9).add_(g, alpha=0.1)
                second[key].mul_(0.999).addcmul_(g, g, value=0.001)
                size = (second[key] / (1 - 0.999**step)).sqrt().add_(1e-8)
                p.sub_(first[key] / (1 - 0.9**step) / size, alpha=rate)
            else:
                second[key].mul_(0.9).addcmul_(g, g, value=0.1)
                p.sub_(g / second[key].sqrt().add_(1e-8), alpha=rate)
        if name == "nmu":
            functional_call(_Projection(base), {f"model.{key}": p for key, p in parameters.items()}, ())

    @torch.no_grad()
    def predict(x: Tensor) -> Tensor:
        result: Tensor = vmap(lambda own: functional_call(base, own, (x,)))(parameters)
        return result

    return predict


class _Projection(nn.Module):
    """Clips every unit of a model, with parameters that stand for those of many runs."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self) -> None:
        """Clip."""
        for unit in units(self.model):
            unit.project_()


def simple_arithmetic(settings: Mapping[str, Any]) -> Exact:
    """Mean absolute error of each model and operation on the paper's grid: median over runs, and their spread.

    Settings: `models` (names), `runs`, `steps`, `batch`, `interval` (of the training inputs).
    """
    wide, positive = _grid(-4.1, 0.2, 41), _grid(0.1, 0.1, 40)
    names = list(settings.get("models", MODELS))
    errors: dict[tuple[str, str], np.ndarray[Any, Any]] = {}
    for name in names:
        predict = _trained(name, settings["runs"], settings["steps"], settings["batch"], tuple(settings["interval"]))
        for number, operation in enumerate(OUTPUTS):
            x = positive if operation == "sqrt" else wide
            gap = (predict(x)[..., number] - truth(x)[:, number]).abs().double().mean(1)
            errors[name, operation] = gap.numpy()
    values: dict[str, float] = {}
    table = []
    for operation in OUTPUTS:
        line: dict[str, Any] = {"operation": operation}
        for name in names:
            found = errors[name, operation]
            middle = float(np.nanmedian(found))
            spread = float(np.nanmedian(np.abs(found - middle)))
            key = f"{name}/{operation}"
            values |= {key: middle, f"{key} low": middle - spread, f"{key} high": middle + spread}
            line |= {name: middle, f"{name} spread": spread}
        for name in names:
            values |= {f"{name}/{operation} over {other}": line[name] / line[other] for other in names if other != name}
        table.append(line)
    return Exact(values, table, lambda: _figure(errors, names))


def _figure(errors: Mapping[tuple[str, str], Any], names: list[str]) -> Figure:
    figure = Figure(figsize=(10, 3.4), layout="constrained")
    for axes, operation in zip(figure.subplots(1, len(OUTPUTS), sharey=False), OUTPUTS, strict=True):
        for place, name in enumerate(names):
            found = errors[name, operation]
            colour = COLOURS[place % len(COLOURS)]
            axes.plot(np.full(len(found), place), found, "o", color=colour, markersize=3, alpha=0.5)
            axes.plot([place - 0.3, place + 0.3], [np.nanmedian(found)] * 2, color=colour, linewidth=2)
        axes.set_yscale("log")
        axes.set_xticks(range(len(names)), [MODELS[name][0] for name in names], rotation=60, ha="right", fontsize="small")
        axes.set_title(operation, fontsize="medium")
        axes.grid(axis="y", color="0.9", linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
    figure.supylabel("mean absolute error on the test grid", fontsize="small")
    return figure
