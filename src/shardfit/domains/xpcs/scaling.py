"""Contrast and offset of the angles: which of them are free together, and what the data say at first sight."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import register_dataclass

from shardfit.core.errors import suggestion
from shardfit.domains.xpcs.data import Correlation
from shardfit.domains.xpcs.options import SCALINGS
from shardfit.stats.projection import least, log_det, normal

CONTRAST, OFFSET = (0.0, 1.0), (0.5, 1.5)
ENOUGH, SOME = 100, 10  # points of an angle, and of a region of lags, below which quantiles say little


@register_dataclass
@dataclass(frozen=True)
class Design:
    """How scales follow from their coefficients: contrast = basis @ a, offset = offsets @ b; (n, m) each.

    precision (n,): what the squared residuals of an angle are multiplied with. level: subtracted from the data, so that
    sums of squares keep their digits. n_residuals: number of points, less the coefficients if they are eliminated.
    apart: both are the identity, so that every angle can be solved by itself.
    """

    basis: Any
    offsets: Any
    precision: Any
    level: Any
    n_residuals: Any = 0.0
    apart: bool = field(default=False, metadata={"static": True})

    @property
    def columns(self) -> Any:
        """What contrast and offset of the angles (n, 2) are of the coefficients [a, b]: (n, 2, m)."""
        xp = np if isinstance(self.basis, np.ndarray) else jnp
        of_contrast = xp.concatenate([self.basis, 0 * self.offsets], axis=1)
        return xp.stack([of_contrast, xp.concatenate([0 * self.basis, self.offsets], axis=1)], axis=1)

    @property
    def n_scales(self) -> int:
        """Number of coefficients."""
        return self.basis.shape[1] + self.offsets.shape[1]


def fourier_basis(phi: np.ndarray, order: int = 2) -> np.ndarray:
    """Return the columns 1, cos φ, sin φ, cos 2φ, … (n, 1 + 2·order) at azimuths in degrees."""
    turn = np.deg2rad(np.asarray(phi, float))
    waves = [wave(k * turn) for k in range(1, order + 1) for wave in (np.cos, np.sin)]
    return np.stack([np.ones_like(turn), *waves], axis=1)


def scale_basis(mode: str, phi: np.ndarray, order: int = 2, shared_from: int = 3) -> np.ndarray:
    """Return the basis (n, m) of a scaling mode.

    'individual': every angle its own pair; 'auto': one pair for all, from `shared_from` angles on; 'fourier': a series
    in φ, which needs more angles than coefficients. The constant modes hold one pair per angle.
    """
    n = len(phi)
    if mode not in SCALINGS:
        raise ValueError(f"unknown scaling {mode!r}.{suggestion(mode, SCALINGS)}")
    if mode == "auto" and n >= shared_from:
        return np.ones((n, 1))
    if mode == "fourier":
        if n < 1 + 2 * order:
            raise ValueError(
                f"scaling 'fourier' of order {order} needs {1 + 2 * order} angles, there are {n}. Use 'individual'."
            )
        return fourier_basis(phi, order)
    return np.eye(n)


def quantile_scales(data: Correlation) -> tuple[np.ndarray, np.ndarray]:
    """Return contrast (n,) and offset (n,) estimated from short and long lags.

    The offset is the 10th percentile of C2 at the longest fifth of lags, contrast the 90th at the shortest fifth less
    that, both kept within their ranges.
    """
    lag = data.lag.ravel()
    pairs = [_estimate(matrix.ravel(), lag) for matrix in data.c2]
    contrast, offset = np.array(pairs).T
    return contrast, offset


def _estimate(values: np.ndarray, lag: np.ndarray) -> tuple[float, float]:
    finite = np.isfinite(values)
    if finite.sum() < ENOUGH:
        return float(np.mean(CONTRAST)), float(np.mean(OFFSET))
    values, lag = values[finite], lag[finite]
    near, far = np.percentile(lag, [20, 80])
    late, early = values[lag >= far], values[lag <= near]
    late, early = (late if late.size >= SOME else values), (early if early.size >= SOME else values)
    offset = float(np.clip(np.percentile(late, 10), *OFFSET))
    return float(np.clip(np.percentile(early, 90) - offset, *CONTRAST)), offset


def shear_weights(phi: np.ndarray, phi0: float = 0.0, least: float = 0.3, power: float = 1.0) -> np.ndarray:
    """Return weights (n,), mean 1, that favour angles along the flow: least + (1 − least)·|cos(φ0 − φ)|^power."""
    weight = least + (1 - least) * np.abs(np.cos(np.deg2rad(phi0 - np.asarray(phi)))) ** power
    return weight / weight.mean()


def coefficients_of(basis: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """Return the coefficients (m,) whose scales are nearest to the given ones (n,)."""
    return np.linalg.lstsq(basis, scales, rcond=None)[0]


class Best(NamedTuple):
    """½Σr² at the best coefficients a and b of contrast and offset, and the log-determinant of their normal matrix."""

    value: jax.Array
    a: jax.Array
    b: jax.Array
    log_det: jax.Array


def best_scales(grams: jax.Array, design: Design) -> Best:
    """Return the best scales from Gram matrices (n, ≥3, ≥3) of [f, 1, y, …]."""
    if design.apart:
        solved = normal(grams[:, :3, :3], None)
        return Best(jnp.sum(least(solved)), solved.best[:, 0], solved.best[:, 1], jnp.sum(log_det(solved)))
    m, columns = design.basis.shape[1], design.columns
    matrix = jnp.einsum("kai,kab,kbj->ij", columns, grams[:, :2, :2], columns)
    vector = jnp.einsum("kai,ka->i", columns, grams[:, :2, 2])
    best, log_size = solve(matrix, vector)
    value = 0.5 * (jnp.sum(grams[:, 2, 2]) - best @ vector)
    return Best(value, best[:m], best[m:], log_size)


def solve(matrix: jax.Array, right: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the solution of a symmetric system, and the logarithm of its determinant.

    It is scaled to a unit diagonal; the smallest addition keeps one that is singular (f the same at all points)
    solvable: its answer is then one of many.
    """
    size = jnp.diag(matrix)
    unit = jnp.sqrt(jnp.where(size > 0, size, 1.0))  # 0: an angle that these rows do not have
    eps = 4 * jnp.finfo(matrix.dtype).eps
    factor = jnp.linalg.cholesky(matrix / jnp.outer(unit, unit) + eps * jnp.eye(len(unit), dtype=matrix.dtype))
    wide = unit if right.ndim == 1 else unit[:, None]
    solution = jax.scipy.linalg.cho_solve((factor, True), right / wide) / wide
    return solution, 2 * jnp.sum(jnp.log(jnp.diag(factor)) + jnp.log(unit))
