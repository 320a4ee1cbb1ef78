"""Kernels against the torch modules: values, gradients, whole trainings; and runs that depend on themselves alone."""

import numpy as np
import pytest
import torch
from torch import nn

import nalm
from nalm import vector
from nalm.engine import fused, kernels, lookup, reference
from nalm.engine.data import Job
from nalm.engine.search import answers
from nalm.engine.work import Work
from nalm.models import model_of
from nalm.registry import modules
from nalm.specs import Recipe, Runs
from nalm.tasks import task_of

pytestmark = pytest.mark.usefixtures("untraced")

SHORT = {"iterations": 30, "log_interval": 10}
"""Steps after which logarithms of sums near zero have not yet blown rounding errors up."""
FUSED = sorted(name for name, record in modules().items() if record.fused)
every_kernel = pytest.mark.parametrize("name", FUSED)


def job_of(
    name, recipe, interpolation="U[-2,2)", inputs=2, seeds=(0, 1, 2), operation=None, options=None, task="single-module", **data
):
    model = model_of(name, options, hidden=data.get("hidden", 2))
    layer = model.build(inputs)
    operation = operation or ("mul" if "mul" in layer.operations else "add")
    starts = np.stack([model.starts(layer, inputs, seed, 3) for seed in seeds])
    spans = np.array([task_of(task).spans(inputs, seed, data) for seed in seeds])
    return layer, Job(recipe, operation, inputs, interpolation, "U[2,6)", list(seeds), spans, starts)


def results(engine, layer, jobs, **options):
    return [runs for _, runs, _ in engine.train(layer, jobs, **options)]


def assert_same(first, second, **tolerance):
    for name in ("weights", "validation", "test", "sparsity"):
        np.testing.assert_allclose(getattr(first, name), getattr(second, name), err_msg=name, **tolerance)
    assert first.status == second.status


def test_kernels_are_those_that_the_registry_names():
    networks = {"Stack", "Gated", "RecurrentSelector", "FrozenSelector"}
    assert {type(modules()[name].build(2, 1)).__name__ for name in FUSED} | networks == set(lookup.KERNEL_OF)
    single = {type(lookup.kernel_of(modules()[name].build(2, 1))) for name in FUSED}
    assert set(kernels.KERNELS) == single | {kernels.Stack, kernels.Program, kernels.Rectified}
    with pytest.raises(ValueError, match="no kernel for ProductFC"):
        lookup.kernel_of(nalm.ProductFC(2, 1))
    with pytest.raises(ValueError, match="no kernel for NMRU in a network"):
        lookup.kernel_of(nalm.Stack(nalm.RealNPU(2, 2), nalm.NMRU(2, 1)))


@every_kernel
@pytest.mark.parametrize("inputs", [1, 2, 5])
@pytest.mark.parametrize("training", [True, False])
def test_forward_and_gradient(name, inputs, training, generator):
    check_gradient(nalm.create(name, inputs, 1, dtype=torch.float64).train(training), generator)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(
    "names",
    [
        *(("nau", name) for name in FUSED if "mlp" not in name),
        *((name, "nmu") for name in ("nac-add", "linear", "nalu", "gated-nau-nmu", "nlrl")),
    ],
)
def test_stacks_pass_gradients_on(names, training, generator):
    first, second = (nalm.modules()[name] for name in names)
    layers = first.build(5, 3, dtype=torch.float64), second.build(3, 1, dtype=torch.float64)
    check_gradient(nalm.Stack(*layers).train(training), generator)


