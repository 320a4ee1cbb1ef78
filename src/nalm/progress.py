"""How far the work is: the object that long computations tell, one that shows nothing, and a bar on a terminal."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Progress", "Silent", "following", "progress_bar", "show_bars"]


class Progress(Protocol):
    """Something that shows how far the work is; the command line has one, libraries stay silent."""

    def start(self, total: float, what: str) -> None:
        """Work of a size begins."""

    def advance(self, amount: float) -> None:
        """Some of it is done."""

    def say(self, text: str) -> None:
        """What is being done now, such as `compiling nmu`; an empty text when that is over."""


class Silent:
    """Shows nothing."""

    def start(self, total: float, what: str) -> None:
        """Ignore it."""

    def advance(self, amount: float) -> None:
        """Ignore it."""

    def say(self, text: str) -> None:
        """Ignore it."""


class _Bar:
    """A progress bar on standard error."""

    def __init__(self, bar: Any) -> None:
        self.bar = bar
        self.task: Any = None
        self.what = ""

    def start(self, total: float, what: str) -> None:
        """Show a bar of a size."""
        self.what = what
        self.task = self.bar.add_task(what, total=total)

    def advance(self, amount: float) -> None:
        """Move it on."""
        self.bar.advance(self.task, amount)

    def say(self, text: str) -> None:
        """Show what is being done beside the bar."""
        if self.task is None:
            self.start(1, self.what)
        self.bar.update(self.task, description=f"{self.what}: {text}" if text else self.what)


_shown = True


def show_bars(wanted: bool) -> None:
    """Whether progress bars are drawn at all from now on."""
    global _shown
    _shown = wanted


@contextmanager
def progress_bar(*, always: bool = False) -> Iterator[Progress]:
    """A progress bar with the time left, on standard error and only if that is a terminal, or `always`."""
    from rich import progress
    from rich.console import Console

    columns = [
        progress.TextColumn("{task.description}", markup=False),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TimeElapsedColumn(),
        progress.TimeRemainingColumn(),
    ]
    console = Console(file=sys.stderr)
    hidden = not (always or (_shown and sys.stderr.isatty()))
    with progress.Progress(*columns, console=console, transient=not always, disable=hidden) as bar:
        yield _Bar(bar)


class _Quiet(Silent):
    """Passes on how far the work is to an object that is not told what is being done."""

    def __init__(self, to: Any) -> None:
        self.to = to

    def start(self, total: float, what: str) -> None:
        """Pass it on."""
        self.to.start(total, what)

    def advance(self, amount: float) -> None:
        """Pass it on."""
        self.to.advance(amount)


@contextmanager
def following(progress: Progress | bool | None) -> Iterator[Progress]:
    """The object that is told how far the work is: the one given, a bar of our own for `True`, else one that shows nothing."""
    if progress is True:
        with progress_bar(always=True) as bar:
            yield bar
    elif progress is None or progress is False:
        yield Silent()
    elif not (hasattr(progress, "start") and hasattr(progress, "advance")):
        raise TypeError(f"progress must be True, or an object with start(total, what) and advance(amount), got {progress!r}")
    else:
        yield progress if hasattr(progress, "say") else _Quiet(progress)
