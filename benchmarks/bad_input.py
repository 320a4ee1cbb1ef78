"""Give the library bad command lines and calls: each must end in one sentence, the commands with status 2 and no output.

python benchmarks/bad_input.py [--processes 10]

All run in one process; a sample of the commands runs as processes of their own. Prints what does not end so, and the counts.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import random
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

WHOLE = ("", "x", "1.5", "nan", "-1", "0", "9" * 30, "0x10", "1_0.", "٣.")
NUMBERS = ("", "x", "nan", "inf", "-1", "1e999")
RANGES = (
    "",
    "U",
    "U[",
    "U[1",
    "U[1,2",
    "U[2,1)",
    "U[1,1)",
    "U[a,b)",
    "U[nan,1)",
    "U[1,inf)",
    "U[1,2) ->",
    "-> U[1,2)",
    "TN(0,0)[0,1)",
)
RANGES += (
    "B[0,1)",
    "Exp(-1)",
    "Exp(1e308)",
    "Sobol(1)",
    "Z[0.5,2)",
    "U[1,2)&",
    "|U[1,2)",
    "U[1,2)~2",
    "[1,2]",
    "N(0,1)",
    "U[3,4)",
)
MODULES = (
    "",
    ",",
    "nmuu",
    "NMU",
    "nmu,nmu",
    "nmu+",
    "+nmu",
    "nau/nmu/nau",
    "recurrent:",
    "recurrent:nau/nmu",
    "no.such:Thing",
    "os:sep",
    "nau",
)
OPTIONS = ("", "x", "foo=1", "=1", "dtype=float64", "device=cpu")
SETTINGS = (
    "iterations=x",
    "batch=0",
    "batch=2.5",
    "log_interval=0",
    "learning_rate=0",
    "learning_rate=nan",
    "learning_rate=1or 2",
    "loss=hinge",
    "loss=3",
)
SETTINGS += (
    "optimiser=lion",
    "norm=3",
    "project=1",
    "snap=1",
    "snap={'rows': 0}",
    "snap={'row': 1}",
    "solver={}",
    "restarts={}",
)
SETTINGS += (
    "penalty=x",
    "penalty_end=0",
    "clip_norm=[]",
    "evaluation_rows=10**9",
    "colour=red",
    "speed",
    "evaluation_rows=999999999999",
)
DATA = ("overlap=2", "overlap=-1", "overlap=nan", "overlap=x", "subset=0", "subset=2", "subsets=0", "subsets=2.5", "hidden=0")
DATA += ("hidden=1000000000", "colour=1", "x", "start=never")
NAMES = ("", "D:fig1", "../x", "/etc/passwd", "T:", "no", "a/b", "x" * 300, "D:fig1a.toml")


def commands(folder: Path) -> Iterator[list[str]]:
    """Bad command lines; `folder` has a few files that are not what they should be."""
    short = ["bench", "single-module", "--operation", "mul", "--range", "U[1,2)", "--seeds", "1", "--iterations", "10"]
    bench = [*short, "--module", "nmu"]
    layers = ["bench", "arithmetic-dataset", "--operation", "mul", "--module", "nau+nmu", "--seeds", "1", "--iterations", "10"]
    yield from (
        [],
        ["lst"],
        ["list"],
        ["list", "modulez"],
        ["--bad"],
        ["bench"],
        ["bench", "single-module"],
        ["discover"],
        ["data"],
    )
    for verb in (["list", "modules"], ["list", "tasks"], ["list", "experiments"], ["list", "distributions"], ["speed"]):
        yield from ([*verb, "--colour"], [*verb, "extra"], [*verb, "--threads", "0"], [*verb, "-v", "-q"])
    for option in ("--seeds", "--iterations", "--inputs", "--threads"):
        yield from ([*bench, option, value] for value in WHOLE if (option, value) != ("--iterations", "0"))
    yield from ([*bench, "--range", value] for value in RANGES)
    yield from ([*short, "--module", value] for value in MODULES)
    yield from ([*bench, "--option", value] for value in OPTIONS)
    yield from ([*bench, "--set", value] for value in SETTINGS)
    yield from ([*layers, "--data", value] for value in DATA)
    yield from ([*bench, "--threshold", value] for value in (*NUMBERS, "0", "simulated:x", "simulated:0", "gold"))
    yield from ([*bench, "--engine", value] for value in ("", "steam", "FUSED"))
    yield from ([*bench, "--recipe", value] for value in ("", "secret"))
    yield from (
        [*bench, "--out", value] for value in ("/dev/null/here", str(folder / "file"), str(folder / "damaged"), "/proc/none")
    )
    yield from (["bench", task, *bench[2:]] for task in ("", "chess", "logic", "comparison", "two-step", "arithmetic-dataset"))
    yield from ([*bench, "--operation", value] for value in ("", "pow", "add-mul", "and", "add"))
    yield [*bench, "--runs"]
    real = [*short, "--module", "real-npu", "--option"]
    yield from (
        [*real, value]
        for value in ("bounded=x", "bounded=1", "epsilon=x", "epsilon=-1", "epsilon=nan", "skip_zero_weight=None")
    )
    yield from (["reproduce", value] for value in NAMES)
    yield from (["reproduce", "D:fig1a", "--seeds", value] for value in WHOLE)
    yield from (["reproduce", "D:fig1a", "--budget", value] for value in ("", "huge"))
    yield from (["reproduce", "D:fig1a", "--series", value] for value in ("", "nau", "L1,L2"))
    yield from (["reproduce", *more] for more in ([], ["D:fig1a", "--all"], ["--page", "p.md"], ["--all", "--series", "L1"]))
    yield from (["reproduce", "S:tab9", *more] for more in (["--out", "/dev/null/x"], ["--series", "x"], ["--page", "p.md"]))
    yield from (["reproduce", *more] for more in (["S:tab9", "--seeds", "2"], ["D:fig1a", "--data-dir", str(folder)]))
    for option in (["--seeds", "2"], ["--budget", "quick"], ["--data-dir", str(folder)]):
        yield ["reproduce", "--out", str(folder), "--page", str(folder / "p.md"), *option]
    yield ["reproduce", "M:fig2", "--data-dir", str(folder), "--series", "nothing"]
    for file in ("none.csv", "empty.csv", "words.csv", "zeros.parquet", "file", "."):
        yield ["discover", str(folder / file), "--target", "y"]
    good = ["discover", "planets"]
    yield from (
        good,
        [*good, "--target", "nothing"],
        [*good, "--target", "a", "--time", "b"],
        ["discover", "planet", "--target", "x"],
    )
    yield from ([*good, "--target", "period", "--noise", value] for value in NUMBERS)
    yield from ([*good, "--target", "period", "--operations", value] for value in ("", "sin", "add,root"))
    yield from ([*good, "--target", "period", "--max-terms", value] for value in WHOLE)
    for kind in ("--target", "--time"):
        yield from ([*good, kind, "period", "--seed", value] for value in WHOLE if value != "0")
        yield from ([*good, kind, "period", "--features", value] for value in ("", ",", "nothing", "period,nothing"))
        yield [*good, kind, "period", "--plot", "figure.doc"]
    yield from ([*good, "--time", value] for value in ("", "nothing", "planet"))
    yield from (["data", value] for value in ("", "cifar"))
    yield ["data", "mnist", "--data-dir", "/dev/null/x"]
    yield from (["speed", "--module", value] for value in ("", "nmuu", "product-fc", "nmu+"))


def calls() -> Iterator[tuple[str, Callable[[], Any]]]:
    """Bad calls, by what they do."""
    import nalm
    from nalm.experiments import parse

    formulas = ("", "a+", "a b", "x.y", "sin(a)", "a^2", "(a", "a)", "a*9**9**9", "1/0*a", "__import__('os')", "a" * 20_000)
    formulas += (
        "(" * 999 + "a" + ")" * 999,
        "1e999*a",
        "a**b",
        "sqrt(-1)*a",
        "3",
        "a\0",
        "[a]",
        "lambda: a",
        "a;b",
        "a=b",
        "²",
    )
    for text in formulas:
        yield f"from_sympy({text[:20]!r})", lambda text=text: nalm.from_sympy(text)
    for given in (None, 1j, float("nan"), [], {}, object):
        yield f"from_sympy({given!r})", lambda given=given: nalm.from_sympy(given)
    for text in RANGES[:-1]:
        yield f"parse({text!r})", lambda text=text: nalm.benchmark("nmu", ranges=[text], seeds=1)
    for key, value in (
        ("seeds", 0),
        ("seeds", [1, 1]),
        ("seeds", [-1]),
        ("seeds", 1.5),
        ("inputs", 1),
        ("inputs", "2"),
        ("engine", 3),
    ):
        yield f"benchmark({key}={value!r})", lambda key=key, value=value: nalm.benchmark("nmu", **{key: value})
    for file in ("", "x", "id = 3", "[[[[", "id = 'a'", "id='../x'\ntitle=''\nsource=''", "\0", "a = " + "[" * 5000):
        yield f"experiment {file[:20]!r}", lambda file=file: parse(file, "file")
    for key in ("restarts", "max_terms", "steps", "seed", "hidden", "l1", "learning_rate"):
        for value in ("x", [1], float("nan"), -1, *((1.5,) if key not in ("l1", "learning_rate") else ())):
            more = {} if key in ("restarts", "max_terms", "seed") else {"hidden": 2}
            yield f"fit_ode({key}={value!r})", lambda more={**more, key: value}: nalm.fit_ode(range(9), range(9), **more)
    for options in ({"colour": 1}, {"in_features": 0}, {"in_features": -1}):
        shape = {"in_features": 2, "out_features": 1, **options}
        yield f"create({options})", lambda shape=shape: nalm.create("nmu", **shape)


def spoiled(folder: Path) -> None:
    """Write files that are not what they should be."""
    (folder / "damaged").mkdir()
    (folder / "damaged" / "results.sqlite").write_bytes(b"no database" * 100)
    for name, content in (
        ("file", b"\xff\xfe\0x"),
        ("empty.csv", b""),
        ("words.csv", b"y\na\nb\n"),
        ("zeros.parquet", bytes(100)),
    ):
        (folder / name).write_bytes(content)


def command_in_process(arguments: list[str]) -> str:
    """What is wrong with how a command ends; empty if nothing is."""
    from nalm import cli

    out, err = io.StringIO(), io.StringIO()
    before, sys.argv = sys.argv, ["nalm", *arguments]
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            warnings.simplefilter("always")  # each is a line more
            cli.main()
    except SystemExit as end:
        return verdict(end.code, out.getvalue(), err.getvalue())
    except BaseException as error:
        return f"{type(error).__name__}: {str(error)[:200]}"
    finally:
        sys.argv = before
    return "no exit"


def verdict(status: Any, out: str, err: str) -> str:
    """What is wrong with status and output of a bad command."""
    if (status, out, err.count("\n")) == (2, "", 1) and err.startswith("nalm: ") and "could not convert" not in err:
        return ""
    return f"status {status}, output {out[:60]!r}, error {err[-200:]!r}"


def call_in_process(call: Callable[[], Any]) -> str:
    """What is wrong with how a call ends."""
    try:
        call()
    except (ValueError, TypeError) as error:
        good = isinstance(error, ValueError) and "\n" not in str(error).strip() and str(error)
        return "" if good else f"{type(error).__name__}: {str(error)[:200]!r}"
    except BaseException as error:
        return f"{type(error).__name__}: {str(error)[:200]}"
    return "no error"


def main() -> int:
    """Run everything; the number of what does not end as it should."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=10, help="commands that run as processes of their own")
    parser.add_argument("--every", type=int, default=1, help="of so many, run one")
    args = parser.parse_args()
    warnings.simplefilter("error")
    wrong = []
    with tempfile.TemporaryDirectory() as name:
        spoiled(Path(name))
        lines, bad = list(commands(Path(name)))[:: args.every], list(calls())[:: args.every]
        for arguments in lines:
            wrong += [f"nalm {' '.join(arguments)}: {what}" for what in [command_in_process(arguments)] if what]
        for what, call in bad:
            wrong += [f"{what}: {ended}" for ended in [call_in_process(call)] if ended]
        for arguments in random.Random(0).sample([line for line in lines if line], min(args.processes, len(lines))):
            if not any("\0" in text for text in arguments):
                done = subprocess.run([sys.executable, "-m", "nalm", *arguments], capture_output=True, text=True, check=False)
                ended = verdict(done.returncode, done.stdout, done.stderr)
                wrong += [f"process nalm {' '.join(arguments)}: {ended}"] if ended else []
    print("\n".join(line[:400] for line in wrong))
    print(
        f"{len(lines)} bad commands and {len(bad)} bad calls, {args.processes} processes: "
        f"{len(wrong)} did not end in one sentence"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