def check_gradient(layer, generator):
    inputs, training = layer.in_features, layer.training
    for signs in ("positive", "negative", "mixed"):
        layer.reset_parameters(generator)
        for name, p in layer.named_parameters():
            last = name.rpartition(".")[2]
            if last == "gate" and p.shape == (layer.in_features,):
                p.data.uniform_(0.1, 0.9, generator=generator)
            if last == "imaginary":
                p.data.normal_(0, 0.3, generator=generator)
        layer.zero_grad()
        x = 0.5 + torch.rand(32, inputs, generator=generator, dtype=torch.float64)
        x *= {"positive": 1, "negative": -1, "mixed": 1 - 2 * torch.randint(0, 2, x.shape, generator=generator)}[signs]
        parameters = np.concatenate([p.detach().numpy().ravel() for p in layer.parameters()])
        kernel = lookup.kernel_of(layer)
        noisy = getattr(layer, "noisy_inputs", inputs)
        work = Work.make(kernel, inputs, noisy, parameters.size, 32, np.float64)
        work.x[:] = x.numpy().T
        work.target[:] = np.linspace(-1, 2, 32)
        arguments = [x]
        if training and layer.noise:
            noise = layer.sample_noise(x, generator).detach()
            arguments.append(noise)
            if layer.noise != "uniform":
                work.noise[:, 0] = noise.numpy()[0]
            else:
                work.noise[:] = noise.numpy().T
        fused.gradient(kernel, parameters, training, work)
        output = answers(layer(*arguments), x)
        (output - torch.from_numpy(work.target)).square().mean().backward()
        pulled = [torch.zeros_like(p) if p.grad is None else p.grad for p in layer.parameters()]
        gradient = np.concatenate([g.numpy().ravel() for g in pulled])
        np.testing.assert_allclose(work.y, output.detach().numpy(), rtol=1e-11, atol=1e-12)
        np.testing.assert_allclose(work.g, gradient, rtol=1e-9, atol=1e-11 * (1 + np.abs(gradient).max()))


@every_kernel
@pytest.mark.parametrize(("inputs", "interpolation"), [(2, "U[-2,2)"), (5, "U[1,2)")])
def test_training_follows_the_torch_engine(name, inputs, interpolation):
    """1,000 steps with every part of a recipe switched on; in double precision rounding is all that may differ."""
    recipe = Recipe(
        iterations=1000,
        log_interval=250,
        batch=16,
        evaluation_rows=50,
        penalty=0.3,
        gate_penalty=0.2,
        penalty_start=100,
        penalty_end=600,
        norm=1,
        norm_start=1e-4,
        norm_end=1e-2,
        norm_every=300,
        clip_norm=1.0,
        gradient_noise=1e-3,
    )
    if modules()[name].domain == "boolean":  # logarithms of numbers near zero blow rounding errors up
        interpolation = "Z[0,2)"
    layer, job = job_of(name, recipe, interpolation, inputs, seeds=(0, 3))
    (fast,), (slow,) = (results(engine, layer, [job], precision="float64") for engine in (fused, reference))
    assert_same(fast, slow, rtol=1e-6, atol=1e-9)
    assert np.abs(fast.weights - job.starts[:, 0]).min(0).max() > 0.01


@pytest.mark.parametrize(
    "changes", [{"loss": "pcc"}, {"loss": "mape"}, {"loss": "pcc-mse", "loss_switch": 60}, {"optimiser": "sgd"}]
)
def test_losses_and_optimisers_follow_the_torch_engine(changes):
    recipe = Recipe(iterations=150, log_interval=50, batch=32, evaluation_rows=50, learning_rate=1e-2).replace(**changes)
    for name in ("nmu", "real-npu"):
        layer, job = job_of(name, recipe, "U[1,2)", operation="mul")
        (fast,), (slow,) = (results(engine, layer, [job], precision="float64") for engine in (fused, reference))
        assert_same(fast, slow, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    "changes", [{"clip_value": 0.01}, {"norm": 2, "norm_start": 1e-2, "norm_end": 1e-2}, {"project": False}]
)
def test_clipping_norms_and_projection_follow_the_torch_engine(changes):
    recipe = Recipe(iterations=200, log_interval=50, batch=32, evaluation_rows=50, learning_rate=1e-2).replace(**changes)
    for name in ("npu-mod", "nmru-gated"):
        layer, job = job_of(name, recipe, "U[1,2)", operation="div")
        (fast,), (slow,) = (results(engine, layer, [job], precision="float64") for engine in (fused, reference))
        assert_same(fast, slow, rtol=1e-9, atol=1e-12)


def test_inalu_rules_follow_the_torch_engine():
    """Penalty by validation error and re-initialisation, on a range where the error stays large."""
    recipe = modules()["inalu"].recipe.replace(
        iterations=5200, log_interval=400, batch=4, evaluation_rows=20, penalty_start=100, penalty_below=1e9, learning_rate=50.0
    )
    layer, hard = job_of("inalu", recipe, "U[10,20)", operation="identity", seeds=(0, 1))
    fast, slow = (results(engine, layer, [hard], precision="float64")[0] for engine in (fused, reference))
    assert_same(fast, slow, rtol=1e-6, atol=1e-9)
    still = results(fused, layer, [Job(recipe.replace(reinitialise=False), *_rest(hard))], precision="float64")[0]
    assert not np.allclose(still.weights, fast.weights), "the rule never came into force"


