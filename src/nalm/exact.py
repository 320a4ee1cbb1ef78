"""What the papers compute without training a benchmark: loss surfaces, gradients, moments, exact weights, worked examples.

Each computation takes the settings of its experiment file and gives named numbers, a table and, mostly, a figure. Forward
values are those of the package's own layers; gradients come from autograd.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise, product
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from nalm import layers
from nalm.figures import COLOURS, MARKERS
from nalm.layers.base import EPS32, SATURATED, distance_to_bits, distance_to_integers, nac_weight, saturation_shortfall
from nalm.layers.division import smooth_amount, with_reciprocals
from nalm.layers.gated import golden_sigmoid, golden_tanh
from nalm.layers.multiplicative import LOG_EPSILON
from nalm.layers.power import gated_polar
from nalm.registry import info

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["COMPUTATIONS", "Exact"]

Settings = Mapping[str, Any]
Layer = Callable[[Tensor, Tensor], Tensor]

DOUBLE = torch.float64
_numbers = partial(torch.tensor, dtype=DOUBLE)


@dataclass(frozen=True)
class Exact:
    """What a computation gives."""

    values: dict[str, float]
    """Named numbers, to which claims refer; truth is 1, falsehood 0."""
    table: list[dict[str, Any]]
    """Rows for CSV and Markdown."""
    figure: Callable[[], Figure] | None = None
    """Draws the figure, if there is one."""


def _listed(values: Mapping[str, float]) -> list[dict[str, Any]]:
    """The plain table: a row a value."""
    return [{"quantity": name.replace("_", " "), "value": value} for name, value in values.items()]


def _side(ends: Sequence[float], points: int) -> Tensor:
    return torch.linspace(ends[0], ends[1], points, dtype=DOUBLE)


def _uniform(generator: torch.Generator, low: float, high: float, *shape: int) -> Tensor:
    return low + (high - low) * torch.rand(*shape, generator=generator, dtype=DOUBLE)


def _gap(one: Tensor, other: Tensor) -> float:
    """Largest difference, relative to the largest entry."""
    return float((one - other).abs().max() / other.abs().max())


def _text(numbers: Tensor) -> str:
    return ", ".join(f"{value:.6g}" for value in numbers.tolist())


# Figures


def _figure(titles: Iterable[str], draw: Callable[[str, Axes], None], width: float = 3.7, height: float = 3.3) -> Figure:
    """A row of panels, each drawn by its title; with one legend, where what they show has the same names."""
    names = list(titles)
    figure = Figure(figsize=(width * len(names), height), layout="constrained")
    row = list(figure.subplots(1, len(names), squeeze=False)[0])
    for name, axes in zip(names, row, strict=True):
        axes.set_title(name, fontsize="medium")
        draw(name, axes)
    keys = [axes.get_legend_handles_labels() for axes in row]
    if keys[0][1] and all(labels == keys[0][1] for _, labels in keys):
        figure.legend(*keys[0], loc="outside lower center", ncols=len(keys[0][1]), frameon=False, fontsize="small")
    else:
        for axes, (_, labels) in zip(row, keys, strict=True):
            if labels:
                axes.legend(frameon=False, fontsize="small")
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # each drawing would move things a little
    return figure


def _heat_maps(
    maps: Mapping[str, tuple[Tensor, Tensor, Tensor]],
    labels: tuple[str, str, str],
    norm: Normalize,
    points: Mapping[str, tuple[float, float]] | None = None,
    colours: str = "viridis",
) -> Callable[[], Figure]:
    """A panel for each (x, y, z), z of shape (x, y), with marked points; the colour bar points to what lies beyond it."""

    def draw(title: str, axes: Axes) -> None:
        x, y, z = maps[title]
        half = [float(side[1] - side[0]) / 2 for side in (x, y)]
        extent = (float(x[0]) - half[0], float(x[-1]) + half[0], float(y[0]) - half[1], float(y[-1]) + half[1])
        image = axes.imshow(z.T.numpy(), norm=norm, cmap=colours, origin="lower", extent=extent, aspect="auto")
        ends = float(z.min()) < float(norm.vmin or 0), float(z.max()) > float(norm.vmax or 0)
        beyond = {(True, True): "both", (True, False): "min", (False, True): "max"}.get(ends, "neither")
        axes.figure.colorbar(image, ax=axes, label=labels[2], extend=beyond)
        axes.set(xlabel=labels[0], ylabel=labels[1])
        for (name, place), colour in zip((points or {}).items(), (COLOURS[1], COLOURS[3], COLOURS[6]), strict=False):
            axes.plot(*place, "X", color=colour, markeredgecolor="white", markersize=9, label=name, clip_on=False)

    return lambda: _figure(maps, draw, *((5.2, 4.2) if len(maps) == 1 else (3.7, 3.3)))


def _curves(
    panels: Mapping[str, tuple[Any, Mapping[str, Any], str, str]], marked: bool = False, scale: Mapping[str, Any] | None = None
) -> Callable[[], Figure]:
    """A panel for each (x, curves by name, label of x, label of y)."""

    def draw(title: str, axes: Axes) -> None:
        x, curves, x_label, y_label = panels[title]
        for (name, y), colour, marker in zip(curves.items(), COLOURS, MARKERS, strict=False):
            axes.plot(x, y, color=colour, marker=marker if marked else None, markersize=4, linewidth=1.4, label=name)
        axes.grid(color="0.88", linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
        axes.set(xlabel=x_label, ylabel=y_label, **(scale or {}))

    return lambda: _figure(panels, draw, 4.3, 3.5)


# Loss surfaces


def nac_surfaces(settings: Settings) -> Exact:
    """Loss of a NAC+ followed by a NAC•, one surface for each epsilon."""

    def add(x: Tensor, weight: Tensor) -> Tensor:
        return layers.nac_add(x, weight.atanh(), torch.full_like(weight, SATURATED))

    cases = {f"{e:g}": (f"NAC+, NAC•, ε = {e:g}", partial(layers.log_product, epsilon=e), -1.0) for e in settings["epsilons"]}
    return _surfaces(settings, add, cases)


def division_surfaces(settings: Settings) -> Exact:
    """Loss of a NAU followed by a Real NPU, an NRU or an NMRU; the NMRU's weights of reciprocals are zero."""
    epsilon, scale = settings["epsilon"], settings["tanh_scale"]
    cases: dict[str, tuple[str, Layer, float]] = {
        "real-npu": ("NAU, Real NPU", lambda z, w: layers.real_npu(*gated_polar(z, torch.ones(2), epsilon), w), -1.0),
        "nru": ("NAU, NRU", lambda z, w: layers.nru(z, w, smooth_amount(w, scale)), -1.0),
        "nmru": ("NAU, NMRU", lambda z, w: layers.nmru(with_reciprocals(z, EPS32), F.pad(w, (0, 2))), 0.0),
    }
    return _surfaces(settings, layers.nau, cases)


