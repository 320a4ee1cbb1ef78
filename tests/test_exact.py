"""Computations without training: each runs, gives what its claims name, and agrees with formulas written down here."""

import math
from functools import cache

import numpy as np
import pytest
from scipy import integrate

from nalm.claims import judge_exact
from nalm.exact import COMPUTATIONS
from nalm.exact.derivations import backward_variance, forward_variance, nac_weight_variance
from nalm.experiments import load, load_all

EXPERIMENTS = [one for one in load_all() if one.compute in COMPUTATIONS]
TABLES_ONLY = ("D:sec8", "S:appH", "S:tab9", "T:appC", "T:appG.1", "T:tab2.1", "T:tab6.1")
TARGET = 13.2
"""(1 + 1.2) (1 + 1.2 + 1.8 + 2), what the loss surfaces are about."""


@cache
def result(identity):
    experiment = load(identity)
    return COMPUTATIONS[experiment.compute](experiment.settings)


@cache
def figure(identity):
    return result(identity).figure()


def image(identity, panel):
    """Numbers of a heat map, rows by w2."""
    return figure(identity).axes[panel].images[0].get_array()


def test_every_computation_has_its_experiment():
    assert sorted(one.compute for one in EXPERIMENTS) == sorted(COMPUTATIONS)


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda one: one.id)
def test_gives_finite_values_for_every_claim_and_a_table(experiment):
    found = result(experiment.id)
    assert found.values
    assert all(type(value) is float and math.isfinite(value) for value in found.values.values())
    assert {claim.key for claim in experiment.claims} <= set(found.values)
    assert found.table
    assert all(row.keys() == found.table[0].keys() for row in found.table), "rows of a table have the same columns"


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda one: one.id)
def test_panels_have_titles_and_labels(experiment):
    if experiment.id in TABLES_ONLY:
        assert result(experiment.id).figure is None
        return
    panels = [axes for axes in figure(experiment.id).axes if axes.get_title()]
    assert panels
    assert all(axes.get_xlabel() and axes.get_ylabel() for axes in panels)
    assert len({axes.get_title() for axes in panels}) == len(panels)


def test_which_claims_the_numbers_do_not_confirm():
    differ = {v.claim.id: one for one in EXPERIMENTS for v in judge_exact(one, result(one.id).values) if v.verdict == "differ"}
    assert sorted(differ) == ["D0163", "D0425", "T0404", "T0449", "T0450"]
    for claim, experiment in differ.items():
        assert any(claim in explanation.ids for explanation in experiment.explanations)


def test_results_follow_from_the_settings():
    for identity in ("M:appA", "S:appH", "T:appC"):
        experiment = load(identity)
        again = COMPUTATIONS[experiment.compute](experiment.settings)
        assert (again.values, again.table) == (result(identity).values, result(identity).table)


def test_nac_surface_is_the_written_formula():
    w1, w2 = np.meshgrid(np.linspace(-1, 1, 201), np.linspace(-1, 1, 201))
    for panel, epsilon in enumerate((1e-7, 0.1, 1.0)):
        loss = np.abs((np.abs(2.2 * w1) + epsilon) ** w2 * (np.abs(6 * w1) + epsilon) ** w2 - TARGET)
        np.testing.assert_allclose(image("M:fig2", panel), loss, rtol=1e-6, atol=1e-9)  # w1 = 0 up to rounding
        assert result("M:fig2").values[f"largest_loss_over_target_{epsilon:g}"] == pytest.approx(loss.max() / TARGET)


