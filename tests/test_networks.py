"""Networks that choose between layers: gates, selectors, deep stacks; in PyTorch, as programs and as formulas."""

import numpy as np
import pytest
import torch

import nalm
from nalm.engine import fused, lookup, reference
from nalm.engine.data import targets
from nalm.layers.routing import select, straight_through
from nalm.metrics import SimulatedThreshold
from nalm.models import model_of
from nalm.operations import number_of
from nalm.specs import Cell, Recipe
from nalm.tasks import TWO_STEPS
from test_engines import assert_same, check_gradient, job_of, results

pytestmark = pytest.mark.usefixtures("untraced")

NETWORKS = {
    "relu-mlp": {"hidden": (5, 5, 5)},
    "relu6-mlp": {"hidden": (5, 5)},
    "quadratic+quadratic": {},
    "linear+nac-add+linear": {},
    "inac+imnac+inac+imnac": {},
    "nau+real-npu-mod+nau+real-npu": {},
    "nau+nmu+nau+nmu": {},
    "nau/nmu": {},
    "inac/imnac+inac/imnac": {},
    "nau/real-npu-mod+nau/real-npu-mod": {},
    "recurrent:nau:nau:nmu": {},
    "recurrent:inac:imnac:inac:imnac": {},
    "recurrent:nau:real-npu-mod": {},
    "recurrent:frozen": {"mask_temperature": 0.5, "temperature": 2.0},
}
every_network = pytest.mark.parametrize("name", NETWORKS)

EXPRESSIONS = {
    "add-add": lambda a, b, c: a + b + c,
    "add-sub": lambda a, b, c: -a - b - c,
    "add-mul": lambda a, b, c: (a + b) * c,
    "add-div": lambda a, b, c: 1 / ((a + b) * c),
    "sub-add": lambda a, b, c: -a - b + c,
    "sub-sub": lambda a, b, c: a + b - c,
    "sub-mul": lambda a, b, c: (-a - b) * c,
    "sub-div": lambda a, b, c: 1 / ((-a - b) * c),
    "mul-add": lambda a, b, c: a * b + c,
    "mul-sub": lambda a, b, c: -a * b - c,
    "mul-mul": lambda a, b, c: a * b * c,
    "mul-div": lambda a, b, c: 1 / (a * b * c),
    "div-add": lambda a, b, c: 1 / (a * b) + c,
    "div-sub": lambda a, b, c: -1 / (a * b) - c,
    "div-mul": lambda a, b, c: c / (a * b),
    "div-div": lambda a, b, c: a * b / c,
}
"""Table 7.1 of the thesis."""


def shaken(network, generator):
    """Logits that are not all equal, so that every branch is taken in some draw."""
    with torch.no_grad():
        for name, p in network.named_parameters():
            if name in ("choice", "certainty", "mask"):
                p.normal_(generator=generator)
    return network


@every_network
@pytest.mark.parametrize("training", [True, False])
def test_programs_compute_what_the_network_does(name, training, generator, monkeypatch):
    network = model_of(name, NETWORKS[name], hidden=3).build(4).double().train(training)
    reset = network.reset_parameters
    monkeypatch.setattr(network, "reset_parameters", lambda generator: (reset(generator), shaken(network, generator)))
    for _ in range(6 if "recurrent" in name else 1):
        check_gradient(network, generator)


@every_network
def test_programs_train_as_the_torch_engine_does(name):
    recipe = Recipe(
        iterations=150,
        log_interval=50,
        batch=16,
        evaluation_rows=50,
        optimiser="sgd",
        learning_rate=1e-2,
        penalty=0.3,
        gate_penalty=0.1,
        penalty_start=20,
        penalty_end=80,
        clip_norm=1.0,
    )
    layer, job = job_of(name, recipe, "U[1,2)", 4, (0, 3), "add-mul", NETWORKS[name], "two-step", hidden=3)
    (fast,), (slow,) = (results(engine, layer, [job], precision="float64") for engine in (fused, reference))
    assert_same(fast, slow, rtol=1e-6, atol=1e-9)
    assert np.abs(fast.weights - job.starts[:, 0]).max() > 1e-3


def test_other_layers_are_left_to_the_torch_engine():
    with pytest.raises(ValueError, match="no kernel for NMRU in a network"):
        lookup.kernel_of(nalm.Stack(nalm.RealNPU(2, 2), nalm.NMRU(2, 1)))


def test_targets_are_those_of_the_thesis():
    rng = np.random.default_rng(0)
    x = rng.uniform(1, 2, (4, 50))
    spans = np.array([[0, 1], [1, 2], [2, 3]])
    assert tuple(EXPRESSIONS) == TWO_STEPS
    for name, expression in EXPRESSIONS.items():
        out = np.empty(50)
        targets(number_of(name), x, spans, np.empty((3, 50)), out)
        np.testing.assert_allclose(out, expression(*x[:3]), rtol=1e-14, err_msg=name)


def test_thresholds_of_two_steps():
    def threshold(operation, epsilon):
        cell = Cell("nau", operation, 4, "U[1,2)", "U[2,6)", Recipe(), "two-step")
        return SimulatedThreshold(epsilon, samples=20_000).value(cell)

    for operation in TWO_STEPS:
        assert threshold(operation, 0.0) == 0
        small, large = threshold(operation, 1e-4), threshold(operation, 1e-3)
        assert large == pytest.approx(100 * small, rel=0.05), operation
    # a + b + c with every weight off by 1e-3: the first step sees all four inputs, the second its result and all four
    assert 1e-3**2 * 20**2 < threshold("add-add", 1e-3) < 1e-3**2 * 48**2


