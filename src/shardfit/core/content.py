"""Digests of values by what they hold: numbers, arrays, containers, traced programs, functions, objects.

A traced program is read equation by equation, with its constants, down into loops, calls and branches. Code that JAX
cannot see is read by its instructions, constants, defaults, and everything that it looks up: globals, variables it is
closed over, attributes of modules however deep, what it imports. Those of an installed package count by name and
version. Names of variables, comments, docstrings, files and lines are left out. What cannot be followed is said.
"""

import collections
import contextlib
import dataclasses
import enum
import functools
import logging
import re
import threading
import types
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from shardfit.core.bytecode import Use, listing
from shardfit.core.cycles import Nodes, Part, joined
from shardfit.core.digests import digest
from shardfit.core.functions import FROZEN
from shardfit.core.lookup import MISSING, is_dynamic, known_by_name, looked_up, package_of, takes_names
from shardfit.core.result import Result

# of an equation: where it runs, how memory is used, and rules that a traced derivative has already followed
IGNORED = re.compile(
    "name|.*shardings?|.*layouts?|.*mesh|donated_invars|inline|keep_unused|compiler_options.*|.*debug_info|"
    "policy|prevent_cse|differentiated|jvp_jaxpr_fun|jvp_jaxpr_thunk|fwd_jaxpr_thunk|bwd|symbolic_zeros"
)
# of a class or an object: what Python adds to it, and what only says where and how it was written
ADDED = re.compile(
    "__(dict|weakref|doc|module|qualname|name|annotations|firstlineno|static_attributes|annotat\\w*|orig_bases|"
    "parameters|type_params)__|_abc_.*"
)
ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+|0x[0-9a-fA-F]{6,}")
PLAIN = frozenset((type(None), bool, int, float, complex, str, bytes, types.EllipsisType, types.NotImplementedType))
BASES = (bool, int, float, complex, str, bytes, list, tuple, dict, set, frozenset)
FILLED = (int, list, set, dict, collections.deque, collections.Counter, collections.defaultdict)
# of a class: places of fields whose names it has elsewhere
SLOTS = (types.GetSetDescriptorType, types.MemberDescriptorType, type(vars(NamedTuple("_", [("field", Any)]))["field"]))
DESCRIPTORS = {
    staticmethod: ("__func__",),
    classmethod: ("__func__",),
    property: ("fget", "fset"),
    functools.cached_property: ("func",),
    dataclasses.Field: ("name", "default", "default_factory", "init", "kw_only", "metadata"),
}
LOCKS = (type(threading.Lock()), type(threading.RLock()), logging.Logger)
TABLES = (weakref.WeakKeyDictionary, weakref.WeakValueDictionary, weakref.WeakSet)  # of what was found out before
MADE_BY_PYTHON = 1 << 9  # a flag of classes: they are no part of compiled code
GENERATORS = (np.random.Generator, np.random.BitGenerator, np.random.RandomState)

Parts = tuple[str, Iterable[Part], bool]  # label, parts, whether their order tells them apart


