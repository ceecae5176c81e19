"""Size classes of rows: a compiled program belongs to a model and a class of sizes, never to a data set.

Rows are padded with masked copies of a real one to the next of sixteen sizes per octave, so that another file of about
the same length needs no new program (docs/decisions/0035-size-classes.md). Row sets so large that a copy would matter
more than compiling are left as they are.
"""

from typing import Any

import jax
import numpy as np

PER_OCTAVE = 16  # at most 1/16 more rows
LARGE = 1 << 26  # bytes


def size_class(n: int) -> int:
    """Return the size of the class that n rows belong to: n itself up to twice as many as there are classes."""
    return -(-n // _step(n)) * _step(n)


def full_class(n: int) -> int:
    """Return the size of the largest class that n rows fill."""
    return n if size_class(n) == n else size_class(n) - _step(n)


def _step(n: int) -> int:
    return max(1, (1 << max(0, n - 1).bit_length()) // (2 * PER_OCTAVE))


def class_of(rows: Any, n: int) -> int | None:
    """Return to how many rows n of these are padded; None for rows that are placed as they are."""
    leaves = jax.tree.leaves(rows)
    row_bytes = sum(leaf.dtype.itemsize * int(np.prod(leaf.shape[1:])) for leaf in leaves)
    return None if n * row_bytes > LARGE else size_class(n)


def room_for(rows: Any, n: int) -> int:
    """Return how many rows n of these are when placed, padding included."""
    return class_of(rows, n) or n
