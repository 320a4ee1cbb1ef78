"""What division by zero gives, signs of large exponents, and products of thousands of inputs: layers and kernels alike."""

import numpy as np
import pytest
import torch

import nalm
from nalm.engine import fused, lookup
from nalm.engine.work import Work
from nalm.layers import nmu, products, snmu

pytestmark = pytest.mark.usefixtures("untraced")

DIVIDING = ("nru", "nru-sep-sign", "nmru", "nmru-no-sign", "nmru-gated")
every_division = pytest.mark.parametrize("name", DIVIDING)
ROWS = torch.tensor([[0.0, 0.0], [0.0, 5.0], [5.0, 0.0], [-5.0, 0.0], [2.0, 4.0], [-3.0, 2.0]], dtype=torch.float64)
QUOTIENTS = [np.nan, 0.0, np.inf, -np.inf, 0.5, -1.5]


def by_kernel(layer, x, target, noise=None):
    """Outputs of the fused kernel, and its gradient of the mean squared error, for all parameters."""
    parameters = np.concatenate([p.detach().numpy().ravel() for p in layer.parameters()])
    kernel = lookup.kernel_of(layer)
    work = Work.make(kernel, layer.in_features, layer.in_features, parameters.size, len(x), parameters.dtype.type)
    work.x[:], work.target[:] = x.detach().numpy().T, target.numpy()
    if noise is not None:
        work.noise[:] = noise.numpy().T
    fused.gradient(kernel, parameters, layer.training, work)
    return work.y, work.g


def by_torch(layer, x, target, *noise):
    """The same by the layer, and the gradient of the inputs."""
    x = x.clone().requires_grad_()
    layer.zero_grad()
    y = layer(x, *noise)[:, 0]
    (y - target).square().mean().backward()
    return y.detach().numpy(), np.concatenate([p.grad.numpy().ravel() for p in layer.parameters()]), x.grad


@every_division
def test_division_by_zero_is_an_invalid_answer_that_spoils_no_other(name):
    layer = nalm.create(name, 2, 1, dtype=torch.float64).eval().set_solution_("div")
    y, gradient, pull = by_torch(layer, ROWS, torch.ones(6, dtype=torch.float64))
    np.testing.assert_allclose(y, QUOTIENTS)
    assert np.isfinite(gradient).all()
    assert pull.isfinite().all()
    valid = torch.tensor(QUOTIENTS).isfinite()
    _, alone, _ = by_torch(layer, ROWS[valid], torch.ones(3, dtype=torch.float64))
    np.testing.assert_allclose(gradient, alone / 2, rtol=1e-12)


@every_division
def test_zeros_that_do_not_divide_do_no_harm(name):
    layer = nalm.create(name, 2, 1, dtype=torch.float64)
    for training in (True, False):
        layer.train(training).set_solution_("mul")
        y, gradient, pull = by_torch(layer, ROWS, torch.ones(6, dtype=torch.float64))
        np.testing.assert_allclose(y, ROWS.prod(1), atol=1e-12)
        assert np.isfinite(gradient).all()
        assert pull.isfinite().all()


@every_division
@pytest.mark.parametrize("training", [True, False])
def test_kernels_divide_by_zero_as_layers_do(name, training, generator):
    layer = nalm.create(name, 2, 1, dtype=torch.float64).train(training)
    target = torch.ones(6, dtype=torch.float64)
    for operation in ("mul", "div", "reciprocal", None):
        layer.reset_parameters(generator) if operation is None else layer.set_solution_(operation)
        y, gradient, _ = by_torch(layer, ROWS, target)
        own_y, own = by_kernel(layer, ROWS, target)
        np.testing.assert_allclose(own_y, y, rtol=1e-11, atol=1e-12)
        np.testing.assert_allclose(own, gradient, rtol=1e-9, atol=1e-11 * (1 + np.abs(gradient).max()))
    if name == "nmru-gated":
        layer.gate.data[:] = torch.tensor([1.0, 1.0, 0.0, 0.5])
        y, _, _ = by_torch(layer, ROWS, target)
        np.testing.assert_allclose(by_kernel(layer, ROWS, target)[0], y, rtol=1e-11, atol=1e-12)


def test_a_row_left_out_by_its_divisor_leaves_a_sum_or_product_as_without_it():
    layer = nalm.create("sum-or-product", 2, 1).set_solution_("div")
    x, pulls = torch.tensor([[3.0, 4.0], [1.0, 2.0], [1.0, 0.0]]), []
    for rows in (x, x[:2]):
        layer.zero_grad()
        torch.where(rows[:, 1:] != 0, layer(rows) - 1, 0).square().sum().backward()
        pulls.append(layer.mul_weight.grad.clone())
    torch.testing.assert_close(*pulls)


