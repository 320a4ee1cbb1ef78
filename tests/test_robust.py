"""Training beyond the papers: each option against an independent computation, both engines alike, starts counted honestly."""

import numpy as np
import pytest
import scipy.linalg
import scipy.optimize
import torch
from numpy.testing import assert_allclose
from torch.nn.utils import parameters_to_vector, vector_to_parameters

import nalm
from nalm import limits
from nalm.engine import fused, lookup, reference, solve
from nalm.engine.data import Job
from nalm.models import model_of
from nalm.options import Centring, LevenbergMarquardt, LogMagnitude, Restarts, Snap
from nalm.pages import own_page
from nalm.registry import modules
from nalm.reproduction import reproduce
from nalm.solver import Problem, box_of, damped_step
from nalm.specs import Cell, Recipe
from nalm.tasks import task_of

ROBUST = [name for name, record in modules().items() if record.robust]


def random_rows(generator, rows=200, inputs=4, low=0.5, high=2.0):
    return low + (high - low) * torch.rand(rows, inputs, generator=generator, dtype=torch.float64)


# --- losses


def test_log_loss_has_the_minimum_of_least_squares_in_log_space(generator):
    x = random_rows(generator)
    noise = torch.randn(len(x), generator=generator, dtype=torch.float64)
    y = x[:, 0] ** 0.8 / x[:, 2].sqrt() * (0.1 * noise).exp()
    layer = nalm.SumOrProduct(4, 1, dtype=torch.float64)
    torch.nn.init.zeros_(layer.choice)
    problem = Problem(layer, x[None], y[None, :, None], LevenbergMarquardt(every=50), LogMagnitude())
    p = parameters_to_vector(layer.parameters()).detach()[None].clone()
    problem.steps(p, torch.full((1,), 1e-3, dtype=p.dtype), torch.zeros(1, dtype=torch.bool))
    expected = np.linalg.lstsq(x.log().numpy(), y.log().numpy(), rcond=None)[0]
    assert_allclose(p[0, 4:8].numpy(), expected, atol=1e-9)


def test_log_loss_is_what_it_says():
    y, t = torch.tensor([2.0, -1.0, 3.0, 0.0]), torch.tensor([1.0, 1.0, 0.0, 5.0])
    wrong_signs = 1 / (1 + 1) / 4
    assert float(LogMagnitude(sign=0.0)(y, t)) == pytest.approx(np.log(2) ** 2 / 2)
    assert float(LogMagnitude(sign=3.0)(y, t)) == pytest.approx(np.log(2) ** 2 / 2 + 3 * wrong_signs)
    assert LogMagnitude().prepare(torch.tensor([-1.0])).item() == 1
    assert LogMagnitude(magnitudes=False).prepare(torch.tensor([-1.0])).item() == -1


def test_log_loss_has_a_finite_gradient_at_exact_zeros():
    y = torch.tensor([0.0, 1.0, 0.0, -2.0], requires_grad=True)
    LogMagnitude()(y, torch.tensor([0.0, 0.0, 1.0, 3.0])).backward()
    assert y.grad.isfinite().all()
    assert y.grad[3] != 0


def test_centring_sees_centred_inputs(generator):
    x, weight = random_rows(generator), torch.zeros(4, dtype=torch.float64, requires_grad=True)
    y = x @ torch.tensor([1.0, 0, -1, 0], dtype=torch.float64)
    (pull,) = torch.autograd.grad(Centring(1e-9)(x @ weight - y), weight)
    centred, target = x - x.mean(0), y - y.mean()
    assert_allclose(pull.numpy(), (2 * centred.T @ (centred @ weight - target) / len(x)).detach().numpy(), atol=1e-7)
    residual = (x @ weight - y).detach()
    assert float(Centring(1.0)(residual)) == pytest.approx(float(residual.square().mean()))


