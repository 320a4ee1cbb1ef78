"""Whoever computes long is told how far it is, and that it compiles."""

import inspect

import numpy as np
import pytest

import nalm
from nalm.progress import following

FAST = {"iterations": 20, "log_interval": 10, "evaluation_rows": 20, "ranges": ["U[1,2)"], "seeds": 2}


class Recorder:
    """Writes down what it is told."""

    def __init__(self):
        self.heard = []

    def start(self, total, what):
        self.heard.append((total, what))

    def advance(self, amount):
        self.heard.append(amount)

    def say(self, text):
        self.heard.append(text)


class Older:
    """An object that is not told what is being done."""

    def __init__(self):
        self.done = 0

    def start(self, total, what):
        self.total = total

    def advance(self, amount):
        self.done += amount


def test_the_benchmark_says_that_it_compiles():
    heard = Recorder()
    nalm.benchmark("nau", operation="add", progress=heard, **FAST)
    assert heard.heard == [(2, "runs"), "compiling nau", "", 1, 1]


def test_objects_need_not_be_told_what_is_being_done():
    shown = Older()
    nalm.benchmark("nau", operation="add", progress=shown, **FAST)
    assert (shown.total, shown.done) == (2, 2)


def test_true_shows_a_bar(capsys):
    nalm.benchmark("nau", operation="add", progress=True, **FAST)
    shown = capsys.readouterr()
    assert "runs" in shown.err
    assert "2/2" in shown.err
    assert shown.out == ""


@pytest.mark.parametrize("nothing", [None, False])
def test_nothing_is_shown_unless_asked_for(nothing, capsys):
    with following(nothing) as shown:
        shown.start(3, "runs")
        shown.say("compiling")
        shown.advance(1)
    assert capsys.readouterr().err == ""


def test_what_is_no_progress_is_refused():
    with pytest.raises(TypeError, match=r"progress must be True, or an object with start\(total, what\) and advance"):
        nalm.benchmark("nau", operation="add", progress="yes", **FAST)


def test_equations_of_motion_show_progress_too():
    shown, t = Older(), np.linspace(0, 5, 30)
    nalm.fit_ode(t, 20 + 70 * np.exp(-0.5 * t), names=["T"], progress=shown)
    assert (shown.total, shown.done) == (1, 1)
    assert inspect.signature(nalm.reproduce).parameters["progress"].default is None


def test_the_default_budget_is_quick_everywhere():
    assert inspect.signature(nalm.reproduce).parameters["budget"].default == "quick"
