"""The random stream and the distributions: uniform, independent, reproducible, within their rules."""

import math

import numpy as np
import pytest
from scipy import special, stats

from nalm import sampling
from nalm.sampling import FORMS, Uniform, fill_normal, fill_rows, inverse_normal, parse, stream
from nalm.tasks import NINE_RANGES, PAIRED, RANGE_SETS, read_range, task_of

MASK = 0xFFFFFFFF


def word(key, index):
    """The hash of the stream in plain Python integers."""
    low, high = key & MASK, key >> 32
    h = (index * 0x9E3779B1 + low) & MASK
    h = ((h ^ h >> 16) * 0x21F0AAAD) & MASK
    h = ((h ^ h >> 15) + high) & MASK
    h = ((h ^ h >> 15) * 0x735A2D97) & MASK
    return h ^ h >> 15


def mix(z):
    z = ((z ^ z >> 30) * 0xBF58476D1CE4E5B9) & (2**64 - 1)
    z = ((z ^ z >> 27) * 0x94D049BB133111EB) & (2**64 - 1)
    return z ^ z >> 31


def key(seed, purpose, step):
    k = mix((seed + 0x9E3779B97F4A7C15) & (2**64 - 1))
    k = mix(k ^ ((purpose + 0xD1B54A32D192ED03) & (2**64 - 1)))
    return mix(k ^ ((step + 0x8CB92BA72F3D8DD7) & (2**64 - 1)))


def test_stream_against_plain_integers():
    for seed, purpose, step in [(0, 0, 0), (24, 2, 49_999), (43_953_907, 1, 0)]:
        expected = [((word(key(seed, purpose, step), i) >> 9) + 0.5) / 2**23 for i in range(50)]
        assert stream(seed, purpose, step, 50).tolist() == expected


def test_stream_is_the_same_in_both_precisions_and_never_zero_or_one():
    single, double = np.empty(100_000, np.float32), np.empty(100_000)
    sampling.fill_uniform(3, 0, 7, single)
    sampling.fill_uniform(3, 0, 7, double)
    assert np.array_equal(single, double)
    assert single.min() > 0
    assert single.max() < 1


def test_stream_is_uniform_and_uncorrelated():
    tables = np.stack([stream(seed, 0, step, 20_000) for seed in range(5) for step in range(20)])
    counts = np.histogram(tables, bins=256, range=(0, 1))[0]
    assert stats.chisquare(counts).pvalue > 1e-4
    correlations = np.corrcoef(tables) - np.eye(len(tables))
    assert np.abs(correlations).max() < 5 / math.sqrt(20_000)
    flat = tables.ravel()
    for lag in (1, 2, 128, 256):
        assert abs(np.corrcoef(flat[:-lag], flat[lag:])[0, 1]) < 5 / math.sqrt(flat.size)
    assert len(np.unique(tables[:, 0])) == len(tables)


def test_normal_quantile_against_scipy():
    p = np.concatenate([np.logspace(-300, -1, 500), np.linspace(0.01, 0.99, 500), 1 - np.logspace(-15, -2, 200)])
    assert np.allclose([inverse_normal(v) for v in p], special.ndtri(p), rtol=1e-9, atol=1e-14)


def test_normal_stream():
    out = np.empty(200_000)
    fill_normal(1, 3, 2, out)
    assert stats.kstest(out, "norm").pvalue > 1e-3


@pytest.mark.parametrize("text", [*FORMS, *PAIRED, *PAIRED.values(), "U[0,1e-4)", "U[ -2 , 2.50 )"])
def test_text_forms_round_trip(text):
    once = parse(text)
    assert parse(str(once)) == once


def test_printed_forms():
    assert str(parse("U[ -2 , 2.50 )")) == "U[-2,2.5)"
    assert str(parse("TN(0,1)[-5,5)")) == "TN(0,1)[-5,5)"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "U[1,2]",
        "U(1,2)",
        "U[a,b)",
        "X[1,2)",
        "U[1,2)|U[3,4)|U[5,6)",
        "U[1,2)|",
        "Sobol(0,1)|U[1,2)",
        "U[1,2) & U[2,3) | U[1,2)",
    ],
)
def test_unreadable_forms(text):
    with pytest.raises(ValueError, match="cannot read the distribution"):
        parse(text)


