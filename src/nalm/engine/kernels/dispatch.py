"""Which functions compute a kernel: chosen at compile time by the type of its named tuple."""

from __future__ import annotations

from typing import Any, NamedTuple

from numba.extending import overload

__all__ = ["KERNELS", "Kernel", "backward", "forward", "penalise", "project", "pull", "sparsity"]


class Kernel(NamedTuple):
    """The functions of one kernel."""

    forward: Any
    backward: Any
    pull: Any
    penalise: Any
    project: Any
    sparsity: Any
    rows: tuple[int, int] = (6, 8)
    """Rows of scratch over samples: so many for each input, and so many more."""


KERNELS: dict[type, Kernel] = {}
"""The table, filled by the package."""


def forward(k: Any, p: Any, x: Any, noise: Any, training: Any, t: Any, w: Any, y: Any) -> None:
    """Write the outputs of a batch to y. To be called from compiled code, as are the five functions below."""


def backward(k: Any, p: Any, x: Any, noise: Any, training: Any, t: Any, w: Any, y: Any, dy: Any, g: Any) -> None:
    """Add the gradient of the parameters to g, given that of the outputs, which is used up."""


def pull(k: Any, p: Any, x: Any, noise: Any, training: Any, t: Any, w: Any, y: Any, dy: Any, gx: Any) -> None:
    """Write the gradient of the inputs to gx, whose last row is scratch; between forward and backward."""


def penalise(k: Any, p: Any, strength: Any, gate_strength: Any, g: Any) -> None:
    """Add the gradient of the module's penalty to g."""


def project(k: Any, p: Any) -> None:
    """Clip the parameters to their legal box."""


def sparsity(k: Any, p: Any) -> Any:
    """The sparsity error of the parameters."""


@overload(forward, strict=False)
def _forward(k: Any, p: Any, x: Any, noise: Any, training: Any, t: Any, w: Any, y: Any) -> Any:
    chosen = KERNELS[k.instance_class].forward
    return lambda k, p, x, noise, training, t, w, y: chosen(k, p, x, noise, training, t, w, y)


@overload(backward, strict=False)
def _backward(k: Any, p: Any, x: Any, noise: Any, training: Any, t: Any, w: Any, y: Any, dy: Any, g: Any) -> Any:
    chosen = KERNELS[k.instance_class].backward
    return lambda k, p, x, noise, training, t, w, y, dy, g: chosen(k, p, x, noise, training, t, w, y, dy, g)


@overload(pull, strict=False)
def _pull(k: Any, p: Any, x: Any, noise: Any, training: Any, t: Any, w: Any, y: Any, dy: Any, gx: Any) -> Any:
    chosen = KERNELS[k.instance_class].pull
    return lambda k, p, x, noise, training, t, w, y, dy, gx: chosen(k, p, x, noise, training, t, w, y, dy, gx)


@overload(penalise, strict=False)
def _penalise(k: Any, p: Any, strength: Any, gate_strength: Any, g: Any) -> Any:
    chosen = KERNELS[k.instance_class].penalise
    return lambda k, p, strength, gate_strength, g: chosen(k, p, strength, gate_strength, g)


@overload(project, strict=False)
def _project(k: Any, p: Any) -> Any:
    chosen = KERNELS[k.instance_class].project
    return lambda k, p: chosen(k, p)


@overload(sparsity, strict=False)
def _sparsity(k: Any, p: Any) -> Any:
    chosen = KERNELS[k.instance_class].sparsity
    return lambda k, p: chosen(k, p)
