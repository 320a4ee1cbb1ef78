"""The `nalm` command: parse, call one function, print."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import click
import typer

from nalm import __version__

app = typer.Typer(
    name="nalm",
    help="Neural Arithmetic Logic Modules: layers that learn exact arithmetic.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
listing = typer.Typer(help="Show what there is.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(listing, name="list")

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
        sys.exit(app(standalone_mode=False) or 0)
    except click.UsageError as error:
        sys.stderr.write(f"nalm: {error.format_message()}\n")
        sys.exit(2)
    except click.Abort:
        sys.stderr.write("nalm: stopped\n")
        sys.exit(130)
