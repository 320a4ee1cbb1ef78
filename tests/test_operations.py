"""One truth for each operation: everything that computes targets agrees with it, and what is unknown is refused."""

import dataclasses
import math

import numpy as np
import pytest
import torch

import nalm
from conftest import OPERATIONS as SECOND_OPINION
from nalm import metrics, tasks
from nalm.engine import fused, reference
from nalm.engine.data import Job, evaluation_set, fill_batches, fill_targets
from nalm.layers.base import ARITY, COEFFICIENTS, EXPONENTS
from nalm.operations import ARITHMETIC, LOGIC, OPERATIONS, TRUTHS, TWO_STEPS, number_of, operation_of
from nalm.runner import changed_data
from nalm.sampling import TEST, TRAIN, VALIDATION, fill_rows, parse
from nalm.specs import Cell, Recipe
from test_logic import RULES
from test_networks import EXPRESSIONS

RNG = np.random.default_rng(5)
STARTS = np.array([1.0, 1.0])[None, None]


def spans_of(operation):
    """Ways to make operands of eight inputs: one input each, or sums of neighbours, overlapping too."""
    record = operation_of(operation)
    counts = [record.operands] if record.operands else [2, 3, 4] if operation in ("add", "mul", *LOGIC) else [2]
    for count in counts:
        yield np.array([[k, k + 1] for k in range(count)])
        if operation not in TRUTHS:
            yield np.array([[k, k + 3 + k % 2] for k in range(count)])


def truth_of(operation, x, spans):
    """The truth on inputs (inputs, rows)."""
    return operation_of(operation).truth(np.stack([x[a:b].sum(0) for a, b in spans]))


def inputs_for(operation, rows=257):
    return RNG.integers(0, 2, (8, rows)).astype(float) if operation in TRUTHS else RNG.uniform(0.5, 2, (8, rows))


@pytest.mark.parametrize("operation", [*SECOND_OPINION, *EXPRESSIONS, *RULES])
def test_truths_are_those_that_other_tests_write_down(operation):
    x = inputs_for(operation)
    if operation in EXPRESSIONS:
        expected = EXPRESSIONS[operation](*x[:3])
    elif operation in RULES:
        count = operation_of(operation).operands or 3
        expected = [float(RULES[operation](*(int(v) for v in row))) for row in x[:count].T]
        x = x[:count]
    else:
        expected = SECOND_OPINION[operation](*torch.from_numpy(x[:2])).numpy()
        x = x[:2]
    np.testing.assert_allclose(operation_of(operation).truth(x), expected, rtol=1e-15)


def test_every_operation_has_a_second_opinion():
    assert set(OPERATIONS) == {*SECOND_OPINION, *EXPRESSIONS, *RULES}
    for record in nalm.modules().values():
        assert set(record.operations) <= set(OPERATIONS)
    for task in tasks.TASKS.values():
        assert set(task.operations) <= set(OPERATIONS)


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_compiled_targets_are_the_truth(precision):
    for operation in OPERATIONS:
        for spans in spans_of(operation):
            x = inputs_for(operation).astype(precision)
            out = np.empty((2, x.shape[1]), precision)
            fill_targets(number_of(operation), x, np.stack([spans, spans]), np.empty((len(spans), x.shape[1]), precision), out)
            expected = truth_of(operation, x.astype(float), spans)
            tolerance = 2e-5 if precision == "float32" else 1e-12
            np.testing.assert_allclose(out, np.stack([expected] * 2), rtol=tolerance, atol=tolerance, err_msg=operation)


def test_training_batches_have_true_targets():
    code = parse("U[1,2)").encode(3)
    x, spans = np.empty((1, 3, 64), np.float32), np.array([[[0, 1], [1, 2], [2, 3]]])
    for operation in TWO_STEPS:
        target, sums = np.empty((1, 64), np.float32), np.empty((3, 64), np.float32)
        fill_batches(code[None], np.array([3]), TRAIN, 7, np.array([number_of(operation)]), spans, x, sums, target)
        np.testing.assert_allclose(target[0], truth_of(operation, x[0].astype(float), spans[0]), rtol=1e-5, err_msg=operation)


def job_of(operation, spans, inputs=8, far="U[2,6)"):
    recipe = Recipe(iterations=0, evaluation_rows=300, batch=128)
    near, far = ("Z[0,2)", "Z[0,2)") if operation in TRUTHS else ("U[1,2)", far)
    return Job(recipe, operation, inputs, near, far, [0], spans[None], STARTS)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_both_engines_evaluate_by_the_truth_in_double_precision_rounded_once(operation):
    for spans in spans_of(operation):
        job = job_of(operation, spans)
        sets = reference._evaluation_sets(job, "float32")
        blocks = fused._answers(job, 0, (3, 8, 128), np.float32).reshape(2, -1)
        for k, purpose in enumerate((VALIDATION, TEST)):
            drawn = np.empty((8, 300))
            seed = 43_953_907 if purpose == VALIDATION else 8_689_336
            fill_rows(parse(job.interpolation if k == 0 else job.extrapolation).encode(8), seed, purpose, 0, drawn)
            expected = truth_of(operation, drawn, spans)
            assert sets[2 * k].numpy().tobytes() == np.ascontiguousarray(drawn.T.astype(np.float32)).tobytes()
            once = expected.astype(np.float32)
            np.testing.assert_allclose(sets[2 * k + 1][0], once, rtol=1.2e-7)  # sums in another order may tip a rounding
            np.testing.assert_array_equal(blocks[k, :300], sets[2 * k + 1][0])
            np.testing.assert_array_equal(blocks[k, 300:], blocks[k, :84])


