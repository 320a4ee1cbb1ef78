"""Which module for which operation: the tables of docs/choosing.md.

    python benchmarks/choosing.py                            print the tables
    python benchmarks/choosing.py --page docs/choosing.md    write them into the page

Every module that can express an operation, baselines apart, is trained on it: with the published recipe on two inputs and on
ten, of which eight are irrelevant, and with the robust recipe, where there is one, on ten. A number is the share of runs whose
test error, beyond the training range, is below 1e-5; it is a mean over the ranges of its column.
"""

from __future__ import annotations

import time

import numpy as np

import measured
import nalm

OPERATIONS = {"add": "a + b", "sub": "a - b", "mul": "a × b", "div": "a ÷ b"}
RANGES = {
    "positive": ("U[0.1,0.2)", "U[1,2)", "U[10,20)"),
    "negative": ("U[-0.2,-0.1)", "U[-2,-1)", "U[-20,-10)"),
    "both signs": ("U[-2,2)", "U[-2,-1)&U[1,2)"),
}
BASELINES = ("linear", "relu-mlp", "relu6-mlp", "product-fc", "quadratic")
COLUMNS = {"2 inputs": (2, "published"), "10 inputs": (10, "published"), "10 inputs, robust": (10, "robust")}


def shares(module: str, operation: str, inputs: int, recipe: str, seeds: int) -> list[str]:
    """Share of runs solved on each kind of range, as text; empty where the module has no such recipe."""
    if recipe == "robust" and nalm.modules()[module].robust is None:
        return [""] * len(RANGES)
    ranges = list(dict.fromkeys(text for part in RANGES.values() for text in part))
    result = nalm.benchmark(module, "single-module", operation, ranges, seeds, inputs=inputs, recipe=recipe)
    rates = {row["interpolation"]: row["success_rate"] for row in result.rows}
    means = [float(np.mean([rates[text] for text in part])) for part in RANGES.values()]
    return [f"**{mean:.2f}**" if mean == 1 else f"{mean:.2f}" for mean in means]


def table(operation: str, seeds: int) -> str:
    """A line for each module that can express an operation."""
    able = [name for name, record in nalm.modules().items() if operation in record.operations]
    names = [name for name in able if name not in BASELINES]
    head = ["module", *(f"{column}: {kind}" for column in COLUMNS for kind in RANGES)]
    rows = [
        [f"`{name}`", *(cell for how in COLUMNS.values() for cell in shares(name, operation, *how, seeds))] for name in names
    ]
    return measured.table(head, rows)


def main() -> None:
    """Measure and print, or write into the page."""
    given = measured.arguments(__doc__, seeds=10)
    began = time.perf_counter()
    parts = []
    for operation, formula in OPERATIONS.items():
        parts.append(f"### {formula}\n\n{table(operation, given.seeds)}")
        print(parts[-1], flush=True)
    print(f"\n{given.seeds} seeds a range, {time.perf_counter() - began:.0f} s")
    if given.page:
        measured.write_block(given.page, "\n\n".join(parts))


if __name__ == "__main__":
    main()
