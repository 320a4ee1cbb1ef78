"""Autocast and half precision: layers compute in float32 at least and round once; and what division by zero gives."""

import copy
import re
import warnings
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, stack_module_state, vmap

import nalm
from conftest import OPERATIONS
from nalm.layers.precision import is_half

RECORDS = nalm.modules()
EXPRESSIBLE = [(name, operation) for name, record in RECORDS.items() for operation in record.operations]
every_solution = pytest.mark.parametrize(("name", "operation"), EXPRESSIBLE)
every_module = pytest.mark.parametrize("name", RECORDS)
HALVES = (torch.float16, torch.bfloat16)


def whole_numbers(name, largest, generator, rows=400):
    """Whole numbers up to the largest, 1234 and 57 among them, of both signs where the layer takes them; (rows, 2)."""
    domain = RECORDS[name].domain
    if domain == "boolean":
        return torch.randint(0, 2, (rows, 2), generator=generator).float()
    x = torch.randint(1, largest + 1, (rows, 2), generator=generator).float()
    x[0] = torch.tensor([1234.0, 57.0]).clamp_max(largest)
    if domain != "positive":
        x *= 1 - 2 * torch.randint(0, 2, x.shape, generator=generator)
    return x


def solved(name, operation):
    return nalm.create(name, 2, 1).eval().set_solution_(operation)


def first(y):
    return (y[..., 0] if y.ndim == 3 else y).squeeze(-1)


@every_solution
def test_whole_numbers_are_as_exact_under_autocast_as_without(name, operation, generator):
    x = whole_numbers(name, 2_000, generator)
    x = x.abs() if operation == "sqrt" else x
    layer = solved(name, operation)
    plain = layer(x)
    for dtype in HALVES:
        with torch.autocast("cpu", dtype):
            assert torch.equal(layer(x), plain)
            assert layer(x).dtype == torch.float32
    exact = OPERATIONS[operation](*x.double().unbind(-1))
    inside = exact.abs() < 1e8  # the cap of the iMNAC
    close = {"rtol": 2e-6, "atol": 1e-6 if RECORDS[name].domain in ("boolean", "integer") else 0}
    if operation in ("add", "sub"):
        close = {"rtol": 0, "atol": 0}
    torch.testing.assert_close(first(plain).double()[inside], exact[inside], **close)


@every_solution
def test_half_precision_layers_round_once(name, operation, generator):
    x = whole_numbers(name, 200, generator)
    x = x.abs() if operation == "sqrt" else x
    for dtype in HALVES:
        layer = solved(name, operation).to(dtype)
        expected = copy.deepcopy(layer).float()(x)
        y = layer(x.to(dtype))
        assert y.dtype == dtype
        assert torch.equal(y, expected.to(dtype))
        with torch.autocast("cpu", dtype):
            assert torch.equal(layer(x.to(dtype)), expected)
        assert torch.equal(layer.set_solution_(operation)(x.to(dtype)), y), "solutions can be set in half precision"


@every_module
@pytest.mark.parametrize("training", [True, False])
def test_gradients_in_half_precision_and_under_autocast_are_finite(name, training, generator):
    x = whole_numbers(name, 3, generator)
    for dtype in (torch.float32, *HALVES):
        layer = nalm.create(name, 2, 2, dtype=dtype).train(training)
        given = x.clone().to(dtype).requires_grad_()
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.float32):
            y = layer(given)
        y.float().square().mean().backward()
        for value in (given, *(p for p in layer.parameters() if p.requires_grad)):
            assert value.grad is None or value.grad.isfinite().all()


def test_inputs_of_any_precision_reach_any_layer():
    network = nn.Sequential(nn.Linear(3, 2), nalm.NAU(2, 2), nalm.NMU(2, 1), nn.Linear(1, 1))
    with torch.autocast("cpu", torch.bfloat16):
        network(torch.randn(4, 3)).sum().backward()
    assert all(p.grad.isfinite().all() for p in network.parameters())
    for of_layer, of_input, of_output in [
        (torch.float32, torch.bfloat16, torch.float32),
        (torch.float16, torch.bfloat16, torch.float16),
        (torch.float16, torch.float64, torch.float16),
        (torch.float64, torch.float16, torch.float64),
    ]:
        for layer in (nalm.NAU(2, 1), nalm.NMU(2, 1)):
            assert layer.to(of_layer)(torch.ones(3, 2, dtype=of_input)).dtype == of_output


class Sum(nalm.Unit):
    def __init__(self):
        super().__init__(2, 1)
        self.register_buffer("weight", torch.ones(1, 2))

    def reset_parameters(self, generator=None):
        pass

    def effective_weights(self):
        return {"weight": self.weight}

    def express_(self, operation, operands):
        pass


class Linear:
    def forward(self, inputs):
        return nn.functional.linear(inputs, self.weight)


