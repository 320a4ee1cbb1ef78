"""Boolean rules and comparisons: what is drawn and asked, what the recipes learn, how it is read, what is refused."""

import itertools
import json
import sys

import numpy as np
import pytest
import sympy
import torch
from torch import nn
from torch.nn.utils import vector_to_parameters

import nalm
from nalm import cli, metrics
from nalm.engine import fused, lookup, reference
from nalm.engine.data import Job, targets
from nalm.models import model_of
from nalm.operations import number_of
from nalm.sampling import parse
from nalm.specs import Recipe
from nalm.tasks import COMPARISONS, LOGIC, task_of

RULES = {
    "and": lambda *v: all(v),
    "or": lambda *v: any(v),
    "not": lambda a: not a,
    "nand": lambda *v: not all(v),
    "nor": lambda *v: not any(v),
    "xor": lambda *v: sum(v) % 2 == 1,
    "implies": lambda a, b: not a or b,
    "equivalent": lambda a, b: a == b,
    "majority": lambda a, b, c: a + b + c >= 2,
}
COMPARE = dict(zip(COMPARISONS, (np.less, np.less_equal, np.greater, np.greater_equal, np.equal, np.not_equal), strict=True))


def answers_to(operation, x, spans):
    out = np.empty(x.shape[1])
    targets(number_of(operation), x, np.array(spans), np.empty((len(spans), x.shape[1])), out)
    return out


@pytest.mark.parametrize("operation", nalm.NLRL.operations)
@pytest.mark.parametrize("disjunctions", [True, False])
def test_both_forms_express_the_declared_rules(operation, disjunctions):
    layer = nalm.NLRL(3, 1, disjunctions=disjunctions).set_solution_(operation, (2, 0))
    x = torch.tensor(list(itertools.product((0.0, 1.0), repeat=3)))
    used = x[:, [2]] if operation == "not" else x[:, [2, 0]]
    expected = [float(RULES[operation](*(int(v) for v in row))) for row in used]
    assert layer(x).flatten().tolist() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("operation", LOGIC)
@pytest.mark.parametrize("operands", [2, 3])
def test_targets_of_rules_are_their_truth_tables(operation, operands):
    spans = task_of("logic").spans(5, 3, {"operands": operands}, operation)
    x = np.array(list(itertools.product((0.0, 1.0), repeat=5))).T
    used = [start for start, _ in spans]
    assert used == list(range(used[0], used[0] + len(used)))
    expected = [RULES[operation](*(int(v) for v in row)) for row in x[used].T]
    assert answers_to(operation, x, spans).tolist() == expected


def test_targets_of_comparisons():
    x = np.random.default_rng(0).integers(-2, 3, (4, 500)).astype(float)
    for operation, compare in COMPARE.items():
        assert answers_to(operation, x, [(1, 2), (2, 3)]).tolist() == compare(x[1], x[2]).tolist()


def test_place_of_the_operands_follows_from_the_seed():
    task = task_of("logic")
    assert {task.spans(6, seed, {}, "majority")[0][0] for seed in range(40)} == {0, 1, 2, 3}
    assert task.spans(2, 7, {}, "and") == [(0, 1), (1, 2)]
    with pytest.raises(ValueError, match="majority of 3 operands needs at least 3 inputs, got 2"):
        task.spans(2, 0, {}, "majority")


def test_whole_numbers_are_whole_and_equally_likely():
    x = parse("Z[-2,3)").sample(50_000, 1, seed=1)
    values, counts = np.unique(x, return_counts=True)
    assert values.tolist() == [-2, -1, 0, 1, 2]
    assert np.abs(counts / 10_000 - 1).max() < 0.05
    with pytest.raises(ValueError, match="bounds must be whole"):
        parse("Z[0,2.5)")


def test_ties_make_neighbours_equal_and_no_others():
    x = parse("U[0,1)~0.25").sample(20_000, 3, seed=1)
    first, second, far = x[:, 0] == x[:, 1], x[:, 1] == x[:, 2], x[:, 0] == x[:, 2]
    assert first.mean() == pytest.approx(0.25, abs=0.02)
    assert second.mean() == pytest.approx(0.25, abs=0.02)
    assert np.array_equal(far, first & second)
    assert far.mean() == pytest.approx(1 / 16, abs=0.01)
    assert x[:, 0].mean() == pytest.approx(0.5, abs=0.02)
    with pytest.raises(ValueError, match="chance must be between 0 and 1"):
        parse("U[0,1)~1")


def test_comparisons_are_drawn_with_ties():
    task = task_of("comparison")
    assert task.distribution("Z[-10,10)", "lt") == "Z[-10,10)~0.25"
    assert task.distribution("Z[-10,10)", "eq") == "Z[-10,10)~0.5"
    assert task.distribution("Z[-10,10)~0.1", "eq") == "Z[-10,10)~0.1"
    assert task_of("logic").distribution("Z[0,2)", "and") == "Z[0,2)"


