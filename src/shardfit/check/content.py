"""Digests of values by what they hold: numbers, arrays, containers, traced programs, functions, objects.

A traced program is read equation by equation, with its constants, down into loops, calls and branches. Code that JAX
cannot see is read by its instructions, constants, defaults, closures and the functions it calls; those of an installed
package count by name and version. Names of variables, comments, docstrings, files and lines are left out.
"""

import contextlib
import dis
import enum
import functools
import hashlib
import logging
import re
import sys
import types
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from importlib import metadata
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from shardfit.check.digests import digest
from shardfit.core.result import Result

# of an equation: where it runs, how memory is used, and rules that a traced derivative has already followed
IGNORED = re.compile(
    "name|.*shardings?|.*layouts?|.*mesh|donated_invars|inline|keep_unused|compiler_options.*|.*debug_info|"
    "policy|prevent_cse|differentiated|jvp_jaxpr_fun|jvp_jaxpr_thunk|fwd_jaxpr_thunk|bwd|symbolic_zeros"
)
# of a class: what Python adds to it
ADDED = re.compile(
    "__(dict|weakref|doc|module|qualname|annotations|firstlineno|static_attributes|annotat\\w*)__|_abc_.*"
)
ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+|0x[0-9a-fA-F]{6,}")
CALL_FLAGS = 0x2EC  # of a function's code: varargs, keywords, generator, coroutine
PLAIN = (type(None), bool, int, float, complex, str, bytes, types.EllipsisType)
GLOBAL_OPS = {"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"}
# of a class: places of fields whose names it has elsewhere
SLOTS = (types.GetSetDescriptorType, types.MemberDescriptorType, type(vars(NamedTuple("_", [("field", Any)]))["field"]))


class Reader:
    """Reads values; `unidentified` collects what it could not look into, each with where it was."""

    def __init__(self, where: str = ""):
        self.where, self.unidentified = where, []
        self.host = False  # whether code or objects of the user's own were read, which may change after a trace
        self.done: dict[int, tuple[Any, bytes]] = {}  # with the object, so that its address is not used again
        self.open: list[int] = []
        self.ways: tuple[tuple[Any, Callable[[Any], bytes]], ...] = (
            # from JAX 0.12 on one class is both, and its jaxpr is itself: it must not be taken for a recursion
            (ClosedJaxpr, lambda x: _joined("program", self._jaxpr(x.jaxpr), *map(self.read, x.consts))),
            (Jaxpr, self._jaxpr),
            ((np.ndarray, np.generic, jax.Array), lambda x: _joined("array", digest(x))),
            (np.dtype, lambda x: _joined("dtype", str(x))),
            (enum.Enum, lambda x: _joined("enum", type(x).__qualname__, x.name)),
            ((dict, types.MappingProxyType), self._dict),
            ((set, frozenset), lambda x: _joined("set", *sorted(map(self.read, x)))),
            ((list, tuple), lambda x: _joined(type(x).__name__, *map(self.read, x))),
            (functools.partial, lambda x: _joined("partial", *map(self.read, (x.func, x.args, x.keywords)))),
            (types.MethodType, lambda x: _joined("method", self.read(x.__func__), self.read(x.__self__))),
            (types.FunctionType, self._function),
            (types.CodeType, self._code),
            (types.ModuleType, lambda x: _joined("module", _package(x.__name__) or "", x.__name__)),
            (logging.Logger, lambda x: _joined("logger")),
            (Result, lambda x: _joined("result", *map(self.read, (x.params, x.state)))),  # not how long it took
            (type, self._class),
            (object, self._object),
        )

    def text(self, value: Any) -> str:
        """Return the digest of a value as text."""
        return self.read(value).hex()

    def program(self, where: str, fn: Callable, first: Any, *rest: Any) -> str:
        """Return the digest of fn(first, *rest) and of its derivative with respect to `first`."""
        self.where = f"the {where}"

        def pulled(first, *rest):
            value, pull = jax.vjp(lambda x: fn(x, *rest), first)
            return value, pull(jax.tree.map(jnp.ones_like, value))

        def pushed(first, *rest):
            return jax.jvp(lambda x: fn(x, *rest), (first,), (jax.tree.map(jnp.ones_like, first),))

        traced = None
        for derived in (pulled, pushed):
            with contextlib.suppress(Exception):  # no derivative of this mode: JAX and users' rules raise anything
                traced = jax.make_jaxpr(derived)(first, *rest)
                break
        return self.text(traced or jax.make_jaxpr(fn)(first, *rest))

    def read(self, value: Any) -> bytes:
        """Return the digest of a value."""
        if type(value) in PLAIN:
            return _joined(type(value).__name__, repr(value))
        address = id(value)
        if address in self.done:
            return self.done[address][1]
        if address in self.open:
            return _joined("recursion", str(len(self.open) - self.open.index(address)))
        self.open.append(address)
        try:
            content = next(way for kind, way in self.ways if isinstance(value, kind))(value)
        finally:
            self.open.pop()
        self.done[address] = value, content
        return content

    def _dict(self, value: Any) -> bytes:
        return _joined("dict", *sorted(self.read(k) + self.read(v) for k, v in value.items()))

    def _jaxpr(self, jaxpr: Any) -> bytes:
        numbers: dict[Any, int] = {}

        def atom(x):
            if isinstance(x, Literal):
                return _joined("literal", _type_of(x.aval), self.read(np.asarray(x.val)))
            return _joined("variable", str(numbers.setdefault(x, len(numbers))), _type_of(x.aval))

        parts = [*map(atom, jaxpr.constvars), b"in", *map(atom, jaxpr.invars)]
        for step in jaxpr.eqns:
            options = {k: v for k, v in step.params.items() if not IGNORED.fullmatch(k)}
            parts += [step.primitive.name.encode(), *map(atom, step.invars), self._dict(options)]
            parts += map(atom, step.outvars)
        return _joined("jaxpr", *parts, b"out", *map(atom, jaxpr.outvars))

    def _function(self, fn: types.FunctionType) -> bytes:
        package, cells = _package(fn.__module__ or ""), list(_cells(fn))
        if package is not None:
            inner = cells if "<locals>" in fn.__qualname__ else []
            return _joined("function", package, fn.__module__, fn.__qualname__, *map(self.read, inner))
        self.host = True
        own = map(self.read, (fn.__code__, fn.__defaults__, fn.__kwdefaults__, cells))
        used = (self.read([name, *_named(fn, name)]) for name in sorted(_names(fn.__code__)))
        return _joined("code", *own, *used)

    def _code(self, code: types.CodeType) -> bytes:
        parts = [repr((code.co_argcount, code.co_kwonlyargcount, code.co_flags & CALL_FLAGS)), code.co_exceptiontable]
        for step in dis.get_instructions(code):
            if step.opcode in dis.hasconst:
                operand = self.read(step.argval)
            elif step.opcode in dis.hasname or step.opcode in dis.hasjrel:
                operand = str(step.argval)
            else:  # a variable by its place: its name does not matter
                operand = str(step.arg)
            parts += [step.opname, operand]
        return _joined("instructions", *parts)

    def _class(self, kind: type) -> bytes:
        package = _package(kind.__module__)
        if package is not None:
            return _joined("class", package, kind.__module__, kind.__qualname__)
        own = {k: v for k, v in vars(kind).items() if not ADDED.fullmatch(k) and not isinstance(v, SLOTS)}
        return _joined("class", self._dict(own), *map(self.read, kind.__bases__))

    def _object(self, value: Any) -> bytes:
        kind, module = type(value), getattr(value, "__module__", None)
        if isinstance(value, staticmethod | classmethod | property):
            return _joined(kind.__name__, *(self.read(getattr(value, n, None)) for n in ("__func__", "fget", "fset")))
        if callable(inside := getattr(value, "__wrapped__", None)):  # jit and its like
            return self.read(inside)
        if callable(value) and isinstance(module, str) and hasattr(value, "__qualname__") and _package(module):
            return _joined("built-in", _package(module) or "", module, value.__qualname__)
        if hasattr(value, "__array__") and hasattr(value, "dtype"):
            return self.read(np.asarray(value))
        content, self.host = _content(value), True
        if content is None and (_package(kind.__module__) or "").startswith("jax"):
            return _joined(kind.__qualname__, ADDRESS.sub("", repr(value)))
        if content is None:
            text = f"{self.where} uses a {kind.__module__}.{kind.__qualname__}, whose content cannot be read"
            self.unidentified.append(text)
            return _joined("unidentified", kind.__qualname__)
        return _joined("object", self.read(kind), self.read(content))


