"""Row sets: a pytree of arrays with one common leading axis, split over shards and walked in chunks.

A row set on S shards has S * n_local rows; `counts` (S,) says how many of each shard's rows are real. The others are
copies of a real row (zeros would give log(0) or angle(0) in a user's function) and are masked out of every sum. Where
all rows are real, `counts` is None and no mask is made.
"""

import hashlib
import itertools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from shardfit.core.mesh import ROWS, fetch, gather, n_shards, processes_of, ranks_of, replicate
from shardfit.core.row_tables import as_arrays
from shardfit.core.shape_structs import shape_struct
from shardfit.core.size_classes import class_of

CHECK_BLOCK = 1 << 22  # elements looked at in one go, so that checking 1e8 rows does not double their memory


class Numbered(NamedTuple):
    """Rows with their numbers (n,) in the whole data, which they keep wherever they are taken, split or padded."""

    rows: Any
    number: Any


def numbered(rows: Any) -> Numbered:
    """Return rows with their numbers from 0 on."""
    return Numbered(rows, np.arange(leading(rows), dtype=np.uint32))


def leading(rows: Any) -> int:
    """Return the length of the common leading axis."""
    return jax.tree.leaves(rows)[0].shape[0]


def shapes_of_rows(rows: Any, n: int) -> Any:
    """Return the shapes of n rows: enough to trace a model, nothing is evaluated."""
    return jax.tree.map(lambda leaf: shape_struct(leaf, (n, *leaf.shape[1:])), rows)


def check_rows(where: str, rows: Any, checked: bool = False) -> Any:
    """Return rows with array leaves, or raise an error that names the leaf, the reason and the remedy.

    checked: shapes and types are looked at, numbers are not.
    """
    rows = as_arrays(where, rows)
    paths, treedef = jax.tree_util.tree_flatten_with_path(rows)
    if not paths:
        raise ValueError(f"{where}: rows has no arrays. Pass a dict of arrays with one common leading axis.")
    leaves = []
    for path, leaf in paths:
        label = f"{where}: rows{jax.tree_util.keystr(path)}"
        if hasattr(leaf, "columns"):  # of pandas, polars, astropy
            raise TypeError(f"{label} is a table. Pass its columns as arrays: {{'x': np.asarray(table['x']), ...}}.")
        if not isinstance(leaf, jax.Array | np.ndarray):
            leaf = np.asarray(leaf)
        if leaf.dtype.kind in "OSUMm":
            raise TypeError(f"{label} is not numeric. Pass numbers in NumPy or JAX arrays.")
        leaf = native_order(label, leaf)
        if leaf.ndim == 0:
            raise ValueError(
                f"{label} is a scalar; rows need a leading axis. "
                "Turn a list into np.array(list); pass a shared number through args."
            )
        leaves.append((label, leaf))
    sizes = {label: leaf.shape[0] for label, leaf in leaves}
    if len(set(sizes.values())) > 1:
        lengths = ", ".join(f"{label.split(': ')[1]} has {n}" for label, n in sizes.items())
        raise ValueError(f"{where}: leading axes differ ({lengths}). Every array of rows needs one entry per row.")
    # one of several processes may have none: place_local counts all
    if next(iter(sizes.values())) == 0 and jax.process_count() == 1:
        raise ValueError(f"{where}: there are zero rows. Check the selection that made them; nothing can be fitted.")
    for (label, leaf), (path, _) in zip(leaves, paths, strict=True):
        name = getattr(path[-1], "key", getattr(path[-1], "name", "")) if path else ""
        if not checked:
            _check_values(label, leaf, is_sigma=name == "sigma")
    return jax.tree_util.tree_unflatten(treedef, [leaf for _, leaf in leaves])


def native_order(label: str, leaf: Any) -> Any:
    """Return what JAX takes: NumPy arrays in the byte order of this machine, which those from files may not have."""
    if not isinstance(leaf, np.ndarray):
        return leaf
    dtype = leaf.dtype
    if dtype.kind == "V" and not jnp.issubdtype(dtype, np.number):
        raise TypeError(f"{label} is a structured array. Pass its fields as arrays: {{'x': table['x'], ...}}.")
    if dtype.itemsize > {"f": 8, "c": 16}.get(dtype.kind, dtype.itemsize):
        raise TypeError(f"{label} is {dtype}, which JAX does not have. Convert it: np.asarray(x, float).")
    if dtype.isnative:
        return leaf
    if isinstance(leaf, np.memmap):
        raise TypeError(
            f"{label} is a memory map in another byte order ({dtype.str}) than this machine's. Convert the file once, "
            "or take it into memory: np.array(x, x.dtype.newbyteorder('='))."
        )
    return leaf.astype(dtype.newbyteorder("="))


