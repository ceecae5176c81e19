"""Linear coefficients of a model, group by group, from sums over rows: solved for, or integrated out.

With columns [B, y] (K + 1) of basis functions and data, in units of the noise, all that a group g of rows says of its
coefficients c is the matrix T_g of the columns' products: A = BᵀB, b = Bᵀy and yᵀy. A Gaussian prior adds to the three.
What is left of yᵀy by the best coefficients is a small difference of large sums. Taken of data less the model at fixed
coefficients c₀ near the best ones, y − Bc₀, the sums are small themselves; c − c₀ is then what is solved for.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from shardfit.stats.triangular import cholesky, solve_lower, solve_upper

FEW_COLUMNS = 6  # whose products are summed one by one


class Normal(NamedTuple):
    """What data and prior say of the coefficients c₀ + d of G groups: dᵀAd/2 − bᵀd + s/2, and the factor of A."""

    matrix: jax.Array  # A (G, K, K)
    vector: jax.Array  # b (G, K)
    square: jax.Array  # s (G,)
    factor: jax.Array  # (G, K, K), lower: factor @ factor.T = A
    centre: jax.Array  # c₀ (G, K)

    @property
    def step(self) -> jax.Array:
        """The way d (G, K) from c₀ to the minimum."""
        return self.unwhiten(self.whiten(self.vector[..., None]))[..., 0]

    @property
    def best(self) -> jax.Array:
        """The coefficients (G, K) at the minimum."""
        return self.centre + self.step

    @property
    def inverse(self) -> jax.Array:
        """The inverse (G, K, K) of A."""
        eye = jnp.eye(self.vector.shape[1], dtype=self.vector.dtype)
        return self.unwhiten(self.whiten(jnp.broadcast_to(eye, self.matrix.shape)))

    def whiten(self, columns: jax.Array) -> jax.Array:
        """Return factor⁻¹ columns (G, K, m): products of these are products of columns with A⁻¹ between them."""
        return solve_lower(self.factor, columns)

    def unwhiten(self, columns: jax.Array) -> jax.Array:
        """Return factor⁻ᵀ columns (G, K, m): of unit noise it makes noise with covariance A⁻¹."""
        return solve_upper(self.factor, columns)


# Derivatives of the two that follow need no derivative of the factor: at a minimum the way there does not count, and
# that of log det A is the trace of A⁻¹ dA.
@jax.custom_jvp
def least(solved: Normal) -> jax.Array:
    """Return the minimum (G,): half the squared residuals that are left, the prior's among them."""
    step = solved.step
    # at a minimum errors of the coefficients, such as the factor's slack makes, count by their squares only
    return 0.5 * solved.square + _quadratic(step, solved.vector, solved.matrix)


@least.defjvp
def _least_jvp(primals, tangents):
    (solved,), (moved,) = primals, tangents
    return least(solved), 0.5 * moved.square + _quadratic(solved.step, moved.vector, moved.matrix)


def _quadratic(step: jax.Array, vector: jax.Array, matrix: jax.Array) -> jax.Array:
    return jnp.sum(step * (0.5 * jnp.sum(matrix * step[:, None, :], axis=-1) - vector), axis=-1)


@jax.custom_jvp
def log_det(solved: Normal) -> jax.Array:
    """Return the logarithm (G,) of the determinant of A."""
    return 2 * jnp.sum(jnp.log(jnp.diagonal(solved.factor, axis1=-2, axis2=-1)), axis=-1)


@log_det.defjvp
def _log_det_jvp(primals, tangents):
    (solved,), (moved,) = primals, tangents
    return log_det(solved), jnp.sum(solved.inverse * moved.matrix, axis=(-2, -1))


def normal(totals: jax.Array, prior: Any, centre: Any = None) -> Normal:
    """Return the normal form of totals (G, K+1, K+1), of columns [B, y − Bc₀], with a prior (mean, sd), or None.

    A matrix without full rank, or of a group without rows, is made definite by as much as its rounding: the minimum is
    then that of the pseudo-solution, and nothing is NaN.
    """
    matrix, vector, square = totals[:, :-1, :-1], totals[:, :-1, -1], totals[:, -1, -1]
    centre = jnp.zeros_like(vector) if centre is None else centre
    if prior is not None:
        mean, precision = _on_groups(prior, vector)
        mean = mean - centre
        matrix = matrix + precision[..., None] * jnp.eye(vector.shape[1], dtype=vector.dtype)
        vector, square = vector + precision * mean, square + jnp.sum(precision * mean**2, axis=-1)
    return Normal(matrix, vector, square, _factor(matrix), centre)


def prior_residuals(coefficients: jax.Array, prior: Any) -> jax.Array:
    """Return (c − mean) / sd (G, K), the prior's own residuals: zero if it is flat."""
    if prior is None:
        return jnp.zeros_like(coefficients)
    mean, precision = _on_groups(prior, coefficients)
    return jnp.sqrt(precision) * (coefficients - mean)


def prior_slopes(coefficients: jax.Array, prior: Any) -> jax.Array:
    """Return (c − mean) / sd² (G, K), the derivative of half the prior's squared residuals."""
    if prior is None:
        return jnp.zeros_like(coefficients)
    mean, precision = _on_groups(prior, coefficients)
    return precision * (coefficients - mean)


