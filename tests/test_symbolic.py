"""The read-out beyond single solved layers: stacks, rounding, notes, errors."""

import pytest
import sympy
import torch
from torch import nn

import nalm
from nalm.symbolic import formula


def test_stack_reads_as_one_formula():
    stack = nn.Sequential(nalm.NAU(3, 2), nalm.NMU(2, 1))
    stack[0].weight.data = torch.tensor([[1.0, 1, 0], [0, 0, -1]])
    stack[1].weight.data = torch.ones(1, 2)
    shown = nalm.readout(stack, ["a", "b", "c"])
    assert str(shown) == "-c*(a + b)"
    assert shown.residual < 1e-12
    assert shown.latex() == r"- c \left(a + b\right)"
    assert list(shown) == [shown[0]]
    assert shown[:] == (shown[0],)


def test_rounding_is_never_silent():
    layer = nalm.NAU(2, 1)
    layer.weight.data = torch.tensor([[0.995, -0.5]])
    shown = nalm.readout(layer, ["a", "b"])
    a, b = shown.symbols
    assert shown[0] == a - b / 2
    assert shown.rounding == pytest.approx(0.005, rel=1e-4)
    assert 0.001 < shown.residual < 0.016
    exact = nalm.readout(layer, ["a", "b"], tolerance=0)
    assert exact.rounding == 0
    assert exact.residual < 1e-12
    assert str(exact) == "0.995*a - b/2"


def test_exponents_near_halves_are_read_as_roots():
    layer = nalm.RealNPU(2, 1)
    layer.real.data, layer.gate.data = torch.tensor([[0.501, -2.001]]), torch.tensor([0.999, 1.0])
    a, b = sympy.symbols("a b", positive=True)
    assert nalm.readout(layer, [a, b])[0] == sympy.sqrt(a) / b**2
    signed = nalm.readout(layer, ["a", "b"])
    assert "Abs(a)" in str(signed)
    assert any("added to magnitudes" in note for note in signed.notes)


def test_mixed_discrete_and_free_weights():
    layer = nalm.NMRU(2, 1)
    layer.weight.data = torch.tensor([[1.0, 0.3, 0.0, 0.6]])
    shown = nalm.readout(layer)
    assert shown.residual < 1e-6
    power = nalm.NPU(3, 2)
    power.real.data = torch.tensor([[1.0, 0.7, -2.0], [0.0, 1.0, 1.0]])
    power.imaginary.data = torch.tensor([[0.0, 0.4, 0.0], [0.3, 0.0, 0.0]])
    power.gate.data = torch.tensor([1.0, 0.6, 1.0])
    assert nalm.readout(power).residual < 1e-6


def test_ordinary_layers_may_stand_between():
    torch.manual_seed(0)
    stack = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Identity(), nn.Linear(3, 2, bias=False), nalm.NMU(2, 1))
    assert nalm.readout(stack, tolerance=0).residual < 1e-9


def test_gates_that_depend_on_the_inputs_are_noted():
    layer = nalm.NALU(2, 1).set_solution_("mul")
    shown = nalm.readout(layer, sympy.symbols("a b", positive=True))
    assert str(shown) == "a*b"
    assert any("gate" in note for note in shown.notes)


def test_logic_and_comparison():
    stack = nn.Sequential(nalm.NLRL(2, 2), nalm.NLRL(2, 1))
    stack[0].set_solution_("and")
    stack[0].gate_hat.data = torch.tensor([-100.0, 100.0])  # AND, OR
    stack[1].set_solution_("and")
    stack[1].negation_hat.data = torch.tensor([[100.0, -100.0]])
    x, y = sympy.symbols("x y")
    shown = nalm.readout(stack, [x, y])
    assert sympy.simplify_logic(shown[0] ^ (x ^ y)) == sympy.false
    assert shown.residual < 1e-5
    negated = nalm.NLRL(2, 1, disjunctions=False).set_solution_("or")
    assert nalm.readout(negated, [x, y])[0] == x | y
    wide = nalm.NSR(3, 1, redundancy=2).set_solution_("le", (2, 0))
    assert str(nalm.readout(wide, ["a", "b", "c"])[0]) == "c <= a"
    always = nalm.NSR(2, 1).set_solution_("le")
    always.bias.data.fill_(1000.0)
    assert nalm.readout(always)[0] == sympy.true


def test_own_layers_can_be_registered():
    class Square(nn.Module):
        def forward(self, x):
            return x * x

    stack = nn.Sequential(Square(), nalm.NAU(2, 1).set_solution_("add"))
    with pytest.raises(TypeError, match="cannot read a formula from Square"):
        nalm.readout(stack)
    formula.register(Square, lambda layer, inputs, reader: [x**2 for x in inputs])
    assert str(nalm.readout(stack, ["a", "b"])) == "a**2 + b**2"


def test_bad_arguments():
    layer = nalm.NMU(2, 1)
    with pytest.raises(ValueError, match="2 different names"):
        nalm.readout(layer, ["a"])
    with pytest.raises(ValueError, match="2 different names"):
        nalm.readout(layer, ["a", "a"])
    with pytest.raises(ValueError, match="2 different names"):
        nalm.readout(layer, "ab")
    with pytest.raises(ValueError, match="tolerance"):
        nalm.readout(layer, tolerance=-1)
    with pytest.raises(ValueError, match=r"shape \(n, 2\)"):
        nalm.readout(layer, inputs=torch.rand(5, 3))
    with pytest.raises(TypeError, match="holds no nalm layer"):
        nalm.readout(nn.Dropout())


def test_model_is_left_as_it_was():
    layer = nalm.sNMU(2, 1).train()
    nalm.readout(layer)
    assert layer.training
    assert layer.weight.dtype == torch.float32


def test_linear_layers_without_a_bias_are_read():
    layer = nalm.Linear(2, 1, bias=False)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[2.0, -1.0]]))
    assert str(nalm.readout(layer, ["a", "b"])) == "2*a - b"