@pytest.mark.parametrize(
    ("name", "operation", "changes"),
    [
        ("nmru", "div", {"loss": LogMagnitude()}),
        ("real-npu", "mul", {"loss": LogMagnitude(sign=0.5, magnitudes=False)}),
        ("nau", "sub", {"loss": LogMagnitude(sign=2.0, magnitudes=False)}),
        ("nau", "add", {"centring": Centring(0.1)}),
        ("nmu", "mul", {"loss": LogMagnitude(), "centring": Centring(0.2)}),
    ],
)
def test_engines_descend_alike(name, operation, changes):
    recipe = Recipe(iterations=60, log_interval=20, batch=16, evaluation_rows=50, learning_rate=1e-2, **changes)
    (fast,), (slow,) = both_engines(name, operation, recipe, precision="float64")
    for what in ("weights", "validation", "test"):
        assert_allclose(getattr(fast, what), getattr(slow, what), rtol=1e-6, atol=1e-9, err_msg=what)
    assert not np.allclose(fast.validation[:, 0], fast.validation[:, -1])


def both_engines(name, operation, recipe, inputs=4, interpolation="U[-2,2)", seeds=(0, 1), **options):
    model = model_of(name)
    layer = model.build(inputs)
    limit = recipe.restarts.limit if recipe.restarts else 1
    starts = np.stack([model.starts(layer, inputs, seed, limit) for seed in seeds])
    spans = np.array([task_of("single-module").spans(inputs, seed, {}) for seed in seeds])
    job = Job(recipe, operation, inputs, interpolation, "U[2,6)", list(seeds), spans, starts)
    return [[runs for _, runs, _ in engine.train(layer, [job], **options)] for engine in (fused, reference)]


# --- Levenberg-Marquardt


def test_step_is_that_of_scipys_least_squares(generator):
    jacobian = torch.randn(3, 30, 5, generator=generator, dtype=torch.float64)
    residual = torch.randn(3, 30, generator=generator, dtype=torch.float64)
    damping = torch.tensor([1e-3, 0.5, 20.0], dtype=torch.float64)
    frozen = torch.zeros(3, 5, dtype=torch.bool)
    frozen[1, 2] = True
    jacobian[2, :, 4] = 0
    steps = damped_step(jacobian, residual, damping, frozen).numpy()
    for k, (matrix, r) in enumerate(zip(jacobian.numpy(), residual.numpy(), strict=True)):
        moving = [j for j in range(5) if not frozen[k, j] and matrix[:, j].any()]
        part = matrix[:, moving]
        rows = np.vstack([part, np.diag(np.sqrt(damping[k].item() * (part**2).sum(0)))])
        expected = scipy.linalg.lstsq(rows, np.concatenate([-r, np.zeros(len(moving))]))[0]
        assert_allclose(steps[k, moving], expected, rtol=1e-8, atol=1e-12)
        assert not steps[k, [j for j in range(5) if j not in moving]].any()


def test_solution_in_the_box_is_scipys(generator):
    """Targets that the box cannot reach: some weights end at its bounds."""
    x = random_rows(generator)
    y = x @ torch.tensor([2.0, -0.3, -1.7, 0.4], dtype=torch.float64)
    layer = nalm.NAU(4, 1, dtype=torch.float64)
    problem = Problem(layer, x[None], y[None, :, None], LevenbergMarquardt(every=100))
    p = torch.zeros(1, 4, dtype=torch.float64)
    problem.steps(p, torch.full((1,), 1e-3, dtype=p.dtype), torch.zeros(1, dtype=torch.bool))
    expected = scipy.optimize.lsq_linear(x.numpy(), y.numpy(), bounds=(-1, 1), tol=1e-14).x
    assert_allclose(p[0].numpy(), expected, atol=1e-5)
    assert abs(expected).max() > 0.999


@pytest.mark.parametrize("name", ROBUST)
@pytest.mark.parametrize("logarithmic", [False, True])
def test_compiled_solver_takes_the_steps_of_the_torch_one(name, logarithmic, generator):
    layer = nalm.create(name, 3, 1, dtype=torch.float64).eval()
    layer.reset_parameters(generator)
    x = random_rows(generator, 60, 3)
    y = x[:, 0] * x[:, 1]
    solver = LevenbergMarquardt(every=3)
    slow = Problem(layer, x[None], y[None, :, None], solver, LogMagnitude() if logarithmic else "mse")
    start = parameters_to_vector(layer.parameters()).detach()
    p, damping = start[None].clone(), torch.full((1,), 1e-3, dtype=torch.float64)
    slow.steps(p, damping, torch.zeros(1, dtype=torch.bool))
    box = tuple(end.numpy() for end in box_of(layer))
    fast = solve.Problem(
        lookup.kernel_of(layer), solver, x.numpy().T.copy(), y.numpy(), box, logarithmic=logarithmic, noisy=layer.in_features
    )
    q, state = start.numpy().copy(), np.array([1e-3])
    fast.steps(q, state)
    assert_allclose(q, p[0].numpy(), rtol=1e-5, atol=1e-7)
    assert state[0] == pytest.approx(damping.item())
    assert not np.allclose(q, start.numpy())


