"""Every published experiment as data: one TOML file each in this folder, read and checked here.

A file says what is trained (a set-up that all series share, series that differ from it, and perhaps a sweep over one value),
what the quick budget leaves out, and what was published, one claim a line. `docs/reproduction.md` shows the outcome.
"""

from __future__ import annotations

import difflib
import re
import sys
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from itertools import product
from typing import TYPE_CHECKING, Any

from nalm.checks import known, shown
from nalm.experiments import schema
from nalm.options import Snap
from nalm.specs import Recipe
from nalm.tasks import RANGE_SETS, TASKS, read_range

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["BUDGETS", "LEFT_OUT", "Claim", "Condition", "Experiment", "Explanation", "Group", "load", "load_all", "parse"]

BUDGETS = ("quick", "paper")
LEFT_OUT = {
    "D:tab7, S:tab8": "run times on other machines",
    "T:appD, T:sec2.4.2": "comparisons of earlier literature, quoted and not run by the authors",
    "M:fig1, M:fig6, H:fig1, H:fig2, S:fig4, S:fig11 to fig14 and the tables of settings": "diagrams, settings: nothing to run",
}
"""What `nalm reproduce` does not have, with the reason."""
METRICS = (
    "success_rate",
    "solved_at_median",
    "solved_at_mean",
    "sparsity_error_mean",
    "ranges_full_count",
    "ranges_zero_count",
    "ranges_nonzero_count",
    "ranges_better_than_ref",
    "ranges_worse_than_ref",
    "ranges_equal_to_ref",
    "success_rate_diff_vs_ref",
    "solved_at_ratio_vs_other_ranges",
    "interp_mse_mean",
    "extrap_mse_mean",
    "interp_success_rate",
    "test_mse_median",
    "test_error_median",
    "largest_varied_solved",
    "expressions_solved",
    "mostly_solved",
    "parameters",
    "gold_test_mse",
    "threshold",
)
"""What a claim about trained runs may measure."""


@dataclass(frozen=True)
class Condition:
    """What one series is trained on, at one value of the sweep."""

    series: str
    label: str
    module: str
    task: str
    operation: str
    inputs: int
    ranges: tuple[str, ...]
    seeds: int
    threshold: str | float
    judged: str
    """At which step runs are judged: the one with the `least` validation error, or the `last`."""
    data: Mapping[str, Any]
    options: Mapping[str, Any]
    recipe: Mapping[str, Any]
    scale: float = 1.0
    """Factor on all that is counted in steps."""
    shortened: bool = False
    """Whether it trains for fewer steps than published."""
    varied: Any = None
    """Value of the sweep."""


@dataclass(frozen=True)
class Claim:
    """One published number or statement."""

    id: str
    metric: str
    relation: str
    series: tuple[str, ...] = ()
    value: float | None = None
    low: float | None = None
    high: float | None = None
    than: tuple[Mapping[str, Any], ...] = ()
    """What it is compared with: series, and where that differs from the claim, `at`, `varied`, `operation`, `inputs`."""
    at: tuple[str, ...] = ()
    """Training distributions; empty for all."""
    varied: tuple[Any, ...] = ()
    """Values of the sweep; empty for all."""
    operation: str = ""
    inputs: int = 0
    group: str = ""
    key: str = ""
    """Name of the value that an exact computation gives."""
    runs: int = 0
    """From how many runs a published rate is; 0 for as many as the experiment has."""
    note: str = ""
    incomparable: str = ""
    """Why it cannot be compared with a measurement, if so."""


@dataclass(frozen=True)
class Group:
    """Rows that a table shows as one number, such as the negative ranges."""

    name: str
    at: tuple[str, ...]
    inputs: int = 0


@dataclass(frozen=True)
class Explanation:
    """Why some claims differ."""

    ids: tuple[str, ...]
    why: str


