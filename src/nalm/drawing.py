"""Figures of experiments that train: from the rows of a report and what its runs learned to a picture."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.nn.utils import vector_to_parameters

from nalm import figures
from nalm.engine.data import evaluation_inputs
from nalm.operations import operation_of
from nalm.sampling import VALIDATION

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.figure import Figure

    from nalm.claims import Row
    from nalm.experiments import Condition, Experiment
    from nalm.models import Model
    from nalm.specs import Cell, Runs

__all__ = ["Drawing"]


class Drawing:
    """Draws the figure that an experiment names, from its rows and from what its runs learned."""

    def __init__(
        self,
        experiment: Experiment,
        rows: Sequence[Row],
        table: Sequence[Mapping[str, Any]],
        asked: Sequence[tuple[Condition, Cell, Model]],
        raw: Mapping[tuple[Cell, int], Runs],
    ) -> None:
        self.experiment, self.rows, self.table, self.asked, self.raw = experiment, rows, table, asked, raw

    def __call__(self, caption: str) -> Figure | None:
        """The figure, or None where the experiment has none."""
        kind = self.experiment.figure
        if kind == "surfaces":
            return figures.surfaces(self._surfaces(), caption=caption)
        if kind == "gates":
            return figures.histograms(self._gates(), label="mean gate (1: sum, 0: product)", caption=caption)
        if kind == "pareto":
            words = ("parameters above 0.01 in magnitude", "test error")
            return figures.pareto(self._trade_offs(), labels=words, caption=caption)
        if kind == "problems":
            return figures.problems(self.table, caption=caption)
        if kind == "networks":
            return figures.shares(self._shares(), caption=caption, label="share of seeds that solve it")
        if kind == "none":
            return None
        swept = bool(self.experiment.sweep)
        vary = self.experiment.vary
        rows = []
        for row in self.rows:
            name = f"{row.summary['label']} {row.varied}" if swept and vary == "interpolation" else row.summary["label"]
            rows.append({**row.summary, "module": name, "varied": row.varied, "series": row.series})
        return figures.three_panels(rows, caption=caption, vary=vary)

    def _gates(self) -> dict[str, dict[str, Any]]:
        """Mean of the second layer's gate over validation inputs, after training, for every run; by operation and series."""
        panels: dict[str, dict[str, Any]] = {}
        for condition, cell, model in self.asked:
            columns = evaluation_inputs(cell.interpolation, cell.inputs, 1_000, VALIDATION)
            x = torch.from_numpy(columns.astype(np.float32)).T.contiguous()
            means = []
            for weights in self.raw[cell, condition.seeds].weights:
                first, second = self._module(cell, model, weights).children()
                with torch.no_grad():
                    means.append(
                        float(torch.nn.functional.linear(first(x), second.get_parameter("gate_weight")).sigmoid().mean())
                    )
            panels.setdefault(cell.operation, {})[condition.label] = np.array(means)
        return panels

    def _shares(self) -> dict[str, dict[str, float]]:
        """Share of runs solved, by network and expression."""
        shares: dict[str, dict[str, float]] = {}
        for row in self.rows:
            shares.setdefault(row.summary["label"], {})[row.operation] = float(row.outcomes.solved.mean())
        return shares

    def _trade_offs(self) -> dict[str, dict[str, tuple[Any, Any]]]:
        """Parameters that count and test error of every run, by operation and module."""
        panels: dict[str, dict[str, tuple[Any, Any]]] = {}
        for (condition, cell, _), row in zip(self.asked, self.rows, strict=True):
            counts = (np.abs(self.raw[cell, condition.seeds].weights) > 0.01).sum(1)
            panels.setdefault(cell.operation, {})[condition.label] = (counts, row.outcomes.extrapolation_error)
        return panels

    @staticmethod
    def _module(cell: Cell, model: Model, weights: Any) -> torch.nn.Module:
        module = model.build(cell.inputs).eval()
        vector_to_parameters(torch.tensor(weights, dtype=torch.float32), module.parameters())
        return module

    def _surfaces(self) -> list[figures.Surface]:
        """What the best run of every condition computes over a square around the training range."""
        axis = np.linspace(-6, 6, 121)
        a, b = np.meshgrid(axis, axis)
        points = torch.tensor(np.stack([a.ravel(), b.ravel()], 1), dtype=torch.float32)
        drawn = []
        for condition, cell, model in self.asked:
            runs = self.raw[cell, condition.seeds]
            last = np.where(np.isfinite(runs.validation[:, -1]), runs.validation[:, -1], np.inf)
            module = self._module(cell, model, runs.weights[int(np.argmin(last))])
            with np.errstate(all="ignore"):
                target = operation_of(cell.operation).truth(points.numpy().T)
            with torch.no_grad():
                learnt = module(points).squeeze(-1).numpy().reshape(a.shape)
            title = f"{condition.label}, {cell.operation}"
            drawn.append(figures.Surface(title, axis, learnt, target.reshape(a.shape)))
        return drawn