def test_straight_through_is_hard_forwards_and_soft_backwards():
    logits = torch.tensor([0.3, 1.2, -0.5], dtype=torch.float64, requires_grad=True)
    weights = torch.tensor([2.0, 3.0, 5.0], dtype=torch.float64)
    chosen = straight_through(logits, 10.0)
    assert chosen.tolist() == [0, 1, 0]
    (chosen * weights).sum().backward()
    hard = logits.grad.clone()
    logits.grad = None
    ((logits / 10).softmax(-1) * weights).sum().backward()
    torch.testing.assert_close(hard, logits.grad)


def test_selection_follows_the_algorithm():
    outputs = torch.tensor([[1.0, 10.0], [2.0, 20.0]], dtype=torch.float64)
    logits = torch.tensor([1.0, 0.0], dtype=torch.float64, requires_grad=True)
    surprising = torch.tensor([0.01, 0.99], dtype=torch.float64)  # Gumbel noise that favours the second
    for gate, expected in ((-1.0, [10, 20]), (1.0, [1, 2])):
        certainty = torch.tensor(gate, dtype=torch.float64, requires_grad=True)
        result = select(outputs, logits, certainty, 10.0, surprising)
        assert result.tolist() == expected
        share = torch.sigmoid(certainty).item()
        result.sum().backward()
        assert certainty.grad.item() == pytest.approx((3 - 30) * share * (1 - share))
    assert select(outputs, logits, torch.tensor(-1.0), 10.0).tolist() == [1, 2]


def test_gates_and_selectors_are_read_as_formulas():
    gated = nalm.Gated(nalm.NAU(2, 1).set_solution_("sub"), nalm.NMU(2, 1).set_solution_("mul"))
    for raw, expected in ((50.0, "a - b"), (-50.0, "a*b")):
        torch.nn.init.constant_(gated.gate_hat, raw)
        assert str(nalm.readout(gated, ["a", "b"])) == expected

    recurrent = nalm.RecurrentSelector([nalm.NAU(5, 1), nalm.NMU(5, 1)])
    with torch.no_grad():
        recurrent.layers[0].weight.copy_(torch.tensor([[1.0, 1, 0, 0, 0]]))
        recurrent.layers[1].weight.copy_(torch.tensor([[0.0, 0, 1, 1, 0]]))
        recurrent.choice.copy_(torch.tensor([[1.0, 0], [0, 1]]))
    read = nalm.readout(recurrent, ["a", "b", "c"])
    assert str(read) == "c*(a + b)"
    assert read.residual < 1e-12

    frozen = nalm.FrozenSelector(3)
    with torch.no_grad():
        frozen.mask[0] = torch.nn.functional.one_hot(torch.tensor([3, 3, 0, 0, 0]), 4).float()
        frozen.mask[1] = torch.nn.functional.one_hot(torch.tensor([1, 1, 2, 2, 1]), 4).float()
        frozen.choice.copy_(torch.tensor([[0.0, 0, 0, 1], [0, 0, 1, 0]]))
    read = nalm.readout(frozen, ["a", "b", "c"])
    assert str(read) == "c/(a*b)"
    assert read.residual < 1e-12


def test_frozen_division_by_an_empty_result_stays_finite():
    frozen = nalm.FrozenSelector(2, blank=0.0)
    with torch.no_grad():
        frozen.mask[:] = torch.tensor([0.0, 0, 0, 1])
    x = torch.ones(3, 2)
    output = frozen.train()(x)
    output.sum().backward()
    assert output.isfinite().all()
    assert frozen.mask.grad.isfinite().all()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: nalm.Gated(nalm.NAU(2, 1), nalm.NMU(3, 1)), "same sizes"),
        (lambda: nalm.Gated(nalm.NAU(2, 1), nalm.sNMU(2, 1)), "may not draw noise"),
        (lambda: nalm.RecurrentSelector([nalm.NAU(4, 1)]), "at least two layers"),
        (lambda: nalm.RecurrentSelector([nalm.NAU(4, 1), nalm.NMU(4, 2)]), "one output"),
        (lambda: nalm.RecurrentSelector([nalm.NAU(2, 1), nalm.NMU(2, 1)]), "at least one input"),
        (lambda: nalm.FrozenSelector(0), "at least one input"),
        (lambda: nalm.FrozenSelector(2, temperature=0), "temperature must be positive"),
        (lambda: nalm.FrozenSelector(2, mask_temperature=-1), "mask_temperature must be positive"),
        (lambda: nalm.FrozenSelector(2)(torch.ones(3, 4)), "takes a tensor of shape"),
        (lambda: model_of("nau/nmu/nau"), "a gate stands between two layers"),
        (lambda: model_of("recurrent:nau/nmu:nau"), "not in a recurrent network"),
        (lambda: model_of("nau+nmu+nau").recipe_for("two-step", "add-add", 4, "robust"), "no robust recipe"),
        (lambda: nalm.benchmark("nau+nmu", task="two-step", operation="mul"), "two-step has: add-add"),
        (lambda: nalm.benchmark("nau+nmu", task="two-step", operation="add-mul", inputs=2), "at least 3 inputs"),
        (lambda: nalm.benchmark("nmu", threshold="simulated:small"), "simulated:EPSILON"),
    ],
)
def test_bad_networks_are_refused_in_a_sentence(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_a_selector_learns_a_two_step_expression():
    recipe = {"iterations": 20_000, "penalty_start": 10_000, "penalty_end": 15_000}
    network = "recurrent:nau:nau:nmu"
    result = nalm.benchmark(network, "two-step", "sub-add", seeds=4, threshold="simulated:1e-3", **recipe)
    assert result.engine == "fused"
    assert result.rows[0]["success_rate"] >= 0.5
