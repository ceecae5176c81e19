"""What whitens two-time maps: the covariance K₀ = contrast · f + shot noise of a pixel's intensities, bin by bin.

Shot noise is what the diagonal has beyond contrast and offset. Where a file does not show its diagonal, it is the one
with which the scatter of the residuals is most probable; noise of independent points comes out as shot noise alone, and
the whitened fit is then the usual one.
"""

from dataclasses import dataclass

import numpy as np

from shardfit.domains.xpcs.speckle.blocks import Maps

LEAST_CONTRAST = 1e-3
LEAST_SHOT = 1e-3  # of the contrast: K₀ must have an inverse where there is no shot noise to be seen
RANGE, STEPS = (1e-3, 1e3), 61  # of the contrast, that shot noise is looked for in


@dataclass(frozen=True, eq=False)
class Whitening:
    """K₀ of every bin: f (n, N, N), contrast (n,), shot (n,) of a frame, roots L⁻¹ (n, N, N), precision (n,).

    residuals: (n, N, N) data less model at the answer that K₀ is of, zero where nothing was measured.
    """

    f: np.ndarray
    contrast: np.ndarray
    shot: np.ndarray
    roots: np.ndarray
    precision: np.ndarray
    residuals: np.ndarray


def whitening(maps: Maps, f: np.ndarray, contrast: np.ndarray, offset: np.ndarray) -> Whitening:
    """Return what whitens the maps at a model f (n, N, N) with contrast (n,) and offset (n,)."""
    residuals = np.where(maps.seen, maps.y - contrast[:, None, None] * f - offset[:, None, None], 0.0)
    contrast = np.maximum(contrast, LEAST_CONTRAST)
    shot, roots, precision = np.empty(len(f)), np.zeros_like(f), np.empty(len(f))
    for k, own in enumerate(f):
        measured = maps.seen[k].any(axis=1)  # a bin may have fewer frames than others
        square, widths = np.ix_(measured, measured), maps.widths[measured]
        speckle, excess = contrast[k] * own[square], maps.shot[k] - offset[k] - contrast[k]
        if not excess > LEAST_SHOT * contrast[k]:  # NaN: no diagonal was kept
            excess = shot_from_scatter(residuals[k][square], speckle, widths)
        shot[k] = excess
        roots[k][square] = np.linalg.inv(np.linalg.cholesky(speckle + np.diag(excess / widths)))
        white = roots[k] @ residuals[k] @ roots[k].T
        precision[k] = 0.5 * maps.seen[k].sum() / np.sum(white**2)
    return Whitening(f, contrast, shot, roots, precision, residuals)


def plain_roots(maps: Maps) -> np.ndarray:
    """Return what makes the whitened fit one by least squares, (N, N)."""
    return np.diag(np.sqrt(maps.widths))


def eigenbasis(speckle: np.ndarray, shot: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return ratios s (N,) of speckle to shot noise (N,), and the matrix (N, N) to where both are diagonal."""
    unit = 1 / np.sqrt(shot)
    ratios, vectors = np.linalg.eigh(unit[:, None] * speckle * unit)
    return np.maximum(ratios, 0.0), vectors.T * unit


def shot_from_scatter(residual: np.ndarray, speckle: np.ndarray, widths: np.ndarray) -> float:
    """Return the shot noise of a frame with which residuals of one bin are most probable, of any number of pixels."""
    ratios, basis = eigenbasis(speckle, 1 / widths)
    upper = np.triu_indices(len(widths), 1)
    squares = ((basis @ residual @ basis.T) ** 2)[upper]
    best, found = np.inf, np.nan
    for shot in np.geomspace(*RANGE, STEPS) * speckle[0, 0]:
        expected = np.outer(ratios + shot, ratios + shot)[upper]
        cost = np.log(np.mean(squares / expected)) * squares.size + np.sum(np.log(expected))
        if cost < best:
            best, found = cost, shot
    return float(found)
