"""What engines train: a module with its initial parameters for every seed, from the registry or from a user's function."""

from __future__ import annotations

import inspect
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn
from torch.nn.utils import parameters_to_vector

from nalm.registry import info

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from nalm.registry import ModuleInfo

__all__ = ["Model", "model_of"]


@dataclass(frozen=True)
class Model:
    """A module under a name, built for a number of inputs."""

    name: str
    label: str
    options: tuple[tuple[str, Any], ...]
    build: Callable[[int], nn.Module]
    """The module for a number of inputs and one output."""
    record: ModuleInfo | None = None
    """Its record, if it is a registered module."""

    def starts(self, module: nn.Module, inputs: int, seed: int, attempts: int) -> NDArray[np.float64]:
        """Initial parameters of a seed, shape (attempts, parameters); they follow from the seed alone."""
        rows = []
        if self.record is not None:
            generator = torch.Generator().manual_seed(seed)
            for _ in range(attempts):
                module.reset_parameters(generator)  # type: ignore[operator]
                rows.append(_flat(module))
        else:
            with torch.random.fork_rng():
                torch.manual_seed(seed)
                rows = [_flat(self.build(inputs)) for _ in range(attempts)]
        return np.stack(rows)


def _flat(module: nn.Module) -> NDArray[np.float64]:
    return parameters_to_vector(module.parameters()).detach().double().numpy()


def model_of(module: str | Callable[[int, int], nn.Module], options: Mapping[str, Any] | None = None) -> Model:
    """The model of a registry name, or of a user's function ``(in_features, out_features) -> nn.Module``."""
    given = dict(options or {})
    if isinstance(module, str):
        record = info(module)
        record.build(1, 1, **given)
        return Model(module, record.label, tuple(sorted(given.items())), lambda n: record.build(n, 1, **given), record)
    if not callable(module):
        raise TypeError(
            f"module must be a registry name or a function (in_features, out_features) -> nn.Module, got {module!r}"
        )
    name = getattr(module, "__name__", type(module).__name__)
    return Model(name, name, (("source", _source_mark(module)),), lambda n: module(n, 1, **given))


def _source_mark(module: Callable[..., nn.Module]) -> int:
    """A number that changes with the code of a user's module, so that stored results of other code are not taken for it."""
    try:
        return zlib.crc32(inspect.getsource(module).encode())
    except (OSError, TypeError):
        return id(module)
