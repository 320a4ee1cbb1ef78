"""A recurrent NSR: the least number of a list, and how often a number is in it; trained on five numbers, right for a hundred."""

import torch
from torch import nn

import nalm
from nalm.training import LinearRamp

STEPS = 2000


class Least(nn.Module):
    """``m = p x + (1 - p) m`` for each x of the list: p is a learned comparison of x and m, both terms are learned sums."""

    def __init__(self):
        super().__init__()
        self.compare, self.sums = nalm.NSR(2, 1), nalm.NAU(2, 2)

    def forward(self, numbers):
        state, *others = numbers.split(1, -1)
        for x in others:
            pair = torch.cat([x, state], -1)
            state = (self.compare(pair).squeeze(-2) * self.sums(pair)).sum(-1, keepdim=True)
        return state


class Count(nn.Module):
    """``c = NAU(c, p)`` for each x of the list but the first, which p compares it with."""

    def __init__(self):
        super().__init__()
        self.compare, self.add = nalm.NSR(2, 1), nalm.NAU(2, 1)

    def forward(self, numbers):
        wanted, *others = numbers.split(1, -1)
        count = torch.zeros_like(wanted)
        for x in others:
            count = self.add(torch.cat([count, self.compare(torch.cat([wanted, x], -1))[..., 0]], -1))
        return count


def train(model, function, low, high):
    """Adam on lists of five whole numbers; the penalty draws selections and weights to whole numbers."""
    optimiser = torch.optim.Adam(model.parameters(), 0.02)
    strength = LinearRamp(1.0, start=STEPS // 2, end=3 * STEPS // 4)
    for step in range(STEPS):
        x = torch.randint(low, high, (128, 5)).float()
        loss = (model(x) - function(x)).square().mean() + strength(step) * nalm.penalty(model)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        nalm.project_(model)
    return model


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
