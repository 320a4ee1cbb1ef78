"""One record per module: what `nalm list modules`, the docs table and the contract tests are made from."""

from __future__ import annotations

import difflib
import importlib.metadata
import inspect
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from operator import attrgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from torch import nn

from nalm import layers
from nalm.checks import known, like, of_kind
from nalm.options import LevenbergMarquardt, LogMagnitude, Restarts, Snap
from nalm.specs import Recipe

if TYPE_CHECKING:
    from collections.abc import Callable

    from nalm.layers import Unit

__all__ = [
    "PAPERS",
    "ModuleInfo",
    "check_factory",
    "check_options",
    "create",
    "imported",
    "info",
    "keywords",
    "modules",
    "register",
    "unregister",
]

log = logging.getLogger(__name__)

GROUP = "nalm.modules"
"""Entry points by which installed packages register modules: name = class, whose `nalm_record`, if any, is its record."""

PAPERS = {
    "trask2018": "Trask et al., Neural Arithmetic Logic Units, NeurIPS 2018",
    "rana2019": "Rana et al., Exploring Numerical Calculations with CalcNet, ICTAI 2019",
    "reimann2019": "Reimann and Schwung, Neural Logic Rule Layers, 2019",
    "faber2020": "Faber and Wattenhofer, Neural Status Registers, 2020",
    "heim2020": "Heim, Pevný and Šmídl, Neural Power Units, NeurIPS 2020",
    "madsen2020": "Madsen and Johansen, Neural Arithmetic Units, ICLR 2020",
    "schloer2020": "Schlör, Ring and Hotho, iNALU: Improved Neural Arithmetic Logic Unit, Frontiers in AI 2020",
    "mistry2022division": "Mistry, Farrahi and Hare, Exploring the Learning Mechanisms of Neural Division Modules, TMLR 2022",
    "mistry2022snmu": "Mistry, Farrahi and Hare, Improving the Robustness of Neural Multiplication Units with Reversible "
    "Stochasticity, 2022",
    "nalm": "this library",
    "mistry2023": "Mistry, Neural Arithmetic Logic Modules, PhD thesis, University of Southampton, 2023",
}
"""Where the modules come from, by the key that records use."""


PENALTIES = ("discrete", "open-gates", "none")
"""What penalties measure."""

LONGER: dict[str, Any] = {"iterations": 100_000, "penalty_start": 50_000, "penalty_end": 75_000}
"""The papers train twice as long where there are irrelevant inputs."""


def keywords(cls: type) -> dict[str, Any]:
    """The options of a layer's constructor with their defaults."""
    return {name: p.default for name, p in inspect.signature(cls).parameters.items() if p.kind is p.KEYWORD_ONLY}


