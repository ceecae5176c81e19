"""Values of many points at once: a batch at a time, each batch split over the mesh's axis `runs`."""

from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from shardfit.core import reduce
from shardfit.core.blocks import with_resolved_chunk
from shardfit.core.mesh import RUNS
from shardfit.core.objective import Objective
from shardfit.core.params import Space
from shardfit.core.rows import leading
from shardfit.core.terms import RowTerm

LARGEST_BATCH = 1 << 23  # contributions of rows held at once: 64 MB in float64


def values_at(space: Space, objective: Objective, points: jax.Array, key: Any, at_once: int | None = None) -> jax.Array:
    """Return the objective's values (p,) at coordinates points (p, n), the same on every device.

    at_once: how many are evaluated together; by default as many as keep the rows' contributions below 64 MB, whatever
    the mesh, so that it does not change the numbers.
    """
    n_points, mesh = points.shape[0], objective.mesh
    runs = 1 if mesh is None else mesh.shape.get(RUNS, 1)
    points = placed(points, mesh)  # or the split would spread to whatever the points come from
    at_once = at_once or max(1, LARGEST_BATCH // _contributions(space, objective, points[0], key))
    batches = -(-n_points // at_once)
    size = -(-n_points // (batches * runs)) * runs
    # copies of the last point: any other filling could be outside the model's domain
    filling = jnp.broadcast_to(points[-1], (batches * size - n_points, points.shape[1]))
    stacked = jnp.concatenate([points, filling]).reshape(batches, size, -1)

    def batch(points):
        points = placed(points, mesh, RUNS)
        return jax.vmap(lambda z: reduce.value(objective, space.unpack(z), key))(points)

    values = batch(stacked[0]) if batches == 1 else jax.lax.map(batch, stacked)
    return placed(values.reshape(-1)[:n_points].astype(points.dtype), mesh)


def placed(array: jax.Array, mesh: Mesh | None, *axes: str) -> jax.Array:
    """Return an array split over axes of the mesh, or the same on every device, inside compiled code."""
    return array if mesh is None else jax.lax.with_sharding_constraint(array, NamedSharding(mesh, P(*axes)))


def _contributions(space, objective, point, key) -> int:
    """Return how many numbers the rows of one block contribute at one point."""

    def of_one_row(z, key, term, position):
        return term.contributions(space.unpack(z), term.rows, reduce.term_key(term, key, position))

    total = 1
    params = jax.eval_shape(space.unpack, point)
    for position, term in enumerate(objective.terms):
        if isinstance(term, RowTerm):
            term = with_resolved_chunk(term, params, reduce.term_key(term, key, position))
            rows = leading(term.rows)
            block = rows if term.chunk is None else min(term.chunk, rows)
            shapes = jax.eval_shape(lambda z, k, t, i=position: of_one_row(z, k, t, i), point, key, term)
            numbers = sum(leaf.size for leaf in jax.tree.leaves(shapes))
            total += block + numbers if term.sums_blocks else block * numbers // rows
    return total
