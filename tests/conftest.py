"""What several test files share: the papers' ranges and the operations as plain functions."""

import os
import sys

import pytest
import torch
from hypothesis import HealthCheck, settings
from torch import nn

torch.set_num_threads(1)

settings.register_profile("quick", max_examples=60, deadline=None, derandomize=True)
settings.register_profile(
    "long", max_examples=5_000, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))

EXTRAPOLATION_RANGES = {
    "U[-40,-20)": [(-40, -20)],
    "U[-6,-2)": [(-6, -2)],
    "U[-6.1,-1.2)": [(-6.1, -1.2)],
    "U[-2,-0.2)": [(-2, -0.2)],
    "U[-6,-2)|U[2,6)": [(-6, -2), (2, 6)],
    "U[0.2,2)": [(0.2, 2)],
    "U[2,6)": [(2, 6)],
    "U[1.2,6)": [(1.2, 6)],
    "U[20,40)": [(20, 40)],
}
"""The nine test ranges of the single-module task."""

OPERATIONS = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "reciprocal": lambda a, b: 1 / a,
    "square": lambda a, b: a * a,
    "sqrt": lambda a, b: a.sqrt(),
    "identity": lambda a, b: a,
    "and": lambda a, b: a * b,
    "or": torch.maximum,
    "not": lambda a, b: 1 - a,
    "nand": lambda a, b: 1 - a * b,
    "nor": lambda a, b: (1 - a) * (1 - b),
    "implies": lambda a, b: torch.maximum(1 - a, b),
    "lt": lambda a, b: (a < b).to(a.dtype),
    "le": lambda a, b: (a <= b).to(a.dtype),
    "gt": lambda a, b: (a > b).to(a.dtype),
    "ge": lambda a, b: (a >= b).to(a.dtype),
    "eq": lambda a, b: (a == b).to(a.dtype),
    "ne": lambda a, b: (a != b).to(a.dtype),
}


def draw(parts, shape, generator):
    """Uniform numbers, each from one of the intervals, in float64."""
    choice = torch.randint(len(parts), shape, generator=generator)
    low = torch.tensor([float(a) for a, _ in parts], dtype=torch.float64)[choice]
    high = torch.tensor([float(b) for _, b in parts], dtype=torch.float64)[choice]
    return low + (high - low) * torch.rand(shape, generator=generator, dtype=torch.float64)


class Adder(nn.Module):
    """A user's module, which only the torch engine can train."""

    def __init__(self, in_features, out_features):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(out_features, in_features))

    def forward(self, x):
        return nn.functional.linear(x, self.weight)


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(20200131)


@pytest.fixture
def untraced():
    """No tracing of lines, which slows Numba's compiler by a third; what it compiles has no lines to count."""
    trace = sys.gettrace()
    sys.settrace(None)
    yield
    sys.settrace(trace)
