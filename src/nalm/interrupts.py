"""Ctrl-C that is honoured at once, also while compiled code (a compiler above all) does not listen to Python."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["STATUS", "prompt_interrupts", "stopped"]

STATUS = 130
"""Exit status of what was interrupted."""
GRACE = 0.7
"""Seconds in which the work may end by itself."""

_said = threading.Event()


def stopped() -> int:
    """Say, once, that the work was stopped; the exit status."""
    if not _said.is_set():
        _said.set()
        sys.stderr.write("nalm: stopped\n")
        sys.stderr.flush()
    return STATUS


@contextlib.contextmanager
def prompt_interrupts() -> Iterator[None]:
    """End the process a moment after an interrupt, whatever it is doing; what was stored is whole, as after a kill."""
    _said.clear()
    if os.name == "nt" or threading.current_thread() is not threading.main_thread():
        yield
        return
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    watcher = threading.Thread(target=_watch, args=(reading,), daemon=True)
    watcher.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        os.close(writing)
        watcher.join(0.1)  # it goes on only after an interrupt


def _watch(reading: int) -> None:
    """Wait for a signal, or for the end of the work."""
    while number := os.read(reading, 1):
        if number[0] == signal.SIGINT:
            time.sleep(GRACE)
            if sys.stderr.isatty():
                sys.stderr.write("\033[?25h\r\033[K")  # the cursor, which a progress bar hides
            os._exit(stopped())
    os.close(reading)
