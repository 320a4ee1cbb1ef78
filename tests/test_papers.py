"""Formulas printed in the papers, checked by number: initial values, gradients, moments, special values."""

import math

import numpy as np
import pytest
import torch
from scipy import integrate

import nalm
from nalm.layers import nmu, snmu
from nalm.layers.base import nac_bound, nau_bound
from nalm.layers.gated import golden_sigmoid, golden_tanh

D = torch.float64


@pytest.mark.parametrize(
    ("sizes", "nac", "nau"),
    [
        ((1, 1), 9.4714, 0.5),
        ((2, 1), 9.4714, 0.5),
        ((4, 2), 5.4255, 0.5),
        ((10, 1), 2.2605, 0.5),
        ((10, 2), 2.0743, 0.5),
        ((100, 1), 0.5066, 0.2437),
        ((100, 2), 0.5039, 0.2425),
        ((100, 10), 0.4839, 0.2336),
    ],
)
def test_initial_bounds(sizes, nac, nau):
    assert nac_bound(*sizes) == pytest.approx(nac, abs=6e-5)
    assert nau_bound(*sizes) == pytest.approx(nau, abs=6e-5)


def test_initial_values():
    """Ranges and means over a large layer, module by module."""
    torch.manual_seed(0)

    def spread(name, key):
        value = dict(nalm.create(name, 400, 400).named_parameters())[key]
        return value.min().item(), value.max().item(), value.mean().item(), value.std().item()

    glorot = math.sqrt(6 / 800)
    for name in ("nmu", "snmu", "snmu-batch", "nmru", "nmru-gated", "nmru-no-sign", "nac-mul-nmu", "product-fc"):
        low, high, mean, _ = spread(name, "weight")
        assert (low, high, mean) == pytest.approx((0.25, 0.75, 0.5), abs=2e-3), name
    for name, key in [("nau", "weight"), ("nru", "weight"), ("npu", "real"), ("real-npu-mod", "real"), ("nalu", "gate_weight")]:
        low, high, _, _ = spread(name, key)
        assert (low, high) == pytest.approx((-glorot, glorot), rel=1e-2), name
    for key, mean, std in [("add.w_hat", 0.88, 0.2), ("mul.m_hat", 0.5, 0.2), ("gate_hat", 0.0, 0.2)]:
        assert spread("inalu", key)[2:] == pytest.approx((mean, std), abs=0.04)
    assert spread("nac-mul-sigmoid", "w_hat")[3] == pytest.approx(math.sqrt(2 / 800), rel=1e-2)
    assert spread("npu", "imaginary")[:2] == (0, 0)
    for name, key in [("npu", "gate"), ("real-npu-mod", "gate"), ("nmru-gated", "gate"), ("stgnmu", "mu")]:
        assert spread(name, key)[:2] == (0.5, 0.5)
    for options, bound in [({}, math.sqrt(2)), ({"constrained_start": True}, 0.5)]:
        starts = torch.cat([nalm.RealNPU(2, 1, **options).real.detach() for _ in range(2000)])
        assert starts.abs().max().item() == pytest.approx(bound, rel=1e-2)


def test_nac_weight_gradient():
    """Madsen and Johansen, appendix A.1."""
    layer = nalm.NACAdd(3, 2, dtype=D)
    x = torch.randn(1, 3, dtype=D)
    layer(x).sum().backward()
    w, m = layer.w_hat, layer.m_hat
    gradient = x.expand(2, 3)
    torch.testing.assert_close(w.grad, gradient * (1 - w.tanh() ** 2) * m.sigmoid())
    torch.testing.assert_close(m.grad, gradient * w.tanh() * m.sigmoid() * (1 - m.sigmoid()))


def test_nac_mul_gradient():
    """Madsen and Johansen, appendix A.2."""
    weight = torch.randn(2, 3, dtype=D).requires_grad_()
    x = torch.randn(3, dtype=D).requires_grad_()
    z = nalm.layers.log_product(x, weight)
    gw, gx = torch.autograd.grad(z.sum(), (weight, x))
    torch.testing.assert_close(gw, z[:, None] * (x.abs() + 1e-7).log())
    torch.testing.assert_close(gx, (z[:, None] * weight * x.sign() / (x.abs() + 1e-7)).sum(0))


