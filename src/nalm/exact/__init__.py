"""What the papers compute without training a benchmark: loss surfaces, gradients, moments, exact weights, worked examples.

Each computation takes the settings of its experiment file and gives named numbers, a table and, mostly, a figure. Forward
values are those of the package's own layers; gradients come from autograd.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nalm.exact import derivations, surfaces, weights
from nalm.exact.base import Exact

if TYPE_CHECKING:
    from collections.abc import Callable

    from nalm.exact.base import Settings

__all__ = ["COMPUTATIONS", "Exact"]

COMPUTATIONS: dict[str, Callable[[Settings], Exact]] = {
    function.__name__: function
    for function in (
        surfaces.nac_surfaces,
        surfaces.division_surfaces,
        surfaces.nmu_landscape,
        surfaces.start_grid,
        surfaces.relevance_gate,
        surfaces.nru_gradient,
        derivations.two_layer_gradients,
        derivations.derivations,
        derivations.moment_approximation,
        weights.gold_errors,
        weights.selection_errors,
        weights.mlp_solutions,
        weights.capabilities,
        weights.parameter_counts,
        weights.scaled_nmu,
        weights.nalu_example,
        weights.sign_machine,
        weights.noise_bound,
        weights.penalty_shapes,
        weights.golden_weights,
    )
}
"""Computations by the name that experiment files give."""
