"""Modules of one's own: units written from outside, what identifies a factory, registration, and what cannot be stacked."""

import importlib
import json
import os
import random
import re
import subprocess
import sys
import threading
import time
import weakref
from functools import partial, wraps
from importlib.metadata import EntryPoint
from os import environ as surroundings
from os import getenv as asked
from pathlib import Path
from types import MappingProxyType, ModuleType

import numba
import numpy as np
import pandas
import pytest
import scipy.io
import torch
from numpy import loadtxt as table
from torch import nn

import nalm
from nalm import figures, registry, speed
from nalm.cli import app
from nalm.engine import reference
from nalm.identity import UntoldError, identity
from nalm.options import LevenbergMarquardt, Snap
from nalm.store import Store

NALM = [sys.executable, "-m", "nalm"]


class Doubler(nalm.Unit):
    """A unit written with public names only: each output is a multiple of the sum of the selected inputs."""

    operations = ("add", "identity")
    legal_values = {"weight": (0, 1)}

    def __init__(self, in_features, out_features, *, factor=1.0, device=None, dtype=None):
        super().__init__(in_features, out_features)
        self.factor = factor
        self.weight = nn.Parameter(torch.empty(out_features, in_features, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self, generator=None):
        nn.init.uniform_(self.weight, 0.25, 0.75, generator=generator)

    def effective_weights(self):
        return {"weight": self.weight.clamp(0, 1)}

    def express_(self, operation, operands):
        self.weight.zero_()
        self.weight[:, list(operands)] = 1

    def forward(self, x):
        return self.factor * x @ self.weight.clamp(0, 1).T


def test_a_unit_from_outside_needs_no_private_name():
    layer = Doubler(3, 2).set_solution_("add", (0, 2))
    assert layer(torch.tensor([1.0, 10.0, 100.0])).tolist() == [101.0, 101.0]
    layer.weight.data += 0.1
    layer.snap_()
    assert nalm.sparsity_error(layer) == 0
    with torch.no_grad():
        layer.weight.fill_(0.25)
    assert nalm.sparsity_error(layer) == 0.25


FAST = {"ranges": ["U[1,2)"], "iterations": 20, "log_interval": 10, "evaluation_rows": 20}
SCALE = 3.0


class Base(nn.Module):
    """A module without arithmetic meaning; what it computes depends on an option."""

    power = 1

    def __init__(self, in_features, out_features, k=1.0):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(out_features, in_features))
        self.k = k

    def forward(self, x):
        return self.k * SCALE * nn.functional.linear(x, self.weight) ** self.power


class Derived(Base):
    """The same, by inheritance."""


class Builder:
    """A factory with state."""

    def __init__(self, k):
        self.k = k

    def build(self, in_features, out_features):
        return Base(in_features, out_features, self.k)


def closing_over(k):
    return lambda i, o: Base(i, o, k)


def defaulting_to(k):
    def build(i, o, k=k):
        return Base(i, o, k)

    return build


def holding(opaque):
    def build(i, o):
        return Base(i, o) if opaque else None

    return build


@pytest.mark.parametrize(
    "build",
    [
        closing_over,
        defaulting_to,
        lambda k: partial(Base, k=k),
        lambda k: Builder(k).build,
        lambda k: type("Fresh", (Base,), {"power": k}),
        lambda k: closing_over(torch.tensor(k)),
    ],
    ids=["closure", "default", "partial", "instance", "class", "tensor"],
)
def test_factories_that_differ_in_a_value_share_no_results(build, tmp_path, monkeypatch):
    first, other = (nalm.benchmark(build(k), seeds=1, out=tmp_path, **FAST) for k in (5.0, 0.0))
    assert first.runs[0]["interpolation_error"] != other.runs[0]["interpolation_error"]
    monkeypatch.setattr("nalm.runner.reference.train", None)
    again = nalm.benchmark(build(5.0), seeds=1, out=tmp_path, **FAST)
    assert again.runs == first.runs


class Secretive(dict):
    """What pickling leaves out counts too."""

    __slots__ = ("k",)

    def __init__(self, k):
        super().__init__(k=k)
        self.k = k

    def __reduce__(self):
        return Secretive, (0,)


