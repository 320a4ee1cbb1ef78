"""Losses, schedules and rules of `nalm.training`."""

import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

import nalm
from nalm.training import (
    MAPE,
    MSE,
    PCC,
    ClipNorm,
    ClipValue,
    GradientNoise,
    LinearRamp,
    PCCThenMSE,
    Reinitialisation,
    StepwiseGrowth,
    parameter_norm,
)


@pytest.fixture
def pair(generator):
    return torch.randn(64, 1, generator=generator, dtype=torch.float64), torch.randn(
        64, 1, generator=generator, dtype=torch.float64
    )


def test_losses_against_independent_computations(pair):
    y, t = pair
    assert MSE()(y, t).item() == pytest.approx(np.mean((y - t).numpy() ** 2))
    assert MAPE()(y, t).item() == pytest.approx(np.mean(np.abs((t - y).numpy() / t.numpy())))
    assert PCC()(y, t).item() == pytest.approx(1 - stats.pearsonr(y.squeeze(), t.squeeze()).statistic, abs=1e-6)


def test_pcc_ignores_scale_and_offset_and_survives_a_constant(pair):
    y, t = pair
    assert PCC()(3 * t - 7, t).item() == pytest.approx(0, abs=1e-6)
    assert PCC()(-t, t).item() == pytest.approx(2, abs=1e-6)
    constant = torch.ones_like(y, requires_grad=True)
    loss = PCC()(constant, t)
    loss.backward()
    assert loss.item() == pytest.approx(1)
    assert constant.grad.isfinite().all()


def test_loss_switches_at_its_step(pair):
    y, t = pair
    loss = PCCThenMSE(switch=100)
    assert loss(y, t, 99) == PCC()(y, t)
    assert loss(y, t, 100) == MSE()(y, t)


def test_linear_ramp():
    ramp = LinearRamp(10, start=20_000, end=35_000)
    assert [ramp(t) for t in (0, 20_000, 27_500, 35_000, 50_000)] == [0, 0, 5, 10, 10]
    with pytest.raises(ValueError, match="must end after it starts"):
        LinearRamp(1, 5, 5)


def test_stepwise_growth():
    growth = StepwiseGrowth(1e-9, 1e-7)
    assert [growth(t) for t in (0, 9_999, 10_000, 20_000, 30_000, 10**6)] == [1e-9, 1e-9, 1e-8, 1e-7, 1e-7, 1e-7]
    assert [StepwiseGrowth(1e-5, 1e-7)(t) for t in (0, 10_000, 20_000, 90_000)] == [1e-5, 1e-6, 1e-7, 1e-7]
    assert StepwiseGrowth(0.5, 0.5)(10**6) == 0.5
    with pytest.raises(ValueError, match="must be positive"):
        StepwiseGrowth(0, 1)


def test_parameter_norm_counts_weights_and_gates():
    layer = nalm.RealNPU(2, 1)
    layer.real.data, layer.gate.data = torch.tensor([[3.0, -4.0]]), torch.tensor([0.5, 0.5])
    assert parameter_norm(layer).item() == pytest.approx(8)
    assert parameter_norm(layer, order=2).item() == pytest.approx(5 + math.sqrt(0.5))


def test_clipping():
    layer = nn.Linear(3, 1)
    for p in layer.parameters():
        p.grad = torch.full_like(p, -2.0)
    ClipNorm(1.0)(layer.parameters())
    assert math.sqrt(sum(p.grad.square().sum() for p in layer.parameters())) == pytest.approx(1, abs=1e-5)
    ClipValue(0.1)(layer.parameters())
    assert layer.weight.grad.tolist() == [[pytest.approx(-0.1)] * 3]


def test_gradient_noise_has_the_published_variance(generator):
    layer = nalm.NMU(200, 200)
    layer.weight.grad = torch.zeros_like(layer.weight)
    GradientNoise(eta=0.3)([layer.weight], step=99, generator=generator)
    assert layer.weight.grad.var().item() == pytest.approx(0.3 / 100**0.55, rel=0.02)
    untouched = nalm.NMU(2, 1)
    GradientNoise(eta=0.3)(untouched.parameters(), step=0)
    assert untouched.weight.grad is None


def run_rule(rule, errors, steps):
    return [t for t in range(steps) if rule.due(t, errors(t))]


