"""How often `NALMRegressor` finds the right law, beside gplearn and pyoperon where they are installed.

    python benchmarks/discovery.py                            the sixteen two-step expressions, and noise
    python benchmarks/discovery.py --feynman expressions.yaml the arithmetic laws of the Feynman set too
    python benchmarks/discovery.py --feynman ... --others     the other programs too, with their defaults and the same time

The Feynman file lists each law as text (`prepared`) with the range of every variable, as in the SRSD data sets. A law is right
if it gives the true values, to a millionth, at new points of the listed ranges; with noise, if its exponents are right, or, of
a sum, if its values far outside the range are.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import sympy as sp
import yaml

from nalm import NALMRegressor

if TYPE_CHECKING:
    from collections.abc import Callable

ROWS, LIMIT = 1_000, 10.0
OPERATIONS = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: -a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: 1 / (a * b),
}
RIGHT = 1e-6
FAR, CLOSE = 5.0, 0.02
"""A sum that was found in noise is right if its values at inputs so many times as large are this close to the true ones."""
NO_LAWS = {
    "exp(a)": lambda a, b, c: np.exp(a),
    "exp(-a) + b": lambda a, b, c: np.exp(-a) + b,
    "exp(-a b) c": lambda a, b, c: np.exp(-a * b) * c,
    "log(a) b": lambda a, b, c: np.log(a) * b,
    "log(a + b)": lambda a, b, c: np.log(a + b),
    "sin(3 a) b": lambda a, b, c: np.sin(3 * a) * b,
    "cos(a + b) + c": lambda a, b, c: np.cos(a + b) + c,
    "tanh(a) b": lambda a, b, c: np.tanh(a) * b,
    "1 / (1 + exp(-a)) + b": lambda a, b, c: 1 / (1 + np.exp(-a)) + b,
    "max(a, b)": lambda a, b, c: np.maximum(a, b),
    "|a - b| c": lambda a, b, c: np.abs(a - b) * c,
    "a ** b": lambda a, b, c: a**b,
}
"""Functions that no sum, product, quotient or constant power says."""


class Law(NamedTuple):
    """A known law and the ranges of its variables."""

    name: str
    expression: sp.Expr
    variables: list[dict[str, Any]]

    @property
    def single(self) -> bool:
        """Whether it is one product of powers."""
        return not sp.factor(self.expression).has(sp.Add)

    def exponents(self) -> dict[str, sp.Expr]:
        """Of a single product."""
        powers = sp.powdenest(sp.factor(self.expression), force=True).as_powers_dict()
        return {str(base): power for base, power in powers.items() if not base.is_number}

    def rows(self, rng: np.random.Generator, rows: int = ROWS) -> tuple[np.ndarray, np.ndarray]:
        """Inputs from the listed ranges, and the law's values; rows where it has none are left out."""
        x = np.stack([_column(one, rows, rng) for one in self.variables], 1)
        y = self.values(x)
        return x[np.isfinite(y)], y[np.isfinite(y)]

    def values(self, x: np.ndarray) -> np.ndarray:
        """Of the law for each row."""
        truth = sp.lambdify([sp.Symbol(one["name"], positive=True) for one in self.variables], self.expression, "numpy")
        with np.errstate(all="ignore"):
            return np.asarray(truth(*x.T), float) * np.ones(len(x))


def _column(variable: dict[str, Any], rows: int, rng: np.random.Generator) -> np.ndarray:
    low, high = (float(end) for end in variable["range"])
    if variable["kind"] == "log":
        column = np.exp(rng.uniform(np.log(abs(low)), np.log(abs(high)), rows))
    elif variable["kind"] == "int":
        column = rng.integers(int(low), int(high) + 1, rows).astype(float)
    else:
        column = rng.uniform(low, high, rows)
    return column * rng.choice([-1, 1], rows) if variable["signs"] == "pos_neg" else column