def test_division_surfaces_are_the_written_formulas():
    w1, w2 = np.meshgrid(np.linspace(-1, 1, 200), np.linspace(-1, 1, 200))
    a, b = 2.2 * w1, 6 * w1
    size = (np.abs(a) + 1e-5) ** w2 * (np.abs(b) + 1e-5) ** w2
    np.testing.assert_allclose(image("D:fig9", 0), np.abs(size * np.cos(2 * np.pi * w2 * (w1 < 0)) - TARGET), rtol=1e-8)
    amount = np.tanh(1000 * w2) ** 2
    factors = [amount * np.sign(z) * np.abs(z) ** w2 + 1 - amount for z in (a, b)]
    np.testing.assert_allclose(image("D:fig9", 1), np.abs(factors[0] * factors[1] - TARGET), rtol=1e-8, atol=1e-9)
    w2 = (w2 + 1) / 2
    size = (w2 * np.abs(a) + 1 - w2) * (w2 * np.abs(b) + 1 - w2)
    np.testing.assert_allclose(
        image("D:fig9", 2), np.abs(size * np.cos(2 * np.pi * w2 * (w1 < 0)) - TARGET), rtol=1e-8, atol=1e-9
    )


def test_clipping_holds_the_nmu_at_zero():
    values = result("S:fig3").values
    assert values["output_at_wrong_minimum"] == pytest.approx(1.5 * 2.4)
    assert values["smallest_slope_after_clipping"] == pytest.approx(2 * (1 - 3.6) * (-1.8 - 1))
    assert values["output_after_clipping"] == 1


def test_start_grid_of_the_nmu_follows_the_written_gradient():
    w1, w2 = np.meshgrid(np.linspace(0, 1, 21), np.linspace(0, 1, 21))
    for _ in range(2500):
        a, b = 1 - 3 * w1, 1 - 2.8 * w2
        residual = 2e-3 * (a * b - 3.6)
        w1, w2 = np.clip(w1 + 3 * residual * b, 0, 1), np.clip(w2 + 2.8 * residual * a, 0, 1)
    values = result("T:fig4.3").values
    assert values["nmu_text"] == pytest.approx(np.mean((w1 > 0.5) & (w2 > 0.5)))
    assert values["nmu_text"] == pytest.approx(336 / 441)
    assert values["snmu_text"] > 0.9
    assert values["largest_distance_from_a_corner"] < 1e-6


def test_gradient_of_the_npu_with_final_gates():
    """For g = (1, 0) the derivative is 2 E[(x^w - x) x^w ln x] with x from U(0, 2); at w = 2 the integral is elementary."""
    norms = image("H:fig3", 2)
    w1 = np.linspace(-1, 2.5, norms.shape[1])
    exact = 2.4 * math.log(2) - 0.28
    assert norms[0, np.abs(w1 - 2).argmin()] == pytest.approx(exact, rel=0.05)
    assert np.ptp(norms, axis=0).max() == 0
    values = result("H:fig3").values
    assert values["zero_share_naive_code"] > 0.8
    assert values["zero_share_npu_code"] == 0


def test_nru_gradient_at_minus_one_has_the_written_maximum():
    values = result("D:eq6").values
    assert values["largest_at_minus_one"] == pytest.approx(4000 * 2 / (3 * math.sqrt(3)), rel=1e-3)
    assert values["largest_at_one"] == 0
    assert values["thesis_formula_difference"] < 1e-12
    assert values["paper_formula_difference"] > 1
    assert values["large_input_weight_minus_one"] == pytest.approx(math.log(100) / 100)


def test_two_layer_gradients_agree_but_for_the_misprint():
    values = dict(result("S:appH").values)
    assert values.pop("nau_of_nau_snmu_as_printed") > 0.1
    assert len(values) == 4
    assert max(values.values()) < 1e-12


def test_derivations_hold():
    values = result("M:appA").values
    assert values["largest_gradient_difference"] < 1e-12
    assert 0 < values["largest_moment_deviation"] < 4
    assert values["variance_of_code"] == pytest.approx(1 / 48, rel=1e-2)
    assert values["variance_backward"] == pytest.approx(0.25, abs=1e-5)