def test_nmu_gradient():
    """Madsen and Johansen, appendix A.3."""
    weight = torch.rand(2, 3, dtype=D).requires_grad_()
    x = torch.randn(3, dtype=D).requires_grad_()
    z = nmu(x, weight)
    gw, gx = torch.autograd.grad(z.sum(), (weight, x))
    factors = weight * x + 1 - weight
    torch.testing.assert_close(gw, z[:, None] / factors * (x - 1))
    torch.testing.assert_close(gx, (z[:, None] / factors * weight).sum(0))


@pytest.fixture
def two_layers():
    """A sample, a NAU weight (in, hidden) and an NMU weight (hidden, 1), as in the stochastic NMU paper, appendix H."""
    torch.manual_seed(1)
    x, noise = torch.randn(5, dtype=D), 1 + 4 * torch.rand(3, dtype=D)
    add = (torch.rand(5, 3, dtype=D) - 0.5).requires_grad_()
    mul = torch.rand(3, dtype=D).requires_grad_()
    return x, noise, add, mul


def without(values, index):
    return torch.cat([values[:index], values[index + 1 :]])


def test_nau_nmu_gradients(two_layers):
    """Appendix H.3: gradients of the squared error with respect to any NAU and NMU weight."""
    x, _, add, mul = two_layers
    target, z = 0.7, x @ add
    y = nmu(z, mul[None])[0]
    g_add, g_mul = torch.autograd.grad((target - y) ** 2, (add, mul))
    factors = mul * z + 1 - mul
    for k in range(3):
        others = without(factors, k).prod()
        torch.testing.assert_close(g_add[:, k], -2 * (target - y) * mul[k] * x * others)
        torch.testing.assert_close(g_mul[k], -2 * (target - y) * (z[k] - 1) * others)


def test_nau_snmu_gradients(two_layers):
    """Appendix H.4; the printed indices of W^M and N in the first formula should be those of the hidden unit."""
    x, noise, add, mul = two_layers
    target, z = 0.7, x @ add
    y = snmu(z, mul[None], noise)[0]
    g_add, g_mul = torch.autograd.grad((target - y) ** 2, (add, mul))
    noised, plain = mul * noise * z + 1 - mul, mul * noise + 1 - mul
    total = plain.prod()
    for k in range(3):
        others, others_plain = without(noised, k).prod(), without(plain, k).prod()
        torch.testing.assert_close(g_add[:, k], -2 * (target - y) * others / total * mul[k] * noise[k] * x)
        bracket = total * (noise[k] * z[k] - 1) - noised[k] * (noise[k] - 1) * others_plain
        torch.testing.assert_close(g_mul[k], -2 * (target - y) * others / total**2 * bracket)


@pytest.mark.parametrize("r", [0.3, 1.0, 5.0])
def test_nac_weight_variance(r):
    """Madsen and Johansen, appendix B.2: variance of tanh times sigmoid of uniform numbers."""
    printed = (1 - math.tanh(r) / r) * (r - math.tanh(r / 2)) / (2 * r)
    tanh2 = integrate.quad(lambda t: math.tanh(t) ** 2 / (2 * r), -r, r)[0]
    sigmoid2 = integrate.quad(lambda t: 1 / (1 + math.exp(-t)) ** 2 / (2 * r), -r, r)[0]
    assert printed == pytest.approx(tanh2 * sigmoid2, rel=1e-9)


@pytest.mark.parametrize(("inputs", "weight_variance"), [(2, 1 / 48), (4, 1 / 12), (6, 1 / 12)])
def test_nmu_moments(inputs, weight_variance):
    """Madsen and Johansen, appendix B.4: mean and variance of output and of the gradient, for inputs of mean zero."""
    torch.manual_seed(2)
    runs, variance = 2_000_000, 0.5
    width = math.sqrt(3 * weight_variance)
    weight = 0.5 + width * (2 * torch.rand(runs, 1, inputs, dtype=D) - 1)
    x = (math.sqrt(3 * variance) * (2 * torch.rand(runs, 1, inputs, dtype=D) - 1)).requires_grad_()
    z = (weight * x + 1 - weight).prod(-1)
    (gradient,) = torch.autograd.grad(z.sum(), x)
    second = weight_variance + 0.25
    assert z.mean().item() == pytest.approx(0.5**inputs, rel=0.02)
    assert z.var().item() == pytest.approx((second * (variance + 1)) ** inputs - 0.25**inputs, rel=0.02)
    uniform_pull = second**inputs * (variance + 1) ** (inputs - 1)
    assert gradient.square().mean().item() == pytest.approx(uniform_pull, rel=0.02)


