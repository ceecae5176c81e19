"""Parameters that a fit holds: which numbers, and at which values."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import numpy as np

from shardfit.core.errors import suggestion
from shardfit.core.params import leaf_labels
from shardfit.core.rules import called
from shardfit.core.ties import Tie, check_tie

FORMS = "Give names ('tau', 'stars.mass', 'w[2]'), a list of them, {name: value}, or booleans in the structure of x0."


def hold(fixed: Any, params: Any) -> tuple[list[np.ndarray], Any]:
    """Return for every leaf which numbers are held, boolean arrays of its shape, and params with their values.

    fixed: a name or path of a leaf, of a subtree or of one number; a list of these; a dict from them to the value to
    hold, or to booleans (True: held at its value in params); or booleans in the structure of params.

    Example: `hold({"tau": 0.3, "w": [True, False]}, {"tau": np.array(1.0), "w": np.zeros(2)})`.
    """
    leaves, treedef = jax.tree.flatten(params)
    labels = leaf_labels(params)
    leaves = [np.array(leaf) for leaf in leaves]
    masks = [np.zeros(leaf.shape, bool) for leaf in leaves]
    for name, value in _entries(fixed, params):
        places = _places(name, labels, leaves)
        if value is None or isinstance(value, bool | np.bool_):
            for i, index in places:
                masks[i][index] = value is None or bool(value)
            continue
        if len(places) > 1:
            several = ", ".join(labels[i] for i, _ in places)
            raise ValueError(f"fixed: {name!r} names several parameters ({several}). Give each a value by its name.")
        (i, index), array = places[0], np.asarray(value)
        try:
            array = np.broadcast_to(array, leaves[i][index].shape)
        except ValueError:
            raise ValueError(f"fixed: {name} has shape {leaves[i][index].shape}, not {array.shape}.") from None
        if array.dtype == bool:
            masks[i][index] = array
        else:
            leaves[i][index], masks[i][index] = _numbers(name, array), True
    return masks, jax.tree.unflatten(treedef, leaves)


def tie_up(tied: Any, masks: list[np.ndarray], params: Any) -> tuple[tuple[Tie, ...], list[np.ndarray], Any]:
    """Return the ties of {name: function of all parameters}, which numbers are held then, and params with their values.

    Example: `tie_up({"b": lambda p: 2 * p["a"]}, masks, {"a": np.array(1.0), "b": np.array(0.0)})`.
    """
    if not isinstance(tied, Mapping) or not all(callable(fn) for fn in tied.values()):
        raise TypeError("tied: give {name: function of all parameters}, such as {'b': lambda p: 2 * p['a']}.")
    leaves, treedef = jax.tree.flatten(params)
    leaves, masks, labels = [np.array(leaf) for leaf in leaves], [np.array(mask) for mask in masks], leaf_labels(params)
    ties = []
    for name, fn in tied.items():
        places = _places(name, labels, leaves, "tied")
        if len(places) > 1:
            raise ValueError(f"tied: {name!r} names several parameters. Tie each by its own name.")
        ties.append(Tie(name, *places[0], fn))
    for i, tie in enumerate(ties):
        masks[tie.leaf][tie.index] = True
        check_tie(tie, treedef.unflatten(leaves), ties[i:])
        leaves[tie.leaf][tie.index] = np.asarray(called(tie.fn, treedef.unflatten(leaves)))
    return tuple(ties), masks, treedef.unflatten(leaves)


def _entries(fixed: Any, params: Any) -> Iterator[tuple[str, Any]]:
    """Yield names and what to do with them: a value, booleans, or None to hold the value in params."""
    if fixed is None:
        return
    if isinstance(fixed, str):
        yield fixed, None
    elif isinstance(fixed, dict):
        yield from _named("", fixed)
    elif isinstance(fixed, list | tuple | set | frozenset) and all(isinstance(name, str) for name in fixed):
        yield from ((name, None) for name in fixed)
    else:
        try:
            flags = jax.tree.structure(params).flatten_up_to(fixed)
        except ValueError:
            raise TypeError(f"fixed={fixed!r} is not understood. {FORMS}") from None
        yield from zip(leaf_labels(params), map(_booleans, flags), strict=True)


def _named(prefix: str, entries: dict) -> Iterator[tuple[str, Any]]:
    for name, value in entries.items():
        if isinstance(value, dict):
            yield from _named(f"{prefix}{name}.", value)
        else:
            yield f"{prefix}{name}", value


def _booleans(flags: Any) -> np.ndarray:
    array = np.asarray(flags)
    if array.dtype != bool:
        raise TypeError(f"fixed={flags!r} is not understood. {FORMS}")
    return array


def _numbers(name: str, array: np.ndarray) -> np.ndarray:
    if not (np.issubdtype(array.dtype, np.floating) or np.issubdtype(array.dtype, np.integer)):
        raise TypeError(f"fixed: the value of {name} is {array.dtype}. Give a number, or True to hold it at x0.")
    if not np.isfinite(array).all():
        raise ValueError(f"fixed: the value of {name} is not finite.")
    return array


def _places(name: str, labels: tuple[str, ...], leaves: list[np.ndarray], what: str = "fixed") -> list[tuple[int, Any]]:
    """Return (leaf, index) of all that a name stands for."""
    below = [i for i, label in enumerate(labels) if label == name or label.startswith((f"{name}.", f"{name}["))]
    if below:
        return [(i, ...) for i in below]
    element = re.fullmatch(r"(.+)\[([\d, ]+)\]", name)
    if element and element[1] in labels:
        i, index = labels.index(element[1]), tuple(int(k) for k in element[2].split(","))
        shape = leaves[i].shape
        if len(index) != len(shape) or any(k >= n for k, n in zip(index, shape, strict=True)):
            raise ValueError(f"{what}: no number {name!r}: {element[1]} has shape {shape}.")
        return [(i, index)]
    raise ValueError(f"{what}: no parameter {name!r}.{suggestion(name, labels)}")
