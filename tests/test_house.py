"""The shape of the project: who may import whom, and that texts say what the code does."""

import ast
import importlib
import inspect
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import tomllib
import yaml

import nalm

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "nalm"
LEVELS = {
    "checks": 0,
    "files": 0,
    "identity": 0,
    "grammar": 0,
    "interrupts": 0,
    "native": 0,
    "notation": 0,
    "operations": 0,
    "progress": 0,
    "terminal": 0,
    "commands": 1,
    "options": 1,
    "vector": 1,
    "layers": 2,
    "training": 2,
    "specs": 2,
    "sampling": 2,
    "exports": 3,
    "figures": 2,
    "registry": 3,
    "symbolic": 3,
    "solver": 3,
    "tables": 3,
    "composing": 3,
    "discovery": 3,
    "store": 3,
    "tasks": 3,
    "variants": 3,
    "learnable": 4,
    "metrics": 4,
    "experiments": 4,
    "engine": 4,
    "models": 4,
    "exact": 4,
    "regressor": 4,
    "images": 5,
    "dynamics": 5,
    "simple_arithmetic": 5,
    "limits": 5,
    "claims": 5,
    "runner": 5,
    "speed": 5,
    "discover": 5,
    "drawing": 6,
    "pages": 6,
    "planning": 6,
    "reproduction": 7,
    "cli": 8,
    "__main__": 9,
}
"""Each room of the house with its level, as in docs/architecture.md; a room imports only rooms below it."""


def rooms_imported(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "nalm":
            parts = node.module.split(".")[1:]
            yield from [parts[0]] if parts else [alias.name for alias in node.names if alias.name in LEVELS]
        elif isinstance(node, ast.Import):
            yield from [alias.name.split(".")[1] for alias in node.names if alias.name.startswith("nalm.")]


def room_of(path):
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda p: str(p.relative_to(SOURCE)))
def test_rooms_import_only_rooms_below(path):
    room = room_of(path)
    if room == "__init__":
        return
    assert room in LEVELS, f"give {room} a level here and in docs/architecture.md"
    for other in set(rooms_imported(path)) - {room}:
        assert LEVELS[other] < LEVELS[room], f"{room} must not import {other}"


def test_architecture_page_names_every_room():
    text = (ROOT / "docs" / "architecture.md").read_text()
    for room in LEVELS:
        assert room in text


def test_every_public_name_has_a_docstring():
    for name in nalm.__all__:
        if name != "__version__":
            value = getattr(nalm, name)
            assert inspect.getdoc(value), name
    for module in sorted(set(LEVELS) - {"cli", "__main__", "engine"}):
        loaded = importlib.import_module(f"nalm.{module}")
        for name in loaded.__all__:
            value = getattr(loaded, name)
            if inspect.isclass(value):
                members = [m for key, m in vars(value).items() if inspect.isfunction(m) and not key.startswith("_")]
                assert all(inspect.getdoc(m) for m in members), name
            if callable(value):
                assert inspect.getdoc(value), name


def test_listed_names_are_those_type_checkers_see():
    tree = ast.parse((SOURCE / "__init__.py").read_text())
    guarded = next(node for node in tree.body if isinstance(node, ast.If))
    seen = {alias.asname for node in guarded.body for alias in node.names}
    assert seen | {"__version__"} == set(nalm.__all__)
    assert set(nalm.__all__) == set(dir(nalm))
    with pytest.raises(AttributeError, match="no attribute 'NAUU'"):
        nalm.NAUU  # noqa: B018


@pytest.mark.parametrize(("name", "written_by"), [("modules.md", "module_table"), ("api.md", "api")])
def test_generated_pages_are_up_to_date(name, written_by):
    page = runpy.run_path(str(ROOT / "docs" / "generate.py"))[written_by]()
    assert (ROOT / "docs" / name).read_text() == page, "run `make docs`"


def test_version_stands_in_one_place():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == nalm.__version__
    assert len(citation["references"]) == 5
    assert f"## {nalm.__version__}" in (ROOT / "CHANGELOG.md").read_text()
    assert "version" in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dynamic"]


def test_every_dependency_is_pinned():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["dev"]]
    pins = (ROOT / "constraints.txt").read_text().splitlines()
    pinned = {line.split("==")[0].lower() for line in pins if line and not line.startswith("#")}
    assert all("==" in line for line in pins if line and not line.startswith("#"))
    for requirement in wanted:
        assert re.split(r"[<>=]", requirement)[0].lower() in pinned


def test_pins_can_be_met_on_the_oldest_python():
    for_python = runpy.run_path(str(ROOT / ".ci" / "check_pythons.py"))["for_python"]
    pins = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if line and not line.startswith("#")]
    for version, numpy in (("3.10", "2.2.6"), ("3.11", "2.4.6")):  # the last one for Python 3.10, and a later one
        chosen = for_python(pins, version)
        assert f"numpy=={numpy}" in chosen
        names = [line.split("==")[0] for line in chosen]
        assert len(names) == len(set(names))


def test_page_of_the_package_has_no_links_that_lead_nowhere():
    hook = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]
    page = (ROOT / "README.md").read_text()
    relative = re.compile(r"\]\((?!https?:)")
    assert relative.search(page)
    for one in hook["substitutions"]:
        page = re.sub(one["pattern"], one["replacement"], page)
    assert not relative.search(page)


def readme_blocks():
    text = (ROOT / "README.md").read_text()
    return re.findall(r"```python\n(.*?)```\s+```text\n(.*?)```", text, re.DOTALL)


def test_readme_examples_print_what_they_say():
    blocks = readme_blocks()
    assert blocks
    for code, output in blocks:
        assert len(code.splitlines()) <= 25
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout == output


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("learn_operations.py", [f"learned  {formula}" for formula in ("a + b", "a - b", "a*b", "a/b")]),
        ("piecewise.py", [f"{name}: 10000 of 10,000" for name in ("|a - b|", "max(a, b)", "min(max(a, b), c)")]),
        ("lists.py", [f"{name}: 1000 of 1,000" for name in ("minimum", "count")]),
        ("fractional_sir.py", ["dS/dt = -0.06*sqrt(I)*sqrt(S) + 0.01*R", "dR/dt = 0.05*I - 0.01*R"]),
    ],
)
def test_examples_run(name, lines):
    script = ROOT / "examples" / name
    assert len(script.read_text().splitlines()) <= 60
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True)
    for line in lines:
        assert line in done.stdout


def test_wide_layer_benchmark_runs():
    script = ROOT / "benchmarks" / "wide_layers.py"
    sizes = ["--batch", "16", "--inputs", "64", "--outputs", "64", "--repeats", "1"]
    done = subprocess.run([sys.executable, str(script), *sizes], capture_output=True, text=True, check=True)
    assert "nalm.NMU" in done.stdout
