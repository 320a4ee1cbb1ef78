"""Random and damaged input: the only errors are ValueError and its kin, with one sentence, and no result changes in silence.

The quick profile takes half a minute; `python benchmarks/fuzz.py` runs many more examples.
"""

import tempfile
import warnings
from importlib import resources
from pathlib import Path

import numpy as np
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import nalm
from nalm.checks import literal
from nalm.experiments import parse as parse_experiment
from nalm.files import FileError
from nalm.grammar import read
from nalm.images import digits
from nalm.images.trainer import _resume, _save
from nalm.models import model_of
from nalm.registry import modules
from nalm.sampling import parse as parse_range
from nalm.specs import Cell, Recipe, Runs
from nalm.store import Store
from nalm.tasks import TASKS, read_range

FIXED = settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.filter_too_much])


def one_sentence(call, kinds=(ValueError,)):
    """What a call gives; None where it refuses as it should."""
    try:
        return call()
    except kinds as error:
        text = str(error)
        assert text.strip(), "an error without words"
        assert "\n" not in text.strip()
        assert len(text) < 3_000
        return None


def pieces(*parts):
    """Texts made of parts that have a meaning, and of anything."""
    return st.lists(st.one_of(st.sampled_from(parts), st.text(max_size=3)), max_size=12).map("".join)


ANYTHING = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.just(10**30)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=2)),
    max_leaves=4,
)
RANGE = pieces(*"UTNBZES[]()|&~,->0123456789.", "U[1,2)", "TN(0,1)", "Sobol(", "Exp(", "->", "inf", "nan", "1e308", "-", " ")
FORMULA = pieces(
    *"abxN+-*/().,", "**", "sqrt(", "abs(", "1e", "e9", "999", "9**9", "import os", "__", "lambda ", "beta", "\n", "pi"
)


@given(RANGE)
def test_ranges(text):
    distribution = one_sentence(lambda: parse_range(text))
    if distribution is not None:
        assert parse_range(str(distribution)) == distribution
    one_sentence(lambda: read_range(text))


def test_tables_nested_without_end_are_refused():
    for table in ("settings.x", "setup.recipe", "series"):
        text = "id = 'a'\ntitle = ''\nsource = ''\nkind = 'exact'\n" + ".".join([table, *["a"] * 2_000]) + " = 1"
        assert one_sentence(lambda text=text: parse_experiment(text, "file")) is None


def test_a_long_range_is_refused():
    for text in ("U[1,2)" + "~0.5" * 50_000, "U[1,2)|" * 50_000, "U[" + "1" * 100_000 + ",2)"):
        assert one_sentence(lambda text=text: parse_range(text)) is None


@given(FORMULA)
def test_formulas(text):
    expression = one_sentence(lambda: read(text))
    if expression is not None:
        module = one_sentence(lambda: nalm.from_sympy(text))
        if module is not None:
            assert all(p.isfinite().all() for p in module.parameters())


@given(ANYTHING)
def test_formulas_that_are_no_text(value):
    if not isinstance(value, (int, float, list, tuple)):
        one_sentence(lambda: nalm.from_sympy(value))
    one_sentence(lambda: nalm.from_sympy("a*b", value))


@given(st.text(max_size=30))
def test_values_in_text(text):
    literal(text)


@given(pieces(*modules(), "+", "/", ":", "recurrent:", "frozen", "plain-linear", "os:sep", "."))
def test_names_of_modules(text):
    one_sentence(lambda: model_of(text).build(4))


@given(st.sampled_from(sorted(modules())), st.data())
def test_options_of_modules(name, data):
    names = st.sampled_from([*modules()[name].allowed, "colour"])
    options = data.draw(st.dictionaries(names.filter(lambda one: one not in ("device", "dtype")), ANYTHING, max_size=2))
    small = {key: value for key, value in options.items() if not (isinstance(value, int) and abs(value) > 1_000)}
    one_sentence(lambda: nalm.create(name, 2, 1, **small))


@given(st.dictionaries(st.sampled_from(list(Recipe.__dataclass_fields__)), ANYTHING, max_size=2))
def test_values_of_recipes(changes):
    one_sentence(lambda: Recipe().replace(**changes))


@given(st.sampled_from(sorted(TASKS)), st.data(), st.integers(1, 300))
def test_values_of_tasks(name, data, inputs):
    task = TASKS[name]
    values = data.draw(st.dictionaries(st.sampled_from([*task.data, "start", "colour"]), ANYTHING, max_size=2))
    operation = data.draw(st.sampled_from(task.operations))
    spans = one_sentence(lambda: task.spans(inputs, 0, values, operation))
    for first, last in spans or ():
        assert 0 <= first < last <= inputs


FILES = {
    file.name: file.read_text(encoding="utf-8")
    for file in resources.files("nalm.experiments").iterdir()
    if file.name.endswith(".toml")
}
VALUES = (
    "3",
    "-1",
    "1e400",
    "nan",
    "true",
    "''",
    "'x'",
    "[]",
    "{}",
    "[1, 2]",
    "['a']",
    "{ a = 1 }",
    "1979-05-27",
    "10000000000000",
)
LINES = (
    "[setup]",
    "[[series]]",
    "[quick]",
    "[published]",
    "kind = 'images'",
    "kind = 'dynamics'",
    "figure = 'x'",
    "id = '/tmp/x'",
)


