"""Blocks of the size that a fit walks over, against the same rows in smaller ones.

A probe is shorter than most blocks, and what a compiler makes of a function depends on shapes: XLA's programs for CPUs
have been seen to sum blocks of 1,500 rows and more wrongly, within a loop, while shorter ones were right. Normal
equations are walked over in blocks of their own, also where value and gradient are not.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from shardfit.check.probe import WIDE_ROW
from shardfit.core import reduce
from shardfit.core.blocks import with_resolved_chunk
from shardfit.core.equations import Place
from shardfit.core.gram import rows_at_once
from shardfit.core.objective import Objective, replace_terms
from shardfit.core.rows import padded, shapes_of_rows
from shardfit.core.size_classes import class_of, room_for
from shardfit.core.terms import RowTerm

SMALLER = 3  # times: no block of the comparison has more rows than the user allows
SHORT = 256  # rows of the smaller blocks at most: XLA is wrong about 1,300 rows as it is about long blocks
Pair = tuple[Objective, Objective]


def block_pair(objective: Objective, params: Any, shards: int, key: Any) -> Pair | None:
    """Return the objective on its first two blocks, in blocks as value and gradient have them and in smaller ones.

    Terms that are not walked over are left out, as are those of wide rows (shots, scans), of which each costs much, and
    those that draw random numbers; None if none is left.
    """
    return _pair(
        objective, shards, lambda i, term: with_resolved_chunk(term, params, reduce.term_key(term, key, i)).chunk
    )


def equation_block_pair(objective: Objective, space: Any, z: Any, shards: int) -> Pair | None:
    """Return the same of terms that have normal equations, in blocks as these have them."""

    def chunk(i: int, term: RowTerm) -> int | None:
        place = Place(objective.names[i], term, space, z, None)
        return rows_at_once(place) if term.least_squares else None

    return _pair(objective, shards, chunk)


def _pair(objective: Objective, shards: int, chunk_of: Callable[[int, RowTerm], int | None]) -> Pair | None:
    sizes = {}
    for i, (name, term) in enumerate(objective.items()):
        if not isinstance(term, RowTerm) or term.stochastic:
            continue
        row_bytes = sum(leaf.nbytes for leaf in jax.tree.leaves(term.rows)) / max(1, term.n_rows)
        n = room_for(term.rows, -(-term.n_rows // shards))
        chunk = chunk_of(i, replace(term, rows=shapes_of_rows(term.rows, n), counts=None))
        if chunk is not None and SMALLER < chunk < n and row_bytes < WIDE_ROW:
            sizes[name] = -(-n // -(-n // chunk))
    if not sizes:
        return None
    counts = list(sizes.values())
    kept = objective.only(*sizes).take(lambda i, n: np.arange(min(n, 2 * counts[i])))
    kept = replace_terms(kept, [_padded(t, 2 * n) for t, n in zip(kept.terms, counts, strict=True)])
    return _in_blocks(kept, counts), _in_blocks(kept, [min(SHORT, -(-n // SMALLER)) for n in counts])


def _in_blocks(objective: Objective, chunks: list[int]) -> Objective:
    pairs = zip(objective.terms, chunks, strict=True)
    return replace_terms(objective, [replace(t, chunk=n, auto=False) for t, n in pairs if isinstance(t, RowTerm)])


def _padded(term: Any, room: int) -> RowTerm:
    """Return the term with copies that do not count where its rows are fewer, and masked as in a fit."""
    term = term.sampled()
    if class_of(term.rows, term.n_rows) is None:
        return term
    return replace(term, rows=padded(term.rows, room), counts=np.array([term.n_rows], np.int32))