def sixteen() -> list[Law]:
    """The thesis' two-step expressions of a, b and c; d is irrelevant."""
    a, b, c = (sp.Symbol(name, positive=True) for name in "abc")
    variables = [{"name": name, "range": (1, 2), "kind": "uniform", "signs": "pos"} for name in "abcd"]
    return [
        Law(f"{one}-{two}", sp.sympify(second(first(a, b), c)), variables)
        for one, first in OPERATIONS.items()
        for two, second in OPERATIONS.items()
    ]


def feynman(path: str) -> list[Law]:
    """The laws of the set that sums, products, quotients and constant powers can say."""
    laws = []
    with open(path, encoding="utf-8") as file:
        listed = yaml.safe_load(file)
    for name, entry in listed.items():
        names = [variable for variable in entry["vars"] if variable != "v0"]
        known = {variable: sp.Symbol(variable, positive=True) for variable in entry["vars"]}
        expression = sp.sympify(entry["prepared"].replace("^", "**"), locals={**known, "neg": lambda x: -x})
        powers = expression.atoms(sp.Pow)
        if expression.atoms(sp.Function) or any(not power.exp.is_number for power in powers):
            continue
        variables = []
        for variable in names:
            (low, high), (kind, signs) = (entry["vars"][variable][key][:2] for key in ("sample_range", "sample_type"))
            variables.append({"name": variable, "range": (low, high), "kind": kind, "signs": signs})
        laws.append(Law(name, expression, variables))
    return laws


def nalm_finds(law: Law, noise: float, extra: int) -> tuple[bool, float, str]:
    """Whether the regressor finds a law, the seconds it took, and its formula."""
    rng = np.random.default_rng(1)
    x, y = law.rows(rng)
    noisy = y * (1 + noise * rng.normal(size=len(y)))
    x = np.column_stack([x, rng.uniform(1, 2, (len(x), extra))])
    began = time.perf_counter()
    model = NALMRegressor(random_state=0).fit(x, noisy)
    seconds = time.perf_counter() - began
    if noise and not law.single:
        right = _same(model.predict(FAR * x), law.values(FAR * x), CLOSE)
    elif noise:
        names = [*(one["name"] for one in law.variables), *(f"extra{i}" for i in range(extra))]
        found = model.law_
        powers = [e * found.power + (i in found.before) for i, e in enumerate(found.terms[0].exponents)]
        exponents = {name: sp.Rational(str(power)) for name, power in zip(names, powers, strict=True) if power}
        right = len(found.parts) == 1 and exponents == law.exponents()
    else:
        fresh, truth = law.rows(np.random.default_rng(2), 200)
        fresh = np.column_stack([fresh, np.full((len(fresh), extra), 1.5)])
        right = _same(model.predict(fresh), truth)
    return bool(right and model.found_), seconds, str(model.formula_)


def _same(values: np.ndarray, truth: np.ndarray, share: float = RIGHT) -> bool:
    with np.errstate(all="ignore"):
        return bool(np.median(np.abs(values - truth) / np.maximum(np.abs(truth), 1e-300)) < share)


def other_finds(program: str, x: np.ndarray, y: np.ndarray, fresh: np.ndarray, truth: np.ndarray) -> bool | None:
    """Whether another program gives the true values within the time limit; None where it is not installed."""
    document = json.dumps({"program": program, "arrays": [one.tolist() for one in (x, y, fresh)]})
    try:
        done = subprocess.run(
            [sys.executable, __file__, "--other"],
            input=document,
            capture_output=True,
            text=True,
            timeout=LIMIT + 15,
            check=True,
        )
    except subprocess.TimeoutExpired:
        return False
    except subprocess.CalledProcessError as error:
        said = [f"it ended with {error.returncode}", *error.stderr.strip().splitlines()][-1]
        if "ModuleNotFoundError" in said:
            return None
        if any(word in said for word in ("infinity", "overflow", "NaN")):  # the search itself went astray
            return False
        raise RuntimeError(f"{program} could not be run: {said}") from None
    answer = json.loads(done.stdout)
    return answer["seconds"] <= LIMIT + 1 and _same(np.array(answer["values"], float), truth)


