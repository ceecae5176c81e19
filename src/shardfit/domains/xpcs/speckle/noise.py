"""How far measured maps scatter: as so many independent pixels, which may share speckles; the covariance of a gradient.

In the basis where speckle and shot noise are both diagonal, ratios s, squared residuals are u·s_a s_b +
v·(s_a + s_b + 1). For P independent pixels of Gaussian intensities u = v = 1/P. That intensities are squares of fields,
that counts are whole numbers, and that maps are normalised by their own means changes both; how much is read off
simulated pixels. From v follows P, from u how many times (ρ) pixels that share speckles scatter more.
"""

from typing import Any, NamedTuple

import numpy as np

from shardfit.domains.xpcs.speckle.weights import eigenbasis

PIXELS, LEAST_PIXELS, BATCH = 3000, 500, 100  # simulated in all, of a bin at least, and of one simulated measurement
EXAMPLES = 2  # bins of which a measurement is simulated
MODES = 12  # independent speckles in a pixel, at most
FEW = 3.0  # numbers behind u below which it says nothing
GRID = np.r_[1.0, 1.0 + np.geomspace(1e-3, 300.0, 600)]  # of ρ


class Bin(NamedTuple):
    """One bin at an answer: f (N, N), contrast, shot (N,) of the blocks, their widths (N,), seen (N, N), root (N, N)
    that whitens it, residual (N, N), columns (c, N, N) that it is fitted by: [f, 1, ∂f·contrast].
    """

    f: np.ndarray
    contrast: float
    shot: np.ndarray
    widths: np.ndarray
    seen: np.ndarray
    root: np.ndarray
    residual: np.ndarray
    columns: np.ndarray

    @property
    def covariance(self) -> np.ndarray:
        """Covariance (N, N) of a pixel's intensities."""
        return self.contrast * self.f + np.diag(self.shot)


class Noise(NamedTuple):
    """pixels: (n,) independent ones of each bin; sharing: ρ; draws: simulated intensities of bins, without counts and
    with them.
    """

    pixels: np.ndarray
    sharing: float
    draws: list


