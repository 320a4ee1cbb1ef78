"""The store of raw results: exact, append-only, safe against kills, other writers and bad files."""

import os
import random
import resource
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import warnings
from contextlib import closing
from datetime import datetime, timedelta, timezone

import numpy as np
import pytest

from nalm import store as store_module
from nalm.specs import Cell, Recipe, Runs
from nalm.store import Origin, Store, StoreError, StoreWarning

RECIPE = Recipe(iterations=4000, log_interval=1000, penalty=10.0)


def cell(number=0):
    return Cell(f"module-{number}", "mul", 2, "U[1,2)", "U[2,6)", RECIPE, options=(("bounded", True), ("shape", (2, 1))))


def make(seeds, offset=0.0, weights=3):
    """Runs with numbers that tell of which seed they are."""
    seeds = np.array(seeds, np.int64)
    curves = offset + seeds[:, None] + np.linspace(0, 0.5, len(RECIPE.steps))
    return Runs(
        seeds=seeds,
        steps=RECIPE.steps,
        validation=curves,
        test=curves + 0.1,
        sparsity=curves / 3,
        weights=np.repeat(curves[:, :1], weights, axis=1),
        status=["failed" if seed == 2 else "ok" for seed in seeds],
        messages=["it broke: ½\0\n" if seed == 2 else "" for seed in seeds],
    )


def open_store(folder, version="1.2.3"):
    return Store(folder, version=version)


def assert_same(left, right):
    """Equal bit by bit, types and kinds of NaN included."""
    for name in ("seeds", "steps", "validation", "test", "sparsity", "weights"):
        a, b = getattr(left, name), getattr(right, name)
        assert (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes()), name
    assert (left.status, left.messages) == (right.status, right.messages)


def raw(folder):
    return closing(sqlite3.connect(folder / "results.sqlite"))