def _surfaces(settings: Settings, add: Layer, cases: Mapping[str, tuple[str, Layer, float]]) -> Exact:
    """Root mean squared loss on one sample where all weights in use are w1 in the first layer and w2 in the second.

    An even number of points leaves out w1 = 0, at which a sum is zero and its reciprocal does not exist.
    """
    x, used, points = _numbers(settings["x"]), _numbers(settings["first_layer"]), settings["points"]
    w1 = _side((-1, 1), points)
    sums = add(x, (w1[:, None, None] * used).flatten(0, 1)).reshape(points, -1)
    target = float((used @ x).prod())
    values: dict[str, float] = {"target": target}
    maps = {}
    for name, (title, multiply, low) in cases.items():
        w2 = _side((low, 1), points)
        loss = (multiply(sums, w2[:, None].expand(-1, len(used))) - target).abs()
        maps[title] = (w1, w2, loss)
        values |= {
            f"largest_loss_over_target_{name}": float(loss.max()) / target,
            f"explodes_{name}": float(loss.max() > settings["explosion"] * target),
            f"loss_at_solution_{name}": float(loss[-1, -1]),
            f"loss_at_negative_solution_{name}": float(loss[0, -1]),
        }
    labels = ("$w_1$", "$w_2$", "root mean squared loss")
    return Exact(values, _listed(values), _heat_maps(maps, labels, Normalize(0, settings["shown"]), {"solution": (1, 1)}))


def nmu_landscape(settings: Settings) -> Exact:
    """Loss of an NMU on one product, its wrong minimum, and where clipping leaves that."""
    x, wrong, side = _numbers(settings["x"]), settings["wrong"], _side(settings["shown"], settings["points"])
    target = float(x.prod())
    layer = layers.NMU(2, 1, dtype=DOUBLE)
    with torch.no_grad():
        layer.weight.copy_(_numbers([wrong]))
        output = layer(x).item()
        layer.project_()
    (slope,) = torch.autograd.grad((layer(x) - target).square().sum(), layer.weight)
    loss = (layers.nmu(x, torch.cartesian_prod(side, side)) - target).square().reshape(len(side), -1)
    values = {
        "target": target,
        "output_at_wrong_minimum": output,
        "largest_weight_after_clipping": layer.weight.abs().max().item(),
        "smallest_slope_after_clipping": float(slope.min()),
        "output_after_clipping": layer(x).item(),
    }
    clipped = layer.weight[0].tolist()
    points = {"global minimum": (1.0, 1.0), "wrong minimum": (wrong[0], wrong[1]), "after clipping": (clipped[0], clipped[1])}
    maps = {f"NMU that learns {x[0]:g} × {x[1]:g}": (side, side, loss)}
    return Exact(values, _listed(values), _heat_maps(maps, ("$w_1$", "$w_2$", "squared loss"), LogNorm(1e-2, 1e2), points))