# --- snapping and verification


@pytest.mark.parametrize("name", [name for name, record in modules().items() if record.penalty != "none"])
def test_snapping_restores_a_disturbed_solution(name, generator):
    layer = nalm.create(name, 3, 1, dtype=torch.float64).eval()
    operation = layer.operations[0]
    layer.set_solution_(operation)
    x = random_rows(generator, 20, 3) if "eq" not in layer.operations else torch.randint(5, (20, 3)).double()
    if layer.domain == "boolean":
        x = torch.randint(2, (20, 3)).double()
    exact = layer(x)
    solution = parameters_to_vector(layer.parameters()).detach().clone()
    noise = torch.randn(solution.shape, generator=generator, dtype=torch.float64)
    vector_to_parameters(solution + 0.02 * noise, layer.parameters())
    layer.snap_()
    legal = layer.effective_weights()
    for weight, values in layer.legal_values.items():
        allowed = torch.tensor(values, dtype=torch.float64)
        assert (legal[weight].unsqueeze(-1) - allowed).abs().amin(-1).max() < 1e-9
    if not any(part in name for part in ("nalu", "gated-nau", "nsr")):  # their free gates are not discrete
        assert_allclose(layer(x).detach().numpy(), exact.detach().numpy(), rtol=1e-5, atol=1e-7)


def test_verification_refuses_what_the_module_cannot_say(generator):
    x = random_rows(generator, 300, 2)
    found = nalm.fit(nalm.NMU(2, 1), x, x[:, 0] + x[:, 1], restarts=Restarts(3), generator=generator)
    assert not found.verified
    assert found.starts == 3
    assert found.error > 1e-3


def test_verification_sees_a_wrong_input_among_many_that_vary_little(generator):
    x = 1.1 + 0.1 * torch.rand(1_000, 501, generator=generator, dtype=torch.float64)
    right, wrong = x[:, :-1].sum(1), x[:, 1:].sum(1)
    assert ((wrong - right).square().mean() / right.square().mean()).sqrt() < Snap().tolerance
    assert not Snap().accepts(Snap.error(wrong, right))
    assert Snap().accepts(Snap.error(right.float().double(), right))
    constant = torch.full((10,), 3.0, dtype=torch.float64)
    assert Snap.error(constant + 0.3, constant) == pytest.approx(0.1)


def test_verification_takes_a_little_for_zero_where_the_target_is_zero():
    target = torch.tensor([0.0, 2.0, -4.0, 0.0], dtype=torch.float64)
    error = Snap.error(target + torch.tensor([1e-7, 0, 0, -1e-7]), target, each=True)
    assert error == pytest.approx(1e-7 / 2 / 2**0.5, rel=1e-6)  # the median of 2 and 4 is 2 in PyTorch; half of the rows
    assert Snap.error(target + 1.0, target, each=True) > 0.3
    assert Snap.error(torch.zeros(3), torch.zeros(3), each=True) == 0


def test_verification_knows_about_noise(generator):
    x = random_rows(generator, 600, 3)
    clean = x[:, 0] - x[:, 2]
    y = clean + 0.05 * clean.square().mean().sqrt() * torch.randn(600, generator=generator, dtype=torch.float64)
    layer = nalm.NAU(3, 1)
    assert not nalm.fit(layer, x, y, generator=generator, restarts=Restarts(2)).verified
    assert nalm.fit(layer, x, y, generator=generator, snap=Snap(noise=0.05)).verified
    assert str(nalm.readout(layer)) == "x1 - x3"


