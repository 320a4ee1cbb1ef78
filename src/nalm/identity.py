"""The identity of a factory: a text that differs wherever code or values that decide what it builds differ.

It follows from the factory alone: byte code, defaults, closures, bases, instances' state, and every global that the code names,
function by function. Code of libraries counts by its name and version. There are no addresses and no order of sets in it, so
another process gives the same text.
"""

from __future__ import annotations

import builtins
import contextlib
import copyreg
import dis
import functools
import hashlib
import importlib
import importlib.metadata
import os
import platform
import sys
import sysconfig
import types
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["UntoldError", "identity"]

MOST = 1_000_000
"""Values that are looked at before giving up."""
DYNAMIC = {"__import__", "eval", "exec", "globals", "input", "open"}
"""Functions of the language whose result no code tells."""
READERS = {
    *("environ", "fromfile", "genfromtxt", "getenv", "import_module"),
    *("load", "load_file", "loadtxt", "open", "read_bytes", "read_csv", "read_text"),
}
"""Attributes that read files or the environment."""
UNTOLD_PARTS = {
    *("__abstractmethods__", "__annotate__", "__annotate_func__", "__annotations__", "__annotations_cache__", "__dict__"),
    *("__doc__", "__firstlineno__", "__module__", "__orig_bases__", "__parameters__", "__qualname__", "__slotnames__"),
    *("__static_attributes__", "__weakref__", "_abc_impl"),
}
"""Parts of a class that do not decide what it computes, or that Python keeps for itself."""


class UntoldError(Exception):
    """A value in a factory whose content cannot be told; the message names it."""


def identity(*values: Any) -> str:
    """Identity of values such as a factory and its options; UntoldError where it cannot be told."""
    try:
        return _digest(values)[:24]
    except UntoldError:
        raise
    except RecursionError:
        raise UntoldError("its values are nested too deeply") from None
    except Exception as error:  # an object that does not answer ordinary questions
        raise UntoldError(f"{type(error).__name__}: {error}") from error


def _digest(value: Any, depth: int = 0) -> str:
    if depth > 50:
        raise UntoldError("its sets are nested too deeply")
    teller = _Teller(depth)
    teller.tell(value)
    return teller.hash.hexdigest()


