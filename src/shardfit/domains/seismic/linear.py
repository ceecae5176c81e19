"""A linear function whose transpose is given, rather than found by JAX."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax


def with_transpose(apply: Callable, transpose: Callable, x: Any, opaque: bool = False) -> Any:
    """Return apply(x); differentiated in reverse, it is transpose(bar) → derivative with respect to x.

    (x, y) → (x, y + A x) solves the equation (x, y - A x) = b, and JAX lets the solution of a linear equation come with
    its transpose, unlike other functions: `custom_vjp` gives up forward mode. JAX transposes the equation itself as
    well, if only for second derivatives: where that cannot be, since apply is `opaque` (a foreign call), the equation
    given is a stand-in, and the caller makes sure that nobody asks for them.
    """

    def minus(a, b):
        return jax.tree.map(jnp.subtract, a, b)

    def plus(a, b):
        return jax.tree.map(jnp.add, a, b)

    # JAX takes for linear only what depends on a tangent, so that every number here does, if only formally
    zero = 0 * sum(leaf.reshape(-1)[0] for leaf in jax.tree.leaves(x))
    x = jax.tree.map(lambda leaf: leaf + zero, x)
    nothing = jax.tree.map(lambda leaf: jnp.full(leaf.shape, zero, leaf.dtype), jax.eval_shape(apply, x))
    return lax.custom_linear_solve(
        (lambda v: v) if opaque else lambda v: (v[0], minus(v[1], apply(v[0]))),
        (x, nothing),
        lambda _, b: (b[0], plus(b[1], apply(b[0]))),
        lambda _, b: (plus(b[0], transpose(b[1])), b[1]),
    )[1]
