"""Kill a benchmark at random moments, resume it each time, and check that the result is that of an undisturbed run.

python benchmarks/kill_and_resume.py [--kills 10] [--seeds 25] [--iterations 50000]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any


def command(folder: Path, seeds: int, iterations: int) -> list[str]:
    """The benchmark that is disturbed."""
    return [
        *(sys.executable, "-m", "nalm", "bench", "single-module", "--module", "nmu,snmu", "--operation", "mul"),
        *("--seeds", str(seeds), "--iterations", str(iterations), "--out", str(folder), "--json", "--runs"),
    ]


def result(arguments: list[str]) -> dict[str, Any]:
    """Rows and runs of a benchmark that is left alone."""
    document: dict[str, Any] = json.loads(subprocess.run(arguments, check=True, stdout=subprocess.PIPE, text=True).stdout)
    return {name: document[name] for name in ("rows", "runs")}


def stored(folder: Path) -> int:
    """How many runs a store holds."""
    try:
        with contextlib.closing(sqlite3.connect(f"file:{folder / 'results.sqlite'}?mode=ro", uri=True)) as connection:
            return int(connection.execute("SELECT count(*) FROM runs").fetchone()[0])
    except sqlite3.OperationalError:  # there is none yet, or it is being made
        return 0


def main() -> None:
    """Run undisturbed, then with kills, and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seeds", type=int, default=25)
    parser.add_argument("--iterations", type=int, default=50_000)
    parser.add_argument("--random", type=int, default=0, help="seed of the moments")
    args = parser.parse_args()
    chance = random.Random(args.random)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        expected = result(command(folder / "undisturbed", args.seeds, args.iterations))
        whole = len(expected["runs"])
        print(f"undisturbed: {len(expected['rows'])} rows, {whole} runs")
        disturbed = command(folder / "disturbed", args.seeds, args.iterations)
        killed = 0
        while killed < args.kills:
            before = stored(folder / "disturbed")
            wanted = before + 1 + int(chance.random() * (whole - before) / (args.kills - killed + 1))
            process = subprocess.Popen(disturbed, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            while process.poll() is None and stored(folder / "disturbed") < wanted:
                time.sleep(0.002)
            time.sleep(chance.uniform(0, 0.02))  # within the next cell, or while it is written
            if process.poll() is not None:
                print("ended before it could be killed")
                break
            process.send_signal(signal.SIGKILL)
            process.wait()
            killed += 1
            print(f"kill {killed} after {stored(folder / 'disturbed')} runs")
        same = result(disturbed) == expected
    print(f"{killed} kills; resumed result {'equals' if same else 'DIFFERS FROM'} the undisturbed one")
    sys.exit(0 if same and killed else 1)


if __name__ == "__main__":
    main()
