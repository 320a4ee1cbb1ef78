"""What is asked, as plain data: recipes and cells, with their JSON and identity; and what comes back: raw runs."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from nalm.checks import MOST, built, finite, like, shown, whole
from nalm.options import Centring, LevenbergMarquardt, LogMagnitude, Restarts, Snap

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["Cell", "Recipe", "Runs"]

LOSSES = ("mse", "pcc", "mape", "pcc-mse")
OPTIMISERS = ("adam", "sgd", "rmsprop")
LEAST = {"iterations": 0, "batch": 1, "log_interval": 1, "evaluation_rows": 1, "norm_every": 1}
"""Least values of what is counted."""
MOST_EVALUATIONS = 1_000_000
OPTIONS: dict[str, Any] = {
    "loss": LogMagnitude,
    "centring": Centring,
    "solver": LevenbergMarquardt,
    "snap": Snap,
    "restarts": Restarts,
}
"""Values of a recipe that are objects with parameters of their own."""


@dataclass(frozen=True)
class Recipe:
    """How a module is trained. Every value can be set; the registry holds the published ones."""

    iterations: int = 50_000
    """Steps of training; one more update is made, as in the published code."""
    batch: int = 128
    """Rows a step."""
    log_interval: int = 1_000
    """Steps between evaluations of validation and test error."""
    evaluation_rows: int = 10_000
    """Rows of the validation and of the test set."""
    optimiser: str = "adam"
    """`adam` (0.9, 0.999), `sgd` without momentum, or `rmsprop` (0.9)."""
    learning_rate: float = 1e-3
    loss: str | LogMagnitude = "mse"
    """`mse`, `pcc`, `mape`, `pcc-mse`, which changes at `loss_switch`, or a `LogMagnitude`."""
    loss_switch: int = 25_000
    penalty: float = 0.0
    """Final strength of the module's discretisation penalty."""
    gate_penalty: float | None = None
    """Final strength of its `gate` term where that differs."""
    penalty_start: int = 20_000
    penalty_end: int = 35_000
    """The strength grows linearly between these steps."""
    penalty_below: float | None = None
    """In place of the ramp: full strength while the last validation error is below this, after step `penalty_start`."""
    norm: int = 0
    """Order of the norm penalty on all parameters: 1, 2, or 0 for none."""
    norm_start: float = 1e-9
    norm_end: float = 1e-7
    norm_every: int = 10_000
    """Its strength goes from start to end in factors of ten."""
    clip_value: float = 0.0
    """Largest magnitude of a gradient entry; 0 for no clipping."""
    clip_norm: float = 0.0
    """Largest Euclidean norm of the gradient; 0 for no clipping."""
    gradient_noise: float = 0.0
    """Eta of the gradient noise with variance eta / (1 + step)^0.55; 0 for none."""
    project: bool = True
    """Whether parameters are clipped to their legal box after each step."""
    reinitialise: bool = False
    """Whether iNALU's rule may start the module anew."""
    centring: Centring | None = None
    """Takes the mean out of the residuals of `mse` or of a `LogMagnitude`."""
    solver: LevenbergMarquardt | None = None
    """In place of stochastic descent; of the values above, only a `LogMagnitude` and `evaluation_rows` matter to it."""
    snap: Snap | None = None
    """Rounds the trained weights and verifies them."""
    restarts: Restarts | None = None
    """Starts anew until a solution is verified; errors are then logged once a start."""

    def __post_init__(self) -> None:
        """Give each number its own type, so that equal recipes have one text, and refuse values that cannot be meant."""
        for f in dataclasses.fields(self):
            value = getattr(self, f.name)
            if f.type == "float" or (f.type == "float | None" and value is not None):
                object.__setattr__(self, f.name, finite(f.name, value))
            elif f.type == "int":
                object.__setattr__(self, f.name, whole(f.name, value, LEAST.get(f.name, -MOST)))
            elif f.type == "bool":
                like(f.name, value, True)
        for name, kind in OPTIONS.items():
            if isinstance(getattr(self, name), dict):
                object.__setattr__(self, name, built(name, kind, getattr(self, name)))
            elif not isinstance(getattr(self, name), (kind, str if name == "loss" else type(None))):
                raise ValueError(f"{name} must be a {kind.__name__}, got {shown(repr(getattr(self, name)))}")
        if self.iterations > MOST_EVALUATIONS * self.log_interval:
            raise ValueError(
                f"iterations must be at most {MOST_EVALUATIONS:,} times log_interval, "
                f"got {self.iterations} and {self.log_interval}"
            )
        if isinstance(self.loss, str) and self.loss not in LOSSES:
            raise ValueError(f"loss must be one of {', '.join(LOSSES)} or a LogMagnitude, got {shown(repr(self.loss))}")
        squares = self.loss == "mse" or isinstance(self.loss, LogMagnitude)
        if self.centring and not squares:
            raise ValueError(f"centring goes with the loss mse or a LogMagnitude, not with {self.loss}")
        if (self.solver or self.restarts) and not self.snap:
            raise ValueError("a solver or restarts need a snap, which says when a solution is verified")
        if self.solver and (self.centring or not squares):
            raise ValueError("a solver minimises squares: loss must be mse or a LogMagnitude, without centring")
        if self.optimiser not in OPTIMISERS:
            raise ValueError(f"optimiser must be one of {', '.join(OPTIMISERS)}, got {shown(repr(self.optimiser))}")
        if self.norm not in (0, 1, 2):
            raise ValueError(f"norm must be 0, 1 or 2, got {shown(self.norm)}")
        if not self.learning_rate > 0:
            raise ValueError(f"learning_rate must be positive, got {self.learning_rate}")
        if self.penalty and self.penalty_below is None and not self.penalty_end > self.penalty_start:
            raise ValueError(f"penalty_end must come after penalty_start, got {self.penalty_start}, {self.penalty_end}")

    @property
    def steps(self) -> NDArray[np.int64]:
        """Steps at which errors are logged, from the untrained model on; with a solver or restarts, starts are counted.

        Snapped weights make a row of their own, one step after the last.
        """
        if self.solver or self.restarts:
            return np.arange((self.restarts.limit if self.restarts else 1) + 1)
        steps = np.arange(0, self.iterations + 1, self.log_interval)
        return np.append(steps, self.iterations + 1) if self.snap else steps

    def replace(self, **changes: Any) -> Recipe:
        """A recipe with some values changed; ValueError for an unknown name."""
        known = [f.name for f in dataclasses.fields(self)]
        for name in changes:
            if name not in known:
                raise ValueError(f"a recipe has no value {shown(repr(name))}; it has: {', '.join(known)}")
        return dataclasses.replace(self, **changes)


