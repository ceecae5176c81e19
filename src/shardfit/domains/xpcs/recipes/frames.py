"""Errors of points that share frames: a covariance from the scatter of whole frames, not of single points.

Every frame enters nt points, and speckle lives longer than a frame, so residuals are correlated along both axes. What
a frame adds to the gradient is summed first; the covariance of these sums, with frames up to a correlation time apart
taken together (Bartlett's window), stands between the inverse normal matrices. Angles are other pixels: independent.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from shardfit.core.precision import arithmetic
from shardfit.domains.xpcs.forward import Geometry, Grid
from shardfit.domains.xpcs.losses import SLOPES
from shardfit.domains.xpcs.models import Model, with_slopes
from shardfit.domains.xpcs.problem import Setup
from shardfit.domains.xpcs.recipes.answer import CorrelationFit
from shardfit.domains.xpcs.recipes.sandwich import normal_inverse, with_spread

FEW = 10  # independent pieces below which their scatter is a guess


@arithmetic("float64")
def errors_by_frames(fit: CorrelationFit) -> CorrelationFit:
    """Return an answer with covariance, errors and bands by the scatter of frames."""
    setup = fit.setup
    inverse, chosen = normal_inverse(fit)
    free = np.ix_(chosen, chosen)
    by_frames, by_points, pieces = frame_scatter(setup, fit.params, fit.contrast, fit.offset)
    repeats = 2.0 if setup.options.triangle == "both" else 1.0
    few = 1 + chosen.sum() / pieces  # the parameters took their share of the scatter
    meat = np.zeros_like(inverse)
    meat[free] = few * repeats**2 * _at_least(by_frames[free], by_points[free])
    note = f"Speckles change so slowly that all frames count as about {pieces:.1f} independent samples: "
    note += "the standard errors are rough. Measure longer, or more angles."
    return with_spread(
        fit,
        inverse @ meat @ inverse,
        warnings=(*fit.warnings, note) if pieces < FEW else fit.warnings,
        pieces=pieces,
        scatter=max(1.0, float(np.trace(inverse[free] @ meat[free])) / (chosen.sum() * fit.variance)),
    )


def _at_least(scatter: np.ndarray, least: np.ndarray) -> np.ndarray:
    """Return a scatter that is in no direction smaller than another, which small samples would allow."""
    unit = np.sqrt(np.diag(least))
    factor = unit[:, None] * np.linalg.cholesky(least / np.outer(unit, unit) + 1e-12 * np.eye(len(unit)))
    size, direction = np.linalg.eigh(np.linalg.solve(factor, np.linalg.solve(factor, scatter).T))
    root = factor @ (direction * np.sqrt(np.maximum(size, 1.0)))
    return root @ root.T


def frame_scatter(setup: Setup, params: dict, contrast: Any, offset: Any) -> tuple[np.ndarray, np.ndarray, float]:
    """Return the covariance of the gradient over [a, b, parameters] by frames and by points, and the first one's number
    of independent samples.
    """
    data, basis, model = setup.data, np.asarray(setup.design.basis), setup.model
    (n, m), p, nt = basis.shape, len(model.names), data.n_frames
    values, pieces, room = np.array([params[name] for name in model.names]), 0.0, len(setup.geometry.t)
    padding = [(0, room - nt)] * 2
    by_frames, by_points = np.zeros((2, 2 * m + p, 2 * m + p))
    for k in range(n):
        counts = np.isfinite(data.c2[k]) & ~np.eye(nt, dtype=bool)
        weight = counts * np.asarray(setup.design.precision)[k] / _variance(data.sigma, k)
        own, here, places = model.of_bin(k, values)
        angle = here, _one_angle(setup.geometry, k), contrast[k], offset[k]
        points = np.pad(np.where(counts, data.c2[k], 0.0), padding), np.pad(np.broadcast_to(weight, (nt, nt)), padding)
        found = jax.device_get(_shares(own, setup.options.loss, *angle, *points, np.float64(nt)))
        shares, twice, life = found[0][:nt], *found[1:]
        to_whole = np.zeros((2 * m + p, 2 + len(places)))
        to_whole[:m, 0], to_whole[m : 2 * m, 1] = basis[k], basis[k]
        to_whole[2 * m + places, 2 + np.arange(len(places))] = 1.0
        scatter = _window_covariance(shares, max(1, round(float(life) / 2))) - twice
        by_frames += to_whole @ scatter @ to_whole.T
        by_points += to_whole @ twice @ to_whole.T
        pieces += nt / float(life)
    return by_frames, by_points, pieces


def _one_angle(geometry: Geometry, k: int) -> Geometry:
    q = geometry.q if np.ndim(geometry.q) == 0 else geometry.q[k : k + 1]
    fields = (geometry.t, geometry.phi[k : k + 1], q, geometry.gap, geometry.dt)
    return Geometry(*map(np.asarray, fields))


def _variance(sigma: Any, k: int) -> Any:
    """Return σ² of one angle's points where it differs between them; else it is in the precision of the angle."""
    if np.ndim(sigma) < 2:
        return 1.0
    own = sigma[min(k, len(sigma) - 1)] ** 2
    return 0.5 * (own[:, None] + own[None, :]) if own.ndim == 1 else own


@partial(jax.jit, static_argnums=(0, 1))
def _shares(model: Model, loss: str, values, geometry, contrast, offset, y, weight, nt):
    """Return what every frame adds to the gradient of one angle (room, 2 + p), the scatter that is in them twice
    because a point has two frames (2 + p, 2 + p), and how many frames speckle lives; the first nt frames are real.

    A frame's points contain the other frames' shares too; half of their common sum is taken off.
    """
    f, slopes = with_slopes(lambda v: model.curve(v, geometry, Grid())[0], values)
    residual = y - offset - contrast * f
    residual = residual * weight * SLOPES[loss](residual**2 * weight)
    columns = jnp.concatenate([jnp.stack([f, jnp.ones_like(f)]), contrast * slopes])
    room, parts = f.shape[0], columns * residual
    sums = jnp.sum(parts, axis=2).T
    twice = 0.5 * jnp.einsum("aij,bij->ab", parts, parts)
    lag = jnp.abs(jnp.arange(room)[:, None] - jnp.arange(room)[None, :])
    real = jnp.maximum(jnp.arange(room)[:, None], jnp.arange(room)[None, :]) < nt
    by_lag = jnp.zeros(room).at[lag].add(jnp.where(real, f, 0.0))
    by_lag = by_lag / jnp.maximum(jnp.zeros(room).at[lag].add(real), 1.0)
    life = jnp.clip(2 * jnp.sum(by_lag) - 1, 1.0, nt)
    return (nt - 1) / (nt - 2) * (sums - jnp.sum(sums, axis=0) / (2 * (nt - 1))), twice, life


def _window_covariance(shares: np.ndarray, width: int) -> np.ndarray:
    """Return Σ of products of shares up to `width` frames apart, falling off linearly."""
    total = shares.T @ shares
    for apart in range(1, min(width, len(shares))):
        product = shares[apart:].T @ shares[:-apart]
        total += (1 - apart / width) * (product + product.T)
    return total
