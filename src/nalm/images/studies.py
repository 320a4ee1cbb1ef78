"""The papers' experiments with images: which runs, what they say together, tables and figures."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure
from scipy import stats

from nalm.exact import Exact
from nalm.figures import COLOURS, MARKERS
from nalm.images.runs import Question, load_cached, run_all
from nalm.metrics import wilson_interval

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from matplotlib.axes import Axes

__all__ = ["STUDIES", "pair_study", "questions", "sequence_study"]

SERIES_KEYS = ("name", "label", "layer", "seeds")
JUDGING = ("series", "task", "seeds", "pairs", "metric", "judged_among")
"""Settings of a study that do not change how a run is trained."""
SURE = 0.99
"""One-sided level of the bound of success: the papers' one per cent."""


def questions(settings: Mapping[str, Any], data_dir: str | None, series: Sequence[str] | None = None) -> list[Question]:
    """The runs of a study, seed by seed, so that a study that is cut short has something of every series."""
    shared = {key: value for key, value in settings.items() if key not in JUDGING}
    asked = []
    for number in range(max(one.get("seeds", settings["seeds"]) for one in settings["series"])):
        for one in settings["series"]:
            if number < one.get("seeds", settings["seeds"]) and (series is None or one["name"] in series):
                own = {key: value for key, value in one.items() if key not in SERIES_KEYS}
                asked.append(Question(settings["task"], one["name"], one["layer"], number, {**shared, **own}, data_dir))
    return asked


def _runs(
    settings: Mapping[str, Any],
    data_dir: str | None,
    folder: Path | None,
    on_share: Callable[[float], None],
    series: Sequence[str] | None,
) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for one in run_all(questions(settings, data_dir, series), folder, on_share):
        found.setdefault(one["name"], []).append(one)
    return found


def _mean(values: Sequence[float]) -> tuple[float, float]:
    """Mean and standard error, as the papers print them; no error for a single value."""
    kept = np.asarray(values, float)
    return float(kept.mean()), float(kept.std(ddof=1) / math.sqrt(len(kept))) if len(kept) > 1 else math.nan


def pair_study(
    settings: Mapping[str, Any],
    data_dir: str | None = None,
    folder: Path | None = None,
    on_share: Callable[[float], None] = lambda share: None,
    series: Sequence[str] | None = None,
) -> Exact:
    """Products or quotients of two digits: accuracies on unseen pairs, weights, confusions.

    Settings: `task`, `operation`, `folds`, `seeds` (how many of the folds), `series` (name, label, layer and what differs),
    samples and schedule; see `Schedule`. A run is judged at its last evaluation, or with `judged_among` at that of the last so
    many which has the best accuracy in training.
    """
    found = _runs(settings, data_dir, folder, on_share, series)
    judged = {name: [_judged(run, settings.get("judged_among", 1)) for run in runs] for name, runs in found.items()}
    labels = {one["name"]: one.get("label", one["name"]) for one in settings["series"] if one["name"] in found}
    metric = settings.get("metric", "accuracy")
    values: dict[str, float] = {}
    table = []
    for name, ends in judged.items():
        line: dict[str, Any] = {"layer": labels[name], "folds": len(ends), "epochs": found[name][0]["history"][-1]["epoch"]}
        for key in ("accuracy", "exact", "close", "label1", "label2"):
            mean, error = _mean([100 * end[key] for end in ends])
            line |= {key: mean, f"{key}_error": None if math.isnan(error) else error}
            values |= {f"{name}/{key}": mean, f"{name}/{key} low": mean - error, f"{name}/{key} high": mean + error}
        line["in training"] = _mean([100 * end["train"][metric] for end in ends])[0]
        line["accuracy_best"] = max(100 * end["accuracy"] for end in ends)
        weights = [end["weights"] for end in ends]
        off = [max(abs(abs(w) - 1) for w in own[:2]) if own else math.nan for own in weights]
        reached = [gap < 1e-2 for gap in off if not math.isnan(gap)]
        line["weights_off"] = max(off) if off and not math.isnan(off[0]) else None
        line["weights_reached"] = float(np.mean(reached)) if reached else None
        values[f"{name}/weights_reached"] = float(np.mean(reached)) if reached else math.nan
        confusion = np.sum([end["confusion"] for end in ends[:1]], axis=0)
        shown = confusion.sum(1)
        right = np.divide(confusion.diagonal(), shown, out=np.full(10, np.nan), where=shown > 0)
        values[f"{name}/least_digit"] = float(np.nanmin(right))
        for digit in range(10):
            values[f"{name}/digit{digit}"] = float(right[digit])
        table.append(line)
    for first in found:
        for second in found:
            values[f"{first} over {second}"] = values[f"{first}/{metric}"] - values[f"{second}/{metric}"]
    source = load_cached(data_dir).source
    return Exact(values, table, lambda: _draw_pairs(found, judged, labels, metric, source), _core_seconds(found))


def _judged(run: Mapping[str, Any], among: int) -> Mapping[str, Any]:
    """Of the last evaluations of a run, the first with the best accuracy in training."""
    entries: list[dict[str, Any]] = run["history"][-among:]
    return max(entries, key=lambda entry: entry["train"]["accuracy"])