def start_grid(settings: Settings) -> Exact:
    """From which initial weights NMU and sNMU learn one product by plain gradient descent with clipping."""
    side = _side((0, 1), settings["side"])
    starts = torch.cartesian_prod(side, side)
    generator = torch.Generator().manual_seed(settings["seed"])

    def output(name: str, x: Tensor, weight: Tensor) -> Tensor:
        if name == "nmu":
            return layers.nmu(x, weight)
        noise = _uniform(generator, *settings["noise"], *weight.shape)
        return torch.vmap(layers.snmu, in_dims=(None, 0, 0))(x, weight[:, None], noise)[:, 0]

    def descend(name: str, x: Tensor) -> Tensor:
        weight = starts.clone()
        for _ in range(settings["steps"]):
            weight.requires_grad_(True)
            (slope,) = torch.autograd.grad((output(name, x, weight) - x.prod()).square().sum(), weight)
            weight = (weight.detach() - settings["learning_rate"] * slope).clamp(0, 1)
        return weight

    ends = {(name, k): descend(name, _numbers(x)) for name in ("nmu", "snmu") for k, x in settings["samples"].items()}
    values = {f"{name}_{k}": float((end > 0.5).all(-1).double().mean()) for (name, k), end in ends.items()}
    values |= {f"snmu_minus_nmu_{k}": values[f"snmu_{k}"] - values[f"nmu_{k}"] for k in settings["samples"]}
    values["largest_distance_from_a_corner"] = max(float(distance_to_bits(end).max()) for end in ends.values())
    titles = {
        f"{info(name).label}: {values[f'{name}_text']:.3f} of {len(starts)} starts succeed": name for name in ("nmu", "snmu")
    }

    def draw(title: str, axes: Axes) -> None:
        end = ends[titles[title], "text"]
        solved = (end > 0.5).all(-1)
        for chosen, colour, label in ((solved, COLOURS[2], "ends at (1, 1)"), (~solved, COLOURS[1], "ends at (0, 0)")):
            way = 0.045 * F.normalize(end[chosen] - starts[chosen])
            axes.quiver(
                *starts[chosen].T, *way.T, color=colour, angles="xy", scale_units="xy", scale=1, width=4e-3, label=label
            )
        axes.set(xlabel="initial $w_1$", ylabel="initial $w_2$")

    return Exact(values, _listed(values), lambda: _figure(titles, draw, 4.4, 4.6))


# Gradients


def relevance_gate(settings: Settings) -> Exact:
    """Norm of the loss's gradient for naive NPU and NPU that learn to pass on the first of two inputs."""
    w1, w2 = (_side(settings[name], settings["points"]) for name in ("w1", "w2"))
    weights = torch.cartesian_prod(w1, w2)
    unit = torch.quasirandom.SobolEngine(2).draw(settings["rows"] + 1, dtype=DOUBLE)[1:]  # type: ignore[no-untyped-call]

    def surface(gates: Sequence[float], second_input: Sequence[float], power: float) -> Tensor:
        low, high = _numbers([settings["first_input"], second_input]).T
        x = low + (high - low) * unit
        real, none = weights.clone().requires_grad_(True), torch.zeros_like(weights)
        y = layers.npu(*gated_polar(x, _numbers(gates) if gates else None), real, none)
        (slope,) = torch.autograd.grad((y - x[:, :1]).abs().pow(power).mean(0).sum(), real)
        norms: Tensor = slope.norm(dim=-1)
        return norms.reshape(len(w1), -1)

    def zero_from(norms: Tensor) -> float:
        """The w2 beyond which at least half of the gradients are close to zero."""
        large = (norms.median(0).values >= settings["zero"] * settings["shown"]).nonzero()
        return float(w2[int(large.max())]) if len(large) else float(w2[0])

    cases: dict[str, Sequence[float]] = {"naive NPU": (), **{f"NPU, g = ({a:g}, {b:g})": (a, b) for a, b in settings["gates"]}}
    values: dict[str, float] = {}
    maps: dict[str, tuple[Tensor, Tensor, Tensor]] = {}
    for kind in ("code", "printed"):
        found = {title: surface(gates, **settings[kind]) for title, gates in cases.items()}
        naive, initial, final = found.values()
        beyond = w2 > settings["boundary"]
        values |= {
            f"naive_zero_beyond_w2_{kind}": zero_from(naive),
            f"zero_share_naive_{kind}": float((naive[:, beyond] < settings["zero"] * settings["shown"]).double().mean()),
            f"zero_share_npu_{kind}": float((initial[:, beyond] < settings["zero"] * settings["shown"]).double().mean()),
            f"npu_over_naive_{kind}": float(initial[:, beyond].median() / naive[:, beyond].median()),
            f"dependence_on_w2_of_final_npu_{kind}": float((final.amax(1) - final.amin(1)).max()),
        }
        maps |= {title: (w1, w2, norms) for title, norms in found.items() if kind == "code"}
    labels = ("$w_1$", "$w_2$", "norm of the gradient")
    draw = _heat_maps(maps, labels, Normalize(0, settings["shown"]), {"solution": (1, 0)})
    return Exact(values, _listed(values), draw)


