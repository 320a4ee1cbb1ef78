"""Modules of one's own: units written from outside, what identifies a factory, registration, and what cannot be stacked."""

import torch
from torch import nn

import nalm


class Doubler(nalm.Unit):
    """A unit written with public names only: each output is a multiple of the sum of the selected inputs."""

    operations = ("add", "identity")
    legal_values = {"weight": (0, 1)}

    def __init__(self, in_features, out_features, *, factor=1.0, device=None, dtype=None):
        super().__init__(in_features, out_features)
        self.factor = factor
        self.weight = nn.Parameter(torch.empty(out_features, in_features, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self, generator=None):
        nn.init.uniform_(self.weight, 0.25, 0.75, generator=generator)

    def effective_weights(self):
        return {"weight": self.weight.clamp(0, 1)}

    def express_(self, operation, operands):
        self.weight.zero_()
        self.weight[:, list(operands)] = 1

    def forward(self, x):
        return self.factor * x @ self.weight.clamp(0, 1).T


def test_a_unit_from_outside_needs_no_private_name():
    layer = Doubler(3, 2).set_solution_("add", (0, 2))
    assert layer(torch.tensor([1.0, 10.0, 100.0])).tolist() == [101.0, 101.0]
    layer.weight.data += 0.1
    layer.snap_()
    assert nalm.sparsity_error(layer) == 0
    with torch.no_grad():
        layer.weight.fill_(0.25)
    assert nalm.sparsity_error(layer) == 0.25
