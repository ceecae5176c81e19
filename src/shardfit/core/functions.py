"""Equal functions are one function: a closure or lambda that is made anew for every data set shares its programs.

JAX keeps compiled programs by the functions they were traced from, and `lambda p, r: ...` inside a loop is another
function object in every round. The one that stands for all of them is a copy whose closure and defaults can no longer
change: a program that was compiled for it stays right, whatever becomes of the variables that the closure was made of.
"""

import dis
import functools
import types
from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import Any, NamedTuple, cast
from weakref import WeakKeyDictionary, WeakSet

import numpy as np

from shardfit.core.recent import Recent

SMALL = 1 << 12  # bytes of an array that a closure may hold to be compared by its numbers
EXACT = (bool, int, str, bytes, type(None), type(...), types.CodeType)
FUNCTIONS = ("fn", "loss", "slopes")  # fields of terms that hold a user's function


_known = Recent()
FROZEN: WeakSet = WeakSet()  # functions that stand for others, whose closures cannot change


class _Frozen(NamedTuple):
    """What tells a value apart, and the value such that it cannot change."""

    key: Hashable
    value: Any


class _Itself:
    """Key of an object that only equals itself; holding it keeps its address from being used again."""

    def __init__(self, value: Any):
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Itself) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


class _NotShared(Exception):
    """A function that refers to itself, or that changes the variables of its closure."""


def shared(fn: Callable) -> Callable:
    """Return the function that stands for all of the same code with an equal closure and equal defaults.

    Numbers, texts and small arrays in a closure are compared by value, other objects by identity. Globals are the same
    variables for all of them; a function whose code was exchanged is another one. What is no plain function, refers to
    itself, or assigns to the variables of its closure, stands for itself.
    """
    if not isinstance(fn, types.FunctionType | functools.partial) or _of_library(fn):
        return fn
    try:
        frozen = _frozen(fn, ())
    except _NotShared:
        return fn
    known = _known.get(frozen.key)
    return _known.put(frozen.key, frozen.value) if known is None else known


def _of_library(fn: Any) -> bool:
    """Return whether a function is one of this package's own: there is one of each, which is known by identity."""
    return getattr(fn, "__module__", "").partition(".")[0] == "shardfit" and not getattr(fn, "__closure__", None)


def with_shared_functions(terms: tuple) -> tuple:
    """Return terms with the functions that stand for theirs; the same tuple if these are the same."""
    changed = [_with_shared(term) for term in terms]
    return terms if all(a is b for a, b in zip(changed, terms, strict=True)) else tuple(changed)


def _with_shared(term: Any) -> Any:
    own = {name: getattr(term, name) for name in FUNCTIONS if getattr(term, name, None) is not None}
    changed = {name: one for name, fn in own.items() if (one := shared(fn)) is not fn}
    return replace(term, **changed) if changed else term


def shared_objective(objective: Any) -> Any:
    """Return the objective with the functions that stand for its own."""
    terms = with_shared_functions(objective.terms)
    if terms is objective.terms:
        return objective
    return type(objective)(terms, objective.names, objective.mesh, objective.precision)


_problems: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()


def shared_problem(problem: Any) -> Any:
    """Return the problem with the functions that stand for its own: the same one while their closures do not change."""
    objective, space = shared_objective(problem.objective), shared_space(problem)
    if objective is problem.objective and space is problem.space:
        return problem
    known = _problems.get(problem)
    if known is None or not (
        _same_functions(known.objective.terms, objective.terms) and known.space.ties == space.ties
    ):
        known = _problems[problem] = problem.with_checked(objective, space)
    return known


def shared_space(problem: Any) -> Any:
    """Return the problem's space with the functions that stand for those of its ties."""
    ties = tuple(tie._replace(fn=shared(tie.fn)) for tie in problem.space.ties)
    return problem.space if ties == problem.space.ties else replace(problem.space, ties=ties)


def _same_functions(some: tuple, others: tuple) -> bool:
    pairs = zip(some, others, strict=True)
    return all(getattr(a, name, None) is getattr(b, name, None) for a, b in pairs for name in FUNCTIONS)


def _frozen(value: Any, above: tuple[int, ...]) -> _Frozen:
    """Return key and unchangeable copy; above: addresses of the functions that the value is part of."""
    kind = type(value)
    if kind in EXACT:
        return _Frozen((kind, value), value)
    if kind is float or kind is complex:
        return _Frozen((kind, repr(value)), value)  # 0.0 equals -0.0, and NaN nothing
    if isinstance(value, np.ndarray | np.generic) and kind.__module__ == "numpy" and _small(value):
        copy = value.copy()
        if isinstance(copy, np.ndarray):
            copy.flags.writeable = False
        return _Frozen((kind, value.shape, value.dtype.str, value.tobytes()), copy)
    if kind is tuple:
        each = [_frozen(entry, above) for entry in cast(tuple, value)]
        return _Frozen((tuple, *(one.key for one in each)), tuple(one.value for one in each))
    if id(value) in above:
        raise _NotShared
    if isinstance(value, types.FunctionType):
        return _function(value, (*above, id(value)))
    if isinstance(value, functools.partial):
        return _partial(value, (*above, id(value)))
    return _Frozen(_Itself(value), value)


def _small(array: Any) -> bool:
    return array.nbytes <= SMALL and not array.dtype.hasobject


def _function(fn: types.FunctionType, above: tuple[int, ...]) -> _Frozen:
    if fn.__closure__ and _assigns(fn.__code__):
        raise _NotShared
    cells = [_frozen(_content(cell), above) for cell in fn.__closure__ or ()]
    defaults = _frozen(fn.__defaults__, above)
    named = {name: _frozen(value, above) for name, value in (fn.__kwdefaults__ or {}).items()}
    fields = {name: _frozen(value, above) for name, value in fn.__dict__.items()}
    key = (
        types.FunctionType,
        fn.__code__,
        fn.__qualname__,
        _Itself(fn.__globals__),
        defaults.key,
        *(cell.key for cell in cells),
        *((name, one.key) for held in (named, fields) for name, one in held.items()),
    )
    closure = None if fn.__closure__ is None else tuple(types.CellType(cell.value) for cell in cells)
    copy = types.FunctionType(fn.__code__, fn.__globals__, fn.__name__, defaults.value, closure)
    copy.__kwdefaults__ = {name: one.value for name, one in named.items()} or None
    copy.__qualname__, copy.__module__, copy.__doc__ = fn.__qualname__, fn.__module__, fn.__doc__
    copy.__annotations__ = fn.__annotations__
    copy.__dict__.update({name: one.value for name, one in fields.items()})
    FROZEN.add(copy)
    return _Frozen(key, copy)


def _partial(fn: functools.partial, above: tuple[int, ...]) -> _Frozen:
    inner, args = _frozen(fn.func, above), _frozen(fn.args, above)
    named = {name: _frozen(value, above) for name, value in fn.keywords.items()}
    key = (functools.partial, inner.key, args.key, *((name, one.key) for name, one in named.items()))
    values = {name: one.value for name, one in named.items()}
    return _Frozen(key, functools.partial(inner.value, *args.value, **values))


@functools.cache
def _assigns(code: types.CodeType) -> bool:
    """Return whether a function, or one inside it, assigns to a variable that it was closed over."""
    inner = [const for const in code.co_consts if isinstance(const, types.CodeType)]
    writes = {i.argval for i in dis.get_instructions(code) if i.opname in ("STORE_DEREF", "DELETE_DEREF")}
    return bool(writes & set(code.co_freevars)) or any(_assigns(each) for each in inner)


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # a variable that was never given a value: the function would fail when called
        raise _NotShared from None