def learned(module, task, operation, seeds=3, **options):
    """The result of a benchmark and the trained models."""
    result = nalm.benchmark(module, task, operation, seeds=seeds, threads=1, **options)
    model = model_of(module, options.get("module_options"), hidden=task_of(task).data["hidden"])
    models = []
    for run in result.runs:
        built = model.build(result.rows[0]["inputs"])
        vector_to_parameters(torch.tensor(run["weights"]).float(), built.parameters())
        models.append(built.eval())
    return result, models


def rule_of(operation, names):
    symbols = sympy.symbols(names)
    a, b, *c = symbols if len(symbols) > 1 else (*symbols, None)
    return {
        "and": lambda: a & b,
        "or": lambda: a | b,
        "not": lambda: ~a,
        "nand": lambda: ~(a & b),
        "nor": lambda: ~(a | b),
        "xor": lambda: a ^ b,
        "implies": lambda: a >> b,
        "equivalent": lambda: ~(a ^ b),
        "majority": lambda: (a & b) | (b & c[0]) | (a & c[0]),
    }[operation]()


@pytest.mark.parametrize("operation", LOGIC)
def test_rules_are_learned_and_read(operation):
    deep = operation in ("xor", "equivalent", "majority")
    result, models = learned("nlrl+nlrl" if deep else "nlrl", "logic", operation)
    assert result.engine == "fused"
    assert result.rows[0]["success_rate"] == 1
    spans = task_of("logic").spans(6, 0, {}, operation)
    shown = nalm.readout(models[0])
    expected = rule_of(operation, [f"x{start + 1}" for start, _ in spans])
    assert sympy.simplify_logic(shown[0] ^ expected) == sympy.false
    assert shown.residual < 0.01
    rows = torch.tensor(list(itertools.product((0.0, 1.0), repeat=6)))
    truths = [RULES[operation](*(int(row[start]) for start, _ in spans)) for row in rows]
    assert models[0](rows).round().squeeze(-1).tolist() == truths


@pytest.mark.parametrize("operation", COMPARISONS)
def test_comparisons_are_learned_and_read(operation):
    paths = {"redundancy": 10} if operation in ("eq", "ne") else {}
    result, models = learned("nsr", "comparison", operation, iterations=5_000, module_options=paths)
    assert result.engine == "fused"
    assert result.rows[0]["success_rate"] == 1
    assert result.rows[0]["extrapolation"] == "Z[-10000,10000)"
    a, b = sympy.symbols("a b", real=True)
    relation = {"lt": a < b, "le": a <= b, "gt": a > b, "ge": a >= b, "eq": sympy.Eq(a, b), "ne": sympy.Ne(a, b)}[operation]
    shown = nalm.readout(models[0], [a, b], tolerance=0.05)
    assert shown[0] == relation or shown[0] == relation.reversed
    assert shown[1] == sympy.Not(shown[0])
    far = torch.tensor([[1e9, 1e9], [-1e9, 1e9], [1e9, -1e9], [1e9, 1e9 + 10]], dtype=torch.float64)
    assert (
        models[0].double()(far)[:, 0, 0].round().tolist() == COMPARE[operation](far[:, 0].numpy(), far[:, 1].numpy()).tolist()
    )


def test_the_and_only_form_learns_too():
    for operation in ("or", "nor"):
        result, models = learned("nlrl", "logic", operation, module_options={"disjunctions": False})
        assert result.rows[0]["success_rate"] == 1
        assert not models[0].disjunctions


def test_irrelevant_inputs_do_not_leak_into_comparisons():
    result, models = learned("nsr", "comparison", "lt", inputs=4, iterations=5_000)
    assert result.rows[0]["success_rate"] == 1
    loose = nalm.benchmark("nsr", "comparison", "lt", inputs=4, seeds=3, iterations=5_000, threads=1, penalty=0.0)
    assert loose.rows[0]["success_rate"] < 1, "the penalty is what makes the difference"
    assert nalm.readout(models[0]).rounding < 0.01


@pytest.mark.parametrize(
    ("name", "task", "operation", "options"),
    [
        ("nlrl", "logic", "implies", {}),
        ("nlrl", "logic", "nor", {"disjunctions": False}),
        ("nlrl+nlrl", "logic", "xor", {}),
        ("nsr", "comparison", "le", {"redundancy": 3, "scale": 0.5}),
    ],
)
def test_engines_agree_on_truth_values(name, task, operation, options):
    """Validation is a squared error, test the share of wrong answers, in both engines."""
    chosen = task_of(task)
    model = model_of(name, options, hidden=3)
    layer, seeds = model.build(4), [0, 1]
    starts = np.stack([model.starts(layer, 4, seed, 1) for seed in seeds])
    spans = np.array([chosen.spans(4, seed, {}, operation) for seed in seeds])
    near, far = (chosen.distribution(text, operation) for text in ("Z[-3,4)", "Z[-30,40)"))
    recipe = Recipe(iterations=200, log_interval=50, batch=32, evaluation_rows=500, learning_rate=0.05).replace(
        penalty=0.3, gate_penalty=0.2, penalty_start=50, penalty_end=100
    )
    job = Job(recipe, operation, 4, near, far, seeds, spans, starts)
    ((_, fast, _),), ((_, slow, _),) = (list(e.train(layer, [job], precision="float64")) for e in (fused, reference))
    for part in ("weights", "validation", "test", "sparsity"):
        np.testing.assert_allclose(getattr(fast, part), getattr(slow, part), rtol=1e-6, atol=1e-9, err_msg=part)
    assert np.allclose(fast.test * 500, np.round(fast.test * 500))
    assert fast.test.max() > 0