def _rest(job):
    return job.operation, job.inputs, job.interpolation, job.extrapolation, job.seeds, job.spans, job.starts


@pytest.mark.parametrize(
    ("name", "operation", "interpolation", "changes", "data"),
    [
        ("nau+nmu", "mul", "U[1,2)", {"penalty": 0.5, "penalty_start": 100, "penalty_end": 400}, {}),
        ("nau+snmu", "mul", "U[-2,2)", {}, {"hidden": 3}),
        ("nau+stgnmu", "mul", "U[1,2)", {"penalty": 0.01, "penalty_start": -1, "penalty_end": 0}, {}),
        ("nac-add+nac-mul", "mul", "U[1,2)", SHORT, {}),
        ("nau+gated-nau-nmu", "add", "U[1,2)", {"penalty": 0.5, "penalty_start": 100, "penalty_end": 400}, {}),
        ("nalu+nalu", "mul", "U[1,2)", SHORT, {}),
        ("linear+linear", "add", "U[-2,2)", {"optimiser": "rmsprop"}, {"subsets": 3, "subset": 0.2, "hidden": 4}),
        ("plain-linear+real-npu", "reciprocal", "Sobol(1,2)", {"norm": 2, "norm_start": 1e-4, "norm_end": 1e-3}, {}),
        ("nau+nmru", "div", "U[1,2)", {"clip_norm": 1.0}, {}),
    ],
)
def test_stacks_follow_the_torch_engine(name, operation, interpolation, changes, data):
    recipe = Recipe(iterations=500, log_interval=100, evaluation_rows=200, batch=32).replace(**changes)
    layer, job = job_of(name, recipe, interpolation, 12, operation=operation, task="arithmetic-dataset", **data)
    ours, theirs = (results(engine, layer, [job], precision="float64")[0] for engine in (fused, reference))
    assert_same(ours, theirs, rtol=1e-6, atol=1e-9)


def test_single_precision_stays_close_to_double():
    recipe = Recipe(iterations=300, log_interval=100, evaluation_rows=100)
    for name in ("nmu", "nalu", "npu", "nru", "nmru", "inalu", "snmu"):
        layer, job = job_of(name, recipe, "U[1,2)")
        single, double = (results(fused, layer, [job], precision=p)[0] for p in ("float32", "float64"))
        np.testing.assert_allclose(single.weights, double.weights, rtol=2e-3, atol=2e-3, err_msg=name)


def test_results_do_not_depend_on_threads_order_or_grid():
    recipe = Recipe(iterations=2000, penalty=10.0, penalty_start=500, penalty_end=900)
    layer, first = job_of("snmu", recipe, "U[-2,-1)", seeds=range(6))
    _, second = job_of("snmu", recipe, "U[1,2)", seeds=range(6))
    one, two = results(fused, layer, [first, second], threads=1)
    for threads, jobs in ((2, [first, second]), (3, [second, first])):
        again = results(fused, layer, jobs, threads=threads)
        if jobs[0] is second:
            again.reverse()
        for before, after in zip((one, two), again, strict=True):
            assert_same(before, after, rtol=0, atol=0)
    (alone,) = results(fused, layer, [first.only(4)])
    np.testing.assert_array_equal(alone.weights[0], one.weights[4])
    np.testing.assert_array_equal(alone.test[0], one.test[4])


def test_stacked_runs_do_not_depend_on_the_stack():
    recipe = Recipe(iterations=100, log_interval=50, evaluation_rows=50)
    layer, first = job_of("nmru", recipe, "U[-2,-1)")
    _, second = job_of("nmru", recipe, "U[1,2)")
    together = results(reference, layer, [first, second], precision="float64")
    (alone,) = results(reference, layer, [second.only(1)], precision="float64")
    np.testing.assert_allclose(alone.weights[0], together[1].weights[1], rtol=1e-12)


def test_compiled_stack_gives_the_same_numbers():
    recipe = Recipe(iterations=60, log_interval=30, evaluation_rows=50, penalty=1.0, penalty_start=0, penalty_end=10)
    layer, job = job_of("nmu", recipe, "U[1,2)")
    plain, compiled = (results(reference, layer, [job], precision="float64", compiled=flag)[0] for flag in (False, True))
    assert_same(plain, compiled, rtol=1e-9, atol=1e-12)


def test_divergence_is_a_result():
    recipe = Recipe(iterations=3000, learning_rate=1e30, optimiser="sgd", project=False)
    layer, job = job_of("nmu", recipe, "U[10,20)")
    for engine in (fused, reference):
        (runs,) = results(engine, layer, [job])
        assert runs.status == ["diverged"] * 3
        assert np.isfinite(runs.validation[:, 0]).all()
        assert np.isnan(runs.validation[:, -1]).all()