@pytest.mark.parametrize("inputs", [2, 4])
def test_nac_mul_moments(inputs):
    """Madsen and Johansen, equation 30: the Taylor estimate holds for weights of small variance and nearly constant inputs."""
    torch.manual_seed(3)
    weight_variance, mean = 0.01, 2.0
    weight = math.sqrt(3 * weight_variance) * (2 * torch.rand(1_000_000, inputs, dtype=D) - 1)
    x = mean + 0.01 * torch.randn(1_000_000, inputs, dtype=D)
    z = ((x.abs() + 1e-7).log() * weight).sum(-1).exp()

    def estimate(scale, power):
        return (1 + scale * 0.5 * weight_variance * math.log(mean + 1e-7) ** 2) ** (power * inputs)

    assert z.mean().item() == pytest.approx(estimate(1, 1), rel=2e-3)
    assert z.var().item() == pytest.approx(estimate(4, 1) - estimate(1, 2), rel=3e-2)


def test_golden_ratio_functions():
    phi = (1 + math.sqrt(5)) / 2
    x = torch.linspace(-5, 5, 101, dtype=D)
    torch.testing.assert_close(golden_tanh(x), (phi ** (2 * x) - 1) / (phi ** (2 * x) + 1))
    torch.testing.assert_close(golden_sigmoid(x), 1 / (1 + phi ** (-x)))


def test_golden_product_path_equals_the_natural_one():
    """G-NALU's phi^(W ln x / ln phi) is exp(W ln x)."""
    layer = nalm.GNALU(2, 1, dtype=D)
    layer.gate_weight.data.fill_(-1e9)
    x = torch.tensor([[1.3, 2.7]], dtype=D)
    weight = layer.effective_weights()["weight"]
    phi = (1 + math.sqrt(5)) / 2
    torch.testing.assert_close(layer(x), phi ** (((x + 1e-7).log() @ weight.T) / math.log(phi)))


def test_nlrl_disjunction_equals_the_kronecker_expansion():
    """Thesis, equation 2.27: the Kronecker products of (1, -a v) expand to the product of complements."""
    rng = np.random.default_rng(4)
    weight, x, negation = rng.random(4), rng.random(4), rng.random(4)
    v = (1 - negation) * x + negation * (1 - x)
    terms = np.array([-1.0, weight[0] * v[0]])
    for a, u in zip(weight[1:], v[1:], strict=True):
        terms = np.kron(np.array([1.0, -a * u]), terms)
    tensors = [torch.tensor(values)[None] for values in (x, weight, negation)]
    assert nalm.layers.disjunction(*tensors).item() == pytest.approx(terms.sum() + 1, rel=1e-12)


def test_inalu_caps_the_sum_of_logarithms():
    layer = nalm.iMNAC(2, 1, dtype=D).set_solution_("mul")
    y = layer(torch.tensor([[-1e6, 1e6], [2.0, -3.0]], dtype=D))
    torch.testing.assert_close(y, torch.tensor([[-math.exp(20)], [-6.0]], dtype=D))


def test_nru_smooth_amount_is_for_training_only():
    layer = nalm.NRU(2, 1, dtype=D)
    layer.weight.data = torch.tensor([[0.4, -0.002]], dtype=D)
    x = torch.tensor([[2.0, -3.0]], dtype=D)

    def formula(amount):
        return (x.sign() * x.abs() ** layer.weight * amount + 1 - amount).prod(-1, keepdim=True)

    torch.testing.assert_close(layer.train()(x), formula((1000 * layer.weight).tanh() ** 2))
    torch.testing.assert_close(layer.eval()(x), formula(layer.weight.abs()))


def test_nmru_adds_epsilon_in_training_only():
    layer = nalm.NMRU(1, 1).set_solution_("reciprocal")
    x = torch.tensor([[1e-6]])
    eps = torch.finfo(torch.float32).eps
    torch.testing.assert_close(layer.train()(x), 1 / (x + eps))
    torch.testing.assert_close(layer.eval()(x), 1 / x)


def test_npu_keeps_epsilon_in_eval_mode():
    x, eps = torch.tensor([[1e-6]]), torch.finfo(torch.float32).eps
    torch.testing.assert_close(nalm.RealNPU(1, 1).set_solution_("reciprocal").eval()(x), 1 / (x + eps))
    torch.testing.assert_close(nalm.RealNPU(1, 1, epsilon=0.0).set_solution_("reciprocal").eval()(x), 1 / x)


