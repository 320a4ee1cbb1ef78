"""Differential equations: solver, gradients, fits, bad input, studies."""

import json
import math
import signal
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import sympy as sp
import torch
from scipy.integrate import solve_ivp

from nalm import reproduction
from nalm.dynamics import SYSTEMS, BlowUpError, fit_ode, integrate, read_trajectories
from nalm.dynamics.comparison import sindy
from nalm.dynamics.descent import Descent, Run, train, train_all
from nalm.dynamics.evidence import _goes_on
from nalm.dynamics.laws import Judge, LawSystem, shortened
from nalm.dynamics.problems import Problem, build, parameters_of
from nalm.dynamics.record import keep_run, kept_runs
from nalm.dynamics.studies import _measured, _trained, front, questions, transmission
from nalm.experiments import parse

SHORT = {"steps": 30, "restarts": 2, "hidden": 2}


def other_solver(system, points=None, start=None):
    """Data that nalm's own solver has no part in."""
    slope = sp.lambdify([sp.Symbol(name, real=True) for name in system.names], list(system.equations.values()))
    times = np.linspace(0, system.end, points or system.points)
    solved = solve_ivp(lambda _, u: slope(*u), times[[0, -1]], start or system.start, "DOP853", times, rtol=1e-11, atol=1e-11)
    return times, solved.y.T


@pytest.mark.parametrize(
    ("name", "closed_form"),
    [("logistic", lambda t: 50 / (1 + 24 * np.exp(-0.8 * t))), ("cooling", lambda t: 20 + 70 * np.exp(-0.1 * t))],
)
def test_the_solver_follows_closed_forms(name, closed_form):
    times, states = SYSTEMS[name].sample()
    np.testing.assert_allclose(states[:, 0], closed_form(times), rtol=1e-7)


def test_the_fractional_sir_model_is_that_of_the_paper():
    times, states = SYSTEMS["fsir"].sample()
    assert (len(times), times[-1], *states[0]) == (40, 200, 100, 0.01, 0)
    np.testing.assert_allclose(states.sum(1), 100.01, rtol=1e-9)
    np.testing.assert_allclose(states, other_solver(SYSTEMS["fsir"])[1], rtol=1e-6, atol=1e-6)


def test_solutions_that_blow_up_say_when():
    module = SYSTEMS["logistic"].module()
    with torch.no_grad():
        module[1].weight[:] = torch.where(module[0].real[:, 0] == 2, 1.0, 0.0)  # dP/dt = P**2, infinite at 1 / P(0)
    with pytest.raises(BlowUpError, match=r"cannot be followed beyond t = (0\.99|1)"):
        integrate(module, [1.0], [0.0, 0.5, 2.0])


def torch_loss(network, data, lengths, counts):
    """Runge and Kutta's steps of fourth order, with autograd."""
    states, total, k = torch.from_numpy(data.states), torch.zeros((), dtype=torch.float64), 0
    for row, count in enumerate(counts):
        if count == 0:
            now = states[row]
        for _ in range(count):
            h = lengths[k]
            a = network(now)
            b = network(now + h / 2 * a)
            c = network(now + h / 2 * b)
            now = now + h / 6 * (a + 2 * b + 2 * c + network(now + h * c))
            k += 1
        total = total + (now - states[row]).square().sum()
    return total / states.numel()


@pytest.mark.parametrize("family", ["real-npu", "npu", "dense"])
def test_compiled_loss_and_gradient_are_those_of_the_torch_module(family):
    rng = np.random.default_rng(0)
    times = np.array([0.0, 0.5, 0.7, 1.5])
    data = read_trajectories([times, times], [rng.normal(size=(4, 2)), rng.normal(size=(4, 2))])
    problem = Problem(data, family, 3, substeps=2, first=2)
    theta = parameters_of(build(family, 2, 3)) + rng.normal(0, 0.2, problem.size)
    network = problem.module(theta)
    expected = torch_loss(network, data, *data.grid(2, 2))
    expected.backward()
    gradient = torch.cat([p.grad.ravel() for p in network.parameters()]).numpy()
    assert problem.loss(theta) == pytest.approx(expected.item(), rel=1e-12)
    np.testing.assert_allclose(problem.gradient, gradient, rtol=1e-9, atol=1e-11)


@pytest.fixture(scope="module")
def cooling():
    return read_trajectories(*SYSTEMS["cooling"].sample(12), ["T"])


