import json
import pickle
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import sympy as sp
import torch
from numpy.testing import assert_allclose
from scipy.optimize import least_squares
from sklearn.utils.estimator_checks import check_estimator

from nalm import NALMRegressor
from nalm.discover import discover, read_table
from nalm.discovery.fitting import law_of
from nalm.discovery.law import Law, Term
from nalm.discovery.projection import sign_blocks, solve_exponents
from nalm.discovery.table import Table

OPERATIONS = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: -a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: 1 / (a * b),
}


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def positive(rng, rows=400, inputs=4):
    return rng.uniform(1, 2, (rows, inputs))


def term(coefficient, *exponents):
    return Term(coefficient, tuple(map(Fraction, exponents)))


def test_estimator_keeps_the_rules_of_scikit_learn():
    check_estimator(NALMRegressor(), on_skip=None)


@pytest.mark.parametrize("first", OPERATIONS)
@pytest.mark.parametrize("second", OPERATIONS)
def test_two_steps_are_found_exactly(first, second, rng):
    def truth(x):
        return OPERATIONS[second](OPERATIONS[first](x[:, 0], x[:, 1]), x[:, 2])

    x, far = positive(rng), rng.uniform(20, 60, (50, 4))
    model = NALMRegressor(random_state=0).fit(x, truth(x))
    assert model.found_
    assert_allclose(model.predict(far), truth(far), rtol=1e-9)
    assert sp.Symbol("x4", real=True) not in model.formula_.free_symbols


@pytest.mark.parametrize(
    "text",
    [
        "x1**2*x2/(2*x3)",
        "sqrt(x1*x2/x3)",
        "x1/(x2 + x3)",
        "(x1*x2 + x3)/(1 + x1*x3)",
        "sqrt(x1**2 + x2**2)",
        "(x1 + x2)*(x3 + x4)",
        "1/(1/x1 + 1/x2)",
        "3*x1**1.4",
        "2.5*x1*x2 - 0.75*x3**2",
        "7",
    ],
)
def test_laws_of_many_shapes_are_found(text, rng):
    x = positive(rng, 600)
    truth = sp.lambdify(sp.symbols("x1:5"), sp.sympify(text), "numpy")
    model = NALMRegressor(random_state=0).fit(x, truth(*x.T) * np.ones(len(x)))
    far = rng.uniform(3, 9, (50, 4))
    assert model.found_
    assert_allclose(model.predict(far), truth(*far.T) * np.ones(50), rtol=1e-6)


@pytest.mark.parametrize(
    "text",
    [
        "x1*x2",
        "x1/x2",
        "x1 - 2*x2",
        "x1**2*x2 + x2",
        "x1**3",
        "-x2*sqrt(x1**2 + x2**2)",
        "x1*x2/sqrt(x1**2 + x2**2)",
        "x1/(x1**2 + x2**2)**(3/2)",
        "x1*Abs(x2)",
    ],
)
def test_signs_of_inputs_are_handled(text, rng):
    x = rng.uniform(-3, 3, (600, 2))
    truth = sp.lambdify(sp.symbols("x1:3"), sp.sympify(text), "numpy")
    model = NALMRegressor(random_state=0).fit(x, truth(*x.T))
    assert model.found_
    assert sp.simplify(model.formula_ - sp.sympify(text, {f"x{i}": sp.Symbol(f"x{i}", real=True) for i in (1, 2)})) == 0


def test_a_root_may_be_zero_and_stand_behind_an_input(rng):
    x = rng.integers(-3, 4, (300, 4)).astype(float)
    x[:, 0] = 5  # has one value, so that the search does not see it
    y = x[:, 2] * np.sqrt(x[:, 1] ** 2 + x[:, 3] ** 2)
    model = NALMRegressor(random_state=0).fit(x, y)
    assert model.found_
    assert str(model.formula_) == "x3*sqrt(x2**2 + x4**2)"
    assert_allclose(model.module_(torch.from_numpy(x)).detach().squeeze(1), y, rtol=1e-9, atol=1e-9)


