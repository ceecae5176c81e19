"""When are two objects made of functions the same? If the same code made them from equal values.

`optax.adam(1e-2)` gives new function objects at every call, and compiled loops are kept by what they are given: by this
key a fresh but equal transformation finds the loop that was compiled for an earlier one.
"""

import dataclasses
import enum
import functools
import types
from collections.abc import Hashable
from typing import Any

import jax
import numpy as np

PLAIN = (bool, int, float, complex, str, bytes, type(None), type, np.dtype, enum.Enum, types.CodeType)
LARGEST = 1 << 20  # bytes of an array that are compared; a larger one is the same only as the same object


class Key:
    """A hashable description of an object; its hash is computed once."""

    def __init__(self, value: Any):
        self.parts = _parts(value, ())
        self.hash = hash(self.parts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Key) and self.hash == other.hash and self.parts == other.parts

    def __hash__(self) -> int:
        return self.hash


class _Same:
    """An object that equals only itself; holding it keeps its address from being used again."""

    def __init__(self, value: Any):
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


def _parts(value: Any, above: tuple[int, ...]) -> Hashable:
    """Return what tells a value apart; above: addresses of the objects it is part of."""
    if isinstance(value, PLAIN):
        return type(value), value
    if id(value) in above:  # a function that refers to itself
        return "above", len(above) - above.index(id(value))
    inner = functools.partial(_parts, above=(*above, id(value)))
    if isinstance(value, np.ndarray | np.generic | jax.Array):
        small = value.nbytes <= LARGEST and not getattr(value, "is_deleted", bool)()
        return (value.shape, str(value.dtype), np.asarray(value).tobytes()) if small else _Same(value)
    if isinstance(value, tuple | list):
        return type(value), *map(inner, value)
    if isinstance(value, dict):
        return dict, *((inner(name), inner(entry)) for name, entry in value.items())
    if isinstance(value, types.FunctionType):
        cells = [_content(cell) for cell in value.__closure__ or ()]
        values = (value.__defaults__, value.__kwdefaults__, *cells)
        return value.__code__, _Same(value.__globals__), *map(inner, values)
    if isinstance(value, types.MethodType):
        return types.MethodType, inner(value.__func__), inner(value.__self__)
    if isinstance(value, functools.partial):
        return functools.partial, inner(value.func), inner(value.args), inner(value.keywords)
    if dataclasses.is_dataclass(value):
        return type(value), *(inner(getattr(value, field.name, None)) for field in dataclasses.fields(value))
    return _Same(value)


def _content(cell: types.CellType) -> Any:
    """Return what a closure holds; a name that was never given a value has an empty cell, as in optax's schedules."""
    try:
        return cell.cell_contents
    except ValueError:
        return "empty"
