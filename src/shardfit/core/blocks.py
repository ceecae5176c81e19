"""How many rows to evaluate at once, where the user leaves it open (`chunk="auto"`).

What a function computes for a block should stay in a core's own cache until it is summed. The function is traced at two
numbers of rows, which tells for every row how much memory its results take, and how much work does not depend on rows
and would be done again for each block. The rule knows no machine beyond its kind, so that a run is the same elsewhere.
"""

import math
from dataclasses import replace
from typing import Any, NamedTuple

import jax

from shardfit.core.rows import leading, shapes_of_rows
from shardfit.core.terms import RowTerm

FEW_ROWS = 2048  # are evaluated at once, untraced
LEAST_ROWS = 256  # of a block: below, the loop over blocks takes longer than their rows
# bytes of the widest result of a block (cache of a CPU core; accelerators want long blocks), of all results of all rows
BLOCK_BYTES = {"cpu": 1 << 18}
LONG_BLOCK_BYTES = 1 << 28
WHOLE = 64  # times a block: results of all rows that need no blocks
SHARE = 16  # rows of a block do so many times the work that does not depend on them
# what these cost, or keep, does not show in the sizes of their results
OPAQUE = frozenset("ffi_call custom_call pure_callback io_callback fft sort pallas_call".split())  # noqa: SIM905 (one line)


class Size(NamedTuple):
    """Of a traced program: bytes of its widest result and of all results, numbers computed."""

    widest: float = 0
    bytes: float = 0
    work: float = 0


class _Opaque(Exception):
    """The program has an operation whose cost is not known."""


def settled(term: RowTerm, params: Any, key: Any) -> RowTerm:
    """Return the term with the number of rows of a block decided: its own, or by what its function computes."""
    if not term.auto or term.chunk is not None:
        return term
    n = leading(term.rows)
    return replace(term, chunk=None if n <= FEW_ROWS else _best(term, params, key, n), auto=False)


def _best(term: RowTerm, params: Any, key: Any, n: int) -> int | None:
    few, more = LEAST_ROWS, 2 * LEAST_ROWS
    try:
        small, large = (_size(_traced(term, params, key, rows)) for rows in (few, more))
    except Exception:  # opaque, or a function that takes no other number of rows: evaluated as it is, errors included
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


def _size(jaxpr: Any, times: int = 1) -> Size:
    total = Size()
    for step in jaxpr.eqns:
        name, inner = step.primitive.name, list(_inner(step))
        if name in OPAQUE:
            raise _Opaque(name)
        bytes_out = [v.aval.size * getattr(v.aval.dtype, "itemsize", 8) for v in step.outvars]
        length = step.params.get("length", 1) if name == "scan" else 1
        parts = [_size(part, times * length) for part in inner]
        work = sum(v.aval.size for v in step.outvars) * _terms_of_product(step) * times
        total = Size(
            max(total.widest, *bytes_out, *(part.widest for part in parts)),
            total.bytes + sum(bytes_out) + sum(part.bytes for part in parts),
            total.work + work + sum(part.work for part in parts),
        )
    return total


def _terms_of_product(step: Any) -> int:
    if step.primitive.name != "dot_general":
        return 1
    (contracted, _), _ = step.params["dimension_numbers"]
    return math.prod(step.invars[0].aval.shape[axis] for axis in contracted)


def _inner(step: Any):
    for part in jax.tree.leaves(list(step.params.values()), is_leaf=lambda x: hasattr(x, "eqns")):
        inner = getattr(part, "jaxpr", part)
        if hasattr(inner, "eqns"):
            yield inner