@dataclass(frozen=True)
class ModuleInfo:
    """What there is to know about a module before building it."""

    name: str
    """Name in the registry."""
    label: str
    """How tables and figures print it."""
    cls: type[Unit]
    """The layer class."""
    paper: str
    """Key into `PAPERS`."""
    summary: str
    """What it does, in one line."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Constructor options that make this module out of its class."""
    penalty: str = "discrete"
    """What its penalty measures: distance to `discrete` weights, number of `open-gates`, or `none`."""
    fused: bool = False
    """Whether the fused engine has a kernel for it."""
    recipe: Recipe = field(default_factory=Recipe)
    """How its paper trains it on two inputs."""
    with_more_inputs: Mapping[str, Any] = field(default_factory=lambda: LONGER)
    """What changes in the recipe when there are irrelevant inputs."""
    by_operation: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """What changes in the recipe for an operation."""
    robust: Recipe | None = None
    """How it is trained reliably, beyond its paper; none where no recipe was found that helps."""
    own: bool = False
    """Whether it was registered from outside the library; its class may then be any factory of modules."""

    def __post_init__(self) -> None:
        """Check the kind of every value."""
        for name in ("label", "paper", "summary"):
            of_kind(name, getattr(self, name), str, "a text")
        for name in ("options", "with_more_inputs", "by_operation"):
            of_kind(name, getattr(self, name), Mapping, "a mapping of names to values")
        for operation, changes in self.by_operation.items():
            of_kind(f"by_operation of {operation}", changes, Mapping, "a mapping of names to values")
        of_kind("recipe", self.recipe, Recipe, "a Recipe or a mapping of what differs from the default one")
        if self.robust is not None:
            of_kind("robust", self.robust, Recipe, "a Recipe, a mapping of what differs from the default one, or None")
        known("penalty", self.penalty, PENALTIES)

    def build(self, in_features: int, out_features: int, **options: Any) -> Unit:
        """Build the layer; `options` are those of the class and go before the record's own."""
        check_options(self.name, self.cls, options)
        if not self.own:
            options = {name: like(name, value, keywords(self.cls)[name]) for name, value in options.items()}
        return self.cls(in_features, out_features, **{**self.options, **options})

    @cached_property
    def allowed(self) -> tuple[str, ...]:
        """Names of the constructor's options."""
        return _options_of(self.cls)

    def recipe_for(self, operation: str, inputs: int) -> Recipe:
        """The published recipe for an operation and a number of inputs."""
        changes = {**self.by_operation.get(operation, {}), **(self.with_more_inputs if inputs > 2 else {})}
        return self.recipe.replace(**changes)

    @cached_property
    def operations(self) -> tuple[str, ...]:
        """Operations of two inputs that the module can express exactly."""
        if not self.own:
            return self.build(2, 1).operations
        return tuple(getattr(self.cls, "operations", ()))

    @property
    def domain(self) -> str:
        """Inputs for which the operations are exact: real, nonzero, positive, boolean or integer."""
        return str(getattr(self.cls, "domain", "real"))


RULES = Recipe(iterations=5_000, log_interval=100, learning_rate=0.03, penalty=0.1, penalty_start=1_500, penalty_end=3_000)
"""How rules are learned, in one layer or two; found by experiment, since the paper does not say (docs/logic.md)."""
STATUS = Recipe(iterations=10_000, log_interval=100, learning_rate=0.05, penalty=1.0, penalty_start=1_000, penalty_end=2_000)
"""How comparisons are learned, found likewise: the penalty makes selections sharp, or large irrelevant numbers leak in."""
SUMS = Recipe(solver=LevenbergMarquardt(), snap=Snap(), restarts=Restarts(start="selecting"))
"""Robust recipe of sums: squared errors have one minimum there."""
PRODUCTS = SUMS.replace(loss=LogMagnitude())
"""Robust recipe of products of powers: so have squared errors of log magnitudes."""
ROBUST = {
    **dict.fromkeys(("nac-add", "nau"), SUMS),
    **dict.fromkeys(("nac-mul", "nac-mul-sigmoid", "nac-mul-nmu", "nmu", "snmu", "snmu-batch"), PRODUCTS),
    **dict.fromkeys(("naive-npu", "npu", "npu-mod", "real-npu", "real-npu-mod"), PRODUCTS),
    **dict.fromkeys(("nru", "nru-sep-sign", "nmru", "nmru-no-sign", "nmru-gated", "sum-or-product"), PRODUCTS),
}
"""Robust recipes by module."""


