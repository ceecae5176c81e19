"""Into how many shards correlations are divided for sampling, by the sizes that are usual in the field."""

from typing import Any

SHARDED_FROM = 100_000  # points
# total number of points from which on a shard has so many
SHEARED = ((1e9, 10000), (1e8, 8000), (2e6, 5000), (0, 8000))
STILL = ((1e8, 20000), (5e7, 15000), (0, 10000))
FEW_ANGLES = ((3, 0.6), (5, 0.7), (10, 0.85))  # up to so many angles, smaller shards
LEAST = {True: 3000, False: 5000}
MOST_SHARDS = ((1e7, 2000), (1e8, 10000), (1e9, 50000), (float("inf"), 100000))  # below so many points


def shard_size(n_points: int, n_angles: int, sheared: bool, steps: int = 2000) -> int:
    """Return how many points a shard should have; steps: of a chain, warm-up included, for which 2000 is usual."""
    size = next(size for least, size in (SHEARED if sheared else STILL) if n_points >= least)
    share = next((share for most, share in FEW_ANGLES if n_angles <= most), 1.0)
    most = next(most for below, most in MOST_SHARDS if n_points < below)
    usual = max(size * share, LEAST[sheared]) * min(2.0, max(0.25, 2000 / steps))
    return int(max(usual, n_points / most))


def shard_count(fit: Any, steps: int = 2000) -> int:
    """Return the number of shards for a fit's data: one for few points, else of two groups of frames or more each."""
    n, groups = fit.setup.n_points, sum(fit.setup.problem.objective.n_rows.values())
    if n < SHARDED_FROM:
        return 1
    size = shard_size(n, len(fit.contrast), any(n.startswith("S") for n in fit.rates), steps)
    return max(1, min(n // size, groups // 2))
