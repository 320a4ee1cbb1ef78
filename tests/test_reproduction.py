"""Experiments as data, verdicts on published claims, and reports."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
import torch

import nalm
from nalm import claims, experiments, pages, planning, registry, reproduction, runner, simple_arithmetic
from nalm.claims import Row
from nalm.dynamics import studies as ode_studies
from nalm.experiments import Claim, load, load_all, parse
from nalm.images import studies
from nalm.metrics import Outcomes, wilson_interval
from nalm.specs import Recipe

SMALL = """
id = "X:fig1"
title = "A small experiment"
source = "nobody's paper, figure 1"

[setup]
operation = "mul"
ranges = ["U[1,2)", "U[-2,-1)"]
seeds = 3
recipe = { iterations = 400, log_interval = 100, penalty_start = 100, penalty_end = 200 }

[quick]
seeds = 2
scale = 0.5

[[series]]
name = "nmu"
label = "NMU"
module = "nmu"

[[series]]
name = "snmu"
module = "snmu"
options = { noise_range = [1.0, 2.0] }

[published]
claims = [
  { id = "X0001", series = "nmu", at = "U[1,2)", metric = "success_rate", relation = "full", runs = 1000 },
  { id = "X0002", series = "snmu", metric = "success_rate", relation = ">=", than = ["nmu"] },
  { id = "X0003", series = "nmu", metric = "solved_at_median", relation = "=", value = 1000 },
  { id = "X0004", series = "nmu", metric = "colour", relation = "=", value = 3, incomparable = "colours have no number" },
]
explanations = [{ ids = ["X0001"], why = "four hundred steps are too few" }]
"""


def test_every_experiment_can_be_read_and_asked():
    everything = load_all()
    names = [name for one in everything for name in (one.id, *one.also)]
    assert len(names) == len(set(names)), "two experiments share an id"
    ids = [claim.id for one in everything for claim in one.claims]
    assert len(ids) == len(set(ids)), "a claim stands in two experiments"
    assert len(everything) > 80
    assert len(ids) > 1000
    for one in everything:
        if one.kind == "training":
            for budget in experiments.BUDGETS:
                for condition in one.conditions(budget):
                    assert planning.questions(replace(condition, ranges=condition.ranges[:1]))
        elif one.kind == "images":
            for budget in experiments.BUDGETS:
                assert studies.questions(one.settings_for(budget), None)
            assert one.compute in studies.STUDIES
        elif one.kind == "dynamics":
            for budget in experiments.BUDGETS:
                assert ode_studies.questions(one.settings_for(budget))
            assert one.compute in ode_studies.STUDIES
        else:
            assert one.compute in (*reproduction.COMPUTATIONS, "simple_arithmetic", "robust_limits")
        assert load(one.id) == one


def test_conditions_follow_budget_sweep_and_series():
    one = parse(SMALL, "small")
    paper, quick = one.conditions("paper"), one.conditions("quick")
    assert [c.seeds for c in paper] == [3, 3]
    assert [c.seeds for c in quick] == [2, 2]
    assert [c.label for c in paper] == ["NMU", "snmu"]
    cell, model = planning.questions(quick[1])[0]
    assert (cell.recipe.iterations, cell.recipe.penalty_start, cell.recipe.penalty_end) == (200, 50, 100)
    assert cell.recipe.log_interval == 4
    assert model.build(2).noise_range == (1.0, 2.0)
    swept = parse(
        SMALL.replace("[quick]", '[sweep]\nfield = "recipe.penalty"\nvalues = [1, 2]\n[quick]\nvalues = [2]'), "swept"
    )
    assert [(c.series, c.varied, c.recipe["penalty"]) for c in swept.conditions()] == [
        ("nmu", 1, 1),
        ("nmu", 2, 2),
        ("snmu", 1, 1),
        ("snmu", 2, 2),
    ]
    assert len(swept.conditions("quick")) == 2
    assert len(one.conditions("paper", series=["snmu"])) == 1
    with pytest.raises(ValueError, match="has no series 'nau'; it has: nmu, snmu"):
        one.conditions("paper", series=["nau"])
    with pytest.raises(ValueError, match="unknown budget 'huge'; there are: quick, paper"):
        one.conditions("huge")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("title =", "titel =", "unknown key 'titel'. Did you mean title"),
        ('title = "A small experiment"', "title = 3", "title must be a text"),
        ("seeds = 3", "sedes = 3", "setup: unknown key 'sedes'. Did you mean seeds"),
        ("[quick]\nseeds = 2", "[quick]\nhurry = 2", "quick: unknown key 'hurry'. There are: seeds"),
        ('module = "nmu"', 'modul = "nmu"', "series 1: unknown key 'modul'. Did you mean module"),
        ('name = "snmu"', 'name = "nmu"', "each series needs a name of its own"),
        ('ranges = ["U[1,2)", "U[-2,-1)"]', 'ranges = ["U[2,1)"]', "lower bound must be below"),
        ("iterations = 400", "iteration = 400", "a recipe has no value 'iteration'"),
        ('operation = "mul"', 'task = "chess"\noperation = "mul"', "unknown task 'chess'"),
        (
            'operation = "mul"',
            'judged = "kindly"\noperation = "mul"',
            "judged: unknown rule of judging 'kindly'. There are: least, last",
        ),
        ('operation = "mul"\n', "", "neither setup nor series has the key 'operation'"),
        ('relation = "full"', 'relation = "nearly"', "claims X0001: relation: unknown relation 'nearly'"),
        (
            'metric = "success_rate", relation = "full"',
            'metric = "colour", relation = "full"',
            "claim X0001: unknown metric 'colour'",
        ),
        ('than = ["nmu"]', 'than = ["nau"]', "claim X0002: unknown series 'nau'. Did you mean nmu? There are: nmu, snmu"),
        ('at = "U[1,2)"', 'at = "everywhere"', "cannot read the distribution 'everywhere'"),
        ('id = "X0003", ', "", "needs the key id"),
        ("[setup]", "[setup", "not a TOML file"),
        (
            'source = "nobody\'s paper, figure 1"',
            'source = ""\nkind = "guess"',
            "unknown kind 'guess'. There are: training, images, dynamics",
        ),
    ],
)
def test_damaged_files_say_where_and_what(old, new, message):
    assert old in SMALL
    with pytest.raises(ValueError, match=r"small\.toml: ") as error:
        parse(SMALL.replace(old, new), "small.toml")
    assert message in str(error.value)


def test_unknown_ids_name_the_nearest():
    with pytest.raises(ValueError, match=r"unknown experiment 'D:fig77'. Nearest: .*D:fig7"):
        load("D:fig77")
    assert load("T:fig5.4a").id == "D:fig1a"


def row(series="a", rate=(3, 4), interpolation="U[1,2)", varied=None, steps=1000.0, errors=0.5, operation="mul"):
    solved = np.arange(rate[1]) < rate[0]
    outcomes = Outcomes(
        solved=solved,
        solved_at=np.where(solved, steps, np.nan),
        selected=np.zeros(rate[1], int),
        interpolation_error=np.full(rate[1], errors),
        extrapolation_error=np.full(rate[1], 2 * errors),
        sparsity_error=np.full(rate[1], 1e-3),
    )
    interval = wilson_interval(*rate)
    summary = {"success_rate": interval.mean, "success_low": interval.low, "success_high": interval.high}
    return Row(series, "nmu", operation, 2, interpolation, varied, summary, outcomes, 1e-5, 7)


def verdict(rows, budget="paper", scaled=False, **keys):
    claim = Claim(**{"id": "X1", "series": ("a",), **keys})
    experiment = replace(parse(SMALL, "small"), claims=(claim,))
    (one,) = claims.judge(experiment, rows, budget, scaled)
    return one


@pytest.mark.parametrize("identity", ["/etc/passwd", "../experiments/M-tab1", "{own}", "..", "a/b", "", "a\0b", 3, "x" * 500])
def test_no_file_outside_the_package_is_read(identity, tmp_path):
    own = tmp_path / "own.toml"
    own.write_text(SMALL)
    with pytest.raises(ValueError, match=r"unknown experiment|named by a text") as error:
        reproduction.reproduce(str(own.with_suffix("")) if identity == "{own}" else identity)
    assert len(str(error.value)) < 300


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('id = "X:fig1"', 'id = "/tmp/x"', "id must be a name of letters"),
        ('id = "X:fig1"', 'id = "../x"', "id must be a name of letters"),
        ('id = "X:fig1"', 'id = "X:fig1"\nfigure = "panel"', "figure: unknown figure 'panel'. Did you mean panels?"),
        ('id = "X:fig1"', 'id = "X:fig1"\ntable = "row"', "table: unknown table 'row'. Did you mean rows?"),
        ('id = "X:fig1"', 'id = "X:fig1"\nvary = "serie"', "unknown axis 'serie'. Did you mean series?"),
        ('label = "NMU"', "label = 3", "series 1: label must be a text, got 3"),
        ('id = "X:fig1"', 'id = "X:fig1"\nalso = "X:fig2"', "also must be a list, got 'X:fig2'"),
        ('id = "X:fig1"', 'id = "X:fig1"\ngroups = [{}]', "needs the key name"),
        ("seeds = 3", "seeds = 'many'", "setup: seeds must be a whole number, got 'many'"),
        ("seeds = 3", "seeds = 0", "setup: seeds must be at least 1"),
        ("seeds = 3", "seeds = 3\ninputs = 2.5", "setup: inputs must be a whole number"),
        ("seeds = 3", "seeds = 3\nthreshold = 'low'", "threshold must be a number, simulated"),
        ("iterations = 400", "iterations = 'x'", "iterations must be a whole number, got 'x'"),
        ('operation = "mul"', 'operation = "mull"', "unknown operation 'mull'. Did you mean mul?"),
        ("value = 1000", "value = nan", "value must be a finite number"),
        ('kind = "training"', 'kind = "images"', "settings needs the key series"),
    ],
)
def test_every_value_of_a_file_is_checked_when_it_is_read(old, new, message):
    small = 'kind = "training"\n' + SMALL
    assert old in small
    with pytest.raises(ValueError, match=r"small\.toml: ") as error:
        parse(small.replace(old, new, 1), "small.toml")
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"metric": "success_rate", "relation": "full"}, "agree"),  # 3 of 4 beside 3 of 3 overlap
        ({"metric": "success_rate", "relation": "zero", "runs": 100}, "differ"),
        ({"metric": "success_rate", "relation": "partial"}, "agree"),
        ({"metric": "success_rate", "relation": "=", "value": 0.2, "low": 0.15, "high": 0.25}, "differ"),
        ({"metric": "success_rate", "relation": "<", "value": 0.75}, "differ"),
        ({"metric": "success_rate", "relation": "<=", "value": 0.75}, "agree"),
        ({"metric": "success_rate", "relation": ">", "than": ({"series": "b"},)}, "agree"),
        ({"metric": "success_rate", "relation": "<", "than": ({"series": "b"},)}, "differ"),
        ({"metric": "solved_at_median", "relation": "=", "value": 1200}, "agree"),
        ({"metric": "solved_at_median", "relation": "=", "value": 2000}, "differ"),
        ({"metric": "sparsity_error_mean", "relation": "=", "value": 6e-4}, "agree"),
        ({"metric": "sparsity_error_mean", "relation": "=", "value": 1e-6}, "differ"),
        ({"metric": "interp_mse_mean", "relation": "=", "value": 0.45}, "agree"),
        ({"metric": "extrap_mse_mean", "relation": "=", "value": 0.5}, "differ"),
        ({"metric": "test_mse_median", "relation": "<", "value": 2}, "agree"),
        ({"metric": "parameters", "relation": "=", "value": 7}, "agree"),
        ({"metric": "ranges_full_count", "relation": "=", "value": 0}, "agree"),
        ({"metric": "ranges_nonzero_count", "relation": "=", "value": 1}, "agree"),
        ({"metric": "ranges_better_than_ref", "relation": "=", "value": 1, "than": ({"series": "b"},)}, "agree"),
        ({"metric": "ranges_worse_than_ref", "relation": "=", "value": 2, "than": ({"series": "b"},)}, "differ"),
        ({"metric": "success_rate_diff_vs_ref", "relation": "~", "value": 0.7, "than": ({"series": "b"},)}, "agree"),
        ({"metric": "success_rate", "relation": "full", "at": ("U[5,6)",)}, "not comparable"),
        ({"metric": "success_rate", "relation": ">", "than": ({"series": "c"},)}, "not comparable"),
        ({"metric": "gate", "relation": "=", "incomparable": "not recorded"}, "not comparable"),
    ],
)
def test_verdicts(keys, expected):
    assert verdict([row("a"), row("b", (0, 4))], **keys).verdict == expected


def test_verdicts_look_at_each_series_and_each_reference():
    rows = [row("a", (9, 10)), row("b", (5, 10)), row("c", (2, 10))]
    both = {"metric": "success_rate", "relation": ">", "series": ("a", "b")}
    assert verdict(rows, **both, than=({"series": "c"},)).verdict == "agree"
    assert verdict(rows, **both, than=({"series": "c"}, {"series": "b"})).verdict == "differ"


def test_counts_of_ranges_have_an_interval_too():
    ranges = ("U[1,2)", "U[10,20)", "U[-2,2)")
    mine = [row("a", (n, 25), name) for n, name in zip((25, 13, 3), ranges, strict=True)]
    theirs = [row("b", (n, 25), name) for n, name in zip((2, 12, 20), ranges, strict=True)]
    better = {"metric": "ranges_better_than_ref", "relation": "=", "than": ({"series": "b"},)}
    assert [verdict([*mine, *theirs], **better, value=n).verdict for n in range(4)] == ["differ", "agree", "agree", "differ"]
    assert verdict([*mine, *theirs], **better, value=1).measured == "2 [1, 2]"
    full = {"metric": "ranges_full_count", "relation": "="}
    assert [verdict(mine, **full, value=n).verdict for n in range(3)] == ["differ", "agree", "differ"]


def test_steps_of_shortened_runs_are_not_compared():
    one = verdict([row()], budget="quick", scaled=True, metric="solved_at_mean", relation="=", value=1000)
    assert (one.verdict, one.reason) == ("not comparable", "the quick budget trains for fewer steps")
    assert verdict([row(rate=(0, 4))], metric="solved_at_mean", relation="=", value=1000).measured == "no run solved"


def test_one_range_against_the_others():
    rows = [
        row(interpolation="U[-2,2)", steps=3000.0),
        row(),
        row(interpolation="U[10,20)"),
        row(interpolation="U[1.1,1.2)", steps=1e6),
    ]
    one = verdict(rows, metric="solved_at_ratio_vs_other_ranges", relation=">", value=2, at=("U[-2,2)",))
    assert (one.verdict, one.measured) == ("agree", "3")


@pytest.fixture
def small(monkeypatch):
    experiment = parse(SMALL, "small")
    monkeypatch.setattr(reproduction, "load", lambda identity: experiment)
    return experiment


def test_an_experiment_from_start_to_files(small, tmp_path):
    report = reproduction.reproduce("X:fig1", "paper", out=tmp_path)
    assert [row.summary["runs"] for row in report.rows] == [3, 3, 3, 3]
    assert report.counts() == {"agree": 1, "differ": 2, "not comparable": 1}
    folder = tmp_path / "X-fig1"
    assert {path.name for path in folder.iterdir()} == {
        "report.json",
        "report.md",
        "table.csv",
        "claims.csv",
        "figure.png",
        "figure.svg",
    }
    document = json.loads((folder / "report.json").read_text())
    assert document["id"] == "X:fig1"
    assert len(document["table"]) == 4
    text = (folder / "report.md").read_text()
    assert "| X0001 | nmu U[1,2) success rate |" in text
    assert "colours have no number" in text
    again = reproduction.reproduce("X:fig1", "paper", out=tmp_path)
    assert again.table == report.table
    assert again.seconds == 0, "what the store holds is not trained again"
    assert again.core_seconds == pytest.approx(report.core_seconds), "and what it took is remembered"
    with pytest.raises(ValueError, match="seeds must be at least 1, got 0"):
        reproduction.reproduce("X:fig1", seeds=0)


DRAWN = """
id = "X:fig2"
title = "A small experiment that draws"
source = "nobody's paper, figure 2"
{top}
[setup]
task = "{task}"
inputs = {inputs}
ranges = ["U[1,2)"]
seeds = 2
recipe = {{ iterations = 20, log_interval = 10, batch = 8, evaluation_rows = 20 }}
[sweep]
field = "operation"
values = {operations}
[[series]]
name = "one"
label = "One"
module = "{module}"
[published]
claims = []
"""


@pytest.mark.parametrize(
    ("figure", "task", "inputs", "module", "operations"),
    [
        ("surfaces", "single-module", 2, "nmu", ["mul", "div"]),
        ("gates", "arithmetic-dataset", 10, "nau+gated-nau-nmu", ["mul", "add"]),
        ("pareto", "arithmetic-dataset", 10, "nau+nmu", ["mul"]),
        ("networks", "two-step", 4, "nau+nmu", ["add-mul", "sub-add"]),
    ],
)
def test_experiments_draw_what_they_ask_for(monkeypatch, figure, task, inputs, module, operations):
    top = f'figure = "{figure}"\nvary = "varied"' + ('\ntable = "networks"' if figure == "networks" else "")
    text = DRAWN.format(top=top, task=task, inputs=inputs, module=module, operations=json.dumps(operations))
    monkeypatch.setattr(reproduction, "load", lambda identity: parse(text, "drawn"))
    monkeypatch.setattr(runner, "engine_for", lambda model, engine: "torch")  # nothing to compile
    report = reproduction.reproduce("X:fig2", "paper")
    drawn = report.figure()
    panels = [axes for axes in drawn.axes if axes.has_data()]
    if figure == "networks":
        (line,) = report.table
        assert (line["network"], line["expressions"]) == ("One", 2)
        assert panels[0].get_images()[0].get_array().shape == (1, 2)
    else:
        titles = " ".join(axes.get_title() for axes in panels)
        assert all(operation in titles for operation in operations)


class TestSimpleArithmetic:
    """The NPU paper's networks of four operations, all runs of which are trained together."""

    SETTINGS = {"runs": 2, "steps": 3, "batch": 10, "interval": [0.1, 2.1]}

    def test_gives_what_the_claims_ask_for(self):
        result = simple_arithmetic.simple_arithmetic(self.SETTINGS)
        assert {claim.key for claim in load("H:fig6").claims if not claim.incomparable} <= set(result.values)
        assert [line["operation"] for line in result.table] == ["add", "mul", "div", "sqrt"]
        assert len(result.figure().axes) == 4

    @pytest.mark.parametrize("name", ["real-npu", "nalu", "nmu"])
    def test_runs_that_are_trained_together_are_those_of_pytorch(self, name):
        _, build, optimiser, rate = simple_arithmetic.MODELS[name]
        predict = simple_arithmetic._trained(name, 2, 5, 10, (0.1, 2.1))
        torch.manual_seed(1)
        model = build()
        if name == "nmu":
            start = torch.rand(2, *model[0].weight.shape, generator=torch.Generator().manual_seed(0))
            model[0].weight.data.copy_(start[1])
        own = {"adam": torch.optim.Adam, "rmsprop": torch.optim.RMSprop}[optimiser](
            model.parameters(), rate, **({"alpha": 0.9} if optimiser == "rmsprop" else {})
        )
        generator = torch.Generator().manual_seed(0)
        for _ in range(5):
            x = 0.1 + 2.0 * torch.rand(2, 10, 2, generator=generator)[1]
            own.zero_grad()
            (model(x) - simple_arithmetic.truth(x)).square().mean().backward()
            own.step()
            nalm.project_(model)
        x = torch.tensor([[0.5, 1.5], [2.0, 0.3]])
        torch.testing.assert_close(predict(x)[1], model(x).detach(), rtol=1e-3, atol=1e-4)


