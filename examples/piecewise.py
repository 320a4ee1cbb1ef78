"""An NSR chooses which of two NAU sums holds: |a - b|, max and clip, learned on small numbers, for numbers up to a million."""

import torch
from torch import nn

import nalm
from nalm.training import LinearRamp


class Branch(nn.Module):
    """``p s1 + (1 - p) s2``: p is the truth of a learned comparison of two inputs, s1 and s2 are learned sums of them.

    In training the sums are weighed by p, in eval mode one of them is taken. An inner branch puts its
    result in place of the first two inputs.
    """

    def __init__(self, inputs, inner=None):
        super().__init__()
        self.inner, seen = inner, inputs - (inner is not None)
        self.compare, self.sums = nalm.NSR(seen, 1), nalm.NAU(seen, 2)

    def forward(self, x):
        """(..., inputs) -> (..., 1)."""
        x = x if self.inner is None else torch.cat([self.inner(x[..., :2]), x[..., 2:]], -1)
        share = self.compare(x).squeeze(-2)
        return ((share if self.training else share.round()) * self.sums(x)).sum(-1, keepdim=True)


def train(model, function, draw, steps=3000):
    """Adam, with a penalty that draws weights to whole numbers; what is left of the way is rounded at the end."""
    optimiser = torch.optim.Adam(model.parameters(), 0.02)
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
    larger = Branch(2)
    for name, inputs, model, function in (
        ("|a - b|", 2, Branch(2), lambda x: (x[:, :1] - x[:, 1:]).abs()),
        ("max(a, b)", 2, larger, lambda x: x.amax(1, keepdim=True)),
        ("min(max(a, b), c)", 3, Branch(3, larger), lambda x: x[:, :2].amax(1, keepdim=True).minimum(x[:, 2:])),
    ):
        train(model, function, lambda inputs=inputs: torch.empty(128, inputs).uniform_(-10, 10))
        x = torch.empty(10_000, inputs).uniform_(-1e6, 1e6)
        right = (model(x) == function(x)).sum().item()
        print(f"{name}: {right} of 10,000 right on numbers up to a million")


if __name__ == "__main__":
    main()
