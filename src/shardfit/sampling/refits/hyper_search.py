"""Hyper-parameters by adaptive importance sampling: points where the evidence is, and how much each counts.

Unlike a grid it needs no ranges: points are first drawn from the hyper-parameters' own prior, then from Gaussians
fitted to the points so far. All of them count in the end, each against the mixture of what points were drawn from.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np
from scipy.optimize import brentq
from scipy.special import logsumexp
from scipy.stats import qmc

EACH = 32  # points of a round; a power of two, as Sobol numbers ask for
ROUNDS, MOST_ROUNDS = 4, 8  # at least, and at most where weights are too uneven
EVEN = 10.0  # effective points that a Gaussian is fitted to, and below which there is another round
BEST = 8  # points whose modes others start from
WIDER, FLOOR = 1.5, 0.05  # of proposals: factor on variances, and least variance in units of the prior


class Gaussian(NamedTuple):
    """What points are drawn from: mean (d,) and triangular root (d, d) of the covariance."""

    mean: np.ndarray
    root: np.ndarray

    def draw(self, count: int, rng: np.random.Generator) -> np.ndarray:
        """Return points (count, d) that fill it evenly."""
        return self.mean + qmc.MultivariateNormalQMC(np.zeros(len(self.mean)), rng=rng).random(count) @ self.root.T

    def log_density(self, h: np.ndarray) -> np.ndarray:
        """Return the logarithm of its density at h (k, d), up to the constant that all Gaussians share."""
        unit = np.linalg.solve(self.root, (h - self.mean).T)
        return -0.5 * np.sum(unit**2, 0) - np.log(np.diag(self.root)).sum()


@dataclass(frozen=True, eq=False)
class HyperPoints:
    """Points h (k, d), their modes y (k, n), log evidence (k,) and logarithms of their weights (k,)."""

    h: np.ndarray
    y: np.ndarray
    log_z: np.ndarray
    log_weight: np.ndarray

    @property
    def share(self) -> np.ndarray:
        """Share of the posterior, (k,)."""
        return shares(self.log_weight)

    @property
    def effective(self) -> float:
        """How many equally probable points would be as good."""
        return float(1 / np.sum(self.share**2))

    def pick(self, draws: int, seed: int) -> np.ndarray:
        """Return a point for every draw, in any order, each as often as its share says (systematic resampling)."""
        rng = np.random.default_rng(seed)
        at = (rng.permutation(draws) + rng.uniform()) / draws
        return np.minimum(np.searchsorted(np.cumsum(self.share), at), len(self.h) - 1)


def search(solve: Callable[[np.ndarray, np.ndarray], Any], y0: np.ndarray, d: int, seed: int) -> HyperPoints:
    """Explore d hyper-parameters whose prior is a unit Gaussian.

    solve(h (k, d), y0 (k, n)) returns modes with y and log_evidence; the first points start at y0 (n,), every other at
    the mode of a neighbour.
    """
    prior = Gaussian(np.zeros(d), np.eye(d))
    proposals = [prior]
    h = prior.draw(EACH, np.random.default_rng([seed, 0]))
    points = _weighed(h, solve(h, np.repeat(y0[None], EACH, 0)), proposals)
    for number in range(1, MOST_ROUNDS):
        if number >= ROUNDS and points.effective >= EVEN:
            break
        proposals.append(_fitted(points))
        h = proposals[-1].draw(EACH, np.random.default_rng([seed, number]))
        points = _weighed(h, solve(h, points.y[_neighbour(h, points)]), proposals, points)
    return points


def shares(log_weight: np.ndarray) -> np.ndarray:
    """Return weights that sum to one."""
    return np.exp(log_weight - logsumexp(log_weight))


def _weighed(h: np.ndarray, found: Any, proposals: list[Gaussian], earlier: HyperPoints | None = None) -> HyperPoints:
    """Return new points and those of earlier rounds; the first of the proposals is the prior."""
    y, log_z = np.asarray(found.y), np.asarray(found.log_evidence)
    if earlier is not None:
        pairs = ((earlier.h, h), (earlier.y, y), (earlier.log_z, log_z))
        h, y, log_z = (np.concatenate(pair) for pair in pairs)
    if not np.isfinite(log_z).any():
        raise ValueError("no hyper-parameters were found for which the fit converges. Check the data and their errors.")
    drawn_from = logsumexp([one.log_density(h) for one in proposals], axis=0) - np.log(len(proposals))
    return HyperPoints(h, y, log_z, log_z + proposals[0].log_density(h) - drawn_from)


def _fitted(points: HyperPoints) -> Gaussian:
    """Return a Gaussian around the points so far; weights are tempered where few of them have it all."""
    least = min(EVEN, 0.5 * np.isfinite(points.log_z).sum())

    def spare(power: float) -> float:
        return float(1 / np.sum(shares(power * points.log_weight) ** 2) - least)

    power = 1.0 if spare(1.0) >= 0 else cast(float, brentq(spare, 1e-9, 1.0))
    share = shares(power * points.log_weight)
    mean = share @ points.h
    away = points.h - mean
    return Gaussian(mean, np.linalg.cholesky(WIDER * (share * away.T) @ away + FLOOR * np.eye(len(mean))))


def _neighbour(h: np.ndarray, points: HyperPoints) -> np.ndarray:
    """Return for every new h (k, d) the nearest of the most probable points: modes of others may be poor minima."""
    best = np.argsort(points.log_z)[-BEST:]
    distance = np.sum((h[:, None] - points.h[best]) ** 2, -1)
    return best[np.argmin(distance, axis=1)]
