"""Whether ranks are uniform: what a calibrated method's ranks are, tested by histogram and by distribution function.

Säilynoja, Bürkner and Vehtari, Statistics and Computing 32 (2022), for bands that hold the whole function at once.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

SIMULATIONS = 10_000
BLOCK = 500  # simulations at once
MOST_BINS = 20
LEAST_EXPECTED = 5  # of a bin, for χ² to hold


@dataclass(frozen=True)
class UniformRanks:
    """n independent ranks, each uniform on 0 … draws."""

    n: int
    draws: int

    @cached_property
    def bins(self) -> int:
        """Number of bins of equal width: as many as the ranks fill, at most 20."""
        widths = range(min(MOST_BINS, self.n // LEAST_EXPECTED), 1, -1)
        return next((bins for bins in widths if (self.draws + 1) % bins == 0), 1)

    def histogram(self, ranks: np.ndarray) -> np.ndarray:
        """Return the counts of ranks (n, m) in bins: (bins, m)."""
        place = ranks * self.bins // (self.draws + 1)
        return np.stack([(place == i).sum(0) for i in range(self.bins)])

    def p_of_histogram(self, ranks: np.ndarray) -> np.ndarray:
        """Return p values (m,) of χ² of the histograms of ranks (n, m); 1 where there are too few ranks for bins."""
        from scipy.special import chdtrc

        if self.bins < 2:
            return np.ones(ranks.shape[1])
        expected = self.n / self.bins
        return chdtrc(self.bins - 1, ((self.histogram(ranks) - expected) ** 2).sum(0) / expected)

    def p_of_function(self, ranks: np.ndarray) -> np.ndarray:
        """Return p values (m,) of the farthest excursion of the distribution functions of ranks (n, m)."""
        extreme = self._extremes(self.below(ranks).T)
        return (1 + (self._simulated[None] <= extreme[:, None]).sum(1)) / (1 + SIMULATIONS)

    def band(self, share: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        """Return lower and upper ends (draws,) of the counts of ranks ≤ k that hold whole functions with this share."""
        from scipy.stats import binom

        level = np.quantile(self._simulated, 1 - share)
        return binom.ppf(level / 2, self.n, self.shares), binom.ppf(1 - level / 2, self.n, self.shares)

    @property
    def shares(self) -> np.ndarray:
        """Probability of a rank ≤ k, for k = 0 … draws - 1."""
        return np.arange(1, self.draws + 1) / (self.draws + 1)

    def below(self, ranks: np.ndarray) -> np.ndarray:
        """Return how many of ranks (n, m) are ≤ k: (draws, m)."""
        counts = np.stack([np.bincount(column, minlength=self.draws + 1) for column in ranks.T], axis=1)
        return np.cumsum(counts, axis=0)[:-1]

    def _extremes(self, below: np.ndarray) -> np.ndarray:
        """Return the smallest two-sided probability along functions (m, draws) of counts."""
        at = np.arange(self.draws)
        lower, upper = self._tails
        return np.minimum(1.0, 2 * np.minimum(lower[below, at], upper[below, at]).min(1))

    @cached_property
    def _tails(self) -> tuple[np.ndarray, np.ndarray]:
        from scipy.stats import binom

        counts = np.arange(self.n + 1)[:, None]
        return binom.cdf(counts, self.n, self.shares), binom.sf(counts - 1, self.n, self.shares)

    @cached_property
    def _simulated(self) -> np.ndarray:
        rng, found = np.random.default_rng(0), []
        for _ in range(SIMULATIONS // BLOCK):
            ranks = rng.integers(0, self.draws + 1, size=(self.n, BLOCK))
            found.append(self._extremes(self.below(ranks).T))
        return np.concatenate(found)
