"""An NSR chooses which of two NAU sums holds: |a - b|, max and clip, learned on small numbers and right for large ones."""

import torch
from torch import nn

import nalm
from nalm.training import LinearRamp

STEPS = 4000


class Branch(nn.Module):
    """``p s1 + (1 - p) s2``: p is the truth of a learned comparison of two inputs, s1 and s2 are learned sums of them."""

    def __init__(self, inputs):
        super().__init__()
        self.compare, self.sums = nalm.NSR(inputs, 1), nalm.NAU(inputs, 2)

    def forward(self, x):
        return (self.compare(x).squeeze(-2) * self.sums(x)).sum(-1, keepdim=True)


class TwoBranches(nn.Module):
    """A second branch that sees the result of the first beside the inputs."""

    def __init__(self, inputs):
        super().__init__()
        self.first, self.second = Branch(inputs), Branch(inputs + 1)

    def forward(self, x):
        return self.second(torch.cat([x, self.first(x)], -1))


def train(model, function, inputs):
    """Adam on numbers between -10 and 10; the penalty draws selections and weights to whole numbers."""
    optimiser = torch.optim.Adam(model.parameters(), 0.02)
    strength = LinearRamp(1.0, start=STEPS // 2, end=3 * STEPS // 4)
    for step in range(STEPS):
        x = torch.empty(128, inputs).uniform_(-10, 10)
        loss = (model(x) - function(*x.split(1, -1))).square().mean() + strength(step) * nalm.penalty(model)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        nalm.project_(model)
    return model


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    for name, inputs, kind, function in (
        ("|a - b|", 2, Branch, lambda a, b: (a - b).abs()),
        ("max(a, b)", 2, Branch, torch.maximum),
        ("clip", 3, TwoBranches, lambda x, a, b: x.maximum(torch.minimum(a, b)).minimum(torch.maximum(a, b))),
    ):
        model = train(kind(inputs), function, inputs)
        x = torch.empty(10_000, inputs).uniform_(-1e4, 1e4)
        error = (model(x) - function(*x.split(1, -1))).abs()
        print(f"{name:10} median error {error.median():.2g}, largest {error.max():.2g}, on numbers up to 10,000")


if __name__ == "__main__":
    main()
