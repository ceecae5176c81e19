"""Kernel and Fourier counts of a weighted sample at places of comparison.

A kernel count is Σ w Normal(x | centre, Σ), a Fourier count Σ w exp(i q·x); both are sums over points, so they add up
over chunks, devices and processes. Exponents and phases are matrix products of points and places: what remains per
pair is one exponential, or one sine and cosine, and the pull-back is a product as well.
"""

import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import register_dataclass

from shardfit.stats.waves import cos_sin

NARROWEST = 1e-10  # least eigenvalue of a correlation matrix that a covariant kernel may have


@register_dataclass
@dataclass(frozen=True)
class Kernel:
    """A Gaussian kernel: origin (d,) that points are measured from, whiten (d, d) with Σ⁻¹ = whitenᵀ whiten, height."""

    origin: Any
    whiten: Any
    height: Any  # density at the centre

    def scaled(self, points: jax.Array) -> jax.Array:
        """Return points (..., d) in units of the kernel, seen from the origin."""
        return (points - self.origin) @ self.whiten.T


def scott(n: int, dimensions: int) -> float:
    """Return Scott's factor n^(-1/(d + 4))."""
    return float(n) ** (-1.0 / (dimensions + 4))


def sample_covariance(points: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
    """Return the covariance (d, d) of points (n, d), weights counting as observation weights."""
    return np.atleast_2d(np.cov(points, rowvar=False, aweights=weights))


def make_kernel(points: np.ndarray, weights: np.ndarray | None, bandwidth: float, *, covariant: bool = False) -> Kernel:
    """Return the kernel bandwidth² C, C the sample's covariance or, by default, its diagonal."""
    covariance = sample_covariance(points, weights)
    if not covariant:
        covariance = np.diag(np.diag(covariance))
    spread = np.sqrt(np.diag(covariance))
    if covariant and np.all(spread > 0) and (least := _least_share(covariance / np.outer(spread, spread))) < NARROWEST:
        raise ValueError(
            f"the sample's covariance is nearly singular (in one direction only {least:.0e} of the usual variance is "
            "left), so that counts of a covariant kernel would be rounding. Drop a coordinate that is nearly a "
            "combination of others, or use a diagonal kernel (covariant=False)."
        )
    return kernel_of(bandwidth**2 * covariance, np.average(points, axis=0, weights=weights))


def kernel_of(covariance: np.ndarray, origin: np.ndarray) -> Kernel:
    """Return the kernel of a covariance (d, d); origin (d,) is a point near those that it will see."""
    try:
        whiten = np.linalg.inv(np.linalg.cholesky(covariance))
    except np.linalg.LinAlgError:
        raise ValueError(
            "the sample's covariance is singular, so its kernel has no volume. Drop a coordinate that is constant or "
            "a combination of others; a diagonal kernel (covariant=False) needs only that no coordinate is constant."
        ) from None
    height = math.exp(np.linalg.slogdet(whiten)[1]) / (2 * math.pi) ** (len(whiten) / 2)
    return Kernel(origin, whiten, height)


def _least_share(correlation: np.ndarray) -> float:
    return float(max(0.0, np.linalg.eigvalsh(correlation)[0]))


def kernel_values(kernel: Kernel, points: jax.Array, centres: jax.Array) -> jax.Array:
    """Return the kernel's density of every point about every centre: (n, d), (k, d) → (n, k)."""
    x, c = kernel.scaled(points), kernel.scaled(centres)
    # seen from the sample's mean, so that the squares nearly cancelling are small
    squares = -0.5 * jnp.sum(x * x, axis=-1, keepdims=True)
    lines = jnp.concatenate([x, squares, jnp.ones_like(squares)], axis=-1)
    steps = jnp.concatenate([c, jnp.ones_like(c[:, :1]), -0.5 * jnp.sum(c * c, axis=-1, keepdims=True)], axis=-1)
    return kernel.height * jnp.exp(steps @ lines.T).T


def fourier_values(points: jax.Array, positions: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return cos and sin of q·x for every point and position: (n, d), (k, d) → two (n, k)."""
    cosine, sine = cos_sin((positions / (2 * math.pi)) @ points.T)
    return cosine.T, sine.T
