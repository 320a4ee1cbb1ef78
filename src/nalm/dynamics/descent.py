"""Training a right-hand side through its trajectories, as in the NPU paper: descent, then L-BFGS."""

from __future__ import annotations

import math
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import minimize

from nalm.checks import finite, whole
from nalm.dynamics.problems import FAMILIES, Problem, build, parameters_of
from nalm.native import cores

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from nalm.dynamics.trajectories import Trajectories

__all__ = ["OPTIMISERS", "Descent", "Run", "lbfgs", "train", "train_all"]

OPTIMISERS = ("rmsprop", "adam")
COUNTED = 1e-3
"""Magnitude from which the NPU paper counts a parameter."""
UNIT = 0.05
"""Length of L-BFGS's first step, at most: a longer one blows solutions up."""
PROGRESS = 0.999
"""Share of the loss below which L-BFGS must come to be started again: it stops where a state changes its sign."""
WALL = 1e30
"""Stands for the loss where a solution blows up, so that a line search turns back."""


@dataclass(frozen=True)
class Descent:
    """How a model is trained; the defaults are those of the NPU paper's code."""

    model: str = "real-npu"
    hidden: int = 6
    l1: float = 0.0
    """Strength of the L1 norm of all parameters."""
    optimiser: str = "rmsprop"
    learning_rate: float = 5e-3
    steps: int = 3000
    polish: int = 1000
    """Steps of L-BFGS afterwards, at most."""
    substeps: int = 1
    """Steps of the solver between two times."""

    def __post_init__(self) -> None:
        """Refuse what makes no sense."""
        if self.model not in FAMILIES:
            raise ValueError(f"unknown model {self.model!r}; there are: {', '.join(FAMILIES)}")
        if self.optimiser not in OPTIMISERS:
            raise ValueError(f"unknown optimiser {self.optimiser!r}; there are: {', '.join(OPTIMISERS)}")
        for name, least in (("hidden", 1), ("substeps", 1), ("steps", 0), ("polish", 0)):
            whole(name, getattr(self, name), least)
        for name in ("l1", "learning_rate"):
            finite(name, getattr(self, name), 0)


@dataclass(frozen=True)
class Run:
    """A trained model."""

    theta: NDArray[np.float64]
    """Its parameters; those of the least loss before a blow-up, if there was one."""
    loss: float
    """Mean square plus L1."""
    error: float
    """Mean square."""
    status: str
    """`ok` or `diverged`."""
    steps: int
    """Steps of descent before a blow-up."""
    seed: int = 0
    seconds: float = 0.0
    """Processor time that it took."""

    @property
    def parameters(self) -> int:
        """Parameters that the NPU paper would count."""
        return int((np.abs(self.theta) > COUNTED).sum())


def train(data: Trajectories, how: Descent, seed: int = 0) -> Run:
    """Train one model; its result depends on nothing but the arguments."""
    clock = time.thread_time()
    problem = Problem(data, how.model, how.hidden, substeps=how.substeps)
    start = parameters_of(build(how.model, len(data.names), how.hidden, seed))
    taken, _, theta = problem.descend(start, l1=how.l1, rate=how.learning_rate, steps=how.steps, adam=how.optimiser == "adam")
    status = "ok" if taken == how.steps else "diverged"
    if status == "ok" and how.polish:
        theta = lbfgs(problem, theta, l1=how.l1, iterations=how.polish)
    error = problem.loss(theta)
    loss = error + how.l1 * float(np.abs(theta).sum())
    status = status if math.isfinite(loss) else "diverged"
    return Run(theta, loss, error, status, taken, seed, time.thread_time() - clock)


def train_all(
    data: Trajectories, questions: Sequence[tuple[Descent, int]], on_run: Callable[[int, Run], None] = lambda number, run: None
) -> list[Run]:
    """Train many models, one a thread at a time; `on_run` is called with the place and the result of each as it ends."""

    def work(number: int) -> Run:
        run = train(data, *questions[number])
        on_run(number, run)
        return run

    with ThreadPoolExecutor(cores()) as pool:
        futures = [pool.submit(work, number) for number in range(len(questions))]
        try:
            return [future.result() for future in futures]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def lbfgs(problem: Problem, theta: NDArray[np.float64], *, l1: float = 0.0, iterations: int = 1000) -> NDArray[np.float64]:
    """Parameters at a minimum of mean square plus L1.

    A parameter is the difference of two numbers that are not negative, whose sum is its magnitude. The loss is then smooth, and
    the L1 norm sets parameters to zero exactly.
    """
    count = len(theta)

    def joined(parts: NDArray[np.float64]) -> NDArray[np.float64]:
        return UNIT * (parts[:count] - parts[count:])

    def loss(parts: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        value = problem.loss(joined(parts))
        if not math.isfinite(value):
            return WALL, np.zeros(2 * count)
        slope = problem.gradient
        return value + l1 * UNIT * float(parts.sum()), UNIT * (np.concatenate([slope, -slope]) + l1)

    parts = np.concatenate([np.maximum(theta, 0), np.maximum(-theta, 0)]) / UNIT
    least, left = math.inf, iterations
    while left > 0:
        options = {"maxiter": left, "maxfun": 2 * left, "maxcor": 20, "ftol": 1e-12, "gtol": 1e-10}
        found = minimize(loss, parts, jac=True, method="L-BFGS-B", bounds=[(0, None)] * (2 * count), options=options)
        parts, left = found.x, left - max(found.nit, 1)
        if not found.fun < PROGRESS * least:
            break
        least = found.fun
    return joined(parts)
