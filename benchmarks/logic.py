"""How often NLRL learns Boolean rules and NSR comparisons: the tables and pictures of docs/logic.md.

    python benchmarks/logic.py                                      print the tables
    python benchmarks/logic.py --page docs/logic.md                 write them, and the pictures beside them, into the page

A run is solved if it gives no wrong answer on 10,000 test rows: random truth values, or numbers a thousand times as large as
in training. Every run is a single training from its own initial values, without restarts.
"""

from __future__ import annotations

import time
from itertools import product
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from torch.nn.utils import vector_to_parameters

import nalm
from measured import arguments, table, write_block
from nalm.models import model_of
from nalm.tasks import COMPARISONS, LOGIC, task_of

DEEP = ("xor", "equivalent", "majority")
"""Rules that take two layers."""
SIGNS = dict(zip(COMPARISONS, ("<", "<=", ">", ">=", "=", "!="), strict=True))
MAGNITUDES = 10.0 ** np.arange(1, 10)


def solved(module: str, task: str, operation: str, seeds: int, **options: Any) -> str:
    """How many of the runs are solved, as text."""
    result = nalm.benchmark(module, task, operation, seeds=seeds, **options)
    return f"{sum(run['solved'] for run in result.runs)} of {seeds}"


def rules(seeds: int) -> str:
    """Every rule with six inputs, four of them irrelevant (three for majority), and with eight; both forms of the layer."""
    rows = []
    for operation in LOGIC:
        module = "nlrl+nlrl" if operation in DEEP else "nlrl"
        kinds = [{}, {"module_options": {"disjunctions": False}}, {"inputs": 8}]
        counts = [solved(module, "logic", operation, seeds, **kind) for kind in kinds]
        rows.append([operation, "two" if operation in DEEP else "one", *counts])
    return table(["rule", "layers", "6 inputs", "6 inputs, AND-only form", "8 inputs"], rows)


def comparisons(seeds: int) -> str:
    """Every comparison on whole numbers and floats, with one path and ten, and with irrelevant inputs."""
    kinds: list[dict[str, Any]] = [
        {},
        {"module_options": {"redundancy": 10}},
        {"ranges": ["U[-10,10)"]},
        {"ranges": ["U[-10,10)"], "module_options": {"redundancy": 10}},
        {"inputs": 4},
    ]
    rows = [
        [SIGNS[operation], *(solved("nsr", "comparison", operation, seeds, **kind) for kind in kinds)]
        for operation in COMPARISONS
    ]
    return table(["comparison", "integers", "integers, redundancy 10", "floats", "floats, redundancy 10", "4 inputs"], rows)


def sweep(seeds: int, option: str, values: list[Any]) -> str:
    """Less-than and equality against an option of the layer, two inputs and four."""
    rows = []
    for operation, inputs in product(("lt", "eq"), (2, 4)):
        counts = [
            solved("nsr", "comparison", operation, seeds, inputs=inputs, module_options={option: value}) for value in values
        ]
        rows.append([f"{SIGNS[operation]}, {inputs} inputs", *counts])
    return table([option, *map(str, values)], rows)


def trained(module: str, task: str, operation: str, seeds: int, **options: Any) -> list[torch.nn.Module]:
    """The models of all runs, in double precision."""
    result = nalm.benchmark(module, task, operation, seeds=seeds, **options)
    hidden = task_of(task).data["hidden"]
    model = model_of(module, options.get("module_options"), hidden=hidden)
    models = []
    for run in result.runs:
        built = model.build(result.rows[0]["inputs"]).double().eval()
        vector_to_parameters(torch.tensor(run["weights"], dtype=torch.float64), built.parameters())
        models.append(built)
    return models


def truth_tables() -> Figure:
    """What the layers of seed 0 say on every row of the truth table, whatever the irrelevant inputs are."""
    figure = Figure(figsize=(11, 5.6), layout="constrained")
    for axes, operation in zip(figure.subplots(2, 5).flat, [*LOGIC, ""], strict=True):
        axes.set_axis_off()
        if not operation:
            continue
        (model,) = trained("nlrl+nlrl" if operation in DEEP else "nlrl", "logic", operation, 1)
        operands = [start for start, _ in task_of("logic").spans(6, 0, {}, operation)]
        names = [f"i{k}" for k in range(6)]
        for name, k in zip("abc", operands, strict=False):
            names[k] = name
        rows = torch.tensor(list(product((0.0, 1.0), repeat=6)), dtype=torch.float64)
        answers = model(rows).squeeze(-1).detach()
        keys = [tuple(int(v) for v in row) for row in rows[:, operands].tolist()]
        lines = sorted(set(keys))
        cells = [torch.stack([y for y, key in zip(answers, keys, strict=True) if key == line]) for line in lines]
        means = np.array([[float(cell.mean())] for cell in cells])
        axes.imshow(means, cmap="Blues", vmin=0, vmax=2.2, aspect="auto", extent=(0, 1, len(lines), 0))
        for k, (line, cell) in enumerate(zip(lines, cells, strict=True)):
            axes.text(-0.05, k + 0.5, " ".join(map(str, line)), ha="right", va="center", family="monospace")
            ends = sorted({f"{cell.min():.3f}", f"{cell.max():.3f}"})
            axes.text(0.5, k + 0.5, " to ".join(ends), ha="center", va="center", fontsize=9)
        axes.text(-0.05, -0.05, " ".join("abc"[: len(operands)]), ha="right", va="bottom", family="monospace")
        axes.set_title(f"{operation}\n{nalm.readout(model, names)}", fontsize=9)
    title = "Learned truth tables (seed 0): outputs for all irrelevant inputs (least to largest where they differ)"
    figure.suptitle(title, fontsize=10)
    return figure