def test_a_module_computes_a_magnitude(rng):
    x = rng.normal(size=(200, 2))
    y = np.abs(x[:, 0]) * x[:, 1]
    model = NALMRegressor(random_state=0).fit(x, y)
    assert_allclose(model.module_(torch.from_numpy(x)).detach().squeeze(1), y, rtol=1e-9)


def test_a_common_coefficient_is_written_once():
    symbols = sp.symbols("a b", real=True)
    law = Law((term(0.09, 2, 0), term(0.09, 0, 2)), (), Fraction(1, 2), -1, (0,))
    assert str(law.expression(symbols)) == "-0.3*a*sqrt(a**2 + b**2)"
    x = np.array([[3.0, 4.0], [-3.0, 4.0]])
    assert_allclose(law.values(x), [-4.5, 4.5])


@pytest.mark.parametrize("relative", [True, False])
def test_exponents_are_right_despite_noise(relative, rng):
    x = rng.uniform(1, 5, (500, 3))
    clean = x[:, 0] ** 2 * x[:, 1] / x[:, 2]
    y = clean * (1 + 0.02 * rng.normal(size=500)) if relative else clean + 0.02 * clean.std() * rng.normal(size=500)
    model = NALMRegressor(random_state=0).fit(x, y)
    assert model.found_
    assert [t.exponents for t in model.law_.terms] == [(Fraction(2), Fraction(1), Fraction(-1))]
    assert model.error_ < 0.06


def test_irrelevant_columns_are_left_out(rng):
    x = positive(rng, 300, 20)
    model = NALMRegressor(random_state=0).fit(x, x[:, 3] / x[:, 17])
    assert str(model.formula_) == "x4/x18"


@pytest.mark.parametrize("seed", range(5))
def test_noise_is_no_law(seed):
    rng = np.random.default_rng(seed)
    model = NALMRegressor(random_state=0).fit(rng.uniform(1, 2, (300, 3)), rng.normal(size=300))
    assert not model.found_
    assert not model.formula_.free_symbols


def test_what_no_formula_of_this_form_says_is_no_law(rng):
    x = rng.uniform(1, 4, (500, 2))
    model = NALMRegressor(random_state=0, restarts=3).fit(x, np.sin(5 * x[:, 0]) * x[:, 1])
    assert not model.found_


def test_known_noise_decides(rng):
    x = positive(rng, 300, 2)
    y = x[:, 0] * x[:, 1] + 0.1 * rng.normal(size=300)
    assert NALMRegressor(noise=0.1, random_state=0).fit(x, y).found_
    assert not NALMRegressor(noise=0.01, random_state=0, restarts=2).fit(x, y).found_


def test_rows_without_weight_do_not_count(rng):
    x = positive(rng, 200, 2)
    y, weight = x[:, 0] * x[:, 1], np.ones(200)
    y[:20], weight[:20] = 1e6, 0
    assert str(NALMRegressor(random_state=0).fit(x, y, weight).formula_) == "x1*x2"
    with pytest.raises(ValueError, match="only one row has a weight above zero"):
        NALMRegressor().fit(x, y, np.eye(200)[0])


def test_order_and_copies_of_rows_do_not_matter(rng):
    x = positive(rng, 60, 2)
    y = x[:, 0] / x[:, 1] + 0.01 * rng.normal(size=60)
    weight = rng.integers(1, 4, 60)
    mixed = rng.permutation(np.repeat(np.arange(60), weight))
    once = NALMRegressor(random_state=0).fit(x, y, weight)
    copied = NALMRegressor(random_state=0).fit(x[mixed], y[mixed])
    assert copied.law_ == once.law_
    assert copied.error_ == once.error_


def test_several_targets_have_a_formula_each(rng):
    x = pd.DataFrame(positive(rng, 200, 3), columns=["mass", "time", "length"])
    y = np.stack([x["mass"] / x["time"], x["mass"] * x["length"] ** 2], 1)
    model = NALMRegressor(random_state=0).fit(x, y)
    assert [str(one) for one in model.formula_] == ["mass/time", "length**2*mass"]
    assert model.found_ == [True, True]
    assert model.latex() == [sp.latex(one) for one in model.formula_]
    far = x * 100
    assert_allclose(model.module_(torch.tensor(far.to_numpy())).detach().numpy(), model.predict(far), rtol=1e-12)