def test_differing_claims_are_explained(small, tmp_path):
    report = reproduction.reproduce("X:fig1", "quick", out=tmp_path)
    first = report.to_json()["claims"][0]
    assert (first["verdict"], first["reason"]) == ("not comparable", "the quick budget trains for fewer steps")
    report = reproduction.reproduce("X:fig1", "paper", out=tmp_path)
    first = report.to_json()["claims"][0]
    assert (first["verdict"], first["reason"]) == ("differ", "four hundred steps are too few")


def test_the_page_collects_reports(tmp_path):
    for name in ("S:fig6", "T:appC", "D:sec8"):
        reproduction.reproduce(name, "quick", out=tmp_path)
    text = pages.page(tmp_path)
    assert "3 experiments" in text
    assert text.index("## D:sec8") < text.index("## S:fig6") < text.index("## T:appC")
    with pytest.raises(ValueError, match="holds no reports"):
        pages.page(tmp_path / "nothing")


def test_the_page_keeps_what_a_folder_does_not_hold(tmp_path):
    for folder, names in (("one", ("S:fig6", "T:appC")), ("two", ("T:appC", "D:sec8"))):
        for name in names:
            reproduction.reproduce(name, "quick", out=tmp_path / folder)
    whole = tmp_path / "whole"
    for name in ("S:fig6", "T:appC", "D:sec8"):
        reproduction.reproduce(name, "quick", out=whole)
    merged = pages.page(tmp_path / "two", pages.page(tmp_path / "one"))

    def timeless(text):
        return re.sub(r"[\d.,]+ (s on one core|core-hours)|\| [\d,]+ \| [\d-]+ \|$", "", text, flags=re.MULTILINE)

    assert timeless(merged) == timeless(pages.page(whole))