class _Teller:
    """Writes values into one hash, each with its kind and length; a mutable value that comes again is told by its number."""

    def __init__(self, depth: int) -> None:
        self.hash = hashlib.sha256()
        self.depth = depth
        self.met: dict[Any, tuple[int, Any]] = {}
        self.count = 0

    def put(self, kind: str, content: str | bytes = b"") -> None:
        """Write one piece of content."""
        data = content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content
        self.hash.update(f"{kind} {len(data)}:".encode() + data)

    def tell(self, value: Any) -> None:
        """Write a value with all that it holds."""
        self.count += 1
        if self.count > MOST:
            raise UntoldError(f"it holds more than {MOST:,} values")
        how = ATOMS.get(type(value))
        if how is not None:
            self.put(type(value).__name__, how(value))
            return
        if not isinstance(value, (tuple, frozenset, types.CodeType)) and self._came_before(id(value), value):
            return
        self.put(type(value).__name__)
        fitting = (write for kinds, write in WRITERS if isinstance(value, kinds))
        (CONTAINERS.get(type(value)) or next(fitting, _Teller.instance))(self, value)

    def _came_before(self, key: Any, value: Any) -> bool:
        """Whether it was told already, and its number is; the value is kept, so that no other gets its id."""
        if key in self.met:
            self.put("met", str(self.met[key][0]))
            return True
        self.met[key] = (len(self.met), value)
        return False

    def sequence(self, values: Any) -> None:
        """Values in their order."""
        self.put("length", str(len(values)))
        for value in values:
            self.tell(value)

    def mapping(self, values: Any) -> None:
        """Keys and values in their order."""
        self.sequence([part for pair in values.items() for part in pair])

    def collection(self, values: Any) -> None:
        """Values whose order is not their own."""
        self.sequence(sorted(_digest(value, self.depth + 1) for value in values))

    def tensor(self, value: torch.Tensor) -> None:
        """Numbers of a tensor, and what else decides what it does."""
        try:
            data = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        except (RuntimeError, TypeError, ValueError, NotImplementedError):
            raise UntoldError(f"a {type(value).__name__} without plain numbers") from None
        self.tell((type(value), str(value.dtype), tuple(value.shape), value.requires_grad, str(value.device), data))

    def array(self, value: Any) -> None:
        """Numbers of an array."""
        data = value.tolist() if value.dtype.hasobject else value.tobytes()
        self.tell((type(value), str(value.dtype.descr), value.shape, data))

    def code(self, code: types.CodeType) -> None:
        """What a piece of code does, wherever it stands in its file."""
        counts = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
        names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
        self.tell((code.co_code, counts, names, getattr(code, "co_exceptiontable", b""), code.co_consts))

    def function(self, value: types.FunctionType) -> None:
        """Code of a function, its defaults, its closure, and what it names outside itself."""
        known = _in_library(value)
        if known:
            self.put("library", known)
            return
        self.code(value.__code__)
        self.tell((value.__defaults__, value.__kwdefaults__, vars(value)))
        for cell in value.__closure__ or ():
            with contextlib.suppress(ValueError):  # an empty cell
                self.tell(cell.cell_contents)
        space = value.__globals__
        if _library(str(space.get("__name__"))) is None:
            self.named(value.__code__, space)

    def named(self, code: types.CodeType, space: dict[str, Any]) -> None:
        """Globals and imports that the code of a function of the user's names."""
        used, attributes, imported = _names(code)
        untold = sorted((used & DYNAMIC) - space.keys()) + sorted(attributes & READERS)
        if untold:
            raise UntoldError(f"what {untold[0]} gives is not in the code")
        for name in sorted(used):
            self.put("global", name)
            if isinstance(space.get(name), types.ModuleType):
                self.module(space[name], attributes)
            elif name in space:
                self.tell(space[name])
            else:
                self.put("builtin" if hasattr(builtins, name) else "absent")
        for name, level in sorted(imported):
            self.put("import", name)
            with contextlib.suppress(Exception):  # told as absent
                self.module(importlib.import_module("." * level + name, space.get("__package__")), attributes)

    def module(self, module: types.ModuleType, names: set[str]) -> None:
        """Those of the names that a module of the user's has; of a library's, name and version."""
        known = _library(module.__name__)
        self.put("module", known or "")
        if known:
            return
        for name in sorted(names & vars(module).keys()):
            value = vars(module)[name]
            if not self._came_before((id(module), name), module):
                self.put("attribute", name)
                if isinstance(value, types.ModuleType):
                    self.module(value, names)
                else:
                    self.tell(value)

    def kind(self, cls: type) -> None:
        """A class with its bases; a class of a library by its name and version."""
        known = _in_library(cls)
        if known or not cls.__flags__ & HEAP:
            self.put("library", known or f"{cls.__module__}.{cls.__qualname__}")
            return
        self.tell((type(cls), cls.__bases__))
        for name, value in sorted(vars(cls).items()):
            if name not in UNTOLD_PARTS:
                self.put("part", name)
                self.tell(value)

    def built_in(self, value: Any) -> None:
        """A function of compiled code by its name, and the object that it is bound to."""
        owner = getattr(value, "__self__", getattr(value, "__objclass__", None))
        home = str(getattr(value, "__module__", "") or getattr(owner, "__name__", ""))
        self.put("name", f"{home}.{value.__qualname__} {_library(home)}")
        if not isinstance(owner, types.ModuleType):
            self.tell(owner)

    def instance(self, value: Any) -> None:
        """Any other object: its class, and what it would be restored from after pickling."""
        self.tell(type(value))
        reduce = copyreg.dispatch_table.get(type(value))
        try:
            parts: Any = reduce(value) if reduce else value.__reduce_ex__(4)
        except Exception:
            raise UntoldError(f"it holds a {type(value).__name__}") from None
        self.tell(parts if isinstance(parts, str) else [list(one) if isinstance(one, Iterator) else one for one in parts])
        if not _in_library(type(value)):  # pickling may leave out what counts
            members = [name for cls in type(value).__mro__ for name, one in vars(cls).items() if isinstance(one, SLOT)]
            self.tell([getattr(value, "__dict__", None), *(getattr(value, name, None) for name in members)])
            self.tell([base(value) for base in PLAIN if isinstance(value, base)])


HEAP = 1 << 9
"""Flag of classes that were made by running code, not compiled into the interpreter."""

PLAIN: tuple[type[Any], ...] = (dict, list, tuple, set, frozenset, str, bytes, int, float)
"""Classes that other classes extend, whose content counts."""

SLOT = types.MemberDescriptorType

