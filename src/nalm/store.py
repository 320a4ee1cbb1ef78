"""Raw results of benchmark cells in one SQLite file a folder: appended, never edited, safe against kills and other writers."""

from __future__ import annotations

import contextlib
import sqlite3
import warnings
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nalm.files import checksum
from nalm.specs import Cell, Runs

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

__all__ = ["Origin", "Store", "StoreError", "StoreWarning"]

FILE = "results.sqlite"
APPLICATION = 0x6E616C6D
"""Marks a database as a nalm store: the letters `nalm`."""
SCHEMA = 2
"""Version of the tables below. Format 1 had no checksums; such a store is brought up to date when it is opened."""
PATIENCE = 60.0
"""Seconds to wait for another process that writes."""

COLUMNS: dict[str, dict[str, type]] = {
    "cells": {"key": str, "description": str, "steps": bytes},
    "runs": {
        **dict.fromkeys(("cell", "engine"), str),
        "seed": int,
        **dict.fromkeys(("status", "message"), str),
        **dict.fromkeys(("validation", "test", "sparsity", "weights"), bytes),
        "version": str,
        "seconds": float,
        "written": str,
    },
}
"""What the tables hold. Numbers are little endian: float64, and int64 for the steps."""
STATUSES = ("ok", "diverged", "failed")
TYPES = {str: "TEXT", bytes: "BLOB", int: "INTEGER", float: "REAL"}
SELECT = {table: f"SELECT id, {', '.join(columns)}, checksum FROM {table}" for table, columns in COLUMNS.items()}


def _creation(table: str) -> str:
    columns = ", ".join(f"{name} {TYPES[kind]} NOT NULL" for name, kind in COLUMNS[table].items())
    return f"CREATE TABLE {table} (id INTEGER PRIMARY KEY, {columns}, checksum TEXT NOT NULL)"


TABLES = (
    *map(_creation, COLUMNS),
    "CREATE INDEX cell_keys ON cells (key)",
    "CREATE INDEX run_keys ON runs (cell, engine, seed)",
)
"""The order of the ids is the order of writing. Nothing need be unique: of several whole rows the earliest counts, so that a
row can be written again where one is damaged."""

REMEDIES = {
    "not a database": "move the file away or choose another folder",
    "malformed": "the file is damaged; restore it from a copy, or move it away and compute anew",
    "locked": "another process keeps writing; wait for it or end it, then try again",
    "full": "what was stored is safe; free some space and try again",
    "I/O": "check the disk, then try again",
}
"""What to do, by a word of SQLite's own message."""


class StoreError(ValueError):
    """A store that cannot be opened, read or written; says which file, why, and what to do."""


class StoreWarning(UserWarning):
    """A row of a store that is damaged and left out."""


class Origin(NamedTuple):
    """Where runs of a cell come from."""

    engine: str
    version: str
    """Version of nalm."""
    runs: int
    """How many."""
    seconds: float
    """Wall time of all."""
    written: str
    """When the last was stored, UTC in ISO 8601."""


