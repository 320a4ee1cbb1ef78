"""Thresholds, selection, outcomes, intervals and rows of `nalm.metrics`."""

import json
import math
import time

import numpy as np
import pytest
from scipy import stats

from nalm.metrics import (
    FixedThreshold,
    GoldThreshold,
    Interval,
    SimulatedThreshold,
    beta_interval,
    describe_runs,
    gamma_interval,
    outcomes,
    select_rows,
    summarise,
    wilson_interval,
)
from nalm.specs import Cell, Recipe, Runs

NAN = math.nan


def make_cell(operation="mul", inputs=2, extrapolation="U[2,6)"):
    return Cell("nmu", operation, inputs, "U[1,2)", extrapolation, Recipe(iterations=3_000))


def make_runs(validation, test, sparsity=None, status=None):
    """Runs with a logged row every 1,000 steps; one list of errors a run."""
    validation, test = np.array(validation, dtype=float), np.array(test, dtype=float)
    count, rows = validation.shape
    return Runs(
        seeds=np.arange(count),
        steps=1_000 * np.arange(rows),
        validation=validation,
        test=test,
        sparsity=np.full((count, rows), 0.1) if sparsity is None else np.array(sparsity, dtype=float),
        weights=np.ones((count, 2)),
        status=status or ["ok"] * count,
        messages=[""] * count,
    )


# Thresholds

UNION = "U[-6,-2)|U[2,6)"


@pytest.mark.parametrize(
    ("operation", "inputs", "extrapolation", "closed_form"),
    [
        ("add", 2, "U[20,40)", 3.667e-07),
        ("sub", 2, "U[-40,-20)", 3.667e-07),
        ("mul", 2, "U[20,40)", 3.484e-04),
        ("div", 2, "U[20,40)", 4.667e-10),
        ("add", 2, UNION, 6.667e-09),
        ("mul", 2, "U[2,6)", 1.202e-07),
        ("div", 2, UNION, 5.778e-10),
        ("div", 2, "U[0.2,2)", 1.480e-09),
        ("add", 10, "U[1.2,6)", 1.315e-07),
        ("sub", 10, "U[-6.1,-1.2)", 1.352e-07),
        ("mul", 10, "U[20,40)", 5.114),
        ("mul", 10, UNION, 3.504e-05),
        ("mul", 10, "U[-2,-0.2)", 2.602e-08),
        ("div", 10, "U[20,40)", 6.849e-06),
        ("div", 10, "U[-6.1,-1.2)", 2.071e-07),
        ("add", 100, "U[20,40)", 9.003e-04),
        ("sub", 100, UNION, 1.601e-05),
        ("add", 100, "U[0.2,2)", 1.213e-06),
    ],
)
def test_simulated_thresholds_against_closed_forms(operation, inputs, extrapolation, closed_form):
    threshold = SimulatedThreshold(samples=200_000).value(make_cell(operation, inputs, extrapolation))
    assert threshold == pytest.approx(closed_form, rel=0.02)


@pytest.mark.parametrize(
    ("operation", "moment"),
    [
        ("identity", 16 + 16 / 12),  # E x²
        ("square", 4 * (6**5 - 2**5) / 20),  # 4 E x⁴
        ("reciprocal", 1 / 12),  # E 1/x²
        ("sqrt", 4 / 4),  # E x / 4
    ],
)
def test_simulated_thresholds_of_one_operand(operation, moment):
    threshold = SimulatedThreshold(samples=200_000).value(make_cell(operation, 1))
    assert threshold == pytest.approx(1e-10 * moment, rel=0.02)