def test_reinitialisation_comes_when_a_large_error_does_not_fall():
    assert run_rule(Reinitialisation(), lambda t: 50.0, 12_000) == [5000, 10_010]
    assert run_rule(Reinitialisation(), lambda t: 0.5, 12_000) == []
    assert run_rule(Reinitialisation(), lambda t: math.exp(-t / 500), 12_000) == []
    assert run_rule(Reinitialisation(), lambda t: math.nan, 12_000) == []


def test_reinitialisation_against_a_plain_transcription():
    """The rule of the published code, word for word, on a noisy error that is refreshed every 100 steps."""
    rng = np.random.default_rng(7)
    logged = np.repeat(rng.lognormal(0.3, 1.0, 60), 100)
    expected, stored = [], []
    for t, error in enumerate(logged):
        stored.append(error)
        if t > 0 and t % 10 == 0 and len(stored) > 500:
            half = len(stored) // 2
            first, second = np.mean(stored[:half]), stored[half:]
            if first <= np.mean(second) + np.std(second) and np.mean(second) > 1:
                expected.append(t)
                stored = []
    assert expected
    assert run_rule(Reinitialisation(history=500), lambda t: logged[t], len(logged)) == expected


def test_model_functions_sum_and_descend(generator):
    stack = nn.Sequential(nalm.NAU(4, 2), nn.Sequential(nalm.NMU(2, 2), nalm.iNALU(2, 1)))
    parts = [stack[0], stack[1][0], stack[1][1]]
    assert nalm.penalty(stack).item() == pytest.approx(sum(p.penalty().item() for p in parts))
    assert nalm.sparsity_error(stack) == max(p.sparsity_error() for p in parts)
    stack[0].weight.data.fill_(7.0)
    nalm.project_(stack)
    assert (stack[0].weight == 1).all()
    for function in (nalm.penalty, nalm.project_, nalm.sparsity_error):
        with pytest.raises(ValueError, match="Linear holds no nalm layer"):
            function(nn.Linear(2, 1))


def test_options_are_checked():
    for name, options, message in [
        ("snmu", {"noise_range": (5, 1)}, "noise_range"),
        ("snmu", {"noise_range": (0, 1)}, "noise_range"),
        ("stgnmu", {"sigma": 0.0}, "sigma"),
        ("nru", {"tanh_scale": -1.0}, "tanh_scale"),
        ("real-npu", {"epsilon": -1.0}, "epsilon"),
        ("nsr", {"redundancy": 0}, "redundancy"),
        ("nsr", {"scale": 0.0}, "scale"),
        ("relu-mlp", {"hidden": ()}, "hidden"),
    ]:
        with pytest.raises(ValueError, match=message):
            nalm.create(name, 2, 1, **options)


def test_repr_shows_options_that_differ_from_the_default():
    for name, options, shown in [
        ("snmu", {"noise_range": (5, 10)}, "noise_range=(5.0, 10.0)"),
        ("stgnmu", {"sigma": 0.2}, "sigma=0.2"),
        ("nru", {"tanh_scale": 10.0}, "tanh_scale=10.0"),
        ("real-npu", {"bounded": True, "epsilon": 0.0}, "bounded=True, epsilon=0.0"),
        ("npu-mod", {"bounded_imaginary": True}, "bounded_imaginary=True"),
        ("nsr", {"redundancy": 3, "scale": 10.0}, "redundancy=3, scale=10.0"),
        ("nlrl", {"disjunctions": False}, "disjunctions=False"),
    ]:
        assert shown in repr(nalm.create(name, 2, 1, **options))
        assert "in_features=2, out_features=1)" in repr(nalm.create(name.removesuffix("-mod"), 2, 1))


def test_deep_networks_express_sums_and_narrow_ones_do_not():
    x = torch.tensor([[3.0, -8.0, 1.0]])
    assert nalm.ReLUMLP(3, 1, hidden=(4, 3)).set_solution_("sub")(x).item() == pytest.approx(11)
    with pytest.raises(ValueError, match="nothing exactly"):
        nalm.ReLUMLP(3, 1, hidden=(1,)).set_solution_("add")


def test_batch_noise_follows_the_spread_of_the_batch():
    layer = nalm.sNMUBatch(2, 1, dtype=torch.float64)
    x = torch.tensor([[1.0, 2.0], [3.0, 5.0]], dtype=torch.float64)
    uniform = torch.full_like(x, 0.5)
    expected = nalm.layers.snmu(x, layer.weight, 1 + uniform / x.std())
    torch.testing.assert_close(layer(x, uniform), expected)
    single = nalm.sNMUBatch(1, 1)
    assert torch.equal(single(torch.tensor([[3.0]])), single.eval()(torch.tensor([[3.0]])))