def nru_gradient(settings: Settings) -> Exact:
    """Derivative of the NRU by its weight: autograd against the printed formulas, and where it vanishes."""
    scale, near = settings["tanh_scale"], settings["near"]
    w = torch.cat([_side((-1, 1), settings["points"]), _side((-near, near), settings["points"]), _numbers([0.0])]).sort().values
    x = _numbers(settings["x"])

    def derivative(x: Tensor, w: Tensor) -> Tensor:
        w = w.clone().requires_grad_(True)
        outputs = [layers.nru(one[None], w[:, None], smooth_amount(w[:, None], scale)).sum() for one in x]
        return torch.stack([torch.autograd.grad(y, w)[0] for y in outputs])

    def printed(exponent: Tensor) -> Tensor:
        tanh, bell = (scale * w).tanh(), 2 * scale / (scale * w).clamp(-300, 300).cosh().square()
        size = x.abs()[:, None]
        result: Tensor = tanh * (x.sign()[:, None] * size.pow(exponent) * (tanh * size.log() + bell) - bell)
        return result

    slopes, ones = derivative(x, w), derivative(_numbers([1.0, -1.0]), w).abs().amax(1)
    small, large = _numbers([settings["small"]]), _numbers([settings["large"]])
    values = {
        "thesis_formula_difference": _gap(printed(w), slopes),
        "paper_formula_difference": _gap(printed(torch.ones_like(w)), slopes),
        "largest_at_one": float(ones[0]),
        "largest_at_minus_one": float(ones[1]),
        "largest_at_one_or_minus_one": float(ones.max()),
        "largest_at_weight_zero": float(slopes[:, w == 0].abs().max()),
        "small_input_small_weight": float(derivative(small, small).abs()),
        "large_input_weight_minus_one": float(derivative(large, _numbers([-1.0])).abs()),
    }
    inside = w.abs() <= near
    named = {f"x = {one:g}": slope for one, slope in zip(x, slopes, strict=True)}
    panels = {
        "NRU in training, all weights": (w, named, "$w$", "dy/dw"),
        "NRU in training, near w = 0": (w[inside], {key: y[inside] for key, y in named.items()}, "$w$", "dy/dw"),
    }
    return Exact(values, _listed(values), _curves(panels, scale={"yscale": "symlog"}))


def two_layer_gradients(settings: Settings) -> Exact:
    """Derivatives of the loss of NAU-NMU and NAU-sNMU by every weight: the derived formulas against autograd."""
    inputs, hidden = settings["inputs"], settings["hidden"]
    uniform = partial(_uniform, torch.Generator().manual_seed(settings["seed"]))
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
                f"nau_of_nau_{name}": _gap(residual * (share * w * noise)[:, None] * x, by_first),
                f"{name}_of_nau_{name}": _gap(residual * share / quiet.prod() * bracket, by_second[0]),
            }
            if name == "snmu":
                values["nau_of_nau_snmu_as_printed"] = _gap(residual * share[:, None] * misplaced * x, by_first)
    return Exact(values, _listed(values))


def derivations(settings: Settings) -> Exact:
    """Gradients of NAC and NMU, moments of weights and outputs, and the start that keeps the variance, against numbers."""
    generator = torch.Generator().manual_seed(settings["seed"])
    uniform = partial(_uniform, generator)
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
    return Exact(values, rows, _curves(panels, scale={"xscale": "log"}))


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
    return [{"quantity": f"gradient of {name}", "difference": _gap(*pair), **empty} for name, pair in pairs.items()]


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
        w, z = _uniform(generator, -1, 1, samples), _uniform(generator, 0, float(bound), samples)
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
    return Exact(values, _listed(values), _heat_maps(maps, labels, Normalize(low, -low), colours="RdBu"))


