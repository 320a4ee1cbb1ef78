"""Distributions of inputs, with their text form."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from nalm.sampling.stream import (
    BENFORD,
    EITHER,
    EXPONENTIAL,
    HALVES,
    NORMAL,
    SEQUENCE,
    SIMULATION,
    SOBOL_BITS,
    UNIFORM,
    WHOLE,
    fill_rows,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

__all__ = [
    "FORMS",
    "Benford",
    "Distribution",
    "Exponential",
    "Halves",
    "Sobol",
    "Tied",
    "TruncatedNormal",
    "Uniform",
    "Union",
    "Whole",
    "parse",
]


LARGEST = 1e38
"""Largest magnitude of a bound: what is drawn, and the width of a range, must be finite in float32."""
LONGEST_TAIL = 23.0
"""Largest value that is drawn of an exponential with scale one: minus the logarithm of the smallest uniform number."""
LEAST_SHARE = 1e-9
"""Share of a normal distribution that must lie between its bounds for double precision to draw it."""


@cache
def _directions(columns: int) -> NDArray[np.float64]:
    """Direction numbers of SciPy's Sobol sequence, (columns, SOBOL_BITS): what its points 2^j and 2^j - 1 differ in."""
    from scipy.stats import qmc

    generator = qmc.Sobol(columns, scramble=False, bits=SOBOL_BITS)

    def point() -> NDArray[np.int64]:
        whole: NDArray[np.int64] = np.rint(generator.random(1)[0] * 2**SOBOL_BITS).astype(np.int64)
        return whole

    found, before = np.empty((columns, SOBOL_BITS)), point()
    for j in range(SOBOL_BITS):
        after = point()
        found[:, j] = before ^ after
        if j == 0:
            before = after
        elif j + 1 < SOBOL_BITS:
            generator.fast_forward(2**j - 2)
            before = point()
    return found


class Distribution:
    """What inputs are drawn from; `str` and `parse` go to and from its text form."""

    name: ClassVar[str]
    """How lists call it."""

    def encode(self, columns: int = 1) -> NDArray[np.float64]:
        """Rows (mode), (part), (part) of numbers for `fill_rows`, for so many columns."""
        code = np.zeros((3, 5))
        code[1] = self.part()
        return code

    def part(self) -> list[float]:
        """Kind and parameters of a distribution that is not made of others."""
        raise TypeError(f"{self} cannot be part of another distribution")

    def bounds(self) -> tuple[float, float]:
        """Smallest and largest value."""
        raise TypeError(f"{self} has no bounds")

    def sample(self, rows: int, columns: int, seed: int, purpose: int = SIMULATION, step: int = 0) -> NDArray[np.float64]:
        """Draw a table (rows, columns) in double precision."""
        out = np.empty((columns, rows))
        fill_rows(self.encode(columns), seed, purpose, step, out)
        return out.T


@dataclass(frozen=True)
class Uniform(Distribution):
    """Uniform on [low, high)."""

    low: float
    high: float
    name: ClassVar[str] = "uniform"

    def __post_init__(self) -> None:
        """Refuse an empty or reversed range."""
        _check_range(self, self.low, self.high)

    def part(self) -> list[float]:
        """Lower bound and width."""
        return [UNIFORM, self.low, self.high - self.low, 0, 0]

    def bounds(self) -> tuple[float, float]:
        """The two ends."""
        return self.low, self.high

    def __str__(self) -> str:
        """Text form, such as U[1,2)."""
        return f"U[{_number(self.low)},{_number(self.high)})"


@dataclass(frozen=True)
class Whole(Distribution):
    """Whole numbers from low up to, but not with, high; Z[0,2) are truth values."""

    low: float
    high: float
    name: ClassVar[str] = "whole numbers"

    def __post_init__(self) -> None:
        """Refuse an empty range or bounds that are not whole."""
        _check_range(self, self.low, self.high)
        if self.low % 1 or self.high % 1:
            raise ValueError(f"{self}: the bounds must be whole numbers")

    def part(self) -> list[float]:
        """Lower bound and number of values."""
        return [WHOLE, self.low, self.high - self.low, 0, 0]

    def bounds(self) -> tuple[float, float]:
        """The two ends."""
        return self.low, self.high

    def __str__(self) -> str:
        """Text form, such as Z[-10,10)."""
        return f"Z[{_number(self.low)},{_number(self.high)})"


