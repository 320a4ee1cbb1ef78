"""What counts as a law: series, mixtures and smooth errors do not, for tables and for equations of motion alike."""

from fractions import Fraction

import numpy as np
import pytest
import sympy as sp
from scipy.integrate import solve_ivp
from scipy.special import erf

from nalm import NALMRegressor, fit_ode
from nalm.discovery import OPERATIONS, Table, TableEvidence, chance, verdict
from nalm.discovery.fitting import law_of
from nalm.dynamics import read_trajectories
from nalm.dynamics.evidence import SystemEvidence
from nalm.dynamics.laws import Judge, LawSystem

ROWS = 300


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def answer(function, span, noise, seed, restarts=6):
    """What the regressor says of a function of three inputs, with noise in proportion to it."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(*span, (ROWS, 3))
    y = function(*x.T, rng) * (1 + noise * rng.normal(size=ROWS))
    return NALMRegressor(random_state=0, restarts=restarts).fit(x, y)


@pytest.mark.parametrize(
    ("function", "span", "noise", "seed"),
    [
        (lambda a, b, c, rng: b * erf(a), (-2, 2), 0.01, 0),
        (lambda a, b, c, rng: a * np.sin(b) + c, (0.5, 3), 0.01, 1),
        (lambda a, b, c, rng: np.log(a + b) * c, (1, 2), 0.01, 0),
        (lambda a, b, c, rng: np.where(rng.random(ROWS) < 0.5, a * b, a + b), (1, 2), 0.0, 2),
    ],
    ids=["error function", "sine", "logarithm", "mixture of two laws"],
)
def test_series_and_mixtures_are_no_laws(function, span, noise, seed):
    model = answer(function, span, noise, seed)
    assert not model.found_
    assert model.reason_


@pytest.mark.parametrize(
    ("function", "noise", "pattern"),
    [
        (lambda a, b, c, rng: a * b + c, 0.05, "a*b + c"),
        (lambda a, b, c, rng: 0.37 * a * b + 1.3 * c, 0.01, "a*b + c"),
        (lambda a, b, c, rng: 1.7 * a + 0.43, 0.01, "a + 1"),
        (lambda a, b, c, rng: a * b / (1 + c), 0.01, "a*b/(1 + c)"),
    ],
)
def test_noisy_laws_are_still_found(function, noise, pattern):
    model = answer(function, (0.5, 3), noise, 3, restarts=2)
    assert model.found_, model.reason_
    a, b, c = (sp.Symbol(f"x{i}", real=True) for i in (1, 2, 3))
    bare = model.formula_.xreplace({number: sp.Integer(1) for number in model.formula_.atoms(sp.Float)})
    wanted = sp.sympify(pattern, locals={"a": a, "b": b, "c": c})
    assert sp.simplify(bare - wanted) == 0 or np.isclose(float((bare / wanted).subs({a: 2, b: 3, c: 5})), 1, atol=0.05)


def judged(function, rows, span=(0.5, 3), noise=0.01):
    """What is said of the sum of products with these exponents where a function of three inputs made the data."""
    rng = np.random.default_rng(0)
    x = rng.uniform(*span, (ROWS, 3))
    table = Table(x, function(*x.T) * (1 + noise * rng.normal(size=ROWS)), np.ones(ROWS), rng)
    exponents = [[tuple(map(Fraction, one)) for one in some] for some in (rows, [(0, 0, 0)])]
    law, constant = (law_of(table, some, len(some), Fraction(1), 1) for some in exponents)
    return verdict(TableEvidence(table, [law, constant], constant, OPERATIONS))


LEFT_OVER = "no law of this form explains the data to the noise level"


@pytest.mark.parametrize(
    ("function", "rows"),
    [
        (lambda a, b, c: np.floor(a + b) + c, [(1, 0, 0), (0, 1, 0), (0, 0, 1), (0, 0, 0)]),
        (lambda a, b, c: np.round(a * b) * c, [(1, 1, 1)]),
    ],
    ids=["sum", "product"],
)
def test_jumps_along_a_sum_or_product_are_seen(function, rows):
    assert judged(function, rows, (-2, 2)) == LEFT_OVER


def test_a_function_in_place_of_a_coefficient_is_seen():
    assert judged(lambda a, b, c: a * b * (1 + 0.007 * np.sin(2 * c)), [(1, 1, 0)], (-2, 2)) == LEFT_OVER


def test_a_line_over_a_decade_is_no_series():
    assert judged(lambda a, b, c: 1.7 * a * b + 0.2, [(1, 1, 0), (0, 0, 0)]) == ""
    assert judged(lambda a, b, c: 1.7 * a * b + 9.43, [(1, 1, 0), (0, 0, 0)]) != ""


def test_uneven_errors_are_no_noise_of_one_law(rng):
    x = rng.uniform(1, 3, (ROWS, 2))
    y = x[:, 0] * x[:, 1] * (1 + 0.05 * (x[:, 1] > 2) * rng.normal(size=ROWS))
    assert not NALMRegressor(random_state=0, restarts=2).fit(x, y).found_


@pytest.mark.parametrize("seed", [1, 3])
def test_a_fraction_whose_one_makes_no_difference_is_no_law(seed):
    rng = np.random.default_rng(seed)
    x = rng.uniform(1, 5, (120, 2))
    y = 3 * x[:, 0] / x[:, 1] ** 2 * (1 + 0.002 * rng.normal(size=120))
    model = NALMRegressor(operations=("add", "mul", "div"), random_state=seed).fit(x, y)
    assert not model.found_, model.formula_


def test_chance_is_uniform_for_noise_and_small_for_a_trend(rng):
    place = np.linspace(-1, 1, 50)
    taken, basis = np.ones((50, 1)), np.column_stack([place, place**2, place**2])
    values = [chance(rng.normal(size=50), taken, basis) for _ in range(400)]
    assert np.mean(values) == pytest.approx(0.5, abs=0.06)
    assert chance(place + 0.1 * rng.normal(size=50), taken, basis) < 1e-10


def series(slope, start, end, points, digits=5):
    """Trajectories as others hand them over: integrated to five digits and printed with as many."""
    times = np.linspace(0, end, points)
    states = solve_ivp(lambda _, u: slope(*u), (0, end), start, "RK45", times, rtol=1e-5, atol=1e-8).y.T
    return times, np.array([[float(f"{value:.{digits}g}") for value in row] for row in states])


SMOOTH = {
    "logistic": (lambda x: [0.8 * x - 0.016 * x**2], (2.0,), 15.0, 50, {"x**2", "x"}),
    "cubic": (lambda x: [-(x**3)], (2.0,), 5.0, 40, {"x**3"}),
    "threshold": (lambda x: [0.5 * x**2 - 0.1 * x**3], (0.6,), 12.0, 45, {"x**2", "x**3"}),
}


@pytest.mark.parametrize("name", SMOOTH)
def test_laws_are_found_in_spite_of_smooth_errors_and_without_terms_for_them(name):
    *system, terms = SMOOTH[name]
    fit = fit_ode(*series(*system))
    assert fit.found, fit.reason
    assert set(map(str, fit.equations["x"].as_coefficients_dict())) == terms


def test_states_on_a_line_do_not_tell_one_law_from_another():
    fit = fit_ode(*series(lambda x, y: [x * y - 0.5 * x * y**2, 0.5 * x * y**2 - x * y], (1.0, 3.0), 4.0, 40), restarts=2)
    assert not fit.found
    assert fit.to_json()["reason"] == fit.reason != ""


def reason_of(slope, start, products, *rows, noise=0.0):
    """What is said of the best sum of some products for the slope of y, beside that of x, on one trajectory."""
    times = np.linspace(0, 20, 60)
    states = solve_ivp(lambda _, u: slope(*u), (0, 20), start, t_eval=times, rtol=1e-10, atol=1e-10).y.T
    states += noise * states.std(0) * np.random.default_rng(0).normal(size=states.shape)
    judge = Judge(read_trajectories(times, states, ["x", "y"]))
    exponents = np.array(products, float)
    system = LawSystem(exponents, np.array(rows, float), np.zeros(exponents.shape, bool))
    judge.refine_steps(system)
    fitted = judge.fit(system)
    return verdict(SystemEvidence(judge, fitted, judge.path(fitted) - states))


def test_a_series_on_a_curve_of_equal_energy_is_no_law():
    products, motion = [(0, 1), (1, 2), (1, 0), (3, 0)], (1.0, 0, 0, 0)
    for start in (1.0, 2.0):
        assert reason_of(lambda x, y: [y, -2 * np.sin(x)], (start, 0), products, motion, (0, -0.1, -1.4, 0.12))
    shorter = reason_of(lambda x, y: [y, -2 * np.sin(x)], (2.0, 0), products[:3], (1, 0, 0), (0, -0.2, -0.92), noise=0.01)
    assert shorter == "these data do not tell this law from another that is as simple"


def test_three_terms_of_a_true_law_stay_one():
    products, motion = [(0, 1), (2, 1), (1, 0)], (1.0, 0, 0)
    reason = reason_of(lambda x, y: [y, 1.5 * (1 - x * x) * y - x], (2.0, 0), products, motion, (1.5, -1.5, -1))
    assert reason == ""
