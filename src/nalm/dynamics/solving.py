"""Following a system through time with torchdiffeq's adaptive solver."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray
    from torch import Tensor, nn

__all__ = ["BlowUpError", "integrate"]

MOST_STEPS = 2_000
"""Steps between two times after which the solver gives up."""


class BlowUpError(ValueError):
    """A solution that cannot be followed: it grows without bound, or its slope has no value."""


def integrate(module: nn.Module, start: ArrayLike, times: ArrayLike, *, tolerance: float = 1e-9) -> NDArray[np.float64]:
    """The solution of ``du/dt = module(u)`` from `start` at the first of the times, (times, states), by Dormand and Prince.

    Args:
        module: (..., states) -> (..., states), in double precision.
        start: state at the first time.
        times: ascending or descending.
        tolerance: relative error a step; the absolute one is so many of the largest start value.

    Raises:
        BlowUpError: where the solution grows without bound, with the time that it reached.
    """
    import torchdiffeq

    first = torch.from_numpy(np.array(start, float))  # a copy: what is handed in may be read-only
    clock = torch.from_numpy(np.array(times, float))
    reached = float(clock[0])

    def slope(time: Tensor, state: Tensor) -> Any:
        nonlocal reached
        reached = float(time)
        return module(state)

    size = max(float(first.abs().max()), 1e-3)
    options = {"max_num_steps": MOST_STEPS}
    try:
        with torch.no_grad():
            path = torchdiffeq.odeint(
                slope, first, clock, method="dopri5", rtol=tolerance, atol=tolerance * size, options=options
            )
    except AssertionError as error:
        raise BlowUpError(f"the solution cannot be followed beyond t = {reached:.6g} ({error})") from None
    found: NDArray[np.float64] = path.numpy()
    if not np.isfinite(found).all():
        last = int(np.flatnonzero(np.isfinite(found).all(1))[-1])
        raise BlowUpError(f"the solution grows without bound after t = {float(clock[last]):.6g}")
    return found
