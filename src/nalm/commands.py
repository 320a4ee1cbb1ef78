"""What all commands share: the options that each takes, values of options from text, and a last line where one fails."""

from __future__ import annotations

import contextlib
import functools
import inspect
import logging
import os
import sys
import warnings
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nalm.checks import literal, whole
from nalm.native import THREADS
from nalm.progress import show_bars

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "Json",
    "command",
    "complain",
    "module_names",
    "no_output",
    "noise_level",
    "setting",
    "split_names",
    "whole_number",
]

UsageError: type[Exception] = typer.BadParameter.__mro__[1]
"""What Typer raises for bad usage; it gives the class no public name."""

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]


def whole_number(text: str) -> int:
    """The whole number in a text."""
    try:
        return int(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a whole number") from None


def command(home: typer.Typer, name: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make a function a command, which takes -v, -q and --threads beside its own options."""

    def made(function: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(function)
        def run(*, verbose: bool, quiet: bool, threads: int | None, **values: Any) -> None:
            settle(verbose, quiet, threads)
            function(**values)

        taken = [*inspect.signature(function, eval_str=True).parameters.values(), *COMMON]
        run.__signature__ = inspect.Signature(taken)  # type: ignore[attr-defined]
        run.__annotations__ = {one.name: one.annotation for one in taken}
        return home.command(name)(run)

    return made


def _common(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


COMMON = (
    _common("verbose", Annotated[bool, typer.Option("--verbose", "-v", help="Say more about what is being done.")], False),
    _common("quiet", Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar and no warnings.")], False),
    _common(
        "threads",
        Annotated[int | None, typer.Option(parser=whole_number, help="Most threads, or processes; default: all cores.")],
        None,
    ),
)
"""What every command takes."""


def settle(verbose: bool, quiet: bool, threads: int | None) -> None:
    """Set how much is said, and how many threads work."""
    if verbose and quiet:
        raise typer.BadParameter("-v and -q exclude each other")
    logging.basicConfig(format="nalm: %(message)s")
    logging.getLogger("nalm").setLevel(logging.ERROR if quiet else logging.INFO if verbose else logging.WARNING)
    if quiet:
        warnings.simplefilter("ignore")
    show_bars(not quiet)
    if threads is not None:
        os.environ[THREADS] = os.environ["OMP_NUM_THREADS"] = str(whole("--threads", threads, 1, 1024))


def split_names(text: str, option: str = "--module") -> list[str]:
    """Names separated by commas; at least one."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise typer.BadParameter(f"{option} needs at least one name, got {text!r}")
    return names


def module_names(text: str) -> list[str]:
    """Names of modules; what is named by its file is looked for in the current directory too."""
    if ":" in text:
        sys.path.insert(0, "")
    return split_names(text)


def noise_level(text: str) -> float:
    """The number that --noise takes."""
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(f"--noise takes auto or a number, got {text!r}") from None


def setting(text: str, option: str = "--set") -> tuple[str, Any]:
    """Name and value of name=value."""
    name, sign, value = text.partition("=")
    if not sign:
        raise typer.BadParameter(f"{option} takes name=value, got {text!r}")
    return name.strip(), literal(value)


def complain(text: str, status: int = 2) -> int:
    """Write the one line of a command that failed, and give its exit status."""
    sys.stderr.write(f"nalm: {' '.join(text.split())}\n")
    return status


def no_output(status: int = 1) -> int:
    """Standard output cannot be written: what is left of it goes nowhere, or Python would complain about it at its end."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return status
