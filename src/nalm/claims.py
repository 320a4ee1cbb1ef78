"""Published claims beside measured rows: agree, differ, or not comparable, by the `RULES`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from nalm.metrics import beta_interval, gamma_interval, wilson_interval

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from nalm.experiments import Claim, Experiment
    from nalm.metrics import Interval, Outcomes

__all__ = ["RULES", "VERDICTS", "Row", "Verdict", "judge", "judge_exact"]

RULES = (
    "A published rate is given the Wilson interval of its runs, and agrees if it overlaps the measured one; so do means whose "
    "interval was published. Other numbers agree within a quarter of their value (sparsity errors, which span decades, within "
    "a factor of two). Orderings must hold as they stand. Counts of ranges agree if they lie between the number of ranges of "
    "which the runs leave no doubt and the number of those that might be. `about` allows a rate 0.1 to either side. Sparsity "
    "errors that were published with an asymmetric interval come from a fit that shows half the mean, and are doubled before "
    "they are compared."
)
"""When a claim agrees."""
VERDICTS = AGREE, DIFFER, INCOMPARABLE = "agree", "differ", "not comparable"
RATES = ("success_rate", "interp_success_rate", "success_rate_diff_vs_ref")
SLOW = ("U[-1.2,-1.1)", "U[1.1,1.2)")
"""Ranges that are left out where one range is compared with the others: they are slow for everyone."""
PER_ROW = ("ranges_better_than_ref", "ranges_worse_than_ref", "ranges_equal_to_ref", "success_rate_diff_vs_ref")

EXACT_SHARE, TRAINED_SHARE = 0.02, 0.25
"""Share of a published number without an interval by which computed and trained ones may be off."""


@dataclass(frozen=True)
class Row:
    """One condition on one distribution: its summary, and what became of each run."""

    series: str
    module: str
    operation: str
    inputs: int
    interpolation: str
    varied: Any
    summary: Mapping[str, Any]
    outcomes: Outcomes
    threshold: float
    parameters: int
    seconds: float = 0.0
    """What a run took one core, on average."""


@dataclass(frozen=True)
class Verdict:
    """What became of a claim."""

    claim: Claim
    published: str
    measured: str
    verdict: str
    reason: str = ""


@dataclass(frozen=True)
class _Value:
    """A number with its interval, if it has one."""

    value: float
    low: float = math.nan
    high: float = math.nan

    def overlaps(self, other: _Value) -> bool:
        ends = [x if math.isfinite(x) else self.value for x in (self.low, self.high)]
        others = [x if math.isfinite(x) else other.value for x in (other.low, other.high)]
        return ends[0] <= others[1] and others[0] <= ends[1]

    def __str__(self) -> str:
        if math.isfinite(self.low) and math.isfinite(self.high):
            return f"{_short(self.value)} [{_short(self.low)}, {_short(self.high)}]"
        return _short(self.value)


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 and abs(value) < 1e7 else f"{value:.3g}"


def judge(experiment: Experiment, rows: Sequence[Row], budget: str, scaled: bool) -> list[Verdict]:
    """The verdict on every claim of a training experiment."""
    return [_judge_one(experiment, claim, rows, budget, scaled) for claim in experiment.claims]


def _judge_one(experiment: Experiment, claim: Claim, rows: Sequence[Row], budget: str, scaled: bool) -> Verdict:
    published = _published(claim)
    if claim.incomparable:
        return Verdict(claim, published, "", INCOMPARABLE, claim.incomparable)
    if scaled and claim.metric.startswith("solved_at"):
        return Verdict(claim, published, "", INCOMPARABLE, "the quick budget trains for fewer steps")
    names = claim.series or tuple(dict.fromkeys(row.series for row in rows))
    shown, holds = [], []
    for name in names:
        mine = _select(experiment, rows, claim, {"series": name})
        if not mine:
            return Verdict(claim, published, "", INCOMPARABLE, f"not part of the {budget} budget")
        others = [_select(experiment, rows, claim, {"series": name, **than}) for than in claim.than]
        if claim.metric == "solved_at_ratio_vs_other_ranges":
            everywhere = _select(experiment, rows, claim, {"series": name, "at": ()})
            others = [[row for row in everywhere if row not in mine and row.interpolation not in SLOW]]
        if not all(others):
            return Verdict(claim, published, "", INCOMPARABLE, f"what it is compared with is not part of the {budget} budget")
        try:
            text, verdict = _compare(experiment, claim, mine, others)
        except _NoNumberError as nothing:
            return _refuted(claim, published, str(nothing), scaled)
        shown.append(text if len(names) == 1 else f"{name}: {text}")
        holds.append(verdict)
    measured = "; ".join(shown)
    return Verdict(claim, published, measured, AGREE) if all(holds) else _refuted(claim, published, measured, scaled)


def _refuted(claim: Claim, published: str, measured: str, scaled: bool) -> Verdict:
    """A claim that does not hold; runs that were cut short cannot say so."""
    if scaled:
        return Verdict(claim, published, measured, INCOMPARABLE, "the quick budget trains for fewer steps")
    return Verdict(claim, published, measured, DIFFER)


class _NoNumberError(Exception):
    """There is no number: no run was solved."""


def _select(experiment: Experiment, rows: Sequence[Row], claim: Claim, changes: Mapping[str, Any]) -> list[Row]:
    group = next((g for g in experiment.groups if g.name == claim.group), None)
    wanted = {
        "series": changes["series"],
        "operation": changes.get("operation", claim.operation) or None,
        "inputs": changes.get("inputs", claim.inputs or (group.inputs if group else 0)) or None,
    }
    at = _listed(changes["at"]) if "at" in changes else (claim.at or (group.at if group else ()))
    varied = _listed(changes["varied"]) if "varied" in changes else claim.varied
    return [
        row
        for row in rows
        if all(value is None or getattr(row, name) == value for name, value in wanted.items())
        and (not at or row.interpolation in at)
        and (not varied or row.varied in varied)
    ]


def _listed(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, (list, tuple)) else (value,)


def _compare(experiment: Experiment, claim: Claim, mine: list[Row], others: list[list[Row]]) -> tuple[str, bool]:
    if claim.metric in PER_ROW:
        value = _row_by_row(claim.metric, mine, others[0])
        return str(value), _holds(claim, value, _goal(experiment, claim, mine))
    if claim.metric == "solved_at_ratio_vs_other_ranges":
        medians = [np.median(_solved([row], "solved_at")) for row in others[0] if _rate(row) > 0]
        value = _Value(float(np.median(_solved(mine, "solved_at")) / np.mean(medians)))
        return str(value), _holds(claim, value, _goal(experiment, claim, mine))
    value = _measure(claim.metric, mine)
    if others:
        references = [_measure(claim.metric, rows) for rows in others]
        return f"{value} against {', '.join(map(str, references))}", all(_holds(claim, value, one) for one in references)
    return str(value), _holds(claim, value, _goal(experiment, claim, mine))


def _goal(experiment: Experiment, claim: Claim, mine: list[Row]) -> _Value:
    value = {"full": 1.0, "zero": 0.0}.get(claim.relation, claim.value if claim.value is not None else math.nan)
    if claim.low is not None and claim.high is not None:
        factor = 2 if claim.metric == "sparsity_error_mean" and not _symmetric(claim) else 1
        return _Value(factor * value, factor * claim.low, factor * claim.high)
    if claim.metric in ("success_rate", "interp_success_rate") and claim.relation in ("=", "~", "full", "zero"):
        seeds = max(one.seeds for one in experiment.conditions("paper"))
        runs = claim.runs or seeds * len(mine)
        interval = wilson_interval(round(value * runs), runs)
        return _Value(value, interval.low, interval.high)
    return _Value(value)


def _symmetric(claim: Claim) -> bool:
    """Whether an interval has its value in the middle, to the two digits that papers print."""
    value, low, high = claim.value or 0.0, claim.low or 0.0, claim.high or 0.0
    return abs((high - value) - (value - low)) <= 0.02 * abs(value)


def _row_by_row(metric: str, mine: list[Row], others: list[Row]) -> _Value:
    """How many rows are better, worse or equal, or the mean difference, against the same rows of another series."""
    there = {(row.interpolation, row.varied): row for row in others}
    both = [(row, there.get((row.interpolation, row.varied))) for row in mine]
    pairs = [(_rate(row), _rate(other)) for row, other in both if other is not None]
    if metric == "success_rate_diff_vs_ref":
        return _Value(float(np.mean([a - b for a, b in pairs])))
    side = {"ranges_better_than_ref": 1, "ranges_worse_than_ref": -1, "ranges_equal_to_ref": 0}[metric]
    unsure = [_interval(row).overlaps(_interval(other)) for row, other in both if other is not None]
    count = sum(np.sign(a - b) == side for a, b in pairs)
    sure = sum(np.sign(a - b) == side and not open_ for (a, b), open_ in zip(pairs, unsure, strict=True))
    return _Value(float(count), float(sure), float(sure + sum(unsure)))


def _interval(row: Row) -> _Value:
    return _Value(_rate(row), row.summary["success_low"], row.summary["success_high"])


def _count(rows: list[Row], rate: float) -> _Value:
    """How many rows have a rate of 0 or 1, and at most how many might."""
    runs = [len(row.outcomes.solved) for row in rows]
    ends = [wilson_interval(round(rate * n), n) for n in runs]
    possible = sum(_interval(row).overlaps(_of(end)) for row, end in zip(rows, ends, strict=True))
    count = sum(_rate(row) == rate for row in rows)
    return _Value(float(count), float(count), float(possible))


def _rate(row: Row) -> float:
    return float(row.summary["success_rate"] or 0.0)


def _measure(metric: str, rows: list[Row]) -> _Value:
    return MEASURES[metric](rows)


def _share(flags: Any) -> _Value:
    flags = np.concatenate(flags)
    return _of(wilson_interval(int(flags.sum()), len(flags)))


def _of(interval: Interval) -> _Value:
    return _Value(interval.mean, interval.low, interval.high)


def _solved(rows: list[Row], name: str) -> Any:
    values = np.concatenate([getattr(row.outcomes, name)[row.outcomes.solved] for row in rows])
    if not len(values):
        raise _NoNumberError("no run solved")
    return values


def _errors(rows: list[Row], name: str) -> Any:
    values = np.concatenate([getattr(row.outcomes, name) for row in rows])
    return values[np.isfinite(values)]


def _mean(values: Any) -> _Value:
    """Mean with Student's interval."""
    if not len(values):
        raise _NoNumberError("no finite error")
    from scipy import stats

    mean = float(np.mean(values))
    if len(values) < 2 or np.ptp(values) == 0:
        return _Value(mean)
    low, high = stats.t.interval(0.95, len(values) - 1, loc=mean, scale=stats.sem(values))
    return _Value(mean, float(low), float(high))


