"""Loss surfaces, landscapes and gradients over a plane."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch
from matplotlib.colors import LogNorm, Normalize
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from nalm import layers
from nalm.exact.base import (
    DOUBLE,
    Exact,
    Layer,
    Settings,
    doubles,
    draw_curves,
    draw_heat_maps,
    draw_panels,
    draw_uniform,
    largest_gap,
    plain_table,
    spaced,
)
from nalm.figures import COLOURS
from nalm.layers.base import EPS32, SATURATED, distance_to_bits
from nalm.layers.division import smooth_amount, with_reciprocals
from nalm.layers.power import gated_polar
from nalm.registry import info

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes

__all__ = ["division_surfaces", "nac_surfaces", "nmu_landscape", "nru_gradient", "relevance_gate", "start_grid"]


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
    x, used, points = doubles(settings["x"]), doubles(settings["first_layer"]), settings["points"]
    w1 = spaced((-1, 1), points)
    sums = add(x, (w1[:, None, None] * used).flatten(0, 1)).reshape(points, -1)
    target = float((used @ x).prod())
    values: dict[str, float] = {"target": target}
    maps = {}
    for name, (title, multiply, low) in cases.items():
        w2 = spaced((low, 1), points)
        loss = (multiply(sums, w2[:, None].expand(-1, len(used))) - target).abs()
        maps[title] = (w1, w2, loss)
        values |= {
            f"largest_loss_over_target_{name}": float(loss.max()) / target,
            f"explodes_{name}": float(loss.max() > settings["explosion"] * target),
            f"loss_at_solution_{name}": float(loss[-1, -1]),
            f"loss_at_negative_solution_{name}": float(loss[0, -1]),
        }
    labels = ("$w_1$", "$w_2$", "root mean squared loss")
    return Exact(
        values, plain_table(values), draw_heat_maps(maps, labels, Normalize(0, settings["shown"]), {"solution": (1, 1)})
    )


def nmu_landscape(settings: Settings) -> Exact:
    """Loss of an NMU on one product, its wrong minimum, and where clipping leaves that."""
    x, wrong, side = doubles(settings["x"]), settings["wrong"], spaced(settings["shown"], settings["points"])
    target = float(x.prod())
    layer = layers.NMU(2, 1, dtype=DOUBLE)
    with torch.no_grad():
        layer.weight.copy_(doubles([wrong]))
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
    return Exact(
        values, plain_table(values), draw_heat_maps(maps, ("$w_1$", "$w_2$", "squared loss"), LogNorm(1e-2, 1e2), points)
    )


def start_grid(settings: Settings) -> Exact:
    """From which initial weights NMU and sNMU learn one product by plain gradient descent with clipping."""
    side = spaced((0, 1), settings["side"])
    starts = torch.cartesian_prod(side, side)
    generator = torch.Generator().manual_seed(settings["seed"])

    def output(name: str, x: Tensor, weight: Tensor) -> Tensor:
        if name == "nmu":
            return layers.nmu(x, weight)
        noise = draw_uniform(generator, *settings["noise"], *weight.shape)
        return torch.vmap(layers.snmu, in_dims=(None, 0, 0))(x, weight[:, None], noise)[:, 0]

    def descend(name: str, x: Tensor) -> Tensor:
        weight = starts.clone()
        for _ in range(settings["steps"]):
            weight.requires_grad_(True)
            (slope,) = torch.autograd.grad((output(name, x, weight) - x.prod()).square().sum(), weight)
            weight = (weight.detach() - settings["learning_rate"] * slope).clamp(0, 1)
        return weight

    ends = {(name, k): descend(name, doubles(x)) for name in ("nmu", "snmu") for k, x in settings["samples"].items()}
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

    return Exact(values, plain_table(values), lambda: draw_panels(titles, draw, 4.4, 4.6))


# Gradients


def relevance_gate(settings: Settings) -> Exact:
    """Norm of the loss's gradient for naive NPU and NPU that learn to pass on the first of two inputs."""
    w1, w2 = (spaced(settings[name], settings["points"]) for name in ("w1", "w2"))
    weights = torch.cartesian_prod(w1, w2)
    unit = torch.quasirandom.SobolEngine(2).draw(settings["rows"] + 1, dtype=DOUBLE)[1:]  # type: ignore[no-untyped-call]

    def surface(gates: Sequence[float], second_input: Sequence[float], power: float) -> Tensor:
        low, high = doubles([settings["first_input"], second_input]).T
        x = low + (high - low) * unit
        real, none = weights.clone().requires_grad_(True), torch.zeros_like(weights)
        y = layers.npu(*gated_polar(x, doubles(gates) if gates else None), real, none)
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
    draw = draw_heat_maps(maps, labels, Normalize(0, settings["shown"]), {"solution": (1, 0)})
    return Exact(values, plain_table(values), draw)


def nru_gradient(settings: Settings) -> Exact:
    """Derivative of the NRU by its weight: autograd against the printed formulas, and where it vanishes."""
    scale, near = settings["tanh_scale"], settings["near"]
    w = (
        torch.cat([spaced((-1, 1), settings["points"]), spaced((-near, near), settings["points"]), doubles([0.0])])
        .sort()
        .values
    )
    x = doubles(settings["x"])

    def derivative(x: Tensor, w: Tensor) -> Tensor:
        w = w.clone().requires_grad_(True)
        outputs = [layers.nru(one[None], w[:, None], smooth_amount(w[:, None], scale)).sum() for one in x]
        return torch.stack([torch.autograd.grad(y, w)[0] for y in outputs])

    def printed(exponent: Tensor) -> Tensor:
        tanh, bell = (scale * w).tanh(), 2 * scale / (scale * w).clamp(-300, 300).cosh().square()
        size = x.abs()[:, None]
        result: Tensor = tanh * (x.sign()[:, None] * size.pow(exponent) * (tanh * size.log() + bell) - bell)
        return result

    slopes, ones = derivative(x, w), derivative(doubles([1.0, -1.0]), w).abs().amax(1)
    small, large = doubles([settings["small"]]), doubles([settings["large"]])
    values = {
        "thesis_formula_difference": largest_gap(printed(w), slopes),
        "paper_formula_difference": largest_gap(printed(torch.ones_like(w)), slopes),
        "largest_at_one": float(ones[0]),
        "largest_at_minus_one": float(ones[1]),
        "largest_at_one_or_minus_one": float(ones.max()),
        "largest_at_weight_zero": float(slopes[:, w == 0].abs().max()),
        "small_input_small_weight": float(derivative(small, small).abs()),
        "large_input_weight_minus_one": float(derivative(large, doubles([-1.0])).abs()),
    }
    inside = w.abs() <= near
    named = {f"x = {one:g}": slope for one, slope in zip(x, slopes, strict=True)}
    panels = {
        "NRU in training, all weights": (w, named, "$w$", "dy/dw"),
        "NRU in training, near w = 0": (w[inside], {key: y[inside] for key, y in named.items()}, "$w$", "dy/dw"),
    }
    return Exact(values, plain_table(values), draw_curves(panels, scale={"yscale": "symlog"}))