@dataclass(frozen=True)
class Experiment:
    """A published experiment."""

    id: str
    title: str
    source: str
    kind: str = "training"
    """`training`, `images` for trainings with digits, `dynamics` for differential equations, or `exact` for a computation."""
    also: tuple[str, ...] = ()
    """Other figures and tables that show the same."""
    note: str = ""
    """What the papers leave open, and what was assumed."""
    figure: str = "panels"
    table: str = "rows"
    """What is printed: `rows`; `problems` or `networks`, a line a series beside what was published."""
    vary: str = "interpolation"
    """What stands on the vertical axis of the panels: `interpolation`, `varied` or `series`."""
    setup: Mapping[str, Any] = field(default_factory=dict)
    series: tuple[Mapping[str, Any], ...] = ()
    sweep: Mapping[str, Any] = field(default_factory=dict)
    quick: Mapping[str, Any] = field(default_factory=dict)
    groups: tuple[Group, ...] = ()
    claims: tuple[Claim, ...] = ()
    explanations: tuple[Explanation, ...] = ()
    compute: str = ""
    """Name of the exact computation, or of the study with images or differential equations."""
    settings: Mapping[str, Any] = field(default_factory=dict)

    def settings_for(self, budget: str) -> dict[str, Any]:
        """The settings of a computation within a budget."""
        if budget not in BUDGETS:
            raise ValueError(f"unknown budget {budget!r}; there are: {', '.join(BUDGETS)}")
        return {**self.settings, **(self.quick.get("settings", {}) if budget == "quick" else {})}

    @property
    def slug(self) -> str:
        """The id as the name of a file or folder."""
        return self.id.replace(":", "-")

    @property
    def task(self) -> str:
        """Name of the task, or `exact`."""
        return str(self.setup.get("task", "single-module") if self.kind == "training" else self.settings.get("task", "exact"))

    def conditions(
        self, budget: str = "paper", seeds: int | None = None, series: Sequence[str] | None = None
    ) -> list[Condition]:
        """Everything that is to be trained within a budget, or some series of it."""
        if budget not in BUDGETS:
            raise ValueError(f"unknown budget {budget!r}; there are: {', '.join(BUDGETS)}")
        changes = self.quick if budget == "quick" else {}
        names = [one["name"] for one in self.series]
        for name in series or ():
            if name not in names:
                raise ValueError(f"{self.id} has no series {name!r}; it has: {', '.join(names)}")
        wanted = series or changes.get("series", names)
        chosen = [one for one in self.series if one["name"] in wanted]
        values = changes.get("values", self.sweep.get("values", [None]))
        return [self._condition(one, value, changes, seeds) for one, value in product(chosen, values)]

    def _condition(self, series: Mapping[str, Any], value: Any, changes: Mapping[str, Any], seeds: int | None) -> Condition:
        merged: dict[str, Any] = {"task": "single-module", "inputs": 2, "ranges": ["nine"], "seeds": 25}
        merged |= {"threshold": 1e-5, "judged": "least"}
        merged |= {key: dict(self.setup.get(key, {})) for key in ("data", "options", "recipe")}
        merged |= {key: v for key, v in self.setup.items() if not isinstance(v, dict)}
        smaller = {key: v for key, v in changes.items() if key in ("seeds", "ranges", "recipe", "data", "inputs")}
        for source in (series, smaller):
            for key, v in source.items():
                merged[key] = {**merged.get(key, {}), **v} if isinstance(v, dict) else v
        where, _, name = self.sweep.get("field", "").partition(".")
        if value is not None and name:
            merged[where] = {**merged[where], name: value}
        elif value is not None:
            merged[where] = value
        ranges = [text for item in merged["ranges"] for text in RANGE_SETS.get(item, (item,))]
        return Condition(
            series=merged["name"],
            label=merged.get("label", merged["name"]),
            module=merged["module"],
            task=merged["task"],
            operation=merged["operation"],
            inputs=merged["inputs"],
            ranges=tuple(ranges),
            seeds=seeds if seeds is not None else merged["seeds"],
            threshold=merged["threshold"],
            judged=merged["judged"],
            data=merged["data"],
            options=merged["options"],
            recipe=merged["recipe"],
            scale=float(changes.get("scale", 1.0)),
            shortened=changes.get("scale", 1.0) < 1 or "iterations" in changes.get("recipe", {}),
            varied=value,
        )


def parse(text: str, name: str) -> Experiment:
    """The experiment of a TOML text; ValueError with file, key and what is allowed for a damaged one."""
    try:
        table = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{name}: not a TOML file: {error}") from None
    try:
        schema.FILE("the file", table)
        experiment = _experiment(table)
        if experiment.kind == "training":
            _check_conditions(experiment)
        for budget in BUDGETS:
            schema.study(experiment.kind, experiment.settings_for(budget))
    except ValueError as error:
        raise ValueError(f"{name}: {str(error).removeprefix('the file: ')}") from None
    except RecursionError:  # dotted keys nest without end
        raise ValueError(f"{name}: its tables are nested too deeply") from None
    return experiment


