"""Penalties on a velocity model: roughness and distance from a prior, means over cells of differences per cell."""

from typing import Any

import jax
import jax.numpy as jnp

from shardfit.core.term_makers import penalty
from shardfit.core.terms import Penalty
from shardfit.domains.seismic.arrays import Velocity


def tikhonov(weight: float, order: int = 1, axes: tuple[float, ...] = ()) -> Penalty:
    """Mean of squared differences of first or second order, m²/s², summed over axes; axes: their relative weights."""
    if order not in (1, 2):
        raise ValueError(f"tikhonov: order={order!r} must be 1 or 2.")
    return penalty(_rough_1 if order == 1 else _rough_2, tuple(map(float, axes)), weight=weight)


def total_variation(weight: float, eps: float = 1.0) -> Penalty:
    """Mean length of the gradient, m/s per cell, rounded off below eps."""
    if not eps > 0:
        raise ValueError(f"total_variation: eps={eps!r} must be positive.")
    return penalty(_variation, float(eps), weight=weight)


def deviation(weight: float, prior: Any, sigma: Any = 1.0) -> Penalty:
    """Mean of ((v - prior) / sigma)². prior, sigma: (nz, nx) or one number, m/s."""
    return penalty(_deviation, prior, sigma, weight=weight)


def _rough_1(params: Any, axes: tuple[float, ...]) -> Any:
    return _rough(params["velocity"], 1, axes)


def _rough_2(params: Any, axes: tuple[float, ...]) -> Any:
    return _rough(params["velocity"], 2, axes)


def _rough(v: Velocity, order: int, axes: tuple[float, ...]) -> Any:
    return sum(w * jnp.mean(jnp.diff(v, order, axis=i) ** 2) for i, w in enumerate(axes or (1.0,) * v.ndim))


def _variation(params: Any, eps: float) -> jax.Array:
    v = params["velocity"]
    inside = (slice(-1),) * v.ndim
    squared = sum(jnp.diff(v, axis=i, append=0)[inside] ** 2 for i in range(v.ndim))
    return jnp.mean(jnp.sqrt(squared + eps**2) - eps)


def _deviation(params: Any, prior: Any, sigma: Any) -> jax.Array:
    return jnp.mean(((params["velocity"] - prior) / sigma) ** 2)
