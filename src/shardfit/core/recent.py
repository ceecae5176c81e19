"""What was found out once need not be found out again: tables of what was used last, by the structure of arguments."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

NUMBERS = (bool, int, float, complex)


class Present(threading.local):
    """key: what tells the functions of this thread's present work from what they were or will be, see current.py."""

    key: tuple = ()


present = Present()


class Recent(OrderedDict[Hashable, Any]):
    """A table of what was used last."""

    def __init__(self, most: int = 256):
        super().__init__()
        self.most = most

    def get(self, key: Hashable, default: Any = None) -> Any:
        """Return what is known by the key, and count it as used."""
        if key not in self:
            return default
        self.move_to_end(key)
        return self[key]

    def put(self, key: Hashable, value: Any) -> Any:
        """Remember a value and return it; what was not used for longest is forgotten."""
        self[key] = value
        while len(self) > self.most:
            self.popitem(last=False)
        return value


_shapes = Recent(1024)


def shapes_of(fn: Callable, *args: Any) -> Any:
    """Return the shapes of what a function of a module gives, as `jax.eval_shape`, traced once for each structure."""
    if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(args)):
        return jax.eval_shape(fn, *args)
    kind = fn, structure(*args)
    known = _shapes.get(kind)
    return _shapes.put(kind, jax.eval_shape(fn, *args)) if known is None else known


def structure(*trees: Any) -> Hashable:
    """Return what a traced program sees of its arguments: their structure, shapes and types, and what is no number.

    With it comes what their functions are at present: one that reaches something else by now gives another program.
    """
    leaves, tree = jax.tree.flatten(trees)
    return present.key, tree, *map(_kind, leaves)


def _kind(leaf: Any) -> Hashable:
    if type(leaf) in NUMBERS:
        return type(leaf)
    if isinstance(leaf, np.ndarray | np.generic):
        return leaf.shape, leaf.dtype
    if isinstance(leaf, jax.Array | jax.ShapeDtypeStruct):
        return leaf.shape, leaf.dtype, getattr(leaf, "weak_type", False), leaf.sharding
    return leaf