class Reader:
    """Reads values; `unidentified` collects what it could not look into, each with where it was.

    live: for this process only, where a state that cannot be found again in another one may be read.
    """

    def __init__(self, where: str = "", live: bool = False):
        self.where, self.live, self.unidentified = where, live, []
        self.host = False  # whether code or objects of the user's own were read, which may change after a trace
        self.volatile = False  # whether something was read that may be exchanged or changed in place
        self.path: list[str] = []
        self.nodes = Nodes()

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
        try:
            part = self._part(value)
        except RecursionError:
            self.nodes = Nodes()
            return self._not_read(value, "is nested too deeply to be read")
        assert isinstance(part, bytes), "all circles are closed"
        return part

    def _part(self, value: Any, name: str | None = None) -> Part:
        """Return the digest of a value, or its node in a circle; name: by which it was found."""
        if type(value) in PLAIN:
            return joined(type(value).__name__, repr(value))
        if name is not None:
            self.path.append(name)
        try:
            way = next(way for kind, way in WAYS if isinstance(value, kind))
            return self.nodes.add(value, lambda: way(self, value))
        finally:
            if name is not None:
                self.path.pop()

    def _held(self, label: str, *values: Any) -> Parts:
        return label, [*map(self._part, values)], True

    def _items(self, items: dict[str, Any]) -> list[Part]:
        """Return parts of a namespace, the order of which does not matter."""
        parts = ((key, self._part(value, key), value) for key, value in items.items())
        return [joined("item", k, p) if isinstance(p, bytes) else self._part((k, v)) for k, p, v in parts]

    def _dict(self, value: dict, ordered: bool = False) -> Part:
        pairs = [*map(self._part, value.items())]
        return self.nodes.add(pairs, lambda: ("dict", pairs, ordered))

    def _not_read(self, value: Any, why: str = "whose content cannot be read") -> bytes:
        kind, path = type(value), ".".join(self.path)
        what = f"a {kind.__module__}.{kind.__qualname__}"
        self.unidentified.append(f"{self.where} uses {path + ', ' if path else ''}{what}, {why}")
        return joined("unidentified", kind.__qualname__)

    # ---- numbers and programs -----------------------------------------------------------------------------------

    def _array(self, value: Any) -> Parts:
        frozen = isinstance(value, jax.Array | np.generic) or (value.base is None and not value.flags.writeable)
        self.volatile |= not frozen
        attributes = self._items(getattr(value, "__dict__", {})) if isinstance(value, np.ndarray) else []
        if value.dtype == object:
            return "objects", [joined(str(value.shape)), self._part(value.tolist()), *attributes], True
        weak = "weak" if getattr(value, "weak_type", False) else ""
        return "array", [joined(digest(value), weak), *attributes], True

    def _jaxpr(self, jaxpr: Any) -> Part:
        numbers: dict[Any, int] = {}

        def atom(x):
            if isinstance(x, Literal):
                return joined("literal", _type_of(x.aval), self.read(np.asarray(x.val)))
            return joined("variable", str(numbers.setdefault(x, len(numbers))), _type_of(x.aval))

        parts = [*map(atom, jaxpr.constvars), b"in", *map(atom, jaxpr.invars)]
        for step in jaxpr.eqns:
            options = {k: v for k, v in step.params.items() if not IGNORED.fullmatch(k)}
            parts += [step.primitive.name.encode(), *map(atom, step.invars), self._dict(options)]
            parts += map(atom, step.outvars)
        parts += [b"out", *map(atom, jaxpr.outvars)]
        return self.nodes.add(parts, lambda: ("equations", parts, True))

    # ---- code ---------------------------------------------------------------------------------------------------

    def _built_in(self, value: Any) -> Parts:
        """Read a function of compiled code, or a method of an object of such a class."""
        owner = value.__self__
        if owner is None or isinstance(owner, types.ModuleType) or known_by_name(owner):
            return "built-in", [joined("name", value.__module__ or "", value.__qualname__)], True
        return "method", [joined("name", value.__name__), self._part(owner)], True

    def _function(self, fn: types.FunctionType) -> Parts:
        package = package_of(fn.__globals__.get("__name__") or "")
        cells = dict(zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True))
        if package is not None:
            name = package, fn.__globals__["__name__"], fn.__code__.co_qualname
            inner = {} if known_by_name(fn) else {n: c.cell_contents for n, c in cells.items() if _is_filled(c)}
            return "function", [joined("name", *name), *self._items(inner)], False
        self.host = True
        self.volatile |= bool(cells or fn.__defaults__ or fn.__kwdefaults__ or fn.__dict__) and fn not in FROZEN
        fields = {name: value for name, value in fn.__dict__.items() if not ADDED.fullmatch(name)}
        named = self._items(fn.__kwdefaults__ or {}), self._items(fields)
        own = [self.nodes.add(space, lambda space=space: ("names", space, False)) for space in named]
        return "own code", [self._part(fn.__defaults__), *own, *self._code(fn.__code__, fn.__globals__, cells)], True

    def _code(self, code: types.CodeType, names: dict, cells: dict[str, Any]) -> Iterator[Part]:
        """Yield what code is made of. names: its globals; cells: by name the variables that it is closed over."""
        for part in listing(code):
            if isinstance(part, bytes):
                yield part
            elif isinstance(part, Use):
                yield from self._used(part, names, cells)
            elif isinstance(part.value, types.CodeType):
                inner = part.value
                free = {n: c for n, c in cells.items() if n in inner.co_freevars and n not in code.co_cellvars}
                yield b"code"
                yield from self._code(inner, names, free)
                yield b"end"
            else:
                yield self._part(part.value)

    def _used(self, use: Use, names: dict, cells: dict[str, Any]) -> Iterator[Part]:
        if use.kind == "free" and use.name not in cells:
            yield b"inner variable"
            return
        found = looked_up(use, names, cells)
        self.volatile |= found.volatile
        if is_dynamic(found.value):
            yield joined("looked up", found.path)
            if use.then is not None and takes_names(found.value):
                yield from self._used(use.then, names, cells)
            else:
                self.path.append(found.path)
                yield self._not_read(found.value, "which looks things up by names that are made while it runs")
                self.path.pop()
        elif found.value is MISSING:
            yield joined("missing", found.path)
        elif use.filled and type(found.value) in FILLED:
            yield b"filled"
        elif isinstance(found.value, types.ModuleType) and use.kept:
            yield b"module"
        elif found.of_library:
            yield joined("of a library", found.path)
        else:
            yield self._part(found.value, found.path)

    def _partial(self, value: functools.partial) -> Parts:
        named = self._items({**value.keywords, **vars(value)})
        held = self._part(value.func), self._part(value.args), self.nodes.add(named, lambda: ("names", named, False))
        return "partial", held, True

    def _module(self, module: types.ModuleType) -> Parts:
        """Read a module that is handed on, so that anything of it may be used."""
        package = package_of(module.__name__)
        if package is not None:
            return "module", [joined("name", package, module.__name__)], True
        self.volatile = True
        hidden = re.compile("_.*|In|Out|exit|quit|get_ipython" if module.__name__ == "__main__" else "__.*__")
        return "module", self._items({k: v for k, v in vars(module).items() if not hidden.fullmatch(k)}), False

    # ---- classes and objects ------------------------------------------------------------------------------------

    def _descriptor(self, value: Any) -> Parts:
        names = next(names for kind, names in DESCRIPTORS.items() if isinstance(value, kind))
        return self._held(type(value).__name__, *(getattr(value, name) for name in names))

    def _class(self, kind: type) -> Parts:
        package = package_of(kind.__module__)
        if package is not None:
            return "class", [joined("name", package, kind.__module__, kind.__qualname__)], True
        self.host = self.volatile = True
        own = {k: v for k, v in vars(kind).items() if not ADDED.fullmatch(k) and not isinstance(v, SLOTS)}
        members: list[Part] = []
        if isinstance(kind, enum.EnumMeta):
            own = {k: v for k, v in own.items() if not isinstance(v, kind) and not re.fullmatch("_[a-z0-9].*_", k)}
            own = {k: v for k, v in own.items() if k not in kind.__members__ and k != "__new__"}
            members = [self._member(*item) for item in kind.__members__.items()]
        bases = [*map(self._part, (type(kind), *kind.__bases__))]
        space = [*self._items(own)]
        return "class", [self.nodes.add(space, lambda: ("namespace", space, False)), *bases, *members], True

    def _member(self, name: str, value: Any) -> Part:
        fields = [joined(name), *self._items(self._fields(value))]
        return self.nodes.add(fields, lambda: ("member", fields, False))

    def _object(self, value: Any) -> Parts:
        kind = type(value)
        name = known_by_name(value)
        if name:
            return "built-in", [joined("name", *name)], True
        library = package_of(kind.__module__)
        inside = getattr(value, "__wrapped__", None)
        if library is not None and callable(inside) and _is_compiled(kind):
            return self._held("wrapped", inside)
        if hasattr(value, "__array__") and hasattr(value, "dtype") and library is not None:
            return self._array(np.asarray(value))
        self.host |= kind not in BASES
        frozen = getattr(getattr(kind, "__dataclass_params__", None), "frozen", False) and library is not None
        self.volatile |= not (frozen or kind in (tuple, frozenset) or (library or "").startswith("jax"))
        parts: list[Part] = [] if kind in BASES else [self._part(kind)]
        base = next((base for base in BASES if isinstance(value, base)), None)
        if base is not None:
            parts += self._base(value, base)
        elif _is_compiled(kind):
            return self._compiled(value, library)
        fields = [] if kind in BASES else self._items(self._fields(value))
        return "object", [*parts, self.nodes.add(fields, lambda: ("fields", fields, False))], True

    def _base(self, value: Any, base: Any) -> list[Part]:
        """Return what a container holds, or an object of a class derived from a built-in one."""
        if base in (list, tuple):
            return [joined(base.__name__), *map(self._part, base.__iter__(value))]
        if base is dict:
            return [self._dict(dict(dict.items(value)), ordered=True), self._part(getattr(value, "default_factory", 0))]
        if base in (set, frozenset):
            members = [*map(self._part, value)]
            return [self.nodes.add(members, lambda: ("set", members, False))]
        return [joined(base.__name__, base.__repr__(value))]

    def _fields(self, value: Any) -> dict[str, Any]:
        """Return an object's fields; what it has found out about itself only if that is something else by now."""
        kind = type(value)
        if dataclasses.is_dataclass(value) and package_of(kind.__module__) is not None:
            return {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if hasattr(value, f.name)}
        slots = [n for base in kind.__mro__ for n in _slots(base)]
        held = {**getattr(value, "__dict__", {}), **{n: getattr(value, n) for n in slots if hasattr(value, n)}}
        held = {name: one for name, one in held.items() if not ADDED.fullmatch(name)}
        if isinstance(value, enum.Enum):
            return {name: one for name, one in held.items() if name not in ("__objclass__", "_sort_order_")}
        for name in [] if self.live else [*held]:
            found = getattr(kind, name, None)
            if isinstance(found, functools.cached_property) and self._is_own_answer(found, value, held[name]):
                del held[name]
        return held

    def _is_own_answer(self, found: Any, value: Any, kept: Any) -> bool:
        with contextlib.suppress(Exception):  # users' properties raise anything
            return Reader().read(found.func(value)) == Reader().read(kept)
        return False

    def _compiled(self, value: Any, library: str | None) -> Parts:
        """Read an object of compiled code by what a copy would be made from."""
        kind = type(value)
        remake: Any = kind.__reduce_ex__
        if isinstance(value, jax.tree_util.PyTreeDef):
            return self._held("structure", value.node_data(), value.children())
        if (library or "").startswith("jax"):
            return kind.__qualname__, [joined(ADDRESS.sub("", repr(value)))], True
        if isinstance(value, np.ufunc) or (isinstance(value, GENERATORS) and not self.live):
            return "unidentified", [self._not_read(value)], True
        with contextlib.suppress(Exception):  # compiled code refuses with anything
            copied = remake(value, 4)
            if isinstance(copied, tuple):
                maker, given, state, *items = (*copied, None, None, None)[:5]
                return self._held("made by", maker, given, state, *(each and [*each] for each in items))
        return "unidentified", [self._not_read(value)], True


