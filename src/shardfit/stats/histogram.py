"""Soft histograms: every row is a normal distribution, and bins collect probability instead of points.

The statistic is cumulative, the number above each edge: K + 1 distribution functions serve K bins, and sparse bins at
the upper end are differences of small numbers. `bin_counts` turns totals into counts per bin, inside the loss.
"""

from typing import Any

import jax
import jax.numpy as jnp

from shardfit.stats.normal import cdf

SHARPNESS = 25.0  # a smooth bin's edges are this many times narrower than the bin


def above(location: jax.Array, scale: Any, edges: jax.Array) -> jax.Array:
    """Return the probability of each row above each edge: location (n,), one scale, edges (k,) → (n, k)."""
    inverse = 1 / jnp.asarray(scale)
    # as a product: its pull-back is one too, over rows in one pass, and rows stay the quick axis
    steps = jnp.stack([-edges * inverse, jnp.broadcast_to(inverse, edges.shape)], axis=1)
    lines = jnp.stack([jnp.ones_like(location), location])
    return cdf(steps @ lines).T


def bin_counts(totals: jax.Array) -> jax.Array:
    """Return the counts (k - 1,) between neighbouring edges from totals of `above`."""
    return -jnp.diff(totals)


def window(x: jax.Array, lower: Any, upper: Any) -> jax.Array:
    """Return the smooth membership of x in a bin: the product of two logistic steps, a 25th of the bin wide."""
    width = (upper - lower) / SHARPNESS
    return jax.nn.sigmoid((x - lower) / width) * jax.nn.sigmoid((upper - x) / width)