def _core_seconds(found: Mapping[str, list[dict[str, Any]]]) -> float:
    return math.fsum(run["seconds"] for runs in found.values() for run in runs)


def _draw_pairs(
    found: Mapping[str, list[dict[str, Any]]],
    judged: Mapping[str, list[Mapping[str, Any]]],
    labels: Mapping[str, str],
    metric: str,
    source: str,
) -> Figure:
    """Accuracies; accuracy over epochs; paths of the weights; confusions of the first fold."""
    names = list(found)
    pathed = [name for name in names if len(found[name][0]["history"][-1]["weights"]) >= 2]
    columns = max(len(names), 3)
    figure = Figure(figsize=(2.3 * columns + 0.6, 8.6), layout="constrained")
    rows: Any = figure.subfigures(3, 1, height_ratios=[1.15, 1, 1])
    bars, curves = rows[0].subplots(1, 2)
    for place, key in enumerate(("label1", "label2", metric)):
        for number, name in enumerate(names):
            mean, error = _mean([100 * end[key] for end in judged[name]])
            at = place + (number - (len(names) - 1) / 2) * 0.8 / len(names)
            bars.bar(
                at, mean, 0.75 / len(names), color=COLOURS[number % len(COLOURS)], label=labels[name] if place == 0 else None
            )
            if not math.isnan(error):
                bars.errorbar(at, mean, error, color="0.2", capsize=2, linewidth=1)
            learned = _mean([100 * end["train"][key] for end in judged[name]])[0]
            first = place == number == 0
            label = "pairs of training" if first else None
            bars.plot(at, learned, "D", markerfacecolor="white", markeredgecolor="0.2", markersize=4, zorder=3, label=label)
    bars.set_xticks(range(3), ["first digit", "second digit", "result"], fontsize="small")
    bars.set_ylabel("accuracy on unseen pairs, %")
    bars.set_ylim(0, 102)
    bars.legend(fontsize="x-small", ncols=6, loc="upper center", bbox_to_anchor=(0.5, -0.1), frameon=False)
    for number, name in enumerate(names):
        for fold, one in enumerate(found[name]):
            epochs = [entry["epoch"] for entry in one["history"]]
            score = [100 * entry[metric] for entry in one["history"]]
            curves.plot(
                epochs, score, color=COLOURS[number % len(COLOURS)], alpha=0.8, label=labels[name] if fold == 0 else None
            )
    curves.set_xlabel("epoch")
    curves.set_ylabel("accuracy of the result, %")
    curves.set_ylim(0, 102)
    for axes, name in zip(np.atleast_1d(rows[1].subplots(1, columns)), [*pathed, *[""] * columns][:columns], strict=True):
        _draw_path(axes, found.get(name, []), labels.get(name, ""))
    for axes, name in zip(np.atleast_1d(rows[2].subplots(1, columns)), [*names, *[""] * columns][:columns], strict=True):
        _draw_confusion(axes, found.get(name, []), labels.get(name, ""))
    figure.suptitle(f"data: {source}", fontsize="small")
    return figure


def _draw_path(axes: Axes, runs: Sequence[Mapping[str, Any]], title: str) -> None:
    if not runs:
        axes.set_axis_off()
        return
    for run in runs:
        path = np.array([entry["weights"][:2] for entry in run["history"]])
        axes.plot(*path.T, color="0.6", linewidth=0.9)
        axes.plot(*path[0], "*", color=COLOURS[0])
        axes.plot(*path[-1], "*", color=COLOURS[1])
    goal = [math.copysign(1, w) for w in runs[0]["history"][-1]["weights"][:2]]
    axes.plot(*goal, "s", markerfacecolor="none", markeredgecolor="0.2", markersize=9)
    axes.set_title(f"weights of {title}", fontsize="small")
    axes.tick_params(labelsize="x-small")


def _draw_confusion(axes: Axes, runs: Sequence[Mapping[str, Any]], title: str) -> None:
    if not runs:
        axes.set_axis_off()
        return
    counts = np.array(runs[0]["history"][-1]["confusion"], float)
    shares = np.divide(counts, counts.sum(1, keepdims=True), out=np.zeros_like(counts), where=counts.sum(1, keepdims=True) > 0)
    axes.imshow(shares, vmin=0, vmax=1, cmap="Blues")
    axes.set_title(f"{title}: digit read as", fontsize="small")
    axes.set_xticks(range(10), [*map(str, range(10))], fontsize="x-small")
    axes.set_yticks(range(10), [*map(str, range(10))], fontsize="x-small")


