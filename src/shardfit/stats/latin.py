"""Latin hypercube: points of which exactly one lies in each of n slices of every axis, spread evenly in between."""

import numpy as np

ROUNDS, TRIALS = 40, 48
LARGEST = 2048  # beyond, slices are so thin that swapping them gains little, and all pairs cost much


def latin_hypercube(n: int, dims: int, rng: np.random.Generator, *, even: bool = True) -> np.ndarray:
    """Return n points (n, dims) in the unit cube.

    even: up to 2048 points are then spread out: coordinates of two points are exchanged, which keeps the slices,
    whenever it lowers the centred L2 discrepancy.

    Example: `lower + (upper - lower) * latin_hypercube(100, 4, np.random.default_rng(0))`.
    """
    slices = np.argsort(rng.random((n, dims)), axis=0)
    points = (slices + rng.random((n, dims))) / n
    return _spread_out(points, rng) if even and dims > 1 and 2 < n <= LARGEST else points


def _spread_out(points, rng):
    """Exchange coordinates, in each round the best of several random pairs on one axis."""
    n, dims = points.shape
    points = points.copy()
    off = np.abs(points - 0.5)
    alone = np.prod(1 + off / 2 - off**2 / 2, axis=1)
    pairs = np.ones((n, n))
    for k in range(dims):
        pairs *= _kernel(points[:, k, None], points[:, k])
    for _ in range(ROUNDS):
        k = rng.integers(dims)
        x = points[:, k]
        i = rng.integers(n, size=TRIALS)
        j = (i + rng.integers(1, n, size=TRIALS)) % n
        ratio = _kernel(x[j, None], x) / _kernel(x[i, None], x)
        trials = np.arange(TRIALS)
        # how the two exchange among themselves is unchanged; each one's own entry counts once, so half of the rest
        ratio[trials, i], ratio[trials, j] = 1, 1
        own = (1 + off[j, k]) / (1 + off[i, k])
        single = _single(off[j, k]) / _single(off[i, k])
        change = 2 * np.sum(pairs[i] * (ratio - 1) + pairs[j] * (1 / ratio - 1), axis=1)
        change += pairs[i, i] * (own - 1) + pairs[j, j] * (1 / own - 1)
        change -= 2 * n * (alone[i] * (single - 1) + alone[j] * (1 / single - 1))
        best = np.argmin(change)
        if change[best] >= 0:
            continue
        i, j, ratio = i[best], j[best], ratio[best]
        for row, factor, own_factor in ((i, ratio, own[best]), (j, 1 / ratio, 1 / own[best])):
            pairs[row] *= factor
            pairs[:, row] = pairs[row]
            pairs[row, row] *= own_factor
        alone[i] *= single[best]
        alone[j] /= single[best]
        points[[i, j], k] = points[[j, i], k]
        off[[i, j], k] = off[[j, i], k]
    return points


def _kernel(x, y):
    return 1 + np.abs(x - 0.5) / 2 + np.abs(y - 0.5) / 2 - np.abs(x - y) / 2


def _single(off):
    return 1 + off / 2 - off**2 / 2
