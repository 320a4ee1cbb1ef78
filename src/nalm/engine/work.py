"""Scratch of compiled loops, and the mark of their sources."""

from __future__ import annotations

import math
import zlib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nalm import native, sampling, vector
from nalm.engine import data, descent, kernels

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Work", "aligned", "revision"]


def aligned(shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    """Zeros that start at a cache line: a vector that straddles two lines costs twice."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    raw = np.zeros(size + 64, np.uint8)
    start = -raw.ctypes.data % 64
    aligned: NDArray[Any] = raw[start : start + size].view(dtype).reshape(shape)
    return aligned


class Work(NamedTuple):
    """Scratch of one run: batch, noise, targets, outputs, and what kernels keep between forward and backward."""

    x: NDArray[Any]
    noise: NDArray[Any]
    sums: NDArray[Any]
    target: NDArray[Any]
    y: NDArray[Any]
    dy: NDArray[Any]
    t: NDArray[Any]
    w: NDArray[Any]
    g: NDArray[Any]

    @staticmethod
    def make(kernel: Any, inputs: int, noisy: int, parameters: int, rows: int, dtype: Any, operands: int = 2) -> Work:
        """Empty arrays for a batch of `rows`; `noisy` is the number of inputs that get noise."""
        t_rows, w_rows, w_columns = kernels.scratch(kernel, inputs)
        return Work(
            x=aligned((inputs, rows), dtype),
            noise=aligned((noisy, rows), dtype),
            sums=aligned((operands, rows), dtype),
            target=aligned((rows,), dtype),
            y=aligned((rows,), dtype),
            dy=aligned((rows,), dtype),
            t=aligned((t_rows, rows), dtype),
            w=aligned((w_rows, w_columns), dtype),
            g=aligned((parameters,), dtype),
        )


@cache
def revision() -> int:
    """A number that changes with the sources that the compiled loop is made of, and with it the key of Numba's cache."""
    sources = [Path(str(module.__file__)) for module in (native, data, descent, vector)]
    for package in (sampling, kernels):
        sources += sorted(Path(str(package.__file__)).parent.glob("*.py"))
    return zlib.crc32(b"".join(path.read_bytes() for path in sources))
