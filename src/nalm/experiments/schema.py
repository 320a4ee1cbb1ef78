"""What an experiment file may hold: every key with the kind of its value. The first thing that does not fit is named.

A check takes the place of a value in the file and the value, and raises ValueError. Whether the values make an experiment that
can be run (modules, ranges, series that claims name) is not for here.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from nalm.checks import finite, known, shown, whole

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Check = Callable[[str, Any], object]

__all__ = ["FIGURES", "FILE", "IDENTITY", "KINDS", "RELATIONS", "SETUP", "TABLES", "study"]

KINDS = ("training", "images", "dynamics", "exact")
FIGURES = ("panels", "surfaces", "gates", "pareto", "problems", "networks", "none")
TABLES = ("rows", "problems", "networks")
RELATIONS = ("=", "~", "<", "<=", ">", ">=", "full", "zero", "partial")
IDENTITY = re.compile(r"(?=.{1,60}$)[A-Za-z][\w:-]*(\.[\w:-]+)*", re.ASCII)
"""Names of experiments; they name files and folders too."""


def text(where: str, value: Any) -> None:
    """A text."""
    if not isinstance(value, str):
        raise ValueError(f"{where} must be a text, got {shown(repr(value))}")


def identity(where: str, value: Any) -> None:
    """A name that can be that of a file."""
    text(where, value)
    if not IDENTITY.fullmatch(value):
        raise ValueError(f"{where} must be a name of letters, digits, and : . - _ between them, got {shown(repr(value))}")


def count(where: str, value: Any) -> None:
    """A whole number from 0 up."""
    whole(where, value, 0)


def positive(where: str, value: Any) -> None:
    """A whole number from 1 up."""
    whole(where, value, 1)


def share(where: str, value: Any) -> None:
    """A number above 0 and at most 1."""
    if not 0 < finite(where, value) <= 1:
        raise ValueError(f"{where} must be above 0 and at most 1, got {value}")


def threshold(where: str, value: Any) -> None:
    """An error, or the name of one."""
    if not isinstance(value, str):
        finite(where, value, 0)
    elif value != "gold" and value.partition(":")[0] != "simulated":
        raise ValueError(f"{where} must be a number, simulated, simulated:EPSILON or gold, got {shown(repr(value))}")


def scalar(where: str, value: Any) -> None:
    """A number, a truth value, or a text."""
    if not isinstance(value, (str, bool)):
        finite(where, value)


def free(where: str, value: Any) -> None:
    """What only the computation knows: numbers, texts, lists and tables of them."""
    if isinstance(value, dict):
        for key, one in value.items():
            free(f"{where}.{key}", one)
    else:
        several(scalar if not isinstance(value, list) else free)(where, value)


def one_of(what: str, names: tuple[str, ...]) -> Check:
    """A name of a few."""

    def check(where: str, value: Any) -> None:
        try:
            known(what, value, names)
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from None

    return check


def listed(check: Check) -> Check:
    """A list."""

    def every(where: str, value: Any) -> None:
        if not isinstance(value, (list, tuple)):
            raise ValueError(f"{where} must be a list, got {shown(repr(value))}")
        for number, one in enumerate(value, 1):
            check(f"{where}, number {number}," if not isinstance(one, dict) else f"{where} {one.get('id', number)}", one)

    return every


def several(check: Check) -> Check:
    """One, or a list."""
    return lambda where, value: (listed(check) if isinstance(value, (list, tuple)) else check)(where, value)


def named(check: Check) -> Check:
    """A table with keys of any name."""

    def every(where: str, value: Any) -> None:
        if not isinstance(value, dict):
            raise ValueError(f"{where} must be a table, got {shown(repr(value))}")
        for key, one in value.items():
            check(f"{where}.{key}", one)

    return every


def table(keys: Mapping[str, Check], required: tuple[str, ...] = ()) -> Check:
    """A table with known keys."""

    def every(where: str, value: Any) -> None:
        if not isinstance(value, dict):
            raise ValueError(f"{where} must be a table, got {shown(repr(value))}")
        for key in value:
            one_of("key", tuple(keys))(where, key)
        for key in required:
            if key not in value:
                raise ValueError(f"{where} needs the key {key}")
        for key, one in value.items():
            keys[key](f"{where}: {key}", one)

    return every


SETUP: dict[str, Check] = {
    "task": text,
    "operation": text,
    "inputs": positive,
    "ranges": listed(text),
    "seeds": positive,
    "threshold": threshold,
    "judged": one_of("rule of judging", ("least", "last")),
    "data": named(several(scalar)),
    "options": named(several(scalar)),
    "recipe": named(free),
}
"""What is trained; a series may change each of these."""
SERIES = {**SETUP, **dict.fromkeys(("name", "label", "module", "problem"), text), "published": free, "reach": free}
QUICK = {**{key: SETUP[key] for key in ("seeds", "ranges", "recipe", "data", "inputs")}, "settings": named(free)}
QUICK |= {"values": listed(scalar), "series": listed(text), "scale": share}
OTHER = {"series": text, "at": several(text), "varied": several(scalar), "operation": text, "inputs": count}


def other(where: str, value: Any) -> None:
    """What a claim compares with: a series, or what differs from the claim's own."""
    (table(OTHER) if isinstance(value, dict) else text)(where, value)