def test_runs_do_not_depend_on_each_other(cooling):
    how = Descent("real-npu", 2, 0.1, steps=40, polish=20)
    together = train_all(cooling, [(how, seed) for seed in range(3)])
    np.testing.assert_array_equal(train(cooling, how, 2).theta, together[2].theta)
    assert not np.array_equal(together[0].theta, together[2].theta)


def test_a_strong_l1_norm_sets_parameters_to_zero_exactly(cooling):
    weak, strong = (train(cooling, Descent("npu", 4, l1, steps=50, polish=200), 0) for l1 in (0.0, 100.0))
    assert (strong.theta == 0).sum() > len(strong.theta) // 2
    assert (weak.theta == 0).sum() <= 4
    assert strong.parameters < weak.parameters


def test_descent_makes_the_loss_smaller(cooling):
    errors = [train(cooling, Descent("dense", 4, 0.0, name, steps=steps, polish=0), 0).error
              for name in ("adam", "rmsprop") for steps in (1, 200)]  # fmt: skip
    assert errors[1] < errors[0]
    assert errors[3] < errors[2]


def test_equal_products_are_joined_and_idle_ones_go():
    system = LawSystem(np.array([[1.0], [1.0], [2.0]]), np.array([[1.0, 2.0, 0.0]]), np.zeros((3, 1), bool)).tidy()
    assert (system.exponents.tolist(), system.coefficients.tolist()) == ([[1.0]], [[3.0]])
    assert system.complexity == 3


def test_pruning_drops_what_does_not_help_and_keeps_the_rest():
    data = read_trajectories(*SYSTEMS["logistic"].sample(), ["P"])
    system = LawSystem(
        np.array([[0.98], [2.03], [0.0], [-1.0]]),
        np.array([[0.81, -0.0155, 0.01, 0.02]]),
        np.array([[True], [True], [False], [False]]),
    )
    judge = Judge(data)
    short = shortened(judge, system)
    terms = {float(e): float(c) for e, c in zip(short.exponents[:, 0], short.coefficients[0], strict=True)}
    assert terms == {1.0: pytest.approx(0.8, rel=1e-5), 2.0: pytest.approx(-0.016, rel=1e-5)}
    assert judge.error(short) < 1e-6


@pytest.mark.parametrize("name", ["logistic", "cooling", "lotka-volterra", "fsir"])
def test_laws_are_read_off_data(name):
    system = SYSTEMS[name]
    fit = fit_ode(*other_solver(system), names=system.names)
    assert (fit.found, fit.status) == (True, "ok")
    for state, true in system.equations.items():
        mine, theirs = fit.equations[state].as_coefficients_dict(), true.as_coefficients_dict()
        assert set(map(str, mine)) == set(map(str, theirs)), "exactly the right terms"
        by_name = {str(term): float(value) for term, value in theirs.items()}
        for term, value in mine.items():
            assert float(value) == pytest.approx(by_name[str(term)], rel=0.02)
    later, truth = system.sample(40, 1.5 * system.end)
    gap = np.abs(fit.predict(later) - truth) / np.ptp(truth, axis=0)
    assert gap.max() < 0.05
    rows = torch.from_numpy(truth[1:])
    values = sp.lambdify([sp.Symbol(n, real=True) for n in system.names], list(fit.equations.values()))(*truth[1:].T)
    np.testing.assert_allclose(fit.module(rows).detach().numpy(), np.stack(values, 1), rtol=1e-9, atol=1e-9)


def test_several_trajectories_of_a_data_frame_with_noise():
    system = SYSTEMS["logistic"]
    rng = np.random.default_rng(1)
    tables = [system.sample(30, start=[start]) for start in (2.0, 80.0)]
    noisy = [pd.DataFrame(states + rng.normal(0, 0.2, states.shape), columns=["P"]) for _, states in tables]
    fit = fit_ode([times for times, _ in tables], noisy)
    assert str(fit).startswith("dP/dt = ")
    assert set(map(str, fit.equations["P"].as_coefficients_dict())) == {"P", "P**2"}
    assert 0.1 < math.sqrt(fit.error) < 0.3
    assert fit.starts[1, 0] == pytest.approx(80, abs=0.6)


def test_random_numbers_are_no_law():
    rng = np.random.default_rng(0)
    assert not fit_ode(np.arange(30.0), rng.uniform(1, 2, (30, 1)), restarts=2).found