@pytest.mark.parametrize("r", [0.3, 2.0, 9.47])
def test_nac_weight_variance_is_the_integral(r):
    tanh = integrate.quad(lambda x: math.tanh(x) ** 2, -r, r)[0] / (2 * r)
    sigmoid = integrate.quad(lambda x: (1 + math.exp(-x)) ** -2, -r, r)[0] / (2 * r)
    assert nac_weight_variance(r) == pytest.approx(tanh * sigmoid)


@pytest.mark.parametrize("inputs", [1, 2, 7, 40])
def test_best_variances_solve_their_equations(inputs):
    forward, backward = forward_variance(inputs), backward_variance(inputs)
    assert (2 * (forward + 0.25)) ** inputs - 4.0**-inputs == pytest.approx(1)
    assert inputs * (backward + 0.25) ** inputs * 2 ** (inputs - 1) == pytest.approx(1)


def test_moment_approximation_against_the_integral():
    """E[z^W] for W from U(-r, r) is sinh(r ln z) / (r ln z); the largest error is where inputs are smallest."""
    r = 0.001 + 45 * 0.011
    exact = integrate.quad(lambda z: math.sinh(r * math.log(z)) / (r * math.log(z)), 0, 1)[0]
    taylor = 1 + r**2 / 6 * math.log(0.5) ** 2
    values = result("M:fig5").values
    assert values["smallest_error"] == pytest.approx(taylor - exact, abs=5e-3)
    assert values["highest_tick"] == 0


@pytest.mark.parametrize(
    ("task", "module", "published"),
    [
        ("1/a of one input", "NRU", (8.674e-4, 4.256e-5, 3.637e-7, 1.206e-7, 1.193e-7)),
        ("1/a of one input", "Real NPU", (1.153e12, 2.046e9, 4.910e5, 55.25, 5.590e-3)),
        ("1/a of one input", "NMRU, as published", (3.669e-3, 4.197e-5, 3.635e-7, 1.206e-7, 1.193e-7)),
        ("1/a of two inputs", "NRU", (8.080e-4, 9.268e-6, 1.760e-7, 1.263e-7, 1.192e-7)),
        ("1/a of two inputs", "Real NPU", (1.310e12, 3.463e9, 1.115e6, 132.2, 1.345e-2)),
        ("1/a of two inputs", "NMRU, as published", (2.808e-3, 9.268e-6, 1.760e-7, 1.263e-7, 1.192e-7)),
        ("a/b", "NRU", (1.192e-7, 1.192e-7, 1.192e-7, 1.192e-7, 1.192e-7)),
        ("a/b", "Real NPU", (2531.4, 401.3, 8.685, 0.09694, 9.815e-4)),
        ("a/b", "NMRU, as published", (3.273e-2, 8.968e-5, 5.592e-7, 1.374e-7, 1.192e-7)),
    ],
)
def test_gold_errors_are_the_published_thresholds(task, module, published):
    errors = {row["x"]: row[module] for row in result("D:fig5").table if row["task"] == task}
    found = [errors[x] + np.finfo(np.float32).eps for x in (1e-4, 1e-3, 1e-2, 1e-1, 1)]
    np.testing.assert_allclose(found, published, rtol=1e-3)


def test_order_of_summands_is_all_that_parts_the_nmru_from_the_published_one():
    for row in result("D:fig5").table:
        assert row["NMRU"] <= row["NMRU, as published"] * 1.2


def test_selection_errors_by_hand():
    values = result("S:tab9").values
    for name, (_, b, c, d) in {"i1": (1, 2, 3, 4), "i2": (1.11, 1.12, 1.13, 1.14)}.items():
        right = (b + c) * (c + d)
        assert values[f"right_{name}_output"] == pytest.approx(right)
        assert values[f"weight_{name}_error"] == pytest.approx(right - (0.9 * b + c) * (c + d))
        assert values[f"selection_{name}_error"] == pytest.approx(abs(right - (c + 0.9 * d) * (c + d)))


