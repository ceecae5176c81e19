"""Random draws in the shape of a block: found in a traced function, so that a certificate can name them.

Draws of shape (rows, ...) from one key begin anew in every block: its rows get the numbers of the first block's, and
the value depends on how rows are split.
"""

from typing import Any

import jax

from shardfit.core.precision import arithmetic
from shardfit.core.terms import RowTerm, with_shapes

DRAWS = ("random_bits", "random_split")
FEW, MORE = 7, 11


def drawn_by_block(term: Any, params: Any) -> bool:
    """Return whether a term's function draws more random numbers from one key where a block has more rows."""
    if not isinstance(term, RowTerm):
        return False
    key = jax.eval_shape(lambda: jax.random.key(0)) if term.key is None else term.key

    def draws(n):
        traced = jax.make_jaxpr(lambda p, t, k: t.contributions(p, t.rows, k))(params, with_shapes(term, n), key)
        return sorted(_from_one_key(traced.jaxpr))

    with arithmetic("float64"):
        return draws(FEW) != draws(MORE)


def _from_one_key(jaxpr: Any):
    """Yield the shapes of all draws from a single key, those of inner programs too."""
    for step in jaxpr.eqns:
        if step.primitive.name in DRAWS and step.invars[0].aval.shape == ():
            yield tuple(step.outvars[0].aval.shape)
        for inner in inner_programs(step):
            yield from _from_one_key(inner)


def inner_programs(step: Any):
    """Yield the programs inside a step of a program."""
    for part in jax.tree.leaves(list(step.params.values()), is_leaf=lambda x: hasattr(x, "eqns")):
        inner = getattr(part, "jaxpr", part)
        if hasattr(inner, "eqns"):
            yield inner