# Exact weights


def gold_errors(settings: Settings) -> Exact:
    """Float32 test error of exact weights for reciprocals and quotients, as inputs come closer to zero."""
    uppers, claimed = settings["uppers"], settings["claimed"]
    tasks = {"reciprocal1": ("1/a of one input", 1), "reciprocal2": ("1/a of two inputs", 2), "div2": ("a/b", 2)}
    values: dict[str, float] = {}
    table: list[dict[str, Any]] = []
    panels = {}
    for task, (title, inputs) in tasks.items():
        errors = _gold_errors(task.rstrip("12"), inputs, settings)
        real, without, nru, nmru, _ = errors.values()
        values |= {f"{task}_{x:g}": real[x] / max(nru[x], nmru[x]) for x in claimed}
        values[f"{task}_growth"] = min(e[a] / e[b] for e in (real, nru, nmru) for a, b in pairwise(claimed))
        values[f"{task}_eps0"] = max(without[x] / real[x] for x in claimed)
        table += [{"task": title, "x": x, **{name: error[x] for name, error in errors.items()}} for x in uppers]
        curves = {name: list(error.values()) for name, error in errors.items()}
        panels[title] = (uppers, curves, "x of the inputs U[0, x)", "test error of the exact weights")
    return Exact(values, table, _curves(panels, marked=True, scale={"xscale": "log", "yscale": "log"}))


def _gold_errors(operation: str, inputs: int, settings: Settings) -> dict[str, dict[float, float]]:
    """Errors by module and range on the published test set, drawn and computed in float64 and only then rounded.

    The published NMRU adds one to ``w x`` before it subtracts w, which in float32 costs a small x its digits.
    """
    real, without = layers.RealNPU(inputs, 1), layers.RealNPU(inputs, 1, epsilon=0.0)
    units = (real, without, layers.NRU(inputs, 1), nmru := layers.NMRU(inputs, 1))
    names = ("Real NPU", "Real NPU, ε = 0", "NRU", "NMRU")
    solved = [unit.set_solution_(operation, range(inputs)).eval() for unit in units]
    models: dict[str, Callable[[Tensor], Tensor]] = dict(zip(names, solved, strict=True))
    models["NMRU, as published"] = lambda x: (with_reciprocals(x, 0.0) * nmru.weight + 1 - nmru.weight).prod(-1, keepdim=True)
    errors: dict[str, dict[float, float]] = {name: {} for name in models}
    for upper in settings["uppers"]:
        x = np.random.RandomState(settings["test_seed"]).uniform(0, upper, (settings["rows"], inputs))
        target = torch.from_numpy(1 / x[:, :1] if operation == "reciprocal" else x[:, :1] / x[:, 1:]).float()
        for name, model in models.items():
            with torch.no_grad():
                errors[name][upper] = F.mse_loss(model(torch.from_numpy(x).float()), target).item()
    return errors


def selection_errors(settings: Settings) -> Exact:
    """Output and absolute error of NAU-NMU with hand-set weights: right ones, one not converged, one wrongly selected."""
    add, multiply = layers.NAU(4, 2, dtype=DOUBLE), layers.NMU(2, 1, dtype=DOUBLE).set_solution_("mul")
    outputs = {}
    for case, weight in settings["cases"].items():
        with torch.no_grad():
            add.weight.copy_(_numbers(weight))
            outputs[case] = {name: multiply(add(_numbers(x))).item() for name, x in settings["inputs"].items()}
    values: dict[str, float] = {}
    table = []
    for case, found in outputs.items():
        row = {f"{name}_output": y for name, y in found.items()}
        row |= {f"{name}_error": abs(y - outputs["right"][name]) for name, y in found.items()}
        values |= {f"{case}_{key}": value for key, value in row.items()}
        table.append({"case": case, **row})
    return Exact(values, table)


