"""Kill a benchmark at random moments, resume it each time, and check that the result is that of an undisturbed run.

python benchmarks/kill_and_resume.py [--kills 10] [--seeds 25] [--iterations 50000]
"""

from __future__ import annotations

import argparse
import json
import random
import signal
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
        result(command(folder / "compiled", 1, 1_000))  # compiling is not part of what is timed
        began = time.perf_counter()
        expected = result(command(folder / "undisturbed", args.seeds, args.iterations))
        whole = time.perf_counter() - began
        began = time.perf_counter()
        result(command(folder / "undisturbed", args.seeds, args.iterations))
        idle = time.perf_counter() - began
        print(f"undisturbed: {len(expected['rows'])} rows, {len(expected['runs'])} runs, {whole:.1f} s ({idle:.1f} s idle)")
        disturbed = command(folder / "disturbed", args.seeds, args.iterations)
        longest = idle + max(whole - idle, 0) / args.kills
        killed = 0
        while killed < args.kills:
            process = subprocess.Popen(disturbed, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            moment = chance.uniform(idle / 2, longest)
            try:
                process.wait(moment)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
                process.wait()
                killed += 1
                print(f"kill {killed} after {moment:.1f} s")
            else:
                print(f"ended before it could be killed after {moment:.1f} s")
                break
        same = result(disturbed) == expected
    print(f"{killed} kills; resumed result {'equals' if same else 'DIFFERS FROM'} the undisturbed one")
    sys.exit(0 if same and killed else 1)


if __name__ == "__main__":
    main()