def log_prior_scales(prior: Any, like: jax.Array) -> jax.Array:
    """Return the sum (G,) of log sd; a flat prior counts −½ log 2π, as if its density were one."""
    flat = jnp.full_like(like, -0.5 * np.log(2 * np.pi))
    if prior is None:
        return jnp.sum(flat, axis=-1)
    sd = jnp.broadcast_to(jnp.asarray(prior[1], like.dtype), like.shape)
    return jnp.sum(jnp.where(jnp.isinf(sd), flat, jnp.log(jnp.where(jnp.isinf(sd), 1, sd))), axis=-1)


def _on_groups(prior: Any, like: jax.Array) -> tuple[jax.Array, jax.Array]:
    mean, sd = (jnp.broadcast_to(jnp.asarray(part, like.dtype), like.shape) for part in prior)
    return mean, sd**-2


def _factor(matrix: jax.Array) -> jax.Array:
    """Return the Cholesky factor of matrices (G, K, K), taken in units of their columns' lengths."""
    size = jnp.diagonal(matrix, axis1=-2, axis2=-1)
    unit = jnp.sqrt(jnp.where(size > 0, size, 1))
    k = matrix.shape[-1]
    slack = 4 * k * jnp.finfo(matrix.dtype).eps
    scaled = matrix / (unit[..., :, None] * unit[..., None, :])
    empty = jnp.where(size > 0, 0, 1)  # a column of zeros: its coefficient is zero
    definite = scaled + (slack + empty)[..., None] * jnp.eye(k, dtype=matrix.dtype)
    return unit[..., None] * cholesky(definite)


def ranks(matrix: np.ndarray) -> np.ndarray:
    """Return how many coefficients of each group (G,) are determined by matrices (G, K, K)."""
    size = np.diagonal(matrix, axis1=-2, axis2=-1)
    unit = np.sqrt(np.where(size > 0, size, 1))
    values = np.linalg.eigvalsh(matrix / (unit[..., :, None] * unit[..., None, :]))
    return np.sum(values > 16 * matrix.shape[-1] * np.finfo(matrix.dtype).eps, axis=-1)


def column_products(columns: Sequence[jax.Array], ids: Any, n_groups: int, *, inner: bool) -> jax.Array:
    """Return Σ column ⊗ column (G, m, m) over the rows of each group, for m columns (n, *shape); ids: as for products.

    Of few columns every product is summed by itself: arrays of one number per row are what a processor adds quickest.
    """
    if len(columns) > FEW_COLUMNS:
        whole = jnp.stack(columns, axis=-1)
        return products(whole, whole, ids, n_groups, inner=inner)
    sums = {}
    for i, left in enumerate(columns):
        for j, right in enumerate(columns[: i + 1]):
            sums[i, j] = sums[j, i] = _group_sum(_real_product(left, right), ids, n_groups, inner)
    order = range(len(columns))
    return jnp.stack([jnp.stack([sums[i, j] for j in order], axis=-1) for i in order], axis=-2)


def _real_product(left: jax.Array, right: jax.Array) -> jax.Array:
    if not (jnp.iscomplexobj(left) and jnp.iscomplexobj(right)):
        return left.real * right.real
    return left.real * right.real + left.imag * right.imag


def _group_sum(numbers: jax.Array, ids: Any, n_groups: int, inner: bool) -> jax.Array:
    if ids is None:
        return jnp.sum(numbers)[None]
    if inner:
        numbers = jnp.sum(numbers, axis=0)
    elif ids.ndim == 1:
        numbers = jnp.sum(numbers, axis=tuple(range(1, numbers.ndim)))
    return jax.ops.segment_sum(numbers.reshape(-1), ids.reshape(-1), n_groups)


def products(left: jax.Array, right: jax.Array, ids: Any, n_groups: int, *, inner: bool) -> jax.Array:
    """Return Σ left ⊗ right (G, a, b) over the rows of each group, for left (n, *shape, a) and right (n, *shape, b).

    ids: None for one group; groups of rows (n,) or of single numbers (n, *shape); with inner, of the numbers of every
    row (*shape). Complex columns count by real and imaginary parts.
    """
    if jnp.iscomplexobj(left) or jnp.iscomplexobj(right):
        pairs = ((left.real, right.real), (jnp.imag(left), jnp.imag(right)))
        return sum(products(a, b, ids, n_groups, inner=inner) for a, b in pairs)  # type: ignore[return-value]
    n, a, b = left.shape[0], left.shape[-1], right.shape[-1]
    left, right = left.reshape(n, -1, a), right.reshape(n, -1, b)
    if ids is None:
        return jnp.einsum("nia,nib->ab", left, right)[None]
    if inner:
        return jax.ops.segment_sum(jnp.einsum("nia,nib->iab", left, right), ids.reshape(-1), n_groups)
    if ids.ndim == 1:
        return jax.ops.segment_sum(jnp.einsum("nia,nib->nab", left, right), ids, n_groups)
    each = left[..., :, None] * right[..., None, :]
    return jax.ops.segment_sum(each.reshape(-1, a, b), ids.reshape(-1), n_groups)
