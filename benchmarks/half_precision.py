"""Time of layers under autocast and in half precision, as ratios to the same layers in float32, all measured in one run.

    python benchmarks/half_precision.py [--batch 128] [--repeats 200]

Each repeat times every form once, one after the other, so that a slow moment of the machine falls on all; medians are compared.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import TYPE_CHECKING

import torch

import nalm

if TYPE_CHECKING:
    from collections.abc import Callable

SIZES = ((2, 1), (100, 100))
NAMES = ("nau", "nmu", "nmru", "real-npu", "inalu", "linear")


def forms(name: str, batch: int, sizes: tuple[int, int]) -> dict[str, Callable[[], None]]:
    """Forward and backward pass of a layer: without the wrapper, float32, under autocast, and in both half precisions."""
    layers = {dtype: nalm.create(name, *sizes, dtype=dtype) for dtype in (torch.float32, torch.bfloat16, torch.float16)}
    x = torch.rand(batch, sizes[0]) + 0.5
    inputs = {dtype: x.to(dtype) for dtype in layers}

    def run(dtype: torch.dtype, cast: bool = False) -> None:
        with torch.autocast("cpu", torch.bfloat16, enabled=cast):
            y = layers[dtype](inputs[dtype])
        y.float().sum().backward()

    def bare() -> None:
        with torch.autocast("cpu", enabled=False):
            y = type(layers[torch.float32]).forward.__wrapped__(layers[torch.float32], x)
        y.float().sum().backward()

    return {
        "without the wrapper": bare,
        "float32": lambda: run(torch.float32),
        "autocast": lambda: run(torch.float32, True),
        "bfloat16": lambda: run(torch.bfloat16),
        "float16": lambda: run(torch.float16),
    }


def medians(runs: dict[str, Callable[[], None]], repeats: int) -> dict[str, float]:
    """Median time of each form in microseconds, after ten repeats that do not count."""
    times: dict[str, list[float]] = {form: [] for form in runs}
    for repeat in range(repeats + 10):
        for form, run in runs.items():
            began = time.perf_counter()
            run()
            if repeat >= 10:
                times[form].append(time.perf_counter() - began)
    return {form: 1e6 * statistics.median(values) for form, values in times.items()}


def main() -> None:
    """Print a table in Markdown: time in float32, and what the other forms take relative to it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=200)
    args = parser.parse_args()
    torch.set_num_threads(1)
    print("| layer | sizes | float32, us | without the wrapper | autocast | bfloat16 | float16 |")
    print("| --- | --- | ---: | ---: | ---: | ---: | ---: |")
    for sizes in SIZES:
        for name in NAMES:
            found = medians(forms(name, args.batch, sizes), args.repeats)
            plain = found.pop("float32")
            ratios = " | ".join(f"{value / plain:.2f}" for value in found.values())
            print(f"| `{name}` | {sizes[0]} to {sizes[1]} | {plain:.0f} | {ratios} |")


if __name__ == "__main__":
    main()