def _median(values: Any) -> _Value:
    """Median with the median absolute deviation to both sides, as the NPU paper prints it."""
    if not len(values):
        raise _NoNumberError("no finite error")
    middle = float(np.median(values))
    deviation = float(np.median(np.abs(values - middle)))
    return _Value(middle, middle - deviation, middle + deviation)


def _expressions_solved(rows: list[Row]) -> _Value:
    """How many of the rows, which are expressions, a seed solves: mean, least and most over seeds."""
    counts = np.stack([row.outcomes.solved for row in rows]).sum(0)
    return _Value(float(counts.mean()), float(counts.min()), float(counts.max()))


def _largest_varied(rows: list[Row]) -> _Value:
    solved = [row.varied for row in rows if _rate(row) > 0.5]
    return _Value(float(max(solved, default=0)))


MEASURES: dict[str, Callable[[list[Row]], _Value]] = {
    "success_rate": lambda rows: _share([row.outcomes.solved for row in rows]),
    "interp_success_rate": lambda rows: _share([row.outcomes.interpolation_error < row.threshold for row in rows]),
    "solved_at_median": lambda rows: _Value(float(np.median(_solved(rows, "solved_at")))),
    "solved_at_mean": lambda rows: _of(gamma_interval(_solved(rows, "solved_at"))),
    "sparsity_error_mean": lambda rows: _of(beta_interval(_solved(rows, "sparsity_error"))),
    "ranges_full_count": lambda rows: _count(rows, 1.0),
    "ranges_zero_count": lambda rows: _count(rows, 0.0),
    "ranges_nonzero_count": lambda rows: _Value(float(sum(_rate(row) > 0 for row in rows))),
    "interp_mse_mean": lambda rows: _mean(_errors(rows, "interpolation_error")),
    "extrap_mse_mean": lambda rows: _mean(_errors(rows, "extrapolation_error")),
    "test_mse_median": lambda rows: _median(_errors(rows, "extrapolation_error")),
    "largest_varied_solved": _largest_varied,
    "expressions_solved": _expressions_solved,
    "mostly_solved": lambda rows: _Value(float(np.mean(np.concatenate([row.outcomes.solved for row in rows])) > 0.5)),
    "parameters": lambda rows: _Value(float(rows[0].parameters)),
    "gold_test_mse": lambda rows: _Value(float(np.mean([row.threshold for row in rows]))),
    "threshold": lambda rows: _Value(float(np.mean([row.threshold for row in rows]))),
}