def measured_noise(bins: list[Bin], seed: int = 0) -> Noise:
    """Return the noise that the residuals of all bins show."""
    rng, n = np.random.default_rng(seed), len(bins)
    draws = [simulated_pixels(each, max(LEAST_PIXELS, PIXELS // n), rng) for each in bins]
    scales = np.array([np.mean((each.root @ each.residual @ each.root.T) ** 2) for each in bins])
    scales = scales / np.array([each.seen.mean() for each in bins])
    terms = [_squares(each, each.residual[None], share=n) for each in bins]
    squares = np.concatenate([y / scale for (y, _, _), scale in zip(terms, scales, strict=True)])
    u, v, behind = _shares(squares, *(np.concatenate([t[i] for t in terms]) for i in (1, 2)))
    chosen = [bins[k] for k in np.unique(np.linspace(0, n - 1, min(EXAMPLES, n)).round().astype(int))]
    u_one, v_one = np.mean([_expected(each, rng) for each in chosen], axis=0)
    shown = GRID + cumulants_of(GRID) * max(u_one - 1, 0.0)
    found = np.argmin(np.abs(shown - max(u * v_one / v, 1.0))) if behind > FEW else 0
    return Noise(v_one / (v * scales), float(GRID[found]), draws)


def gradient_covariances(each: Bin, pixels: float, noise: Noise, draws: tuple, most: float) -> list[np.ndarray]:
    """Return the covariance (c, c) of tr(G_a R), by which the columns of one bin change half the squared residuals; and
    what it would be if speckles were shared `most` times at most.
    """
    inner = each.root.T @ each.root
    seen = each.seen.astype(float)
    pulls = seen * (inner @ (seen * each.columns) @ inner)
    along = pulls @ (each.contrast * each.f)
    gaussian = 2 * products(along, np.swapaxes(along, 1, 2))
    speckle, counted = (
        np.cov(_scores(z, pulls, k)) for z, k in zip(draws, (each.contrast * each.f, each.covariance), strict=True)
    )
    return [
        (sharing * gaussian + cumulants_of(sharing) * (speckle - gaussian) + counted - speckle) / pixels
        for sharing in (noise.sharing, min(noise.sharing, most))
    ]


def cumulants_of(sharing: Any) -> Any:
    """Return how often fourth cumulants count where pixels share speckles so many times."""
    return np.minimum((1 + np.sqrt(sharing - 1)) ** 2, 2 * sharing)


def products(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Return the sums (a, b) of products of matrices (a, N, N) with others (b, N, N), element by element."""
    return one.reshape(len(one), -1) @ other.reshape(len(other), -1).T


def _scores(z: np.ndarray, pulls: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    """Return tr(G_a R) of single pixels z (m, N), normalised by the mean of all: (c, m)."""
    # dividing by the measured mean subtracts K ∘ (δ_i + δ_j) from the sample covariance
    return np.stack([np.einsum("mi,mi->m", z @ g, z) - 2 * z @ np.sum(g * covariance, axis=1) for g in pulls])


def simulated_pixels(each: Bin, number: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return intensities − 1 (number, N) of independent pixels with this bin's covariance: speckle alone, and counted.

    A pixel sums M = 1/contrast independent speckles whose fields decorrelate as √f.
    """
    modes = int(np.clip(round(1 / each.contrast), 1, MODES))
    values, vectors = np.linalg.eigh(np.sqrt(np.maximum(each.f, 0.0)))
    kept = values > 1e-4 * values[-1]
    root = vectors[:, kept] * np.sqrt(values[kept])
    root /= np.sqrt(np.sum(root**2, axis=1, keepdims=True))
    bright = np.zeros((number, len(root)))
    for _ in range(2 * modes):
        bright += (rng.standard_normal((number, root.shape[1])) @ root.T) ** 2
    bright /= 2 * modes
    bright = np.maximum(1 + np.sqrt(each.contrast * modes) * (bright - 1), 0.0)
    bright /= bright.mean(0)
    counted = rng.poisson(bright / each.shot) * each.shot
    return bright - 1, counted / np.maximum(counted.mean(0), 1e-300) - 1


def _expected(each: Bin, rng: np.random.Generator) -> tuple[float, float]:
    """Return (u, v) times the number of pixels, as independent pixels of this bin show them."""
    z = simulated_pixels(each, PIXELS, rng)[1]
    whole = z.T @ z / len(z)
    batches = np.split(z, PIXELS // BATCH)
    maps = np.stack([b.T @ b / BATCH - whole * (b.mean(0)[:, None] + b.mean(0)) for b in batches])
    maps = np.where(each.seen, maps - maps.mean(0), 0.0)
    u, v, _ = _shares(*_squares(each, maps, share=len(maps)))
    size = BATCH * len(maps) / (len(maps) - 1)
    return u * size, v * size


def _squares(each: Bin, residuals: np.ndarray, share: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return mean squares of residuals (m, N, N) in the eigenbasis, and what u and v are multiplied with there.

    share: bins that the fitted columns are common to; the fit took its part of the squares.
    """
    ratios, basis = eigenbasis(each.contrast * each.f, each.shot)
    upper = np.triu_indices(len(ratios))
    twice = (1.0 + np.eye(len(ratios)))[upper]
    by_u = twice * np.outer(ratios, ratios)[upper]
    by_v = twice * (ratios[:, None] + ratios + 1)[upper]
    squares = np.mean((basis @ residuals @ basis.T) ** 2, axis=0)[upper] / each.seen.mean()
    turned = (basis @ np.where(each.seen, each.columns, 0.0) @ basis.T)[:, upper[0], upper[1]] / np.sqrt(by_u + by_v)
    sizes = np.linalg.norm(turned, axis=1)
    taken = np.linalg.qr((turned[sizes > 0] / sizes[sizes > 0, None]).T)[0]
    left = 1 - np.sum(taken**2, axis=1) / share
    return squares, by_u * left, by_v * left


def _shares(squares: np.ndarray, by_u: np.ndarray, by_v: np.ndarray) -> tuple[float, float, float]:
    """Return u and v by quasi-likelihood of squares with variances in proportion to their square, and the numbers
    behind u.
    """
    u = v = float(np.mean(squares / (by_u + by_v)))
    behind = 0.0
    for _ in range(100):
        weight = 1 / (u * by_u + v * by_v) ** 2
        cross, behind = np.sum(weight * by_u * by_v), np.sum(weight * by_u * by_u) * u**2
        matrix = np.array([[np.sum(weight * by_u**2), cross], [cross, np.sum(weight * by_v**2)]])
        right = [np.sum(weight * by_u * squares), np.sum(weight * by_v * squares)]
        u_next, v_next = np.linalg.lstsq(matrix, right, rcond=None)[0]
        v_next = max(v_next, 1e-3 * v)
        u_next = max(u_next, 0.3 * v_next)
        moved = abs(u_next - u) + abs(v_next - v)
        u, v = float(u_next), float(v_next)
        if moved < 1e-8 * (u + v):
            break
    return u, v, float(behind)
