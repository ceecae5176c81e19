"""Cholesky factors of many small matrices, and systems solved with them.

A library is called once for each matrix, and a call costs more than the few products of a matrix of two rows. Up to
FEW rows these are written out instead, as arithmetic on arrays (G,) that hold one number of every matrix.
"""

import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular

FEW = 4  # rows up to which products are written out: their number grows with the third power


def cholesky(matrix: jax.Array) -> jax.Array:
    """Return the lower factors (G, K, K) of symmetric matrices (G, K, K); NaN where one is not definite."""
    k = matrix.shape[-1]
    if k > FEW:
        return jnp.linalg.cholesky(matrix)
    factor = [[jnp.zeros_like(matrix[..., 0, 0])] * k for _ in range(k)]
    for j in range(k):
        for i in range(j, k):
            left = matrix[..., i, j] - sum(factor[i][m] * factor[j][m] for m in range(j))
            factor[i][j] = jnp.sqrt(left) if i == j else left / factor[j][j]
    return jnp.stack([jnp.stack(row, axis=-1) for row in factor], axis=-2)


def solve_lower(factor: jax.Array, columns: jax.Array) -> jax.Array:
    """Return factor⁻¹ columns (G, K, m) for lower factors (G, K, K)."""
    k = factor.shape[-1]
    if k > FEW:
        return solve_triangular(factor, columns, lower=True)
    found: list[jax.Array] = []
    for i in range(k):
        known = sum(factor[..., i, m, None] * found[m] for m in range(i))
        found.append((columns[..., i, :] - known) / factor[..., i, i, None])
    return jnp.stack(found, axis=-2)


def solve_upper(factor: jax.Array, columns: jax.Array) -> jax.Array:
    """Return factor⁻ᵀ columns (G, K, m) for lower factors (G, K, K)."""
    if factor.shape[-1] > FEW:
        return solve_triangular(factor, columns, lower=True, trans="T")
    turned = jnp.swapaxes(factor, -2, -1)[..., ::-1, ::-1]  # lower again
    return solve_lower(turned, columns[..., ::-1, :])[..., ::-1, :]