def mlp_solutions(settings: Settings) -> Exact:
    """ReLU networks with hand-set weights: of width one for sums of positive numbers, of width four for all sums."""
    side = _side(settings["shown"], settings["points"])
    x = torch.cartesian_prod(side, side)
    w, parts = settings["width1_weight"], [[1, 0], [-1, 0], [0, 1], [0, -1]]
    networks = {f"width1_bias_{b:g}": ([[w, w]], [-b], [[1 / w]], [b / w], 1) for b in settings["width1_biases"]}
    networks["width4_add"] = (parts, [0] * 4, [[1, -1, 1, -1]], [0], 1)
    networks["width4_sub"] = (parts, [0] * 4, [[1, -1, -1, 1]], [0], -1)
    titles = [f"width 1, b = {b:g}, sum" for b in settings["width1_biases"]] + ["width 4, sum", "width 4, difference"]
    values, maps = {}, {}
    for title, (name, (first, first_bias, second, second_bias, sign)) in zip(titles, networks.items(), strict=True):
        mlp = layers.ReLUMLP(2, 1, hidden=[len(first)], dtype=DOUBLE)
        wanted = (first, second, first_bias, second_bias)
        with torch.no_grad():
            for parameter, value in zip([*mlp.weights, *mlp.biases], wanted, strict=True):
                parameter.copy_(_numbers(value))
            gap = (mlp(x)[:, 0] - (x[:, 0] + sign * x[:, 1])).abs()
        values[f"{name}_mse"] = float(gap.square().mean())
        values[f"{name}_error_on_positive"] = float(gap[(x > 0).all(-1)].max())
        maps[title] = (side, side, gap.reshape(len(side), -1))
    return Exact(values, _listed(values), _heat_maps(maps, ("$x_1$", "$x_2$", "absolute error"), Normalize(0, 12)))


PROBES: dict[str, tuple[str, Callable[[Tensor, Tensor], Tensor]]] = {
    "add": ("addition", torch.add),
    "sub": ("subtraction", torch.sub),
    "mul": ("multiplication", torch.mul),
    "div": ("division", torch.div),
    "sqrt": ("arbitrary-power", lambda a, b: a.sqrt()),
    "and": ("boolean-logic", torch.minimum),
    "or": ("boolean-logic", torch.maximum),
    "not": ("boolean-logic", lambda a, b: 1 - a),
    "lt": ("control-logic", torch.lt),
    "gt": ("control-logic", torch.gt),
    "eq": ("control-logic", torch.eq),
}
"""Operations that are tried, each with the property that it stands for and its definition."""


def capabilities(settings: Settings) -> Exact:
    """What each module can represent, tried with its exact weights; and whether it has a gate, signs and a penalty."""

    def represents(unit: layers.Unit, operation: str, inputs: str) -> bool:
        x = _numbers(settings["inputs"][inputs])
        if operation not in unit.operations:
            return False
        y = unit.set_solution_(operation)(x).detach().reshape(len(x), -1)[:, 0]
        return torch.allclose(y, PROBES[operation][1](*x.T).double(), rtol=0, atol=settings["tolerance"])

    properties = [*dict.fromkeys(name for name, _ in PROBES.values()), "gating", "negative-input", "discretisation"]
    table: list[dict[str, Any]] = [{"property": name} for name in properties]
    for module in settings["modules"]:
        record = info(module)
        unit = record.build(2, 1, dtype=DOUBLE).eval()
        found = dict.fromkeys(properties, True)
        for operation, (name, _) in PROBES.items():
            found[name] &= represents(unit, operation, settings["probed_with"].get(name, "positive"))
        signed = [name for name in settings["signed"] if name in unit.operations]
        found["gating"] = any(name.startswith("gate") for name in unit.effective_weights())
        found["negative-input"] = bool(signed) and all(represents(unit, name, "negative") for name in signed)
        found["discretisation"] = record.recipe.penalty > 0
        for row in table:
            row[module] = float(found[row["property"]])
    return Exact({f"{module}_{row['property']}": row[module] for row in table for module in settings["modules"]}, table)


def parameter_counts(settings: Settings) -> Exact:
    """Learnable numbers of the modules that divide."""
    units = {name: info(name).build(settings["inputs"], settings["outputs"]) for name in settings["modules"]}
    values = {name: float(sum(p.numel() for p in unit.parameters())) for name, unit in units.items()}
    return Exact(values, _listed(values))


# Worked examples