def test_module_and_copy_in_another_process_compute_the_formula(rng):
    x = positive(rng, 300, 3)
    model = NALMRegressor(random_state=0).fit(x, np.sqrt(x[:, 0] + 2 * x[:, 1]) / x[:, 2])
    far = rng.uniform(5, 9, (20, 3))
    assert_allclose(model.module_(torch.from_numpy(far)).detach().numpy()[:, 0], model.predict(far), rtol=1e-10)
    assert_allclose(model.to_torch()(torch.from_numpy(far).float()).detach().numpy()[:, 0], model.predict(far), rtol=1e-4)
    assert all(p.requires_grad for p in model.module_.parameters())
    assert model.module_ is model.module_, "what is trained is what is used afterwards"
    assert next(model.to_torch().parameters()).dtype == torch.float32
    assert next(model.module_.parameters()).dtype == torch.float64, "the copy alone is in single precision"
    code = "import pickle, sys; print(pickle.load(sys.stdin.buffer).formula_)"
    copied = subprocess.run([sys.executable, "-c", code], input=pickle.dumps(model), capture_output=True, check=True)
    assert copied.stdout.decode().strip() == str(model.formula_)


@pytest.mark.parametrize("seed", range(3))
def test_noisy_laws_of_inputs_with_few_values_are_found(seed):
    rng = np.random.default_rng(seed)
    x = np.column_stack([rng.integers(-5, 6, 400), rng.integers(1, 6, 400)]).astype(float)
    noise = rng.normal(size=400)
    for y, formula in (
        (x[:, 1] + 0.3 * noise, "x2"),
        (3 * x[:, 1] * (1 + 0.01 * noise), "3*x2"),
        (2 * x[:, 0] / x[:, 1] * (1 + 0.01 * noise), "2*x1/x2"),  # zero in a tenth of the rows
    ):
        model = NALMRegressor(random_state=0).fit(x, y)
        assert (str(model.formula_), model.found_) == (formula, True)
    assert not NALMRegressor(random_state=0).fit(x, noise).found_
    assert not NALMRegressor(random_state=0).fit(x, np.sin(2 * x[:, 0]) + 0.1 * noise).found_, "something is left to explain"


def test_domain_says_where_the_formula_has_no_value(rng):
    x = positive(rng, 300, 2)
    model = NALMRegressor(random_state=0).fit(x, np.sqrt(x[:, 0]) / x[:, 1])
    a, b = sp.symbols("x1:3", real=True)
    assert set(model.domain_["undefined"]) == {a < 0, sp.Eq(b, 0)}
    assert model.domain_["range"]["x1"] == (x[:, 0].min(), x[:, 0].max())
    assert np.isnan(model.predict([[-1.0, 1.0]])).all()


def test_operations_limit_the_formula(rng):
    x = positive(rng, 300, 2)
    model = NALMRegressor(operations=("add", "sub"), max_terms=2, restarts=3, random_state=0).fit(x, x[:, 0] / x[:, 1])
    assert not model.found_
    assert all(t.exponents.count(0) >= 1 and min(t.exponents) >= 0 for t in model.law_.terms)
    assert str(NALMRegressor(operations=("div",), random_state=0).fit(x, x[:, 0] / x[:, 1]).formula_) == "x1/x2"


def test_candidates_are_ordered_by_description(rng):
    x = positive(rng, 300, 2)
    model = NALMRegressor(random_state=0).fit(x, x[:, 0] + 0.01 * x[:, 1])
    formulas = [formula for formula, _, _ in model.candidates_]
    assert formulas[0] == model.formula_
    assert len(set(formulas)) == len(formulas) > 1
    assert all(error >= 0 and size >= 1 for _, error, size in model.candidates_)


def test_candidates_are_no_other_ways_to_write_the_formula(rng):
    x = positive(rng, 60, 2)
    model = NALMRegressor(random_state=0).fit(x, x[:, 0])
    texts = [str(formula).replace("Abs(x1)", "x1") for formula, _, _ in model.candidates_]
    assert texts[0] == "x1"
    assert texts.count("x1") == 1


