"""Formula to module and back."""

import math

import pytest
import sympy as sp
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import nalm

A, B, C = SYMBOLS = sp.symbols("a b c", positive=True)
NUMBERS = st.sampled_from([sp.Integer(k) for k in (-3, -2, -1, 1, 2, 5)] + [sp.Rational(1, 2), sp.Rational(-3, 4)])


def powers():
    return st.builds(
        lambda base, e: base ** sp.Rational(e), st.sampled_from(SYMBOLS), st.sampled_from([-2, -1, 1, 2, 3, "1/2"])
    )


def products(parts):
    return st.builds(lambda c, factors: sp.Mul(c, *factors), NUMBERS, st.lists(parts, min_size=1, max_size=3))


def sums(parts):
    return st.builds(lambda terms, c: sp.Add(*terms, c), st.lists(parts, min_size=1, max_size=3), NUMBERS)


def of_sums():
    inner = sums(products(powers()))
    raised = st.builds(lambda s, e: s ** sp.Integer(e), inner, st.sampled_from([-2, -1, 1, 2]))
    return sums(products(st.one_of(powers(), raised)))


def value(expression, row):
    return complex(expression.subs(dict(zip(SYMBOLS, row, strict=True))).evalf())


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.one_of(products(powers()), sums(products(powers())), of_sums()))
def test_a_formula_comes_back_from_its_module(expression):
    assume(expression.free_symbols)
    try:
        module = nalm.from_sympy(expression, SYMBOLS)
    except ValueError as error:
        assume("constant" not in str(error))
        raise
    back = nalm.readout(module, SYMBOLS)[0]
    assert not back.atoms(sp.Float)
    assert sp.simplify(back - expression) == 0
    rows = torch.tensor([[0.7, 1.3, 2.1], [3.5, 0.2, 1.9]], dtype=torch.float64)
    for row, output in zip(rows.tolist(), module(rows).flatten().tolist(), strict=True):
        wanted = value(expression, row)
        if math.isfinite(abs(wanted)) and abs(wanted) < 1e12:
            assert output == pytest.approx(wanted.real, rel=1e-6, abs=1e-6)


def test_several_formulas_share_a_module():
    module = nalm.from_sympy(["a + b", "a*b**2", "c"], ["a", "b", "c"])
    x = torch.tensor([[2.0, 3.0, 7.0]], dtype=torch.float64)
    assert module(x).tolist()[0] == pytest.approx([5.0, 18.0, 7.0])
    assert [str(one) for one in nalm.readout(module, ["a", "b", "c"])] == ["a + b", "a*b**2", "c"]


def test_signs_pass_through_whole_powers():
    module = nalm.from_sympy("a**3 - 1/b")
    assert module(torch.tensor([[-2.0, -4.0]], dtype=torch.float64)).item() == pytest.approx(-7.75)


def test_module_can_be_trained_on():
    module = nalm.from_sympy("3*a*b", dtype=torch.float32)
    x = torch.rand(64, 2) + 1
    optimiser = torch.optim.Adam(module.parameters(), lr=1e-2)
    losses = []
    for _ in range(200):
        loss = (module(x).squeeze(-1) - 3.1 * x[:, 0] * x[:, 1]).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < 0.01 * losses[0]


@pytest.mark.parametrize(
    ("expression", "inputs", "message"),
    [
        ("sin(a)", None, "only sums, products, quotients and powers"),
        ("a**b", None, "exponents must be real constants"),
        ("a + d", ["a", "b"], "has d, which is not among the inputs a, b"),
        ("3", None, "has no symbol"),
    ],
)
def test_what_cannot_be_built_is_refused(expression, inputs, message):
    with pytest.raises(ValueError, match=message):
        nalm.from_sympy(expression, inputs)


@pytest.mark.parametrize(
    ("text", "dtype", "kind"),
    [
        ("a*1e-200*1e-200", torch.float64, "float64"),
        ("1e6*a", torch.float16, "float16"),
        ("1e-300*a", torch.float32, "float32"),
        ("1e300*a", torch.float32, "float32"),
        ("a**0.00000001", torch.float16, "float16"),
    ],
)
def test_constants_that_the_weights_cannot_hold_are_refused(text, dtype, kind):
    with pytest.raises(ValueError, match=f"in the range of {kind}"):
        nalm.from_sympy(text, dtype=dtype)
