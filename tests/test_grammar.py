"""Formulas as text: what the grammar reads, and that no other text is evaluated, hangs or ends in anything but a sentence."""

import re
from pathlib import Path

import pytest
import sympy as sp
import torch

import nalm
from nalm.grammar import read

SOURCE = Path(nalm.__file__).parent


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1 + 2*a", "2*a + 1"),
        ("-a**2", "-a**2"),
        ("a**-2", "a**(-2)"),
        ("2**3**2*a", "512*a"),
        ("a - b - c", "a - b - c"),
        ("a/b/c*d", "a*d/(b*c)"),
        ("1/3*a", "a/3"),
        (".5*a + 2.*b + 1.5e2", "0.5*a + 2.0*b + 150.0"),
        ("-(a + b)*--c", "-c*(a + b)"),
        ("sqrt(a)*cbrt(b)*abs(c)", "sqrt(a)*b**(1/3)*Abs(c)"),
        (" a\n * b ", "a*b"),
    ],
)
def test_precedence_and_numbers(text, value):
    assert sp.expand(read(text) - sp.sympify(value)) == 0


@pytest.mark.parametrize("name", ["beta", "gamma", "N", "S", "E", "I", "Q", "O", "zeta", "lambda", "in", "Δt", "mass_1", "__a"])
def test_every_name_is_a_symbol(name):
    module = nalm.from_sympy(f"2*{name} + 1")
    assert module(torch.tensor([[3.0]], dtype=torch.float64)).item() == pytest.approx(7)
    assert [str(one) for one in read(name).free_symbols] == [name]


def test_pi_is_a_number_unless_it_is_an_input():
    assert read("pi*r").free_symbols == {sp.Symbol("r")}
    assert nalm.from_sympy("pi*r", ["pi", "r"])(torch.tensor([[2.0, 3.0]]).double()).item() == pytest.approx(6)


def test_text_is_never_evaluated(tmp_path):
    mark = tmp_path / "mark"
    for text in (f'__import__("os").system("touch {mark}")', f"open('{mark}', 'w')", "a.func", "[a][0]", "(lambda: a)()"):
        with pytest.raises(ValueError, match="cannot read the formula"):
            nalm.from_sympy(text)
    assert not mark.exists()


def test_no_source_file_evaluates_text():
    for path in SOURCE.rglob("*.py"):
        code = path.read_text(encoding="utf-8")
        assert not re.search(r"(?<![\w.])(eval|exec|parse_expr|parse_latex)\(|\bS\(\"|pickle\.loads?\(", code), path
        found = re.findall(r"sympify\((.*)", code)
        assert found == (["given)"] if path.name == "composing.py" else []), path


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a+", r"it ends where a number or a name should stand \(character 3\)"),
        ("", "it ends where"),
        ("a b", "an operator should stand before 'b' .character 3"),
        ("2(a)", r"before '\('"),
        ("(a", "a \\) is missing"),
        ("a)", r"no \( goes with this"),
        ("a^2", r"powers are written with \*\*"),
        ("x.y", r"'.' has no meaning .character 2"),
        ("x²", "is no name"),
        ("a**", "it ends where"),
        ("*a", r"should stand before '\*'"),
        ("sin(a)", "sin is no function here"),
        ("a*9**9**9", "exponents go up to 1,000"),
        ("a*999**999", "too large"),
        ("(1000001/1000000)**1000*a", "too large"),
        ("((a**30)**30)**30", "exponents go up to 1,000"),
        ("a*1e999", "too large"),
        ("a*1e-999", "range of float64"),
        ("a/0", "division by zero"),
        ("1/(a - a)", "division by zero"),
        ("0**-1*a", "division by zero"),
        ("(" * 200 + "a" + ")" * 200, "100 levels"),
        ("-" * 5000 + "a", "100 levels"),
        ("a+" * 9000 + "a", "may have 10,000 characters"),
        ("a**b", "exponents must be real constants"),
        ("sqrt(-2)*a", "weights are real numbers"),
        ("a/1e-300/1e-300", "range of float64"),
    ],
)
def test_what_is_no_formula_is_refused_with_its_place(text, message):
    with pytest.raises(ValueError, match=message) as caught:
        nalm.from_sympy(text)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("expression", "inputs", "message"),
    [
        (None, None, "must be text or a SymPy expression"),
        (sp.Eq(sp.Symbol("a"), 1), None, "must be text or a SymPy expression"),
        (sp.Symbol("a") * sp.oo, None, "finite numbers"),
        ("a", "a", "inputs must be a list"),
        ("a", 3, "inputs must be a list"),
        ("a", [""], "must be a name or a symbol"),
        ("a", ["a", "a"], "a name of its own"),
        ([], None, "no symbol"),
    ],
)
def test_what_is_no_expression_is_refused(expression, inputs, message):
    with pytest.raises(ValueError, match=message):
        nalm.from_sympy(expression, inputs)


def test_only_numbers_that_are_raised_at_once_count_for_the_size():
    for text in ("(1000*a + 1)**500", "(a**10)**100", "((a + 999)**30)**30"):
        assert read(text).free_symbols == {sp.Symbol("a")}
    with pytest.raises(ValueError, match="exponents go up to 1,000"):
        read("(a**100)**600")
    for text in ("(1000*a)**500", "(sqrt(999)*a)**900", "1000**500*a", "(3*(1000*a)**2)**300"):
        with pytest.raises(ValueError, match="too large"):
            read(text)
