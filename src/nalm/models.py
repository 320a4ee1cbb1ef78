"""What engines train: a module or a network with its initial parameters for every seed, registered or a user's own."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn
from torch.nn.parameter import is_lazy
from torch.nn.utils import parameters_to_vector

from nalm.checks import like
from nalm.identity import UntoldError, identity
from nalm.layers import FrozenSelector, Gated, RecurrentSelector, Stack, Unit, select_all_
from nalm.registry import SUMS, check_factory, check_options, imported, info, keywords
from nalm.specs import Recipe

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from nalm.registry import ModuleInfo

__all__ = ["Model", "check_own_name", "model_of"]

PARTS: dict[str, tuple[str, dict[str, Any]]] = {"plain-linear": ("linear", {"bias": False})}
"""Layers of stacks that are a registered module with options."""

RECIPES = ("published", "robust")
"""Names of recipes."""

TWO_LAYERS = {"arithmetic-dataset": 5_000_000, "function4": 200_000, "large-scale": 100_000}
"""Iterations that the papers train on the tasks for two layers."""

MADE_FOR = {"logic": "nlrl", "comparison": "nsr"}
"""The module that a task is for: every model is trained on it as that one."""

TWO_STEP_RECIPE = Recipe(
    iterations=200_000, optimiser="sgd", penalty=10.0, gate_penalty=5.0, penalty_start=100_000, penalty_end=150_000
)
"""How the thesis trains every network on the two-step task."""


@dataclass(frozen=True)
class Model:
    """A module under a name, built for a number of inputs."""

    name: str
    label: str
    options: tuple[tuple[str, Any], ...]
    build: Callable[[int], nn.Module]
    """The module for a number of inputs and one output."""
    parts: tuple[ModuleInfo, ...] = ()
    """Records of its layers; none for a user's function."""
    start: str = ""
    """Rule of the initial parameters, if it is not the layers' own: `heim`, that of the NPU paper's large-scale task."""
    untold: str = ""
    """Why it cannot be identified, in which case it has an identity that never comes again."""
    frozen: bool = False
    """Whether it is `recurrent:frozen`, the one network of this library that has no layers."""

    @property
    def fused(self) -> bool:
        """Whether its layers have kernels."""
        return self.registered and all(part.fused for part in self.parts)

    @property
    def registered(self) -> bool:
        """Whether it is made of this library's layers alone."""
        return self.frozen or (bool(self.parts) and not any(part.own for part in self.parts))

    def recipe_for(self, task: str, operation: str, inputs: int, name: str = "published") -> Recipe:
        """How the papers train it on a task, the default recipe for what they do not; or the `robust` recipe, if it has one."""
        if name == "robust":
            return self._robust()
        if name != "published":
            raise ValueError(f"unknown recipe {name!r}; there are: {', '.join(RECIPES)}")
        if task in MADE_FOR:
            return info(MADE_FOR[task]).recipe_for(operation, inputs)
        if task == "two-step":
            return TWO_STEP_RECIPE
        if task in TWO_LAYERS:
            return _two_layer_recipe(self.parts, TWO_LAYERS[task])
        if len(self.parts) == 1:
            return self.parts[0].recipe_for(operation, inputs)
        return Recipe()

    def _robust(self) -> Recipe:
        recipes = [part.robust for part in self.parts]
        if not recipes or None in recipes:
            raise ValueError(f"{self.name} has no robust recipe; `nalm list modules --json` says which modules have one")
        if len(recipes) > 2 or "/" in self.name or ":" in self.name:
            raise ValueError(f"there is no robust recipe for the network {self.name}, only for one layer or two")
        return SUMS if len(recipes) == 2 else recipes[0] or SUMS

    def starts(self, module: nn.Module, inputs: int, seed: int, attempts: int, rule: str = "own") -> NDArray[np.float64]:
        """Initial parameters of a seed, shape (attempts, parameters); they follow from the seed alone, and from the rule."""
        rows = []
        if self.registered:
            generator = torch.Generator().manual_seed(seed)
            for attempt in range(attempts):
                module.reset_parameters(generator)  # type: ignore[operator]
                if self.start:
                    _reset_small_(module, generator)
                if rule == "selecting" and attempt % 2 == 0:
                    select_all_(module, generator)
                rows.append(_flat(module))
        else:
            with torch.random.fork_rng():
                torch.manual_seed(seed)
                rows = [_flat(self.build(inputs)) for _ in range(attempts)]
        return np.stack(rows)