def _experiment(table: dict[str, Any]) -> Experiment:
    published = table.pop("published", {})
    names = [one["name"] for one in table.get("series", ())]
    _different("series", names)
    groups = [Group(one["name"], _ranges(one.get("at", ())), one.get("inputs", 0)) for one in table.get("groups", ())]
    claims = [_claim(one, names, [g.name for g in groups]) for one in published.get("claims", ())]
    _different("claim", [claim.id for claim in claims])
    notes = [Explanation(tuple(one["ids"]), one["why"]) for one in published.get("explanations", ())]
    rest = {key: value for key, value in table.items() if key not in ("groups", "also", "series")}
    return Experiment(
        **rest,
        also=tuple(table.get("also", ())),
        series=tuple(table.get("series", ())),
        groups=tuple(groups),
        claims=tuple(claims),
        explanations=tuple(notes),
    )


def _different(what: str, names: Sequence[str]) -> None:
    if len(set(names)) != len(names):
        raise ValueError(f"each {what} needs a name of its own, got {', '.join(names)}")


def _check_conditions(experiment: Experiment) -> None:
    if not experiment.series:
        raise ValueError("a training experiment needs at least one series")
    where, dot, _ = experiment.sweep.get("field", "inputs").partition(".")
    known("field of the sweep", where, ("data", "options", "recipe") if dot else schema.SETUP)
    names = [one["name"] for one in experiment.series]
    for name in experiment.quick.get("series", ()):
        known("series of the quick budget", name, names)
    for budget in BUDGETS:
        try:
            conditions = experiment.conditions(budget)
        except KeyError as error:
            raise ValueError(f"neither setup nor series has the key {error}") from None
        for one in conditions:
            _check_condition(one)


def _check_condition(one: Condition) -> None:
    try:
        for key, check in schema.SETUP.items():
            check(key, getattr(one, key))
        known("operation", one.operation, TASKS[known("task", one.task, TASKS)].operations)
        changes = dict(one.recipe)
        base = Recipe(snap=Snap()) if changes.pop("named", "published") == "robust" else Recipe()
        base.replace(**changes)
        for text in one.ranges:
            read_range(text)
    except ValueError as error:
        raise ValueError(f"series {one.series}: {error}") from None


def _claim(table: Mapping[str, Any], series: list[str], groups: list[str]) -> Claim:
    where = f"claim {table['id']}"
    own = _listed(table.get("series", ()))
    than = tuple(one if isinstance(one, dict) else {"series": one} for one in _listed(table.get("than", ())))
    if not table.get("key") and not table.get("incomparable"):
        schema.one_of("metric", METRICS)(where, table["metric"])
        for one in [*own, *(item["series"] for item in than if "series" in item)]:
            schema.one_of("series", tuple(series))(where, one)
        schema.one_of("group", ("", *groups))(where, table.get("group", ""))
    lists = {"series": own, "than": than, "at": _ranges(table.get("at", ())), "varied": _listed(table.get("varied", ()))}
    return Claim(**{**table, **lists})


def _listed(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, (list, tuple)) else (value,)


def _ranges(value: Any) -> tuple[str, ...]:
    if value == "all":
        return ()
    texts = [text for item in _listed(value) for text in RANGE_SETS.get(item, (item,))]
    return tuple(read_range(text)[0] for text in texts)


@cache
def load_all() -> tuple[Experiment, ...]:
    """All experiments, in the order of the papers' letters and numbers."""
    files = [file for file in resources.files(__package__).iterdir() if file.name.endswith(".toml")]
    return tuple(sorted((parse(file.read_text(encoding="utf-8"), file.name) for file in files), key=lambda e: _order(e.id)))


def _order(identity: str) -> tuple[Any, ...]:
    paper, _, rest = identity.partition(":")
    return (paper, [int(part) if part.isdigit() else 0 for part in re.split(r"(\d+)", rest)], rest)


def load(identity: str) -> Experiment:
    """One experiment, by its id or by that of a figure that shows the same; ValueError with the nearest ids."""
    if not isinstance(identity, str):
        raise ValueError(f"an experiment is named by a text such as T:fig5.7, got {shown(repr(identity))}")
    if schema.IDENTITY.fullmatch(identity):  # no other text makes the name of a file
        own = resources.files(__package__).joinpath(f"{identity.replace(':', '-')}.toml")
        if own.is_file():
            return parse(own.read_text(encoding="utf-8"), own.name)
    names = {name: one for one in load_all() for name in (one.id, *one.also)}
    if identity in names:
        return names[identity]
    lowered = {name.lower(): name for name in names}
    longer = [name for key, name in lowered.items() if key.startswith(identity.lower())][:3]
    near = longer or [lowered[name] for name in difflib.get_close_matches(identity.lower(), lowered, n=3, cutoff=0.5)]
    hint = f" Nearest: {', '.join(near)}." if near else ""
    raise ValueError(f"unknown experiment {shown(identity)!r}.{hint} `nalm list experiments` shows all {len(load_all())}")
