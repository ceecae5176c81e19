"""How much a traced program computes and keeps, as far as its operations tell."""

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import jax

# what these cost, or keep, does not show in the sizes of their results
OPAQUE = frozenset("ffi_call custom_call pure_callback io_callback fft sort pallas_call".split())  # noqa: SIM905 (one line)
# their results are no wider than what they join: piece after piece is computed, and summed, for itself
JOINS = frozenset({"concatenate", "stack"})


class Size(NamedTuple):
    """Of a traced program: bytes of the widest result it computes and of all results, numbers computed."""

    widest: float = 0
    bytes: float = 0
    work: float = 0


class Opaque(Exception):
    """The program has an operation whose cost is not known."""


def size_of(jaxpr: Any, times: int = 1) -> Size:
    """Return the size of a program; the rounds of a loop whose number is not known count once."""
    total = Size()
    for step in jaxpr.eqns:
        name, inner = step.primitive.name, list(inner_programs(step))
        if name in OPAQUE:
            raise Opaque(name)
        bytes_out = [v.aval.size * getattr(v.aval.dtype, "itemsize", 8) for v in step.outvars]
        length = step.params.get("length", 1) if name == "scan" else 1
        parts = [size_of(part, times * length) for part in inner]
        work = sum(v.aval.size for v in step.outvars) * _terms_of_product(step) * times
        wide = [] if name in JOINS else bytes_out
        total = Size(
            max(total.widest, 0, *wide, *(part.widest for part in parts)),
            total.bytes + sum(bytes_out) + sum(part.bytes for part in parts),
            total.work + work + sum(part.work for part in parts),
        )
    return total


@lru_cache(maxsize=256)
def count_elements(program: Any) -> float:
    """Return how many numbers a traced program computes, infinitely many if it does not tell."""
    try:
        return size_of(program).work
    except Opaque:
        return math.inf


def operations(jaxpr: Any) -> int:
    """Return how many operations a program has written down, loops once: what compiling it takes goes with them."""
    return len(jaxpr.eqns) + sum(operations(part) for step in jaxpr.eqns for part in inner_programs(step))


def _terms_of_product(step: Any) -> int:
    if step.primitive.name != "dot_general":
        return 1
    (contracted, _), _ = step.params["dimension_numbers"]
    return math.prod(step.invars[0].aval.shape[axis] for axis in contracted)


def inner_programs(step: Any) -> Iterator[Any]:
    """Yield the programs inside an operation: bodies of loops, branches, called functions."""
    for part in jax.tree.leaves(list(step.params.values()), is_leaf=lambda x: hasattr(x, "eqns")):
        inner = getattr(part, "jaxpr", part)
        if hasattr(inner, "eqns"):
            yield inner
