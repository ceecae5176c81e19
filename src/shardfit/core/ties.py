"""Tied parameters: numbers that follow the others by a function, so that no fit moves them by themselves.

To a solver they are held numbers; wherever coordinates become parameters, their values are computed. Derivatives, and
with them error bars, pass through.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from shardfit.core.rules import called


class Tie(NamedTuple):
    """A tied parameter: its name, where it is (leaf, and index within), and its function of all parameters."""

    name: str
    leaf: int
    index: Any
    fn: Callable[[Any], Any]


def tied_together(ties: tuple[Tie, ...], params: Any) -> Any:
    """Return parameters with the values of the tied ones, each computed from those before it."""
    for tie in ties:
        leaves, tree = jax.tree.flatten(params)
        leaf = jnp.asarray(leaves[tie.leaf])
        leaves[tie.leaf] = leaf.at[tie.index].set(jnp.asarray(called(tie.fn, params)).astype(leaf.dtype))
        params = tree.unflatten(leaves)
    return params


def check_tie(tie: Tie, params: Any, unknown: list[Tie]) -> None:
    """Raise where a tie's function gives no number of the parameter's shape, or needs what is not known before it."""
    where = f"tied: the function of {tie.name}"
    leaves, tree = jax.tree.flatten(params)
    shape = np.asarray(leaves[tie.leaf])[tie.index].shape
    given = called(tie.fn, params)
    if not jax.tree_util.all_leaves([given]) or not np.issubdtype(np.asarray(given).dtype, np.floating):
        raise TypeError(f"{where} returned {type(given).__name__}. Return one number, or an array of shape {shape}.")
    if np.shape(given) not in ((), shape):
        raise ValueError(f"{where} returned shape {np.shape(given)}, and the parameter has shape {shape}.")
    if not np.isfinite(np.asarray(given)).all():
        raise ValueError(f"{where} is not finite at x0.")
    for later in unknown:
        leaves[later.leaf] = np.array(leaves[later.leaf])
        leaves[later.leaf][later.index] = np.nan
    if not np.isfinite(np.asarray(called(tie.fn, tree.unflatten(leaves)))).all():
        raise ValueError(
            f"{where} depends on {tie.name} itself or on one tied later. Give them in the order in which they follow."
        )