# by class, the first that fits
WAYS: tuple[tuple[Any, Callable[[Reader, Any], Parts]], ...] = (
    # from JAX 0.12 on one class is both, and its jaxpr is itself: it must not be taken for a recursion
    (ClosedJaxpr, lambda r, x: ("program", [r._jaxpr(x.jaxpr), *map(r._part, x.consts)], True)),
    (Jaxpr, lambda r, x: ("jaxpr", [r._jaxpr(x)], True)),
    ((np.ndarray, np.generic, jax.Array), Reader._array),
    (np.dtype, lambda r, x: ("dtype", [joined(str(x))], True)),
    (types.MappingProxyType, lambda r, x: r._object(dict(x))),
    (functools.partial, Reader._partial),
    (types.MethodType, lambda r, x: r._held("method", x.__func__, x.__self__)),
    ((types.BuiltinFunctionType, types.MethodWrapperType), Reader._built_in),
    (types.FunctionType, Reader._function),
    (types.CodeType, lambda r, x: ("code", r._code(x, {}, {}), True)),
    (types.ModuleType, Reader._module),
    (weakref.ref, lambda r, x: r._held("reference", x())),
    (tuple(DESCRIPTORS), Reader._descriptor),
    ((*LOCKS, *TABLES), lambda r, x: (type(x).__name__, (), True)),
    (Result, lambda r, x: r._held("result", x.params, x.state)),  # not how long it took
    (enum.Enum, lambda r, x: r._held("enum", type(x), x._name_, x._value_)),
    (type, Reader._class),
    (object, Reader._object),
)


def _type_of(aval: Any) -> str:
    return f"{getattr(aval, 'dtype', aval)}{getattr(aval, 'shape', '')}"


def _is_filled(cell: types.CellType) -> bool:
    """Return whether a variable has a value, and one that tells functions apart."""
    with contextlib.suppress(ValueError):
        return not isinstance(cell.cell_contents, TABLES)
    return False


def _slots(kind: type) -> list[str]:
    own = vars(kind).get("__slots__", ())
    named = [own] if isinstance(own, str) else [*own]
    private = f"_{kind.__name__.lstrip('_')}"
    return [private + n if n.startswith("__") and not n.endswith("__") else n for n in named if not ADDED.fullmatch(n)]


def _is_compiled(kind: type) -> bool:
    """Return whether objects of a class may keep something where Python cannot look."""
    if kind.__new__ is not object.__new__ and not isinstance(kind.__new__, types.FunctionType):
        return True
    return any(not base.__flags__ & MADE_BY_PYTHON for base in kind.__mro__ if base not in (object, *BASES))
