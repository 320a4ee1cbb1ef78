"""What every registered module must do; a new module is covered by being registered."""

import copy
import inspect
import io
import pickle

import pytest
import sympy
import torch
from torch.func import functional_call, stack_module_state, vmap

import nalm
from conftest import EXTRAPOLATION_RANGES, OPERATIONS, draw
from nalm.layers import ARITY, Unit
from nalm.layers.base import BoxUnit

NAMES = sorted(nalm.modules())
RECORDS = nalm.modules()
DISCRETE = ("add", "mul", "and", "lt")
every_module = pytest.mark.parametrize("name", NAMES)


def inputs_for(name, shape, generator, dtype=torch.float32):
    """Random inputs from the domain that a record declares."""
    domain = RECORDS[name].domain
    if domain == "boolean":
        return torch.randint(0, 2, shape, generator=generator).to(dtype)
    if domain == "integer":
        return torch.randint(-40, 41, shape, generator=generator).to(dtype)
    parts = [(0.3, 3)] if domain == "positive" else [(-3, -0.3), (0.3, 3)]
    return draw(parts, shape, generator).to(dtype)


def ranges_for(domain, operation):
    positive = domain == "positive" or operation == "sqrt"
    return {k: parts for k, parts in EXTRAPOLATION_RANGES.items() if not positive or min(p[0] for p in parts) > 0}


@every_module
@pytest.mark.parametrize("lead", [(), (5,), (2, 3), (0,), (2, 0)])
@pytest.mark.parametrize("training", [True, False])
def test_shapes_and_precision(name, lead, training, generator):
    for dtype in (torch.float32, torch.float64):
        layer = nalm.create(name, 3, 2, dtype=dtype).train(training)
        y = layer(inputs_for(name, (*lead, 3), generator, dtype))
        assert y.shape == (*lead, 2, 2) if name == "nsr" else y.shape == (*lead, 2)
        assert y.dtype == dtype


@every_module
def test_leading_dimensions_are_only_a_batch(name, generator):
    layer = nalm.create(name, 3, 2).eval()
    x = inputs_for(name, (4, 5, 3), generator)
    torch.testing.assert_close(layer(x), torch.stack([torch.stack([layer(row) for row in part]) for part in x]))


@pytest.mark.parametrize(("name", "operation"), [(n, op) for n in NAMES for op in RECORDS[n].operations])
@pytest.mark.parametrize(("inputs", "operands"), [(2, (0, 1)), (5, (3, 1))])
def test_declared_operation_is_exact(name, operation, inputs, operands, generator):
    layer = nalm.create(name, inputs, 2).eval()
    if operation not in layer.operations:
        assert name == "product-fc", "only the plain product may depend on the number of inputs"
        return
    assert layer.set_solution_(operation, operands) is layer
    if RECORDS[name].domain in ("boolean", "integer"):
        samples = {RECORDS[name].domain: inputs_for(name, (500, inputs), generator)}
    else:
        ranges = ranges_for(RECORDS[name].domain, operation)
        samples = {k: draw(parts, (500, inputs), generator).float() for k, parts in ranges.items()}
    assert samples
    for x in samples.values():
        exact = OPERATIONS[operation](*x[:, operands].double().unbind(-1))
        y = layer(x)
        if name == "nsr":
            torch.testing.assert_close(y.sum(-1), torch.ones_like(y[..., 0]))
            y = y[..., 0]
        scale = x.abs().max().item() if operation in ("add", "sub") else 1.0
        expected = exact.float().unsqueeze(-1).expand_as(y)
        torch.testing.assert_close(y, expected, rtol=5e-6, atol=5e-7 * scale)


@every_module
def test_undeclared_operations_raise(name):
    layer = nalm.create(name, 2, 1)
    for operation in set(ARITY) - set(RECORDS[name].operations):
        with pytest.raises(ValueError, match=f"cannot express '{operation}'"):
            layer.set_solution_(operation)


@pytest.mark.parametrize("name", [n for n in NAMES if RECORDS[n].operations])
def test_operands_are_checked(name):
    layer = nalm.create(name, 2, 1)
    operation = max(RECORDS[name].operations, key=lambda op: ARITY[op])
    for operands in [(0, 2), (-1, 0), (1, 1), (0, 1, 1), ()]:
        with pytest.raises(ValueError, match="different operands between 0 and 1"):
            layer.set_solution_(operation, operands)


def call_with_noise(layer, parameters, x, noise):
    arguments = (x,) if noise is None else (x, noise)
    return functional_call(layer, parameters, arguments)


@every_module
@pytest.mark.parametrize("training", [True, False])
def test_gradients(name, training, generator):
    layer = nalm.create(name, 3, 2, dtype=torch.float64).train(training)
    layer.reset_parameters(generator)
    x = inputs_for(name, (4, 3), generator, torch.float64) + 0.01
    noise = layer.sample_noise(x, generator) if training and layer.noise else None
    names, values = zip(*[(k, v.detach().clone().requires_grad_()) for k, v in layer.named_parameters()], strict=True)

    def output(x, *values):
        return call_with_noise(layer, dict(zip(names, values, strict=True)), x, noise)

    x.requires_grad_(not (name == "snmu-batch" and training))  # its noise follows the batch, without a gradient
    smooth_steps = name in ("nru", "nru-sep-sign") and training  # tanh(1000 w)^2 is flat but for a tiny neighbourhood of 0
    assert torch.autograd.gradcheck(output, (x, *values), eps=1e-7 if smooth_steps else 1e-6)