def scaled_nmu(settings: Settings) -> Exact:
    """Two published sets of numbers of an NMU under min-max scaling: same function, and how well each fits the others."""
    slope, mean, half = _numbers(settings["slope"]), _numbers(settings["mean"]), _numbers([settings["half_range"]])
    side = _side((-1, 1), settings["points"])
    x = mean + torch.cartesian_prod(side, side) / slope
    values, table, outputs = {}, [], []
    for name, model in settings["models"].items():
        w_in, b_in, weight, w_out, b_out = (_numbers(model[key]) for key in ("w_in", "b_in", "weight", "w_out", "b_out"))
        outputs.append((layers.nmu(slope * (x - mean) * w_in + b_in, weight[None]) * w_out + b_out)[:, 0] * half)
        constant, steepness = (1 - weight) / weight, (weight * slope * w_in).prod()
        implied = {  # from the other numbers: no factor has a constant, and the product of all slopes is one
            "slope": ((b_in + constant) / (mean * w_in), slope),
            "mean": ((b_in + constant) / (slope * w_in), mean),
            "w_in": ((b_in + constant) / (slope * mean), w_in),
            "b_in": (slope * mean * w_in - constant, b_in),
            "weight": (1 / (1 + slope * mean * w_in - b_in), weight),
            "half_range": (1 / (steepness * w_out), half),
            "w_out": (1 / (steepness * half), w_out),
            "b_out": (torch.zeros_like(b_out), b_out),
        }
        values[f"{name}_function"] = float((outputs[-1] - x.prod(-1)).abs().max())
        for key, (other, own) in implied.items():
            values[f"{name}_{key}"] = float((other - own).abs().max())
            table.append({"model": name, "number": key, "published": _text(own), "implied": _text(other)})
    values["between_models"] = float((outputs[0] - outputs[1]).abs().max())
    return Exact(values, table)


def nalu_example(settings: Settings) -> Exact:
    """A NALU that subtracts, step by step, and the naive NPU as the real part of a product of complex powers."""
    x = _numbers(settings["x"])
    layer = layers.NALU(len(x), 1, dtype=DOUBLE).set_solution_("sub")
    uniform = partial(_uniform, torch.Generator().manual_seed(settings["seed"]))
    rows, real, imaginary = uniform(-2, 2, settings["rows"], 3), uniform(-2, 2, 2, 3), uniform(-1, 1, 2, 3)
    with torch.no_grad():
        steps = {
            "tanh(Ŵ)": layer.w_hat.tanh()[0],
            "sigmoid(M̂)": layer.m_hat.sigmoid()[0],
            "W": layer.effective_weights()["weight"][0],
            "NAC+": layers.nac_add(x, layer.w_hat, layer.m_hat),
            "NAC•, ε = 0": layers.log_product(x, layer.effective_weights()["weight"], 0.0),
            "gate": F.linear(x, layer.gate_weight).sigmoid(),
            "NALU": layer(x),
        }
        magnitude, phase = gated_polar(rows, None)
        powers = torch.complex(real, imaginary) * torch.polar(magnitude, phase).log()[:, None]
        difference = _gap(layers.npu(magnitude, phase, real, imaginary), powers.sum(-1).exp().real)
    values = {name: float(steps[key]) for name, key in (("summed", "NAC+"), ("multiplied", "NAC•, ε = 0"), ("output", "NALU"))}
    table = [{"step": name, "value": _text(value)} for name, value in steps.items()]
    return Exact({**values, "gate": float(steps["gate"]), "naive_npu_difference": difference}, table)


def sign_machine(settings: Settings) -> Exact:
    """Sign of the Real NPU's and the NMRU's output for every discrete input, weight and gate, against the state machine."""
    inputs = settings["inputs"]
    xs = _numbers(list(product(settings["x"], repeat=inputs)))
    nonzero = xs[(xs != 0).all(-1)]  # the reciprocal of zero has no sign
    agreed: dict[str, list[Tensor]] = {"real-npu": [], "nmru": []}

    def check(name: str, unit: layers.Unit, x: Tensor, flips: Tensor) -> None:
        """The state starts at one and changes its sign at each flip."""
        state = torch.ones(len(x), dtype=DOUBLE)
        for flip in flips.T:
            state = torch.where(flip, -state, state)
        agreed[name].append(unit(x)[:, 0].sign() == state)

    real, nmru = layers.RealNPU(inputs, 1, dtype=DOUBLE), layers.NMRU(inputs, 1, dtype=DOUBLE)
    with torch.no_grad():
        for w, g in product(product((-1.0, 0.0, 1.0), repeat=inputs), product((0.0, 1.0), repeat=inputs)):
            real.real.copy_(_numbers([w]))
            real.gate.copy_(_numbers(g))
            check("real-npu", real, xs, (xs < 0) & (real.real != 0) & (real.gate == 1))
        for w in product((0.0, 1.0), repeat=2 * inputs):
            nmru.weight.copy_(_numbers([w]))
            check("nmru", nmru, nonzero, (torch.cat([nonzero, nonzero], 1) < 0) & (nmru.weight == 1))
    same = {name: torch.cat(parts) for name, parts in agreed.items()}
    table = [{"module": info(name).label, "cases": len(one), "same sign": int(one.sum())} for name, one in same.items()]
    return Exact({f"{name}_agrees": float(one.double().mean()) for name, one in same.items()}, table)


# Shapes