def test_irrelevant_inputs_raise_the_threshold_of_one_operand():
    """With one more input, epsilon |x| joins: 1 / x² (epsilon + epsilon |z|)² for the reciprocal, and so on."""
    wider = {
        op: SimulatedThreshold(samples=200_000).value(make_cell(op, 2)) for op in ("identity", "square", "reciprocal", "sqrt")
    }
    mean, square = 4, 16 + 16 / 12
    assert wider["identity"] == pytest.approx(1e-10 * (2 * square + 2 * mean**2), rel=0.02)
    assert wider["reciprocal"] == pytest.approx(1e-10 / 12 * (1 + 2 * mean + square), rel=0.02)
    assert wider["square"] == pytest.approx(1e-10 * (6**5 - 2**5) / 20 * (4 + 4 * mean + square), rel=0.02)
    assert wider["sqrt"] == pytest.approx(1e-10 * mean * (1 / 4 + mean + square), rel=0.02)


def test_simulated_threshold_grows_with_the_square_of_epsilon():
    cell = make_cell("div", 2)
    ratio = SimulatedThreshold(1e-4, 50_000).value(cell) / SimulatedThreshold(1e-5, 50_000).value(cell)
    assert ratio == pytest.approx(100, rel=1e-3)


@pytest.mark.parametrize(
    ("task", "operation", "inputs", "extrapolation", "data", "published"),
    [
        ("arithmetic-dataset", "mul", 100, "U[2,6)", {}, 0.16005),
        ("arithmetic-dataset", "add", 100, "U[2,6)", {}, 1.4785e-05),
        ("arithmetic-dataset", "sub", 100, "U[2,6)", {}, 1.3855e-08),
        ("arithmetic-dataset", "div", 100, "U[2,6)", {}, 4.9548e-12),
        ("arithmetic-dataset", "sqrt", 100, "U[2,6)", {}, 8.953e-09),
        ("arithmetic-dataset", "square", 100, "U[2,6)", {}, 0.15947),
        ("arithmetic-dataset", "mul", 100, "U[-6,-2)|U[2,6)", {}, 2.3079e-04),
        ("arithmetic-dataset", "mul", 100, "U[2,6)", {"subset": 0.5}, 0.0022214),
        ("arithmetic-dataset", "mul", 100, "U[2,6)", {"overlap": 0.0}, 0.16053),
        ("arithmetic-dataset", "mul", 10, "U[2,6)", {}, 1.51e-05),
        ("function4", "mul", 4, "U[2,6)", {}, 2.157e-06),
        ("function4", "sub", 4, "U[2,6)", {}, 2.6645e-08),
    ],
)
def test_simulated_thresholds_of_two_layers_are_the_published_ones(task, operation, inputs, extrapolation, data, published):
    cell = Cell("nau+nmu", operation, inputs, "U[1,2)", extrapolation, Recipe(), task, (), tuple(data.items()))
    assert SimulatedThreshold(samples=100_000).value(cell) == pytest.approx(published, rel=0.02)


def test_simulated_threshold_uses_exactly_the_samples_asked_for():
    """Small numbers of samples are a prefix of larger ones, also across chunks."""
    one, two = (SimulatedThreshold(samples=n).value(make_cell("add")) for n in (8_192, 8_193))
    extra = (two * 8_193 - one * 8_192) / 1e-10
    assert 16 <= extra <= 144


def test_simulated_threshold_of_other_distributions():
    halves = SimulatedThreshold(samples=50_000).value(make_cell("mul", 2, "U[-6,-2)&U[2,6)"))
    assert halves == pytest.approx(1.202e-07, rel=0.05)
    sobol = SimulatedThreshold(samples=50_000).value(make_cell("mul", 2, "Sobol(2,6)"))
    assert sobol == pytest.approx(1.202e-07, rel=0.001)


@pytest.mark.parametrize(("operation", "extrapolation"), [("and", "U[2,6)"), ("sqrt", "U[-6,-2)"), ("div", "Sobol(-1,1)")])
def test_simulated_threshold_refuses_what_has_none(operation, extrapolation):
    with pytest.raises(ValueError, match=f"no simulated threshold for .?{operation}"):
        SimulatedThreshold(samples=10_000).value(make_cell(operation, 2, extrapolation))