@pytest.mark.parametrize("engine", [fused, reference])
def test_exact_weights_have_the_error_floor_of_the_published_code(engine):
    """Not zero: the targets know more digits of the inputs than the module sees."""
    layer = nalm.NMU(2, 1).set_solution_("mul")
    job = dataclasses.replace(job_of("mul", np.array([[0, 1], [1, 2]]), 2), recipe=Recipe(iterations=0))
    ((_, runs, _),) = engine.train(layer, [job])
    assert runs.test[0, 0] == pytest.approx(7.7e-13, rel=0.2)


# What is unknown.


def test_an_unknown_operation_is_refused_wherever_it_is_read(monkeypatch):
    for read in (number_of, operation_of):
        with pytest.raises(ValueError, match="unknown operation 'cube'; there are: add, sub"):
            read("cube")
    cell = Cell("nmu", "cube", 2, "U[1,2)", "U[2,6)", Recipe())
    with pytest.raises(ValueError, match="unknown operation 'cube'"):
        metrics.SimulatedThreshold().value(cell)
    with pytest.raises(ValueError, match="unknown operation 'cube'"):
        evaluation_set(job_of("cube", np.array([[0, 1]])), np.array([[[0, 1]]]), TEST, np.float32)


@pytest.mark.parametrize("number", [-1, len(OPERATIONS), 10_000])
def test_a_number_of_no_operation_is_refused_by_compiled_code(number):
    with pytest.raises(ValueError, match="has this number"):
        fill_targets(number, np.ones((2, 4)), np.array([[[0, 1], [1, 2]]]), np.empty((2, 4)), np.empty((1, 4)))


@pytest.mark.parametrize("engine", ["fused", "torch"])
def test_a_task_that_lists_an_operation_without_truth_trains_nothing(monkeypatch, engine):
    task = dataclasses.replace(tasks.TASKS["single-module"], operations=(*ARITHMETIC, "cube"))
    monkeypatch.setitem(tasks.TASKS, "single-module", task)
    with pytest.raises(ValueError, match="unknown operation 'cube'"):
        nalm.benchmark("linear", operation="cube", ranges=["U[1,2)"], seeds=1, engine=engine, iterations=1, compiled=False)


def test_weights_that_are_off_change_products_as_published():
    e = 1e-3
    expected = {"mul": (1 - e) ** 2, "div": (1 - e) / (1 + e), "reciprocal": 1 / (1 + e), "square": (1 - e) ** 2}
    expected["sqrt"] = math.sqrt(1 - e)
    assert {name: operation_of(name).factor(e) for name in expected} == pytest.approx(expected, rel=1e-15)


def test_layers_take_coefficients_and_exponents_from_the_operations():
    for name, one in OPERATIONS.items():
        assert COEFFICIENTS.get(name, ()) == one.coefficients
        assert EXPONENTS.get(name, ()) == one.exponents
        operands = np.array([[3.0], [5.0]])[: ARITY[name]]
        for numbers, value in ((one.coefficients, np.dot), (one.exponents, lambda p, x: np.prod(x.T**p))):
            if numbers:
                assert len(numbers) == ARITY[name]
                assert value(np.array(numbers), operands) == pytest.approx(one.truth(operands))


# Data that would lead beyond the inputs.


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"overlap": 5}, "overlap is a share from 0 to 1, got 5"),
        ({"overlap": 1.5}, "overlap is a share from 0 to 1, got 1.5"),
        ({"overlap": -1}, "overlap must be at least 0, got -1"),
        ({"overlap": math.nan}, "overlap must be a finite number"),
        ({"overlap": "nan"}, "overlap must be a finite number, got .nan."),
        ({"overlap": None}, "overlap must be a finite number"),
        ({"subset": 2}, "subset is a share"),
        ({"subset": 0}, "spans of 0 inputs"),
        ({"subset": [1]}, "subset must be a finite number"),
        ({"subsets": 1}, "subsets must be at least 2, got 1"),
        ({"subsets": 2.5}, "subsets must be a whole number"),
        ({"subsets": 10**30}, "subsets must be at most 1,000"),
        ({"hidden": 0}, "hidden must be at least 1, got 0"),
        ({"hidden": "many"}, "hidden must be a whole number"),
        ({"start": "slow"}, "unknown start 'slow'"),
    ],
)
def test_data_that_cannot_be_is_refused_before_anything_is_trained(data, words):
    with pytest.raises(ValueError, match=words) as error:
        nalm.benchmark("nau+nmu", "arithmetic-dataset", data=data, ranges=["U[1,2)"], seeds=1, iterations=1_000)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("operands", [0, -1, 1.5, "two", 9])
def test_numbers_of_operands_that_cannot_be_are_refused(operands):
    with pytest.raises(ValueError, match="operands"):
        nalm.benchmark("nlrl", "logic", "and", data={"operands": operands}, seeds=1)


def test_too_few_inputs_are_refused():
    with pytest.raises(ValueError, match="function4 needs at least 4 inputs, got 2"):
        nalm.benchmark("nau+nmu", "function4", inputs=2, seeds=1)


@pytest.mark.parametrize("span", [[-1, 1], [0, 9], [3, 3], [4, 2]])
def test_no_job_reads_beyond_the_inputs(span):
    with pytest.raises(ValueError, match="operands must be made of the inputs 0 to 7"):
        job_of("mul", np.array([[0, 1], span]))


def test_published_values_make_no_other_cell():
    task = tasks.TASKS["arithmetic-dataset"]
    assert changed_data(task, {"overlap": 0.5, "hidden": 2}) == {}
    assert changed_data(task, {"overlap": 0, "hidden": 3}) == {"overlap": 0.0, "hidden": 3}