def noise_bound(settings: Settings) -> Exact:
    """Upper end of the batch noise for a standard deviation of the inputs, as the layer uses it."""
    layer = layers.sNMUBatch(1, 1, dtype=DOUBLE)
    nn.init.constant_(layer.weight, 0.5)

    def bound(spread: float) -> float:
        """Largest noise n, from the output y = (n x + 1) / (n + 1) at weight 1/2 of inputs x with this spread."""
        x = _numbers([[-spread], [spread]]) / math.sqrt(2)
        y = layer(x, noise=torch.ones_like(x))
        return float(((1 - y) / (y - x))[0].item())

    spreads = 10 ** _side(settings["powers_of_ten"], settings["points"])
    bounds = _numbers([bound(float(spread)) for spread in spreads])
    ranges = {f"U[{low:g},{high:g})": (high - low) / math.sqrt(12) for low, high in settings["ranges"]}
    values = {"formula_difference": _gap(bounds, 1 + 1 / spreads), **{name: bound(spread) for name, spread in ranges.items()}}
    table = [{"inputs": name, "standard deviation": spread, "upper bound": values[name]} for name, spread in ranges.items()]
    curves = {"1 + 1/σ(x)": bounds, "U[1, 5], the fixed noise": torch.full_like(bounds, 5)}
    panels = {"sNMU: upper end of the batch noise": (spreads, curves, "standard deviation σ(x) of the inputs", "upper bound")}
    return Exact(values, table, _curves(panels, scale={"xscale": "log", "yscale": "log"}))


def penalty_shapes(settings: Settings) -> Exact:
    """The penalties that make weights discrete, and the ramp of their strength."""
    start, end = settings["ramp"]
    w, raw, steps = _side((-1.5, 1.5), 301), _side((-30, 30), 301), _side((0, 10), 301)
    penalties = {"NAU, to −1, 0, 1": distance_to_integers(w), "NMU, to 0, 1": distance_to_bits(w)}
    saturating = torch.stack([saturation_shortfall(one[None]) for one in raw])
    table = [
        {"w": one, "NAU": float(distance_to_integers(_numbers(one))), "NMU": float(distance_to_bits(_numbers(one)))}
        for one in settings["listed"]
    ]
    values = {f"{name}_{row['w']:g}": row[name.upper()] for row in table for name in ("nau", "nmu")}
    values |= {f"inalu_{one:g}": float(saturation_shortfall(_numbers([one]))) for one in settings["listed_raw"]}
    ramp = {f"final strength 1, steps {start:g} to {end:g}": ((steps - start) / (end - start)).clamp(0, 1)}
    panels = {
        "penalty of NAU and NMU": (w, penalties, "weight", "penalty"),
        "strength during training": (steps, ramp, "step", "strength"),
        "penalty of the iNALU": (raw, {"t = 20": saturating}, "raw parameter", "penalty"),
    }
    return Exact(values, table, _curves(panels))


def golden_weights(settings: Settings) -> Exact:
    """Effective weight over both raw weights, with exponentials to the base e (NALU) and the golden ratio (G-NALU)."""
    side = _side((-settings["reach"], settings["reach"]), settings["points"])
    raw = torch.cartesian_prod(side, side).requires_grad_(True)
    values, maps = {}, {}
    for name, w in (("NALU", nac_weight(*raw.T)), ("G-NALU", golden_tanh(raw[:, 0]) * golden_sigmoid(raw[:, 1]))):
        (slope,) = torch.autograd.grad(w.sum(), raw)
        values[f"{name}_steepest_slope"] = float(slope.norm(dim=1).max())
        values[f"{name}_discrete_share"] = float((distance_to_integers(w.detach()) < settings["discrete"]).double().mean())
        maps[f"{name}, base {'e' if name == 'NALU' else 'φ'}"] = (side, side, w.detach().reshape(len(side), -1))
    values["ratio_of_slopes"] = values["G-NALU_steepest_slope"] / values["NALU_steepest_slope"]
    labels = ("raw weight Ŵ", "raw weight M̂", "effective weight W")
    return Exact(values, _listed(values), _heat_maps(maps, labels, Normalize(-1, 1), colours="RdBu_r"))


COMPUTATIONS: dict[str, Callable[[Settings], Exact]] = {
    function.__name__: function
    for function in (
        nac_surfaces,
        division_surfaces,
        nmu_landscape,
        start_grid,
        relevance_gate,
        nru_gradient,
        two_layer_gradients,
        derivations,
        moment_approximation,
        gold_errors,
        selection_errors,
        mlp_solutions,
        capabilities,
        parameter_counts,
        scaled_nmu,
        nalu_example,
        sign_machine,
        noise_bound,
        penalty_shapes,
        golden_weights,
    )
}
"""Computations by the name that experiment files give."""