def test_coefficients_are_those_of_all_rows_of_a_long_table(rng, monkeypatch):
    monkeypatch.setattr("nalm.regressor.MOST_ROWS", 200)
    x = rng.uniform(1, 3, (5_000, 2))
    y = 2.345 * x[:, 0] * x[:, 1] + 0.5 * rng.normal(size=5_000)
    law = NALMRegressor(random_state=0).fit(x, y).law_
    assert [t.exponents for t in law.terms] == [(Fraction(1), Fraction(1))]
    product = x[:, 0] * x[:, 1]
    fitted = [np.sum(w * product * y) / np.sum(w * product**2) for w in (1.0, 1 / np.maximum(y, 1e-3) ** 2)]
    assert min(abs(law.terms[0].coefficient - one) for one in fitted) < 2e-3
    assert abs(law.terms[0].coefficient - 2.345) < 0.01
    exact = NALMRegressor(random_state=0).fit(x, x[:, 0] / (2 * x[:, 1]))
    assert str(exact.formula_) == "x1/(2*x2)"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"operations": ("add", "sin")}, r"some of add, sub, mul, div, pow; got \('add', 'sin'\)"),
        ({"operations": "add"}, "operations must be a tuple of some of .*; got 'add'"),
        ({"max_terms": 0}, "max_terms must be a whole number that is at least 1, got 0"),
        ({"restarts": "many"}, "restarts must be a whole number that is at least 1, got 'many'"),
        ({"noise": -1.0}, "noise must be auto or a number"),
        ({"noise": "some"}, "noise must be auto or a number"),
    ],
)
def test_bad_parameters_are_refused(settings, message, rng):
    x = positive(rng, 20, 2)
    with pytest.raises(ValueError, match=message):
        NALMRegressor(**settings).fit(x, x[:, 0])


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (pd.DataFrame({"a": ["x", "y", "z"], "b": [1.0, 2.0, 3.0]}), "column 'a' holds text"),
        (pd.DataFrame([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], columns=["a", "a"]), "two columns have the name 'a'"),
        (np.array([[1.0, np.nan], [3.0, 4.0], [5.0, 6.0]]), "contains NaN"),
        (np.array([[1.0, np.inf], [3.0, 4.0], [5.0, 6.0]]), "contains infinity"),
        (np.empty((0, 2)), "0 sample"),
        (np.ones((1, 2)), "minimum of 2 is required"),
    ],
)
def test_bad_tables_are_refused(table, message):
    with pytest.raises(ValueError, match=message):
        NALMRegressor().fit(table, np.arange(len(table), dtype=float))


def test_more_columns_than_rows_is_no_law(rng):
    x = rng.uniform(1, 2, (5, 30))
    model = NALMRegressor(random_state=0, restarts=2).fit(x, rng.normal(size=5))
    assert not model.found_
    assert model.law_.complexity < 5
    assert np.isfinite(model.predict(x)).all()


def test_constant_and_repeated_columns(rng):
    x = positive(rng, 100, 2)
    x = np.column_stack([x, np.full(100, 3.0), x[:, 0]])
    model = NALMRegressor(random_state=0).fit(x, x[:, 1])
    assert str(model.formula_) == "x2"
    assert NALMRegressor().fit(np.ones((10, 2)), np.full(10, 4.0)).formula_ == 4


def test_exponents_are_those_of_least_squares(rng):
    """Variable projection against SciPy on exponents and coefficients together."""
    x = rng.uniform(1, 3, (80, 2))
    y = 2 * x[:, 0] ** 1.7 / x[:, 1] + 0.5 * x[:, 1] ** 2.2 + 0.01 * rng.normal(size=80)
    logs = np.log(x)
    start = np.array([[1.5, -0.8], [0.1, 2.0]])

    def missed(p):
        return p[4] * np.exp(logs @ p[:2]) + p[5] * np.exp(logs @ p[2:4]) - y

    reference = least_squares(missed, [*start.ravel(), 2.0, 0.5], method="lm", xtol=1e-14, ftol=1e-14)
    exponents, blocks = start.copy(), np.array([0, 80])
    problem = (logs, np.ones(80), y, blocks, 2)
    cost = solve_exponents(*problem, exponents, np.empty(0), np.ones((2, 2), bool), 200, 6.0, 0.0)
    assert cost == pytest.approx(2 * reference.cost / 80, rel=1e-6)
    assert_allclose(exponents.ravel(), reference.x[:4], rtol=1e-3)


