"""The record of trained models, `runs.jsonl`: a line a run, with a checksum, which a kill may cut short but not harm.

It knows nothing of what is trained. A line that is damaged is reported and left out, so that its run is trained again.
"""

from __future__ import annotations

import json
import logging
import os
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from nalm.dynamics.descent import Run
from nalm.files import checksum, read_bytes

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["keep_run", "kept_runs"]

log = logging.getLogger(__name__)


def kept_runs(path: Path) -> dict[str, Run]:
    """The runs of a record by their keys; none where there is no record yet."""
    if not path.exists():
        return {}
    lines = [line for line in read_bytes(path).split(b"\n") if line.strip()]
    found = [run for run in map(_read, lines) if run is not None]
    if len(found) < len(lines):
        log.warning("%s: %d damaged lines were left out; their runs are trained again", path, len(lines) - len(found))
    return dict(found)


def keep_run(path: Path, key: str, run: Run) -> None:
    """Add a run to a record, on a line of its own also where the last one was cut short, and wait until it is on the disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = _written({"key": key, **asdict(run), "theta": run.theta.tolist()})
    with path.open("a+b") as file:
        if file.tell():
            file.seek(-1, os.SEEK_END)
            if file.read() != b"\n":
                text = "\n" + text
        file.write(text.encode())
        file.flush()
        os.fsync(file.fileno())


def _written(run: dict[str, Any]) -> str:
    return json.dumps({"checksum": checksum(json.dumps(run)), **run}) + "\n"


def _read(line: bytes) -> tuple[str, Run] | None:
    """The key and the run of a line; nothing where the line is not as it was written."""
    try:
        run = json.loads(line)
        if run.pop("checksum") != checksum(json.dumps(run)):
            return None
        return run.pop("key"), Run(**{**run, "theta": np.array(run["theta"], float)})
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