@torch.no_grad()
def _reset_small_(module: nn.Module, generator: torch.Generator) -> None:
    """Initial values of the NPU paper's large-scale code: matrices U(0, 0.1), imaginary parts 0, gates 1 (Real NPU: 0.5)."""
    gate = 1.0 if any("imaginary" in name for name, _ in module.named_parameters()) else 0.5
    for name, p in module.named_parameters():
        last = name.rpartition(".")[2]
        if last in ("imaginary", "bias"):
            p.zero_()
        elif last == "gate":
            p.fill_(gate)
        else:
            p.uniform_(0, 0.1, generator=generator)


def _two_layer_recipe(parts: tuple[ModuleInfo, ...], iterations: int) -> Recipe:
    """The recipe of Madsen and Johansen: one strength for both layers, late for products, early and weak for sums.

    A second layer that they do not have keeps the learning rate and the clipping of its own recipe.
    """
    recipe = replace(parts[-1].recipe, iterations=iterations, penalty=0.0) if parts else Recipe(iterations=iterations)
    strengths = [part.recipe.penalty for part in parts if part.recipe.penalty_below is None]
    if strengths and max(strengths) >= 1:
        return replace(recipe, penalty=10.0, penalty_start=1_000_000, penalty_end=2_000_000)
    if strengths and max(strengths) > 0:
        return replace(recipe, penalty=max(strengths), penalty_start=5_000, penalty_end=50_000)
    return recipe


def _flat(module: nn.Module) -> NDArray[np.float64]:
    return parameters_to_vector(module.parameters()).detach().double().numpy()


def model_of(
    module: str | Callable[[int, int], nn.Module],
    options: Mapping[str, Any] | None = None,
    *,
    hidden: int = 2,
    start: str = "",
) -> Model:
    """The model of a registry name, a network of them, `package.file:Class`, or a function (inputs, outputs) -> nn.Module.

    Networks: `nau+nmu` (layers one behind the other, any number), `nau/nmu` (two layers mixed by a gate, which may stand in
    place of a layer), `recurrent:nau:nmu` and `recurrent:frozen` (two steps with a scratchpad). Options go to each layer that
    knows them; `hidden` is the number of outputs of all layers but the last.
    """
    given = {name: tuple(value) if isinstance(value, list) else value for name, value in (options or {}).items()}
    if isinstance(module, str) and ":" in module and not module.startswith("recurrent:"):
        module = imported(module)
    if not isinstance(module, str):
        return _own_model(module, given)
    network = _Network(module, given, hidden)
    own = [(record.cls, dict(record.options)) for record in network.records if record.own]
    if own:
        kept, untold = _identified(own, given)
        return Model(module, network.label, kept, lambda n: _ready(network.build(n), n), network.records, start, untold)
    network.build(2)
    kept = tuple(sorted(given.items()))
    return Model(module, network.label, kept, network.build, network.records, start, frozen=network.frozen)


def check_own_name(name: str) -> None:
    """ValueError for a name by which rows would be taken for those of a module or network of this library."""
    try:
        network = _Network(name, {}, 2)
    except ValueError:
        return
    if network.frozen or not all(record.own for record in network.records):
        raise ValueError(f"{name} is a module of nalm; give yours another name, as in {{'my {name}': ...}}")


def _own_model(factory: Callable[..., nn.Module], options: Mapping[str, Any]) -> Model:
    check_factory(factory)
    name = _name_of(factory)
    check_options(name, factory, options)
    kept, untold = _identified(factory, options)
    return Model(name, name, kept, lambda n: _ready(factory(n, 1, **options), n), untold=untold)


