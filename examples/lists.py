"""A recurrent NSR: the least number of a list, and how often a number is in it; trained on five numbers, for a hundred."""

import torch
from torch import nn

import nalm
from piecewise import Branch, train


class Fold(nn.Module):
    """``m = branch(x, m)`` for each x of a list, from its first number on."""

    def __init__(self):
        super().__init__()
        self.branch = Branch(2)

    def forward(self, numbers):
        """(lists, numbers) -> (lists, 1)."""
        state, *others = numbers.split(1, -1)
        for x in others:
            state = self.branch(torch.cat([x, state], -1))
        return state


class Count(nn.Module):
    """``c = NAU(c, p)`` for each x of a list but the first; p is the truth of a learned comparison of x with the first."""

    def __init__(self):
        super().__init__()
        self.compare, self.add = nalm.NSR(2, 1, redundancy=3), nalm.NAU(2, 1)

    def forward(self, numbers):
        """(lists, numbers) -> (lists, 1)."""
        wanted, *others = numbers.split(1, -1)
        count = torch.zeros_like(wanted)
        for x in others:
            found = self.compare(torch.cat([wanted, x], -1))[..., 0]
            count = self.add(torch.cat([count, found if self.training else found.round()], -1))
        return count


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    for name, model, function, top in (
        ("minimum", Fold(), lambda x: x.amin(1, keepdim=True), 10),
        ("count", Count(), lambda x: (x[:, 1:] == x[:, :1]).sum(1, keepdim=True).float(), 3),
    ):
        train(model, function, lambda top=top: torch.randint(-top, top, (128, 6)).float(), steps=1500)
        x = torch.randint(-top * 1000, top * 1000, (1000, 101)).float()
        x[:, 1:30] = torch.where(torch.rand(1000, 29) < 0.5, x[:, :1], x[:, 1:30])
        right = (model(x) == function(x)).sum().item()
        print(f"{name}: {right} of 1,000 lists of a hundred right, numbers a thousand times as large as in training")


if __name__ == "__main__":
    main()