def test_fixed_and_gold_thresholds():
    assert FixedThreshold().value(make_cell()) == 1e-5
    assert FixedThreshold(2.0).value(make_cell()) == 2.0
    assert GoldThreshold(0.0).value(make_cell()) == pytest.approx(1.1920929e-07)
    assert GoldThreshold(5.590e-3).value(make_cell()) == pytest.approx(5.590e-3 + 1.1920929e-07, rel=1e-12)
    assert [t.inclusive for t in (FixedThreshold, SimulatedThreshold, GoldThreshold)] == [False, False, True]


# Selection and outcomes


def test_selection_takes_the_first_minimum_and_skips_nan():
    validation = np.array(
        [
            [3, 1, 2, 1],  # a tie
            [0, 1, 2, 3],  # the untrained model
            [NAN, 5, NAN, 4],
            [NAN, math.inf, math.inf, NAN],  # infinite is worse than any number but not missing
            [NAN] * 4,
        ]
    )
    assert select_rows(validation).tolist() == [1, 0, 3, 1, -1]


def test_selection_looks_at_the_last_rows_only():
    validation = np.array([[0.0, 3, 1, 2], [0.0, NAN, NAN, 7]])
    assert select_rows(validation, last=3).tolist() == [2, 3]
    assert select_rows(validation, last=1).tolist() == [3, 3]
    assert select_rows(validation, last=4).tolist() == [0, 0]
    long = np.r_[0.0, np.arange(5_000, 0, -1)][None]
    assert select_rows(long).tolist() == [5_000]


def test_outcomes():
    runs = make_runs(
        validation=[[4, 3, 2, 1], [4, 3, 2, 1], [4, 3, 1, 2], [1, 2, 3, 4], [4, 3, 2, NAN], [4, 3, 1, NAN], [NAN] * 4],
        test=[
            [9, 0.1, 9, 0.2],  # solved early, not solved after, solved where selected
            [9, 0.1, 0.1, 9],  # solved early but not where selected
            [9, 9, NAN, 0.1],  # missing where selected
            [0.1, 9, 9, 9],  # solved untrained
            [9, 9, 0.1, NAN],  # diverged after it was solved
            [9, 9, 1, NAN],  # equal to the threshold
            [0.1] * 4,  # nothing to select by
        ],
        sparsity=np.arange(28).reshape(7, 4),
    )
    judged = outcomes(runs, threshold=1.0)
    assert judged.solved.tolist() == [True, False, False, True, True, False, False]
    np.testing.assert_array_equal(judged.solved_at, [1_000, NAN, NAN, 0, 2_000, NAN, NAN])
    assert judged.selected.tolist() == [3, 3, 2, 0, 2, 2, -1]
    np.testing.assert_array_equal(judged.interpolation_error, [1, 1, 1, 1, 2, 1, NAN])
    np.testing.assert_array_equal(judged.extrapolation_error, [0.2, 9, NAN, 0.1, 0.1, 1, NAN])
    np.testing.assert_array_equal(judged.sparsity_error, [3, 7, 10, 12, 18, 22, NAN])
    assert outcomes(runs, 1.0, inclusive=True).solved.tolist() == [True, False, False, True, True, True, False]


def test_solved_at_looks_at_rows_that_cannot_be_selected():
    runs = make_runs(validation=[[0, 3, 1, 2]], test=[[0.1, 9, 0.1, 9]])
    judged = outcomes(runs, 1.0, last=3)
    assert (judged.selected.item(), judged.solved_at.item()) == (2, 0)


# Intervals


@pytest.mark.parametrize("level", [0.9, 0.95])
@pytest.mark.parametrize(("successes", "runs"), [(0, 25), (1, 25), (13, 100), (94, 100), (25, 25), (1, 1), (0, 1)])
def test_wilson_interval_against_scipy(successes, runs, level):
    expected = stats.binomtest(successes, runs).proportion_ci(level, method="wilson")
    interval = wilson_interval(successes, runs, level)
    assert interval.mean == successes / runs
    assert (interval.low, interval.high) == pytest.approx((expected.low, expected.high), abs=1e-12)
    assert 0 <= interval.low <= interval.mean <= interval.high <= 1