def sequence_study(
    settings: Mapping[str, Any],
    data_dir: str | None = None,
    folder: Path | None = None,
    on_share: Callable[[float], None] = lambda share: None,
    series: Sequence[str] | None = None,
) -> Exact:
    """Sums or products of sequences of digits: success at each length, by the bound of the solved reference.

    A run is judged at the epoch with the least validation error. Its error at a length is a success if it is not above the
    upper one-sided 99 % confidence bound of the mean error of the reference runs, by Student's t; reference runs that did not
    learn (an error ten times the least at the length of training) do not count. The series `solved` is the reference.
    """
    if series is not None and "solved" not in series:
        series = ["solved", *series]
    found = _runs(settings, data_dir, folder, on_share, series)
    labels = {one["name"]: one.get("label", one["name"]) for one in settings["series"] if one["name"] in found}
    lengths = list(settings["lengths"])
    errors = {name: np.array([_selected(run)["errors"] for run in runs]) for name, runs in found.items()}
    bound = reference_bound(errors["solved"], lengths.index(settings["length"]))
    values: dict[str, float] = {}
    table = []
    shares: dict[str, list[Any]] = {}
    for name, own in errors.items():
        solved = own <= bound
        shares[name] = [wilson_interval(int(column.sum()), len(column)) for column in solved.T]
        line: dict[str, Any] = {"cell": labels[name], "runs": len(own), "epochs": found[name][0]["history"][-1]["epoch"]}
        for length, column in zip(lengths, solved.T, strict=True):
            line[f"length {length}"] = f"{int(column.sum())} of {len(column)}"
            values[f"{name}/length{length}"] = float(column.mean())
        values[f"{name}/success"] = float(solved.mean())
        values[f"{name}/all_lengths"] = float(solved.all(1).mean())
        far = [length for length in lengths if length > settings["length"]]
        values[f"{name}/beyond"] = float(np.mean([values[f"{name}/length{length}"] for length in far])) if far else math.nan
        weights = [_selected(run)["weights"] for run in found[name]]
        off = [max(min(abs(w), abs(1 - abs(w))) for w in one) for one in weights if one]
        line["weights_off"] = max(off) if off else None
        values[f"{name}/sparsity"] = float(np.mean(off)) if off else math.nan
        line["error"] = float(np.median(own[:, lengths.index(settings["length"])]))
        table.append(line)
    for first in errors:
        for second in errors:
            values[f"{first} over {second}"] = values[f"{first}/success"] - values[f"{second}/success"]
            for length in lengths:
                key = f"/length{length}"
                values[f"{first} over {second}{key}"] = values[first + key] - values[second + key]
    source = load_cached(data_dir).source
    drawn = (found, errors, shares, bound, labels, lengths, source)
    return Exact(values, table, lambda: _draw_sequences(*drawn), _core_seconds(found))


def reference_bound(errors: Any, trained: int) -> Any:
    """Upper bound of the mean error of reference runs (runs, lengths); `trained` is the place of the trained length."""
    kept = errors[errors[:, trained] <= 10 * errors[:, trained].min()]
    if len(kept) < 2:
        return kept.max(0)
    deviation = kept.std(0, ddof=1) / math.sqrt(len(kept))
    return kept.mean(0) + stats.t.ppf(SURE, len(kept) - 1) * deviation


def _selected(run: Mapping[str, Any]) -> Mapping[str, Any]:
    """The evaluation with the least validation error."""
    entries: list[dict[str, Any]] = run["history"]
    return min(entries, key=lambda entry: entry["validation"] if math.isfinite(entry["validation"]) else math.inf)


def _draw_sequences(
    found: Mapping[str, list[dict[str, Any]]],
    errors: Mapping[str, Any],
    shares: Mapping[str, list[Any]],
    bound: Any,
    labels: Mapping[str, str],
    lengths: Sequence[int],
    source: str,
) -> Figure:
    """Success by length, the series side by side; error by length in units of the bound; validation error over epochs."""
    figure = Figure(figsize=(12, 3.8), layout="constrained")
    success, error, curve = figure.subplots(1, 3)
    wide = max(lengths) > 100
    for number, name in enumerate(found):
        colour, marker = COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)]
        aside = number - (len(found) - 1) / 2
        places = np.array(lengths) * 1.06**aside if wide else np.array(lengths) + 0.08 * aside
        means = np.array([share.mean for share in shares[name]])
        spread = np.abs(np.array([[share.low, share.high] for share in shares[name]]).T - means)
        success.errorbar(places, means, spread, fmt="none", ecolor=colour, alpha=0.4, elinewidth=1)
        success.plot(places, means, color=colour, marker=marker, markersize=4, linewidth=1)
        error.plot(lengths, np.median(errors[name], 0) / bound, color=colour, marker=marker, markersize=4, label=labels[name])
        for run in found[name]:
            curve.plot(
                [e["epoch"] for e in run["history"]], [e["validation"] for e in run["history"]], color=colour, linewidth=0.9
            )
    error.axhline(1, color="0.3", linestyle="--", label="bound of success")
    success.set_ylabel("success rate, with its 95 % interval")
    error.set_ylabel("median test error over the bound")
    error.legend(fontsize="x-small")
    curve.set_ylabel("validation error")
    curve.set_xlabel("epoch")
    for axes in (success, error):
        axes.set_xlabel("length of the sequence")
    for axes in (error, curve):
        axes.set_yscale("log")
    if wide:
        success.set_xscale("log")
        error.set_xscale("log")
    figure.suptitle(f"data: {source}", fontsize="small")
    return figure


STUDIES = {"pairs": pair_study, "sequences": sequence_study}
"""Studies by the name that experiment files use."""