def test_all_experiments_in_one_go(monkeypatch, tmp_path):
    few = tuple(one for one in load_all() if one.id in ("S:fig6", "T:appC"))
    monkeypatch.setattr(reproduction, "load_all", lambda: few)

    class Bar:
        total = done = 0.0

        def start(self, total, what):
            self.total = total

        def advance(self, amount):
            self.done += amount

    bar = Bar()
    reports = reproduction.reproduce_all("quick", out=tmp_path, progress=bar)
    assert [report.experiment.id for report in reports] == ["S:fig6", "T:appC"]
    assert bar.total > 0


def test_gold_thresholds_are_errors_of_exact_weights():
    conditions = {c.module: planning.questions(c) for c in load("D:fig11").conditions()}
    limits = {name: [reproduction._threshold("gold", cell) for cell, _ in asked] for name, asked in conditions.items()}
    assert all(limit.inclusive for part in limits.values() for limit in part)
    values = {name: [limit.value(None) for limit in part] for name, part in limits.items()}
    assert conditions["nru"][0][0].interpolation == "U[0,0.0001)"
    assert values["nmru"][0] == pytest.approx(1.126e-3, rel=1e-2), (
        "one over x is exact, but x is rounded and the target knew it better"
    )
    assert values["nmru"][4] == pytest.approx(1.1921e-07, abs=2e-9)
    assert values["nru"][4] == pytest.approx(1.205e-07, abs=2e-9)
    assert values["nru"][0] > 10 * values["nru"][4], "rounding of huge reciprocals"