def test_quotients_are_those_of_least_squares(rng):
    x = rng.uniform(1, 3, (80, 1))
    y = 3 * x[:, 0] ** 1.5 / (1 + 0.7 * x[:, 0] ** 1.2) + 1e-4 * rng.normal(size=80)
    logs = np.log(x)

    def missed(p):
        return p[2] * np.exp(logs[:, 0] * p[0]) / (1 + p[3] * np.exp(logs[:, 0] * p[1])) - y

    reference = least_squares(missed, [1.4, 1.1, 3.0, 0.7], method="lm", xtol=1e-15, ftol=1e-15)
    exponents, scales = np.array([[1.4], [1.1]]), np.array([0.7])
    problem = (logs, np.ones(80), y, np.array([0, 80]), 1)
    cost = solve_exponents(*problem, exponents, scales, np.ones((2, 1), bool), 500, 6.0, 0.0)
    assert cost == pytest.approx(2 * reference.cost / 80, rel=1e-3)


def test_rows_with_equal_signs_form_blocks():
    x = np.array([[1.0, -1.0], [1.0, 1.0], [2.0, -3.0], [-1.0, -1.0]])
    order, blocks = sign_blocks(x, 2)
    assert sorted(order) == [0, 2]
    assert blocks.tolist() == [0, 2]


def test_law_computes_what_it_prints(rng):
    law = Law((term(2.0, 1, "1/2"), term(-0.3, 0, 2)), (term(1.0, 0, 0), term(0.25, 1, 0)), Fraction(-2), -1)
    x = positive(rng, 50, 2)
    symbols = sp.symbols("a b", real=True)
    printed = sp.lambdify(symbols, law.expression(symbols), "numpy")(*x.T)
    assert_allclose(law.values(x), printed, rtol=1e-12)
    wide = law.widened(np.array([2, 0]), 3)
    assert_allclose(wide.values(np.column_stack([x[:, 1], np.full(50, 9.0), x[:, 0]])), law.values(x), rtol=1e-14)


@pytest.mark.parametrize(
    ("law", "complexity"),
    [
        (Law((term(1.0, 1, 0),)), 1),
        (Law((term(-1.0, 1, 1),)), 2),
        (Law((term(2.0, 2, 0),)), 3),
        (Law((term(2.718, 1, 0),)), 3),
        (Law((term(1.0, "7/5", 0),)), 4),
        (Law((term(1.0, 1, 0), term(1.0, 0, 1))), 3),
    ],
)
def test_complexity_counts_what_is_written(law, complexity):
    assert law.complexity == complexity


def test_coefficients_are_those_of_least_squares(rng):
    x = positive(rng, 200, 2)
    y = 3 * x[:, 0] + 0.2 * x[:, 1] ** 2 + 0.3 * rng.normal(size=200)
    table = Table(x, y, np.ones(200), rng)
    fitted = law_of(table, [(Fraction(1), Fraction(0)), (Fraction(0), Fraction(2))], 2, Fraction(1), 1)
    design = np.column_stack([table.x[:, 0], table.x[:, 1] ** 2])
    even = np.linalg.lstsq(design, table.y, rcond=None)[0]
    size = np.maximum(np.abs(table.y), 1e-3 * table.scale)
    relative = np.linalg.lstsq(design / size[:, None], table.y / size, rcond=None)[0]
    found = [t.coefficient for t in fitted.law.terms]
    assert any(np.allclose(found, one, rtol=1e-9) for one in (even, relative))


