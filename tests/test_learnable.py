"""What cannot be learned is refused before training, with what could; what can is let through."""

import pytest

import nalm
from nalm.learnable import _enough, check_learnable
from nalm.models import model_of
from nalm.tasks import task_of


def check(name, task, operation, inputs=None, **data):
    one = task_of(task)
    check_learnable(name, model_of(name).parts, one, operation, inputs or one.inputs, data)


@pytest.mark.parametrize(
    ("name", "task", "operation", "words"),
    [
        ("nmu", "arithmetic-dataset", "mul", "one layer of nmu cannot express mul as arithmetic-dataset asks it.*use nau.nmu"),
        ("nmu", "large-scale", "mul", "use nau.nmu"),
        ("nru", "function4", "div", "use nau.real-npu"),
        ("nau", "arithmetic-dataset", "add", "use nau.nau"),  # inputs of both operands count twice
        ("nau+nau", "arithmetic-dataset", "mul", r"nau\+nau cannot express mul; use nau\+nmu"),
        ("nau+nmu", "arithmetic-dataset", "div", r"nau\+nmu cannot express div; use nau\+real-npu"),
        ("nalu", "arithmetic-dataset", "sqrt", "one layer of nalu"),
        ("nmu", "two-step", "add-mul", "nmu cannot express add-mul"),
        ("gated-nau-nmu", "two-step", "add-mul", r"one layer of gated-nau-nmu.*use nau\+nmu"),
        ("nau+nmu", "two-step", "mul-div", r"use real-npu\+real-npu"),
        ("nmu+nmu", "arithmetic-dataset", "mul", r"nmu\+nmu cannot express mul as arithmetic-dataset asks it; use nau\+nmu"),
        ("nmu+nau", "arithmetic-dataset", "mul", r"use nau\+nmu"),  # the sums come too late
        ("nmu+nau", "two-step", "add-mul", r"use nau\+nmu"),
        ("nau+nmu", "two-step", "mul-add", r"use nmu\+nau"),
        ("nmu", "arithmetic-dataset", "identity", r"use nau\+nau"),
        ("nmu+nmu", "arithmetic-dataset", "identity", r"use nau\+nau"),
        ("nau+nmu", "arithmetic-dataset", "add", r"use nau\+nau"),
        ("nau", "single-module", "mul", "nau cannot express mul; it can express: add, sub, identity"),
    ],
)
def test_what_cannot_be_learned_is_refused_with_what_could(name, task, operation, words):
    with pytest.raises(ValueError, match=words) as error:
        check(name, task, operation)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "task", "operation", "data"),
    [
        ("nau+nmu", "arithmetic-dataset", "mul", {}),
        ("nau+nmu", "arithmetic-dataset", "square", {}),
        ("nau", "arithmetic-dataset", "sub", {}),
        ("nau", "arithmetic-dataset", "add", {"overlap": 0.0}),
        ("quadratic", "arithmetic-dataset", "mul", {}),
        ("relu-mlp", "two-step", "mul-div", {}),
        ("nau", "two-step", "add-sub", {}),
        ("nru", "two-step", "mul-div", {}),
        ("nau/nmu+nau/nmu", "two-step", "add-mul", {}),
        ("recurrent:nau:nmu", "two-step", "mul-add", {}),
        ("recurrent:frozen", "two-step", "mul-div", {}),
        ("nau/nmu", "single-module", "mul", {}),
        ("nau+nmu", "arithmetic-dataset", "identity", {}),
        ("nau", "arithmetic-dataset", "identity", {}),
        ("nmu", "single-module", "identity", {}),
        ("nmu+nau+nmu", "two-step", "add-mul", {}),
        ("nmu+nmu", "two-step", "mul-mul", {}),
        ("nau+nmu", "two-step", "add-sub", {}),
        ("nlrl", "logic", "nand", {"operands": 3}),
        ("nlrl+nlrl", "logic", "xor", {}),
        ("nsr", "comparison", "eq", {}),
    ],
)
def test_what_can_be_learned_is_let_through(name, task, operation, data):
    check(name, task, operation, **data)


def test_every_network_that_is_advised_is_let_through():
    for task in ("arithmetic-dataset", "two-step"):
        for operation in task_of(task).operations:
            check(_enough(operation), task, operation)


def test_the_benchmark_refuses_too():
    with pytest.raises(ValueError, match=r"use nau\+nmu"):
        nalm.benchmark("nmu", "arithmetic-dataset", ranges=["U[1,2)"], seeds=1)
