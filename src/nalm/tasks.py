"""The single-module task: which inputs matter, what is to be learned, and the papers' pairs of ranges."""

from __future__ import annotations

import numpy as np

from nalm.sampling import parse

__all__ = ["NINE_RANGES", "OPERATIONS", "PAIRED", "TASKS", "operand_offset", "read_range"]

TASKS = {"single-module": "one module learns one operation of two inputs, among any number of irrelevant ones"}
"""Task names, with what they are about."""

OPERATIONS = ("add", "sub", "mul", "div", "reciprocal", "square", "sqrt", "identity")
"""Operations of the single-module task."""

NINE_RANGES = (
    "U[-20,-10)",
    "U[-2,-1)",
    "U[-1.2,-1.1)",
    "U[-0.2,-0.1)",
    "U[-2,2)",
    "U[0.1,0.2)",
    "U[1,2)",
    "U[1.1,1.2)",
    "U[10,20)",
)
"""Training ranges of the benchmark."""

PAIRED = {
    "U[-20,-10)": "U[-40,-20)",
    "U[-2,-1)": "U[-6,-2)",
    "U[-1.2,-1.1)": "U[-6.1,-1.2)",
    "U[-0.2,-0.1)": "U[-2,-0.2)",
    "U[-2,2)": "U[-6,-2)|U[2,6)",
    "U[0,1)": "U[1,5)",
    "U[0.1,0.2)": "U[0.2,2)",
    "U[1,2)": "U[2,6)",
    "U[1.1,1.2)": "U[1.2,6)",
    "U[10,20)": "U[20,40)",
    "U[-2,-0.1)&U[0.1,2)": "U[-6,-2)&U[2,6)",
    "U[-2,-1)&U[1,2)": "U[-6,-2)&U[2,6)",
    "U[0.1,2)&U[-2,-0.1)": "U[2,6)&U[-6,-2)",
    "U[1,2)&U[-2,-1)": "U[2,6)&U[-6,-2)",
    "TN(-1,3)[-5,10)": "TN(-10,3)[-15,-5)",
    "TN(0,1)[-5,5)": "TN(10,1)[5,15)",
    "TN(1,3)[-10,5)": "TN(10,3)[5,15)",
    "B[10,100)": "B[100,1000)",
    "U[-100,100)": "U[-200,-100)|U[100,200)",
    "U[-50,50)": "U[-100,-50)|U[50,100)",
    "Sobol(-1,1)": "Sobol(-2,2)",
}
"""The test distribution that the papers pair with each training distribution."""


def read_range(text: str) -> tuple[str, str]:
    """Training and test distribution, in their normal text form, of ``A`` (paired as in the papers) or of ``A -> B``."""
    interpolation, arrow, extrapolation = text.partition("->")
    known = str(parse(interpolation))
    if arrow:
        return known, str(parse(extrapolation))
    if known not in PAIRED:
        raise ValueError(f'no paper pairs a test range with {known}: give one, such as "{known} -> U[2,6)"')
    return known, PAIRED[known]


def operand_offset(inputs: int, seed: int) -> int:
    """Index of the first operand; the second is its neighbour. Drawn per seed, with the generator of the published code."""
    if inputs < 3:
        return 0
    return int(np.random.RandomState(seed).randint(0, inputs - 1))