@every_module
def test_state_copies_and_pickles(name, generator):
    layer = nalm.create(name, 3, 2).eval()
    x = inputs_for(name, (6, 3), generator)
    file = io.BytesIO()
    torch.save(layer.state_dict(), file)
    file.seek(0)
    loaded = nalm.create(name, 3, 2).eval()
    loaded.load_state_dict(torch.load(file, weights_only=True))
    for other in (loaded, copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert torch.equal(other(x), layer(x))
        assert repr(other) == repr(layer)


@every_module
def test_reset_is_reproducible(name):
    layer = nalm.create(name, 3, 2)

    def values(seed):
        layer.reset_parameters(torch.Generator().manual_seed(seed))
        return [p.detach().clone() for p in layer.parameters()]

    first, again, other = values(1), values(1), values(2)
    assert all(map(torch.equal, first, again))
    assert name == "stgnmu" or not all(map(torch.equal, first, other))


BOXES = {
    "sum-or-product": {"add_weight": (-1, 1), "mul_weight": (-1, 1), "choice": (0, 1)},
    "npu-mod": {"real": (-1, 1), "gate": (0, 1)},
    "real-npu-mod": {"real": (-1, 1), "gate": (0, 1)},
    "npu": {},
    "real-npu": {},
    "nmru-gated": {"weight": (0, 1), "gate": (0, 1)},
    "nlrl": {"weight": (0, 1)},
    "gated-nau-nmu": {"add.weight": (-1, 1), "mul.weight": (0, 1)},
    "nalu-separate": {},
    "inalu": {},
}


@every_module
def test_projection_keeps_the_legal_box(name, generator):
    layer = nalm.create(name, 3, 2)
    if name in BOXES:
        boxes = BOXES[name]
    elif isinstance(layer, BoxUnit):
        boxes = {"weight": (layer.low, 1)}
    else:
        assert type(layer).project_ is Unit.project_, "say in BOXES what project_ should keep"
        boxes = {}
    before = {}
    for key, p in layer.named_parameters():
        p.data = 3 * torch.randn(p.shape, generator=generator)
        before[key] = p.detach().clone()
    layer.project_()
    for key, p in layer.named_parameters():
        low, high = boxes.get(key, (-torch.inf, torch.inf))
        assert torch.equal(p, before[key].clamp(low, high)), key


@every_module
def test_penalty(name, generator):
    layer = nalm.create(name, 3, 2)
    layer.reset_parameters(generator)
    penalty = layer.penalty()
    assert penalty.shape == ()
    assert torch.isclose(penalty, sum(layer.penalties().values(), torch.zeros(())))
    kind = RECORDS[name].penalty
    if kind == "none":
        assert penalty == 0
    elif kind == "open-gates":
        layer.set_solution_("mul")
        shut = copy.deepcopy(layer)
        shut.mu.data[:] = -2.0
        assert 0 < shut.penalty() < layer.penalty()
    else:
        assert kind == "discrete"
        assert penalty > 0.01
        layer.set_solution_(next(op for op in DISCRETE if op in layer.operations))
        assert layer.penalty().item() == pytest.approx(0, abs=1e-12)
        assert layer.sparsity_error().item() == pytest.approx(0, abs=1e-12)


@every_module
def test_eval_mode_is_deterministic(name, generator):
    layer = nalm.create(name, 3, 2).eval()
    x = inputs_for(name, (6, 3), generator)
    assert torch.equal(layer(x), layer(x))
    stochastic = bool(layer.noise)
    layer.train()
    assert torch.equal(layer(x), layer(x)) != stochastic


@every_module
def test_compiled_and_exported_layers_give_the_same_numbers(name, generator):
    layer = nalm.create(name, 3, 2).eval()
    x = inputs_for(name, (4, 3), generator)
    torch._dynamo.reset()
    compiled = torch.compile(layer, fullgraph=True)
    torch.testing.assert_close(compiled(x), layer(x), rtol=1e-5, atol=1e-6)
    exported = torch.export.export(layer, (x,)).module()
    torch.testing.assert_close(exported(x), layer(x), rtol=1e-5, atol=1e-6)


@every_module
def test_vmap_over_stacked_parameters(name, generator):
    copies = [nalm.create(name, 3, 2, dtype=torch.float64).eval() for _ in range(4)]
    parameters, buffers = stack_module_state(copies)
    x = inputs_for(name, (4, 7, 3), generator, torch.float64)
    target = torch.ones_like(copies[0](x[0]))

    def loss(parameters, x):
        return (functional_call(copies[0], (parameters, {}), (x,)) - target).square().mean()

    assert not buffers
    gradients, losses = vmap(torch.func.grad_and_value(loss))(parameters, x)
    for k, layer in enumerate(copies):
        own = (layer(x[k]) - target).square().mean()
        own.backward()
        torch.testing.assert_close(losses[k], own.detach())
        for key, p in layer.named_parameters():
            torch.testing.assert_close(gradients[key][k], p.grad if p.grad is not None else torch.zeros_like(p))


@every_module
def test_readout_gives_the_same_numbers(name, generator):
    layer = nalm.create(name, 3, 2)
    layer.reset_parameters(generator)
    shown = nalm.readout(layer, tolerance=0)
    assert shown.rounding == 0
    assert shown.residual < 1e-6
    assert len(shown) == (4 if name == "nsr" else 2)


@pytest.mark.parametrize("name", [n for n in NAMES if RECORDS[n].operations])
def test_readout_of_a_solution_is_the_operation(name):
    a, b, c = sympy.symbols("a b c", positive=None if RECORDS[name].domain == "boolean" else True)
    formulas = {
        "add": a + b,
        "sub": a - b,
        "mul": a * b,
        "div": a / b,
        "reciprocal": 1 / a,
        "square": a**2,
        "sqrt": sympy.sqrt(a),
        "identity": a,
        "and": a & b,
        "or": a | b,
        "not": ~a,
        "nand": ~a | ~b,
        "nor": ~a & ~b,
        "implies": ~a | b,
        "lt": a < b,
        "le": a <= b,
        "gt": a > b,
        "ge": a >= b,
        "eq": sympy.Eq(a, b),
        "ne": sympy.Ne(a, b),
    }
    for operation in RECORDS[name].operations:
        size = 2 if name == "product-fc" else 3
        layer = nalm.create(name, size, 1).set_solution_(operation)
        rows = torch.randint(0, 2, (50, size)) if RECORDS[name].domain == "boolean" else torch.randint(1, 5, (50, size))
        shown = nalm.readout(layer, [a, b, c][:size], inputs=rows.float())
        found = shown[0] if shown[0].is_Boolean else sympy.simplify(sympy.nsimplify(shown[0].rewrite(sympy.Abs)))
        assert found == formulas[operation], operation
        assert shown.residual < 1e-6


@every_module
def test_bad_input_is_named(name):
    layer = nalm.create(name, 3, 2)
    kind = type(layer).__name__
    with pytest.raises(ValueError, match=rf"{kind} with 3 inputs takes a tensor of shape \(\.\.\., 3\), got \(5, 4\)"):
        layer(torch.rand(5, 4))
    with pytest.raises(ValueError, match=r"got \(\)"):
        layer(torch.tensor(1.0))
    with pytest.raises(TypeError, match=r"floating-point tensor, got torch\.int64"):
        layer(torch.ones(5, 3, dtype=torch.int64))
    with pytest.raises(TypeError, match="floating-point tensor, got list"):
        layer([1.0, 2.0, 3.0])
    for sizes in [(0, 1), (1, -2)]:
        with pytest.raises(ValueError, match="must be at least 1"):
            nalm.create(name, *sizes)
    for sizes in [(1.5, 1), (2, "3"), (True, 1)]:
        with pytest.raises(TypeError, match="must be an int"):
            nalm.create(name, *sizes)
    with pytest.raises(ValueError, match=f"{name} has no option 'colour'; it takes: .*dtype"):
        nalm.create(name, 2, 1, colour="red")


@every_module
def test_not_a_number_passes_through(name):
    layer = nalm.create(name, 3, 2).eval()
    x = torch.ones(4, 3)
    x[1, 1] = torch.nan
    x[2, 2] = torch.inf
    y = layer(x).flatten(1)
    assert y[1].isnan().all()
    assert y[[0, 3]].isfinite().all()


@every_module
def test_documentation(name):
    record = RECORDS[name]
    text = inspect.getdoc(record.cls)
    for part in (".. math::", "Exact:", "Shapes:", "Reference:"):
        assert part in text, part
    assert record.label
    assert record.summary.endswith(".")
    assert record.cls.__name__ in dir(nalm)
    assert getattr(nalm, record.cls.__name__) is record.cls
    assert record.domain in ("real", "nonzero", "positive", "boolean", "integer")
    options = [key for key, p in inspect.signature(record.cls).parameters.items() if p.kind is p.KEYWORD_ONLY]
    special = set(options) - {"device", "dtype"}
    for option in special:
        assert f"{option}:" in text, f"option {option} is not documented"
    assert "=" in repr(record.build(2, 1))


def test_unknown_names_get_the_nearest_ones():
    with pytest.raises(ValueError, match=r"unknown module 'nmuu'\. Did you mean nmu or .*\? Known: nac-add, "):
        nalm.create("nmuu", 2, 1)
    with pytest.raises(ValueError, match=r"unknown module 'zzzzzz'\. Known: "):
        nalm.create("zzzzzz", 2, 1)


def test_records_cannot_be_changed():
    with pytest.raises(TypeError):
        nalm.modules()["nmu"] = None
    assert nalm.modules()["nmu"].name == "nmu"