def test_wilson_interval_of_the_papers():
    """13 % (+8, -5) and 94 % (+3, -6) of 100 seeds."""
    for successes, above, below in ((13, 8, 5), (94, 3, 6)):
        interval = wilson_interval(successes, 100)
        assert round(100 * (interval.high - interval.mean)) == above
        assert round(100 * (interval.mean - interval.low)) == below


def grid_interval(log_likelihood, means, others, level=0.95):
    """Profile likelihood by brute force: best mean, and the range of means within the cut."""
    profile = log_likelihood(means[:, None, None], others[None, :, None]).sum(axis=2).max(axis=1)
    inside = means[profile >= profile.max() - stats.chi2.ppf(level, 1) / 2]
    return means[profile.argmax()], inside.min(), inside.max()


@pytest.mark.parametrize(("shape", "count", "level"), [(3.0, 25, 0.95), (0.4, 25, 0.95), (40.0, 10, 0.9), (150.0, 25, 0.95)])
def test_gamma_interval_against_a_grid(shape, count, level):
    x = np.random.default_rng(7).gamma(shape, 20_000 / shape, count)
    interval = gamma_interval(x, level)
    width = interval.high - interval.low
    means = np.linspace(max(interval.low - width / 4, 1), interval.high + width / 4, 600)
    shapes = shape * np.geomspace(1 / 8, 8, 300)
    expected = grid_interval(lambda m, k: stats.gamma.logpdf(x, k, scale=m / k), means, shapes, level)
    assert (interval.mean, interval.low, interval.high) == pytest.approx(expected, abs=2 * (means[1] - means[0]))
    assert interval.mean == pytest.approx(x.mean())


@pytest.mark.parametrize("published", [False, True])
@pytest.mark.parametrize(("a", "b", "count", "level"), [(2, 5, 25, 0.95), (60, 2, 25, 0.95), (0.3, 0.5, 40, 0.9)])
def test_beta_interval_against_a_grid(a, b, count, level, published):
    x = np.random.default_rng(8).beta(a, b, count) / 2
    interval = beta_interval(x, level, published)
    width = interval.high - interval.low
    means = np.linspace(max(interval.low - width / 4, 1e-6), min(interval.high + width / 4, 0.5 - 1e-6), 600)
    y = x if published else 2 * x
    sums = (y.mean() * (1 - y.mean()) / y.var() - 1) * np.geomspace(1 / 8, 8, 400)
    expected = grid_interval(lambda m, v: stats.beta.logpdf(y, 2 * m * v, (1 - 2 * m) * v), means, sums, level)
    assert (interval.mean, interval.low, interval.high) == pytest.approx(expected, abs=2 * (means[1] - means[0]))


def test_gamma_interval_covers_the_mean():
    draws = np.random.default_rng(9).gamma(2.0, 5_000.0, (400, 30))
    intervals = [gamma_interval(x) for x in draws]
    assert 0.90 <= np.mean([i.low <= 10_000 <= i.high for i in intervals]) <= 0.985


def test_beta_interval_covers_the_mean():
    draws = np.random.default_rng(10).beta(2.0, 6.0, (400, 30)) / 2
    intervals = [beta_interval(x) for x in draws]
    assert 0.90 <= np.mean([i.low <= 0.125 <= i.high for i in intervals]) <= 0.985


def test_gamma_interval_scales_with_its_values():
    x = np.random.default_rng(11).gamma(2.0, 1.0, 20)
    small, large = gamma_interval(x), gamma_interval(x * 1e6)
    assert (large.mean, large.low, large.high) == pytest.approx((small.mean * 1e6, small.low * 1e6, small.high * 1e6))