@pytest.mark.parametrize("module", ["real-npu-mod", "nru", "nmru"])
def test_runs_that_start_at_exact_weights_meet_the_gold_threshold(module, monkeypatch):
    condition = next(c for c in load("D:fig11").conditions() if c.module == module)
    asked = planning.questions(replace(condition, recipe={"iterations": 0}))

    def solution(model, layer, *_):
        layer.set_solution_("reciprocal", (0,))
        return np.concatenate([p.detach().numpy().ravel() for p in layer.parameters()])[None].astype(float)

    monkeypatch.setattr("nalm.models.Model.starts", solution)
    for cell, runs in runner.run_cells(asked, [0]).runs.items():
        assert runs.test[0, 0] <= reproduction._threshold("gold", cell).value(cell)


def test_quick_budgets_say_whether_they_train_for_fewer_steps():
    for name, shortened in (("H:fig7", True), ("M:tab2", True), ("S:tab1", True), ("T:tab5.6", False)):
        assert all(c.shortened == shortened for c in load(name).conditions("quick"))
        assert not any(c.shortened for c in load(name).conditions("paper"))


def test_scaled_recipes_keep_their_proportions():
    recipe = planning._scaled(Recipe(iterations=5_000_000, penalty=10, penalty_start=1_000_000, penalty_end=2_000_000), 0.02)
    assert (recipe.iterations, recipe.penalty_start, recipe.penalty_end, recipe.log_interval) == (
        100_000,
        20_000,
        40_000,
        1_000,
    )
    assert planning._scaled(recipe, 1.0) is recipe