def test_description_of_a_law_beats_that_of_longer_and_shorter_ones(rng):
    x = positive(rng, 200, 2)
    table = Table(x, 2 * x[:, 0] + 0.01 * rng.normal(size=200), np.ones(200), rng)
    none, one, both = (
        [(Fraction(0), Fraction(0))],
        [(Fraction(1), Fraction(0))],
        [(Fraction(1), Fraction(0)), (Fraction(0), Fraction(1))],
    )
    lengths = [law_of(table, rows, len(rows), Fraction(1), 1).length for rows in (none, one, both)]
    assert lengths[1] == min(lengths)


def test_what_is_left_over_is_seen(rng):
    x = positive(rng, 500, 3)
    table = Table(x, x[:, 0] * x[:, 1] + 0.05 * rng.normal(size=500), np.ones(500), rng)
    right, wrong = Law((term(1.0, 1, 1, 0),)), Law((term(1.5, 1, 0, 0),))
    assert table.looks_like_noise(right)
    assert not table.looks_like_noise(wrong)


def test_kepler():
    found = discover(read_table("planets"), "year")
    assert str(found.formula) == "axis**(3/2)"
    assert found.found
    assert found.same_outside
    assert found.outside < 0.01
    assert "mass plays no part" in found.remarks
    assert [bool(one) for one in found.inner] == [False, True, True, True, True, True, True, False]


def test_report_says_what_the_data_do_not(rng):
    a = rng.uniform(1, 2, 200)
    table = pd.DataFrame({"a": a, "same": 2 * a, "b": rng.uniform(1, 2, 200), "c": 3.0, "y": a * 5})
    remarks = discover(table, "y").remarks
    assert "b plays no part" in remarks
    assert "c has one value only: what it does cannot be told from a coefficient" in remarks
    assert any("rise and fall together" in remark for remark in remarks)
    noise = discover(table.assign(y=rng.normal(size=200)), "y", ["b"])
    assert noise.remarks[0].startswith("no law of this form")
    assert noise.figure().axes


@pytest.mark.parametrize(
    ("columns", "target", "features", "message"),
    [
        ({"a": [], "y": []}, "y", None, "no rows"),
        ({"a": [1.0], "y": [2.0]}, "y", None, "one row"),
        ({"a": [1.0, 2.0], "y": [2.0, 3.0]}, "z", None, "no column 'z'; there are: a, y"),
        ({"a": [1.0, 2.0], "y": [2.0, 3.0]}, "y", ["b"], "no column 'b'"),
        ({"a": [1.0, 2.0], "y": [2.0, 3.0]}, "y", ["y"], "cannot be a feature of itself"),
        ({"a": ["p", "q"], "y": [2.0, 3.0]}, "y", None, "no column of numbers besides"),
        ({"a": [1.0, 2.0], "y": ["p", "q"]}, "y", None, "column 'y' holds text"),
        ({"a": ["p", "q"], "b": ["r", "s"], "y": [1.0, 2.0]}, "y", ["a", "b"], "columns 'a', 'b' hold text"),
        ({"a": [1.0, 2.0, 3.0], "y": [2.0, np.inf, np.nan]}, "y", None, "1 of 3 rows have a number in 'y'"),
    ],
)
def test_bad_files_are_refused_in_one_line(columns, target, features, message):
    with pytest.raises(ValueError, match=message):
        discover(pd.DataFrame(columns), target, features)


def test_tables_are_read_from_every_kind_of_file(tmp_path):
    table = pd.DataFrame({"a": [1.0, 2.5], "y": [3.0, 4.0]})
    table.to_csv(tmp_path / "t.csv", index=False)
    table.to_csv(tmp_path / "t.tsv", index=False, sep="\t")
    table.to_parquet(tmp_path / "t.parquet")
    for name in ("t.csv", "t.tsv", "t.parquet"):
        pd.testing.assert_frame_equal(read_table(tmp_path / name).reset_index(drop=True), table)
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "broken.csv").write_text("a,b\n1,2\n1,2,3,4\n")
    (tmp_path / "broken.parquet").write_text("no")
    for name, message in [
        ("empty.csv", "is empty"),
        ("broken.csv", "line 3 has more cells"),
        ("broken.parquet", "cannot read"),
        ("none.csv", "no file"),
    ]:
        with pytest.raises(ValueError, match=message):
            read_table(tmp_path / name)