def test_beta_interval_of_tiny_values_is_that_of_a_gamma_distribution():
    x = np.random.default_rng(12).gamma(3.0, 1e-7, 25)
    beta, gamma = beta_interval(x), gamma_interval(x * 1e9)
    assert (beta.mean, beta.low, beta.high) == pytest.approx((gamma.mean / 1e9, gamma.low / 1e9, gamma.high / 1e9), rel=1e-5)


def test_beta_interval_is_symmetric():
    x = np.random.default_rng(13).beta(3, 1, 20) / 2
    one, other = beta_interval(x), beta_interval(0.5 - x)
    assert (one.mean, one.low, one.high) == pytest.approx((0.5 - other.mean, 0.5 - other.high, 0.5 - other.low))


@pytest.mark.parametrize(
    ("mean", "deviation", "halved"), [(0.4993, 2e-4, 0.2497), (0.2008, 0.05, 0.1004), (3.80e-5, 1e-5, 1.90e-5)]
)
def test_published_beta_interval_halves_the_mean(mean, deviation, halved):
    x = np.random.default_rng(14).normal(size=25)
    x = mean + deviation * (x - x.mean()) / x.std() / 2
    assert beta_interval(x, published=True).mean == pytest.approx(halved, rel=5e-3)
    assert beta_interval(x).mean == pytest.approx(mean, rel=5e-3)


CONCENTRATED = [
    np.full(20, 5_000_000.0) + np.arange(20) * 1e-3,
    np.full(20, 1_000.0) + np.arange(20) * 1e-5,
    np.array([1e9, 1e9 + 1] * 10),
]


@pytest.mark.parametrize("x", CONCENTRATED, ids=lambda x: f"{x[0]:g}")
def test_gamma_interval_of_concentrated_values_is_that_of_a_normal_distribution(x):
    """The profile likelihood of a normal mean: half-width sd √(exp(z²/n) - 1), sd with divisor n."""
    half = x.std() * math.sqrt(math.expm1(stats.norm.ppf(0.975) ** 2 / len(x)))
    interval = gamma_interval(x)
    assert (interval.mean - interval.low, interval.high - interval.mean) == pytest.approx((half, half), rel=1e-3)


@pytest.mark.parametrize("start", [0.1, 0.25, 0.4])
def test_beta_interval_of_concentrated_values_is_that_of_a_normal_distribution(start):
    x = start + np.arange(20) * 1e-8
    half = x.std() * math.sqrt(math.expm1(stats.norm.ppf(0.975) ** 2 / len(x)))
    interval = beta_interval(x)
    assert interval.mean == pytest.approx(x.mean(), rel=1e-12)
    assert (interval.mean - interval.low, interval.high - interval.mean) == pytest.approx((half, half), rel=1e-3)


@pytest.mark.parametrize("interval_of", [gamma_interval, beta_interval])
def test_intervals_of_few_or_equal_values(interval_of):
    assert all(math.isnan(v) for v in vars(interval_of([])).values())
    one = interval_of([0.25])
    assert one.mean == 0.25
    assert math.isnan(one.low)
    assert math.isnan(one.high)
    assert interval_of([0.25] * 3) == Interval(0.25, 0.25, 0.25)
    assert interval_of([0.0] * 3) == Interval(0, 0, 0)
    assert interval_of([0.2, NAN, 0.4, math.inf]) == interval_of([0.2, 0.4])


@pytest.mark.parametrize(
    ("interval_of", "x", "largest"),
    [
        (gamma_interval, [0.0, 1_000, 2_000, 2_000], math.inf),  # a value of zero
        (gamma_interval, [0.0, 0, 0, 1_000], math.inf),  # cut at zero
        (gamma_interval, [1.0, 1 + 1e-6, 1 - 1e-6], math.inf),  # hardly any deviation
        (beta_interval, [1e-11, 2e-11, 4e-11], 0.5),
        (beta_interval, [0.5, 0.5, 0.5 - 1e-10], 0.5),  # cut at 0.5
    ],
)
def test_t_intervals(interval_of, x, largest):
    low, high = stats.t.interval(0.95, len(x) - 1, np.mean(x), stats.sem(x))
    interval = interval_of(x)
    assert interval.mean == pytest.approx(np.mean(x), rel=1e-15)
    assert (interval.low, interval.high) == pytest.approx((max(low, 0), min(high, largest)), rel=1e-12)