def child(function, *arguments):
    """A real process that runs a function of this file."""
    command = [sys.executable, __file__, function, *map(str, arguments)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


# What is stored comes back.


def test_every_bit_comes_back(tmp_path):
    runs = make([7, 2, -5, 2**62])
    runs.validation[0] = [np.nan, np.inf, -np.inf, -0.0, 5e-324]
    runs.test[1] = np.array([0x7FF8000000000001, 0xFFF8000000000000, 0x7FEFFFFFFFFFFFFF, 1, 1 << 63], np.uint64).view(
        np.float64
    )
    with open_store(tmp_path / "new" / "folder") as store:
        store.add(cell(), runs, engine="fused", seconds=1.0)
        assert_same(store.runs(cell(), [7, 2, -5, 2**62]), runs)
    with open_store(tmp_path / "new" / "folder") as store:
        back = store.runs(cell(), runs.seeds, engine="fused")
        assert_same(back, runs)
        back.test[:] = 0  # a caller may change what it was given


def test_other_types_and_memory_orders_are_stored_by_value(tmp_path):
    runs = make([0, 1, 3])
    expected = make([0, 1, 3])
    runs.weights = runs.weights.astype(np.float32)
    expected.weights = runs.weights.astype(np.float64)
    runs.test = np.asfortranarray(runs.test)
    runs.sparsity = runs.sparsity.astype(">f8")
    runs.steps = runs.steps.astype(np.int32)
    with open_store(tmp_path) as store:
        store.add(cell(), runs, engine="fused", seconds=1.0)
        assert_same(store.runs(cell(), [0, 1, 3]), expected)


def test_runs_come_in_the_order_asked(tmp_path):
    with open_store(tmp_path) as store:
        store.add(cell(), make([0, 1, 2, 3, 4]), engine="fused", seconds=1.0)
        assert_same(store.runs(cell(), [3, 0, 2]), make([3, 0, 2]))
        assert_same(store.runs(cell(), [1, 1]), make([1, 1]))
        nothing = store.runs(cell(), [])
        assert nothing.validation.shape == nothing.test.shape == (0, 5)
        assert len(nothing) == 0


def test_missing_seeds(tmp_path):
    with open_store(tmp_path) as store:
        assert store.missing(cell(), [3, 1, 2]) == [3, 1, 2]
        store.add(cell(), make([1, 2]), engine="fused", seconds=1.0)
        store.add(cell(), make([3]), engine="torch", seconds=1.0)
        assert store.missing(cell(), np.array([5, 3, 1, 4])) == [5, 4]
        assert store.missing(cell(), [5, 3, 1, 4], engine="fused") == [5, 3, 4]
        assert store.missing(cell(1), [1]) == [1]
        with pytest.raises(KeyError, match=rf"cell {cell().key} has no stored run of seeds \[5, 4\]"):
            store.runs(cell(), [5, 3, 1, 4])
        with pytest.raises(KeyError, match=r"no stored run by engine torch of seeds \[1, 2\]"):
            store.runs(cell(), [1, 2, 3], engine="torch")
        with pytest.raises(KeyError, match=cell(1).key):
            store.runs(cell(1), [])


def test_what_is_stored_stays(tmp_path):
    with open_store(tmp_path) as store:
        store.add(cell(), make([0, 1]), engine="fused", seconds=4.0)
    with open_store(tmp_path, version="9") as store:
        store.add(cell(), make([1, 2], offset=100.0), engine="fused", seconds=6.0)
        assert_same(store.runs(cell(), [0, 1]), make([0, 1]))
        assert_same(store.runs(cell(), [2]), make([2], offset=100.0))
        assert [origin[:4] for origin in store.origins(cell())] == [("fused", "1.2.3", 2, 4.0), ("fused", "9", 1, 3.0)]
        assert store.cells() == [cell()]


def test_two_engines_side_by_side(tmp_path):
    before = datetime.now(timezone.utc) - timedelta(seconds=1)
    with open_store(tmp_path) as store:
        store.add(cell(), make([1, 2], offset=10.0), engine="torch", seconds=8.0)
        store.add(cell(), make([0, 1]), engine="fused", seconds=1.0)
        store.add(cell(), make([0], offset=10.0), engine="torch", seconds=2.0)
        assert_same(store.runs(cell(), [0, 1], engine="fused"), make([0, 1]))
        assert_same(store.runs(cell(), [0, 1], engine="torch"), make([0, 1], offset=10.0))
        earliest = store.runs(cell(), [0, 1])
        assert_same(earliest, Runs.join([make([0]), make([1], offset=10.0)]))
        torch, fused = store.origins(cell())
        assert torch == Origin("torch", "1.2.3", 3, 10.0, torch.written)
        assert fused == Origin("fused", "1.2.3", 2, 1.0, fused.written)
        assert before <= datetime.fromisoformat(torch.written) <= datetime.now(timezone.utc)
        assert store.origins(cell(1)) == []


def test_more_seeds_later_and_cells_in_order(tmp_path):
    for number, seeds in ((4, [0, 1]), (1, [0]), (4, [2, 3]), (2, [0])):
        with open_store(tmp_path) as store:
            store.add(cell(number), make(seeds), engine="fused", seconds=1.0)
    with open_store(tmp_path) as store:
        assert store.cells() == [cell(4), cell(1), cell(2)]
        assert_same(store.runs(cell(4), [0, 1, 2, 3]), make([0, 1, 2, 3]))
    with raw(tmp_path) as connection:
        stored = connection.execute("SELECT key, description FROM cells").fetchall()
    assert stored == [(cell(k).key, cell(k).to_json()) for k in (4, 1, 2)]


def test_a_run_that_failed_before_it_had_weights(tmp_path):
    with open_store(tmp_path) as store:
        store.add(cell(), make([2], weights=0), engine="fused", seconds=1.0)
        assert store.runs(cell(), [2]).weights.shape == (1, 0)
        store.add(cell(), make([3]), engine="fused", seconds=1.0)
        back = store.runs(cell(), [2, 3]).weights
        assert np.isnan(back[0]).all()
        assert back[1].tolist() == [3.0, 3.0, 3.0]


def test_runs_that_do_not_fit_leave_no_trace(tmp_path):
    short, listless, thinned = make([0, 1]), make([0, 1]), make([0, 1])
    short.test = short.test[:, :-1]
    listless.messages = [""]
    thinned.steps = thinned.steps * 2
    with open_store(tmp_path) as store:
        with pytest.raises(ValueError, match=r"test must have shape \(2, 5\) \(runs, steps\), got \(2, 4\)"):
            store.add(cell(), short, engine="fused", seconds=1.0)
        with pytest.raises(ValueError, match="shorter"):
            store.add(cell(), listless, engine="fused", seconds=1.0)
        assert store.cells() == []
        assert store.missing(cell(), [0, 1]) == [0, 1]
        with pytest.raises(ValueError, match=f"runs of cell {cell().key} must be logged at the steps of its recipe"):
            store.add(cell(), thinned, engine="fused", seconds=1.0)
        assert store.cells() == []


def test_what_another_store_wrote_is_seen_at_once(tmp_path):
    with open_store(tmp_path) as one, open_store(tmp_path) as other:
        assert one.missing(cell(), [0, 1]) == [0, 1]
        other.add(cell(), make([0]), engine="fused", seconds=1.0)
        assert one.missing(cell(), [0, 1]) == other.missing(cell(), [0, 1]) == [1]
        one.add(cell(), make([1]), engine="fused", seconds=1.0)
        assert one.missing(cell(), [0, 1]) == other.missing(cell(), [0, 1]) == []


def test_rows_are_read_once_where_nobody_writes(tmp_path, monkeypatch):
    filled(tmp_path, cells=1)
    marked = []
    mark = store_module._mark
    monkeypatch.setattr(store_module, "_mark", lambda values: marked.append(values) or mark(values))
    with open_store(tmp_path) as store:
        assert store.missing(cell(), range(4)) == []
        assert_same(store.runs(cell(), range(4)), make(range(4)))
        assert store.seconds(cell(), range(4)) == 1.0
    assert len(marked) == 5, "a cell and four runs"


# Several processes, and kills.


def write_against(folder, own, other):
    """Write one-run cells until both engines have twenty: each must get its turn."""
    sys.stdin.readline()
    with open_store(folder) as store:
        for number in range(1_000_000):
            store.add(cell(number), make([5], offset=len(own)), engine=own, seconds=1.0)
            if all(not store.missing(cell(19), [5], engine) for engine in (own, other)):
                break
    sys.stdout.write(f"{number + 1}")


def test_two_processes_write_at_once(tmp_path):
    engines = ("fused", "eager-torch")
    children = [child("write_against", tmp_path, *pair) for pair in (engines, engines[::-1])]
    for process in children:
        process.stdin.write("\n")
        process.stdin.flush()
    written = [int(process.communicate(timeout=60)[0]) for process in children]
    with open_store(tmp_path) as store:
        assert {c.module for c in store.cells()} == {cell(k).module for k in range(max(written))}
        for engine, count in zip(engines, written, strict=True):
            assert count >= 20
            for number in range(count):
                assert_same(store.runs(cell(number), [5], engine), make([5], offset=len(engine)))


def create_many(folder, start):
    """Open new stores at agreed moments, and write one cell to each."""
    for k in range(40):
        while time.time() < float(start) + 0.02 * k:
            pass
        with open_store(f"{folder}/{k}") as store:
            store.add(cell(), make([os.getpid()]), engine="fused", seconds=1.0)


def test_two_processes_create_one_store_at_the_same_moment(tmp_path):
    start = time.time() + 1.5
    children = [child("create_many", tmp_path, start) for _ in range(2)]
    for process in children:
        process.communicate(timeout=60)
    assert [process.returncode for process in children] == [0, 0]
    for k in range(40):
        with open_store(tmp_path / str(k)) as store:
            assert store.missing(cell(), [process.pid for process in children]) == []


def test_waits_while_another_process_creates_the_tables(tmp_path):
    def use():
        with open_store(tmp_path) as store:
            store.add(cell(), make([0]), engine="fused", seconds=1.0)

    with raw(tmp_path) as other:
        other.execute("BEGIN IMMEDIATE")
        thread = threading.Thread(target=use)
        thread.start()
        time.sleep(0.3)
        for table in store_module.TABLES:
            other.execute(table)
        other.execute(f"PRAGMA application_id = {store_module.APPLICATION}")
        other.execute(f"PRAGMA user_version = {store_module.SCHEMA}")
        other.execute("COMMIT")
        thread.join()
    with open_store(tmp_path) as store:
        assert store.missing(cell(), [0]) == []


def write_on(folder, first):
    """Write cells of eight runs without end, and say so after each."""
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    with open_store(folder) as store:
        for number in range(int(first), 1_000_000):
            store.add(cell(number), make(range(8), offset=number, weights=3000), engine="fused", seconds=1.0)
            sys.stdout.write(f"{number}\n")
            sys.stdout.flush()


def assert_only_whole_cells(folder):
    with open_store(folder) as store:
        assert [row[0] for row in store._connection.execute("PRAGMA integrity_check")] == ["ok"]
        numbers = [int(c.module.removeprefix("module-")) for c in store.cells()]
        for number in numbers:
            assert_same(store.runs(cell(number), range(8)), make(range(8), offset=number, weights=3000))
    return numbers


def test_kills_at_random_moments_lose_nothing(tmp_path):
    rng = random.Random(1)
    for k in range(20):
        folder = tmp_path / str(k // 5)  # every fifth kill falls into the first moments of a new store
        with child("write_on", folder, k * 10_000) as process:
            said = [process.stdout.readline() for _ in range(1 + (rng.randrange(4) if k % 5 else 0))]
            time.sleep(rng.uniform(0, 0.02))
            process.kill()
            said += process.stdout.read().splitlines(keepends=True)
        assert process.returncode == -signal.SIGKILL
        assert said[0] == "ready\n"
        assert {int(line) for line in said[1:] if line.endswith("\n")} <= set(assert_only_whole_cells(folder))
        last = k * 10_000 + 9999
        with open_store(folder) as store:
            store.add(cell(last), make(range(8), offset=last, weights=3000), engine="fused", seconds=1.0)


def die_at(folder, word, count):
    """Write a cell, then be killed when SQLite begins the given statement of the next."""
    store = open_store(folder)
    store.add(cell(0), make(range(8), offset=0, weights=3000), engine="fused", seconds=1.0)
    seen = []

    def trace(statement):
        seen.extend([statement] if statement.startswith(word) else [])
        if len(seen) == int(count):
            os.kill(os.getpid(), signal.SIGKILL)

    store._connection.set_trace_callback(trace)
    store.add(cell(1), make(range(8), offset=1, weights=3000), engine="fused", seconds=1.0)


@pytest.mark.parametrize(("word", "count"), [("INSERT INTO runs", 1), ("INSERT INTO runs", 5), ("COMMIT", 1)])
def test_a_kill_inside_a_transaction_leaves_the_cells_before_it(tmp_path, word, count):
    process = child("die_at", tmp_path, word, count)
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    assert assert_only_whole_cells(tmp_path) == [0]


def test_commits_are_synchronous_in_a_write_ahead_log(tmp_path):
    with open_store(tmp_path) as store:
        assert store._connection.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
        assert store._connection.execute("PRAGMA synchronous").fetchone()[0] == 2


def test_works_on_a_file_system_without_write_ahead_log(tmp_path, monkeypatch):
    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda path, **kwargs: connect(f"file:{path}?vfs=unix-dotfile", uri=True, **kwargs))
    for k in range(2):
        with open_store(tmp_path) as store:
            assert store._connection.execute("PRAGMA journal_mode").fetchone()[0] == "delete"
            store.add(cell(k), make([0]), engine="fused", seconds=1.0)
            assert_same(store.runs(cell(0), [0]), make([0]))


# What can be wrong with a store.


def filled(folder, cells=20):
    with open_store(folder) as store:
        for number in range(cells):
            store.add(cell(number), make(range(4)), engine="fused", seconds=1.0)
    return folder / "results.sqlite"


@pytest.mark.parametrize("inside", [".", "folder"])
def test_folder_that_cannot_be_created(tmp_path, inside):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"cannot create the folder of .*results.sqlite \(.*\): choose another folder"):
        open_store(tmp_path / "file" / inside)