def test_what_a_fit_tells(cooling, tmp_path):
    times, states = cooling.pieces[0]
    fit = fit_ode(times, states, names=["T"])
    assert str(fit.system()[0]) == "Eq(Derivative(T(t), t), 2 - 0.1*T(t))"
    assert fit.latex() == r"\frac{d T}{d t} = 2 - 0.1 T"
    assert fit.to_json()["equations"] == {"T": "2 - 0.1*T"}
    assert fit.relative_error < 1e-6
    assert fit.predict([0.0])[0, 0] == 90
    np.testing.assert_allclose(fit.predict([0.0, 10.0], start=[20.0])[:, 0], 20, rtol=1e-7)
    np.testing.assert_allclose(fit.predict([10.0, 100.0])[:, 0], 20 + 70 * np.exp([-1.0, -10.0]), rtol=1e-6)
    fit.figure(until=60).savefig(tmp_path / "cooling.png")
    for wrong, message in ((([1.0, 0.5],), "ascending"), (([-1.0],), "before the data"), (([0.0, 1.0], [1, 2]), "one a state")):
        with pytest.raises(ValueError, match=message):
            fit.predict(*wrong)


def test_descent_with_each_model(cooling):
    times, states = cooling.pieces[0]
    for model in ("real-npu", "npu", "dense"):
        fit = fit_ode(times, states, model, l1=0.01, names=["T"], **SHORT)
        assert (fit.method, fit.model, len(fit.runs)) == ("descent", model, 2)
        assert fit.module(torch.ones(5, 1, dtype=torch.float64)).shape == (5, 1)
        assert bool(fit.equations) == (model != "dense")
    assert "no formula" in str(fit)


def test_a_run_that_blows_up_is_recorded_with_its_last_good_parameters():
    times, states = SYSTEMS["fsir"].sample()
    how = Descent("npu", 6, 0.1, learning_rate=0.1, steps=200)
    run = train(read_trajectories(times, states), how, 0)
    assert run.status == "diverged"
    assert 1 <= run.steps < 200
    assert np.isfinite(run.theta).all()
    assert np.isfinite(run.error)
    fit = fit_ode(times, states, "npu", learning_rate=0.1, steps=200, restarts=1)
    assert fit.status == "diverged"
    assert not fit.found
    assert "last good ones" in fit.message
    assert fit.runs[0]["status"] == "diverged"


GOOD = np.arange(6.0), np.ones((6, 2))


@pytest.mark.parametrize(
    ("times", "states", "options", "message"),
    [
        ([0, 1, 3, 2, 4, 5], GOOD[1], {}, "times must ascend: 2 in row 4 is smaller than the one before"),
        ([0, 1, 1, 2, 4, 5], GOOD[1], {}, "1 in row 3 comes twice"),
        ([0, 1, np.nan, 2, 4, 5], GOOD[1], {}, "1 rows have a time that is missing or infinite, the first is row 3"),
        (GOOD[0], np.where(np.arange(12).reshape(6, 2) == 3, np.inf, 1), {}, "a state that is missing or infinite"),
        (GOOD[0], [["a", "b"]] * 6, {}, "states must be numbers"),
        (GOOD[0], pd.DataFrame({"S": [1] * 6, "I": ["x"] * 6}), {}, "values of 'I' must be numbers"),
        (GOOD[0], np.ones((5, 2)), {}, "6 times but 5 rows"),
        ([0, 1, 2], np.ones((3, 2)), {}, "at least 4 rows, got 3"),
        (GOOD[0][:, None], GOOD[1], {}, "times must be one column"),
        (GOOD[0], np.ones((6, 2, 2)), {}, r"shape \(rows, states\)"),
        ([GOOD[0]], [GOOD[1], GOOD[1]], {}, "1 series of times but 2 trajectories"),
        (GOOD[0], [GOOD[1], np.ones((6, 3))], {}, "the same states, got 2, 3 columns"),
        (*GOOD, {"names": ["a"]}, "2 different names"),
        (*GOOD, {"names": ["a", "t"]}, "'t' is the name of the time and of a state"),
        (*GOOD, {"model": "nau"}, "unknown model 'nau'; there are: real-npu, npu, dense"),
        (*GOOD, {"method": "magic"}, "unknown method 'magic'"),
        (*GOOD, {"method": "search", "l1": 1.0}, "belong to method descent"),
        (*GOOD, {"restarts": 0}, "restarts must be at least 1, got 0"),
        (*GOOD, {"hidden": 0}, "hidden must be at least 1, got 0"),
        (*GOOD, {"l1": -1.0}, "l1 must be at least 0, got -1"),
        (*GOOD, {"optimiser": "sgd"}, "unknown optimiser 'sgd'"),
    ],
)
def test_bad_input_is_refused(times, states, options, message):
    with pytest.raises(ValueError, match=message):
        fit_ode(times, states, **options)