def test_published_t_interval_shows_the_true_mean():
    assert beta_interval([0.5] * 5, published=True).mean == 0.5


HARD = {
    "zeros": [0.0] * 24 + [1e-7],
    "both ends": [0.0] * 12 + [0.5] * 12,
    "one at the other end": [0.0] * 24 + [0.5],
    "near one half": [0.5 - 1e-9, 0.5 - 2e-9, 0.5],
    "two": [0.0, 1e-9],
    "wide": np.geomspace(1e-15, 0.4, 30),
    "many": np.linspace(1e-7, 1e-6, 5_000),
    "large shapes": [0.49653217646, 0.49686535139, 0.49652352525, 0.49681871671, 0.49678670436],
}


@pytest.mark.parametrize("published", [False, True])
@pytest.mark.parametrize("name", HARD)
def test_beta_interval_of_hard_values(name, published):
    interval = beta_interval(HARD[name], published=published)
    assert 0 < interval.low < interval.mean < interval.high < 0.5


@pytest.mark.parametrize("x", [[1e-300, 1.0], np.geomspace(1, 5e6, 30), [1_000.0] * 24 + [2_000.0]], ids=len)
@pytest.mark.parametrize("level", [0.5, 0.95, 0.9999])
def test_gamma_interval_of_hard_values(x, level):
    interval = gamma_interval(x, level)
    assert 0 < interval.low < interval.mean < interval.high


def test_intervals_are_quick():
    x = np.random.default_rng(15).gamma(3.0, 0.01, 100)
    for interval_of in (gamma_interval, beta_interval):
        times = []
        for _ in range(5):
            start = time.perf_counter()
            interval_of(x)
            times.append(time.perf_counter() - start)
        assert min(times) < 0.01


# Rows

ROW = [
    "module",
    "operation",
    "inputs",
    "interpolation",
    "extrapolation",
    "runs",
    "success_rate",
    "success_low",
    "success_high",
    "solved_at_median",
    "solved_at_mean",
    "solved_at_low",
    "solved_at_high",
    "sparsity_mean",
    "sparsity_low",
    "sparsity_high",
    "threshold",
]
RUN = [
    "module",
    "operation",
    "interpolation",
    "seed",
    "solved",
    "solved_at",
    "interpolation_error",
    "extrapolation_error",
    "sparsity_error",
    "weights",
    "status",
]


@pytest.fixture
def mixed():
    """Three solved runs, one that is not, one that diverged at once, and one that raised an error at once."""
    solved, not_solved, nothing = [9, 0, 0, 0], [9, 9, 9, 9], [NAN] * 4
    runs = make_runs(
        validation=[[4, 3, 2, 1]] * 4 + [nothing] * 2,
        test=[solved, [9, 0, 9, 0], [9, 9, 9, 0], not_solved, nothing, nothing],
        sparsity=[[0.5, 0.5, 0.5, s] for s in (0.1, 0.2, 0.25, 0.4)] + [nothing] * 2,
        status=["ok"] * 4 + ["diverged", "failed"],
    )
    runs.weights[4] = NAN, math.inf
    return runs