def _holds(claim: Claim, value: _Value, goal: _Value) -> bool:
    relation = claim.relation
    if relation in ("<", "<=", ">", ">="):
        a, b = value.value, goal.value
        return {"<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b}[relation]
    if relation == "partial":
        return 0 < value.value < 1
    if value.overlaps(goal):
        return True
    if claim.metric.startswith("ranges_") or claim.metric == "parameters":
        return False
    if claim.metric in RATES:
        return relation == "~" and abs(value.value - goal.value) <= 0.1
    if claim.metric == "sparsity_error_mean":
        if goal.value == 0:
            return value.value < 1e-3
        return 0.5 <= value.value / goal.value <= 2
    return abs(value.value - goal.value) <= TRAINED_SHARE * abs(goal.value)


def judge_exact(
    experiment: Experiment, values: Mapping[str, float], scaled: bool = False, share: float = EXACT_SHARE
) -> list[Verdict]:
    """The verdict on every claim of a computation or study; numbers agree within a share of their value, or their interval."""
    verdicts = []
    for claim in experiment.claims:
        published = _published(claim)
        if claim.incomparable:
            verdicts.append(Verdict(claim, published, "", INCOMPARABLE, claim.incomparable))
            continue
        value = float(values.get(claim.key, math.nan))
        if math.isnan(value):
            verdicts.append(Verdict(claim, published, "", INCOMPARABLE, "not part of this run"))
            continue
        goal = claim.value if claim.value is not None else 1.0
        close = abs(value - goal) <= share * abs(goal) + 1e-9
        if claim.low is not None and claim.high is not None:
            mine = _Value(value, values.get(f"{claim.key} low", value), values.get(f"{claim.key} high", value))
            close = mine.overlaps(_Value(goal, claim.low, claim.high))
        holds = {"<": value < goal, "<=": value <= goal, ">": value > goal, ">=": value >= goal}.get(claim.relation, close)
        shown = _short(value)
        verdicts.append(Verdict(claim, published, shown, AGREE) if holds else _refuted(claim, published, shown, scaled))
    return verdicts


def _published(claim: Claim) -> str:
    sign = {"full": "1", "zero": "0", "partial": "between 0 and 1", "~": "about", "=": ""}.get(claim.relation, claim.relation)
    if claim.than:
        return f"{sign} {', '.join(_named(one) for one in claim.than)}".strip()
    if claim.relation in ("full", "zero", "partial") or claim.value is None:
        return sign
    interval = f" [{_short(claim.low)}, {_short(claim.high)}]" if claim.low is not None and claim.high is not None else ""
    return f"{sign} {_short(claim.value)}{interval}".strip()


def _named(than: Mapping[str, Any]) -> str:
    rest = ", ".join(f"{key} {value}" for key, value in than.items() if key != "series")
    return f"{than.get('series', '')}{f' ({rest})' if rest else ''}".strip() or "itself"