class Mixed(Linear, Sum):
    pass


@pytest.mark.parametrize("dtype", HALVES)
def test_buffers_and_a_forward_from_another_class_are_precise_too(dtype):
    x = torch.tensor([[200.0, 57.0]])
    for layer in (Mixed(), nalm.Stack(Mixed())):
        with torch.autocast("cpu", dtype):
            assert layer(x).item() == 257
        assert torch.equal(layer.to(dtype)(x.to(dtype)), torch.tensor([[257]], dtype=dtype))
        assert is_half(layer)
    with torch.autocast("cpu", dtype):
        assert Mixed()(inputs=x).item() == 257
    with pytest.raises(TypeError, match="inputs"):
        Mixed()()


def test_networks_round_once():
    def sums():
        return nalm.NAU(2, 1).set_solution_("add")

    x = torch.tensor([[200.0, 57.0]])
    stack = nalm.Stack(sums(), nalm.NMU(1, 1).set_solution_("identity"), nalm.NRU(1, 1).set_solution_("reciprocal")).eval()
    gated = nalm.Gated(sums(), nalm.NMU(2, 1).set_solution_("mul")).eval()
    pads = [nalm.NAU(3, 1).set_solution_("add"), nalm.NMU(3, 1).set_solution_("mul")]
    for network in (stack, gated, nalm.RecurrentSelector(pads, steps=1).eval(), nalm.FrozenSelector(2).eval()):
        expected = network(x)
        with torch.autocast("cpu", torch.bfloat16):
            assert torch.equal(network(x), expected)
        half = copy.deepcopy(network).bfloat16()
        assert torch.equal(half(x.bfloat16()), copy.deepcopy(half).float()(x).bfloat16())


@pytest.mark.parametrize("name", ["nau", "nmru", "inalu", "relu-mlp"])
def test_half_precision_layers_can_be_transformed(name, generator):
    layers = [nalm.create(name, 2, 1).eval().bfloat16() for _ in range(3)]
    x = whole_numbers(name, 50, generator).bfloat16()
    parameters, _ = stack_module_state(layers)

    def output(parameters):
        return functional_call(layers[0], parameters, (x,))

    assert torch.equal(vmap(output)(parameters), torch.stack([layer(x) for layer in layers]))
    pulled = vmap(grad(lambda p: output(p).float().mean()))(parameters)
    assert all(g.dtype == torch.bfloat16 and g.isfinite().all() for g in pulled.values())
    assert torch.equal(torch.export.export(layers[0], (x,)).module()(x), layers[0](x))
    torch._dynamo.reset()
    assert torch.equal(torch.compile(layers[0], fullgraph=True, backend="eager")(x), layers[0](x))
    x.requires_grad_()
    (slope,) = torch.autograd.grad(layers[0](x).sum(), x, create_graph=True)
    if slope.requires_grad:
        slope.sum().backward()
    assert nalm.create(name, 2, 1, device="meta", dtype=torch.float16)(x.half().to("meta")).dtype == torch.float16


def test_parameters_that_cannot_be_trained_are_said_so():
    with pytest.warns(UserWarning, match=r"half precision, where numbers near 1 are 0\.001 .* Train in float32"):
        nalm.project_(nn.Sequential(nalm.NAU(2, 2), nalm.NMU(2, 1)).half())
    x = torch.rand(300, 2, generator=torch.Generator().manual_seed(0)) + 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        nalm.project_(nalm.NAU(2, 1))
        layer = nalm.NAU(2, 1).half()
        assert nalm.fit(layer, x, x.sum(1), generator=torch.Generator().manual_seed(0)).verified
        assert layer.weight.tolist() == [[1, 1]]
    with pytest.warns(UserWarning, match=r"torch\.float16 cannot hold the weights .* use a float32 layer"):
        nalm.fit(layer, x, 0.3 * x[:, 0], generator=torch.Generator().manual_seed(0))


def test_the_page_on_precision_says_which_whole_numbers_are_exact():
    text = (Path(__file__).parent.parent / "docs" / "precision.md").read_text()
    rows = re.findall(r"\| `torch\.(\w+)` \| (\d+) \| (\d+) \| ([\d.]+) \|", text)
    assert [name for name, *_ in rows] == ["bfloat16", "float16", "float32", "float64"]
    for name, largest, after, step in rows:
        dtype = getattr(torch, name)
        top = torch.tensor([int(largest), int(largest) + 1, int(after)], dtype=torch.int64)
        assert top.to(dtype).to(torch.int64).tolist() == [int(largest), int(largest), int(after)]
        assert torch.finfo(dtype).eps == pytest.approx(float(step), rel=0.02)
        small = torch.arange(min(int(largest), 5_000) + 1)
        assert torch.equal(small.to(dtype).to(torch.int64), small)