def test_row_of_a_cell(mixed):
    row = summarise(make_cell(), mixed, FixedThreshold())
    assert list(row) == ROW
    assert json.loads(json.dumps(row, allow_nan=False)) == row
    assert {type(v) for v in row.values()} == {str, int, float}
    assert (row["module"], row["operation"], row["inputs"]) == ("nmu", "mul", 2)
    assert (row["interpolation"], row["extrapolation"]) == ("U[1,2)", "U[2,6)")
    assert row["runs"] == 5
    assert Interval(row["success_rate"], row["success_low"], row["success_high"]) == wilson_interval(3, 5)
    assert row["solved_at_median"] == 1_000
    steps = gamma_interval([1_000, 1_000, 3_000])
    assert Interval(row["solved_at_mean"], row["solved_at_low"], row["solved_at_high"]) == steps
    sparsity = beta_interval([0.1, 0.2, 0.25])
    assert Interval(row["sparsity_mean"], row["sparsity_low"], row["sparsity_high"]) == sparsity
    assert row["threshold"] == 1e-5


def test_row_without_a_solved_run(mixed):
    row = summarise(make_cell(), mixed, FixedThreshold(0.0))
    assert list(row) == ROW
    assert (row["runs"], row["success_rate"], row["success_low"], row["threshold"]) == (5, 0, 0, 0)
    assert {row[key] for key in ROW[9:16]} == {None}


def test_row_with_one_solved_run(mixed):
    mixed.test[1:] = 9
    row = summarise(make_cell(), mixed, FixedThreshold())
    assert (row["solved_at_median"], row["solved_at_mean"], row["sparsity_mean"]) == (1_000, 1_000, 0.1)
    assert {row[key] for key in ("solved_at_low", "solved_at_high", "sparsity_low", "sparsity_high")} == {None}


def test_row_without_a_run_that_logged_anything():
    runs = make_runs([[NAN] * 4] * 2, [[NAN] * 4] * 2, status=["failed"] * 2)
    row = summarise(make_cell(), runs, FixedThreshold())
    assert row["runs"] == 0
    assert {row[key] for key in ROW[6:16]} == {None}


def test_a_failed_run_is_judged_by_what_it_logged():
    runs = make_runs([[4, 3, NAN, NAN]] * 2, [[9, 0, NAN, NAN], [9, 9, NAN, NAN]], status=["failed"] * 2)
    row = summarise(make_cell(), runs, FixedThreshold())
    assert (row["runs"], row["success_rate"], row["solved_at_mean"]) == (2, 0.5, 1_000)


def test_gold_threshold_counts_an_equal_error():
    gold = GoldThreshold(0.5)
    runs = make_runs([[1]] * 2, [[gold.value(make_cell())]] * 2)
    assert summarise(make_cell(), runs, gold)["success_rate"] == 1
    assert all(run["solved"] for run in describe_runs(make_cell(), runs, gold))
    assert summarise(make_cell(), runs, FixedThreshold(gold.value(make_cell())))["success_rate"] == 0


def test_simulated_threshold_stands_in_the_row(mixed):
    row = summarise(make_cell("add", 10), mixed, SimulatedThreshold(samples=20_000))
    assert row["threshold"] == pytest.approx(1.613e-07, rel=0.02)


def test_descriptions_of_runs(mixed):
    described = describe_runs(make_cell(), mixed, FixedThreshold())
    assert all(list(run) == RUN for run in described)
    assert json.loads(json.dumps(described, allow_nan=False)) == described
    assert [run["seed"] for run in described] == [0, 1, 2, 3, 4, 5]
    assert [run["status"] for run in described] == mixed.status
    assert [run["solved"] for run in described] == [True] * 3 + [False] * 3
    assert [run["solved_at"] for run in described] == [1_000, 1_000, 3_000, None, None, None]
    assert [run["interpolation_error"] for run in described] == [1, 1, 1, 1, None, None]
    assert [run["extrapolation_error"] for run in described] == [0, 0, 0, 9, None, None]
    assert [run["sparsity_error"] for run in described] == [0.1, 0.2, 0.25, 0.4, None, None]
    assert [run["weights"] for run in described[3:]] == [[1, 1], [None, None], [1, 1]]
    assert {(run["module"], run["operation"], run["interpolation"]) for run in described} == {("nmu", "mul", "U[1,2)")}