def command(*arguments):
    return subprocess.run([sys.executable, "-m", "nalm", "discover", *arguments], capture_output=True, text=True)


def test_discover_with_a_column_of_times(tmp_path):
    times, states = SYSTEMS["cooling"].sample(20)
    table = pd.DataFrame({"minutes": times, "T": states[:, 0], "who": "me"})
    table.to_csv(tmp_path / "tea.csv", index=False)
    done = command(str(tmp_path / "tea.csv"), "--time", "minutes", "--plot", str(tmp_path / "tea.png"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("dT/dminutes = 2 - 0.1*T\n")
    assert "- column who is not made of numbers and was left out" in done.stdout
    assert (tmp_path / "tea.png").stat().st_size > 1_000
    table.iloc[::-1].to_csv(tmp_path / "back.csv", index=False)
    for arguments, message in (
        (["back.csv", "--time", "minutes"], "times must ascend"),
        (["tea.csv", "--time", "hours"], "no column 'hours'; there are: minutes, T, who"),
        (["tea.csv", "--time", "minutes", "--features", "who"], "holds text"),
        (["tea.csv"], "give either --target"),
    ):
        failed = command(str(tmp_path / arguments[0]), *arguments[1:])
        assert (failed.returncode, failed.stdout) == (2, "")
        assert message in failed.stderr


TINY_STUDY = """
id = "{name}"
title = "A small study"
source = "a test"
kind = "dynamics"
compute = "{compute}"

[settings]
task = "dynamics"
series = {series}
hidden = [3]
l1 = [0.0, 1.0]
runs = 2
steps = 60
polish = 30

[published]
claims = [{{ id = "X1", key = "{key}", metric = "error", relation = ">", value = 0 }}]
"""


def test_a_small_grid_from_start_to_files_and_again_after_a_kill(monkeypatch, tmp_path):
    text = TINY_STUDY.format(name="X:fig4", compute="ode_grid", series=["npu", "dense"], key="npu/median")
    monkeypatch.setattr(reproduction, "load", lambda identity: parse(text, "tiny"))
    report = reproduction.reproduce("X:fig4", "paper", out=tmp_path)
    folder = tmp_path / "X-fig4"
    assert {"report.json", "runs.jsonl", "table.csv", "figure.png"} <= {path.name for path in folder.iterdir()}
    assert [line["runs"] for line in report.table] == [2, 2, 2, 2, 1, 1, 1]
    assert report.table[-1]["equations"].startswith("dS/dt = -0.06*sqrt(I)*sqrt(S) + 0.01*R")
    assert report.counts()["agree"] == 1
    kept = (folder / "runs.jsonl").read_text().splitlines()
    assert len(kept) == 8
    (folder / "runs.jsonl").write_text("\n".join([*kept[:6], kept[6][:40]]) + "\n")
    assert reproduction.reproduce("X:fig4", "paper", out=tmp_path).table == report.table
    assert len(kept_runs(folder / "runs.jsonl")) == 8
    assert len((folder / "runs.jsonl").read_text().splitlines()) == 9, "two were trained anew, beside the torn line"
    with pytest.raises(ValueError, match="has no series 'nau' in this budget; it has: npu, dense"):
        reproduction.reproduce("X:fig4", "paper", series=["nau"])


def run_number(number):
    return Run(np.array([0.1 * number, math.pi]), 0.5, 0.25, "ok", 60, seed=number)


def test_the_record_of_runs_survives_a_torn_line(tmp_path, caplog):
    path = tmp_path / "runs.jsonl"
    for number in range(3):
        keep_run(path, str(number), run_number(number))
    path.write_bytes(path.read_bytes()[:-30])
    keep_run(path, "3", run_number(3))
    kept = kept_runs(path)
    assert list(kept) == ["0", "1", "3"]
    assert kept["3"].theta.tolist() == run_number(3).theta.tolist()
    assert "1 damaged lines were left out" in caplog.text


def test_no_damage_to_the_record_of_runs_changes_a_run(tmp_path):
    rng = np.random.default_rng(0)
    path = tmp_path / "runs.jsonl"
    keep_run(path, "one", run_number(1))
    whole = path.read_bytes()
    for text in (b"5", b"[]", b'{"key": "one"}', b'{"checksum": 1}', b"\xff\xfe", b"[" * 100_000, b"null"):
        path.write_bytes(text + b"\n")
        assert kept_runs(path) == {}
    for bit in rng.integers(0, 8 * len(whole), 100):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(bytes(damaged))
        kept = kept_runs(path)
        assert not kept or (list(kept) == ["one"] and kept["one"].theta.tolist() == run_number(1).theta.tolist()), bit


KILLED = """
import sys
from pathlib import Path
from nalm.dynamics import studies
settings = dict(series=["npu"], hidden=[2], l1=[0.0], runs=4000, steps=2, polish=0)
asked = studies.questions(settings)
print("ready", flush=True)
studies._trained(studies._measured(), asked, Path(sys.argv[1]), lambda share: print(share, flush=True))
"""


def test_a_study_that_is_killed_goes_on_with_the_same_runs(tmp_path):
    asked = questions({"series": ["npu"], "hidden": [2], "l1": [0.0], "runs": 8, "steps": 2, "polish": 0})
    with subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path)], stdout=subprocess.PIPE, text=True) as process:
        said = [process.stdout.readline() for _ in range(4)]
        process.kill()
    assert (said[0], process.returncode) == ("ready\n", -signal.SIGKILL)
    kept = kept_runs(tmp_path / "runs.jsonl")
    assert kept
    resumed = _trained(_measured(), asked, tmp_path, lambda share: None)
    fresh = _trained(_measured(), asked, None, lambda share: None)
    for one, other in zip(resumed, fresh, strict=True):
        assert (one.theta.tolist(), one.loss, one.seed) == (other.theta.tolist(), other.loss, other.seed)