def decorated(k):
    @wraps(Base)
    def build(i, o):
        return Base(i, o, k)

    return build


def in_a_module(k):
    space = {"helpers": ModuleType("helpers"), "Base": Base, "__name__": "user"}
    space["helpers"].k = k
    exec("def build(i, o):\n    return Base(i, o, helpers.k)\n", space)
    return space["build"]


def handed_on(k):
    """A module of the user's goes to a helper, which calls a function in it, which names a value there."""
    library = ModuleType("ops")
    exec(f"K = {k}\ndef act(x):\n    return x * K\n", vars(library))
    space = {"ops": library, "Base": Base, "__name__": "user"}
    exec("def helper(lib, x):\n    return lib.act(x)\ndef build(i, o):\n    return Base(i, helper(ops, o))\n", space)
    return space["build"]


def marked(value, k):
    value.scale = k
    return value


class Array(np.ndarray):
    """An array with attributes."""


@pytest.mark.parametrize(
    "build",
    [
        decorated,
        in_a_module,
        handed_on,
        lambda k: closing_over(Secretive(k)),
        lambda k: closing_over({"nested": [k, {k, "a"}]}),
        lambda k: closing_over(np.array([k, None], object)),
        lambda k: closing_over(in_a_module(k).__globals__["helpers"]),
        lambda k: closing_over(marked(torch.ones(1), k)),
        lambda k: closing_over(marked(np.ones(1).view(Array), k)),
        lambda k: closing_over((np.add, np.multiply)[k - 1]),
        lambda k: closing_over((torch.float32, torch.float64)[k - 1]),
        lambda k: type("Metaclass", (type,), {"k": k})("Fresh", (Base,), {}),
        lambda k: type("Fresh", (Base,), {"scaled": property(lambda self: k)}),
        lambda k: partial(nn.Linear, bias=bool(k - 1)),
        lambda k: closing_over((torch.sin, torch.cos)[k - 1]),
    ],
)
def test_identity_follows_values_wherever_they_are(build):
    assert identity(build(1)) == identity(build(1))
    assert identity(build(1)) != identity(build(2))


def test_options_tell_modules_apart(tmp_path):
    errors = [
        nalm.benchmark(Base, seeds=1, out=tmp_path, module_options={"k": k}, **FAST).runs[0]["interpolation_error"]
        for k in (5.0, 0.0)
    ]
    assert errors[0] != errors[1]


def test_a_base_class_or_a_global_that_changed_is_noticed(monkeypatch):
    identities = [identity(Derived)]
    with monkeypatch.context() as patch:
        patch.setattr(Base, "power", 2)
        identities.append(identity(Derived))
    with monkeypatch.context() as patch:
        patch.setattr(sys.modules[__name__], "SCALE", 4.0)
        identities.append(identity(closing_over(1.0)))
    identities.append(identity(closing_over(1.0)))
    assert len(set(identities)) == 4
    assert identity(Derived) == identities[0]