def test_a_users_module_is_benchmarked_on_rules():
    class Product(nn.Module):
        def __init__(self, inputs, outputs):
            super().__init__()
            self.weight = nn.Parameter(torch.rand(inputs))

        def forward(self, x):
            return (1 - self.weight + self.weight * x).prod(-1, keepdim=True)

    result = nalm.benchmark(Product, task="logic", operation="and", inputs=3, seeds=2, iterations=400)
    assert result.engine == "torch"
    assert not result.failures
    assert result.rows[0]["success_rate"] == 1


def test_command_line(monkeypatch, capsys):
    arguments = "bench comparison --module nsr --operation eq --option redundancy=2 --seeds 2 --iterations 300 --json --runs"
    monkeypatch.setattr(sys, "argv", ["nalm", *arguments.split()])
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code == 0
    document = json.loads(capsys.readouterr().out)
    assert document["rows"][0]["interpolation"] == "Z[-10,10)"
    assert len(document["runs"][0]["weights"]) == 2 * 2 * 2 + 3 * 2


def test_paths_that_look_the_other_way_are_one_comparison():
    layer = nalm.NSR(3, 1, redundancy=2).set_solution_("lt", (0, 2))
    with torch.no_grad():
        layer.first[1], layer.second[1] = layer.second[1].clone(), layer.first[1].clone()
        layer.sign_weight[1] *= -1
    assert str(nalm.readout(layer, ["a", "b", "c"])[0]) in ("a < c", "c > a")
    with torch.no_grad():
        layer.second[1] = layer.second[1].roll(1)
    assert nalm.readout(layer)[0].has(sympy.tanh), "two different comparisons are no single one"


def test_a_hidden_unit_that_is_no_rule_is_shown_as_a_number():
    stack = nn.Sequential(nalm.NLRL(2, 2), nalm.NLRL(2, 1).set_solution_("or"))
    stack[0].set_solution_("and")
    with torch.no_grad():
        stack[0].weight[1, 0] = 0.5
    shown = nalm.readout(stack)
    assert shown[0].atoms(sympy.Rational) or shown[0].atoms(sympy.Float)
    assert shown.residual < 1e-3
    with torch.no_grad():
        stack[1].set_solution_("not")  # of the first unit: the other does not count
    assert nalm.readout(stack, ["a", "b"])[0] == sympy.sympify("~a | ~b")


def test_negations_of_unused_inputs_do_not_hide_a_rule():
    layer = nalm.NLRL(3, 1).set_solution_("and")
    with torch.no_grad():
        layer.negation_hat[0, 2] = 0.3
    assert str(nalm.readout(layer, ["a", "b", "c"])) == "a & b"


def test_strict_layers_name_bad_input():
    rule, status = nalm.NLRL(2, 1, strict=True), nalm.NSR(3, 1, strict=True)
    with pytest.raises(ValueError, match=r"strict NLRL takes truth values, 0 or 1, got 0.5 among 4 inputs"):
        rule(torch.tensor([[0.0, 1.0], [0.5, 1.0]]))
    with pytest.raises(ValueError, match="got nan"):
        rule(torch.tensor([[0.0, torch.nan]]))
    with pytest.raises(ValueError, match="strict NSR compares numbers, but input 2 of 3 is NaN"):
        status(torch.tensor([[0.0, 1.0, 2.0], [0.0, torch.nan, 2.0]]))
    assert rule(torch.tensor([[0.0, 1.0]])).shape == (1, 1)
    assert status(torch.tensor([[0.0, torch.inf, 2.0]])).shape == (1, 1, 2)
    assert "strict=True" in repr(rule)
    assert "strict=True" in repr(status)


def test_bad_questions_are_named():
    with pytest.raises(ValueError, match="nlrl cannot express xor; it can express: and, or, not, nand, nor, implies"):
        nalm.benchmark("nlrl", "logic", "xor")
    with pytest.raises(ValueError, match="unknown operation 'lt'; logic has: and, or"):
        nalm.benchmark("nlrl", "logic", "lt")
    with pytest.raises(ValueError, match="and of 9 operands needs at least 9 inputs, got 6"):
        nalm.benchmark("nlrl", "logic", "and", data={"operands": 9})
    with pytest.raises(ValueError, match="redundancy of at most 24, not 25; use the torch engine"):
        lookup.kernel_of(nalm.NSR(2, 1, redundancy=25))
    with pytest.raises(ValueError, match="no simulated threshold for and: its error is a share of wrong answers"):
        nalm.benchmark("nlrl", "logic", "and", seeds=1, iterations=0, threshold="simulated")
    assert metrics.FixedThreshold().error < 1 / Recipe().evaluation_rows, "one wrong answer is too many"
