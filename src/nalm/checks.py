"""Values that people hand us: is it what is asked for, and if not, one sentence that says what it is and what is allowed."""

from __future__ import annotations

import ast
import dataclasses
import difflib
import math
import operator
import os
import warnings
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["built", "finite", "fitting", "known", "like", "literal", "memory", "of_kind", "shown", "whole"]

LONGEST = 10_000
"""Characters of a value in text."""
MOST = 10**12
"""Largest whole number that anything here can mean."""


def shown(value: Any, most: int = 80) -> str:
    """A value as text that fits into a sentence."""
    text = " ".join(str(value).split())
    return text if len(text) <= most else f"{text[: most - 3]}..."


def whole(name: str, value: Any, low: float = -MOST, high: float = MOST) -> int:
    """A whole number between two bounds, as Python's own."""
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool):
        raise ValueError(f"{name} must be a whole number, got {shown(repr(value))}")
    if not low <= number <= high:
        bound = f"at least {low:,}" if number < low else f"at most {high:,}"
        raise ValueError(f"{name} must be {bound}, got {number if abs(number) < MOST else 'a number of 13 digits or more'}")
    return number


def of_kind(name: str, value: Any, kinds: type | tuple[type, ...], what: str) -> None:
    """ValueError for a value that is of none of the kinds."""
    if not isinstance(value, kinds):
        raise ValueError(f"{name} must be {what}, got {shown(repr(value))}")


def finite(name: str, value: Any, low: float = -math.inf) -> float:
    """A finite number of at least `low`."""
    try:
        number = math.nan if isinstance(value, (bool, str)) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"{name} must be a finite number, got {shown(repr(value))}")
    if number < low:
        raise ValueError(f"{name} must be at least {low:g}, got {number:g}")
    return number


def like(name: str, value: Any, default: Any) -> Any:
    """A value of the kind of a default: a truth value, a whole number, a finite number, or a tuple of such."""
    if isinstance(default, bool):
        if not isinstance(value, bool):
            raise ValueError(f"{name} must be True or False, got {shown(repr(value))}")
    elif isinstance(default, int):
        return whole(name, value)
    elif isinstance(default, float):
        return finite(name, value)
    elif isinstance(default, str) and not isinstance(value, str):
        raise ValueError(f"{name} must be a text, got {shown(repr(value))}")
    elif isinstance(default, tuple):
        if not isinstance(value, (tuple, list)) or not value:
            raise ValueError(f"{name} must be a list of numbers, got {shown(repr(value))}")
        return tuple(like(f"each value of {name}", one, default[0]) for one in value)
    return value


def built(name: str, kind: Any, values: Any) -> Any:
    """An object of a kind, made of values by name."""
    allowed = [field.name for field in dataclasses.fields(kind)]
    for key in values:
        if key not in allowed:
            raise ValueError(f"{name} has no value {shown(repr(key))}; it has: {', '.join(allowed)}")
    return kind(**values)


def fitting(what: str, size: float) -> None:
    """Refuse what would take more bytes than this machine has."""
    if size > memory():
        raise ValueError(f"{what} would take {size / 1e9:,.0f} GB of memory; this machine has {memory() / 1e9:,.0f} GB")


def memory() -> float:
    """Bytes of memory of this machine; 16 GB where it does not say."""
    try:
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, ValueError, OSError):
        return 16e9


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
        with warnings.catch_warnings():  # of Python's parser, about text that is none of these
            warnings.simplefilter("ignore")
            return ast.literal_eval(text.strip()) if len(text) <= LONGEST else text.strip()
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return text.strip()
