"""A model as a vector of parameters, and how far its trajectories are from the data: compiled, with exact gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from nalm.dynamics.kernels import DENSE, POWER, REAL_POWER, Track, descend, loss_and_gradient, scratch_size
from nalm.layers import NPU, Linear, RealNPU, Stack
from nalm.layers.base import EPS32

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nalm.dynamics.trajectories import Trajectories

__all__ = ["FAMILIES", "Problem", "build", "parameters_of"]

FAMILIES = {"real-npu": REAL_POWER, "npu": POWER, "dense": DENSE}
LABELS = {"real-npu": "Real NPU", "npu": "NPU", "dense": "dense"}
SMALL_START = 0.2
"""Factor on Glorot's initial weights of power units and of the layer behind them, from the authors' code."""


def build(family: str, states: int, hidden: int, seed: int | None = None) -> nn.Sequential:
    """A right-hand side in double precision with the NPU paper's initial parameters.

    `real-npu` and `npu` are power units before a linear layer without bias (the paper's NAU, whose weights its code does not
    bound); `dense` is a network of three layers with tanh.
    """
    if family not in FAMILIES:
        raise ValueError(f"unknown model {family!r}; there are: {', '.join(FAMILIES)}")
    double = torch.float64
    generator = torch.Generator().manual_seed(seed or 0)
    if family == "dense":
        network = nn.Sequential(
            nn.Linear(states, hidden, dtype=double),
            nn.Tanh(),
            nn.Linear(hidden, hidden, dtype=double),
            nn.Tanh(),
            nn.Linear(hidden, states, dtype=double),
        )
    else:
        unit = {"real-npu": RealNPU, "npu": NPU}[family](states, hidden, dtype=double)
        network = Stack(unit, Linear(hidden, states, bias=False, dtype=double))
    with torch.no_grad():
        for name, weight in network.named_parameters():
            if weight.ndim == 1:
                weight.fill_(0.5 if name.endswith("gate") else 0.0)
            elif name.endswith("imaginary"):
                weight.zero_()
            else:
                nn.init.xavier_uniform_(weight, 1.0 if family == "dense" else SMALL_START, generator=generator)
    return network


def parameters_of(network: nn.Module) -> NDArray[np.float64]:
    """All parameters of a network as a vector."""
    vector: NDArray[np.float64] = parameters_to_vector(network.parameters()).detach().numpy().copy()
    return vector


class Problem:
    """Trajectories that a model is to follow, with the scratch of one thread.

    Args:
        data: what was measured.
        family: of the model.
        hidden: its hidden units.
        epsilon: added to magnitudes in power units.
        substeps: steps of fourth order between two times.
        first: how many times as many lead to the second time.
    """

    def __init__(
        self,
        data: Trajectories,
        family: str,
        hidden: int,
        *,
        epsilon: float = EPS32,
        substeps: int = 1,
        first: int = 8,
    ) -> None:
        self.data, self.family, self.hidden = data, family, hidden
        lengths, counts = data.grid(substeps, first)
        states = np.ascontiguousarray(data.states)
        n = states.shape[1]
        self.size = sum(p.numel() for p in build(family, n, hidden).parameters())
        self.gradient = np.zeros(self.size)
        self.path = np.zeros_like(states)
        stages, work = np.zeros((len(lengths), 4, n)), np.zeros(8 * n + scratch_size(n, hidden))
        self.starts = np.stack([piece[0] for _, piece in data.pieces])
        self._track = Track(hidden, epsilon, lengths, counts, self.starts, states, stages, work, self.gradient, self.path)

    def loss(self, theta: NDArray[np.float64]) -> float:
        """Mean square of data minus trajectory, infinite where it blows up; leaves `gradient` and `path` behind."""
        return float(loss_and_gradient(FAMILIES[self.family], np.ascontiguousarray(theta), self._track))

    def descend(
        self, theta: NDArray[np.float64], *, l1: float, rate: float, steps: int, adam: bool
    ) -> tuple[int, float, NDArray[np.float64]]:
        """Steps of Adam or RMSProp: how many were taken before a blow-up, the least loss, and its parameters."""
        now, first, second, best = theta.copy(), np.zeros(self.size), np.zeros(self.size), np.zeros(self.size)
        taken, least = descend(FAMILIES[self.family], now, self._track, l1, rate, steps, adam, first, second, best)
        return int(taken), float(least), best

    def module(self, theta: NDArray[np.float64]) -> nn.Sequential:
        """The model with these parameters."""
        network = build(self.family, len(self.data.names), self.hidden)
        vector_to_parameters(torch.from_numpy(theta.copy()), network.parameters())
        if self.family != "dense":
            network[0].epsilon = self._track.epsilon  # type: ignore[assignment]
        return network
