"""What exact weights compute: errors, worked examples, what modules can represent, shapes of penalties."""

from __future__ import annotations

import math
from functools import partial
from itertools import pairwise, product
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from matplotlib.colors import Normalize
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from nalm import layers
from nalm.exact.base import (
    DOUBLE,
    Exact,
    Settings,
    doubles,
    draw_curves,
    draw_heat_maps,
    draw_uniform,
    largest_gap,
    plain_table,
    six_digits,
    spaced,
)
from nalm.layers.base import distance_to_bits, distance_to_integers, nac_weight, saturation_shortfall
from nalm.layers.division import with_reciprocals
from nalm.layers.gated import golden_sigmoid, golden_tanh
from nalm.layers.power import gated_polar
from nalm.registry import info

if TYPE_CHECKING:
    from collections.abc import Callable


__all__ = [
    "capabilities",
    "gold_errors",
    "golden_weights",
    "mlp_solutions",
    "nalu_example",
    "noise_bound",
    "parameter_counts",
    "penalty_shapes",
    "scaled_nmu",
    "selection_errors",
    "sign_machine",
]


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
    return Exact(values, table, draw_curves(panels, marked=True, scale={"xscale": "log", "yscale": "log"}))


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
            add.weight.copy_(doubles(weight))
            outputs[case] = {name: multiply(add(doubles(x))).item() for name, x in settings["inputs"].items()}
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
    side = spaced(settings["shown"], settings["points"])
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
                parameter.copy_(doubles(value))
            gap = (mlp(x)[:, 0] - (x[:, 0] + sign * x[:, 1])).abs()
        values[f"{name}_mse"] = float(gap.square().mean())
        values[f"{name}_error_on_positive"] = float(gap[(x > 0).all(-1)].max())
        maps[title] = (side, side, gap.reshape(len(side), -1))
    return Exact(values, plain_table(values), draw_heat_maps(maps, ("$x_1$", "$x_2$", "absolute error"), Normalize(0, 12)))


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
        x = doubles(settings["inputs"][inputs])
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
    return Exact(values, plain_table(values))


# Worked examples


def scaled_nmu(settings: Settings) -> Exact:
    """Two published sets of numbers of an NMU under min-max scaling: same function, and how well each fits the others."""
    slope, mean, half = doubles(settings["slope"]), doubles(settings["mean"]), doubles([settings["half_range"]])
    side = spaced((-1, 1), settings["points"])
    x = mean + torch.cartesian_prod(side, side) / slope
    values, table, outputs = {}, [], []
    for name, model in settings["models"].items():
        w_in, b_in, weight, w_out, b_out = (doubles(model[key]) for key in ("w_in", "b_in", "weight", "w_out", "b_out"))
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
            table.append({"model": name, "number": key, "published": six_digits(own), "implied": six_digits(other)})
    values["between_models"] = float((outputs[0] - outputs[1]).abs().max())
    return Exact(values, table)


def nalu_example(settings: Settings) -> Exact:
    """A NALU that subtracts, step by step, and the naive NPU as the real part of a product of complex powers."""
    x = doubles(settings["x"])
    layer = layers.NALU(len(x), 1, dtype=DOUBLE).set_solution_("sub")
    uniform = partial(draw_uniform, torch.Generator().manual_seed(settings["seed"]))
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
        difference = largest_gap(layers.npu(magnitude, phase, real, imaginary), powers.sum(-1).exp().real)
    values = {name: float(steps[key]) for name, key in (("summed", "NAC+"), ("multiplied", "NAC•, ε = 0"), ("output", "NALU"))}
    table = [{"step": name, "value": six_digits(value)} for name, value in steps.items()]
    return Exact({**values, "gate": float(steps["gate"]), "naive_npu_difference": difference}, table)


