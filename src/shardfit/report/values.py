"""Numbers as people read them: a value to the digits its error allows, one line per scalar parameter."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from shardfit.core.params import label_of
from shardfit.core.result import Result
from shardfit.core.text import number, pair

__all__ = ["Coordinate", "coordinates", "number", "pair", "seconds", "solver_name", "summaries", "times"]

MOST_ENTRIES = 16  # longer arrays are summarised, not listed


class Coordinate(NamedTuple):
    """One scalar parameter; error is None where the solver gives none."""

    name: str
    value: float
    error: float | None
    unit: str


def coordinates(result: Result, params: Any = None) -> list[Coordinate]:
    """Return every scalar of the parameters, short arrays entry by entry; long arrays are left out.

    params: another pytree of the same structure (a truth, another fit) to read instead of the result's own.
    """
    rows = []
    tree = result.params if params is None else params
    paths = jax.tree_util.tree_flatten_with_path(tree)[0]
    errors = [None] * len(paths) if result.stderr is None else jax.tree.leaves(result.stderr)
    for (path, leaf), error in zip(paths, errors, strict=True):
        array, name = np.asarray(leaf, float), label_of(path) or "x"
        if array.size > MOST_ENTRIES:
            continue
        spread = None if error is None else np.broadcast_to(np.asarray(error, float), array.shape)
        for index in np.ndindex(*array.shape):
            label = name + (f"[{','.join(map(str, index))}]" if index else "")
            sigma = None if spread is None else float(spread[index])
            rows.append(Coordinate(label, float(array[index]), sigma, result.units.get(name, "")))
    return rows


def summaries(result: Result) -> list[tuple[str, str, str, str]]:
    """Return (name, value, 1σ, unit) as text, one line per scalar, one per long array."""
    rows = []
    scalars = {c.name: c for c in coordinates(result)}
    for path, leaf in jax.tree_util.tree_flatten_with_path(result.params)[0]:
        name, array = label_of(path) or "x", np.asarray(leaf)
        if array.size > MOST_ENTRIES:
            text = f"{times(array.shape)} values, {array.min():.4g} … {array.max():.4g}, mean {array.mean():.4g}"
            rows.append((name, text, "", result.units.get(name, "")))
            continue
        own = [scalars[name]] if array.ndim == 0 else [c for n, c in scalars.items() if n.startswith(f"{name}[")]
        rows.extend((c.name, *pair(c.value, c.error), c.unit) for c in own)
    return rows


def times(shape: Sequence[int]) -> str:
    """Return the shape of an array as people say it: '60 × 140'."""
    return " × ".join(map(str, shape))


def seconds(value: float) -> str:
    """Return a duration as text: '35 ms', '2.41 s', '3 min 20 s'."""
    if value < 1:
        return f"{value * 1e3:.3g} ms"
    if value < 120:
        return f"{value:.3g} s"
    minutes, rest = divmod(round(value), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def solver_name(result: Result) -> str:
    """Return the solver without its options."""
    return result.solver.partition("(")[0]