def _records() -> dict[str, ModuleInfo]:
    trask, madsen, heim, schloer = "trask2018", "madsen2020", "heim2020", "schloer2020"
    division, snmu = "mistry2022division", "mistry2022snmu"
    modified = {"bounded": True, "clip_gate": True, "constrained_start": True, "skip_zero_weight": True}
    info, discrete = ModuleInfo, Recipe(penalty=10.0)
    inalu = Recipe(penalty=0.05, penalty_below=1.0, penalty_start=10_000, clip_value=0.1, reinitialise=True)
    power = Recipe(learning_rate=5e-3, norm=1)
    modified_power = replace(power, penalty=1.0, penalty_start=40_000, penalty_end=50_000)
    power_by_operation = {"mul": {"norm_start": 1e-7, "norm_end": 1e-5}}
    nru = replace(discrete, learning_rate=1.0)
    slower = {**LONGER, "learning_rate": 1e-3}
    nmru = replace(discrete, learning_rate=1e-2, clip_norm=1.0)
    gated = replace(nmru, gate_penalty=1.0)
    stg = Recipe(penalty=0.05, penalty_start=-1, penalty_end=0)
    short = {"iterations": 50_000}
    half: dict[str, Any] = {"fused": True, "recipe": replace(inalu, reinitialise=False), "with_more_inputs": short}
    sums = "Sum; linear weights clipped to [-1, 1]."
    records = [
        info("nac-add", "NAC+", layers.NACAdd, trask, "Sum; weights tanh times sigmoid.", fused=True),
        info("nac-mul", "NAC•", layers.NACMul, trask, "Product of powers in log space; loses signs.", fused=True),
        info(
            "nac-mul-sigmoid",
            "NAC•,σ",
            layers.NACMulSigmoid,
            madsen,
            "NAC• with sigmoid exponents.",
            fused=True,
        ),
        info(
            "nac-mul-nmu",
            "NAC•,NMU",
            layers.NACMulNMU,
            madsen,
            "NAC• with NMU weights.",
            fused=True,
            recipe=discrete,
        ),
        info("nalu", "NALU", layers.NALU, trask, "Gate between sum and product of one shared weight.", fused=True),
        info("nalu-separate", "NALU (separate)", layers.NALUSeparate, madsen, "NALU with a weight per path.", fused=True),
        info(
            "inalu",
            "iNALU",
            layers.iNALU,
            schloer,
            "NALU with signs, separate weights, free gate.",
            fused=True,
            recipe=inalu,
            with_more_inputs=short,
        ),
        info("inac", "iNAC", layers.iNAC, schloer, "Additive half of the iNALU.", **half),
        info("imnac", "iMNAC", layers.iMNAC, schloer, "Multiplicative half of the iNALU.", **half),
        info("gnalu", "G-NALU", layers.GNALU, "rana2019", "NALU to the base of the golden ratio.", fused=True),
        info("nau", "NAU", layers.NAU, madsen, sums, fused=True, recipe=Recipe(penalty=0.01)),
        info(
            "nmu",
            "NMU",
            layers.NMU,
            madsen,
            "Product of selected inputs; weights in [0, 1].",
            fused=True,
            recipe=discrete,
        ),
        info(
            "gated-nau-nmu",
            "Gated NAU/NMU",
            layers.GatedNAUNMU,
            madsen,
            "NAU and NMU behind the NALU's gate.",
            fused=True,
            recipe=discrete,
        ),
        info(
            "snmu",
            "sNMU",
            layers.sNMU,
            snmu,
            "NMU with reversible noise U(1, 5) in training.",
            fused=True,
            recipe=discrete,
        ),
        info(
            "snmu-batch",
            "sNMU (batch)",
            layers.sNMUBatch,
            snmu,
            "sNMU; noise by the batch's spread.",
            fused=True,
            recipe=discrete,
        ),
        info(
            "stgnmu",
            "stgNMU",
            layers.stgNMU,
            snmu,
            "NMU with stochastic gates.",
            penalty="open-gates",
            fused=True,
            recipe=stg,
            with_more_inputs={"iterations": 100_000},
        ),
        info(
            "naive-npu",
            "NaiveNPU",
            layers.NaiveNPU,
            heim,
            "Complex powers, without a gate.",
            fused=True,
            recipe=power,
        ),
        info(
            "npu",
            "NPU",
            layers.NPU,
            heim,
            "Complex powers of gated inputs.",
            fused=True,
            recipe=power,
            by_operation=power_by_operation,
        ),
        info(
            "npu-mod",
            "NPU (mod.)",
            layers.NPU,
            division,
            "NPU, clipped and discrete.",
            modified,
            fused=True,
            recipe=modified_power,
        ),
        info(
            "real-npu",
            "Real NPU",
            layers.RealNPU,
            heim,
            "Real powers of gated inputs, with sign.",
            fused=True,
            recipe=power,
            by_operation=power_by_operation,
        ),
        info(
            "real-npu-mod",
            "Real NPU (mod.)",
            layers.RealNPU,
            division,
            "Real NPU, clipped and discrete.",
            modified,
            fused=True,
            recipe=modified_power,
        ),
        info(
            "nru",
            "NRU",
            layers.NRU,
            division,
            "Product of inputs and reciprocals; exponents in [-1, 1].",
            fused=True,
            recipe=nru,
            with_more_inputs=slower,
        ),
        info(
            "nru-sep-sign",
            "NRU (sep. sign)",
            layers.NRUSepSign,
            division,
            "NRU with magnitude and sign apart.",
            fused=True,
            recipe=nru,
            with_more_inputs=slower,
        ),
        info(
            "nmru",
            "NMRU",
            layers.NMRU,
            division,
            "NMU over inputs and reciprocals, with sign.",
            fused=True,
            recipe=nmru,
        ),
        info(
            "nmru-no-sign",
            "NMRU (no sign)",
            layers.NMRUNoSign,
            division,
            "NMRU without the sign path.",
            fused=True,
            recipe=replace(nmru, clip_norm=0.0),
        ),
        info(
            "nmru-gated",
            "NMRU (gated)",
            layers.NMRUGated,
            division,
            "NMRU behind gates.",
            fused=True,
            recipe=gated,
        ),
        info(
            "nlrl",
            "NLRL",
            layers.NLRL,
            "reimann2019",
            "Boolean rules: AND, OR, NOT of selected inputs.",
            fused=True,
            recipe=RULES,
            with_more_inputs={},
        ),
        info(
            "nsr",
            "NSR",
            layers.NSR,
            "faber2020",
            "Comparison of two selected inputs.",
            fused=True,
            recipe=STATUS,
            with_more_inputs={},
        ),
        info(
            "sum-or-product",
            "Sum or product",
            layers.SumOrProduct,
            "nalm",
            "Sum or product of powers, by a hard choice.",
            fused=True,
            recipe=discrete,
        ),
        info("linear", "Linear", layers.Linear, madsen, "Linear layer (baseline).", penalty="none", fused=True),
        info("relu-mlp", "ReLU MLP", layers.ReLUMLP, madsen, "ReLU network (baseline).", penalty="none", fused=True),
        info("relu6-mlp", "ReLU6 MLP", layers.ReLU6MLP, madsen, "ReLU6 network (baseline).", penalty="none", fused=True),
        info("product-fc", "FC product", layers.ProductFC, snmu, "Product of all inputs (baseline).", penalty="none"),
        info(
            "quadratic", "Quadratic", layers.Quadratic, "mistry2023", "Quadratic layer (baseline).", penalty="none", fused=True
        ),
    ]
    by_name = {record.name: replace(record, robust=ROBUST.get(record.name)) for record in records}
    if len(by_name) != len(records):
        raise ValueError("two records share a name")
    return by_name


