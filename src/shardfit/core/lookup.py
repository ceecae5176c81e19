"""What a name in a function refers to, followed through modules and plain objects, and what is known by its name."""

import builtins
import functools
import importlib
import importlib.util
import inspect
import random
import sys
import types
from importlib import metadata
from typing import Any, NamedTuple

import numpy as np

from shardfit.core.bytecode import Use

MISSING = object()
# names that everybody gives to these modules: a function that uses them alone computes the same at any time
USUAL = {"np": "numpy", "jnp": "jax.numpy", "lax": "jax.lax", "sf": "shardfit"}
CONSTANTS = {"pi", "e", "inf", "nan", "newaxis", "tau", "euler_gamma"}
DRAWS = (np.random.mtrand._rand, getattr(random, "_inst", None))  # the generators behind functions of these modules
NAMED = (globals, builtins.__import__, importlib.import_module, sys.modules)
LOOKS_UP = (*NAMED, eval, exec, sys._getframe, inspect.currentframe, inspect.stack)


class Found(NamedTuple):
    """What a use refers to. of_library: an object of a library that its place there tells apart.

    volatile: it may be another one the next time.
    """

    value: Any
    path: str
    volatile: bool = True
    of_library: bool = False


def is_dynamic(value: Any) -> bool:
    """Return whether something looks other things up by a text."""
    return any(value is one for one in LOOKS_UP)


def takes_names(value: Any) -> bool:
    """Return whether it does so by plain names, of globals or modules."""
    return any(value is one for one in NAMED)


def looked_up(use: Use, names: dict, cells: dict[str, types.CellType]) -> Found:
    """Return what a use refers to. names: the code's globals; cells: variables that it is closed over."""
    value, volatile = _root(use, names, cells)
    path, rest = [use.name], list(use.attributes)
    while rest:
        of_library = isinstance(value, types.ModuleType) and package_of(value.__name__) is not None
        following = _attribute(value, rest[0])
        if following is None:
            break
        value, name = following[0], rest.pop(0)
        path.append(name)
        if not of_library:
            volatile = True
        elif not isinstance(value, types.ModuleType):
            volatile |= name not in CONSTANTS and getattr(value, "__name__", None) != name
            if not _is_own(value):
                return Found(value, ".".join(path), volatile, of_library=True)
            volatile = True
    return Found(value, ".".join(path), volatile)


def _root(use: Use, names: dict, cells: dict[str, types.CellType]) -> tuple[Any, bool]:
    """Return what the first name of a use refers to, and whether it may be exchanged."""
    if use.kind == "free":
        try:
            return cells[use.name].cell_contents, False  # as far as closures can change, the function tells
        except ValueError:
            return MISSING, True
    if use.kind == "import":
        module = _imported(use.name, names)
        return module, module is MISSING or package_of(module.__name__) is None
    if use.name in names:
        value = names[use.name]
        usual = isinstance(value, types.ModuleType) and value.__name__ == USUAL.get(use.name, use.name)
        return value, not usual or package_of(value.__name__) is None
    built_in = names.get("__builtins__", builtins)
    built_in = vars(built_in) if isinstance(built_in, types.ModuleType) else built_in
    value = built_in.get(use.name, MISSING)
    return value, value is MISSING or value is not getattr(builtins, use.name, None)


def _attribute(value: Any, name: str) -> tuple[Any] | None:
    """Return an attribute that counts alone; None where all of the value counts."""
    if name == "__dict__":
        return None
    if isinstance(value, types.ModuleType):
        try:
            return (getattr(value, name),)
        except Exception:  # a module may have a __getattr__ of its own
            return (MISSING,)
    kind = type(value)
    if isinstance(value, type):  # a class as a namespace: its attributes that no code of its own uses
        held = next((vars(base)[name] for base in value.__mro__ if name in vars(base)), MISSING)
        return (held,) if kind is type and type(held) in (bool, int, float, complex, str) else None
    held = getattr(value, "__dict__", {})
    plain = kind.__getattribute__ is object.__getattribute__ and package_of(kind.__module__) is None
    return (held[name],) if plain and name in held and not hasattr(kind, name) else None


def _is_own(value: Any) -> bool:
    """Return whether something found in a library must be read: the user's, or a number that could be set."""
    if isinstance(value, types.FunctionType):
        return package_of(value.__globals__.get("__name__") or "") is None
    if isinstance(value, type):
        return package_of(value.__module__) is None
    if isinstance(value, bool | int | float | complex | str | bytes | np.ndarray | np.generic):
        return True
    return package_of(type(value).__module__) is None or is_dynamic(value)


def _imported(name: str, names: dict) -> Any:
    """Return a module, or MISSING. One that was not imported yet is, as the code would do."""
    try:
        name = importlib.util.resolve_name(name, names.get("__package__") or "")
        return sys.modules.get(name) or importlib.import_module(name)
    except Exception:  # modules raise anything while they are imported
        return MISSING


@functools.cache
def package_of(module: str) -> str | None:
    """Return the installed package (with its version) that a module belongs to; None for a user's own module."""
    top = module.partition(".")[0]
    if top in sys.stdlib_module_names:
        return "python" if top != "__main__" else None
    if top == "shardfit":
        return top  # its version, Python's and others' are noted beside a run
    owner = sys.modules.get(top)
    places = [getattr(owner, "__file__", None) or "", *getattr(owner, "__path__", ())]
    if not any(part in place for place in places for part in ("site-packages", "dist-packages")):
        return None
    try:
        return f"{top} {metadata.version(top)}"
    except metadata.PackageNotFoundError:
        return f"{top} {getattr(owner, '__version__', '')}"


def known_by_name(value: Any) -> tuple[str, str, str] | None:
    """Return package, module and name of what a library has under that name; None for anything else."""
    if any(value is one for one in DRAWS):
        return "python", "random", type(value).__qualname__
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str):
        return None
    package = package_of(module)
    if package is None:
        return None
    found = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return (package, module, name) if found is value else None
