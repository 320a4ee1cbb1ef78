"""Train one layer for each of the four operations and print the formulas that they learned."""

import time

import torch

import nalm
from nalm.training import LinearRamp

STEPS = 6000
OPERATIONS = {
    "a + b": ("nau", 1e-2, lambda a, b: a + b),
    "a - b": ("nau", 1e-2, lambda a, b: a - b),
    "a * b": ("snmu", 1e-2, lambda a, b: a * b),
    "a / b": ("nmru", 1e-2, lambda a, b: a / b),
}


def train(layer, target, rate):
    """Fit a layer to a function of its first two inputs, with inputs from [1, 2), and draw its weights to whole numbers."""
    optimiser = torch.optim.Adam(layer.parameters(), rate)
    decay = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, STEPS)
    strength = LinearRamp(1.0, start=STEPS // 3, end=STEPS // 2)
    for step in range(STEPS):
        x = torch.empty(128, 3).uniform_(1, 2)
        loss = (layer(x) - target(x[:, :1], x[:, 1:2])).square().mean()
        optimiser.zero_grad()
        (loss + strength(step) * layer.penalty()).backward()
        torch.nn.utils.clip_grad_norm_(layer.parameters(), 1.0)
        optimiser.step()
        decay.step()
        layer.project_()
    return layer.eval()


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    print("Each layer sees three inputs from [1, 2); the third has nothing to do with the target.\n")
    for name, (module, rate, target) in OPERATIONS.items():
        began = time.perf_counter()
        layer = train(nalm.create(module, 3, 1), target, rate)
        x = torch.tensor([[1234.0, -56.0, 7.0]])
        wanted, got = target(*x[0, :2]).item(), layer(x).item()
        formula = nalm.readout(layer, ["a", "b", "c"])
        label = nalm.modules()[module].label
        print(f"{name}   {label:5} learned  {formula!s:6}  at a = 1234, b = -56: {got:.7g} (true {wanted:.7g})", end="")
        print(f"   {time.perf_counter() - began:.1f} s")


if __name__ == "__main__":
    main()