def _joined(kind: str, *parts: bytes | str) -> bytes:
    total = hashlib.sha256(kind.encode())
    for part in parts:
        raw = part.encode() if isinstance(part, str) else part
        total.update(len(raw).to_bytes(8, "little") + raw)
    return total.digest()


def _type_of(aval: Any) -> str:
    return f"{getattr(aval, 'dtype', aval)}{getattr(aval, 'shape', '')}"


@functools.cache
def _package(module: str) -> str | None:
    """Return the installed package (with its version) that a module belongs to; None for a user's own module."""
    top = module.partition(".")[0]
    if top in sys.stdlib_module_names:
        return "python"
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


def _names(code: types.CodeType) -> set[str]:
    inner = (_names(const) for const in code.co_consts if isinstance(const, types.CodeType))
    return set(code.co_names).union(*inner)


def _globals_of(code: types.CodeType) -> set[str]:
    """Return the names that code looks up among globals; the names of attributes are others."""
    inner = (_globals_of(const) for const in code.co_consts if isinstance(const, types.CodeType))
    own = {step.argval for step in dis.get_instructions(code) if step.opname in GLOBAL_OPS}
    return own.union(*inner)


def _named(fn: types.FunctionType, name: str) -> Iterator[Any]:
    """Yield what a name in a function refers to: a global, and that attribute of a module of the user's own."""
    if name in fn.__globals__ and name in _globals_of(fn.__code__):
        value = fn.__globals__[name]
        if not isinstance(value, types.ModuleType) or _package(value.__name__) is not None:
            yield value
    for other in sorted(_names(fn.__code__)):
        module = fn.__globals__.get(other)
        if isinstance(module, types.ModuleType) and _package(module.__name__) is None and hasattr(module, name):
            yield getattr(module, name)


def _cells(fn: types.FunctionType) -> Iterator[Any]:
    for cell in fn.__closure__ or ():
        with contextlib.suppress(ValueError):  # a cell that is not filled yet
            yield cell.cell_contents


def _content(value: Any) -> dict[str, Any] | None:
    """Return an object's fields; None for one that may keep something where Python cannot look."""
    if is_dataclass(value):
        return {f.name: getattr(value, f.name) for f in fields(value)}
    kind = type(value)
    if kind.__new__ is not object.__new__ and not isinstance(kind.__new__, types.FunctionType):
        return None  # made by compiled code
    slots = [n for base in kind.__mro__ for n in getattr(base, "__slots__", ()) if not n.startswith("__")]
    return {**getattr(value, "__dict__", {}), **{n: getattr(value, n) for n in slots if hasattr(value, n)}}