def test_width_one_needs_a_bias_up_to_zero():
    values = result("T:fig1.4").values
    assert values["width1_bias_-1_error_on_positive"] < 1e-12
    smallest = 2 * 6 / 119
    assert values["width1_bias_2_error_on_positive"] == pytest.approx(2 / 0.5 - smallest)
    assert values["width4_add_mse"] == values["width4_sub_mse"] == 0


def test_capabilities_are_tried_not_only_declared():
    settings = load("T:tab2.1").settings
    strict = COMPUTATIONS["capabilities"]({**settings, "tolerance": 0.0}).values
    assert strict["nau_addition"] == 1
    assert strict["npu_multiplication"] == 0, "the NPU's epsilon stays on"
    positive = {**settings["inputs"], "negative": settings["inputs"]["positive"]}
    assert COMPUTATIONS["capabilities"]({**settings, "inputs": positive}).values["nalu_negative-input"] == 1
    assert result("T:tab2.1").values["nalu_negative-input"] == 0


@pytest.mark.parametrize(("inputs", "outputs"), [(1, 1), (5, 4)])
def test_parameter_counts(inputs, outputs):
    values = COMPUTATIONS["parameter_counts"]({**load("D:sec8").settings, "inputs": inputs, "outputs": outputs}).values
    assert values == {"nru": inputs * outputs, "real-npu": inputs * (outputs + 1), "nmru": 2 * inputs * outputs}


def test_scaled_nmu_multiplies_only_with_the_published_numbers():
    values = result("T:tab6.1").values
    assert max(values["fixed_function"], values["learnt_function"]) < 3e-4
    settings = load("T:tab6.1").settings
    models = {**settings["models"], "learnt": {**settings["models"]["learnt"], "weight": [0.42, 0.293096]}}
    changed = COMPUTATIONS["scaled_nmu"]({**settings, "models": models}).values
    assert changed["learnt_function"] > 0.1
    assert changed["learnt_weight"] > 1e-3


def test_nalu_subtracts_step_by_step():
    values = result("T:appC").values
    assert values["naive_npu_difference"] < 1e-12
    assert (values["summed"], values["output"], values["gate"]) == pytest.approx((-1, -1, 1))
    assert values["multiplied"] == pytest.approx(2 / 3)


def test_signs_are_those_of_the_state_machine():
    real, nmru = result("T:appG.1").table
    assert (real["cases"], nmru["cases"]) == (4**3 * 3**3 * 2**3, 3**3 * 2**6)
    assert (real["same sign"], nmru["same sign"]) == (real["cases"], nmru["cases"])


def test_noise_bound_of_the_layer():
    values = result("S:fig6").values
    assert values["formula_difference"] < 1e-12
    assert values["U[1,2)"] == pytest.approx(1 + math.sqrt(12))
    assert values["U[-20,-10)"] == pytest.approx(1 + math.sqrt(12) / 10)


def test_penalties_vanish_at_their_targets_only():
    values = result("T:fig2.11").values
    assert [values[f"nau_{w:g}"] for w in (-1, -0.5, 0, 0.5, 1)] == [0, 0.5, 0, 0.5, 0]
    assert [values[f"nmu_{w:g}"] for w in (-1, 0, 0.5, 1)] == [1, 0, 0.5, 0]
    assert [values[f"inalu_{w:g}"] for w in (-25, -20, 0, 10, 20)] == [0, 0, 20, 10, 0]


def test_golden_weights_are_flatter_by_the_logarithm_of_the_base():
    values = result("T:fig2.12").values
    log = math.log((1 + math.sqrt(5)) / 2)
    assert values["NALU_steepest_slope"] == pytest.approx(1 / (1 + math.exp(-10)), rel=1e-6)
    assert values["G-NALU_steepest_slope"] == pytest.approx(log / (1 + math.exp(-10 * log)), rel=1e-3)
    assert values["NALU_discrete_share"] > values["G-NALU_discrete_share"]