def test_a_small_study_of_the_best_network(monkeypatch, tmp_path):
    text = TINY_STUDY.format(name="X:fig5", compute="ode_best", series=["real-npu"], key="trained error")
    monkeypatch.setattr(reproduction, "load", lambda identity: parse(text, "tiny"))
    report = reproduction.reproduce("X:fig5", "paper", out=tmp_path)
    assert report.table[0]["quantity"] == "kappa"
    assert json.loads((tmp_path / "X-fig5" / "report.json").read_text())["agree"] == 1


def test_fronts_and_transmission_terms():
    assert front([(3, 1.0), (2, 5.0), (3, 0.5), (4, 0.6), (9, math.inf)]) == [(2, 5.0), (3, 0.5)]
    exponents = np.array([[0.0, 1.0, 0.0], [0.4, 0.6, 0.0], [0.0, 0.0, 0.9]])
    coefficients = np.array([[0.0, -0.07, 0.02], [-0.05, 0.05, 0.0], [0.05, 0.0, -0.01]])
    reading = transmission(exponents, coefficients)
    assert reading == pytest.approx((0.4, 0.6, 0.06, 0.05, 0.01, 0.9))
    assert math.isnan(transmission(exponents, np.abs(coefficients)).kappa)


def test_sindy_has_the_same_data_and_is_asked_for_by_name(monkeypatch):
    times, states = SYSTEMS["cooling"].sample()
    found = sindy(times, states, ["T"], 1e-3)
    assert (found.parameters, found.error < 1e-2) == (2, True)
    monkeypatch.setitem(sys.modules, "pysindy", None)
    with pytest.raises(ImportError, match=r"pip install 'nalm\[compare\]'"):
        sindy(times, states, ["T"])


def test_what_is_left_over_is_compared_with_polynomials_of_time_and_not_of_the_row():
    late = np.cos(np.pi * np.arange(4, -1, -1) / 5)
    times = np.concatenate([np.linspace(-1, -0.98, 35), late])  # most rows lie at the start
    left = 3 * (1 + times) * np.cos(5 * np.arccos(times)) + 0.1 * np.random.default_rng(0).normal(size=40)
    assert _goes_on(times, left)
    assert not _goes_on(np.arange(40.0), left)
