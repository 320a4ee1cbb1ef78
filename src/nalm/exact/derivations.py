"""Derived gradients, variances and moments beside autograd and samples."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from matplotlib.colors import Normalize
from torch import Tensor

from nalm import layers
from nalm.exact.base import (
    DOUBLE,
    Exact,
    Settings,
    draw_curves,
    draw_heat_maps,
    draw_uniform,
    largest_gap,
    plain_table,
)
from nalm.layers.base import nac_weight
from nalm.layers.multiplicative import LOG_EPSILON

if TYPE_CHECKING:
    from collections.abc import Callable


__all__ = [
    "backward_variance",
    "derivations",
    "forward_variance",
    "moment_approximation",
    "nac_weight_variance",
    "two_layer_gradients",
]


def two_layer_gradients(settings: Settings) -> Exact:
    """Derivatives of the loss of NAU-NMU and NAU-sNMU by every weight: the derived formulas against autograd."""
    inputs, hidden = settings["inputs"], settings["hidden"]
    uniform = partial(draw_uniform, torch.Generator().manual_seed(settings["seed"]))
    x, target, drawn = uniform(1, 2, inputs), uniform(1, 2, 1), uniform(*settings["noise"], hidden)
    first, second = uniform(-1, 1, hidden, inputs).requires_grad_(True), uniform(0, 1, 1, hidden).requires_grad_(True)
    values: dict[str, float] = {}
    for name, noise in (("nmu", torch.ones_like(drawn)), ("snmu", drawn)):
        z = layers.nau(x, first)
        y = layers.nmu(z, second) if name == "nmu" else layers.snmu(z, second, noise)
        by_first, by_second = torch.autograd.grad((target - y).square().sum(), (first, second))
        with torch.no_grad():
            w, residual = second[0], -2 * (target - y)
            noisy, quiet = w * noise * z + 1 - w, w * noise + 1 - w
            share, others = noisy.prod() / noisy / quiet.prod(), quiet.prod() / quiet
            bracket = quiet.prod() * (noise * z - 1) - noisy * (noise - 1) * others
            misplaced = (w * noise)[torch.arange(inputs) % hidden]  # the noise and weight of input i in place of output l
            values |= {
                f"nau_of_nau_{name}": largest_gap(residual * (share * w * noise)[:, None] * x, by_first),
                f"{name}_of_nau_{name}": largest_gap(residual * share / quiet.prod() * bracket, by_second[0]),
            }
            if name == "snmu":
                values["nau_of_nau_snmu_as_printed"] = largest_gap(residual * share[:, None] * misplaced * x, by_first)
    return Exact(values, plain_table(values))


def derivations(settings: Settings) -> Exact:
    """Gradients of NAC and NMU, moments of weights and outputs, and the start that keeps the variance, against numbers."""
    generator = torch.Generator().manual_seed(settings["seed"])
    uniform = partial(draw_uniform, generator)
    samples, size, radii = settings["samples"], settings["inputs"], settings["nac_radii"]
    rows = _gradient_rows(uniform(-2, 2, 64, 5), uniform(-2, 2, 3, 5), uniform(-2, 2, 3, 5))
    values = {"largest_gradient_difference": max(row["difference"] for row in rows)}
    drawn = {f"NAC weight variance, r = {r:g} (29)": (nac_weight_variance(r), _nac_squares(uniform, r, samples)) for r in radii}
    z = torch.randn(samples, size, generator=generator, dtype=DOUBLE).requires_grad_(True)
    for variance, weight in ((0.25, uniform(0, 1, samples, size).round()), (1 / 48, uniform(0.25, 0.75, samples, size))):
        y = torch.vmap(layers.nmu)(z, weight[:, None])[:, 0]
        slope = torch.autograd.grad(y.sum(), z)[0][:, 0]
        second, at = (variance + 0.25) ** size * 2**size, f"Var[W] = {variance:.4g}"
        drawn[f"NMU mean, {at} (56)"] = (0.5**size, y.detach())
        drawn[f"NMU second moment, {at} (58)"] = (second, y.detach().square())
        drawn[f"NMU gradient's second moment, {at} (68)"] = (second / 2, slope.square())
    for name, (formula, sample) in drawn.items():
        mean, error = float(sample.mean()), float(sample.std()) / math.sqrt(samples)
        found = {"formula": formula, "sampled": mean, "standard error": error}
        rows.append({"quantity": name, "difference": abs(formula - mean), **found})
    start = layers.NMU(1000, 1000)
    start.reset_parameters(generator)
    best = {"forward pass (71)": forward_variance, "backward pass (72)": backward_variance}
    variances = {name: [keeps(h) for h in settings["sizes"]] for name, keeps in best.items()}
    values |= {
        "largest_moment_deviation": max(
            row["difference"] / row["standard error"] for row in rows if row["sampled"] is not None
        ),
        "variance_forward": variances["forward pass (71)"][-1],
        "variance_backward": variances["backward pass (72)"][-1],
        "variance_of_code": start.weight.var().item(),
    }
    r = np.linspace(0.1, max(radii), 100)
    panels = {
        "NMU: weight variance that keeps variances": (settings["sizes"], variances, "inputs H", "Var[W]"),
        "NAC: variance of tanh(Ŵ) σ(M̂)": (r, {"formula (29)": [nac_weight_variance(one) for one in r]}, "r", "Var[W]"),
    }
    return Exact(values, rows, draw_curves(panels, scale={"xscale": "log"}))


def _nac_squares(uniform: Callable[..., Tensor], r: float, samples: int) -> Tensor:
    return nac_weight(uniform(-r, r, samples), uniform(-r, r, samples)).square()


def _gradient_rows(x: Tensor, w_hat: Tensor, m_hat: Tensor) -> list[dict[str, Any]]:
    """Relative differences between autograd and the printed derivatives of NAC• and NMU, for the sum of all outputs."""
    x, w_hat, m_hat, share = (one.requires_grad_(True) for one in (x, w_hat, m_hat, m_hat.sigmoid()))
    weight = nac_weight(w_hat, m_hat)
    y, multiplied = layers.log_product(x, weight), layers.nmu(x, share)
    by_w, by_w_hat, by_m_hat, by_x = torch.autograd.grad(y.sum(), (weight, w_hat, m_hat, x))
    by_share, by_factor = torch.autograd.grad(multiplied.sum(), (share, x))
    with torch.no_grad():
        tanh, gate, size = w_hat.tanh(), m_hat.sigmoid(), x.abs() + LOG_EPSILON
        quotient = multiplied[..., None] / (share * x[:, None] + 1 - share)
        pairs = {
            "NAC weight by Ŵ (19)": (by_w * (1 - tanh.square()) * gate, by_w_hat),
            "NAC weight by M̂ (19)": (by_w * tanh * gate * (1 - gate), by_m_hat),
            "NAC• by W (21)": (y.T @ size.log(), by_w),
            "NAC• by z (24)": (y @ weight * x.sign() / size, by_x),
            "NMU by W (26)": ((quotient * (x[:, None] - 1)).sum(0), by_share),
            "NMU by z (27)": ((quotient * share).sum(1), by_factor),
        }
    empty = {"formula": None, "sampled": None, "standard error": None}
    return [{"quantity": f"gradient of {name}", "difference": largest_gap(*pair), **empty} for name, pair in pairs.items()]


def nac_weight_variance(r: float) -> float:
    """Variance of ``tanh(w_hat) sigmoid(m_hat)`` for both raw weights from U(-r, r)."""
    return (1 - math.tanh(r) / r) * (r - math.tanh(r / 2)) / (2 * r)


def forward_variance(inputs: int) -> float:
    """Variance of NMU weights of mean 1/2 at which outputs have the variance of the inputs, which is one."""
    return float(0.5 * (1 + 4.0**-inputs) ** (1 / inputs)) - 0.25


def backward_variance(inputs: int) -> float:
    """Variance of NMU weights of mean 1/2 at which gradients keep theirs, in a layer with as many outputs as inputs."""
    return float(0.5 * (2 / inputs) ** (1 / inputs)) - 0.25


def moment_approximation(settings: Settings) -> Exact:
    """Mean of a NAC• of one input: its Taylor approximation minus a sampled estimate."""
    generator = torch.Generator().manual_seed(settings["seed"])
    epsilon, samples, tick = settings["epsilon"], settings["samples"], settings["tick"]
    r_w, r_z = (torch.arange(*settings[name], dtype=DOUBLE) for name in ("weight_bound", "input_bound"))
    output = torch.vmap(partial(layers.log_product, epsilon=epsilon))
    columns = []
    for bound in r_z:
        w, z = draw_uniform(generator, -1, 1, samples), draw_uniform(generator, 0, float(bound), samples)
        sampled = output(z[:, None], (w[:, None] * r_w)[..., None]).mean(0)
        columns.append(1 + r_w.square() / 6 * (bound / 2 + epsilon).log().square() - sampled)
    error = torch.stack(columns, 1)
    low, high = float(error.min()), float(error.max())
    values = {
        "smallest_error": low,
        "largest_error": high,
        "lowest_tick": math.ceil(low / tick) * tick,
        "highest_tick": math.floor(high / tick) * tick,
    }
    labels = ("$r_w$, weights from U($-r_w$, $r_w$)", "$r_z$, inputs from U(0, $r_z$)", "approximation − samples")
    maps = {"NAC•: error of the approximation of E[z]": (r_w, r_z, error)}
    return Exact(values, plain_table(values), draw_heat_maps(maps, labels, Normalize(low, -low), colours="RdBu"))


# Exact weights