@dataclass(frozen=True)
class TruncatedNormal(Distribution):
    """Normal with a mean and standard deviation, cut to [low, high)."""

    mean: float
    deviation: float
    low: float
    high: float
    name: ClassVar[str] = "truncated normal"

    def __post_init__(self) -> None:
        """Refuse an empty range or a deviation that is not positive."""
        _check_range(self, self.low, self.high)
        if not self.deviation > 0:
            raise ValueError(f"{self}: the standard deviation must be positive")
        below, above = self._ends()
        if not above - below >= LEAST_SHARE:
            raise ValueError(f"{self}: at least a billionth of the normal distribution must lie between the bounds")

    def _ends(self) -> list[float]:
        """Probabilities of the two ends."""
        return [0.5 * math.erfc((self.mean - end) / (self.deviation * math.sqrt(2))) for end in (self.low, self.high)]

    def part(self) -> list[float]:
        """Mean, deviation and the probabilities of the two ends."""
        return [NORMAL, self.mean, self.deviation, *self._ends()]

    def bounds(self) -> tuple[float, float]:
        """The two ends."""
        return self.low, self.high

    def __str__(self) -> str:
        """Text form, such as TN(0,1)[-5,5)."""
        return f"TN({_number(self.mean)},{_number(self.deviation)})[{_number(self.low)},{_number(self.high)})"


@dataclass(frozen=True)
class Benford(Distribution):
    """Whole numbers with as many digits as `low`, the leading one after Benford's law: B[10,100), B[100,1000).

    The other digits are a whole number between low / 10 and high / 10, so that the second digit is never zero, as published.
    """

    low: float
    high: float
    name: ClassVar[str] = "Benford"

    def __post_init__(self) -> None:
        """Refuse bounds that are not powers of ten, ten times apart."""
        _check_range(self, self.low, self.high)
        if self.low < 10 or self.high != 10 * self.low or math.log10(self.low) % 1 != 0:
            raise ValueError(f"{self}: the bounds must be 10 and 100, 100 and 1000, or so on")

    def part(self) -> list[float]:
        """Bounds of the other digits and value of the leading one."""
        return [BENFORD, self.low / 10, self.high / 10, self.low, 0]

    def bounds(self) -> tuple[float, float]:
        """The two ends."""
        return self.low, self.high

    def __str__(self) -> str:
        """Text form, such as B[10,100)."""
        return f"B[{_number(self.low)},{_number(self.high)})"


@dataclass(frozen=True)
class Exponential(Distribution):
    """Exponential with a scale (mean)."""

    scale: float
    name: ClassVar[str] = "exponential"

    def __post_init__(self) -> None:
        """Refuse a scale that is not positive, or so large that what is drawn would not be finite."""
        if not 0 < self.scale <= LARGEST / LONGEST_TAIL:
            raise ValueError(f"{self}: the scale must be positive and at most {LARGEST / LONGEST_TAIL:.2g}")

    def part(self) -> list[float]:
        """The scale."""
        return [EXPONENTIAL, self.scale, 0, 0, 0]

    def bounds(self) -> tuple[float, float]:
        """Zero and infinity."""
        return 0.0, math.inf

    def __str__(self) -> str:
        """Text form, such as Exp(0.2)."""
        return f"Exp({_number(self.scale)})"


@dataclass(frozen=True)
class Sobol(Distribution):
    """Unscrambled Sobol points, scaled to (low, high): the same for every seed, step after step.

    The first point of the sequence, the corner, is left out, as in the generator of the NPU paper.
    """

    low: float
    high: float
    name: ClassVar[str] = "Sobol sequence"

    def __post_init__(self) -> None:
        """Refuse an empty or reversed range."""
        _check_range(self, self.low, self.high)

    def bounds(self) -> tuple[float, float]:
        """The two ends."""
        return self.low, self.high

    def encode(self, columns: int = 1) -> NDArray[np.float64]:
        """Rows (mode, low, width), (nothing), (nothing), and the direction numbers of each column."""
        code = np.zeros((3 + columns, SOBOL_BITS))
        code[0, :3] = SEQUENCE, self.low, self.high - self.low
        code[3:] = _directions(columns)
        return code

    def __str__(self) -> str:
        """Text form, such as Sobol(-1,1)."""
        return f"Sobol({_number(self.low)},{_number(self.high)})"


@dataclass(frozen=True)
class Union(Distribution):
    """Each value from one of two distributions, with equal chance."""

    first: Distribution
    second: Distribution
    name: ClassVar[str] = "either of two"

    def encode(self, columns: int = 1) -> NDArray[np.float64]:
        """Both parts."""
        return np.stack([[EITHER, 0, 0, 0, 0], self.first.part(), self.second.part()])

    def bounds(self) -> tuple[float, float]:
        """Smallest and largest end of the two."""
        return _joint_bounds(self.first, self.second)

    def __str__(self) -> str:
        """Text form, such as U[-6,-2)|U[2,6)."""
        return f"{self.first}|{self.second}"


