"""Metrics: coordinates in which all directions of a density look alike.

A metric is a factor S of the covariance, z = S·q. Momenta and slopes belong to q: positions move by S·momentum, and a
slope is Sᵀ·gradient, both (n, chains). What a sampler needs of a metric are the methods of `Dense`: any class that has
them, as a pytree, is one.

`renewed` makes draws and gradients alike: M = S·Sᵀ with M·cov(gradients)·M = cov(draws), as in nutpie. For a Gaussian
it is exact from n + 1 draws on.
"""

from functools import partial
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular

DENSE = 200  # coordinates up to which all correlations are kept, whatever the draws say of them
WHOLE = 512  # coordinates up to which directions are looked for among all
RANK = 128  # directions beyond that
TIERS = (16, 64, 256)  # directions: as many are multiplied as are in use, rounded up to one of these
SMALL = 24  # coordinates up to which a product with the root is cheaper as a sum than as a call of a library
SETTLING = 10.0  # draws from which scales are taken half of the way
LEAST_RATIO = 2.0  # of variances, to the metric's, that a direction must have before it is changed
SHRINKAGE = 0.1  # of covariances from few draws, in variances of the present metric
PER_DIRECTION = 4  # draws that a direction needs
MOST_NUMBERS = 2**24  # of draws and gradients that are kept to learn a metric from


class Metric(Protocol):
    """What samplers ask of a metric."""

    def along(self, momentum: jax.Array) -> jax.Array:
        """Return S·momentum (n, chains)."""
        ...

    def against(self, gradient: jax.Array) -> jax.Array:
        """Return Sᵀ·gradient (n, chains)."""
        ...

    def gradient(self, slope: jax.Array) -> jax.Array:
        """Return the gradient (n, m) that has this slope."""
        ...

    def renewed(self, z: jax.Array, gradients: jax.Array, counts: jax.Array) -> "Metric":
        """Return a better metric from z and gradients (m, n) where counts (m,), or the present one."""
        ...

    def scales(self) -> jax.Array:
        """Return (n,) the standard deviations that it takes coordinates to have."""
        ...


class Dense(NamedTuple):
    """S is root (n, n); transposed: the same, kept because products with a transposed matrix are slow."""

    root: jax.Array
    transposed: jax.Array

    @classmethod
    def of(cls, root: jax.Array) -> "Dense":
        """Return the metric of a root (n, n), or of standard deviations (n,)."""
        root = jnp.diag(root) if root.ndim == 1 else root
        return cls(root, root.T)

    def along(self, momentum: jax.Array) -> jax.Array:
        """Return S·momentum (n, chains)."""
        return _product(self.root, momentum)

    def against(self, gradient: jax.Array) -> jax.Array:
        """Return Sᵀ·gradient (n, chains)."""
        return _product(self.transposed, gradient)

    def gradient(self, slope: jax.Array) -> jax.Array:
        """Return the gradient (n, m) that has this slope."""
        return jnp.linalg.solve(self.transposed, slope)

    def scales(self) -> jax.Array:
        """Return (n,) the standard deviations that it takes coordinates to have."""
        return jnp.sqrt(jnp.sum(self.root**2, 1))

    def renewed(self, z: jax.Array, gradients: jax.Array, counts: jax.Array) -> "Dense":
        """Return a better metric from z and gradients (m, n) where counts (m,), or the present one."""
        n_draws = jnp.sum(counts)
        # in coordinates that the present metric whitens few draws change little
        whitened = z @ jnp.linalg.inv(self.root).T, gradients @ self.root
        draws, slopes = (_centred(rows, counts, n_draws) for rows in whitened)
        scale = _scale(draws, slopes) ** (n_draws / (n_draws + SETTLING))
        n = draws.shape[1]
        # the ranges of few draws and of their slopes differ, and what is in one of them only seems very long or short
        shrinkage = SHRINKAGE * jnp.minimum(1, n / n_draws) ** 4
        size, basis = _between(draws / scale, slopes * scale, n_draws, shrinkage)
        change = scale[:, None] * (basis * jnp.sqrt(jnp.where(_large(size), size, 1)))
        return _if_finite(Dense.of(self.root @ change), self)