@st.composite
def damaged_files(draw):
    name = draw(st.sampled_from(sorted(FILES)))
    lines = FILES[name].splitlines()
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(0, len(lines) - 1))
        line = lines[place]
        how = draw(st.integers(0, 4))
        if how == 0 and len(lines) > 1:
            del lines[place]
        elif how == 1:
            lines[place] = f"{line.partition('=')[0]}= {draw(st.sampled_from(VALUES))}"
        elif how == 2:
            lines.insert(place, draw(st.sampled_from([*LINES, *lines])))
        elif how == 3:
            column = draw(st.integers(0, len(line)))
            lines[place] = line[:column] + draw(st.text(max_size=2)) + line[column + 1 :]
        else:
            lines = lines[: place + 1]
    return "\n".join(lines), name


@given(damaged_files())
def test_experiment_files(file):
    experiment = one_sentence(lambda: parse_experiment(*file))
    if experiment is not None:
        assert "/" not in experiment.slug
        assert experiment.task
        for budget in ("quick", "paper"):
            if experiment.kind == "training":
                assert experiment.conditions(budget)
            else:
                experiment.settings_for(budget)


@given(st.text(max_size=40))
def test_experiment_files_that_are_any_text(text):
    assert one_sentence(lambda: parse_experiment(text, "file")) is None


@st.composite
def damage(draw):
    """A function that damages bytes: bits flipped, bytes missing, or an early end."""
    how = draw(st.sampled_from(["flip", "missing", "end", "zeros"]))
    share, bit, count = (
        draw(st.floats(0, 1, exclude_max=True)),
        draw(st.integers(0, 7)),
        draw(st.sampled_from([1, 16, 512, 4096])),
    )

    def damaged(content):
        data, place = bytearray(content), int(share * len(content))
        if how == "flip":
            data[place] ^= 1 << bit
        elif how == "zeros":
            data[place : place + count] = bytes(min(count, len(data) - place))
        else:
            del data[place : place + count if how == "missing" else None]
        return bytes(data)

    return damaged


def network():
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), nalm.NMU(4, 1))
    return module, torch.optim.Adam(module.parameters())


def checkpoint():
    module, optimiser = network()
    module(torch.ones(1, 3)).sum().backward()
    optimiser.step()
    state = {"network": module.state_dict(), "optimiser": optimiser.state_dict(), "history": [{"epoch": 0, "error": 1.5}]}
    with tempfile.TemporaryDirectory() as folder:
        _save(Path(folder) / "c.pt", {"epoch": 1, "seconds": 2.0, **state})
        return (Path(folder) / "c.pt").read_bytes()


CHECKPOINT = checkpoint()


@given(damage())
def test_damaged_checkpoints(harm):
    content = harm(CHECKPOINT)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "c.pt"
        path.write_bytes(content)
        module, optimiser = network()
        before, history = [p.clone() for p in module.parameters()], []
        found = one_sentence(lambda: _resume(path, module, optimiser, history, 5))
        if content == CHECKPOINT:
            assert found == (1, 2.0)
        else:
            assert found == (0, 0.0)
            assert history == []
            assert all(torch.equal(a, b) for a, b in zip(before, module.parameters(), strict=True))


CELL = Cell("nmu", "mul", 2, "U[1,2)", "U[2,6)", Recipe(iterations=2_000))


def stored_runs():
    curves = np.arange(12.0).reshape(4, 3)
    return Runs(np.arange(4), CELL.recipe.steps, curves, curves + 1, curves + 2, curves[:, :2] / 7, ["ok"] * 4, [""] * 4)


def store_file():
    with tempfile.TemporaryDirectory() as folder:
        store = Store(folder, version="1")
        store.add(CELL, stored_runs(), engine="fused", seconds=1.0)
        store.close()
        return (Path(folder) / "results.sqlite").read_bytes()


STORE = store_file()


def read_store(folder):
    with Store(folder, version="1") as store:
        there = [seed for seed in range(4) if seed not in store.missing(CELL, range(4))]
        return there, store.runs(CELL, there) if there else None


@given(damage())
def test_damaged_stores(harm):
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        (Path(folder) / "results.sqlite").write_bytes(harm(STORE))
        found = one_sentence(lambda: read_store(folder))
    if found is not None and found[1] is not None:
        there, runs = found
        for name in ("seeds", "validation", "test", "sparsity", "weights"):
            np.testing.assert_array_equal(getattr(runs, name), getattr(stored_runs(), name)[there])
        np.testing.assert_array_equal(runs.steps, stored_runs().steps)
        assert runs.status == ["ok"] * len(there)


@FIXED
@given(
    st.one_of(st.binary(max_size=40), st.binary(max_size=20).map(lambda end: b"\0\0\x08\x01\0\0\0\x03" + end)), st.booleans()
)
def test_files_of_digits(content, packed):
    import gzip

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "labels"
        path.write_bytes(gzip.compress(content) if packed else content)
        one_sentence(lambda: digits.read_idx(path), (ValueError, FileError))
