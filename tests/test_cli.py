"""The command line: what it prints, where, and how it ends."""

import json
import subprocess
import sys

import pytest
import typer

import nalm
from nalm import cli

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
