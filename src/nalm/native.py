"""What all compiled code shares: compiler options, the width of vectors, the number of threads."""

from __future__ import annotations

import os
from typing import Any

__all__ = ["SAFE", "THREADS", "cores", "prefer_wide_vectors"]

THREADS = "NALM_THREADS"
"""Environment variable that says how many threads, or processes, may work; `nalm --threads` sets it."""

SAFE = {"nogil": True, "error_model": "numpy", "fastmath": {"contract"}, "_nrt": False}
"""Compiler options of all numeric code: products and sums may be fused, nothing is assumed about NaN and infinity, and arrays
have no reference counts (nothing is allocated), which would cost more than the inner loops."""


def cores() -> int:
    """Threads, or processes, that may work at a time."""
    told = os.environ.get(THREADS, "")
    return int(told) if told.isdecimal() and int(told) > 0 else os.cpu_count() or 1


def prefer_wide_vectors(builder: Any) -> None:
    """Let the function that an intrinsic is built into use 512-bit vectors where the processor has them.

    LLVM keeps to 256 bits on most such processors, which costs a third of the speed of long polynomials. The attribute is one
    that llvmlite prints but does not list, hence the call of the plain set's method.
    """
    set.add(builder.function.attributes, '"prefer-vector-width"="512"')