def sign_machine(settings: Settings) -> Exact:
    """Sign of the Real NPU's and the NMRU's output for every discrete input, weight and gate, against the state machine."""
    inputs = settings["inputs"]
    xs = doubles(list(product(settings["x"], repeat=inputs)))
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
            real.real.copy_(doubles([w]))
            real.gate.copy_(doubles(g))
            check("real-npu", real, xs, (xs < 0) & (real.real != 0) & (real.gate == 1))
        for w in product((0.0, 1.0), repeat=2 * inputs):
            nmru.weight.copy_(doubles([w]))
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
        x = doubles([[-spread], [spread]]) / math.sqrt(2)
        y = layer(x, noise=torch.ones_like(x))
        return float(((1 - y) / (y - x))[0].item())

    spreads = 10 ** spaced(settings["powers_of_ten"], settings["points"])
    bounds = doubles([bound(float(spread)) for spread in spreads])
    ranges = {f"U[{low:g},{high:g})": (high - low) / math.sqrt(12) for low, high in settings["ranges"]}
    values = {
        "formula_difference": largest_gap(bounds, 1 + 1 / spreads),
        **{name: bound(spread) for name, spread in ranges.items()},
    }
    table = [{"inputs": name, "standard deviation": spread, "upper bound": values[name]} for name, spread in ranges.items()]
    curves = {"1 + 1/σ(x)": bounds, "U[1, 5], the fixed noise": torch.full_like(bounds, 5)}
    panels = {"sNMU: upper end of the batch noise": (spreads, curves, "standard deviation σ(x) of the inputs", "upper bound")}
    return Exact(values, table, draw_curves(panels, scale={"xscale": "log", "yscale": "log"}))


def penalty_shapes(settings: Settings) -> Exact:
    """The penalties that make weights discrete, and the ramp of their strength."""
    start, end = settings["ramp"]
    w, raw, steps = spaced((-1.5, 1.5), 301), spaced((-30, 30), 301), spaced((0, 10), 301)
    penalties = {"NAU, to −1, 0, 1": distance_to_integers(w), "NMU, to 0, 1": distance_to_bits(w)}
    saturating = torch.stack([saturation_shortfall(one[None]) for one in raw])
    table = [
        {"w": one, "NAU": float(distance_to_integers(doubles(one))), "NMU": float(distance_to_bits(doubles(one)))}
        for one in settings["listed"]
    ]
    values = {f"{name}_{row['w']:g}": row[name.upper()] for row in table for name in ("nau", "nmu")}
    values |= {f"inalu_{one:g}": float(saturation_shortfall(doubles([one]))) for one in settings["listed_raw"]}
    ramp = {f"final strength 1, steps {start:g} to {end:g}": ((steps - start) / (end - start)).clamp(0, 1)}
    panels = {
        "penalty of NAU and NMU": (w, penalties, "weight", "penalty"),
        "strength during training": (steps, ramp, "step", "strength"),
        "penalty of the iNALU": (raw, {"t = 20": saturating}, "raw parameter", "penalty"),
    }
    return Exact(values, table, draw_curves(panels))


def golden_weights(settings: Settings) -> Exact:
    """Effective weight over both raw weights, with exponentials to the base e (NALU) and the golden ratio (G-NALU)."""
    side = spaced((-settings["reach"], settings["reach"]), settings["points"])
    raw = torch.cartesian_prod(side, side).requires_grad_(True)
    values, maps = {}, {}
    for name, w in (("NALU", nac_weight(*raw.T)), ("G-NALU", golden_tanh(raw[:, 0]) * golden_sigmoid(raw[:, 1]))):
        (slope,) = torch.autograd.grad(w.sum(), raw)
        values[f"{name}_steepest_slope"] = float(slope.norm(dim=1).max())
        values[f"{name}_discrete_share"] = float((distance_to_integers(w.detach()) < settings["discrete"]).double().mean())
        maps[f"{name}, base {'e' if name == 'NALU' else 'φ'}"] = (side, side, w.detach().reshape(len(side), -1))
    values["ratio_of_slopes"] = values["G-NALU_steepest_slope"] / values["NALU_steepest_slope"]
    labels = ("raw weight Ŵ", "raw weight M̂", "effective weight W")
    return Exact(values, plain_table(values), draw_heat_maps(maps, labels, Normalize(-1, 1), colours="RdBu_r"))