def accuracy(models: list[torch.nn.Module], operation: str, magnitude: float, inputs: int) -> float:
    """Share of right answers on whole numbers: operands equal, one apart, or any, in a third of the rows each."""
    generator = torch.Generator().manual_seed(0)
    compare = {"lt": torch.lt, "eq": torch.eq}[operation]
    shares = []
    for seed, model in enumerate(models):
        x = torch.randint(-int(magnitude), int(magnitude), (3000, inputs), generator=generator).double()
        (a, _), (b, _) = task_of("comparison").spans(inputs, seed, {}, operation)
        x[:1000, b] = x[:1000, a]
        x[1000:2000, b] = x[1000:2000, a] + 1 - 2 * torch.randint(0, 2, (1000,), generator=generator)
        with torch.no_grad():
            answer = model(x)
        answer = answer[:, 0, 0] if answer.ndim == 3 else answer[:, 0]
        shares.append(float(((answer > 0.5) == compare(x[:, a], x[:, b])).double().mean()))
    return float(np.mean(shares))


def magnitudes(seeds: int) -> tuple[Figure, str]:
    """Accuracy against the size of the numbers, beside a ReLU network; trained on whole numbers from -10 to 9."""
    kinds: dict[str, tuple[str, str, dict[str, Any]]] = {
        "NSR, a < b": ("nsr", "lt", {}),
        "NSR, a = b, redundancy 10": ("nsr", "eq", {"module_options": {"redundancy": 10}}),
        "NSR, a < b, 2 irrelevant inputs": ("nsr", "lt", {"inputs": 4}),
        "NSR, a = b, 2 irrelevant inputs": ("nsr", "eq", {"inputs": 4}),
        "ReLU network, a < b": ("relu-mlp", "lt", {}),
        "ReLU network, a = b": ("relu-mlp", "eq", {}),
    }
    figure = Figure(figsize=(8, 4), layout="constrained")
    axes, rows = figure.subplots(), []
    for k, (label, (module, operation, options)) in enumerate(kinds.items()):
        models = trained(module, "comparison", operation, seeds, **options)
        shares = [accuracy(models, operation, size, options.get("inputs", 2)) for size in MAGNITUDES]
        axes.plot(
            MAGNITUDES, shares, marker="osD^vx"[k], markersize=9 - k, linestyle="-" if module == "nsr" else "--", label=label
        )
        rows.append([label, *(f"{share:.4f}" for share in shares)])
    axes.axvspan(5, 10, color="0.9", zorder=0)
    axes.set(xscale="log", xlabel="largest number (trained up to 10)", ylabel="share of right answers", ylim=(0, 1.05))
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8, loc="lower left", ncols=3)
    return figure, table(["", *(f"1e{round(np.log10(size))}" for size in MAGNITUDES)], rows)


def main() -> None:
    """Measure and print, or write into the page."""
    given = arguments(__doc__, seeds=25)
    began = time.perf_counter()
    figure, shares = magnitudes(given.seeds)
    parts = [
        "![Truth tables that NLRL layers learned](truth-tables.png)",
        "![Share of right answers of NSR layers and ReLU networks by the size of the numbers](comparison-accuracy.png)",
        "### NLRL: runs that learn the rule",
        rules(given.seeds),
        "### NSR: runs without a wrong answer at numbers a thousand times as large",
        comparisons(given.seeds),
        "### NSR: redundancy",
        sweep(given.seeds, "redundancy", [1, 2, 3, 5, 10]),
        "### NSR: scale of the difference",
        sweep(given.seeds, "scale", [0.01, 0.1, 1.0, 10.0, 100.0]),
        "### NSR: share of right answers by the size of the numbers",
        shares,
    ]
    text = "\n\n".join(parts)
    print(text)
    print(f"\n{given.seeds} seeds a condition, {time.perf_counter() - began:.0f} s")
    if given.page:
        write_block(given.page, text)
        figure.savefig(given.page.with_name("comparison-accuracy.png"), dpi=120)
        truth_tables().savefig(given.page.with_name("truth-tables.png"), dpi=120)


if __name__ == "__main__":
    main()