def test_duplicate_names_are_refused():
    table = pd.DataFrame([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], columns=["a", "a", "y"])
    for features in (["a"], None):
        with pytest.raises(ValueError, match="two columns have the name 'a'"):
            discover(table, "y", features)


def test_duplicate_names_of_a_file_are_refused(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("a, a, y\n1, 2, 3\n4, 5, 6\n")
    assert list(read_table(path).columns) == ["a", "a", "y"]
    with pytest.raises(ValueError, match="two columns have the name 'a'"):
        discover(read_table(path), "y")


def test_fields_may_be_separated_by_semicolons(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("\na; b, in metres; y\n1; 2; 3\n4; 5; 6\n")
    assert list(read_table(path).columns) == ["a", "b, in metres", "y"]


def test_text_columns_are_mentioned_only_where_they_might_have_been_used():
    table = read_table("planets")
    assert any("planet is not made of numbers" in remark for remark in discover(table, "year").left_out)
    assert not any("planet" in remark for remark in discover(table, "year", ["axis"]).remarks)


def test_command_prints_formula_and_draws(tmp_path):
    precious, picture = tmp_path / "precious", tmp_path / "planets.png"
    precious.write_text("precious")
    picture.symlink_to(precious)
    command = [sys.executable, "-m", "nalm", "discover", "planets", "--target", "year"]
    shown = subprocess.run([*command, "--plot", str(picture)], capture_output=True, text=True, check=True).stdout
    lines = [line.rstrip() for line in shown.splitlines()]
    assert lines[1] == "year = axis**(3/2)"
    readme = (Path(__file__).parents[1] / "README.md").read_text()
    assert "\n".join(lines[:-1]) in readme
    assert picture.stat().st_size > 10_000
    assert precious.read_text() == "precious"
    document = json.loads(
        subprocess.run([*command, "--features", "axis", "--json"], capture_output=True, text=True, check=True).stdout
    )
    assert document["formula"] == "axis**(3/2)"
    assert document["found"]
    for extra, message in [
        (["--noise", "much"], "--noise takes auto or a number"),
        (["--features", "sun"], "no column 'sun'"),
        (["--plot", str(picture / "such.png")], "such.png: File exists"),
        (["--plot", str(tmp_path / "such.bmp")], "a figure is saved as .png"),
    ]:
        failed = subprocess.run([*command, *extra], capture_output=True, text=True, check=False)
        assert failed.returncode == 2
        assert message in failed.stderr
        assert "Traceback" not in failed.stderr


@pytest.mark.parametrize(
    "function", [lambda a, b, c: np.sqrt(a**2 + b**2), lambda a, b, c: (a + b) / c, lambda a, b, c: a**2 / b - c]
)
def test_noise_does_not_turn_whole_exponents_into_fractions(function, rng):
    x = rng.uniform(1, 2, (300, 4))
    y = function(*x[:, :3].T)
    noisy = NALMRegressor(random_state=0).fit(x, y * (1 + 0.01 * rng.normal(size=300)))
    assert noisy.found_
    assert noisy.law_.pattern == NALMRegressor(random_state=0).fit(x, y).law_.pattern


@pytest.mark.parametrize("function", [lambda a, b: np.sin(3 * a) * b, lambda a, b: np.log(a) * b, lambda a, b: np.exp(-a) + b])
def test_a_law_is_not_claimed_where_others_explain_as_much(function, rng):
    x = rng.uniform(1, 2, (300, 4))
    model = NALMRegressor(random_state=0).fit(x, function(x[:, 0], x[:, 1]) + 0.02 * rng.normal(size=300))
    assert not model.found_
    assert model.reason_


def test_reasons_are_given_for_each_target(rng):
    x = rng.uniform(1, 2, (200, 2))
    model = NALMRegressor(random_state=0).fit(x, np.column_stack([x[:, 0] * x[:, 1], rng.normal(size=200)]))
    assert model.found_ == [True, False]
    assert model.reason_ == ["", "no law of this form says more than a constant"]