ATOMS: dict[type, Callable[[Any], str | bytes]] = {
    **dict.fromkeys((type(None), type(...), type(NotImplemented), bool, range), repr),
    int: hex,
    str: str,
    **dict.fromkeys((bytes, bytearray), bytes),
    float: float.hex,
    complex: lambda value: f"{value.real.hex()} {value.imag.hex()}",
}
"""Plain values, by their exact type, and how to write them."""

BUILT_IN = (
    *(types.BuiltinFunctionType, types.MethodWrapperType, types.WrapperDescriptorType, types.MethodDescriptorType),
    *(types.ClassMethodDescriptorType, types.GetSetDescriptorType, types.MemberDescriptorType),
)

WRITERS: list[tuple[Any, Callable[[_Teller, Any], None]]] = [
    (types.FunctionType, _Teller.function),
    (type, _Teller.kind),
    (types.ModuleType, lambda teller, value: teller.module(value, {name for name in vars(value) if name[:2] != "__"})),
    (types.CodeType, _Teller.code),
    (types.MethodType, lambda teller, value: teller.tell((value.__func__, value.__self__))),
    (BUILT_IN, _Teller.built_in),
    ((staticmethod, classmethod), lambda teller, value: teller.tell(value.__func__)),
    (property, lambda teller, value: teller.tell((value.fget, value.fset, value.fdel))),
    (functools.cached_property, lambda teller, value: teller.tell(value.func)),
    (functools._lru_cache_wrapper, lambda teller, value: teller.tell(value.__wrapped__)),
    (functools.partial, lambda teller, value: teller.tell((value.func, value.args, value.keywords, vars(value)))),
    (torch.Tensor, _Teller.tensor),
    (np.ndarray, _Teller.array),
]
"""How to write a value, by its type."""

CONTAINERS: dict[type, Callable[[_Teller, Any], None]] = {
    **dict.fromkeys((tuple, list), _Teller.sequence),
    **dict.fromkeys((dict, types.MappingProxyType), _Teller.mapping),
    **dict.fromkeys((set, frozenset), _Teller.collection),
}
"""How to write a container, by its exact type: one of another class is an instance."""


def _names(code: types.CodeType) -> tuple[set[str], set[str], set[tuple[str, int]]]:
    """Globals, attributes or texts that may be attributes, and imports with their level, in a code and all within it."""
    steps = [step for step in dis.get_instructions(code) if step.opname != "EXTENDED_ARG"]
    used = {str(step.argval) for step in steps if "GLOBAL" in step.opname or step.opname == "LOAD_NAME"}
    imported = {
        (str(step.argval), int(steps[k - 2].argval or 0)) for k, step in enumerate(steps) if step.opname == "IMPORT_NAME"
    }
    attributes = {*code.co_names, *(one for one in code.co_consts if isinstance(one, str))}
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            for mine, theirs in zip((used, attributes, imported), _names(inner), strict=True):
                mine |= theirs  # type: ignore[operator]
    return used, attributes, imported


def _in_library(value: Any) -> str:
    """Version and name of a function or class that can be found under its name in a library, else nothing."""
    home, path = str(getattr(value, "__module__", "")), str(getattr(value, "__qualname__", "<"))
    version = _library(home)
    found: Any = sys.modules.get(home) if version else None
    for part in path.split("."):
        found = getattr(found, part, None)
    return f"{version} {home}.{path}" if found is value else ""


@functools.cache
def _library(name: str) -> str | None:
    """The library that a module belongs to, with its version; None for a module of the user's own."""
    top = name.partition(".")[0]
    module = sys.modules.get(name) or sys.modules.get(top)
    if module is None or name == "__main__":
        return None
    file = os.path.realpath(getattr(module, "__file__", None) or "")
    if top in sys.stdlib_module_names and (not getattr(module, "__file__", None) or file.startswith(STANDARD)):
        return f"python {platform.python_version()}"
    if top != __name__.partition(".")[0] and not {"site-packages", "dist-packages"} & set(file.split(os.sep)):
        return None
    version = getattr(sys.modules.get(top), "__version__", None)
    if not version:
        try:
            version = importlib.metadata.version(top)
        except importlib.metadata.PackageNotFoundError:
            with open(file, "rb") as source:
                version = hashlib.sha256(source.read()).hexdigest()
    return f"{top} {version}"


STANDARD = tuple({os.path.realpath(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib")})
"""Folders of the standard library."""
