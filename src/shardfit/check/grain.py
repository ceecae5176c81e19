"""The coarsest rounding in a term's program: a model that computes in 16 bits cannot agree with itself to 32."""

from typing import Any

import jax
import jax.numpy as jnp

from shardfit.check.random_draws import FEW, inner_programs
from shardfit.core.precision import arithmetic
from shardfit.core.terms import RowTerm, with_shapes


def grain(term: Any, params: Any) -> float:
    """Return the relative rounding of the coarsest floating numbers that a term's function computes."""
    key = jax.eval_shape(lambda: jax.random.key(0)) if getattr(term, "key", None) is None else term.key

    def contributions(p, t, k):
        return t.contributions(p, t.rows, k) if isinstance(term, RowTerm) else t.losses(p)

    with arithmetic("float64"):
        given = with_shapes(term, FEW) if isinstance(term, RowTerm) else term
        traced = jax.make_jaxpr(contributions)(params, given, key)
    return max(_roundings(traced.jaxpr), default=0.0)


def _roundings(jaxpr: Any):
    for step in jaxpr.eqns:
        for out in step.outvars:
            dtype = getattr(out.aval, "dtype", None)
            if dtype is not None and jnp.issubdtype(dtype, jnp.inexact):
                yield float(jnp.finfo(dtype).eps)
        for inner in inner_programs(step):
            yield from _roundings(inner)