@pytest.mark.parametrize("name", ["snmu-power", "nmu-minmax", "nmu-zscore"])
def test_variants_train(name):
    from nalm.variants import variant

    torch.manual_seed(0)
    module = variant(name, "U[1,2)", "mul")(2, 1)
    x = 1 + torch.rand(64, 2)
    module.train()(x).square().sum().backward()
    assert all(p.grad.isfinite().all() for key, p in module.named_parameters() if key != "statistics")
    assert module.eval()(x).shape == (64, 1)


@pytest.mark.parametrize("name", list(registry.modules()))
def test_an_experiment_with_any_module_has_an_estimate(name):
    record = registry.info(name)
    task = {"nlrl": "logic", "nsr": "comparison"}.get(name, "single-module")
    text = SMALL.replace('module = "snmu"\noptions = { noise_range = [1.0, 2.0] }', f'module = "{name}"')
    operation = record.operations[0] if record.operations else "mul"
    text = text.replace('operation = "mul"', f'task = "{task}"\noperation = "{operation}"')
    assert 0 < planning.estimate(parse(text, "small.toml"), "quick") < 1e4


def test_estimates_grow_with_the_budget():
    for name in ("D:fig6", "M:tab2", "T:fig6.1", "H:fig6"):
        quick, paper = (planning.estimate(load(name), budget) for budget in ("quick", "paper"))
        assert 0 < quick < paper
    assert planning.estimate(load("M:fig2"), "paper") > 0


@pytest.mark.parametrize(
    ("claim", "words"),
    [
        (Claim("S1", "accuracy", ">", key="snmu over nmu"), "snmu over nmu accuracy"),
        (Claim("S2", "accuracy", "=", key="solved/accuracy"), "solved accuracy"),
        (Claim("S3", "success_rate", "=", series=("nmu",), at=("U[1,2)",)), "nmu U[1,2) success rate"),
    ],
)
def test_what_a_claim_is_about_is_said(claim, words):
    assert reproduction.describe(claims.Verdict(claim, "", "", "agree")) == words
