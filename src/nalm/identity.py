"""The identity of a factory: a text that differs wherever code or values that decide what it builds differ.

It follows from the factory alone: byte code, defaults, closures, bases, instances' state, and every global that the code names,
function by function. Code of libraries counts by its name and version, and nothing is imported. There are no addresses and no
order of sets in it, so another process gives the same text.
"""

from __future__ import annotations

import builtins
import copyreg
import dis
import fnmatch
import functools
import hashlib
import importlib.metadata
import itertools
import os
import pickle
import platform
import re
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
OUTSIDE = {
    "builtins bz2 codecs datetime gzip h5py importlib io joblib lzma mmap numpy pandas pathlib PIL.Image polars safetensors "
    "safetensors.torch scipy.io.wavfile shelve socket sqlite3 sys tarfile torch torch.hub torch.jit urllib.request uuid "
    "zipfile": "*argv *File FileIO HDFStore Path PosixPath WindowsPath __import__ _getframe connect date datetime eval exec "
    "from_file fromfile fromregex genfromtxt globals import_module input load* memmap mmap modules open path read read_* "
    "reload safe_open scan_* socket stdin url* uuid*",
    "getpass glob numpy.random os os.path platform random scipy.io secrets shutil subprocess time": "[a-z]* Popen",
}
"""Patterns of names, by modules, of what no code tells: files, the environment, other programs, time, chance."""
UNTOLD_PARTS = {
    *("__abstractmethods__", "__annotate__", "__annotate_func__", "__annotations__", "__annotations_cache__", "__dict__"),
    *("__doc__", "__firstlineno__", "__module__", "__orig_bases__", "__parameters__", "__qualname__", "__slotnames__"),
    *("__static_attributes__", "__type_params__", "__weakref__", "_abc_impl"),
}
"""Parts of a class that do not decide what it computes, or that Python keeps for itself."""


class UntoldError(Exception):
    """A value in a factory whose content cannot be told; the message names it."""


def identity(*values: Any) -> str:
    """Identity of values such as a factory and its options; UntoldError where it cannot be told."""
    teller = _Teller()
    try:
        teller.tell(values)
    except UntoldError:
        raise
    except Exception as error:  # an object that does not answer ordinary questions, or one that is nested too deeply
        raise UntoldError(f"{type(error).__name__}: {error}") from error
    return teller.hash.hexdigest()[:24]


class _Teller:
    """Writes values into one hash, each with its kind and length; a mutable value that comes again is told by its number."""

    def __init__(self) -> None:
        self.hash = hashlib.sha256()
        self.met: dict[int, tuple[int, Any]] = {}
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
        _refuse(value)
        if type(value) in ATOMS:
            self.put(type(value).__name__, ATOMS[type(value)](value))
        elif id(value) in self.met:
            self.put("met", str(self.met[id(value)][0]))
        elif known := _in_library(value):
            self.put("library", known)
        else:
            if not isinstance(value, (tuple, frozenset, types.CodeType)):
                self.met[id(value)] = (len(self.met), value)  # kept, so that no other gets its id
            self.put(type(value).__name__)
            fitting = (write for kinds, write in WRITERS if isinstance(value, kinds))
            (CONTAINERS.get(type(value)) or next(fitting, _Teller.instance))(self, value)

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
        self.sequence(sorted(identity(value) for value in values))

    def tensor(self, value: torch.Tensor) -> None:
        """Numbers of a tensor, and what else decides what it does."""
        try:
            data = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        except (RuntimeError, TypeError, ValueError, NotImplementedError):  # PyTorch's words for sparse, fake and the like
            raise UntoldError(f"a {type(value).__name__} without plain numbers") from None
        form = str((value.dtype, tuple(value.shape), value.requires_grad, value.device))
        self.tell((type(value), form, data, vars(value)))

    def array(self, value: Any) -> None:
        """Numbers of an array."""
        data = value.tolist() if value.dtype.hasobject else value.tobytes()
        self.tell((type(value), str(value.dtype.descr), value.shape, data, getattr(value, "__dict__", None)))

    def code(self, code: types.CodeType) -> None:
        """What a piece of code does, wherever it stands in its file."""
        counts = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
        names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
        self.tell((code.co_code, counts, names, getattr(code, "co_exceptiontable", b""), code.co_consts))

    def function(self, value: types.FunctionType) -> None:
        """Code of a function, its defaults, its closure, and what it names outside itself."""
        self.code(value.__code__)
        self.tell((value.__defaults__, value.__kwdefaults__, vars(value)))
        names = value.__code__.co_freevars
        cells = {name: cell.cell_contents for name, cell in zip(names, value.__closure__ or (), strict=True)}
        if _library(str(value.__globals__.get("__name__"))) is None:
            self.named(value.__code__, {**vars(builtins), **value.__globals__, **cells})
        else:
            self.tell(cells)

    def named(self, code: types.CodeType, space: dict[str, Any]) -> None:
        """What the code of a function of the user's names outside itself."""
        for name, *rest in sorted(_names(code)):
            self.put("name" if name in space else "absent", name)
            value = space.get(name)
            while isinstance(value, types.ModuleType) and rest:
                known = _library(value.__name__)
                self.put("attribute", f"{known} {rest[0]}" if known else rest[0])
                if not known and rest[0] not in vars(value):
                    raise UntoldError(f"module {value.__name__} has no {rest[0]} yet")
                value = getattr(value, rest.pop(0), None)
                if known and not isinstance(value, types.ModuleType):
                    _refuse(value)
                    value = None  # of a library, the version is enough
            self.tell(value)

    def module(self, module: types.ModuleType) -> None:
        """A module that is handed on: a library's by its version, one of the user's with all that it holds."""
        known = _library(module.__name__)
        self.put("module", f"{known} {module.__name__}" if known else "")
        for name, value in () if known else sorted(vars(module).items()):
            if name[:2] != "__" and not (isinstance(value, types.ModuleType) and _library(value.__name__)):
                self.put("attribute", name)
                self.tell(value)

    def kind(self, cls: type) -> None:
        """A class with its bases; one of compiled code by its name."""
        self.put("class", "" if cls.__flags__ & HEAP else f"{cls.__module__}.{cls.__qualname__}")
        self.tell((type(cls), cls.__bases__))
        for name, value in sorted(vars(cls).items()):
            if name not in UNTOLD_PARTS and cls.__flags__ & HEAP:
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
        try:
            parts = [list(one) if isinstance(one, Iterator) else one for one in _parts(value)]
        except Exception:  # a class may raise anything when it is to be pickled
            raise UntoldError(f"it holds a {type(value).__name__}") from None
        self.tell(parts)
        if not _in_library(type(value)):  # pickling may leave out what counts
            slot = types.MemberDescriptorType
            members = [name for cls in type(value).__mro__ for name, one in vars(cls).items() if isinstance(one, slot)]
            self.tell([getattr(value, "__dict__", None), *(getattr(value, name, None) for name in members)])
            self.tell([base(value) for base in PLAIN if isinstance(value, base)])