@pytest.mark.parametrize(
    ("layer", "loss", "formula"),
    [
        (nalm.NAU(5, 1), "mse", "x2 - x4"),
        (nalm.RealNPU(5, 1), LogMagnitude(), "x2/x4"),
        (nalm.NMRU(5, 1), LogMagnitude(), "x2/x4"),
        (nalm.NMU(5, 1), LogMagnitude(), "x2*x4"),
        (nalm.SumOrProduct(5, 1), LogMagnitude(), "x2 - x4"),
        (nalm.SumOrProduct(5, 1), LogMagnitude(), "x2/x4"),
    ],
)
def test_fit_finds_formulas(layer, loss, formula):
    generator = torch.Generator().manual_seed(1)
    x = 4 * torch.rand(800, 5, generator=generator) - 2
    y = eval(formula, {f"x{i + 1}": x[:, i] for i in range(5)})
    found = nalm.fit(layer, x, y, loss=loss, generator=generator)
    assert found.verified
    assert str(nalm.readout(layer)) == formula


def test_fit_takes_several_outputs_and_refuses_what_it_cannot(generator):
    x = random_rows(generator, 300, 3)
    layer = nalm.NAU(3, 2)
    assert nalm.fit(layer, x, torch.stack([x[:, 0] + x[:, 1], x[:, 1] - x[:, 2]], 1), generator=generator).verified
    with pytest.raises(ValueError, match="loss must be mse or a LogMagnitude"):
        nalm.fit(layer, x, x[:, :2], loss="pcc")
    with pytest.raises(ValueError, match="at least two rows"):
        nalm.fit(layer, x[:1], x[:1, :2])


# --- starts


@pytest.mark.parametrize("name", ["nau", "nmru", "sum-or-product"])
def test_engines_search_alike(name):
    operation = "div" if name == "nmru" else "sub"
    recipe = modules()[name].robust.replace(solver=LevenbergMarquardt(rows=200), restarts=Restarts(6), evaluation_rows=100)
    (fast,), (slow,) = both_engines(name, operation, recipe, seeds=(0, 1, 2, 3))
    chosen = np.arange(4, 8) if name == "sum-or-product" else np.arange(0)  # exponents of a sum are never trained
    kept = np.delete(fast.weights, chosen, 1), np.delete(slow.weights, chosen, 1)
    assert_allclose(*kept, atol=1e-12)
    assert_allclose(fast.test, slow.test, rtol=1e-3, atol=1e-10)


def test_every_start_counts():
    """A sum is found by the first start that happens to choose the sum; all starts before it count."""
    recipe = modules()["sum-or-product"].robust
    result = nalm.benchmark("sum-or-product", operation="add", ranges=["U[1,2)"], seeds=8, recipe="robust", threads=1)
    (cell, runs), model = next(iter(result.raw.items())), model_of("sum-or-product")
    layer = model.build(2)
    for seed in range(8):
        choices = model.starts(layer, 2, seed, recipe.restarts.limit)[:, -1]
        needed = int(np.argmax(choices >= 0.5)) + 1
        assert (runs.test[seed, 1:needed] > 1e-3).all(), "starts that chose the product fail, and are logged as failures"
        assert (runs.test[seed, needed:] < 1e-10).all()
        assert result.runs[seed]["solved_at"] == needed
    assert cell.recipe.steps.tolist() == list(range(21))


def test_best_start_is_kept_where_none_is_verified():
    recipe = modules()["nmu"].robust.replace(restarts=Restarts(4))
    ((runs,),) = [both_engines("nmu", "add", recipe, interpolation="U[1,2)", seeds=(0,))[0]]
    assert runs.status == ["ok"]
    assert np.isfinite(runs.test).all()
    assert runs.validation[0, 1:].min() == pytest.approx(runs.validation[0, -1], rel=10)


def test_snapping_after_descent_adds_a_row():
    recipe = Recipe(iterations=300, log_interval=100, learning_rate=1e-2, loss=LogMagnitude(), snap=Snap())
    (fast,), (slow,) = both_engines("nmru", "div", recipe, precision="float64")
    assert fast.steps.tolist() == [0, 100, 200, 300, 301]
    assert_allclose(fast.weights, slow.weights)
    assert (fast.test[:, -1] < 1e-9).all()


@pytest.mark.parametrize("name", ["real-npu-mod", "nru", "nmru"])
def test_division_with_irrelevant_inputs_is_solved_at_the_first_start(name):
    ranges = ["U[-2,2)", "U[1.1,1.2)", "TN(0,1)[-5,5) -> TN(10,1)[5,15)"]
    result = nalm.benchmark(name, operation="div", ranges=ranges, seeds=3, inputs=10, recipe="robust")
    assert [row["success_rate"] for row in result.rows] == [1.0] * 3


