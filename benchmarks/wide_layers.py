"""Time and peak memory of a wide NMU, forward and backward, against the naive form and `nn.Linear`.

Each form runs in a process of its own; memory is the growth of the resident set over what the process held before.

    python benchmarks/wide_layers.py [--batch 128] [--inputs 1024] [--outputs 1024] [--repeats 5]
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time

FORMS = ("nalm.NMU", "naive (batch, in, out)", "nn.Linear")


def measure(form: str, batch: int, inputs: int, outputs: int, repeats: int) -> dict[str, float]:
    """Best time in seconds and growth of peak memory in megabytes of one forward and backward pass."""
    import torch

    import nalm

    def naive(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return (x.unsqueeze(-2) * weight + (1 - weight)).prod(-1)

    weight = torch.rand(outputs, inputs).mul_(0.5).add_(0.25).requires_grad_()
    x = torch.rand(batch, inputs).add_(0.5).requires_grad_()
    forms = {
        "nalm.NMU": nalm.layers.nmu,
        "naive (batch, in, out)": naive,
        "nn.Linear": torch.nn.functional.linear,
    }

    def run(x: torch.Tensor, weight: torch.Tensor) -> None:
        x.grad = weight.grad = None
        forms[form](x, weight).sum().backward()

    run(x[:2, :2].detach().requires_grad_(), weight[:2, :2].detach().requires_grad_())
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        run(x, weight)
        times.append(time.perf_counter() - began)
    return {"seconds": min(times), "megabytes": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024}


def main() -> None:
    """Measure the three forms one after the other and print a table with ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("batch", 128), ("inputs", 1024), ("outputs", 1024), ("repeats", 5)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--form", choices=FORMS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    sizes = (args.batch, args.inputs, args.outputs, args.repeats)
    if args.form:
        print(json.dumps(measure(args.form, *sizes)))
        return
    print(f"forward and backward, batch {args.batch}, {args.inputs} inputs, {args.outputs} outputs, best of {args.repeats}\n")
    results = {}
    for form in FORMS:
        command = [sys.executable, __file__, "--form", form]
        for name, value in zip(("batch", "inputs", "outputs", "repeats"), sizes, strict=True):
            command += [f"--{name}", str(value)]
        results[form] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    base = results[FORMS[1]]
    print(f"{'form':24}{'time':>12}{'peak memory':>14}{'time / naive':>15}{'memory / naive':>16}")
    for form, result in results.items():
        shares = (result["seconds"] / base["seconds"], result["megabytes"] / base["megabytes"])
        print(f"{form:24}{result['seconds']:>10.3f} s{result['megabytes']:>11.1f} MB{shares[0]:>15.3f}{shares[1]:>16.4f}")


if __name__ == "__main__":
    main()
