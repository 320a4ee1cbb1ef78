"""Reports of experiments as Markdown."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nalm.claims import RULES, VERDICTS
from nalm.experiments import LEFT_OUT, Experiment, load, load_all

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

__all__ = ["explanations", "own_page", "page", "problem_cells", "section"]


def section(document: Mapping[str, Any], experiment: Experiment) -> list[str]:
    """One experiment in Markdown, from its report's JSON."""
    lines = [f"## {document['id']}: {document['title']}", ""]
    also = f" Also {', '.join(experiment.also)}." if experiment.also else ""
    trained = f" {document['seeds']} seeds," if document["seeds"] else ""
    trained += f" {document['engine']} engine," if document["engine"] else ""
    source = experiment.source if experiment.source.startswith("sNMU") else experiment.source[0].upper() + experiment.source[1:]
    lines += [f"{source}.{also}{trained} {document['core_seconds']:,.0f} s on one core.", ""]
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
    differing = explanations(document)
    if differing:
        lines += ["", *(f"- {names}: {why}" for names, why in differing.items())]
    return [*lines, ""]


def explanations(document: Mapping[str, Any]) -> dict[str, str]:
    """Why claims of a report differ: the ids of all claims with the same reason, and the reason."""
    differing: dict[str, list[str]] = {}
    for claim in document["claims"]:
        if claim["verdict"] == "differ":
            differing.setdefault(claim["reason"] or "not explained yet", []).append(claim["id"])
    return {", ".join(names): why for why, names in differing.items()}


def problem_cells(line: Mapping[str, Any]) -> dict[str, str]:
    """A line of a table of problems as texts."""
    reached = {True: "yes", False: "no", None: ""}[line["reached"]]
    return {
        "problem": line["problem"],
        "module": line["module"],
        "best published": line["published"],
        "success": f"{line['success']:.2f} [{line['success_low']:.2f}, {line['success_high']:.2f}] of {line['runs']:,} runs",
        "full ranges": f"{line['ranges_full']} of {line['ranges']}",
        "first start": "" if line["first_start"] is None else f"{line['first_start']:.2f}",
        "starts": "" if line["starts"] is None else f"{line['starts']:.1f}",
        "s a run": f"{line['seconds']:.2g}",
        "reached": reached,
    }


def own_page(folder: str | os.PathLike[str]) -> str:
    """The page of the experiments that are not of the papers, in Markdown."""
    lines = [
        "# Open problems",
        "",
        "Written by `nalm reproduce open-problems --out DIR --page docs/open-problems.md`; do not edit.",
        "",
    ]
    for document in _documents(folder, papers=False):
        experiment = load(document["id"])
        took = f"{document['seeds']} seeds, " if document["seeds"] else ""
        lines += [
            f"## {experiment.title}",
            "",
            f"{took}{document['core_seconds']:,.0f} s on one core; {document['machine']}; "
            f"{document['date']}; nalm {document['version']}.",
            "",
            experiment.note.strip(),
            "",
        ]
        table = [problem_cells(line) for line in document["table"]] if experiment.table == "problems" else document["table"]
        lines += [*_markdown(table), ""]
    return "\n".join(lines)


def _markdown(table: Sequence[Mapping[str, Any]]) -> list[str]:
    names = list(table[0])
    lines = ["| " + " | ".join(names) + " |", "| " + " | ".join("---" for _ in names) + " |"]
    return lines + ["| " + " | ".join(str(line[name]) for name in names) + " |" for line in table]


def _documents(folder: str | os.PathLike[str], papers: bool) -> list[dict[str, Any]]:
    """The reports under a folder of the papers' experiments, or of the others."""
    found = []
    for experiment in load_all():
        path = Path(folder) / experiment.slug / "report.json"
        if path.is_file() and (":" in experiment.id) == papers:
            found.append(json.loads(path.read_text(encoding="utf-8")))
    if not found:
        raise ValueError(f"{folder} holds no reports; `nalm reproduce ... --out {folder}` makes them")
    return found


def page(folder: str | os.PathLike[str], previous: str = "") -> str:
    """The page of all experiments whose reports a folder holds, in Markdown; of the others, what the previous page says."""
    parts = _parts(previous)
    for one in _documents(folder, papers=True):
        numbers = " | ".join(str(one[name]) for name in VERDICTS)
        what = " | ".join([one["id"], one["title"], one["budget"], str(one["seeds"] or "")])
        row = f"| {what} | {numbers} | {one['core_seconds']:,.0f} | {one['date']} |"
        parts[one["id"]] = _Part(row, [*section(one, load(one["id"]))])
    known = [parts[experiment.id] for experiment in load_all() if experiment.id in parts]
    counts = {name: sum(part.number(place) for part in known) for place, name in enumerate(VERDICTS, 4)}
    lines = [
        "# The papers' experiments, run again",
        "",
        "Written by `nalm reproduce --all --out DIR --page docs/reproduction.md`; do not edit. What DIR lacks stays as it was.",
        "",
        f"{len(known)} experiments, {sum(counts.values())} published claims: "
        + ", ".join(f"{count} {name}" for name, count in counts.items())
        + f". {sum(part.number(7) for part in known) / 3600:.1f} core-hours "
        + "(runs that experiments share count for each) on two cores.",
        "",
        RULES,
        "",
        "| id | experiment | budget | seeds | agree | differ | not comparable | seconds on one core | date |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
        *(part.row for part in known),
        "",
        "Left out:",
        "",
        *(f"- {names}: {reason}." for names, reason in LEFT_OUT.items()),
        "",
    ]
    return "\n".join([*lines, *(line for part in known for line in part.section)])


@dataclass(frozen=True)
class _Part:
    """What a page says of one experiment: its row of the table, and its section."""

    row: str
    section: list[str]

    def number(self, place: int) -> int:
        """A number of the row."""
        return int(self.row.split(" | ")[place].strip("| ").replace(",", ""))


def _parts(text: str) -> dict[str, _Part]:
    """The parts of a page by the ids of their experiments."""
    before, *sections = re.split(r"^## ", text, flags=re.MULTILINE)
    rows = {line.split(" | ")[0].strip("| "): line for line in before.splitlines() if line.startswith("| ")}
    parts = {}
    for one in sections:
        identity = one.split(": ", 1)[0]
        if identity in rows:
            parts[identity] = _Part(rows[identity], [*f"## {one}".rstrip("\n").split("\n"), ""])
    return parts