def _name_of(factory: Any) -> str:
    if isinstance(factory, partial):
        return _name_of(factory.func)
    return str(getattr(factory, "__name__", type(factory).__name__)).strip("<>")


def _identified(made_from: Any, options: Mapping[str, Any]) -> tuple[tuple[tuple[str, Any], ...], str]:
    """What tells a user's module from all others, as options of a cell; and why that is not known, if so."""
    try:
        return (("identity", identity(made_from, sorted(options.items()))),), ""
    except UntoldError as error:
        return (("identity", f"untold {uuid.uuid4().hex}"),), " ".join(str(error).split())


def _ready(module: Any, inputs: int) -> nn.Module:
    """A user's module, with lazy parameters made; refused where it cannot be trained at all."""
    if not isinstance(module, nn.Module):
        raise TypeError(f"it must give an nn.Module, got {type(module).__name__}")
    if any(is_lazy(value) for value in (*module.parameters(), *module.buffers())):
        with torch.no_grad():
            module.eval()(torch.ones(2, inputs))
        module.train()
    if not any(value.requires_grad for value in module.parameters()):
        raise ValueError("it has no parameters to train")
    return module


class _Network:
    """A network by its name."""

    def __init__(self, name: str, options: Mapping[str, Any], hidden: int) -> None:
        self.name, self.options, self.hidden = name, dict(options), hidden
        self.recurrent = name.startswith("recurrent:")
        parts = name.removeprefix("recurrent:").split(":" if self.recurrent else "+")
        self.frozen = self.recurrent and parts == ["frozen"]
        self.layers = [] if self.frozen else [part.split("/") for part in parts]
        for part in self.layers:
            if len(part) > 2 or (self.recurrent and len(part) > 1):
                raise ValueError(f"a gate stands between two layers and not in a recurrent network, got {name!r}")
        self.records = tuple(info(PARTS.get(one, (one, {}))[0]) for part in self.layers for one in part)
        taken = [keywords(FrozenSelector)] if self.frozen else [record.allowed for record in self.records]
        known = {option for names in taken for option in names} - {"device", "dtype"}
        for option in options if len(self.records) != 1 or not self.records[0].own else ():
            if option not in known:
                raise ValueError(f"{name} has no option {option!r}; it takes: {', '.join(sorted(known)) or 'none'}")

    @property
    def label(self) -> str:
        """How tables and figures print it."""
        labels = [";".join(info(PARTS.get(one, (one, {}))[0]).label for one in part) for part in self.layers]
        return f"recurrent {', '.join(labels) or 'frozen'}" if self.recurrent else "-".join(labels)

    def build(self, inputs: int) -> nn.Module:
        """The network for a number of inputs and one output."""
        if self.frozen:
            return FrozenSelector(inputs, **{k: like(k, v, keywords(FrozenSelector)[k]) for k, v in self.options.items()})
        if self.recurrent:
            return RecurrentSelector([self._layer(part[0], inputs + 2, 1) for part in self.layers])
        if len(self.layers) == 1:
            only: nn.Module = self._part(self.layers[0], inputs, 1)
            return only
        sizes = [inputs, *[self.hidden] * (len(self.layers) - 1), 1]
        return Stack(*(self._part(part, a, b) for part, a, b in zip(self.layers, sizes, sizes[1:], strict=False)))

    def _part(self, names: list[str], inputs: int, outputs: int) -> Any:
        layers = [self._layer(name, inputs, outputs) for name in names]
        return Gated(*layers) if len(layers) == 2 else layers[0]

    def _layer(self, name: str, inputs: int, outputs: int) -> Any:
        registered, preset = PARTS.get(name, (name, {}))
        record = info(registered)
        own = {key: value for key, value in self.options.items() if key in record.allowed or len(self.records) == 1}
        layer: Any = record.build(inputs, outputs, **preset, **own)
        if record.own and len(self.records) > 1 and not isinstance(layer, Unit):
            raise ValueError(f"only a nalm.Unit can be part of a network, which {name} is not")
        return layer