def test_identity_is_the_same_in_another_process(tmp_path):
    (tmp_path / "mine.py").write_text(
        "import functools, numba, torch\nfrom torch import nn\nNAMES = {'a', 'b', 'c', 'd'}\n"
        "@numba.njit\ndef doubled(x):\n    return 2 * x\n"
        "@numba.njit(fastmath=True)\ndef fourfold(x):\n    return 2 * doubled(x)\n"
        "class K(nn.Module):\n    def __init__(self, i, o, *, k=1):\n        super().__init__()\n"
        "        self.layer = nn.Linear(fourfold(i), o)\n"
        "    @torch.no_grad()\n    def clip(self):\n        self.layer.weight.clamp_(-1, 1)\n"
        "    def forward(self, x):\n        return self.layer(x) * len(NAMES) if 3 in {1, 2, 3} else x\n"
        "factory = functools.partial(K, k=torch.ones(3))\n"
    )
    code = "import mine; from nalm.identity import identity; print(identity(mine.factory, mine.NAMES))"
    told = {
        subprocess.run(
            [sys.executable, "-c", code],
            cwd=tmp_path,
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(told) == 1


@pytest.mark.parametrize(
    "opaque",
    [threading.Lock(), (x for x in "a"), weakref.ref(Base), np.frompyfunc(lambda a: a, 1, 1)],
    ids=["lock", "generator", "reference", "function"],
)
def test_what_cannot_be_told_is_never_reused(opaque, tmp_path, caplog):
    with pytest.raises(UntoldError, match="it holds a"):
        identity(holding(opaque))
    for _ in range(2):
        nalm.benchmark(holding(opaque), seeds=1, out=tmp_path, **FAST)
    assert [record.message.split(":")[0] for record in caplog.records] == ["build is trained anew and not stored"] * 2
    with Store(tmp_path, version="test") as store:
        assert store.cells() == []


def test_a_compiled_function_is_told_by_its_source():
    def compiled(k, **options):
        return numba.njit(**options)(lambda x: x * k)

    assert identity(compiled(2)) == identity(compiled(2))
    assert len({identity(one) for one in (compiled(2), compiled(3), compiled(2, fastmath=True))}) == 3


OUTSIDE = {
    "os.environ": [lambda: os.environ["K"], lambda: surroundings["K"], lambda: closing_over(os.environ)],
    "os.getenv": [lambda: asked("K"), lambda: os.getenv("K")],
    "os.path.exists": [lambda: os.path.exists("K")],
    "numpy.loadtxt": [lambda: table("K"), lambda: np.loadtxt("K")],
    "numpy.memmap": [lambda: np.memmap("K")],
    "numpy.random.rand": [lambda: np.random.rand()],  # noqa: NPY002
    "torch.load": [lambda: torch.load("K")],
    "scipy.io.loadmat": [lambda: scipy.io.loadmat("K")],
    "pandas.read_excel": [lambda: pandas.read_excel("K")],
    "pandas.read_parquet": [lambda: pandas.read_parquet("K")],
    "sys.argv": [lambda: sys.argv[1]],
    "subprocess.check_output": [lambda: subprocess.check_output("K")],
    "time.time": [lambda: time.time()],
    "random": [lambda: getattr(random, "random")()],  # noqa: B009
    "random.random": [lambda: random.random(), random.random],
    "pathlib.Path": [lambda: Path("K").exists()],
    "eval": [lambda: eval("K"), eval],
    "open": [lambda: open("K"), open],  # noqa: SIM115
}


@pytest.mark.parametrize("what", OUTSIDE)
def test_code_that_reads_what_no_code_tells_cannot_be_told(what):
    for factory in OUTSIDE[what]:
        with pytest.raises(UntoldError, match=rf"^what {re.escape(what)} gives is not in the code"):
            identity(factory)


class Opening(nn.Module):
    """It has names that functions which read files have, too."""

    def __init__(self, i, o):
        super().__init__()
        self.open = self.load = nn.Parameter(torch.rand(o, i))

    def forward(self, input):  # noqa: A002
        return next(torch.relu(x) @ self.open.T + self.load.mean() for x in [input] if input is not None)


def test_names_alone_are_no_reason_to_refuse():
    assert identity(Opening) == identity(Opening)


@pytest.mark.parametrize(
    "source",
    [
        "from . import helpers",
        "from pk import helpers",
        "import pk.helpers",
        "from pk.helpers import K",
        "import pandas",
    ],
)
def test_telling_imports_nothing_and_refuses_code_that_does(source, tmp_path, monkeypatch):
    (tmp_path / "pk").mkdir()
    (tmp_path / "pk" / "__init__.py").write_text(f"def build(i, o):\n    {source}\n    return helpers.K\n")
    (tmp_path / "pk" / "helpers.py").write_text("raise SystemExit(3)\n")
    monkeypatch.syspath_prepend(tmp_path)
    package = importlib.import_module("pk")
    try:
        with pytest.raises(UntoldError, match=r"build imports .*, which belongs at the top of its file"):
            identity(package.build)
        assert "pk.helpers" not in sys.modules
    finally:
        del sys.modules["pk"]


def test_a_part_of_a_package_that_is_not_there_yet_cannot_be_told():
    space = {"pk": ModuleType("pk"), "__name__": "user"}
    exec("def build(i, o):\n    return pk.helpers.K\n", space)
    with pytest.raises(UntoldError, match="module pk has no helpers yet"):
        identity(space["build"])


def test_names_of_factories_are_usable_and_distinct():
    result = nalm.benchmark(
        [lambda i, o: Base(i, o), lambda i, o: Base(i, o, 2.0), partial(Base, k=2.0), "product-fc"], seeds=1, **FAST
    )
    assert list(result.labels) == ["lambda", "lambda-2", "Base", "product-fc"]
    named = nalm.benchmark({"one": Base, "two": closing_over(2.0), "three": "product-fc"}, seeds=1, **FAST)
    assert named.labels == {"one": "one", "two": "two", "product-fc": "three"}


@pytest.fixture
def registered():
    nalm.register("doubler", Doubler, label="Doubler", summary="Sums.", recipe={"penalty": 0.5}, options={"factor": 2.0})
    yield "doubler"
    nalm.unregister("doubler")


def test_registered_modules_work_wherever_names_do(registered, capsys):
    assert nalm.create("doubler", 3, 2).factor == 2.0
    assert nalm.modules()["doubler"].operations == ("add", "identity")
    result = nalm.benchmark(["doubler", "nau", "doubler+nmu"], operation="add", seeds=1, engine="torch", compiled=False, **FAST)
    assert result.labels == {"doubler": "Doubler", "nau": "NAU", "doubler+nmu": "Doubler-NMU"}
    assert next(iter(result.raw)).recipe.penalty == 0.5
    app(["list", "modules", "--json"], standalone_mode=False)
    assert json.loads(capsys.readouterr().out)["modules"][-1]["name"] == "doubler"
    with pytest.raises(ValueError, match="doubler has no option 'colour'; it takes: factor, device, dtype"):
        nalm.create("doubler", 3, 2, colour=1)


def test_registered_modules_are_told_apart_by_their_code(registered, tmp_path):
    (before,) = nalm.benchmark(registered, operation="add", seeds=1, out=tmp_path, **FAST).runs
    nalm.register("doubler", Doubler, options={"factor": 3.0})
    (after,) = nalm.benchmark(registered, operation="add", seeds=1, out=tmp_path, **FAST).runs
    assert before["interpolation_error"] != after["interpolation_error"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nmu", Doubler), "nmu is a module of nalm; choose another name"),
        *(((name, Doubler), "a module's name has letters, .* and a letter first, got ") for name in ("a+b", "-x", "..", "")),
        (("mine", Base(2, 1)), "got an instance of Base"),
    ],
)
def test_registering_is_refused_in_one_sentence(arguments, message):
    with pytest.raises(ValueError, match=message):
        nalm.register(*arguments)
    with pytest.raises(ValueError, match="nmu is a module of nalm and stays"):
        nalm.unregister("nmu")
    with pytest.raises(ValueError, match="has no 'colour'; it has: label"):
        nalm.register("mine", Base, colour=1)


@pytest.mark.parametrize(
    ("record", "message"),
    [
        *(({key: 5}, f"{key} must be a text, got 5") for key in ("label", "paper", "summary")),
        *(({key: 5}, f"{key} must be a mapping .*, got 5") for key in ("options", "with_more_inputs", "by_operation")),
        *(({key: 5}, f"{key} must be a Recipe, .*, got 5|{key} must be a Recipe or .*, got 5") for key in ("recipe", "robust")),
        ({"recipe": "robust"}, "recipe must be a Recipe or a mapping .*, got 'robust'"),
        ({"by_operation": {"mul": 5}}, "by_operation of mul must be a mapping .*, got 5"),
        ({"by_operation": {"mul": {"colour": 5}}}, "a recipe has no value 'colour'"),
        ({"with_more_inputs": {"iterations": -1}}, "iterations must be at least 0"),
        ({"options": {"colour": 5}}, "mine has no option 'colour'"),
        ({"penalty": "banana"}, "unknown penalty 'banana'"),
        ({"summary": None}, "summary must be a text, got None"),
    ],
)
def test_values_of_a_record_are_checked(record, message):
    with pytest.raises(ValueError, match=message) as caught:
        nalm.register("mine", Base, **record)
    assert "\n" not in str(caught.value)
    assert "mine" not in nalm.modules()


def test_any_mapping_is_a_recipe(registered):
    nalm.register(registered, Doubler, recipe=MappingProxyType({"penalty": 0.25}), robust=MappingProxyType({}))
    assert nalm.modules()[registered].recipe.penalty == 0.25


def test_installed_packages_leave_names_that_are_there(registered, monkeypatch, caplog):
    points = [EntryPoint(name, f"{__name__}:{cls}", registry.GROUP) for name, cls in (("doubler", "Base"), ("x", "Doubler"))]
    monkeypatch.setattr(registry.importlib.metadata, "entry_points", lambda group: [*points, points[1]])
    registry._register_installed.cache_clear()
    assert nalm.modules()[registered].cls is Doubler
    assert [record.message.partition(" (")[0] for record in caplog.records] == [
        f"module {name} of an installed package" for name in ("doubler", "x")
    ]
    nalm.unregister("x")


def test_own_modules_take_no_name_of_the_library():
    for name in ("nmu", "recurrent:frozen", "plain-linear", "nau+nmu"):
        with pytest.raises(ValueError, match=rf"{re.escape(name)} is a module of nalm; give yours another name"):
            nalm.benchmark({name: Base}, seeds=1, **FAST)
    with pytest.raises(ValueError, match="linear is a module of nalm"):
        nalm.benchmark(type("linear", (Base,), {}), seeds=1, **FAST)
    assert list(nalm.benchmark({"mine": type("nmu", (Base,), {})}, seeds=1, **FAST).labels) == ["mine"]


def test_a_broken_installed_package_gives_one_line(monkeypatch, caplog):
    points = [EntryPoint("fine", f"{__name__}:Doubler", registry.GROUP), EntryPoint("broken", "no.such:Class", registry.GROUP)]
    monkeypatch.setattr(registry.importlib.metadata, "entry_points", lambda group: points)
    registry._register_installed.cache_clear()
    assert "fine" in nalm.modules()
    assert "broken" not in nalm.modules()
    (record,) = caplog.records
    assert record.message.startswith(
        "module broken of an installed package (no.such:Class) cannot be used: ModuleNotFoundError"
    )
    nalm.unregister("fine")


def test_bench_takes_a_class_from_a_file(tmp_path):
    source = "from torch import nn\nclass K(nn.Linear):\n    pass\n"
    (tmp_path / "mine.py").write_text(source)
    arguments = ["bench", "single-module", "--operation=add", "--seeds=1", "--iterations=5", "--engine=torch", "--json"]
    command = [*NALM, *arguments, "--range=U[1,2)", "--module", "product-fc,mine:K,mine:L"]
    refused = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert "cannot use module 'mine:L', which should be package.file:Class: AttributeError" in refused.stderr
    command[-1] = "nau,mine:K"
    good = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert [row["module"] for row in json.loads(good.stdout)["rows"]] == ["nau", "K"]


def test_a_module_that_cannot_be_imported_is_refused():
    with pytest.raises(ValueError, match=r"cannot use module 'yours:K', .* No module named 'yours'"):
        nalm.benchmark("yours:K", **FAST)


class Counting(Base):
    """Buffers that count beside a number from a tensor and a branch on data."""

    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x):
        self.count += 1
        if x.mean() > 100:
            return super().forward(x)
        return super().forward(x) * float(self.weight.detach().mean().item() > -1)


