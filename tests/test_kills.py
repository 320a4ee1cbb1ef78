"""Killed in the middle and started again, a computation ends with the numbers of one that was left alone."""

import os
import signal
import subprocess
import sys

import nalm
from conftest import Adder
from nalm import reproduction, runner
from nalm.experiments import parse
from nalm.store import Store

VALUES = {"iterations": 60, "log_interval": 20, "evaluation_rows": 50, "learning_rate": 0.03}
RANGES = ["U[1,2)", "U[-2,2)", "U[10,20)", "U[0.1,0.2)"]


class Killer:
    """Ends the process without warning when it is told of so many advances."""

    def __init__(self, moment):
        self.left = moment

    def start(self, total, what):
        pass

    def advance(self, amount):
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


def train(folder, progress=None):
    """The torch engine, a cell at a time, so that a kill finds some of them stored."""
    runner.STACKED_RUNS = 3
    return nalm.benchmark(
        Adder, operation="add", ranges=RANGES, seeds=3, out=folder, compiled=False, progress=progress, **VALUES
    )


def repeat(folder, progress=None):
    """A small experiment."""
    from test_reproduction import SMALL

    reproduction.load = lambda identity: parse(SMALL, "small")
    return nalm.reproduce("X:fig1", "paper", out=folder, progress=progress)


def killed(function, folder, moment):
    """Run a function of this file in a process of its own, which is killed."""
    command = [sys.executable, __file__, function, str(folder), str(moment)]
    assert subprocess.run(command, timeout=120).returncode == -signal.SIGKILL
    with Store(folder, version="test") as store:
        return len(store.cells())


def test_the_torch_engine_resumes_after_kills(tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "STACKED_RUNS", runner.STACKED_RUNS)
    stored = [killed("train", tmp_path / "disturbed", moment) for moment in (70, 100)]
    assert stored == [1, 2]
    resumed, undisturbed = train(tmp_path / "disturbed"), train(tmp_path / "undisturbed")
    assert resumed.rows == undisturbed.rows
    assert resumed.runs == undisturbed.runs


def test_reproduce_resumes_after_kills(tmp_path, monkeypatch):
    monkeypatch.setattr(reproduction, "load", reproduction.load)
    stored = [killed("repeat", tmp_path / "disturbed", moment) for moment in (2, 8)]
    assert stored[0] == 0
    assert 2 <= stored[1] < 4, "both cells of the first module were stored before the second began"
    resumed, undisturbed = repeat(tmp_path / "disturbed"), repeat(tmp_path / "undisturbed")
    assert resumed.table == undisturbed.table
    assert [(v.measured, v.verdict) for v in resumed.verdicts] == [(v.measured, v.verdict) for v in undisturbed.verdicts]
    for name in ("table.csv", "claims.csv"):
        files = [tmp_path / kind / "X-fig1" / name for kind in ("disturbed", "undisturbed")]
        assert files[0].read_bytes() == files[1].read_bytes()


if __name__ == "__main__":
    globals()[sys.argv[1]](sys.argv[2], Killer(int(sys.argv[3])))