_MODULES = _records()


OWN_FIELDS = (*("label", "paper", "summary", "options", "penalty", "recipe", "with_more_inputs", "by_operation", "robust"),)
"""What a record from outside may say."""


def modules() -> Mapping[str, ModuleInfo]:
    """The registry: name -> record, in the order of the papers, then those of installed packages and your own."""
    _register_installed()
    return MappingProxyType(_MODULES)


def info(name: str) -> ModuleInfo:
    """The record of a module; ValueError with the nearest names for an unknown one."""
    if name not in _MODULES:
        _register_installed()
    record = _MODULES.get(name)
    if record is None:
        near = difflib.get_close_matches(str(name).lower(), _MODULES, n=3)
        hint = f" Did you mean {' or '.join(near)}?" if near else ""
        raise ValueError(f"unknown module {name!r}.{hint} Known: {', '.join(_MODULES)}")
    return record


def register(name: str, layer: Callable[..., nn.Module], **record: Any) -> None:
    """Make a module of your own known under a name, wherever registry names work, until this process ends.

    Args:
        name: a letter, then letters, digits, `-`, `_` and `.`; a name of your own that was registered before is replaced.
        layer: class or function ``(in_features, out_features, **options) -> nn.Module``.
        record: what lists and training use: `label`, `summary`, `paper`, `options` (of the constructor), `recipe` (a `Recipe`
            or a mapping of what differs from the default one), `with_more_inputs`, `by_operation`, `penalty`, `robust`.
    """
    if not isinstance(name, str) or not re.fullmatch(r"[^\W\d_][\w.-]*", name):
        raise ValueError(f"a module's name has letters, digits, '-', '_' and '.' only, and a letter first, got {name!r}")
    if name in ("plain-linear", "recurrent", "frozen") or (name in _MODULES and not _MODULES[name].own):
        raise ValueError(f"{name} is a module of nalm; choose another name for your own")
    check_factory(layer)
    for key in record:
        if key not in OWN_FIELDS:
            raise ValueError(f"a record of a module has no {key!r}; it has: {', '.join(OWN_FIELDS)}")
    values = {"label": name, "paper": "", "summary": "", "with_more_inputs": {}, **record}
    for key in ("recipe", "robust"):
        if isinstance(values.get(key), Mapping):
            values[key] = Recipe().replace(**values[key])
    cls: Any = layer
    made = ModuleInfo(name=name, cls=cls, own=True, **values)
    check_options(name, layer, made.options)
    for operation in ("", *made.by_operation):
        made.recipe_for(operation, 3)  # refuses what a recipe cannot be
    _MODULES[name] = made


