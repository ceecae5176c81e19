"""Importance sampling around Gaussians that are nearly right: what it costs to make them right.

Points are drawn from heavy-tailed t distributions and weighted by density over proposal; weights are smoothed, and
Pareto k says whether they can be trusted. While they cannot, new points are drawn from proposals that follow the
weighted ones. Only the last round's points count: those before have decided where it looks.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import gammaln, logsumexp

from shardfit.sampling.quality.psis import smoothed

FREEDOM = 5.0  # degrees of freedom of the proposals: tails heavier than those of any posterior that has moments
WIDER = 1.1  # proposals have tails on all sides of a density that is a little wider than they know
FOLLOWING = 1.3  # wider still: where points were missed they have no weight to follow
GOOD = 0.5  # Pareto k below which weights have a variance
KERNELS = 32  # proposals that follow the shape of a density to which no Gaussian fits
ENOUGH = 0.2  # share of effective points at which no better proposal is looked for


class Weighted(NamedTuple):
    """Points (m, n) with -log density `value` (m,) and normalised weights (m,).

    k: Pareto k of the weights; rounds: proposals that were tried.
    """

    points: np.ndarray
    value: np.ndarray
    weights: np.ndarray
    k: float
    rounds: int

    @property
    def effective(self) -> float:
        """Number of independent draws that would be as good."""
        return float(1 / np.sum(self.weights**2))

    def moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Return mean (n,) and covariance (n, n)."""
        mean = self.weights @ self.points
        away = self.points - mean
        return mean, (self.weights[:, None] * away).T @ away


class Proposal(NamedTuple):
    """A multivariate t: mean (n,), root (n, n) of its scale matrix, and how many points were drawn from it."""

    mean: np.ndarray
    root: np.ndarray
    count: int

    def draw(self, rng: np.random.Generator) -> np.ndarray:
        """Return count points."""
        size = len(self.mean)
        normal = rng.standard_normal((self.count, size))
        stretch = np.sqrt(FREEDOM / rng.chisquare(FREEDOM, self.count))
        return self.mean + (normal * stretch[:, None]) @ self.root.T

    def log_density(self, points: np.ndarray) -> np.ndarray:
        """Return the log density at points (m, n)."""
        size = len(self.mean)
        away = np.linalg.solve(self.root, (points - self.mean).T)
        constant = gammaln((FREEDOM + size) / 2) - gammaln(FREEDOM / 2) - 0.5 * size * np.log(np.pi * FREEDOM)
        constant -= np.sum(np.log(np.abs(np.diag(self.root))))
        return constant - 0.5 * (FREEDOM + size) * np.log1p(np.sum(away**2, axis=0) / FREEDOM)


def importance_sample(
    density: Callable[[np.ndarray], np.ndarray],
    gaussians: Sequence[tuple[np.ndarray, np.ndarray]],
    points: int,
    seed: int,
    rounds: int = 4,
) -> Weighted:
    """Return weighted points of a density, drawn around Gaussians (mean, covariance) that are close to it.

    density(points (m, n)) returns its logarithm (m,) up to a constant; it is asked for `points` values per round.
    """
    rng, each = np.random.default_rng(seed), -(-points // len(gaussians))
    proposals = [_proposal(mean, covariance, each) for mean, covariance in gaussians]
    for number in range(1, rounds + 1):
        # in random order, so that no part of the points is of one proposal
        drawn = rng.permutation(np.concatenate([proposal.draw(rng) for proposal in proposals]))
        weighted = _weigh(proposals, drawn, density(drawn), number)
        if weighted.k < GOOD and weighted.effective > ENOUGH * len(drawn):
            break
        proposals = _refitted(weighted, gaussians[0][1], len(drawn), rng)
    return weighted


def _weigh(proposals: list[Proposal], points: np.ndarray, logs: np.ndarray, rounds: int) -> Weighted:
    finite = np.isfinite(logs)
    if not finite.any():
        raise ValueError("importance sampling: the density is zero at every point that was tried.")
    shares = np.log([proposal.count / len(points) for proposal in proposals])
    mixture = logsumexp([s + p.log_density(points) for s, p in zip(shares, proposals, strict=True)], axis=0)
    logarithms, k = smoothed(np.where(finite, logs - mixture, -np.inf))  # no model there: no weight
    return Weighted(points, -logs, np.exp(logarithms), float(k), rounds)


def _refitted(weighted: Weighted, covariance: np.ndarray, count: int, rng: np.random.Generator) -> list[Proposal]:
    """Return proposals for half of `count` points each: one with the weighted moments, and small ones at chosen points.

    The small ones follow a bent density, to which no single one fits. The covariance counts as much as the few points
    that it replaces where there are not more of them.
    """
    mean, found = weighted.moments()
    size, effective = len(mean), weighted.effective
    found = (effective * found + (size + 2) * covariance) / (effective + size + 2)
    width = (4 / (size + 2) / KERNELS) ** (1 / (size + 4))  # Silverman's rule
    centres = weighted.points[rng.choice(len(weighted.points), KERNELS, p=weighted.weights)]
    each = -(-count // (2 * KERNELS))
    small = [_proposal(centre, (FOLLOWING * width) ** 2 * found, each) for centre in centres]
    return [_proposal(mean, FOLLOWING**2 * found, count - each * KERNELS), *small]


def _proposal(mean: np.ndarray, covariance: np.ndarray, count: int) -> Proposal:
    scale = np.sqrt(np.diag(covariance))
    root = scale[:, None] * np.linalg.cholesky(covariance / np.outer(scale, scale))
    return Proposal(mean, WIDER * root, count)
