"""An NSR chooses which of two NAU sums holds: |a - b|, max and clip, learned on small numbers and right for large ones."""

import torch
from torch import nn

import nalm
from nalm.training import LinearRamp

STEPS = 3000


class Branch(nn.Module):
    """``p s1 + (1 - p) s2``: p is the truth of a learned comparison of two inputs, s1 and s2 are learned sums of them.

    In training the sums are weighed by p, in eval mode one of them is taken.
    """

    def __init__(self, inputs):
        super().__init__()
        self.compare, self.sums = nalm.NSR(inputs, 1), nalm.NAU(inputs, 2)

    def forward(self, x):
        """(..., inputs) -> (..., 1)."""
        share = self.compare(x).squeeze(-2)
        return ((share if self.training else share.round()) * self.sums(x)).sum(-1, keepdim=True)


class TwoBranches(nn.Module):
    """A second branch that sees the result of the first beside the inputs."""

    def __init__(self, inputs):
        super().__init__()
        self.first, self.second = Branch(inputs), Branch(inputs + 1)

    def forward(self, x):
        """(..., inputs) -> (..., 1)."""
        return self.second(torch.cat([x, self.first(x)], -1))


def train(model, function, draw, steps=STEPS, rate=0.02):
    """Adam, with a penalty that draws weights to whole numbers; what is left of the way is rounded at the end."""
    optimiser = torch.optim.Adam(model.parameters(), rate)
    strength = LinearRamp(0.1, start=steps // 2, end=3 * steps // 4)
    for step in range(steps):
        x = draw()
        loss = (model(x) - function(x)).square().mean() + strength(step) * nalm.penalty(model)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        nalm.project_(model)
    nalm.snap_(model)
    return model.eval()


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    for name, inputs, model, function in (
        ("|a - b|", 2, Branch(2), lambda x: (x[:, :1] - x[:, 1:]).abs()),
        ("max(a, b)", 2, Branch(2), lambda x: x.amax(1, keepdim=True)),
        ("clip(a, b, c)", 3, TwoBranches(3), lambda x: x[:, :1].maximum(x[:, 1:2]).minimum(x[:, 2:])),
    ):
        train(model, function, lambda inputs=inputs: torch.empty(128, inputs).uniform_(-10, 10))
        x = torch.empty(10_000, inputs).uniform_(-1e6, 1e6)
        right = (model(x) == function(x)).sum().item()
        print(f"{name}: {right} of 10,000 right on numbers up to a million")


if __name__ == "__main__":
    main()
