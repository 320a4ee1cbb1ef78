"""Reports of experiments as Markdown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nalm.claims import RULES, VERDICTS
from nalm.experiments import LEFT_OUT, Experiment, load, load_all

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

__all__ = ["page", "section"]


def section(document: Mapping[str, Any], experiment: Experiment) -> list[str]:
    """One experiment in Markdown, from its report's JSON."""
    lines = [f"## {document['id']}: {document['title']}", ""]
    also = f" Also {', '.join(experiment.also)}." if experiment.also else ""
    trained = f" {document['seeds']} seeds, {document['engine']} engine," if document["seeds"] else ""
    lines += [
        f"{experiment.source[0].upper()}{experiment.source[1:]}.{also}{trained} {document['core_seconds']:,.0f} s on one core.",
        "",
    ]
    if experiment.note:
        lines += [experiment.note.strip(), ""]
    if not document["claims"]:
        lines += ["Nothing was published in numbers or words that could be checked.", ""]
        return lines
    counts = ", ".join(f"{document[name]} {name}" for name in VERDICTS if document[name])
    lines += [f"{counts}.", "", "| claim | what | published | measured | verdict |", "| --- | --- | --- | --- | --- |"]
    for claim in document["claims"]:
        verdict = f"**{claim['verdict']}**" if claim["verdict"] == "differ" else claim["verdict"]
        reason = f": {claim['reason']}" if claim["reason"] and claim["verdict"] != "differ" else ""
        cells = [claim["id"], claim["what"], claim["published"], claim["measured"], verdict + reason]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    differing: dict[str, list[str]] = {}
    for claim in document["claims"]:
        if claim["verdict"] == "differ":
            differing.setdefault(claim["reason"] or "not explained yet", []).append(claim["id"])
    if differing:
        lines += ["", *(f"- {', '.join(names)}: {why}" for why, names in differing.items())]
    return [*lines, ""]


def page(folder: str | os.PathLike[str]) -> str:
    """The page of all experiments whose reports a folder holds, in Markdown."""
    documents = {}
    for experiment in load_all():
        path = Path(folder) / experiment.slug / "report.json"
        if path.is_file():
            documents[experiment.id] = json.loads(path.read_text(encoding="utf-8"))
    if not documents:
        raise ValueError(f"{folder} holds no reports; `nalm reproduce --all --out {folder}` makes them")
    found = list(documents.values())
    counts = {name: sum(one[name] for one in found) for name in VERDICTS}
    lines = [
        "# The papers' experiments, run again",
        "",
        "Written by `nalm reproduce --all --out DIR --page docs/reproduction.md`; do not edit.",
        "",
        f"{len(found)} experiments, {sum(counts.values())} published claims: "
        + ", ".join(f"{count} {name}" for name, count in counts.items())
        + f". {sum(one['core_seconds'] for one in found) / 3600:.1f} core-hours "
        + f"(runs that experiments share count for each) on {found[0]['machine']}; "
        + f"{min(one['date'] for one in found)} to {max(one['date'] for one in found)}; "
        + f"nalm {found[0]['version']}.",
        "",
        RULES,
        "",
        "| id | experiment | budget | seeds | agree | differ | not comparable | seconds on one core |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for one in found:
        numbers = " | ".join(str(one[name]) for name in VERDICTS)
        what = " | ".join([one["id"], one["title"], one["budget"], str(one["seeds"] or "")])
        lines.append(f"| {what} | {numbers} | {one['core_seconds']:,.0f} |")
    lines += ["", "Left out:", "", *(f"- {names}: {reason}." for names, reason in LEFT_OUT.items()), ""]
    for one in found:
        lines += section(one, load(one["id"]))
    return "\n".join(lines)
