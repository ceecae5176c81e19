"""Plain values as JSON and arrays, and pytrees as plain values; what is stored can be read without running code."""

import functools
import math
from typing import Any

import jax
import numpy as np

from shardfit.core.params import label_of

ARRAY, TUPLE, FLOAT, DICT = "$array", "$tuple", "$float", "$dict"
MARKS = (ARRAY, TUPLE, FLOAT, DICT)


def _children(node: Any) -> list[tuple[Any, Any]] | None:
    """Return (key, child) of a pytree node one level down; None for a leaf."""
    below = jax.tree_util.tree_flatten_with_path(node, is_leaf=lambda x: x is not node)[0]
    if any(not path for path, _ in below):
        return None
    return [(_key(path[0]), child) for path, child in below]


def _key(entry: Any) -> Any:
    key = next((getattr(entry, n) for n in ("key", "name", "idx") if hasattr(entry, n)), str(entry))
    return key if key is None or isinstance(key, str | int | float) else str(key)


def _nodes(tree: Any):
    children = _children(tree)
    if children is not None:
        yield tree
        for _, child in children:
            yield from _nodes(child)


def kind_of(tree: Any) -> str:
    """Return the name of a container that is stored in plain form only, '' if there is none."""
    plain_kinds = (type(None), dict, list, tuple)
    return min((type(node).__name__ for node in _nodes(tree) if type(node) not in plain_kinds), default="")


def plain(tree: Any) -> Any:
    """Return a pytree as dicts, lists and tuples."""
    children = _children(tree)
    if children is None or tree is None:
        return tree
    if type(tree) in (list, tuple):
        return type(tree)(plain(child) for _, child in children)
    if type(tree) is dict:  # in its own order, which JAX sorts
        return {_key(jax.tree_util.DictKey(key)): plain(child) for key, child in tree.items()}
    return {key: plain(child) for key, child in children}


def rebuilt(like: Any, stored: Any, where: Any, lead: int = 0) -> Any:
    """Return stored leaves in the structure of `like`. lead: axes that they have before those of its leaves."""
    if stored is None:
        return None
    leaves = []
    for path, leaf in jax.tree_util.tree_flatten_with_path(like)[0]:
        try:
            found = functools.reduce(lambda node, entry: node[_key(entry)], path, stored)
        except (LookupError, TypeError):
            found = None
        if found is None or np.shape(found)[lead:] != np.shape(leaf):
            what = f"has no parameter {label_of(path)!r} of shape {np.shape(leaf)}"
            raise ValueError(f"{where}: the stored result {what}. Pass the x0 that was fitted.")
        leaves.append(found)
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


def encode(value: Any, path: str, arrays: dict) -> Any:
    """Return a plain value as JSON, its arrays put into `arrays`; raise TypeError for what cannot be stored."""
    if isinstance(value, dict):
        return _encode_dict(value, path, arrays)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return encode(dict(zip(value._fields, value, strict=True)), path, arrays)  # type: ignore[attr-defined]
    if isinstance(value, list | tuple):
        items = [encode(v, f"{path}/{i}", arrays) for i, v in enumerate(value)]
        return {TUPLE: items} if isinstance(value, tuple) else items
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {FLOAT: str(value)}
    array = np.asarray(value)
    if array.dtype.hasobject:
        raise TypeError(f"{path}: {type(value).__name__} cannot be stored. Use dicts, lists, tuples and arrays.")
    name = f"{len(arrays)}/{path}"  # numbered: keys may themselves hold a slash
    arrays[name] = array
    return {ARRAY: name}


def _encode_dict(value: dict, path: str, arrays: dict) -> dict:
    for key in value:
        if key in MARKS or not (key is None or isinstance(key, str | int | float)):
            raise TypeError(
                f"{path}: key {key!r} cannot be stored. Use numbers, or text other than {', '.join(MARKS)}."
            )
    items = [(key, encode(v, f"{path}/{key}", arrays)) for key, v in value.items()]
    return dict(items) if all(isinstance(key, str) for key in value) else {DICT: [list(item) for item in items]}


def decode(value: Any, arrays: dict) -> Any:
    """Return what encode was given."""
    if isinstance(value, list):
        return [decode(v, arrays) for v in value]
    if not isinstance(value, dict):
        return value
    if set(value) == {ARRAY}:
        return arrays[value[ARRAY]]
    if set(value) == {TUPLE}:
        return tuple(decode(v, arrays) for v in value[TUPLE])
    if set(value) == {FLOAT}:
        return float(value[FLOAT])
    if set(value) == {DICT}:
        return {key: decode(v, arrays) for key, v in value[DICT]}
    return {key: decode(v, arrays) for key, v in value.items()}