def test_evaluation_handles_a_last_block_of_any_size():
    for rows in (1, 127, 128, 129, 300):
        recipe = Recipe(iterations=0, evaluation_rows=rows)
        layer, job = job_of("nmu", recipe, "U[1,2)", seeds=(0,))
        fast, slow = (results(engine, layer, [job], precision="float64")[0] for engine in (fused, reference))
        assert_same(fast, slow, rtol=1e-12, atol=1e-14)


def test_a_module_that_raises_is_recorded_and_others_go_on():
    class Picky(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(2))

        def forward(self, x):
            return (x * self.weight).sum(-1, keepdim=True) / self.check()

        def check(self):
            raise ZeroDivisionError("nothing to divide by")

    recipe = Recipe(iterations=10, log_interval=5, evaluation_rows=10)
    job = Job(recipe, "add", 2, "U[1,2)", "U[2,6)", [0, 1], np.array([[[0, 1], [1, 2]]] * 2), np.zeros((2, 1, 2)))
    (runs,) = results(reference, Picky(), [job])
    assert runs.status == ["failed", "failed"]
    assert runs.messages[1] == "add U[1,2), seed 1: ZeroDivisionError: nothing to divide by"
    assert np.isnan(runs.validation).all()


def test_runs_join_in_the_order_of_their_seeds():
    recipe = Recipe(iterations=0, evaluation_rows=5)
    layer, job = job_of("nmu", recipe, seeds=(0, 1, 2, 3))
    (whole,) = results(fused, layer, [job])
    parts = [results(fused, layer, [job.only(k)])[0] for k in (2, 0, 3, 1)]
    joined = Runs.join(parts)
    assert joined.seeds.tolist() == [0, 1, 2, 3]
    assert_same(joined, whole, rtol=0, atol=0)


SPECIAL = np.array(
    [
        0.0,
        -0.0,
        np.inf,
        -np.inf,
        np.nan,
        1e-45,
        -1e-45,
        3e-39,
        1.17549435e-38,
        3.4e38,
        -3.4e38,
        88.72,
        88.73,
        -87.3,
        -103.9,
        -104,
        1,
        0.625,
    ],
    np.float32,
)


@pytest.fixture(scope="module")
def floats():
    """Bit patterns from the whole range of float32, and denser samples where functions vary."""
    rng = np.random.default_rng(8)
    bits = rng.integers(0, 2**32, 1_000_000, dtype=np.uint64).astype(np.uint32).view(np.float32)
    dense = [rng.uniform(-a, a, 300_000).astype(np.float32) for a in (1, 10, 100)]
    return np.concatenate([bits, *dense, SPECIAL])


def units_in_the_last_place(shown, exact):
    with np.errstate(all="ignore"):
        rounded = exact.astype(np.float32)
        error = np.abs(shown.astype(np.float64) - exact) / np.spacing(np.abs(rounded)).astype(np.float64)
    same = (shown == rounded) | (np.isnan(shown) & np.isnan(rounded))
    error = np.where(same, 0.0, np.nan_to_num(error, nan=np.inf))
    return error.max()


@pytest.mark.parametrize("name", ["exp", "log", "tanh"])
def test_elementary_functions_to_two_units(name, floats):
    shown = floats.copy()
    getattr(vector, f"_{name}32")(shown)
    with np.errstate(all="ignore"):
        exact = getattr(np, name)(floats.astype(np.float64))
    assert units_in_the_last_place(shown, exact) <= 2


def test_sine_and_cosine_to_two_units(floats):
    sine, cosine = np.empty_like(floats), np.empty_like(floats)
    vector._sincos32(floats, sine, cosine)
    with np.errstate(all="ignore"):
        wide = floats.astype(np.float64)
        assert units_in_the_last_place(sine, np.sin(wide)) <= 2
        assert units_in_the_last_place(cosine, np.cos(wide)) <= 2


def test_sigmoid_saturates_and_passes_nan_on():
    x = np.array([-1000, -20, 0, 20, 1000, np.nan, np.inf, -np.inf], np.float32)
    shown = x.copy()
    vector._sigmoid32(shown)
    exact = [0, 2.0611537e-9, 0.5, 1, 1, np.nan, 1, 0]
    np.testing.assert_allclose(shown, exact, rtol=3e-7)