class Counted(Base):
    """Only a buffer that counts, which a stack would share in silence."""

    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x):
        self.count += 1
        return super().forward(x) / self.count


def normalised(i, o):
    return nn.Sequential(nn.Linear(i, 4), nn.BatchNorm1d(4), nn.Linear(4, o))


class Branching(Base):
    """A number from a tensor, and a branch on data."""

    def forward(self, x):
        return super().forward(x) * self.weight.detach().mean().item() if x.mean() < 100 else x


class Memory(Base):
    """An attribute of any kind that a step changes."""

    def __init__(self, in_features, out_features, *, kind=dict):
        super().__init__(in_features, out_features)
        self.seen = {dict: {"n": 0}, list: [0], bool: False, torch.Tensor: torch.zeros(())}[kind]

    def forward(self, x):
        if isinstance(self.seen, bool):
            self.seen = not self.seen
            return super().forward(x) * (1 + self.seen)
        self.seen["n" if isinstance(self.seen, dict) else ... if isinstance(self.seen, torch.Tensor) else 0] += 1
        total = self.seen["n"] if isinstance(self.seen, dict) else sum(self.seen) if isinstance(self.seen, list) else self.seen
        return super().forward(x) / total


def dropping(i, o):
    return nn.Sequential(nn.Linear(i, 8), nn.Dropout(0.5), nn.Linear(8, o))