def test_file_that_cannot_be_opened(tmp_path):
    (tmp_path / "results.sqlite").mkdir()
    with pytest.raises(StoreError, match=r"results.sqlite \(unable to open database file\): check that folder and file can be"):
        open_store(tmp_path)


def test_file_that_cannot_be_written(tmp_path):
    with open_store(tmp_path) as store:
        store._connection.execute("PRAGMA query_only = ON")
        with pytest.raises(StoreError, match=r"results.sqlite \(attempt to write a readonly database\): check that folder and"):
            store.add(cell(), make([0]), engine="fused", seconds=1.0)


@pytest.mark.parametrize("size", [10, 100, 100_000])
def test_file_that_is_no_database(tmp_path, size):
    content = random.Random(0).randbytes(size)
    (tmp_path / "results.sqlite").write_bytes(content)
    with pytest.raises(StoreError, match=r"results.sqlite \(file is not a database\): move the file away or choose another"):
        open_store(tmp_path)
    assert (tmp_path / "results.sqlite").read_bytes() == content


@pytest.mark.parametrize("size", [4096, 20_000, -5000])
def test_file_that_was_cut_off(tmp_path, size):
    path = filled(tmp_path)
    content = path.read_bytes()[:size]
    path.write_bytes(content)
    with pytest.raises(
        StoreError, match=r"results.sqlite \(database disk image is malformed\): the file is damaged; restore it"
    ):
        open_store(tmp_path)
    assert path.read_bytes() == content


