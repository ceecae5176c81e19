"""The triangular factor R of a streamed Jacobian, as exact as its own QR, from sums over rows like all others.

JᵀJ has the squared condition of J. Its Cholesky factor says nothing of directions whose singular values lie below
√eps of the largest. But derivatives may be taken along any directions: along the columns of R⁻¹, for a factor R from
here or nearby, the Jacobian is nearly orthonormal, and the normal equations of J·R⁻¹ lose nothing. Their factor times R
is the next one (Cholesky QR, repeated: Yamamoto et al. 2015, Fukaya et al. 2020). So rows are summed, masked and added
over shards as ever, and a problem that needs no better directions takes the unit ones.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular

from shardfit.core.gram import Gram, gram, of_derivatives

BLUNT = 1e2  # times n·eps: where a matrix of unit columns has smaller eigenvalues, digits have been lost
SINGULAR = 1e2  # times n·eps: singular values of unit columns below are those of rounding
TURNS = 3  # evaluations at one point that resolve what the precision can hold: each gains half of its digits


class Factored(NamedTuple):
    """Normal equations with R (n, n), upper triangular, RᵀR = matrix, and Qᵀr (n,), of J = QR.

    sharp: they lost no digits, for the directions in which they were made suited the Jacobian.
    """

    value: jax.Array
    gradient: jax.Array
    matrix: jax.Array
    root: jax.Array
    along: jax.Array
    sharp: jax.Array


def factored_near(objective: Any, space: Any, z: jax.Array, key: Any, near: jax.Array) -> Any:
    """Return the normal equations made along the columns of near⁻¹, an upper triangular matrix, with their factor.

    Terms that bring normal equations of their own have no Jacobian to be better made: they give a plain `Gram`.
    """
    if not of_derivatives(objective):
        return gram(objective, space, z, key)
    directions = solve_triangular(near, jnp.eye(z.size, dtype=z.dtype))
    return turned_back(gram(objective, space, z, key, directions), near)


def turned_back(here: Gram, near: jax.Array) -> Factored:
    """Return normal equations that were made along the columns of near⁻¹ as those of the coordinates."""
    n, dtype = near.shape[0], near.dtype
    lengths = jnp.sqrt(jnp.diag(here.matrix))
    unit = jnp.where(lengths > 0, lengths, 1)
    # the small addition keeps a numerically singular matrix definite
    small = n * jnp.finfo(dtype).eps + jnp.where(lengths > 0, 0, 1)
    lower = jnp.linalg.cholesky(here.matrix / jnp.outer(unit, unit) + jnp.diag(small), symmetrize_input=False)
    inverse = solve_triangular(lower, jnp.eye(n, dtype=dtype), lower=True)
    along = inverse @ (here.gradient / unit)
    return Factored(
        here.value,
        near.T @ here.gradient,
        near.T @ here.matrix @ near,
        jnp.where(lengths[:, None] > 0, lower.T * unit, 0) @ near,
        jnp.where(lengths > 0, along, 0),
        jnp.sum(inverse**2) * BLUNT * n * jnp.finfo(dtype).eps < 1,
    )


def factored(objective: Any, space: Any, z: jax.Array, key: Any) -> Any:
    """Return the normal equations at z, with their factor where they are made of derivatives."""
    if not of_derivatives(objective):
        return gram(objective, space, z, key)

    def again(carry):
        turn, here = carry
        return turn + 1, factored_near(objective, space, z, key, invertible(here.root))

    n, dtype = z.size, z.dtype
    zero, vector, matrix = jnp.zeros((), dtype), jnp.zeros(n, dtype), jnp.zeros((n, n), dtype)
    start = Factored(zero, vector, matrix, jnp.eye(n, dtype=dtype), vector, jnp.zeros((), bool))
    turns = jnp.zeros((), jnp.int32)
    return jax.lax.while_loop(lambda carry: ~carry[1].sharp & (carry[0] < TURNS), again, (turns, start))[1]


def invertible(root: jax.Array) -> jax.Array:
    """Return the triangular matrix with pivots that are not lost in rounding, so that it can be divided by."""
    lengths = jnp.sqrt(jnp.sum(root**2, axis=0))
    least = jnp.where(lengths > 0, root.shape[0] * jnp.finfo(root.dtype).eps * lengths, 1)
    return root + jnp.diag(jnp.maximum(jnp.diag(root), least) - jnp.diag(root))


def singular(n: int, dtype: Any) -> float:
    """Return the singular value of unit columns, over the largest, below which there is nothing but rounding."""
    return SINGULAR * n * float(jnp.finfo(dtype).eps)