def remembering(kind):
    return wraps(Memory)(partial(Memory, kind=kind))


@pytest.mark.parametrize(
    ("factory", "reason"),
    [
        (Branching, "it calls .item() or branches on data"),
        *((factory, reference.CHANGES) for factory in (Counting, Counted, normalised)),
        *((remembering(kind), reference.CHANGES) for kind in (dict, list, bool, torch.Tensor)),
        (dropping, "it draws random numbers of its own"),
    ],
)
def test_what_cannot_be_stacked_is_trained_run_by_run(factory, reason, caplog):
    together = nalm.benchmark(factory, seeds=3, **{**FAST, "ranges": ["U[-2,2)", "U[1,2)"]})
    assert [run["status"] for run in together.runs] == ["ok"] * 6
    (record,) = caplog.records
    assert record.message.startswith(f"{factory.__name__} is trained run by run, which is slow")
    assert record.message.endswith(f"({reason})")
    (apart,) = nalm.benchmark(factory, seeds=[2], **FAST).runs
    assert apart == together.runs[5]


class Cautious(Doubler):
    """A unit whose runs cannot be stacked."""

    def forward(self, x):
        return super().forward(x) * float(self.weight.detach().mean().item() > -1)


def test_what_cannot_be_stacked_is_snapped_but_not_solved():
    result = nalm.benchmark(Cautious, operation="add", seeds=1, snap=Snap(), **FAST)
    assert result.runs[0]["status"] == "ok"
    with pytest.raises(ValueError, match=r"Cautious cannot be trained with a solver, only by descent: .* \(it calls .item"):
        nalm.benchmark(Cautious, operation="add", seeds=1, snap=Snap(), solver=LevenbergMarquardt(), **FAST)