def _other() -> None:
    """Fit another program to what standard input says, in a process of its own."""
    document = json.loads(sys.stdin.read())
    x, y, fresh = (np.array(one) for one in document["arrays"])
    if document["program"] == "gplearn":
        from gplearn.genetic import SymbolicRegressor

        model: Any = SymbolicRegressor(random_state=0)
    else:
        from pyoperon.sklearn import SymbolicRegressor

        model = SymbolicRegressor(random_state=0, max_time=int(LIMIT))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        began = time.perf_counter()
        model.fit(x, y)
        seconds = time.perf_counter() - began
        values = np.asarray(model.predict(fresh), float)
    sys.stdout.write(json.dumps({"seconds": seconds, "values": np.nan_to_num(values).tolist()}))


def run(title: str, laws: list[Law], noise: float = 0.0, extra: int = 0, others: bool = False, verbose: bool = False) -> None:
    """Print how many of the laws each program finds."""
    right, slowest, missed = 0, 0.0, []
    for law in laws:
        found, seconds, formula = nalm_finds(law, noise, extra)
        slowest = max(slowest, seconds)
        in_time = found and seconds <= LIMIT
        right += in_time
        if not in_time:
            missed.append(f"    {law.name}: {law.expression} -> {formula[:90]} ({seconds:.1f} s)")
    line = f"{title}: nalm {right} of {len(laws)}, at most {slowest:.1f} s each"
    for program in ("gplearn", "pyoperon") if others else ():
        answers = []
        for law in laws:
            x, y = law.rows(np.random.default_rng(1))
            fresh, truth = law.rows(np.random.default_rng(2), 200)
            answers.append(other_finds(program, x, y, fresh, truth))
            if answers[-1] is None:
                break
        line += f"; {program} " + ("is not installed" if None in answers else f"{sum(map(bool, answers))} of {len(laws)}")
    print(line, flush=True)
    if verbose and missed:
        print("\n".join(missed), flush=True)


def _claims_a_law(function: Callable[..., np.ndarray], noise: float) -> bool:
    rng = np.random.default_rng(4)
    x = rng.uniform(1, 2, (ROWS, 4))
    y = function(*x[:, :3].T) * (1 + noise * rng.normal(size=ROWS))
    return bool(NALMRegressor(random_state=0).fit(x, y).found_)


def main() -> None:
    """Run everything that was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--feynman", help="file of expressions and ranges")
    parser.add_argument("--others", action="store_true", help="run gplearn and pyoperon too")
    parser.add_argument("--verbose", action="store_true", help="show what was missed")
    parser.add_argument("--other", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.other:
        _other()
        return
    options = {"others": arguments.others, "verbose": arguments.verbose}
    NALMRegressor(random_state=0).fit(np.random.default_rng(0).uniform(1, 2, (50, 2)), np.arange(50.0))  # compile
    run("sixteen two-step expressions", sixteen(), **options)
    run("sixteen two-step expressions, relative noise 0.01", sixteen(), noise=0.01, verbose=arguments.verbose)
    rng = np.random.default_rng(3)
    claimed = sum(
        NALMRegressor(random_state=0).fit(rng.uniform(1, 2, (ROWS, 4)), rng.normal(size=ROWS)).found_ for _ in range(20)
    )
    print(f"a column of pure noise: a law is claimed for {claimed} of 20")
    for noise in (0.0, 0.01):
        wrong = [name for name, function in NO_LAWS.items() if _claims_a_law(function, noise)]
        print(f"functions that are no such law, relative noise {noise}: a law is claimed for {len(wrong)} of {len(NO_LAWS)}")
        if arguments.verbose and wrong:
            print(f"    {'; '.join(wrong)}")
    if arguments.feynman:
        laws = feynman(arguments.feynman)
        products, rest = [law for law in laws if law.single], [law for law in laws if not law.single]
        run("Feynman set, single products", products, **options)
        run("Feynman set, other arithmetic laws", rest, **options)
        run("Feynman set, single products, exponents at relative noise 0.01", products, noise=0.01, verbose=arguments.verbose)
        run("Feynman set, single products, three irrelevant columns", products, extra=3, verbose=arguments.verbose)


if __name__ == "__main__":
    main()