@pytest.mark.parametrize(
    "text", ["U[2,1)", "U[1,1)", "U[1,1e999)", "TN(0,0)[-1,1)", "TN(0,1)[1,-1)", "B[10,200)", "B[1,10)", "Exp(0)", "Exp(-1)"]
)
def test_impossible_distributions(text):
    with pytest.raises(ValueError, match=r"must be|cannot read"):
        parse(text)


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        ("Exp(1e308)", "positive and at most 4.3e"),
        ("TN(0,1e308)[-5,5)", "at least a billionth of the normal distribution must lie between the bounds"),
        ("TN(0,1)[50,60)", "at least a billionth"),
        ("U[-1e308,1e308)", "both between -1e38 and 1e38"),
        ("Sobol(-1e308,1e308)", "both between -1e38 and 1e38"),
    ],
)
def test_distributions_that_would_overflow(text, allowed):
    with pytest.raises(ValueError, match=allowed):
        parse(text)


@pytest.mark.parametrize("text", ["Exp(4.3e36)", "TN(0,1e8)[-1,1)", "U[-1e38,1e38)", "Z[-1e38,1e38)", "TN(0,1)[5.9,10)"])
def test_all_that_is_drawn_is_finite_in_single_precision(text):
    dist = parse(text)
    x = dist.sample(20_000, 2, seed=1)
    assert np.isfinite(x.astype(np.float32)).all()
    assert dist.bounds()[0] <= x.min() <= x.max() <= dist.bounds()[1]


@pytest.mark.parametrize("text", ["U[1,2)", "TN(0,1)[-5,5)", "TN(-1,3)[-5,10)", "TN(10,3)[5,15)", "Exp(0.2)"])
def test_values_follow_the_distribution(text):
    dist = parse(text)
    x = dist.sample(50_000, 2, seed=5).ravel()
    if text.startswith("U"):
        exact = stats.uniform(1, 1)
    elif text.startswith("Exp"):
        exact = stats.expon(scale=0.2)
    else:
        mean, sd, low, high = dist.mean, dist.deviation, dist.low, dist.high
        exact = stats.truncnorm((low - mean) / sd, (high - mean) / sd, mean, sd)
    assert stats.kstest(x, exact.cdf).pvalue > 1e-3
    low, high = dist.bounds()
    assert low <= x.min()
    assert x.max() < high


def test_union_takes_each_value_from_one_of_the_two():
    x = parse("U[-6,-2)|U[2,6)").sample(20_000, 3, seed=1)
    assert ((x >= -6) & (x < -2) | (x >= 2) & (x < 6)).all()
    assert (x > 0).mean() == pytest.approx(0.5, abs=0.01)
    signs = np.sign(x)
    assert abs(np.corrcoef(signs.T)[0, 1]) < 0.03
    assert parse("U[-6,-2)|U[2,6)").bounds() == (-6, 6)


@pytest.mark.parametrize(("inputs", "first"), [(2, 1), (3, 1), (10, 5)])
def test_halves_take_columns_from_each(inputs, first):
    x = parse("U[-2,-1)&U[1,2)").sample(1_000, inputs, seed=1)
    assert (x[:, :first] < 0).all()
    assert (x[:, first:] > 0).all()


@pytest.mark.parametrize(("text", "low", "high"), [("B[10,100)", 10, 100), ("B[100,1000)", 100, 1000)])
def test_benford_digits(text, low, high):
    x = parse(text).sample(100_000, 1, seed=2).ravel()
    assert np.array_equal(x, np.round(x))
    assert low < x.min()
    assert x.max() < high
    leading, second = x // low, x // (low // 10) % 10
    assert second.min() == 1
    expected = np.array([0.301, 0.176, 0.125, 0.097, 0.079, 0.067, 0.058, 0.051, 0.046])
    counts = np.bincount(leading.astype(int), minlength=10)[1:]
    assert stats.chisquare(counts, expected / expected.sum() * counts.sum()).pvalue > 1e-4


