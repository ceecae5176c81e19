"""Mass of a density where no draw is: a wide slab around a spike, where chains stay with steps that suit the spike."""

from collections.abc import Callable

import numpy as np

WIDTHS = (3.0, 10.0, 30.0, 100.0)  # of the Gaussians that points are drawn from, in those of the draws
POINTS = 64  # of each
MOST = 20  # coordinates; of more, no few points say anything


def mass_outside(density: Callable[[np.ndarray], np.ndarray], z: np.ndarray, values: np.ndarray, seed: int) -> float:
    """Return about what share of a density lies farther out than all draws, by importance sampling.

    density: -log density of points (m, n). z: (chains, draws, n), with their -log densities (chains, draws). NaN if the
    draws do not span the coordinates, or these are too many.
    """
    flat, values = z.reshape(-1, z.shape[-1]), values.ravel()
    n = flat.shape[1]
    mean, covariance = flat.mean(0), np.atleast_2d(np.cov(flat.T))
    sd = np.sqrt(np.diag(covariance))
    if n > MOST or len(flat) < 10 * n or not (np.isfinite(values).all() and np.all(sd > 0)):
        return float("nan")
    try:
        root = sd[:, None] * np.linalg.cholesky(covariance / np.outer(sd, sd) + 1e-12 * np.eye(n))
    except np.linalg.LinAlgError:
        return float("nan")
    away = np.sum(np.linalg.solve(root, (flat - mean).T) ** 2, 0)
    inside = np.median(0.5 * away - values)  # log of the density's integral, in units of that of the draws' Gaussian
    noise = np.random.default_rng(seed).standard_normal((len(WIDTHS), POINTS, n))
    widths = np.array(WIDTHS)[:, None]
    points = mean + widths[..., None] * noise @ root.T
    logs = -density(points.reshape(-1, n)).reshape(widths.size, POINTS)
    squares = np.sum(noise**2, -1)
    logs = np.where(squares * widths**2 > away.max(), logs + 0.5 * squares + n * np.log(widths) - inside, -np.inf)
    ratio = np.max(np.mean(np.exp(np.minimum(np.nan_to_num(logs, nan=-np.inf), 50)), 1))
    return float(ratio / (1 + ratio))