def test_file_with_garbage_inside(tmp_path):
    path = filled(tmp_path)
    content = path.read_bytes()
    path.write_bytes(content[:4096] + random.Random(0).randbytes(len(content) - 4096))
    with (
        open_store(tmp_path) as store,
        pytest.raises(StoreError, match=r"\(database disk image is malformed\): the file is damaged"),
    ):
        store.runs(cell(3), [0])


@pytest.mark.parametrize("statement", ["CREATE TABLE cells (id)", "PRAGMA application_id = 7", "PRAGMA user_version = 1"])
def test_database_of_another_program(tmp_path, statement):
    with raw(tmp_path) as connection:
        connection.execute(statement)
    content = (tmp_path / "results.sqlite").read_bytes()
    with pytest.raises(StoreError, match=r"cannot use .*results.sqlite: it is no store of nalm; choose another folder"):
        open_store(tmp_path)
    assert (tmp_path / "results.sqlite").read_bytes() == content


def test_store_of_another_format(tmp_path):
    path = filled(tmp_path)
    with raw(tmp_path) as connection:
        connection.execute("PRAGMA user_version = 3")
    content = path.read_bytes()
    expected = (
        "results.sqlite: its format is 3 and nalm 1.2.3 knows format 2; use the nalm that wrote it or choose another folder"
    )
    with pytest.raises(StoreError, match=expected):
        open_store(tmp_path)
    assert path.read_bytes() == content


