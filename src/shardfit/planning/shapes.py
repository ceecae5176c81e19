"""The placed objective as shapes only: what `Objective.place` would make, without touching a number."""

from dataclasses import replace
from typing import Any

import jax
import numpy as np
from jax.sharding import AbstractMesh, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from shardfit.core.mesh import ROWS, n_shards
from shardfit.core.objective import Objective
from shardfit.core.size_classes import class_of, room_for
from shardfit.core.terms import RowTerm


def placed_shapes(objective: Objective, mesh: Mesh | AbstractMesh | int | None) -> Objective:
    """Return the objective with a ShapeDtypeStruct for every leaf, as placed on a mesh.

    A number stands for that many row shards, on devices that need not exist: the result is one shard's share.
    """
    real: Any = None if isinstance(mesh, int) else mesh
    everywhere = None if real is None else NamedSharding(real, P())
    split = None if real is None else NamedSharding(real, P(ROWS))
    shards = count_shards(mesh)

    def put(term):
        if not isinstance(term, RowTerm):
            return jax.tree.map(lambda leaf: shape_of(leaf, everywhere), term)
        n_local, padded = local_rows(term, shards), is_padded(term, shards)
        held = 1 if real is None else shards
        rows = jax.tree.map(lambda leaf: shape_of(leaf, split, (held * n_local, *leaf.shape[1:])), term.rows)
        bare = jax.tree.map(lambda leaf: shape_of(leaf, everywhere), replace(term, rows=None, counts=None))
        counts = jax.ShapeDtypeStruct((held,), np.int32, sharding=everywhere) if padded else None
        return replace(bare, rows=rows, counts=counts)

    return Objective(tuple(put(t) for t in objective.terms), objective.names, real, objective.precision)


def shape_of(leaf: Any, sharding: Any = None, shape: tuple | None = None) -> jax.ShapeDtypeStruct:
    """Return a leaf's shape and its type in the present precision."""
    kind = jax.typeof(leaf)
    return jax.ShapeDtypeStruct(kind.shape if shape is None else shape, kind.dtype, sharding=sharding)


def count_shards(mesh: Mesh | AbstractMesh | int | None) -> int:
    """Return over how many shards rows are split: a mesh, a bare number, or None for one."""
    return mesh if isinstance(mesh, int) else n_shards(mesh)


def local_rows(term: RowTerm, shards: int) -> int:
    """Return how many rows, padding included, a term has on one shard."""
    return room_for(term.rows, -(-term.n_rows // shards))


def is_padded(term: RowTerm, shards: int) -> bool:
    """Return whether a term's rows have padding on some shard, or room for it."""
    n_local = -(-term.n_rows // shards)
    return class_of(term.rows, n_local) is not None or n_local * shards != term.n_rows


def split_bytes(placed: Objective) -> tuple[int, int]:
    """Return bytes per device of the rows, and of everything that each device holds in full."""
    shards = n_shards(placed.mesh)
    row_sets = [term.rows for term in placed.terms if isinstance(term, RowTerm)]
    rows = n_bytes(row_sets)
    return rows // shards, n_bytes(placed) - rows


def n_bytes(tree: Any) -> int:
    """Return the bytes of all leaves."""
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def working_devices(mesh: Mesh | int | None) -> list:
    """Return the devices of this process that take part; a bare number is spread over those there are."""
    local = jax.local_devices()
    if isinstance(mesh, Mesh):
        return [d for d in mesh.devices.flat if d.process_index == jax.process_index()] or local[:1]
    return local[: mesh or 1]