def test_two_layers_are_solved_where_the_published_recipe_never_is():
    result = nalm.benchmark(
        "nau+nmu", "arithmetic-dataset", ranges=["U[1.1,1.2)"], seeds=1, recipe="robust", threshold="simulated"
    )
    assert result.rows[0]["success_rate"] == 1
    assert result.raw[next(iter(result.raw))].sparsity[0, -1] == 0


# --- recipes


def test_recipes_with_options_survive_json():
    recipe = Recipe(
        loss=LogMagnitude(sign=0.5),
        solver=LevenbergMarquardt(rows=99),
        snap=Snap(noise=0.1),
        restarts=Restarts(3, start="selecting"),
    )
    cell = Cell("nmu", "mul", 2, "U[1,2)", "U[2,6)", recipe)
    assert Cell.from_json(cell.to_json()) == cell
    plain = Cell("nmu", "mul", 2, "U[1,2)", "U[2,6)", Recipe())
    assert plain.key != cell.key
    assert Cell.from_json(Cell("nmu", "mul", 2, "U[1,2)", "U[2,6)", Recipe(centring=Centring())).to_json()).recipe.centring


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"loss": "secret"}, "loss must be one of"),
        ({"loss": "pcc", "centring": Centring()}, "centring goes with"),
        ({"solver": LevenbergMarquardt()}, "need a snap"),
        ({"restarts": Restarts()}, "need a snap"),
        ({"solver": LevenbergMarquardt(), "snap": Snap(), "loss": "mape"}, "minimises squares"),
        ({"snap": 3}, "snap must be a Snap"),
    ],
)
def test_recipes_refuse_what_cannot_be_meant(values, message):
    with pytest.raises(ValueError, match=message):
        Recipe(**values)


@pytest.mark.parametrize(
    "make",
    [
        lambda: LogMagnitude(sign=-1),
        lambda: Centring(0.0),
        lambda: Centring(2.0),
        lambda: LevenbergMarquardt(rows=0),
        lambda: LevenbergMarquardt(damping=0.0),
        lambda: LevenbergMarquardt(decrease=1.0),
        lambda: Snap(tolerance=0.0),
        lambda: Snap(noise=-1.0),
        lambda: Snap(rows=0),
        lambda: Restarts(0),
        lambda: Restarts(start="secret"),
    ],
)
def test_options_refuse_values_that_cannot_work(make):
    with pytest.raises(ValueError, match=r"must be"):
        make()


def test_modules_without_a_robust_recipe_say_so():
    with pytest.raises(ValueError, match="nalu has no robust recipe"):
        nalm.benchmark("nalu", recipe="robust")
    with pytest.raises(ValueError, match="unknown recipe 'secret'"):
        nalm.benchmark("nmu", recipe="secret")


# --- the study


def test_open_problems_from_a_series_to_the_page(tmp_path):
    series = [
        "division, Benford",
        "one module, mul",
        "ablation, nmru: squared error, Levenberg-Marquardt, own initial values, one start",
    ]
    report = reproduce("open-problems", "quick", out=tmp_path, series=series)
    division, product, ablation = report.table
    assert (division["success"], division["first_start"], division["starts"], division["reached"]) == (1, 1, 1, True)
    assert division["published"] == "1"
    assert product["success"] == 1
    assert product["starts"] > product["first_start"], "some starts choose the sum first"
    assert ablation["reached"] is None
    assert report.figure() is not None
    reproduce("robust-limits", "quick", out=tmp_path)
    page = own_page(tmp_path)
    assert "| division, 10 inputs: Benford | NMRU | 1 | 1.00 [" in page
    assert "## When the robust recipe fails" in page
    with pytest.raises(ValueError, match="holds no reports"):
        own_page(tmp_path / "nothing")


@pytest.fixture(autouse=True)
def _fewer_levels(monkeypatch):
    monkeypatch.setattr(limits, "LEVELS", {"inputs": (4,), "layers of two sums and a product": (3,), "correlation": (0.5,)})


def test_limits_count_what_is_verified_and_right():
    table = limits.robust_limits({"seeds": 1, "starts": 3}).table
    assert [line["what"] for line in table] == ["inputs", "layers of two sums and a product", "correlation"]
    assert table[0]["NMRU, x1 / x2"] == 1
    assert not limits._one("relative noise, not known", 0.1, "NAU, x1 - x2", 0, 2)
