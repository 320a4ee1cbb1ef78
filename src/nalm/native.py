"""What all compiled code shares: compiler options and the width of vectors."""

from __future__ import annotations

from typing import Any

__all__ = ["SAFE", "prefer_wide_vectors"]

SAFE = {"nogil": True, "error_model": "numpy", "fastmath": {"contract"}, "_nrt": False}
"""Compiler options of all numeric code: products and sums may be fused, nothing is assumed about NaN and infinity, and arrays
have no reference counts (nothing is allocated), which would cost more than the inner loops."""


def prefer_wide_vectors(builder: Any) -> None:
    """Let the function that an intrinsic is built into use 512-bit vectors where the processor has them.

    LLVM keeps to 256 bits on most such processors, which costs a third of the speed of long polynomials. The attribute is one
    that llvmlite prints but does not list, hence the call of the plain set's method.
    """
    set.add(builder.function.attributes, '"prefer-vector-width"="512"')