HEAP = 1 << 9
"""Flag of classes that were made by running code, not compiled into the interpreter."""

PLAIN: tuple[type[Any], ...] = (dict, list, tuple, set, frozenset, str, bytes, int, float)
"""Classes that other classes extend, whose content counts."""

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
    (types.ModuleType, _Teller.module),
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


def _names(code: types.CodeType) -> set[tuple[str, ...]]:
    """Names from outside a code and all within it, each with the attributes that are taken at once."""
    steps = [step for step in dis.get_instructions(code) if step.opname != "EXTENDED_ARG"]
    names = set().union(*(_names(inner) for inner in code.co_consts if isinstance(inner, types.CodeType)))
    for k, step in enumerate(steps):
        if step.opname == "IMPORT_NAME":
            raise UntoldError(f"{code.co_name} imports {step.argval or 'a module'}, which belongs at the top of its file")
        if "GLOBAL" in step.opname or "DEREF" in step.opname or step.opname == "LOAD_NAME":
            taken = itertools.takewhile(lambda one: one.opname in ("LOAD_ATTR", "LOAD_METHOD"), steps[k + 1 :])
            names.add((step.argval, *(one.argval for one in taken)))
    return {name for name in names if name[0] not in code.co_cellvars}


@functools.lru_cache(maxsize=1)
def _outside(_: int) -> dict[int, tuple[str, Any]]:
    """By id, all that `OUTSIDE` means in the modules that are loaded (the argument is their number)."""
    found: dict[int, tuple[str, Any]] = {}
    for homes, names in OUTSIDE.items():
        pattern = re.compile("|".join(fnmatch.translate(name) for name in names.split()))
        for home, module in ((home, sys.modules[home]) for home in homes.split() if home in sys.modules):
            if home not in ("numpy", "torch"):
                found[id(module)] = (home, module)
            for name, value in vars(module).items():
                own = home == "builtins" or getattr(value, "__module__", "") != "builtins"
                if own and not isinstance(value, (types.ModuleType, *ATOMS)) and pattern.match(name):
                    found.setdefault(id(value), (f"{home}.{name}".removeprefix("builtins."), value))
    return found


def _refuse(value: Any) -> None:
    if id(value) in (outside := _outside(len(sys.modules))):
        raise UntoldError(f"what {outside[id(value)][0]} gives is not in the code")


def _parts(value: Any) -> Any:
    """What an object would be restored from after pickling; one of Numba's compiled functions by its source."""
    if type(value).__module__.startswith("numba.") and hasattr(value, "py_func"):
        return value.py_func, value.targetoptions, None if value._can_compile else str(value.signatures)
    reduce: Any = copyreg.dispatch_table.get(type(value))
    parts = reduce(value) if reduce else value.__reduce_ex__(4)
    if isinstance(parts, str):
        home = pickle.whichmodule(value, parts)  # type: ignore[attr-defined]
        parts = (home, parts, _library(home)) if getattr(sys.modules.get(home), parts, None) is value else None
    return parts


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