def unregister(name: str) -> None:
    """Forget a module that was registered from outside."""
    if not info(name).own:
        raise ValueError(f"{name} is a module of nalm and stays; only modules from outside can be unregistered")
    del _MODULES[name]


@cache
def _register_installed() -> None:
    for point in importlib.metadata.entry_points(group=GROUP):
        _register_entry(point)


def _register_entry(point: importlib.metadata.EntryPoint) -> None:
    """Register what an installed package offers; where it is broken, one line says so and the rest goes on."""
    if point.name in _MODULES:
        log.warning("module %s of an installed package (%s) is left out: there is one of this name", point.name, point.value)
        return
    try:
        layer = point.load()
        register(point.name, layer, **getattr(layer, "nalm_record", {}))
    except Exception as error:
        log.warning("module %s of an installed package (%s) cannot be used: %s", point.name, point.value, one_line(error))


def imported(path: str) -> Any:
    """The class or function at `package.file:Name`; ValueError where there is none."""
    home, _, name = path.partition(":")
    home = home.removesuffix(".py")
    try:
        return attrgetter(name)(importlib.import_module(home))
    except Exception as error:
        raise ValueError(f"cannot use module {path!r}, which should be package.file:Class: {one_line(error)}") from error


def check_factory(module: Any) -> None:
    """Refuse what does not build modules, in one sentence."""
    if isinstance(module, nn.Module):
        name = type(module).__name__
        raise ValueError(
            f"every run needs a module of its own, so give the class or a function (in_features, out_features) -> nn.Module; "
            f"got an instance of {name}"
        )
    if not callable(module):
        raise TypeError(
            f"module must be a registry name or a function (in_features, out_features) -> nn.Module, got {module!r}"
        )


def check_options(name: str, factory: Callable[..., Any], options: Mapping[str, Any]) -> None:
    """ValueError for an option that a class or function does not take."""
    takes_all = options and any(p.kind is p.VAR_KEYWORD for p in inspect.signature(factory).parameters.values())
    for option in options:
        if not takes_all and option not in _options_of(factory):
            raise ValueError(f"{name} has no option {option!r}; it takes: {', '.join(_options_of(factory)) or 'none'}")


def _options_of(factory: Callable[..., Any]) -> tuple[str, ...]:
    """Names of what a factory takes beyond inputs and outputs."""
    taken = list(inspect.signature(factory).parameters.values())[2:]
    return tuple(p.name for p in taken if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD))


def one_line(error: BaseException) -> str:
    """Kind and first sentence of an error, in one line of bounded length."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:200]}{'...' if len(text) > 200 else ''}"


def create(name: str, in_features: int, out_features: int, **options: Any) -> Unit:
    """Build a layer by its registry name; `options` are those of the layer's class.

    >>> create("nmu", 2, 1)
    NMU(in_features=2, out_features=1)
    """
    return info(name).build(in_features, out_features, **options)