def test_sobol_points_are_consecutive():
    dist = parse("Sobol(-1,1)")
    whole = dist.sample(256, 3, seed=0)
    assert np.array_equal(np.concatenate([dist.sample(128, 3, seed=9, step=k) for k in range(2)]), whole)


@pytest.mark.parametrize(("columns", "step"), [(1, 0), (7, 5), (100, 60_000)])
def test_sobol_points_are_those_of_scipy_without_the_corner(columns, step):
    generator = stats.qmc.Sobol(columns, scramble=False, bits=24)
    generator.fast_forward(1 + 128 * step)
    expected = -1 + 2 * generator.random(128)
    assert np.array_equal(parse("Sobol(-1,1)").sample(128, columns, seed=0, step=step), expected)


def test_a_batch_depends_on_seed_purpose_and_step_alone():
    code = parse("U[1,2)").encode()
    first, again = np.empty((2, 64)), np.empty((2, 64))
    fill_rows(code, 4, 0, 10, first)
    for other in ((5, 0, 10), (4, 1, 10), (4, 0, 11)):
        fill_rows(code, *other, again)
        assert not np.array_equal(first, again)
    fill_rows(code, 4, 0, 10, again)
    assert np.array_equal(first, again)


def test_offsets_are_the_published_ones():
    ten = "5 5 8 8 7 3 3 4 3 5 4 0 6 2 8 8 5 1 3 5 3 8 5 3 2"
    hundred = "44 37 40 24 46 78 10 47 67 92 9 25 75 82 88 72 41 15 42 93 90 73 4 83 34"
    sums = "44 37 40 42 58 35 10 47 3 62 9 25 11 18 43 8 41 47 42 29 35 9 53 19 34"
    for name, inputs, published in (
        ("single-module", 10, ten),
        ("single-module", 100, hundred),
        ("arithmetic-dataset", 100, sums),
    ):
        starts = [task_of(name).spans(inputs, seed, {})[0][0] for seed in range(25)]
        assert starts == list(map(int, published.split()))
    assert {task_of("single-module").spans(2, seed, {})[0][0] for seed in range(25)} == {0}


def test_spans_of_the_tasks():
    dataset = task_of("arithmetic-dataset")
    assert task_of("single-module").spans(1, 3, {}) == [(0, 1), (0, 1)]
    assert task_of("function4").spans(4, 3, {}) == [(0, 4), (0, 2)]
    assert task_of("large-scale").spans(100, 3, {}) == [(0, 50), (38, 88)]
    assert dataset.spans(100, 0, {}) == [(44, 69), (57, 82)]
    assert dataset.spans(100, 0, {"subset": 0.1, "overlap": 0.0, "subsets": 4})[3][1] <= 100
    with pytest.raises(ValueError, match="5 spans of 50 inputs that share 0 need 250 inputs, got 100"):
        dataset.spans(100, 0, {"subset": 0.5, "overlap": 0.0, "subsets": 5})
    with pytest.raises(ValueError, match="unknown task 'chess'; there are: single-module"):
        task_of("chess")


def test_range_sets_have_test_distributions():
    for name, texts in RANGE_SETS.items():
        assert all(read_range(text) for text in texts), name


def test_ranges_are_paired_or_given():
    assert read_range("U[1,2)") == ("U[1,2)", "U[2,6)")
    assert read_range("U[1,2) -> U[3,4)") == ("U[1,2)", "U[3,4)")
    assert len(NINE_RANGES) == 9
    with pytest.raises(ValueError, match="no paper pairs"):
        read_range("U[1,3)")


def test_plain_distributions_only_can_be_parts():
    with pytest.raises(TypeError, match="cannot be part"):
        parse("U[1,2)|U[2,3)").part()
    with pytest.raises(TypeError, match="no bounds"):
        sampling.Distribution.bounds(Uniform(1, 2))
