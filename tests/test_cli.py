"""The command line: what it prints, where, and how it ends."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import typer

import nalm
from nalm import cli
from nalm.terminal import print_rows

NAMES = [
    "nac-add",
    "nac-mul",
    "nac-mul-sigmoid",
    "nac-mul-nmu",
    "nalu",
    "nalu-separate",
    "inalu",
    "inac",
    "imnac",
    "gnalu",
    "nau",
    "nmu",
    "gated-nau-nmu",
    "snmu",
    "snmu-batch",
    "stgnmu",
    "naive-npu",
    "npu",
    "npu-mod",
    "real-npu",
    "real-npu-mod",
    "nru",
    "nru-sep-sign",
    "nmru",
    "nmru-no-sign",
    "nmru-gated",
    "nlrl",
    "nsr",
    "sum-or-product",
    "linear",
    "relu-mlp",
    "relu6-mlp",
    "product-fc",
    "quadratic",
]


def run(monkeypatch, capsys, *arguments):
    monkeypatch.setattr(sys, "argv", ["nalm", *arguments])
    with pytest.raises(SystemExit) as end:
        cli.main()
    out, err = capsys.readouterr()
    return end.value.code, out, err


def test_list_modules_as_json(monkeypatch, capsys):
    code, out, err = run(monkeypatch, capsys, "list", "modules", "--json")
    assert (code, err) == (0, "")
    rows = json.loads(out)["modules"]
    assert [row["name"] for row in rows] == NAMES
    assert all({"label", "operations", "domain", "paper", "summary", "fused"} <= set(row) for row in rows)


def test_list_modules_as_a_table(monkeypatch, capsys):
    code, out, err = run(monkeypatch, capsys, "list", "modules")
    assert (code, err) == (0, "")
    assert all(f" {name} " in out for name in NAMES)


def test_version_and_help(monkeypatch, capsys):
    assert run(monkeypatch, capsys, "--version") == (0, f"nalm {nalm.__version__}\n", "")
    code, out, _ = run(monkeypatch, capsys, "--help")
    assert code == 0
    assert "list" in out


@pytest.mark.parametrize(
    "arguments", [("lst",), ("list", "modulez"), ("list", "modules", "--colour"), ("--bad",), (), ("list",)]
)
def test_bad_usage_is_one_line_and_status_two(monkeypatch, capsys, arguments):
    code, out, err = run(monkeypatch, capsys, *arguments)
    assert (code, out) == (2, "")
    assert err.startswith("nalm: ")
    assert err.count("\n") == 1


def test_runs_as_a_module():
    done = subprocess.run([sys.executable, "-m", "nalm", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"nalm {nalm.__version__}\n"


def test_import_loads_nothing_heavy():
    code = "import sys, nalm; print([m for m in ('torch', 'sympy', 'scipy', 'numpy', 'rich') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_interruption_says_so(monkeypatch, capsys):
    def stop(**_):
        raise typer.Abort

    monkeypatch.setattr(cli, "app", stop)
    assert run(monkeypatch, capsys) == (130, "", "nalm: stopped\n")


@pytest.mark.skipif(os.name == "nt", reason="signals of Unix")
def test_an_interrupt_is_honoured_while_compiled_code_runs():
    """Hashing for minutes without a look at Python stands for a compiler."""
    work = "hashlib.pbkdf2_hmac('sha256', b'', b'', 10**9)"
    code = f"import hashlib; from nalm import cli; cli.app = lambda **_: (print('at work', flush=True), {work}); cli.main()"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "at work\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (130, "nalm: stopped\n")


BENCH = ("bench", "single-module", "--operation", "mul", "--range", "U[1,2)", "--seeds", "2", "--iterations", "100")


def test_bench_as_json(monkeypatch, capsys, tmp_path):
    (tmp_path / "precious").write_text("precious")
    for suffix in ("csv", "png", "svg"):
        (tmp_path / f"single-module-mul.{suffix}").symlink_to(tmp_path / "precious")
    arguments = (*BENCH, "--module", "nmu,snmu", "--set", "log_interval=50", "--out", str(tmp_path), "--json", "--runs")
    code, out, err = run(monkeypatch, capsys, *arguments)
    assert (code, err) == (0, "")
    document = json.loads(out)
    assert set(document) == {"rows", "engine", "seconds", "compile_seconds", "runs"}
    assert [row["module"] for row in document["rows"]] == ["nmu", "snmu"]
    assert len(document["runs"]) == 4
    names = sorted(path.name for path in tmp_path.iterdir() if path.name != "precious")
    assert (tmp_path / "precious").read_text() == "precious", "no link is followed"
    assert names == ["results.sqlite", "single-module-mul.csv", "single-module-mul.png", "single-module-mul.svg"]


def test_bench_as_a_table(monkeypatch, capsys):
    code, out, _ = run(monkeypatch, capsys, *BENCH, "--module", "nmu", "--threshold", "simulated")
    assert code == 0
    assert "U[1,2)" in out
    assert "fused engine" in out


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (("--module", "nmuu"), "unknown module 'nmuu'. Did you mean nmu"),
        (("--module", "nmu", "--range", "U[2,1)"), "lower bound"),
        (("--module", "nmu", "--seeds", "0"), "seeds must be"),
        (("--module", "nmu", "--seeds", "many"), "'many'"),
        (("--module", "nau"), "nau cannot express mul"),
        (("--module", "nmu", "--engine", "steam"), "unknown engine"),
        (("--module", "nmu", "--recipe", "secret"), "unknown recipe 'secret'"),
        (("--module", "nmu", "--set", "speed"), "name=value"),
        (("--module", "nmu", "--set", "colour=red"), "no value 'colour'"),
    ],
)
def test_bad_benchmarks_are_one_line_and_status_two(monkeypatch, capsys, changes, message):
    code, out, err = run(monkeypatch, capsys, *BENCH, *changes)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (("--option", "foo=1"), "nmu has no option 'foo'; it takes: none"),
        (("--option", "dtype=float64"), "nmu has no option 'dtype'"),
        (("--module", "nmu+nmu", "--option", "foo=1"), "nmu+nmu has no option 'foo'"),
        (("--module", "real-npu", "--option", "epsilon=x"), "epsilon must be a finite number, got 'x'"),
        (("--module", "real-npu", "--option", "bounded=x"), "bounded must be True or False, got 'x'"),
        (("--module", "snmu", "--option", "noise_range=(1,'x')"), "each value of noise_range must be a finite number"),
        (("--module", "relu-mlp", "--option", "hidden=5"), "hidden must be a list of numbers, got 5"),
        (("--seeds", "99999999999999999999"), "seeds must be at most 1,000,000"),
        (("--iterations", "100000000000000000000"), "iterations must be at most"),
        (("--iterations", "1000000000000"), "iterations must be at most 1,000,000 times log_interval"),
        (("--inputs", "100000000"), "inputs must be at most 1,000,000"),
        (("--inputs", "1000000", "--set", "evaluation_rows=10000000"), "GB of memory"),
        (("--inputs", "0"), "mul needs at least 2 inputs, got 0"),
        (("--set", "batch=1000000000000"), "GB of memory"),
        (("--set", "batch=2.5"), "batch must be a whole number, got 2.5"),
        (("--set", "learning_rate=nan"), "learning_rate must be a finite number"),
        (("--set", "project=3"), "project must be True or False"),
        (("--set", "snap={'rows': 'x'}"), "rows must be a whole number"),
        (("--set", "snap={'row': 1}"), "snap has no value 'row'"),
        (("--set", "batch=" + "[" * 5000), "batch must be a whole number"),
        (("--threshold", "nan"), "threshold must be positive"),
        (("--threshold", "simulated:-1"), "threshold must be positive"),
    ],
)
def test_values_out_of_all_proportion_are_one_line_and_status_two(monkeypatch, capsys, changes, message):
    code, out, err = run(monkeypatch, capsys, *BENCH, "--module", "nmu", *changes)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no full device here")
def test_output_that_cannot_be_written_is_one_line():
    for arguments in (["--version"], ["list", "distributions"], ["list", "tasks", "--json"]):
        with open("/dev/full", "w") as full:
            done = subprocess.run(
                [sys.executable, "-m", "nalm", *arguments], stdout=full, stderr=subprocess.PIPE, text=True, check=False
            )
        assert (done.returncode, done.stderr) == (1, "nalm: cannot write the output: No space left on device\n")


def test_a_closed_pipe_ends_in_silence():
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "nalm", "list", "tasks"], stdout=writing, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, "")


def test_folders_that_cannot_be_used_are_refused(monkeypatch, capsys, tmp_path):
    file = tmp_path / "file"
    file.write_text("no folder")
    damaged = tmp_path / "damaged"
    damaged.mkdir()
    (damaged / "results.sqlite").write_text("no database" * 100)
    for folder in (file, damaged):
        code, out, err = run(monkeypatch, capsys, *BENCH, "--module", "nmu", "--out", str(folder))
        assert (code, out) == (2, "")
        assert err.count("\n") == 1
    assert (damaged / "results.sqlite").read_text().startswith("no database")


def test_lists(monkeypatch, capsys):
    for kind, first in (("tasks", "single-module"), ("distributions", "U[1,2)")):
        code, out, _ = run(monkeypatch, capsys, "list", kind, "--json")
        assert code == 0
        assert json.loads(out)[kind][0]["name"] == first
        code, out, _ = run(monkeypatch, capsys, "list", kind)
        assert out.startswith(first)


def test_bench_of_two_layers(monkeypatch, capsys):
    arguments = [
        "bench",
        "arithmetic-dataset",
        "--module",
        "nau+nau",
        "--operation",
        "add",
        "--range",
        "U[1,2)",
        "--seeds",
        "1",
    ]
    code, out, _ = run(monkeypatch, capsys, *arguments, "--iterations", "20", "--data", "hidden=3", "--json")
    row = json.loads(out)["rows"][0]
    assert (code, row["module"], row["inputs"]) == (0, "nau+nau", 100)
    code, out, err = run(monkeypatch, capsys, *arguments, "--data", "hidden")
    assert (code, out) == (2, "")
    assert "--data takes name=value, got 'hidden'" in err


def test_list_experiments(monkeypatch, capsys):
    code, out, _ = run(monkeypatch, capsys, "list", "experiments", "--json")
    rows = json.loads(out)["experiments"]
    assert code == 0
    assert {"id", "title", "source", "task", "seconds_quick", "seconds_paper"} <= set(rows[0])
    assert {row["id"] for row in rows} >= {"M:tab1", "M:tab2", "S:fig7", "D:fig6", "T:tab5.6", "H:fig7"}
    code, out, _ = run(monkeypatch, capsys, "list", "experiments")
    assert "T:tab5.6" in out
    assert out.rstrip().endswith("cores of this machine")


def test_reproduce(monkeypatch, capsys, tmp_path):
    code, out, _ = run(monkeypatch, capsys, "reproduce", "S:tab9", "--out", str(tmp_path))
    assert code == 0
    assert "12 published claims: 12 agree, 0 differ, 0 not comparable" in out
    assert (tmp_path / "S-tab9" / "table.csv").read_text().count("\n") > 2
    code, out, _ = run(monkeypatch, capsys, "reproduce", "S:tab9", "--json")
    assert json.loads(out)["reports"][0]["agree"] == 12
    page = tmp_path / "page.md"
    code, out, _ = run(monkeypatch, capsys, "reproduce", "--out", str(tmp_path), "--page", str(page))
    assert code == 0
    assert "## S:tab9" in page.read_text()


def test_reproduce_a_training(monkeypatch, capsys):
    code, out, _ = run(monkeypatch, capsys, "reproduce", "D:fig11", "--seeds", "1", "--series", "nru,nmru")
    assert code == 0
    assert "U[0,0.0001)" in out
    assert "16 published claims" in out


def test_reproduce_everything(monkeypatch, capsys):
    from nalm import experiments, reproduction

    few = tuple(one for one in experiments.load_all() if one.id in ("S:fig6", "T:appC"))
    monkeypatch.setattr(reproduction, "load_all", lambda: few)
    code, out, _ = run(monkeypatch, capsys, "reproduce", "--all")
    assert code == 0
    assert "2 experiments, 0 minutes" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["D:fig1"], "unknown experiment 'D:fig1'. Nearest: D:fig1a"),
        (["D:fig1a", "--budget", "huge"], "unknown budget 'huge'; there are: quick, paper"),
        (["D:fig1a", "--seeds", "-3"], "seeds must be at least 1, got -3"),
        (["D:fig1a", "--series", "nau"], "D:fig1a has no series 'nau'; it has: L1, none"),
        ([], "give the id of an experiment, or --all"),
        (["D:fig1a", "--all"], "give the id of an experiment, or --all"),
        (["--page", "page.md"], "--page needs --out"),
        (["S:tab9", "--out", "/dev/null/here"], "/dev/null/here"),
    ],
)
def test_bad_reproductions_are_one_line_and_status_two(monkeypatch, capsys, arguments, message):
    code, out, err = run(monkeypatch, capsys, "reproduce", *arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


def test_values_are_printed_with_their_standard_errors(capsys):
    row = {"layer": "NMU", "accuracy": 81.25, "accuracy_error": 1.5, "close": 60.0, "close_error": None, "least_error": 0.125}
    print_rows([row])
    heading, line = capsys.readouterr().out.splitlines()
    assert "accuracy error" not in heading
    assert "least error" in heading
    assert line.split() == ["NMU", "81.2", "±", "1.5", "60", "0.125"]


def test_speed(monkeypatch, capsys):
    from nalm import speed

    monkeypatch.setattr(speed, "RUNS_A_RANGE", 1)
    code, out, _ = run(monkeypatch, capsys, "speed", "--module", "nmu", "--json")
    assert code == 0
    (row,) = json.loads(out)["speed"]
    assert row["module"] == "nmu"
    assert row["fused_ratio"] == pytest.approx(row["plain_us"] / row["fused_us"])
    code, out, _ = run(monkeypatch, capsys, "speed", "--module", "nlrl,nsr", "--json")
    assert [(row["module"], row["operation"]) for row in json.loads(out)["speed"]] == [("nlrl", "and"), ("nsr", "lt")]
    code, out, err = run(monkeypatch, capsys, "speed", "--module", "product-fc")
    assert (code, out) == (2, "")
    assert "no kernel for product-fc" in err
    code, out, _ = run(monkeypatch, capsys, "speed", "--module", "nau+nmu")
    assert "fused / plain" in out


def test_a_killed_benchmark_resumes_to_the_same_result():
    script = Path(__file__).parent.parent / "benchmarks" / "kill_and_resume.py"
    arguments = ["--kills", "2", "--seeds", "4", "--iterations", "20000"]
    done = subprocess.run([sys.executable, str(script), *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "resumed result equals the undisturbed one" in done.stdout


COMMANDS = [("list", "modules"), ("list", "tasks"), ("list", "experiments"), ("list", "distributions")]
COMMANDS += [(name,) for name in ("bench", "reproduce", "discover", "data", "speed")]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_has_help_and_the_common_options(monkeypatch, capsys, command):
    code, out, err = run(monkeypatch, capsys, *command, "-h")
    assert (code, err) == (0, "")
    assert all(option in out for option in ("-v, --verbose", "-q, --quiet", "--threads", "-h, --help", "--json"))
    code, out, err = run(
        monkeypatch, capsys, *command, "--threads", "0", *{"bench": BENCH[1:4], "discover": ["x"]}.get(command[0], [])
    )
    assert (code, out) == (2, "")


def test_threads_and_loudness_are_set(monkeypatch, capsys):
    from nalm import native, progress

    for name in (native.THREADS, "OMP_NUM_THREADS"):
        monkeypatch.setenv(name, "3")
    assert native.cores() == 3
    assert run(monkeypatch, capsys, "list", "tasks", "-q", "--threads", "2")[0] == 0
    assert native.cores() == 2
    assert not progress._shown
    assert run(monkeypatch, capsys, "list", "tasks", "-v")[0] == 0
    assert progress._shown
    code, _, err = run(monkeypatch, capsys, "list", "tasks", "-v", "-q")
    assert (code, "exclude each other" in err) == (2, True)


def test_completion_can_be_installed(monkeypatch, capsys):
    code, out, _ = run(monkeypatch, capsys, "--help")
    assert code == 0
    assert "--install-completion" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((*BENCH, "--module", ""), "--module needs at least one name, got ''"),
        ((*BENCH, "--module", " , "), "--module needs at least one name"),
        (("speed", "--module", ""), "--module needs at least one name"),
        ((*BENCH, "--module", "nmu", "--runs"), "--runs goes with --json"),
        (("reproduce", "S:tab9", "--series", "nmu"), "S:tab9 is computed and has no series, got nmu"),
        (("reproduce", "D:fig1a", "--series", ""), "--series needs at least one name"),
        (("reproduce", "D:fig1a", "--series", "L2"), "has no series 'L2'"),
        (("reproduce", "--all", "--series", "nmu"), "--series goes with the id of one experiment"),
        (("reproduce", "S:tab9", "--seeds", "2"), "S:tab9 is computed and has no seeds, got 2"),
        (("reproduce", "D:fig1a", "--data-dir", "data"), "D:fig1a has no images"),
        (("reproduce", "--out", "o", "--page", "p", "--budget", "quick"), "--page alone runs nothing"),
    ],
)
def test_options_that_mean_nothing_are_refused(monkeypatch, capsys, arguments, message):
    code, out, err = run(monkeypatch, capsys, *arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1
