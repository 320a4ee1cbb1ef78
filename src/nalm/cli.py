"""The `nalm` command: parse, call one function, print."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from nalm import __version__

app = typer.Typer(
    name="nalm",
    help="Neural Arithmetic Logic Modules: layers that learn exact arithmetic.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
listing = typer.Typer(help="Show what there is.", rich_markup_mode=None)
app.add_typer(listing, name="list")

UsageError: type[Exception] = typer.BadParameter.__mro__[1]
"""What Typer raises for bad usage; it gives the class no public name."""

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"nalm {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Neural Arithmetic Logic Modules: layers that learn exact arithmetic."""


@listing.command("modules")
def list_modules(as_json: Json = False) -> None:
    """Every module: what it can express exactly, for which inputs, and where it comes from."""
    from nalm.registry import PAPERS, modules

    rows = [
        {
            "name": record.name,
            "label": record.label,
            "operations": list(record.operations),
            "domain": record.domain,
            "paper": PAPERS[record.paper],
            "summary": record.summary,
            "fused": record.fused,
        }
        for record in modules().values()
    ]
    if as_json:
        typer.echo(json.dumps({"modules": rows}, ensure_ascii=False))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, header_style="bold")
    for heading in ("name", "label", "exact operations", "inputs", "what it does"):
        table.add_column(heading, overflow="fold")
    for record in modules().values():
        table.add_row(record.name, record.label, " ".join(record.operations), record.domain, record.summary)
    Console(width=None if sys.stdout.isatty() else 140).print(table)


def main() -> None:
    """Run the command; bad usage ends with one line and exit status 2."""
    try:
        status = app(standalone_mode=False)
    except UsageError as error:
        message = getattr(error, "format_message", error.__str__)()
        sys.stderr.write(f"nalm: {' '.join(message.split())} (nalm --help shows what there is)\n")
        status = 2
    except typer.Abort:
        sys.stderr.write("nalm: stopped\n")
        status = 130
    sys.exit(status or 0)
