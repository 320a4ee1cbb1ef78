"""Write the pages that follow from the code: `docs/modules.md` from the registry, `docs/api.md` from the docstrings."""

import importlib
import inspect
from pathlib import Path

import nalm
from nalm.registry import PAPERS, modules

HERE = Path(__file__).parent
ROOMS = {
    "nalm.training": "What an ordinary training loop may use: losses, schedules, clipping, noise.",
    "nalm.discover": "From a table to a report, as `nalm discover` prints it.",
    "nalm.dynamics": "Differential equations from time series.",
    "nalm.images": "Arithmetic behind image networks.",
    "nalm.reproduction": "The papers' experiments from Python.",
}
"""Public names beside those of `nalm` itself."""


def module_table() -> str:
    """The page of all modules, in Markdown."""
    lines = [
        "# The modules",
        "",
        "Written by `make docs` from the registry; do not edit. *Exact operations* are those that a layer with two inputs can",
        "express to rounding, for the inputs named; tests verify each, and that all others are refused.",
        "",
        "*Robust* modules have a recipe of that name (`nalm bench ... --recipe robust`, `nalm.fit`): Levenberg-Marquardt",
        "steps, snapping, verification, new starts. Use it where weights should end at whole numbers and hundreds of rows are",
        "at hand; the published recipes to reproduce the papers; and descent with `nalm.LogMagnitude` inside a network.",
        "[open-problems.md](open-problems.md) has the measurements, and when it fails.",
        "",
        "| name | module | class | exact operations | inputs | robust | what it does | paper |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for record in (one for one in modules().values() if not one.own):
        options = ", ".join(f"{key}={value}" for key, value in record.options.items())
        cells = [
            f"`{record.name}`",
            record.label,
            f"`nalm.{record.cls.__name__}`" + (f" with {options}" if options else ""),
            ", ".join(record.operations) or "none",
            record.domain,
            "yes" if record.robust else "",
            record.summary,
            f"[{record.paper}](#papers)",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    lines += ["", "## Papers", "", *(f"- `{key}`: {text}." for key, text in PAPERS.items()), ""]
    return "\n".join(lines)


def api() -> str:
    """The page of public names, in Markdown."""
    lines = [
        "# Public names",
        "",
        "Written by `make docs` from the docstrings; do not edit. `help(nalm.NMU)` shows formula, arguments and reference.",
        "",
        "## nalm",
        "",
    ]
    names = [name for name in nalm.__all__ if not inspect.ismodule(getattr(nalm, name)) and name != "__version__"]
    units = [name for name in names if inspect.isclass(getattr(nalm, name)) and issubclass(getattr(nalm, name), nalm.Unit)]
    for title, chosen in (("Layers", units), ("Everything else", [name for name in names if name not in units])):
        lines += [f"### {title}", "", *_entries(nalm, chosen), ""]
    for room, purpose in ROOMS.items():
        module = importlib.import_module(room)
        lines += [f"## {room}", "", purpose, "", *_entries(module, module.__all__), ""]
    return "\n".join(lines)


def _entries(module: object, names: list[str]) -> list[str]:
    """A line for each class and function: how it is called, and what it is."""
    entries = []
    for name in names:
        value = getattr(module, name)
        if callable(value):
            purpose = inspect.getdoc(value).split("\n\n")[0].replace("\n", " ")
            failure = inspect.isclass(value) and issubclass(value, Exception)
            call = name if failure else f"{name}({', '.join(_arguments(value))})"
            entries.append(f"- `{call}`: {purpose}")
    return entries


def _arguments(value: object) -> list[str]:
    """Names of the arguments, with their defaults; what selects device and precision is left out, as all layers have it."""
    shown = []
    for name, one in inspect.signature(value).parameters.items():
        if name in ("device", "dtype") or name.startswith("_"):
            continue
        stars = {one.VAR_POSITIONAL: "*", one.VAR_KEYWORD: "**"}.get(one.kind, "")
        written = "..." if repr(one.default).startswith("<") else repr(one.default)
        shown.append(stars + name + ("" if one.default is one.empty else f"={written}"))
    return shown


if __name__ == "__main__":
    (HERE / "api.md").write_text(api(), encoding="utf-8")
    (HERE / "modules.md").write_text(module_table(), encoding="utf-8")
