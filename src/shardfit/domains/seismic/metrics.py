"""How far a model is from the truth: rms error and structural similarity."""

import numpy as np

from shardfit.domains.seismic.arrays import Velocity

WINDOW, TRUNCATE = 1.5, 3.5  # standard deviation in cells, and where the window ends: 11 x 11 cells


def model_error(velocity: Velocity, truth: Velocity) -> float:
    """Return the rms difference, m/s."""
    return float(np.sqrt(np.mean((np.asarray(velocity, float) - np.asarray(truth, float)) ** 2)))


def structural_similarity(velocity: Velocity, truth: Velocity) -> float:
    """Return the mean structural similarity index of two models, 1 where they are equal.

    Wang, Bovik, Sheikh and Simoncelli (2004): a Gaussian window of 11 x 11 cells, K1 = 0.01, K2 = 0.03, and the range
    of the truth as dynamic range; only windows that lie inside count.
    """
    from scipy.ndimage import gaussian_filter

    x, y = np.asarray(velocity, float), np.asarray(truth, float)
    span = np.ptp(y)
    if x.shape != y.shape or min(y.shape) < 11:
        raise ValueError(f"similarity of shapes {x.shape} and {y.shape}: give equal ones of 11 cells or more a side.")
    if not span > 0:
        raise ValueError("similarity: the truth is the same everywhere, so there is no structure to compare.")
    inside = (slice(5, -5),) * y.ndim

    def mean(field):
        return gaussian_filter(field, WINDOW, truncate=TRUNCATE)[inside]

    mean_x, mean_y = mean(x), mean(y)
    var_x, var_y, cov = mean(x * x) - mean_x**2, mean(y * y) - mean_y**2, mean(x * y) - mean_x * mean_y
    c1, c2 = (0.01 * span) ** 2, (0.03 * span) ** 2
    index = (2 * mean_x * mean_y + c1) * (2 * cov + c2) / ((mean_x**2 + mean_y**2 + c1) * (var_x + var_y + c2))
    return float(index.mean())
