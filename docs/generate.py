"""Write the parts of the documentation that follow from the code: `docs/modules.md` from the registry."""

from pathlib import Path

from nalm.registry import PAPERS, modules

HERE = Path(__file__).parent


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
    for record in modules().values():
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


if __name__ == "__main__":
    (HERE / "modules.md").write_text(module_table(), encoding="utf-8")