class Store:
    """The results in `folder/results.sqlite`, which is created where it does not exist, written by nalm `version`.

    Several processes may use one store at once; each opens its own, and uses it in one thread only. Close the
    store before you copy its file: until then, or after a kill, the last results may stand in `results.sqlite-wal` beside it.
    """

    def __init__(self, folder: str | os.PathLike[str], *, version: str) -> None:
        self.path = Path(folder) / FILE
        self.version = version
        self._reported: set[str] = set()
        self._last: tuple[tuple[Any, ...], list[sqlite3.Row]] = (), []
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"cannot create the folder of {self.path} ({error.strerror}): choose another folder") from error
        with self._explained():
            self._connection = sqlite3.connect(self.path, timeout=PATIENCE, isolation_level=None)
        try:
            self._prepare()
        except BaseException:
            self.close()
            raise

    def _prepare(self) -> None:
        """Check what the file is, and create the tables in a new one; the lock lets only one process do so."""
        with self._explained(), self._connection as connection:
            connection.row_factory = sqlite3.Row
            connection.text_factory = lambda data: data.decode(errors="surrogateescape")  # damaged text must not end a query
            # In WAL mode NORMAL would do against kills. FULL also keeps every commit through a loss of power, and is needed
            # where WAL is not to be had; a cell takes seconds to compute and its commit milliseconds.
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("BEGIN IMMEDIATE")
            questions = ("PRAGMA application_id", "PRAGMA user_version", "SELECT count(*) FROM sqlite_master")
            application, schema, tables = (connection.execute(question).fetchone()[0] for question in questions)
            if (application, schema, tables) == (0, 0, 0):
                for table in TABLES:
                    connection.execute(table)
                connection.execute(f"PRAGMA application_id = {APPLICATION}")
                connection.execute(f"PRAGMA user_version = {SCHEMA}")
            elif (application, schema) == (APPLICATION, 1):
                self._upgrade()
            elif application != APPLICATION:
                raise StoreError(f"cannot use {self.path}: it is no store of nalm; choose another folder")
            elif schema != SCHEMA:
                raise StoreError(
                    f"cannot use {self.path}: its format is {schema} and nalm {self.version} knows format {SCHEMA};"
                    " use the nalm that wrote it or choose another folder"
                )
        # Where WAL is not supported, or another process is at work this moment, the store works without it.
        with self._explained(), contextlib.suppress(sqlite3.OperationalError):
            self._connection.execute("PRAGMA journal_mode = WAL")

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        """Turn an error of SQLite into a sentence."""
        try:
            yield
        except sqlite3.ProgrammingError:
            raise  # a closed store or another thread: nothing is wrong with the file
        except sqlite3.Error as error:
            fallback = "check that folder and file can be written, or choose another folder"
            remedy = next((remedy for word, remedy in REMEDIES.items() if word in str(error)), fallback)
            raise StoreError(f"cannot use {self.path} ({error}): {remedy}") from error

    def _upgrade(self) -> None:
        """Copy the tables of format 1, with checksums; damaged rows are left out."""
        execute = self._connection.execute
        for table in COLUMNS:
            execute(f"ALTER TABLE {table} RENAME TO old_{table}")
        for statement in TABLES:
            execute(statement)
        widths: dict[str, int] = {}
        for table, columns in COLUMNS.items():
            for row in execute(f"SELECT id, {', '.join(columns)} FROM old_{table} ORDER BY id"):
                values = tuple(row)[1:]
                if _described(row) if table == "cells" else _fits(row, widths.get(row["cell"], -1)):
                    self._insert(table, values, row["id"])
                    if table == "cells":
                        widths[row["key"]] = len(row["steps"])
                else:
                    self._report(f"row {row['id']} of {table}")
        for table in COLUMNS:
            execute(f"DROP TABLE old_{table}")
        execute(f"PRAGMA user_version = {SCHEMA}")

    def _insert(self, table: str, values: tuple[Any, ...], number: int | None = None) -> None:
        places = ", ".join("?" * (len(values) + 2))
        self._connection.execute(f"INSERT INTO {table} VALUES ({places})", (number, *values, _mark(values)))

    def _report(self, what: str) -> None:
        """Say once that something is damaged."""
        if what not in self._reported:
            self._reported.add(what)
            warnings.warn(f"{self.path}: {what} is damaged and left out", StoreWarning, stacklevel=4)

    def _knows(self, cell: Cell) -> bool:
        """Whether there is a whole row of a cell."""
        with self._explained():
            rows = self._connection.execute(f"{SELECT['cells']} WHERE key = ? ORDER BY id", (cell.key,)).fetchall()
        known = any(_whole(row) and row["key"] == cell.key and _described(row) for row in rows)
        if rows and not known:
            self._report(f"row {rows[0]['id']} of cells")
        return known

    def _rows(self, cell: Cell, engine: str | None) -> list[sqlite3.Row]:
        """The whole rows of a cell's runs, in order of writing; those asked for last are kept until somebody writes."""
        with self._explained():
            (version,) = self._connection.execute("PRAGMA data_version").fetchone()
        state = (cell.key, engine, version, self._connection.total_changes)
        if state != self._last[0]:
            self._last = state, self._read(cell, engine) if self._knows(cell) else []
        return self._last[1]

    def _read(self, cell: Cell, engine: str | None) -> list[sqlite3.Row]:
        query = f"{SELECT['runs']} WHERE cell = :cell AND (:engine IS NULL OR engine = :engine) ORDER BY id"
        with self._explained():
            rows = self._connection.execute(query, {"cell": cell.key, "engine": engine}).fetchall()
        width = 8 * len(cell.recipe.steps)
        whole = [
            row
            for row in rows
            if _fits(row, width) and _whole(row) and (row["cell"], engine or row["engine"]) == (cell.key, row["engine"])
        ]
        known = {row["seed"] for row in whole}
        for row in rows if len(whole) < len(rows) else ():
            if row["seed"] not in known:
                self._report(f"row {row['id']} of runs")
        return whole

    def _select(self, cell: Cell, engine: str | None) -> dict[int, sqlite3.Row]:
        """A cell's runs by seed; the earliest of each, and one that failed only where there is no other."""
        rows = self._rows(cell, engine)[::-1]
        return {row["seed"]: row for row in sorted(rows, key=lambda row: row["status"] != "failed")}

    def missing(self, cell: Cell, seeds: Sequence[int], engine: str | None = None) -> list[int]:
        """The seeds of which no whole run is stored, by that engine or, without one, by any."""
        stored = self._select(cell, engine)
        return [int(seed) for seed in seeds if seed not in stored]

    def add(self, cell: Cell, runs: Runs, *, engine: str, seconds: float) -> None:
        """Store runs of a cell, all or none; a run that is stored already (same cell, engine, seed) stays as it is.

        One that failed makes way for one that did not.
        `seconds` is the wall time of all these runs; each is taken to have had an equal share.
        """
        shape = (len(runs), len(runs.steps))
        for name in ("validation", "test", "sparsity"):
            if getattr(runs, name).shape != shape:
                raise ValueError(f"{name} must have shape {shape} (runs, steps), got {getattr(runs, name).shape}")
        if not np.array_equal(runs.steps, cell.recipe.steps):
            raise ValueError(f"runs of cell {cell.key} must be logged at the steps of its recipe, got others")
        written = datetime.now(timezone.utc).isoformat(timespec="seconds")
        columns = (runs.seeds, runs.status, runs.messages, runs.validation, runs.test, runs.sparsity, runs.weights)
        with self._explained(), self._connection as connection:
            connection.execute("BEGIN IMMEDIATE")
            if not self._knows(cell):
                self._insert("cells", (cell.key, cell.to_json(), runs.steps.astype("<i8").tobytes()))
            stored = {seed: row["status"] for seed, row in self._select(cell, engine).items()}
            for seed, status, message, *curves in zip(*columns, strict=True):
                if stored.get(int(seed), "") in ("", "failed") and stored.get(int(seed)) != status:
                    stored[int(seed)] = str(status)
                    blobs = (curve.astype("<f8").tobytes() for curve in curves)
                    share = float(seconds / len(runs))
                    row = (cell.key, engine, int(seed), str(status), str(message), *blobs, self.version, share, written)
                    self._insert("runs", row)

    def runs(self, cell: Cell, seeds: Sequence[int], engine: str | None = None) -> Runs:
        """The runs of these seeds, in their order, by that engine or, without one, the earliest of each seed.

        Where some runs have fewer weights than others (they failed before they had any), NaN stands in their place.

        Raises:
            KeyError: Runs are not stored; it names their seeds.
        """
        stored = self._select(cell, engine)
        absent = [int(seed) for seed in seeds if seed not in stored]
        if absent or not stored:
            by = "" if engine is None else f" by engine {engine}"
            raise KeyError(f"cell {cell.key} has no stored run{by} of seeds {absent}")
        rows = [stored[seed] for seed in seeds]
        steps = cell.recipe.steps

        def matrix(name: str, width: int) -> NDArray[np.float64]:
            # Eight bytes of 255 are a NaN.
            data = b"".join(row[name].ljust(8 * width, b"\xff") for row in rows)
            return np.frombuffer(data, "<f8").astype(np.float64).reshape(len(rows), width)

        return Runs(
            seeds=np.array(seeds, np.int64),
            steps=steps,
            validation=matrix("validation", len(steps)),
            test=matrix("test", len(steps)),
            sparsity=matrix("sparsity", len(steps)),
            weights=matrix("weights", max((len(row["weights"]) // 8 for row in rows), default=0)),
            status=[row["status"] for row in rows],
            messages=[row["message"] for row in rows],
        )

    def seconds(self, cell: Cell, seeds: Sequence[int], engine: str | None = None) -> float:
        """Wall time of the stored runs of these seeds, added up."""
        stored = self._select(cell, engine)
        return float(sum(stored[seed]["seconds"] for seed in seeds))

    def cells(self) -> list[Cell]:
        """Every stored cell, in order of first writing."""
        with self._explained():
            rows = self._connection.execute(f"{SELECT['cells']} ORDER BY id").fetchall()
        cells: dict[str, Cell] = {}
        for row in rows:
            cell = _described(row) if _whole(row) else None
            if cell is not None:
                cells.setdefault(cell.key, cell)
            else:
                self._report(f"row {row['id']} of cells")
        return list(cells.values())

    def origins(self, cell: Cell) -> list[Origin]:
        """Engines and versions that computed a cell, with the number and wall time of their runs, in order of first writing."""
        parts: dict[tuple[str, str], list[sqlite3.Row]] = {}
        for row in self._rows(cell, None):
            parts.setdefault((row["engine"], row["version"]), []).append(row)
        return [
            Origin(*by, len(rows), sum(row["seconds"] for row in rows), max(row["written"] for row in rows))
            for by, rows in parts.items()
        ]

    def close(self) -> None:
        """Close the file; a closed store cannot be used any more."""
        self._connection.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()


def _mark(values: tuple[Any, ...]) -> str:
    """The checksum of a row, which knows types too."""
    return checksum(*(value if isinstance(value, bytes) else ascii(value) for value in values))


def _whole(row: sqlite3.Row) -> bool:
    """Whether a row is as it was written."""
    return bool(row["checksum"] == _mark(tuple(row)[1:-1]))


def _typed(row: sqlite3.Row, table: str) -> bool:
    """Whether each value of a row is of the type of its column."""
    return all(type(row[name]) is kind for name, kind in COLUMNS[table].items())


def _described(row: sqlite3.Row) -> Cell | None:
    """The cell of a row, if its description belongs to its key, and its steps to its recipe."""
    try:
        cell = Cell.from_json(row["description"])
        whole = _typed(row, "cells") and cell.key == row["key"] and cell.recipe.steps.astype("<i8").tobytes() == row["steps"]
        return cell if whole else None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def _fits(row: sqlite3.Row, width: int) -> bool:
    """Whether a run has an error for each logged step (of so many bytes), whole numbers of weights, and a known status."""
    curves = ("validation", "test", "sparsity")
    whole = _typed(row, "runs") and len(row["weights"]) % 8 == 0 and row["status"] in STATUSES
    return whole and all(len(row[name]) == width for name in curves)