@dataclass(frozen=True)
class Halves(Distribution):
    """The first half of the inputs from one distribution, the second half from another."""

    first: Distribution
    second: Distribution
    name: ClassVar[str] = "one for each half of the inputs"

    def encode(self, columns: int = 1) -> NDArray[np.float64]:
        """Both parts."""
        return np.stack([[HALVES, 0, 0, 0, 0], self.first.part(), self.second.part()])

    def bounds(self) -> tuple[float, float]:
        """Smallest and largest end of the two."""
        return _joint_bounds(self.first, self.second)

    def __str__(self) -> str:
        """Text form, such as U[-2,-1)&U[1,2)."""
        return f"{self.first}&{self.second}"


@dataclass(frozen=True)
class Tied(Distribution):
    """Values of a distribution, each replaced by the input before it with a chance, so that neighbours are equal."""

    whole: Distribution
    share: float
    name: ClassVar[str] = "neighbours equal with a chance"

    def __post_init__(self) -> None:
        """Refuse a chance that is none."""
        if not 0 < self.share < 1:
            raise ValueError(f"{self}: the chance must be between 0 and 1")

    def encode(self, columns: int = 1) -> NDArray[np.float64]:
        """The distribution, with the chance in the last place of the first row."""
        code = self.whole.encode(columns)
        code[0, 4] = self.share
        return code

    def bounds(self) -> tuple[float, float]:
        """Those of the distribution."""
        return self.whole.bounds()

    def __str__(self) -> str:
        """Text form, such as Z[-10,10)~0.5."""
        return f"{self.whole}~{_number(self.share)}"


def _joint_bounds(first: Distribution, second: Distribution) -> tuple[float, float]:
    (a, b), (c, d) = first.bounds(), second.bounds()
    return min(a, c), max(b, d)


def _check_range(what: Distribution, low: float, high: float) -> None:
    if not -LARGEST <= low < high <= LARGEST:
        raise ValueError(f"{what}: the lower bound must be below the upper one, both between -1e38 and 1e38")


def _number(value: float) -> str:
    return repr(float(value)).removesuffix(".0")


_NUMBER = r"\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*"
_FORMS: list[tuple[str, Callable[..., Distribution]]] = [
    (rf"U\[{_NUMBER},{_NUMBER}\)", Uniform),
    (rf"TN\({_NUMBER},{_NUMBER}\)\[{_NUMBER},{_NUMBER}\)", TruncatedNormal),
    (rf"Z\[{_NUMBER},{_NUMBER}\)", Whole),
    (rf"B\[{_NUMBER},{_NUMBER}\)", Benford),
    (rf"Sobol\({_NUMBER},{_NUMBER}\)", Sobol),
    (rf"Exp\({_NUMBER}\)", Exponential),
]

FORMS = {
    "U[1,2)": "uniform between two numbers",
    "U[-6,-2)|U[2,6)": "each input value from one of the two",
    "U[-2,-1)&U[1,2)": "first half of the inputs from the one, second half from the other",
    "TN(0,1)[-5,5)": "normal with mean and standard deviation, truncated",
    "B[10,100)": "whole numbers after Benford's law",
    "Exp(0.2)": "exponential with a scale",
    "Sobol(-1,1)": "Sobol sequence",
    "Z[-10,10)": "whole numbers",
    "Z[-10,10)~0.5": "each input equal to the one before it with a chance",
}
"""An example of every text form, with what it means."""


LONGEST = 200
"""Characters of a distribution in text."""


def parse(text: str) -> Distribution:
    """Read the text form of a distribution, such as ``U[1,2)`` or ``U[-6,-2)|U[2,6)``."""
    text = text.strip()
    if len(text) > LONGEST:
        raise ValueError(f"cannot read a distribution of {len(text):,} characters; at most {LONGEST} are allowed")
    if match := re.fullmatch(rf"(.*)~{_NUMBER}", text):
        return Tied(parse(match[1]), float(match[2]))
    for sign, combine in (("|", Union), ("&", Halves)):
        if sign in text:
            parts = [parse(part) for part in text.split(sign)]
            if len(parts) != 2 or any(type(part) in (Union, Halves, Sobol, Tied) for part in parts):
                raise ValueError(f"cannot read the distribution {text!r}: {sign} joins two plain distributions")
            return combine(*parts)
    for pattern, build in _FORMS:
        if match := re.fullmatch(pattern, text):
            return build(*map(float, match.groups()))
    raise ValueError(f"cannot read the distribution {text!r}; examples of what is allowed: {', '.join(FORMS)}")