class Weary(Base):
    """Raises an error while it is tired."""

    tired: Exception | None = None

    def forward(self, x):
        if type(self).tired is not None:
            raise type(self).tired
        return super().forward(x)


def test_an_error_that_passes_is_not_stored(tmp_path, monkeypatch):
    def once():
        return nalm.benchmark([Weary, "product-fc"], seeds=[3, 1], out=tmp_path, **FAST)

    monkeypatch.setattr("nalm.models.identity", lambda *values: "same")
    monkeypatch.setattr(Weary, "tired", RuntimeError("too tired"))
    assert len(once().failures) == 2
    monkeypatch.setattr(Weary, "tired", None)
    result = once()
    assert (result.failures, [run["seed"] for run in result.runs]) == ([], [3, 1] * 2)


@pytest.mark.parametrize("error", [MemoryError(), OSError("no space")])
def test_an_error_that_is_not_the_modules_ends_the_training(error, monkeypatch):
    monkeypatch.setattr(Weary, "tired", error)
    with pytest.raises(type(error)):
        nalm.benchmark([Weary, "product-fc"], seeds=1, **FAST)


def test_an_error_of_the_progress_is_not_the_modules():
    class Broken:
        def start(self, total, what):
            pass

        def advance(self, amount):
            raise KeyError("no bar")

    for module in (Base, Counting):
        with pytest.raises(KeyError, match="no bar"):
            nalm.benchmark([module, "product-fc"], seeds=1, progress=Broken(), **FAST)