CLAIM: dict[str, Check] = {
    **dict.fromkeys(("id", "metric", "operation", "group", "key", "note", "incomparable"), text),
    "relation": one_of("relation", RELATIONS),
    **dict.fromkeys(("value", "low", "high"), finite),
    "than": several(other),
    **{key: OTHER[key] for key in ("at", "varied", "inputs")},
    "series": several(text),
    "runs": count,
}
PUBLISHED: dict[str, Check] = {
    "claims": listed(table(CLAIM, ("id", "metric", "relation"))),
    "explanations": listed(table({"ids": listed(text), "why": text}, ("ids", "why"))),
}
FILE: Check = table(
    {
        "id": identity,
        **dict.fromkeys(("title", "source", "note", "compute"), text),
        "kind": one_of("kind", KINDS),
        "also": listed(text),
        "figure": one_of("figure", FIGURES),
        "table": one_of("table", TABLES),
        "vary": one_of("axis", ("interpolation", "varied", "series")),
        "setup": table(SETUP),
        "series": listed(table(SERIES, ("name", "module"))),
        "sweep": table({"field": text, "values": listed(scalar)}, ("field", "values")),
        "quick": table(QUICK),
        "groups": listed(table({"name": text, "at": several(text), "inputs": count}, ("name",))),
        "settings": named(free),
        "published": table(PUBLISHED),
    },
    ("id", "title", "source"),
)
"""A whole file."""

IMAGES: dict[str, Check] = {
    "task": one_of("task with images", ("isolated", "colour", "sequence")),
    **dict.fromkeys(("operation", "name", "layer"), text),
    **dict.fromkeys(("seeds", "epochs", "batch"), positive),
    "learning_rate": finite,
}
SEQUENCE: dict[str, Check] = {"length": positive, "lengths": listed(positive)}
PAIRS: dict[str, Check] = dict.fromkeys(("train_samples", "test_samples", "folds", "pairs"), positive)
DYNAMICS: dict[str, Check] = {
    "series": listed(text),
    "hidden": listed(positive),
    "l1": listed(finite),
    "runs": count,
}
DESCENT: dict[str, Check] = {**dict.fromkeys(("steps", "polish"), count), "learning_rate": finite, "optimiser": text}
"""Settings of a study with differential equations that have defaults."""


def study(kind: str, settings: Mapping[str, Any]) -> None:
    """The settings of a study with images or differential equations; those of exact computations are their own affair."""
    if kind == "dynamics":
        needed(DYNAMICS, settings)
        needed({key: check for key, check in DESCENT.items() if key in settings}, settings)
    elif kind == "images":
        needed({"series": listed(named(free))}, settings)
        for one in settings["series"]:
            own = {**settings, **one}
            needed(IMAGES, own)
            needed(SEQUENCE if own["task"] == "sequence" else PAIRS, own)


def needed(keys: Mapping[str, Check], settings: Mapping[str, Any]) -> None:
    """Settings that must be there."""
    for key, check in keys.items():
        if key not in settings:
            raise ValueError(f"settings needs the key {key}")
        check(f"settings: {key}", settings[key])
