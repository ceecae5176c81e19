"""Digests of arrays and rows: they tell data apart, whatever devices and processes hold them."""

import hashlib
from collections.abc import Iterable, Iterator
from typing import Any

import jax
import numpy as np

from shardfit.core.mesh import gather
from shardfit.core.rows import CHECK_BLOCK, leading


def digest(tree: Any) -> str:
    """Return the SHA-256 of all arrays of a tree, read block by block."""
    return digest_each([tree])


def digest_each(trees: Iterable[Any]) -> str:
    """Return the digest of a list of trees, of which only one needs to exist at a time."""
    total = hashlib.sha256()
    for leaf in (leaf for tree in trees for leaf in jax.tree.leaves(tree)):
        if isinstance(leaf, jax.Array) and jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            leaf = jax.random.key_data(leaf)
        shape, dtype = np.shape(leaf), str(getattr(leaf, "dtype", np.asarray(leaf).dtype))
        total.update(f"{shape}{dtype}".encode())
        if not shape:
            total.update(np.asarray(leaf).tobytes())
            continue
        step = _block(shape)
        for start in range(0, shape[0], step):
            total.update(np.ascontiguousarray(leaf[start : start + step]).data)
    return total.hexdigest()


def row_digest(rows: Any, counts: Any) -> str:
    """Return a digest of real rows and their order, the same however they are split over devices and processes.

    Every row is hashed with its number, and the hashes are added: a sum can be taken in parts. It tells data apart, it
    does not withstand forgery.
    """
    total = hashlib.sha256()
    for leaf in jax.tree.leaves(rows):
        sums = np.zeros(2, np.uint64)
        for first, block in _blocks(leaf, counts):
            sums += _hashes(block, first).sum(axis=0)
        if isinstance(leaf, jax.Array) and not leaf.is_fully_addressable:
            sums = gather(sums, leaf.sharding.mesh).sum(axis=0)  # type: ignore[attr-defined]
        n = leading(rows) if counts is None else int(np.sum(counts))
        total.update(f"{(n, *leaf.shape[1:])}{leaf.dtype}".encode() + sums.tobytes())
    return total.hexdigest()


def _block(shape: tuple) -> int:
    return max(1, CHECK_BLOCK // max(1, int(np.prod(shape[1:]))))


def _blocks(leaf: Any, counts: Any) -> Iterator[tuple[int, np.ndarray]]:
    """Yield this process's part of an array block by block, each with the number of its first row."""
    pieces = [(0, leaf)]
    if isinstance(leaf, jax.Array):
        last = np.cumsum(np.asarray([leaf.shape[0]] if counts is None else counts))
        n_local = leaf.shape[0] // len(last)
        pieces = []
        for piece in leaf.addressable_shards:
            if piece.replica_id == 0:
                shard, offset = divmod(piece.index[0].start or 0, n_local)
                begin = last[shard - 1] if shard else 0
                pieces.append(
                    (int(begin) + offset, piece.data[: last[shard] - begin] if counts is not None else piece.data)
                )
    for first, piece in pieces:
        step = _block(leaf.shape)
        for start in range(0, piece.shape[0], step):
            yield first + start, np.asarray(piece[start : start + step])


def _hashes(block: np.ndarray, first: int) -> np.ndarray:
    """Return two 64-bit hashes of every row and its number, (n, 2)."""
    plain = np.ascontiguousarray(block).reshape(len(block), -1)
    words = plain.view(f"u{min(8, plain.dtype.itemsize)}").astype(np.uint64)
    number = (first + np.arange(len(block), dtype=np.uint64))[:, None]
    words = np.concatenate([words, number], axis=1)
    weights = (np.arange(1, 2 * words.shape[1] + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)) | np.uint64(1)
    hashes = words @ weights.reshape(-1, 2)
    # multiply and shift, so that equal sums of rows do not make equal sums of hashes
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        hashes = (hashes ^ (hashes >> np.uint64(33))) * np.uint64(factor)
    return hashes ^ (hashes >> np.uint64(33))
