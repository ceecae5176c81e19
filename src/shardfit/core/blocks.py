"""How many rows to evaluate at once, where the user leaves it open (`chunk="auto"`).

What a function computes for a block should stay in a core's own cache until it is summed. The function is traced at two
numbers of rows, which tells for every row how much memory its results take, and how much work does not depend on rows
and would be done again for each block. The rule knows no machine beyond its kind, so that a run is the same elsewhere.
"""

import math
from dataclasses import replace
from typing import Any

import jax

from shardfit.core.rows import leading, shapes_of_rows
from shardfit.core.terms import RowTerm
from shardfit.core.work import Opaque, Size, size_of

FEW_ROWS = 2048  # are evaluated at once, untraced
LEAST_ROWS = 256  # of a block: below, the loop over blocks takes longer than their rows
# bytes of the widest result of a block (cache of a CPU core; accelerators want long blocks), of all results of all rows
BLOCK_BYTES = {"cpu": 1 << 18}
LONG_BLOCK_BYTES = 1 << 28
WHOLE = 64  # times a block: results of all rows that need no blocks
SHARE = 16  # rows of a block do so many times the work that does not depend on them


def with_resolved_chunk(term: RowTerm, params: Any, key: Any) -> RowTerm:
    """Return the term with the number of rows of a block decided: its own, or by what its function computes."""
    if not term.auto or term.chunk is not None:
        return term
    n = leading(term.rows)
    return replace(term, chunk=None if n <= FEW_ROWS else _best(term, params, key, n), auto=False)


def _best(term: RowTerm, params: Any, key: Any, n: int) -> int | None:
    few, more = LEAST_ROWS, 2 * LEAST_ROWS
    try:
        programs = [_traced(term, params, key, rows) for rows in (few, more)]
    except Exception:  # a user's function that takes no other number of rows raises anything; it is evaluated whole
        return None
    try:
        small, large = map(size_of, programs)
    except Opaque:
        return None
    per_row = Size(*((b - a) / (more - few) for a, b in zip(small, large, strict=True)))
    room = BLOCK_BYTES.get(jax.default_backend(), LONG_BLOCK_BYTES)
    if per_row.widest <= 0 or per_row.bytes * n <= WHOLE * room:
        return None
    fixed = max(0.0, small.work - per_row.work * few)
    rows = max(LEAST_ROWS, room / per_row.widest, SHARE * fixed / per_row.work)
    rows = 1 << int(math.log2(rows))
    return rows if rows < n else None


def _traced(term: RowTerm, params: Any, key: Any, rows: int) -> Any:
    def contributions(params, rows, args, key):
        return replace(term, args=args).contributions(params, rows, key)

    return jax.make_jaxpr(contributions)(params, shapes_of_rows(term.rows, rows), term.args, key).jaxpr
