"""Blocked products: equal to the naive form, right at zero factors, and lean."""

import pytest
import torch
from torch.func import functional_call, grad, stack_module_state, vmap

import nalm
from nalm.layers import affine_product, pairwise_product, power_product, products


def naive_affine(x, weight, bias):
    return (x.unsqueeze(-2) * weight + bias).prod(-1)


def naive_power(x, exponent, amount):
    return (x.sign().unsqueeze(-2) * x.abs().unsqueeze(-2).pow(exponent) * amount + 1 - amount).prod(-1)


FORMS = {"affine": (affine_product, naive_affine), "power": (power_product, naive_power)}


@pytest.fixture(params=[False, True], ids=["whole", "blocks"])
def blocks(request, monkeypatch):
    """Run once as one block and once with blocks of a few outputs."""
    if request.param:
        monkeypatch.setattr(products, "BLOCK", 64)
    return request.param


@pytest.mark.parametrize("size", [1, 2, 3, 7, 16, 33])
def test_pairwise_product_is_the_product(size, generator):
    factors = torch.randn(5, size, generator=generator, dtype=torch.float64)
    torch.testing.assert_close(pairwise_product(factors), factors.prod(-1))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("inputs", [1, 2, 5, 8])
def test_values_and_gradients_equal_the_naive_form(form, inputs, blocks, generator):
    product, naive = FORMS[form]
    x = torch.randn(4, 3, inputs, generator=generator, dtype=torch.float64).requires_grad_()
    first, second = (torch.rand(7, inputs, generator=generator, dtype=torch.float64).requires_grad_() for _ in range(2))
    torch.testing.assert_close(product(x, first, second), naive(x, first, second))
    pull = torch.randn(4, 3, 7, generator=generator, dtype=torch.float64)
    mine = torch.autograd.grad(product(x, first, second), (x, first, second), pull)
    theirs = torch.autograd.grad(naive(x, first, second), (x, first, second), pull)
    torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("form", FORMS)
def test_second_derivatives(form, blocks, generator):
    product, _ = FORMS[form]
    x = (0.5 + torch.rand(8, 4, generator=generator, dtype=torch.float64)).requires_grad_()
    first, second = (torch.rand(3, 4, generator=generator, dtype=torch.float64).requires_grad_() for _ in range(2))
    assert torch.autograd.gradgradcheck(product, (x, first, second))


@pytest.mark.parametrize("zeros", [1, 2, 3])
def test_zero_factors_have_the_right_gradient(zeros, blocks, generator):
    """With one zero factor its own gradient is the product of the others; with two, every gradient is zero."""
    weight = torch.rand(6, 5, generator=generator, dtype=torch.float64).requires_grad_()
    x = torch.randn(8, 5, generator=generator, dtype=torch.float64)
    weight.data[:, :zeros] = 1.0
    x[:, :zeros] = 0.0
    x.requires_grad_()
    y = nalm.layers.nmu(x, weight)
    assert (y == 0).all()
    gx, gw = torch.autograd.grad(y.sum(), (x, weight))
    assert torch.autograd.gradcheck(nalm.layers.nmu, (x, weight))
    if zeros == 1:
        others = (x[:, None, 1:] * weight[:, 1:] + 1 - weight[:, 1:]).prod(-1)
        torch.testing.assert_close(gx[:, 0], others.sum(-1))
        assert (gx[:, 1:] == 0).all()
    else:
        assert (gx == 0).all()
        assert (gw == 0).all()


def test_power_product_at_zero_agrees_between_forms(monkeypatch):
    x = torch.tensor([[0.0, 2.0], [3.0, 0.0]], dtype=torch.float64)
    exponent = torch.tensor([[1.0, 0.5], [-1.0, 1.0], [0.0, 2.0]], dtype=torch.float64)
    results = []
    for block in (1 << 20, 1):
        monkeypatch.setattr(products, "BLOCK", block)
        leaves = [t.clone().requires_grad_() for t in (x, exponent, exponent.abs())]
        y = power_product(*leaves)
        results.append([y.detach(), *torch.autograd.grad(y.sum(), leaves)])
    for whole, blocked in zip(*results, strict=True):
        torch.testing.assert_close(whole, blocked, equal_nan=True)


@pytest.mark.parametrize("name", ["nmu", "snmu", "nru", "nru-sep-sign", "nmru", "nmru-gated"])
def test_blocked_layers_work_under_vmap_and_compile(name, monkeypatch, generator):
    monkeypatch.setattr(products, "BLOCK", 64)
    copies = [nalm.create(name, 4, 9, dtype=torch.float64).eval() for _ in range(3)]
    parameters, _ = stack_module_state(copies)
    x = 0.5 + torch.rand(3, 6, 4, generator=generator, dtype=torch.float64)

    def loss(parameters, x):
        return functional_call(copies[0], (parameters, {}), (x,)).square().mean()

    gradients = vmap(grad(loss))(parameters, x)
    for k, layer in enumerate(copies):
        layer(x[k]).square().mean().backward()
        for key, p in layer.named_parameters():
            torch.testing.assert_close(gradients[key][k], p.grad)
    torch._dynamo.reset()
    compiled = torch.compile(copies[0], fullgraph=True)
    copies[0].zero_grad()
    compiled(x[0]).square().mean().backward()
    for key, p in copies[0].named_parameters():
        torch.testing.assert_close(p.grad, gradients[key][0])


def test_wide_layer_never_holds_all_factors(monkeypatch):
    """No tensor of a forward and backward pass is larger than a block, though there are sixteen times as many factors."""
    largest = 0

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            nonlocal largest
            out = func(*args, **(kwargs or {}))
            for value in out if isinstance(out, tuple | list) else (out,):
                if isinstance(value, torch.Tensor):
                    largest = max(largest, value.untyped_storage().nbytes() // value.element_size())
            return out

    monkeypatch.setattr(products, "BLOCK", 1 << 14)
    layers = [nalm.create(name, 64, 64) for name in ("nmu", "nru", "nmru")]
    for layer in layers:
        x = (0.5 + torch.rand(64, 64)).requires_grad_()
        with Watch():
            layer(x).sum().backward()
    assert 0 < largest <= 1 << 14 < 64 * 64 * 64
