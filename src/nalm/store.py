"""Raw results of benchmark cells in one SQLite file a folder: appended, never edited, safe against kills and other writers."""

from __future__ import annotations

import contextlib
import sqlite3
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nalm.specs import Cell, Runs

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

__all__ = ["Origin", "Store", "StoreError"]

FILE = "results.sqlite"
APPLICATION = 0x6E616C6D
"""Marks a database as a nalm store: the letters `nalm`."""
SCHEMA = 1
"""Version of the tables below."""
PATIENCE = 60.0
"""Seconds to wait for another process that writes."""

TABLES = (
    "CREATE TABLE cells (id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, description TEXT NOT NULL, steps BLOB NOT NULL)",
    """CREATE TABLE runs (
        id INTEGER PRIMARY KEY, cell TEXT NOT NULL REFERENCES cells (key), engine TEXT NOT NULL, seed INTEGER NOT NULL,
        status TEXT NOT NULL, message TEXT NOT NULL,
        validation BLOB NOT NULL, test BLOB NOT NULL, sparsity BLOB NOT NULL, weights BLOB NOT NULL,
        version TEXT NOT NULL, seconds REAL NOT NULL, written TEXT NOT NULL,
        UNIQUE (cell, engine, seed))""",
)
"""Numbers are little endian: float64, and int64 for the steps. The order of the ids is the order of writing."""

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
            elif application != APPLICATION:
                raise StoreError(f"cannot use {self.path}: it is no store of nalm; choose another folder")
            elif schema != SCHEMA:
                raise StoreError(
                    f"cannot use {self.path}: its format is {schema} and nalm {self.version} knows format {SCHEMA};"
                    " use the nalm that wrote it or choose another folder"
                )
        # Where WAL is not supported, or another process is at work this moment, the store does its duty without.
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

    def _select(self, columns: str, cell: Cell, engine: str | None) -> dict[int, sqlite3.Row]:
        """Some columns of a cell's runs, by seed; the earliest run of each."""
        query = (
            f"SELECT seed, {columns} FROM runs WHERE cell = :cell AND (:engine IS NULL OR engine = :engine) ORDER BY id DESC"
        )
        with self._explained():
            return {row["seed"]: row for row in self._connection.execute(query, {"cell": cell.key, "engine": engine})}

    def missing(self, cell: Cell, seeds: Sequence[int], engine: str | None = None) -> list[int]:
        """The seeds of which no run is stored, by that engine or, without one, by any."""
        stored = self._select("id", cell, engine)
        return [int(seed) for seed in seeds if seed not in stored]

    def add(self, cell: Cell, runs: Runs, *, engine: str, seconds: float) -> None:
        """Store runs of a cell, all or none; a run that is stored already (same cell, engine, seed) stays as it is.

        `seconds` is the wall time of all these runs; each is taken to have had an equal share.
        """
        shape = (len(runs), len(runs.steps))
        for name in ("validation", "test", "sparsity"):
            if getattr(runs, name).shape != shape:
                raise ValueError(f"{name} must have shape {shape} (runs, steps), got {getattr(runs, name).shape}")
        steps = runs.steps.astype("<i8").tobytes()
        written = datetime.now(timezone.utc).isoformat(timespec="seconds")
        columns = (runs.seeds, runs.status, runs.messages, runs.validation, runs.test, runs.sparsity, runs.weights)
        with self._explained(), self._connection as connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute(
                "INSERT INTO cells (key, description, steps) VALUES (?, ?, ?) ON CONFLICT (key) DO NOTHING",
                (cell.key, cell.to_json(), steps),
            )
            stored = connection.execute("SELECT steps FROM cells WHERE key = ?", (cell.key,)).fetchone()
            if stored["steps"] != steps:
                raise StoreError(
                    f"cannot add to cell {cell.key} in {self.path}: its runs were logged at other steps; choose another folder"
                )
            for seed, status, message, *curves in zip(*columns, strict=True):
                connection.execute(
                    "INSERT INTO runs (cell, engine, seed, status, message, validation, test, sparsity, weights, version,"
                    " seconds, written) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
                    " ON CONFLICT (cell, engine, seed) DO NOTHING",
                    (
                        *(cell.key, engine, int(seed), status, message),
                        *(curve.astype("<f8").tobytes() for curve in curves),
                        *(self.version, seconds / len(runs), written),
                    ),
                )

    def runs(self, cell: Cell, seeds: Sequence[int], engine: str | None = None) -> Runs:
        """The runs of these seeds, in their order, by that engine or, without one, the earliest of each seed.

        Where some runs have fewer weights than others (they failed before they had any), NaN stands in their place.

        Raises:
            KeyError: Runs are not stored; it names their seeds.
        """
        stored = self._select("status, message, validation, test, sparsity, weights", cell, engine)
        absent = [int(seed) for seed in seeds if seed not in stored]
        if absent or not stored:
            by = "" if engine is None else f" by engine {engine}"
            raise KeyError(f"cell {cell.key} has no stored run{by} of seeds {absent}")
        rows = [stored[seed] for seed in seeds]
        with self._explained():
            found = self._connection.execute("SELECT steps FROM cells WHERE key = ?", (cell.key,)).fetchone()
        steps = np.frombuffer(found["steps"], "<i8").astype(np.int64)

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
        stored = self._select("seconds", cell, engine)
        return float(sum(stored[seed]["seconds"] for seed in seeds))

    def cells(self) -> list[Cell]:
        """Every stored cell, in order of first writing."""
        with self._explained():
            rows = self._connection.execute("SELECT description FROM cells ORDER BY id").fetchall()
        return [Cell.from_json(row["description"]) for row in rows]

    def origins(self, cell: Cell) -> list[Origin]:
        """Engines and versions that computed a cell, with the number and wall time of their runs, in order of first writing."""
        query = (
            "SELECT engine, version, count(*), sum(seconds), max(written) FROM runs WHERE cell = ?"
            " GROUP BY engine, version ORDER BY min(id)"
        )
        with self._explained():
            return [Origin(*row) for row in self._connection.execute(query, (cell.key,))]

    def close(self) -> None:
        """Close the file; a closed store cannot be used any more."""
        self._connection.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()