OLD_TABLES = (
    "CREATE TABLE cells (id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, description TEXT NOT NULL, steps BLOB NOT NULL)",
    """CREATE TABLE runs (
        id INTEGER PRIMARY KEY, cell TEXT NOT NULL REFERENCES cells (key), engine TEXT NOT NULL, seed INTEGER NOT NULL,
        status TEXT NOT NULL, message TEXT NOT NULL,
        validation BLOB NOT NULL, test BLOB NOT NULL, sparsity BLOB NOT NULL, weights BLOB NOT NULL,
        version TEXT NOT NULL, seconds REAL NOT NULL, written TEXT NOT NULL,
        UNIQUE (cell, engine, seed))""",
)


def make_old(folder):
    """Turn a store into one of format 1."""
    with raw(folder) as connection:
        for table, columns in store_module.COLUMNS.items():
            connection.execute(f"ALTER TABLE {table} RENAME TO new_{table}")
            connection.execute(OLD_TABLES[table == "runs"])
            connection.execute(f"INSERT INTO {table} SELECT id, {', '.join(columns)} FROM new_{table}")
            connection.execute(f"DROP TABLE new_{table}")
        connection.execute("PRAGMA user_version = 1")
        connection.commit()


def test_a_store_of_format_1_is_read_and_brought_up_to_date(tmp_path):
    filled(tmp_path, cells=3)
    make_old(tmp_path)
    for _ in range(2):
        with open_store(tmp_path) as store:
            assert store.cells() == [cell(k) for k in range(3)]
            for k in range(3):
                assert_same(store.runs(cell(k), range(4)), make(range(4)))
    with raw(tmp_path) as connection:
        assert connection.execute("PRAGMA user_version").fetchone()[0] == store_module.SCHEMA
        names = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    assert names == {"cells", "runs", "cell_keys", "run_keys"}


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE runs SET test = x'00' WHERE cell = '{key}' AND seed = 1",
        "UPDATE runs SET status = 'oj' WHERE cell = '{key}' AND seed = 1",
        "UPDATE runs SET weights = 'text' WHERE cell = '{key}' AND seed = 1",
    ],
)
def test_rows_of_format_1_that_cannot_be_meant_are_left_out(tmp_path, damage):
    filled(tmp_path, cells=2)
    make_old(tmp_path)
    with raw(tmp_path) as connection:
        connection.execute(damage.format(key=cell(0).key))
        connection.commit()
    with pytest.warns(StoreWarning, match="row 2 of runs is damaged"):
        store = open_store(tmp_path)
    with store:
        assert [store.missing(cell(k), range(4)) for k in range(2)] == [[1], []]