def test_npu_and_naive_npu_agree_with_complex_powers():
    torch.manual_seed(5)
    x = torch.randn(6, 3, dtype=D)
    real, imaginary = torch.randn(2, 3, dtype=D), torch.randn(2, 3, dtype=D)
    log = torch.complex((x.abs() + torch.finfo(torch.float32).eps).log(), (x < 0).to(D) * math.pi)
    powers = torch.exp(log[:, None] * torch.complex(real, imaginary)).prod(-1).real
    naive, full = nalm.NaiveNPU(3, 2, dtype=D), nalm.NPU(3, 2, dtype=D)
    for layer in (naive, full):
        layer.real.data, layer.imaginary.data = real, imaginary
    full.gate.data.fill_(1.0)
    torch.testing.assert_close(naive(x), powers)
    torch.testing.assert_close(full(x), powers)


def test_published_sparsity_errors_of_two_part_modules():
    """Means over real and imaginary exponents (NPU), and over both paths (iNALU); the gate never counts."""
    layer = nalm.NPU(2, 1)
    layer.real.data, layer.imaginary.data = torch.tensor([[0.9, 0.0]]), torch.tensor([[0.3, 0.0]])
    assert layer.sparsity_error().item() == pytest.approx((0.1 + 0.3) / 2)
    real = nalm.RealNPU(2, 1)
    real.real.data = torch.tensor([[0.9, 0.02]])
    assert real.sparsity_error().item() == pytest.approx(0.1)
    both = nalm.iNALU(2, 1).set_solution_("mul")
    both.add.m_hat.data.fill_(0.0)
    assert both.sparsity_error().item() == pytest.approx(0.25)


def test_penalty_targets_of_the_modified_real_npu():
    layer = nalm.create("real-npu-mod", 2, 1)
    layer.real.data, layer.gate.data = torch.tensor([[0.25, -1.0]]), torch.tensor([0.8, 0.0])
    assert {k: v.item() for k, v in layer.penalties().items()} == pytest.approx({"weight": 0.375, "gate": 0.1})
    plain = nalm.create("real-npu-mod", 2, 1, skip_zero_weight=False)
    plain.real.data = layer.real.data
    assert plain.penalties()["weight"].item() == pytest.approx(0.125)


def test_npu_clip_and_regularise():
    layer = nalm.create("npu-mod", 2, 1, bounded_imaginary=True)
    layer.imaginary.data = torch.tensor([[-3.0, 0.5]])
    assert layer.penalties()["imaginary"].item() == pytest.approx(3.5)
    layer.project_()
    torch.testing.assert_close(layer.imaginary.detach(), torch.tensor([[-1.0, 0.5]]))


def test_separate_sign_follows_rounded_weights():
    layer = nalm.NRUSepSign(2, 1, dtype=D).eval()
    layer.weight.data = torch.tensor([[0.6, 0.4]], dtype=D)
    x = torch.tensor([[-2.0, -3.0]], dtype=D)
    magnitude = (0.6 * 2**0.6 + 0.4) * (0.4 * 3**0.4 + 0.6)
    assert layer(x).item() == pytest.approx(-magnitude)


def test_stochastic_gates_have_noise_in_training_only():
    layer = nalm.stgNMU(3, 2, dtype=D)
    layer.mu.data = torch.tensor([[0.2, 1.3, -0.4], [0.9, 0.5, 0.1]], dtype=D)
    x, noise = torch.randn(4, 3, dtype=D), torch.randn(2, 3, dtype=D)
    torch.testing.assert_close(layer.train()(x, noise), nmu(x, (layer.mu + 0.5 * noise).clamp(0, 1)))
    assert torch.equal(layer.eval()(x), nmu(x, layer.mu.clamp(0, 1)))
    opened = torch.distributions.Normal(0, 0.5).cdf(layer.mu)
    torch.testing.assert_close(layer.penalty(), opened.sum())


def test_networks_count_weights_but_not_biases_as_sparsity_error():
    layer = nalm.ReLUMLP(2, 1, hidden=(4,)).set_solution_("add")
    layer.biases[0].data.fill_(0.4)
    assert layer.sparsity_error() == 0
    layer.weights[1].data[0, 3] = 0.3
    assert layer.sparsity_error().item() == pytest.approx(0.3)