@pytest.mark.parametrize("name", [name for name, record in nalm.modules().items() if "div" in record.operations])
@pytest.mark.parametrize("training", [True, False])
def test_a_zero_divisor_poisons_no_batch(name, training, generator):
    """Every layer that divides: gradients of all parameters and inputs are finite where the row is left out of the loss."""
    layer = nalm.create(name, 2, 1).train(training)
    for start in (True, False):
        layer.set_solution_("div") if start else layer.reset_parameters(generator)
        x = torch.tensor([[0.0, 0.0], [3.0, 0.0], [2.0, 4.0]], requires_grad=True)
        layer.zero_grad()
        y = layer(x)
        torch.where(y.isfinite() & (y.abs() < 1e6), y, 0).square().sum().backward()
        for value in (x, *(p for p in layer.parameters() if p.requires_grad)):
            assert value.grad is None or value.grad.isfinite().all()


def test_reference_of_a_zero_divisor_in_a_stack(generator):
    """A sum that is zero behind which a quotient stands: the sum's weights keep a finite gradient."""
    for name in DIVIDING:
        stack = nalm.Stack(nalm.NAU(3, 2, dtype=torch.float64), nalm.create(name, 2, 1, dtype=torch.float64)).eval()
        stack[0].weight.data = torch.tensor([[1.0, 0, 0], [0, 1.0, -1.0]], dtype=torch.float64)
        stack[1].set_solution_("div")
        y = stack(torch.tensor([[1.0, 2.0, 2.0], [6.0, 5.0, 2.0]], dtype=torch.float64))
        assert y.flatten().tolist() == [np.inf, 2.0]
        y[1].backward()
        assert all(p.grad.isfinite().all() for p in stack.parameters())


@pytest.mark.parametrize("training", [True, False])
def test_sign_is_that_of_the_rounded_exponent(training, generator):
    """Whole exponents beyond the box have the sign of their parity; against NumPy."""
    layer = nalm.NRUSepSign(2, 1, dtype=torch.float64).train(training)
    x = torch.tensor([[-2.0, 3.0], [2.0, -3.0], [-2.0, -1.5], [0.5, 1.25]], dtype=torch.float64)
    for weights in [(2, 1), (2, 0), (-2, 1), (3, 2), (-3, -1), (1.6, -2.4), (1, 1), (0.4, -0.7), (-1, 1.5), (4, -4)]:
        layer.weight.data = torch.tensor([weights], dtype=torch.float64)
        w, values = np.array(weights, float), x.numpy()
        a = np.tanh(1000 * w) ** 2 if training else np.abs(w)
        truth = (a * np.abs(values) ** w + 1 - a).prod(1) * (np.sign(values) ** np.rint(w)).prod(1)
        np.testing.assert_allclose(layer(x).detach()[:, 0], truth, rtol=1e-12, err_msg=str(weights))
        _, gradient, _ = by_torch(layer, x, torch.ones(4, dtype=torch.float64))
        own_y, own = by_kernel(layer, x, torch.ones(4, dtype=torch.float64))
        np.testing.assert_allclose(own_y, truth, rtol=1e-11, err_msg=str(weights))
        np.testing.assert_allclose(own, gradient, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["snmu", "snmu-batch"])
def test_noise_of_ten_thousand_inputs_does_not_overflow(name, generator):
    layer = nalm.create(name, 10_000, 1, dtype=torch.float64)
    x = (1 + 0.01 * torch.randn(8, 10_000, generator=generator, dtype=torch.float64)).requires_grad_()
    noise = layer.sample_noise(x, generator)
    y = layer(x, noise)
    y.sum().backward()
    assert y.isfinite().all()
    assert (y > 0).all()
    assert layer.weight.grad.isfinite().all()
    assert x.grad.isfinite().all()
    own_y, own = by_kernel(layer, x, y.detach()[:, 0], noise)
    np.testing.assert_allclose(own_y, y.detach()[:, 0], rtol=1e-9)
    assert np.isfinite(own).all()


@pytest.mark.parametrize("block", [products.BLOCK, 16])
def test_noised_factors_are_the_published_quotient(block, monkeypatch, generator):
    monkeypatch.setattr(products, "BLOCK", block)
    x, noise = (torch.rand(3, 4, 5, generator=generator, dtype=torch.float64).requires_grad_() for _ in range(2))
    weight = torch.rand(6, 5, generator=generator, dtype=torch.float64).requires_grad_()
    pull = torch.randn(3, 4, 6, generator=generator, dtype=torch.float64)
    ours, published = snmu(x, weight, 1 + noise), nmu((1 + noise) * x, weight) / nmu(1 + noise, weight)
    torch.testing.assert_close(ours, published, rtol=1e-12, atol=0)
    first, second = (torch.autograd.grad(y, (x, weight, noise), pull) for y in (ours, published))
    torch.testing.assert_close(first, second)
    many = torch.stack([weight, 1 - weight])
    torch.testing.assert_close(torch.func.vmap(lambda w: snmu(x, w, 1 + noise))(many)[0], published)
