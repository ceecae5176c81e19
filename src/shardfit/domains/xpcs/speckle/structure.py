"""What a fit's gradient scatters by, and whether its residuals have a structure that noise does not have.

Beside the columns that are fitted, residuals are summed over bands of correlation, early and late, and along against
across a direction. What the fit leaves of these sums has a covariance by the same theory, so that their χ² tells of a
model that does not hold. A misfit looks like speckles that pixels share, so no more than `CREDIBLE` counts as such.
"""

from typing import NamedTuple

import numpy as np

from shardfit.domains.xpcs.speckle.noise import Bin, Noise, gradient_covariances, products

LEVELS = ((0.7, 2.0), (0.4, 0.7), (0.15, 0.4), (-1.0, 0.15))  # of f
CREDIBLE = 2.0  # times that pixels share speckles
BANDS = tuple((*level, late) for level in LEVELS for late in (False, True))
KNOWN = 1e-6  # least variance of a direction, of the largest, that is looked at


class Structure(NamedTuple):
    """χ² of what sums of residuals are left with, by their number."""

    chi2: float
    dof: int


class Sums:
    """Sums over bins: the gradient's covariance meat (p, p) and, with bands, the same of bands of residuals."""

    def __init__(self, size: int, bands: bool):
        self.size, self.bands = size, bands
        whole = size + (len(BANDS) + 2 * len(LEVELS) if bands else 0)
        self._spread, self._normal, self.meat = *np.zeros((2, whole, whole)), np.zeros((size, size))
        self._pull = np.zeros(whole)

    def add(self, each: Bin, precision: float, noise: Noise, k: int, to_whole: np.ndarray, phi: float) -> None:
        """Add bin k; to_whole (p, c): where its columns are among all that is fitted."""
        bands = in_bands(each, phi) if self.bands else np.empty((0, *each.f.shape))
        wide = each._replace(columns=np.concatenate([each.columns, bands]))
        own, less = gradient_covariances(wide, noise.pixels[k], noise, noise.draws[k], CREDIBLE)
        fitted = own[: len(each.columns), : len(each.columns)]
        self.meat += precision**2 * to_whole @ fitted @ to_whole.T
        turn = np.zeros((len(self._pull), len(wide.columns)))
        turn[: self.size, : len(each.columns)] = to_whole
        turn[self.size :, len(each.columns) :] = np.eye(len(bands))
        across = each.root.T
        white = each.root @ (each.seen * wide.columns) @ across
        residual = each.root @ (each.seen * each.residual) @ across
        self._spread += precision**2 * turn @ less @ turn.T
        self._normal += precision * turn @ products(white, white) @ turn.T
        self._pull += precision * turn @ products(white, residual[None])[:, 0]

    def structure(self, inverse: np.ndarray) -> Structure:
        """Return χ² of the bands, given the inverse normal matrix (p, p) of the fit."""
        p = self.size
        left = np.concatenate([-self._normal[p:, :p] @ inverse, np.eye(len(self._pull) - p)], axis=1)
        spread, pull = left @ self._spread @ left.T, left @ self._pull
        unit = np.sqrt(np.maximum(np.diag(self._spread)[p:], 1e-300))  # before the fit took its part
        sizes, vectors = np.linalg.eigh(spread / np.outer(unit, unit))
        seen = sizes > KNOWN * max(sizes[-1], 1e-300)
        along = (vectors.T @ (pull / unit))[seen]
        return Structure(float(np.sum(along**2 / sizes[seen])), int(seen.sum()))


def in_bands(each: Bin, phi: float) -> np.ndarray:
    """Return 1 where a pair of frames is in a band of correlation, early or late, and waves in φ of it (16, N, N)."""
    age = np.add.outer(np.arange(len(each.f)), np.arange(len(each.f))) >= len(each.f) - 1
    parts = [((each.f > low) & (each.f <= high) & (age == late)).astype(float) for low, high, late in BANDS]
    levels = [parts[2 * i] + parts[2 * i + 1] for i in range(len(LEVELS))]
    turn = 2 * np.deg2rad(phi)
    return np.stack([*parts, *(wave(turn) * level for level in levels for wave in (np.cos, np.sin))])
