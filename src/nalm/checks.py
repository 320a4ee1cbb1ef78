"""Values that people hand us: is it what is asked for, and if not, one sentence that says what it is and what is allowed."""

from __future__ import annotations

import ast
import difflib
import math
import operator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["finite", "known", "literal", "shown", "whole"]

LONGEST = 10_000
"""Characters of a value in text."""


def shown(value: Any, most: int = 80) -> str:
    """A value as text that fits into a sentence."""
    text = " ".join(str(value).split())
    return text if len(text) <= most else f"{text[: most - 3]}..."


def whole(name: str, value: Any, low: int, high: int) -> int:
    """A whole number between two bounds."""
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool) or not low <= number <= high:
        raise ValueError(f"{name} must be a whole number from {low:,} to {high:,}, got {shown(repr(value))}")
    return number


def finite(name: str, value: Any, low: float = -math.inf) -> float:
    """A finite number of at least `low`."""
    try:
        number = math.nan if isinstance(value, (bool, str)) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not (math.isfinite(number) and number >= low):
        least = "" if low == -math.inf else f" of at least {low:g}"
        raise ValueError(f"{name} must be a finite number{least}, got {shown(repr(value))}")
    return number


def known(what: str, name: Any, names: Iterable[str]) -> str:
    """A name that is among those that there are; the error for any other says which come near."""
    there = list(names)
    if isinstance(name, str) and name in there:
        return name
    near = difflib.get_close_matches(str(name)[:100], there, n=2)
    hint = f" Did you mean {' or '.join(near)}?" if near else ""
    raise ValueError(f"unknown {what} {shown(name)!r}.{hint} There are: {', '.join(there)}")


def literal(text: str) -> Any:
    """The number, truth value, None or list of them that a text describes; any other text is itself."""
    try:
        return ast.literal_eval(text.strip()) if len(text) <= LONGEST else text.strip()
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return text.strip()