def changes_of_rows():
    """For each column of a cell and of a run, a statement that changes it."""
    for table, columns in store_module.COLUMNS.items():
        where = "id = 1" if table == "cells" else f"cell = '{cell(0).key}' AND seed = 2"
        for name, kind in columns.items():
            new = {str: f"'x' || {name}", bytes: f"substr({name}, 1, 1)", int: f"{name} + 64", float: f"{name} + 1"}[kind]
            yield f"UPDATE {table} SET {name} = {new} WHERE {where}"


@pytest.mark.parametrize("change", list(changes_of_rows()))
def test_a_damaged_row_is_reported_left_out_and_trained_again(tmp_path, change):
    filled(tmp_path, cells=2)
    with raw(tmp_path) as connection:
        connection.execute(change)
        connection.commit()
    with warnings.catch_warnings(record=True) as said, open_store(tmp_path) as store:
        warnings.simplefilter("always")
        missing = store.missing(cell(0), range(4))
        assert missing == ([0, 1, 2, 3] if "cells" in change else [2])
        assert store.missing(cell(1), range(4)) == []
        store.cells()
    lost = "key = " in change or "SET cell = " in change  # the row now belongs to no cell that is asked for
    assert lost or len(said) >= 1
    assert all(str(one.message).count("\n") == 0 for one in said)
    with warnings.catch_warnings(), open_store(tmp_path) as store:
        warnings.simplefilter("ignore")
        store.add(cell(0), make(missing), engine="fused", seconds=1.0)
        assert_same(store.runs(cell(0), range(4)), make(range(4)))
        assert cell(0) in store.cells()


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("steps", b""),
        ("steps", bytes(40)),
        ("steps", RECIPE.steps[:-1].astype("<i8").tobytes()),
        ("description", "[" * 100_000),
        ("description", '{"recipe": []}'),
        ("validation", b"1"),
        ("test", bytes(48)),
        ("sparsity", "x" * 40),
        ("weights", b"123"),
        ("status", "fine"),
        ("seconds", "long"),
    ],
)
def test_a_row_that_another_program_wrote_must_fit(tmp_path, column, value):
    """Its checksum is right, its content is not."""
    table = next(table for table, columns in store_module.COLUMNS.items() if column in columns)
    filled(tmp_path, cells=1)
    with raw(tmp_path) as connection:
        connection.execute(f"UPDATE {table} SET {column} = ? WHERE id = 1", (value,))
        row = connection.execute(f"SELECT {', '.join(store_module.COLUMNS[table])} FROM {table} WHERE id = 1").fetchone()
        connection.execute(f"UPDATE {table} SET checksum = ? WHERE id = 1", (store_module._mark(row),))
        connection.commit()
    with open_store(tmp_path) as store:
        with pytest.warns(StoreWarning, match=f"row 1 of {table} is damaged and left out") as said:
            missing, cells = store.missing(cell(0), range(4)), store.cells()
        assert cells == ([] if table == "cells" else [cell(0)])
        assert len(said) == 1, "said once"
        assert missing == ([0, 1, 2, 3] if table == "cells" else [0])
        store.add(cell(0), make(missing), engine="fused", seconds=1.0)
        assert_same(store.runs(cell(0), range(4)), make(range(4)))


def test_a_run_whose_seed_is_damaged_is_named_by_its_row(tmp_path):
    filled(tmp_path, cells=1)
    with raw(tmp_path) as connection:
        connection.execute("UPDATE runs SET seed = 77 WHERE seed = 2")
        connection.commit()
    with open_store(tmp_path) as store, pytest.warns(StoreWarning, match="row 3 of runs is damaged and left out$"):
        assert store.missing(cell(0), range(4)) == [2]


def read_all(folder, cells):
    """What a store gives: the runs of each cell that are whole, or the sentence with which it refuses."""
    found = []
    try:
        with open_store(folder) as store:
            store.cells()
            for number in range(cells):
                absent = store.missing(cell(number), range(4))
                seeds = [seed for seed in range(4) if seed not in absent]
                if seeds:
                    found.append((seeds, store.runs(cell(number), seeds)))
    except StoreError as error:
        return str(error)
    return found