class LowRank(NamedTuple):
    """S = diag(scale)·(I + basis·diag(stretch - 1)·basisᵀ). scale: (n,), basis: (n, k) orthonormal, stretch: (k,), the
    largest changes first; rank: how many differ from one, the others' columns are zero.
    """

    scale: jax.Array
    basis: jax.Array
    stretch: jax.Array
    rank: jax.Array

    @classmethod
    def of(cls, scale: jax.Array) -> "LowRank":
        """Return the metric of standard deviations (n,)."""
        n, zero = scale.shape[0], jnp.zeros((), jnp.int32)
        k = n if n <= WHOLE else RANK
        return cls(scale, jnp.zeros((n, k), scale.dtype), jnp.ones(k, scale.dtype), zero)

    def along(self, momentum: jax.Array) -> jax.Array:
        """Return S·momentum (n, chains)."""
        return self.scale[:, None] * self._stretched(momentum, self.stretch)

    def against(self, gradient: jax.Array) -> jax.Array:
        """Return Sᵀ·gradient (n, chains)."""
        return self._stretched(self.scale[:, None] * gradient, self.stretch)

    def gradient(self, slope: jax.Array) -> jax.Array:
        """Return the gradient (n, m) that has this slope."""
        return self._stretched(slope, 1 / self.stretch) / self.scale[:, None]

    def scales(self) -> jax.Array:
        """Return (n,) the standard deviations that it takes coordinates to have."""
        return self.scale * jnp.sqrt(1 + jnp.sum(self.basis**2 * (self.stretch**2 - 1), 1))

    def _stretched(self, x: jax.Array, stretch: jax.Array) -> jax.Array:
        """Return (I + basis·diag(stretch - 1)·basisᵀ)·x, for as many directions as are in use."""
        k = len(stretch)
        tiers = (0, *(tier for tier in TIERS if tier < k), k)

        def product(used: int, x: jax.Array) -> jax.Array:
            basis = self.basis[:, :used]
            return x + basis @ ((stretch[:used, None] - 1) * (basis.T @ x)) if used else x

        which = jnp.sum(self.rank > jnp.array(tiers[:-1]))
        return jax.lax.switch(which, [partial(product, used) for used in tiers], x)

    def renewed(self, z: jax.Array, gradients: jax.Array, counts: jax.Array) -> "LowRank":
        """Return a better metric from z and gradients (m, n) where counts (m,), or the present one."""
        n_draws = jnp.sum(counts)
        draws, gradients = (_centred(rows, counts, n_draws) for rows in (z, gradients))
        scale = self.scale * (_scale(draws, gradients) / self.scale) ** (n_draws / (n_draws + SETTLING))
        draws, gradients = draws / scale, gradients * scale
        within, shrinkage = _subspace(draws, gradients, n_draws)
        of_draws, of_gradients = (rows if within is None else rows @ within for rows in (draws, gradients))
        size, basis = _between(of_draws, of_gradients, n_draws, shrinkage)
        change = jnp.where(_large(size), jnp.abs(jnp.log(size)), 0)
        first = jnp.argsort(-change)[: len(self.stretch)]
        used, missing = change[first] > 0, len(self.stretch) - len(first)
        basis = basis[:, first] if within is None else within @ basis[:, first]
        found = LowRank(
            scale,
            jnp.pad(jnp.where(used, basis, 0), ((0, 0), (0, missing))),
            jnp.pad(jnp.where(used, jnp.sqrt(size[first]), 1), (0, missing), constant_values=1),
            jnp.sum(used, dtype=jnp.int32),
        )
        return _if_finite(found, self)


def usual_metric(n: int) -> Any:
    """Return the class of metric for so many coordinates."""
    return Dense if n <= DENSE else LowRank


def most_draws(n: int, chains: int) -> int:
    """Return how many draws and gradients are kept to learn a metric of n coordinates from."""
    wanted = max(8 * n, 400) if n <= WHOLE else 4 * RANK
    return max(4 * chains, min(wanted, MOST_NUMBERS // (2 * n)))


def _subspace(draws: jax.Array, gradients: jax.Array, n_draws: jax.Array) -> tuple[jax.Array | None, jax.Array]:
    """Return a basis (n, m) of the directions in which draws or gradients vary most, None for all directions, and by
    how much covariances are to be shrunk.
    """
    n = draws.shape[1]
    if n <= WHOLE:
        return None, SHRINKAGE * jnp.minimum(1, n / n_draws) ** 4
    leading = [_leading(rows, n_draws // PER_DIRECTION) for rows in (draws, gradients)]
    basis, _ = jnp.linalg.qr(jnp.concatenate(leading, 1))
    known = jnp.concatenate([jnp.any(columns != 0, 0) for columns in leading])
    return jnp.where(known, basis, 0), jnp.asarray(1e-5, draws.dtype)


def _leading(rows: jax.Array, most: jax.Array) -> jax.Array:
    """Return the leading right singular vectors (n, RANK) of rows (m, n), zeros beyond so many, which are arbitrary."""
    size, basis = jnp.linalg.eigh(rows @ rows.T)
    size, basis = size[::-1][:RANK], basis[:, ::-1][:, :RANK]
    known = (jnp.arange(len(size)) < most) & (size > 1e-6 * size[0])
    return jnp.where(known, rows.T @ (basis / jnp.sqrt(jnp.where(known, size, 1))), 0)


def _between(draws: jax.Array, slopes: jax.Array, n_draws: jax.Array, shrinkage: jax.Array) -> tuple:
    """Return eigenvalues and eigenvectors of the matrix M with M·cov(slopes)·M = cov(draws)."""
    eye = jnp.eye(draws.shape[1], dtype=draws.dtype)
    shrinkage = shrinkage + 10 * jnp.sqrt(jnp.finfo(draws.dtype).eps)
    of_draws, of_slopes = (rows.T @ rows / n_draws + shrinkage * eye for rows in (draws, slopes))
    lower = jnp.linalg.cholesky(of_slopes)
    size, basis = jnp.linalg.eigh(lower.T @ of_draws @ lower)
    root = solve_triangular(lower.T, basis * jnp.maximum(size, 0) ** 0.25, lower=False)
    return jnp.linalg.eigh(root @ root.T)


def _large(size: jax.Array) -> jax.Array:
    return (size > LEAST_RATIO) | (size < 1 / LEAST_RATIO)


def _scale(draws: jax.Array, gradients: jax.Array) -> jax.Array:
    """Return the factor (n,) of each coordinate that makes its draws and gradients equally wide."""
    tiny = jnp.finfo(draws.dtype).tiny ** 0.5
    return ((jnp.sum(draws**2, 0) + tiny) / (jnp.sum(gradients**2, 0) + tiny)) ** 0.25


def _centred(rows: jax.Array, counts: jax.Array, n: jax.Array) -> jax.Array:
    mean = jnp.sum(jnp.where(counts[:, None], rows, 0), 0) / jnp.maximum(n, 1)
    return jnp.where(counts[:, None], rows - mean, 0)


def _if_finite(new: Any, old: Any) -> Any:
    sound = jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(new)]))
    return jax.tree.map(lambda a, b: jnp.where(sound, a, b), new, old)


def _product(root: jax.Array, x: jax.Array) -> jax.Array:
    return jnp.sum(root[..., None] * x, 1) if len(root) <= SMALL else root @ x