def _check_values(label: str, leaf: Any, is_sigma: bool) -> None:
    if isinstance(leaf, Tracer) or not (is_sigma or jnp.issubdtype(leaf.dtype, np.inexact)):
        return
    if isinstance(leaf, jax.Array) and not leaf.is_fully_addressable:
        return
    step = max(1, CHECK_BLOCK // max(1, math.prod(leaf.shape[1:])))
    for start in range(0, leaf.shape[0], step):
        block = np.asarray(leaf[start : start + step])
        bad = ~np.isfinite(block)
        if bad.any():
            row = start + int(np.argwhere(bad)[0][0])
            raise ValueError(
                f"{label} holds NaN or infinity, first in row {row}. Remove or flag these rows before making the term."
            )
        if is_sigma and (block <= 0).any():
            row = start + int(np.argwhere(block <= 0)[0][0])
            raise ValueError(
                f"{label} must be positive, but row {row} is {block[row - start]}. "
                "A standard deviation of zero or less has no meaning: remove such rows or give them their noise."
            )


def place_rows(rows: Any, counts: Any, mesh: Mesh) -> tuple[Any, jax.Array | None]:
    """Split rows over the mesh, each shard going straight from the host to its own device."""
    shards, sharding = n_shards(mesh), NamedSharding(mesh, P(ROWS))
    if all(isinstance(leaf, jax.Array) and leaf.sharding == sharding for leaf in jax.tree.leaves(rows)):
        return rows, counts
    rows = compact(rows, counts)
    n = leading(rows)
    n_local = -(-n // shards)
    starts = np.minimum(np.arange(shards + 1) * n_local, n)
    if shards == 1 and len(processes_of(mesh)) == 1 and class_of(rows, n) is None:
        return jax.device_put(rows, sharding), None
    return _split(rows, dict(enumerate(itertools.pairwise(starts))), np.diff(starts), mesh)


def in_class(rows: Any, counts: Any) -> tuple[Any, Any]:
    """Return rows padded to their size class, on the host where that takes copies, and how many are real."""
    n = leading(rows) if counts is None else int(np.sum(np.asarray(counts)))
    room = class_of(rows, n)
    if counts is not None and np.size(counts) == 1 and leading(rows) == room:
        return rows, counts
    rows = compact(rows, counts)
    return (rows, None) if room is None else (padded(rows, room), np.array([n], np.int32))


def padded(rows: Any, room: int) -> Any:
    """Return rows with copies of the last one, room of them in all; copies are for counts to mask."""
    n = leading(rows)
    return rows if n == room else jax.tree.map(lambda leaf: _with_copies(leaf[:n], leaf[n - 1 : n], room), rows)


def _with_copies(piece: Any, last: Any, room: int) -> np.ndarray:
    whole = aligned_empty((room, *piece.shape[1:]), piece.dtype)
    whole[: len(piece)], whole[len(piece) :] = piece, last
    return whole


def rows_from_process(rows: Any, mesh: Mesh) -> tuple[Any, jax.Array | None]:
    """Join the rows that each process holds to one row set, without sending any of them.

    Processes may hold different numbers of rows, or none; each splits its own over its own devices. All must call this.
    """
    _require_alike(rows, mesh)
    owners = [{d.process_index for d in np.ravel(devices)} for devices in np.moveaxis(mesh.devices, _axis(mesh), 0)]
    if any(len(owner) > 1 for owner in owners):
        raise ValueError(
            "rows of one process each: in this mesh a row shard lies on devices of several processes. Make `runs` a "
            "divisor of the number of devices of one process."
        )
    own = [shard for shard, owner in enumerate(owners) if owner == {jax.process_index()}]
    n = leading(rows)
    starts = np.array([i * n // len(own) for i in range(len(own) + 1)])
    counts = np.zeros(len(owners), np.int64)
    counts[own] = np.diff(starts)
    everyone = gather(counts, mesh)
    if isinstance(rows, Numbered):  # each process began at 0
        before = everyone[: ranks_of(mesh).index(jax.process_index())].sum()
        rows = rows._replace(number=(rows.number + before).astype(np.uint32))
    counts = everyone.sum(axis=0)
    if not counts.any():
        raise ValueError("place_local: no process has any rows. Check the selection that made them.")
    if not everyone.any(axis=1).all():
        rows = _with_a_row(rows, int(np.argmax(everyone.any(axis=1))), mesh)
    return _split(rows, dict(zip(own, itertools.pairwise(starts), strict=True)), counts, mesh)


def _require_alike(rows: Any, mesh: Mesh) -> None:
    """Raise, in every process, where one has rows of other names, types or shapes than the first."""
    paths, _ = jax.tree_util.tree_flatten_with_path(rows)
    facts = [f"rows{jax.tree_util.keystr(path)} {leaf.dtype} {leaf.shape[1:]}" for path, leaf in paths]
    own = np.frombuffer(hashlib.sha256(repr(facts).encode()).digest(), np.uint8)
    everyone, ranks = gather(own, mesh), ranks_of(mesh)
    differing = np.flatnonzero((everyone != everyone[0]).any(axis=1))
    if len(differing):
        raise ValueError(
            f"place_local: rows of rank {ranks[differing[0]]} differ from those of rank {ranks[0]} in names, types or "
            f"shapes of a row; here they are {', '.join(facts)}. Read them alike everywhere, an empty part too: "
            "np.zeros((0, 2), 'f4')."
        )


def _with_a_row(rows: Any, donor: int, mesh: Mesh) -> Any:
    """Return the rows of this process, or where it has none one row of the donor's, to be masked."""
    firsts = jax.tree.map(
        lambda leaf: np.asarray(leaf[:1]) if len(leaf) else np.zeros((1, *leaf.shape[1:]), leaf.dtype), rows
    )
    given = jax.tree.map(lambda first: gather(first, mesh)[donor], firsts)
    return rows if leading(rows) else given


def _axis(mesh: Mesh) -> int:
    return mesh.axis_names.index(ROWS)


def _split(rows: Any, ranges: dict, counts: np.ndarray, mesh: Mesh) -> tuple[Any, jax.Array | None]:
    """Make arrays with equally many rows per shard: shard s gets rows[start:stop], as ranges[s] says, then padding."""
    longest = int(counts.max())
    room = class_of(rows, longest)
    n_local = room or longest

    def put(leaf):
        def shard(index):
            start, stop = ranges[(index[0].start or 0) // n_local]
            piece = leaf[start:stop]
            if len(piece) == n_local:
                return piece
            last = max(stop, 1)  # a shard without rows repeats another's
            return _with_copies(piece, leaf[last - 1 : last], n_local)

        shape = (len(counts) * n_local, *leaf.shape[1:])
        return jax.make_array_from_callback(shape, NamedSharding(mesh, P(ROWS)), shard)

    placed = jax.tree.map(put, rows)
    if room is None and (counts == n_local).all():
        return placed, None
    return placed, replicate(counts.astype(np.int32), mesh)


def placed_order(rows: Any, counts: Any, mesh: Mesh | None) -> np.ndarray:
    """Return for every row that `place` makes of these which of them it is a copy of."""
    numbers = compact(np.arange(leading(rows)), counts)
    shards = n_shards(mesh)
    n_local = -(-len(numbers) // shards)
    room = class_of(rows, n_local) or n_local
    starts = np.minimum(np.arange(shards) * n_local, len(numbers))
    stops = np.minimum(starts + n_local, len(numbers))
    places = np.minimum(starts[:, None] + np.arange(room), np.maximum(stops, 1)[:, None] - 1)
    return numbers[places.ravel()]


def aligned_empty(shape: tuple, dtype: Any) -> np.ndarray:
    """Return an empty array that JAX takes over on a CPU without a copy, because it begins on a cache line."""
    size = math.prod(shape) * dtype.itemsize
    raw = np.empty(size + 64, np.uint8)
    begin = -raw.ctypes.data % 64
    return raw[begin : begin + size].view(dtype).reshape(shape)


def compact(rows: Any, counts: Any) -> Any:
    """Return the real rows only, on the host if the row set was padded."""
    if not all(leaf.is_fully_addressable for leaf in jax.tree.leaves(rows) if isinstance(leaf, jax.Array)):
        raise ValueError(
            "these rows are spread over several processes, which hold only their own: they cannot be moved. Make the "
            "objective anew on the mesh that you want."
        )
    if counts is None:
        return rows
    counts = np.asarray(counts)
    n_local = leading(rows) // len(counts)
    if len(counts) == 1:
        return jax.tree.map(lambda leaf: np.asarray(leaf)[: counts[0]], rows)  # no copy
    keep = np.concatenate([np.arange(c) + s * n_local for s, c in enumerate(counts)])
    return jax.tree.map(lambda leaf: np.asarray(leaf)[keep], rows)


def take(rows: Any, index: np.ndarray, counts: Any = None) -> Any:
    """Return the chosen real rows as host arrays; a memory map is read only where chosen.

    Rows that are spread over processes are collected from them; all processes must ask for the same ones.
    """
    if counts is not None:
        last = np.cumsum(np.asarray(counts))
        shard = np.searchsorted(last, index, side="right")
        index = index + shard * (leading(rows) // len(last)) - np.append(0, last)[shard]
    return jax.tree.map(lambda leaf: fetch(leaf, index), rows)


def my_rows(n: int, mesh: Mesh | None = None) -> slice:
    """Return which of n rows this process should load: equal parts in the order of ranks, all of them when alone.

    mesh: whose processes share the rows, such as those of a group (`my_group`); None: all processes.

    Example: `rows = {"t": np.load("t.npy", mmap_mode="r")[my_rows(n)]}`.
    """
    ranks = ranks_of(mesh)
    if jax.process_index() not in ranks:
        raise ValueError(f"my_rows: rank {jax.process_index()} has no devices in this mesh, whose ranks are {ranks}.")
    rank, size = ranks.index(jax.process_index()), len(ranks)
    return slice(*(n // size * r + min(r, n % size) for r in (rank, rank + 1)))


def sum_blocks(block_sum: Callable, rows: Any, counts: Any, chunk: int | None) -> Any:
    """Sum block_sum(block, mask) over the blocks of one shard; mask is None where every row counts.

    Without chunk the shard is one block. With it, a loop over n_blocks equal blocks holds one at a time; the last block
    starts early enough to stay inside, and its rows that were already counted are masked, so no padded copy is made.
    Blocks that are nothing but padding are left out.
    """
    n = leading(rows)
    if chunk is None or chunk >= n:
        return block_sum(rows, real_rows(rows, counts))
    n_blocks = -(-n // chunk)
    size = -(-n // n_blocks)

    @jax.jit  # traced once for its shapes and for the loop
    def at(i):
        begin = i * size
        start = jnp.minimum(begin, n - size)
        block = jax.tree.map(lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, start, size), rows)
        if counts is None and size * n_blocks == n:
            return block_sum(block, None)
        index = start + jnp.arange(size)
        return block_sum(block, (index >= begin) & (index < (n if counts is None else counts[0])))

    def add(totals, i):
        return [_added(*each) for each in zip(totals, jax.tree.leaves(at(i)), strict=True)]

    def step(totals, i):
        if counts is None:
            return add(totals, i), None
        return jax.lax.cond(i * size < counts[0], add, lambda totals, i: totals, totals, i), None

    shapes, tree = jax.tree.flatten(jax.eval_shape(at, jax.ShapeDtypeStruct((), jnp.int32)))
    zeros = [(jnp.zeros(s.shape, s.dtype),) * (2 if _short(s.dtype) else 1) for s in shapes]
    totals, _ = jax.lax.scan(step, zeros, jnp.arange(n_blocks, dtype=jnp.int32))
    return tree.unflatten([sum(parts[1:], parts[0]) for parts in totals])


def _short(dtype: Any) -> bool:
    return jnp.issubdtype(dtype, jnp.inexact) and jnp.finfo(dtype).bits < 64


def _added(total: tuple, more: jax.Array) -> tuple:
    """Return a running total plus one block; in short precision with what its digits could not hold beside it.

    Many blocks added one after the other lose a little each time, always to the same side where all are positive.
    """
    if len(total) == 1:
        return (total[0] + more,)
    held, lost = total
    together = held + more
    taken = together - held
    return together, lost + ((held - (together - taken)) + (more - taken))


def real_rows(rows: Any, counts: Any) -> jax.Array | None:
    """Return the mask of one shard's real rows; None where all are."""
    return None if counts is None else jnp.arange(leading(rows)) < counts[0]


def masked(mask: jax.Array | None, contribution: jax.Array) -> jax.Array:
    """Zero the contributions of masked rows; where, not product, so that NaN cannot leak out of a copy."""
    if mask is None:
        return contribution
    shaped = mask.reshape(mask.shape + (1,) * (contribution.ndim - 1))
    return jnp.where(shaped, contribution, jnp.zeros((), contribution.dtype))