@pytest.mark.parametrize("kind", ["flip", "missing", "end"])
def test_damaged_bytes_never_change_a_result_in_silence(tmp_path, kind):
    """A hundred single bits flipped, and bytes taken out of the middle or from the end: each is harmless or reported."""
    content = filled(tmp_path, cells=5).read_bytes()
    chance = random.Random(20260731)
    for number in range(100 if kind == "flip" else 30):
        damaged, place = bytearray(content), chance.randrange(len(content))
        if kind == "flip":
            damaged[place] ^= 1 << chance.randrange(8)
        else:
            del damaged[place : place + chance.choice([1, 100, 4096]) if kind == "missing" else None]
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "results.sqlite").write_bytes(damaged)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            found = read_all(folder, 5)
        assert not any("\n" in str(one.message) for one in said)
        if isinstance(found, str):
            assert "\n" not in found
            continue
        for seeds, runs in found:
            assert_same(runs, make(seeds))


def test_a_refused_file_is_closed(tmp_path, monkeypatch):
    opened = []
    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *args, **kwargs: opened.append(connect(*args, **kwargs)) or opened[-1])
    (tmp_path / "results.sqlite").write_text("This is a text, not a database.")
    with pytest.raises(StoreError):
        open_store(tmp_path)
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        opened[0].execute("SELECT 1")


def test_empty_file_is_a_new_store(tmp_path):
    (tmp_path / "results.sqlite").touch()  # what a kill in the first moment leaves
    filled(tmp_path, cells=1)


def test_full_disk(tmp_path):
    with open_store(tmp_path) as store:
        store.add(cell(0), make(range(8)), engine="fused", seconds=1.0)
        pages = store._connection.execute("PRAGMA page_count").fetchone()[0]
        store._connection.execute(f"PRAGMA max_page_count = {pages + 5}")
        expected = r"results.sqlite \(database or disk is full\): what was stored is safe; free some space and try again"
        with pytest.raises(StoreError, match=expected):
            store.add(cell(1), make(range(8), weights=1000), engine="fused", seconds=1.0)
        assert store.cells() == [cell(0)]
        assert_same(store.runs(cell(0), range(8)), make(range(8)))
        store._connection.execute(f"PRAGMA max_page_count = {pages + 100}")
        store.add(cell(1), make(range(8), weights=1000), engine="fused", seconds=1.0)
    with open_store(tmp_path) as store:
        assert_same(store.runs(cell(0), range(8)), make(range(8)))
        assert_same(store.runs(cell(1), range(8)), make(range(8), weights=1000))


def test_disk_that_fails(tmp_path):
    """The system refuses to let files grow: for SQLite an error of the disk."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with open_store(tmp_path) as store:
        store.add(cell(0), make(range(8)), engine="fused", seconds=1.0)
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, limits[1]))
        try:
            with pytest.raises(StoreError, match=r"results.sqlite \(disk I/O error\): check the disk, then try again"):
                store.add(cell(1), make(range(8), weights=30_000), engine="fused", seconds=1.0)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert store.cells() == [cell(0)]
        store.add(cell(1), make(range(8), weights=30_000), engine="fused", seconds=1.0)
    with open_store(tmp_path) as store:
        assert_same(store.runs(cell(0), range(8)), make(range(8)))
        assert_same(store.runs(cell(1), range(8)), make(range(8), weights=30_000))


def test_store_that_stays_locked(tmp_path, monkeypatch):
    monkeypatch.setattr(store_module, "PATIENCE", 0.05)
    expected = r"results.sqlite \(database is locked\): another process keeps writing; wait for it or end it, then try again"
    with open_store(tmp_path) as store, raw(tmp_path) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match=expected):
            store.add(cell(), make([0]), engine="fused", seconds=1.0)
        with pytest.raises(StoreError, match=expected):
            open_store(tmp_path)
        assert store.missing(cell(), [0]) == [0]
        other.execute("COMMIT")
        store.add(cell(), make([0]), engine="fused", seconds=1.0)
        assert store.missing(cell(), [0]) == []


def test_waits_for_a_lock_that_is_given_back(tmp_path):
    with open_store(tmp_path) as store, closing(sqlite3.connect(store.path, check_same_thread=False)) as other:
        other.execute("BEGIN IMMEDIATE")
        timer = threading.Timer(0.3, other.execute, ["COMMIT"])
        timer.start()
        store.add(cell(), make([0]), engine="fused", seconds=1.0)
        timer.join()
        assert store.missing(cell(), [0]) == []


def test_misuse_is_not_blamed_on_the_file(tmp_path):
    store = open_store(tmp_path)
    store.close()
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        store.cells()


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