@dataclass(frozen=True)
class Cell:
    """One condition of an experiment: module, task, data and recipe. With a seed it determines a run."""

    module: str
    """Registry name, or the name of a user's module."""
    operation: str
    inputs: int
    interpolation: str
    """Distribution of training and validation inputs, in text form."""
    extrapolation: str
    """Distribution of test inputs, in text form."""
    recipe: Recipe
    task: str = "single-module"
    options: tuple[tuple[str, Any], ...] = ()
    """Constructor options of the module."""
    data: tuple[tuple[str, Any], ...] = ()
    """What of the task's data is not as published."""

    def __post_init__(self) -> None:
        """Sort options and data, so that equal cells have one text."""
        object.__setattr__(self, "options", tuple(sorted(self.options)))
        object.__setattr__(self, "data", tuple(sorted(self.data)))

    def _described(self) -> dict[str, Any]:
        return {**dataclasses.asdict(self), "options": dict(self.options), "data": dict(self.data)}

    def to_json(self) -> str:
        """The whole description as canonical text: the same cell always gives the same."""
        return _canonical(self._described())

    @classmethod
    def from_json(cls, text: str) -> Cell:
        """The cell of a canonical text."""
        data = json.loads(text)
        data["recipe"] = Recipe(**data["recipe"])
        for name in ("options", "data"):
            data[name] = tuple((k, tuple(v) if isinstance(v, list) else v) for k, v in data.get(name, {}).items())
        return cls(**data)

    @property
    def key(self) -> str:
        """Identity of the cell: a hash of all in its description that is not a default of recipe or data.

        A value added to recipes later does not change the identity of old cells.
        """
        default = dataclasses.asdict(Recipe())
        changed = {name: value for name, value in dataclasses.asdict(self.recipe).items() if value != default[name]}
        described = {name: value for name, value in self._described().items() if name != "data" or value}
        text = _canonical({**described, "recipe": changed})
        return hashlib.sha256(text.encode()).hexdigest()[:24]


def _canonical(data: dict[str, Any]) -> str:
    return json.dumps(data, sort_keys=True, separators=(",", ":"))


@dataclass
class Runs:
    """Raw results of one cell, a row per seed: thresholds and statistics come later, when they are read."""

    seeds: NDArray[np.int64]
    """Shape (runs)."""
    steps: NDArray[np.int64]
    """Logged steps, shape (rows)."""
    validation: NDArray[np.float64]
    """Mean squared error on the validation set, shape (runs, rows); NaN after a run diverged."""
    test: NDArray[np.float64]
    """Mean squared error on the test set, for truth values the share of wrong answers, shape (runs, rows)."""
    sparsity: NDArray[np.float64]
    """Sparsity error, shape (runs, rows)."""
    weights: NDArray[np.float64]
    """Final parameters, flattened in the order of `module.parameters()`, shape (runs, parameters)."""
    status: list[str] = field(default_factory=list)
    """`ok`, `diverged` (a parameter is not finite any more) or `failed` (the module raised an error)."""
    messages: list[str] = field(default_factory=list)
    """What a failed run said."""

    def __len__(self) -> int:
        """Number of runs."""
        return len(self.seeds)

    def take(self, rows: Sequence[int]) -> Runs:
        """The runs in these rows."""
        return Runs(
            steps=self.steps,
            **{name: getattr(self, name)[rows] for name in ARRAYS},
            status=[self.status[k] for k in rows],
            messages=[self.messages[k] for k in rows],
        )

    def finished(self) -> Runs:
        """The runs that did not fail."""
        return self.take([k for k, status in enumerate(self.status) if status != "failed"])

    @staticmethod
    def join(parts: Sequence[Runs]) -> Runs:
        """The runs of several parts of one cell, in the order of their seeds; NaN stands for weights that some do not have."""
        width = max(part.weights.shape[1] for part in parts)

        def stacked(name: str) -> Any:
            arrays = [getattr(part, name) for part in parts]
            if name == "weights":
                arrays = [np.pad(one, ((0, 0), (0, width - one.shape[1])), constant_values=np.nan) for one in arrays]
            return np.concatenate(arrays)

        together = Runs(
            steps=parts[0].steps,
            **{name: stacked(name) for name in ARRAYS},
            status=[one for part in parts for one in part.status],
            messages=[one for part in parts for one in part.messages],
        )
        return together.take([*np.argsort(together.seeds, kind="stable")])


ARRAYS = ("seeds", "validation", "test", "sparsity", "weights")
"""What `Runs` has an array row of for each run."""
