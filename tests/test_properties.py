"""Properties that hold for all inputs (hypothesis)."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import nalm
from nalm.layers import nau, nmru, nmu, nru, snmu
from nalm.layers.division import with_reciprocals

numbers = st.floats(-1e3, 1e3, allow_subnormal=False)
nonzero = st.one_of(st.floats(1e-3, 1e3), st.floats(-1e3, -1e-3))
SIZE = 5
settings.register_profile("nalm", deadline=None, derandomize=True)
settings.load_profile("nalm")


def tensor(values):
    return torch.from_numpy(np.asarray(values, dtype=np.float64))


@given(arrays(float, SIZE, elements=numbers), arrays(bool, SIZE))
def test_nmu_multiplies_exactly_the_selected_inputs(x, keep):
    y = nmu(tensor(x), tensor(keep)[None])
    np.testing.assert_allclose(y.item(), np.prod(x[keep]), rtol=1e-12)


@given(arrays(float, SIZE, elements=numbers), arrays(int, SIZE, elements=st.integers(-1, 1)))
def test_nau_adds_exactly_the_selected_inputs(x, signs):
    np.testing.assert_allclose(nau(tensor(x), tensor(signs)[None]).item(), x @ signs, rtol=1e-12, atol=1e-9)


@given(arrays(float, SIZE, elements=numbers), arrays(bool, SIZE), arrays(float, SIZE, elements=st.floats(0.01, 20)))
def test_snmu_noise_cancels_at_discrete_weights(x, keep, noise):
    y = snmu(tensor(x), tensor(keep)[None], tensor(noise))
    np.testing.assert_allclose(y.item(), np.prod(x[keep]), rtol=1e-12)


@given(arrays(float, SIZE, elements=nonzero), arrays(int, SIZE, elements=st.integers(-1, 1)))
def test_nru_and_nmru_multiply_and_divide_exactly(x, powers):
    expected = np.prod(x ** powers.astype(float))
    weight = tensor(powers)[None]
    np.testing.assert_allclose(nru(tensor(x), weight, weight.abs()).item(), expected, rtol=1e-12)
    both = torch.cat([(weight > 0), (weight < 0)], -1).double()
    np.testing.assert_allclose(nmru(with_reciprocals(tensor(x), 0.0), both).item(), expected, rtol=1e-12)


@given(arrays(float, SIZE, elements=nonzero), arrays(int, SIZE, elements=st.integers(-2, 2)), arrays(bool, SIZE))
def test_real_npu_raises_the_gated_inputs_to_whole_powers(x, powers, keep):
    layer = nalm.RealNPU(SIZE, 1, epsilon=0.0, dtype=torch.float64)
    layer.real.data, layer.gate.data = tensor(powers)[None], tensor(keep)
    np.testing.assert_allclose(layer(tensor(x)).item(), np.prod((x ** powers.astype(float))[keep]), rtol=1e-9)


@given(arrays(bool, SIZE), arrays(bool, SIZE), arrays(bool, SIZE), st.booleans(), st.booleans())
def test_nlrl_computes_the_boolean_rule(x, chosen, negated, disjunction, disjunctions):
    layer = nalm.NLRL(SIZE, 1, disjunctions=disjunctions, dtype=torch.float64)
    layer.weight.data = tensor(chosen)[None]
    layer.negation_hat.data = 200 * tensor(negated)[None] - 100
    layer.gate_hat.data.fill_(100 if disjunction else -100)
    truth = (x ^ negated)[chosen]
    rule = truth.any() if disjunctions else not truth.all()
    expected = rule if disjunction else truth.all()
    assert abs(layer(tensor(x)).item() - expected) < 1e-5


@given(st.integers(1, 40), st.integers(1, 7), st.integers(0, 2**31))
def test_nmu_is_independent_of_the_block_size(inputs, outputs, seed):
    torch.manual_seed(seed)
    layer, x = nalm.NMU(inputs, outputs, dtype=torch.float64), torch.randn(3, inputs, dtype=torch.float64)
    whole = layer(x)
    original = nalm.layers.products.BLOCK
    try:
        nalm.layers.products.BLOCK = 8
        torch.testing.assert_close(layer(x), whole)
    finally:
        nalm.layers.products.BLOCK = original


def test_snmu_in_eval_mode_is_the_nmu_to_the_bit():
    torch.manual_seed(6)
    for stochastic in (nalm.sNMU(7, 3), nalm.sNMU(7, 3, noise_range=(5, 10)), nalm.sNMUBatch(7, 3)):
        plain = nalm.NMU(7, 3)
        plain.load_state_dict(stochastic.state_dict())
        x = torch.randn(50, 7)
        assert torch.equal(stochastic.eval()(x), plain(x))