def test_run_by_run_gives_the_numbers_of_the_stack(monkeypatch):
    stacked = nalm.benchmark(Base, seeds=2, **FAST).runs
    monkeypatch.setattr("nalm.runner.reference.obstacle", lambda module, job: "asked for")
    alone = nalm.benchmark(Base, seeds=2, **FAST).runs
    for one, other in zip(stacked, alone, strict=True):
        assert one["weights"] == pytest.approx(other["weights"], rel=1e-5)


def test_lazy_layers_are_made_before_training():
    (run,) = nalm.benchmark(lambda i, o: nn.Sequential(nn.LazyLinear(3), nn.ReLU(), nn.LazyLinear(o)), seeds=1, **FAST).runs
    assert (run["status"], len(run["weights"])) == ("ok", 13)


def broken(i, o):
    raise RuntimeError("no such luck")


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (broken, "no run could be trained: broken on mul .*seed 0: RuntimeError: no such luck"),
        (lambda i, o: 3, "it must give an nn.Module, got int"),
        (lambda i, o: nn.ReLU(), "it has no parameters to train"),
        (lambda i, o: nn.Linear(i + 1, o), "mat1 and mat2 shapes cannot be multiplied"),
        (Base(2, 1), "give the class or a function .* got an instance of Base"),
    ],
)
def test_a_benchmark_without_any_run_is_an_error(module, message, caplog):
    with pytest.raises(ValueError, match=message) as caught:
        nalm.benchmark(module, seeds=2, **FAST)
    assert "\n" not in str(caught.value)
    assert not caplog.records


def test_a_failure_beside_others_is_reported(tmp_path):
    result = nalm.benchmark([broken, "product-fc"], seeds=1, **FAST)
    assert [row["runs"] for row in result.rows] == [0, 1]
    assert result.failures == ["broken on mul U[1,2), seed 0: RuntimeError: no such luck"]


def test_unknown_options_are_value_errors():
    for module in ("nmu", Base, "nau+nmu"):
        with pytest.raises(ValueError, match=r"option 'colour'.* take"):
            nalm.benchmark(module, module_options={"colour": 1}, seeds=1, **FAST)


def test_example_of_the_page_prints_what_it_says():
    page = (Path(__file__).parent.parent / "docs" / "own-modules.md").read_text()
    code, output = re.search(r"run this example -->\n```python\n(.*?)```\s+```text\n(.*?)```", page, re.DOTALL).groups()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == output


def test_the_figure_explains_an_empty_sparsity_panel():
    result = nalm.benchmark({"plain": nn.Linear}, operation="add", seeds=1, threshold=1e9, **FAST)
    texts = [text.get_text() for axes in figures.three_panels(result.rows).axes for text in axes.texts]
    assert "no discrete weights: plain" in texts


def test_speed_takes_modules_without_a_kernel(registered, monkeypatch):
    monkeypatch.setattr(speed, "REPEATS", 1)
    monkeypatch.setattr(speed, "plain_loop", partial(speed.plain_loop, seconds=0.01))
    monkeypatch.setattr(speed, "_stacked_step", lambda module, jobs: 1.0)
    doubler, derived = speed.measure([registered, f"{__name__}:Derived"])
    assert (doubler["operation"], derived["operation"]) == ("add", "mul")
    assert doubler["fused_ratio"] is None
    assert derived["torch_ratio"] > 0
    with pytest.raises(ValueError, match=r"runs of .*:Counted cannot be stacked"):
        speed.measure([f"{__name__}:Counted"])


def test_an_installed_class_may_bring_its_record(monkeypatch):
    monkeypatch.setattr(Doubler, "nalm_record", {"label": "Twice"}, raising=False)
    registry._register_entry(EntryPoint("twice", f"{__name__}:Doubler", registry.GROUP))
    assert nalm.modules()["twice"].label == "Twice"
    nalm.unregister("twice")


def test_frozen_parameters_stay_as_they_are():
    class Half(Base):
        def __init__(self, in_features, out_features):
            super().__init__(in_features, out_features)
            self.offset = nn.Parameter(torch.full((1,), 0.25), requires_grad=False)

        def forward(self, x):
            return super().forward(x) + self.offset

    (run,) = nalm.benchmark(Half, seeds=1, **FAST).runs
    assert run["weights"][-1] == 0.25
