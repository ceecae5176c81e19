"""Importance sampling around Gaussians that are nearly right: what it costs to make them right.

Points are drawn from heavy-tailed t distributions and weighted by density over proposal; weights are smoothed, and
Pareto k says whether they can be trusted. While they cannot, new points are drawn from proposals that follow the
weighted ones; those before have decided where to look, and no longer count. Then points are added from the same
proposals until the Monte Carlo errors of all means, standard deviations and correlations are small enough.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.special import gammaln, logsumexp

from shardfit.sampling.quality.psis import LARGEST_K, smoothed

FREEDOM = 5.0  # degrees of freedom of the proposals: tails heavier than those of any posterior that has moments
PROBES, WIDE, PROBE_FREEDOM = 0.03, (3.0, 30.0, 300.0), 3.0  # share of points that look so much farther, their tails
STAYING = 0.2  # share of the points of the first proposals that is drawn from these in later rounds
WIDER = 1.1  # proposals have tails on all sides of a density that is a little wider than they know
FOLLOWING = 1.3  # wider still: where points were missed they have no weight to follow
GOOD = 0.5  # Pareto k below which weights have a variance
KERNELS, FOR_EACH = 256, 50  # at most so many proposals, one for so many points, follow what no Gaussian fits
ENOUGH = 0.2  # share of effective points at which no better proposal is looked for
ACCURACY = 0.01  # largest Monte Carlo error of a moment: a fifth of what matters, for there are many moments to err
MOST = 50_000  # values of the density
MARGIN = 1.1  # more points than the errors so far ask for: they are estimates themselves

Density = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True, eq=False)
class Weighted:
    """Points (m, n) with -log density `value` (m,) and normalised weights (m,).

    k: Pareto k of the weights; rounds: proposals that were tried; values: of the density, in all rounds; log_mass: log
    of the density's integral.
    """

    points: np.ndarray
    value: np.ndarray
    weights: np.ndarray
    k: float
    rounds: int
    values: int
    log_mass: float

    @property
    def mass_error(self) -> float:
        """The Monte Carlo standard error of log_mass."""
        return float(np.sqrt(max(1 / self.effective - 1 / len(self.weights), 0.0)))

    @property
    def effective(self) -> float:
        """Number of independent draws that would be as good."""
        return float(1 / np.sum(self.weights**2))

    def moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Return mean (n,) and covariance (n, n)."""
        mean = self.weights @ self.points
        away = self.points - mean
        return mean, (self.weights[:, None] * away).T @ away

    @cached_property
    def error(self) -> float:
        """The largest Monte Carlo standard error of a mean, in standard deviations, of a standard deviation, relative,
        or of a correlation.
        """
        mean, covariance = self.moments()
        scale = np.sqrt(np.diag(covariance))
        unit, correlation = (self.points - mean) / scale, covariance / np.outer(scale, scale)
        squared, share = unit**2, self.weights**2
        largest = max(np.max(share @ squared), np.max(share @ (squared - 1) ** 2) / 4)
        for j, own in enumerate(correlation):
            drift = unit[:, [j]] * unit - 0.5 * own * (squared[:, [j]] + squared)
            largest = max(largest, np.max(share @ drift**2))
        return float(np.sqrt(largest))


class Proposal(NamedTuple):
    """A multivariate t: mean (n,), root (n, n) of its scale matrix, how many points of a round are its own, and its
    degrees of freedom.
    """

    mean: np.ndarray
    root: np.ndarray
    count: int
    freedom: float = FREEDOM

    def draw(self, rng: np.random.Generator, times: int = 1) -> np.ndarray:
        """Return `times` as many points as a round has."""
        size, count = len(self.mean), times * self.count
        normal = rng.standard_normal((count, size))
        stretch = np.sqrt(self.freedom / rng.chisquare(self.freedom, count))
        return self.mean + (normal * stretch[:, None]) @ self.root.T

    def log_density(self, points: np.ndarray) -> np.ndarray:
        """Return the log density at points (m, n)."""
        size, nu = len(self.mean), self.freedom
        away = np.linalg.solve(self.root, (points - self.mean).T)
        constant = gammaln((nu + size) / 2) - gammaln(nu / 2) - 0.5 * size * np.log(np.pi * nu)
        constant -= np.sum(np.log(np.abs(np.diag(self.root))))
        return constant - 0.5 * (nu + size) * np.log1p(np.sum(away**2, axis=0) / nu)


def importance_sample(
    density: Density,
    gaussians: Sequence[tuple[np.ndarray, np.ndarray]],
    points: int,
    seed: int,
    rounds: int = 4,
    most: int = 0,
    wanted: Callable[[Weighted], float] = lambda weighted: weighted.error / ACCURACY,
) -> Weighted:
    """Return weighted points of a density, drawn around Gaussians (mean, covariance) that are close to it.

    density(points (m, n)) returns its logarithm (m,) up to a constant; it is asked for `points` values per round, for
    new proposals in at most so many rounds. A part of the points are probes far from the Gaussians: what these miss has
    large weights there, which Pareto k tells. most: values in all, if points are to be added while an error is above
    what is wanted (a ratio; by default of the moments) and Pareto k says that they would help.
    """
    rng, each = np.random.default_rng(seed), -(-points // len(gaussians))
    firsts = _with_probes([_proposal(mean, covariance, each) for mean, covariance in gaussians])
    proposals = firsts
    drawn, logs = _drawn(proposals, density, rng)
    values, number, tries = len(drawn), 1, rounds - 1
    while True:
        weighted = _weigh(proposals, drawn, logs, number, values)
        good = weighted.k < GOOD and weighted.effective > ENOUGH * len(drawn)
        room = most - values
        if tries and not good and (not most or room >= len(drawn)):
            # the first ones stay: what they see alone, a few narrow points, new ones may forget
            kept = [first._replace(count=max(1, int(STAYING * first.count))) for first in firsts]
            proposals = kept + _with_probes(_refitted(weighted, gaussians[0][1], points, rng))
            drawn, logs = _drawn(proposals, density, rng)
            values, number, tries = values + len(drawn), number + 1, tries - 1
        elif weighted.k <= LARGEST_K and (times := _times(weighted, wanted(weighted), proposals, room)):
            new, more = _drawn(proposals, density, rng, times)
            drawn, logs = np.concatenate([drawn, new]), np.concatenate([logs, more])
            values, tries = values + len(new), 1  # many points may see what few have missed
        else:
            return weighted


def _with_probes(proposals: list[Proposal]) -> list[Proposal]:
    """Return proposals with wide ones around the largest of them, which see what lies beside."""
    most = max(proposal.count for proposal in proposals)
    count, largest = max(1, int(PROBES * most)), [p for p in proposals if p.count == most]
    return proposals + [Proposal(p.mean, wide * p.root, count, PROBE_FREEDOM) for p in largest for wide in WIDE]


def _times(weighted: Weighted, error: float, proposals: list[Proposal], room: int) -> int:
    """Return how many rounds of points to add: what the errors ask for, but no more than thrice what is there."""
    each, have = sum(proposal.count for proposal in proposals), len(weighted.points)
    wanted = MARGIN * have * error**2 - have
    return int(min(np.ceil(min(wanted, 3 * have) / each), max(room, 0) // each)) if error > 1 else 0


def _drawn(
    proposals: list[Proposal], density: Density, rng: np.random.Generator, times: int = 1
) -> tuple[np.ndarray, np.ndarray]:
    """Return points, in random order so that no part of them is of one proposal, and their log densities."""
    points = rng.permutation(np.concatenate([proposal.draw(rng, times) for proposal in proposals]))
    return points, density(points)


def _weigh(proposals: list[Proposal], points: np.ndarray, logs: np.ndarray, rounds: int, values: int) -> Weighted:
    finite = np.isfinite(logs)
    if not finite.any():
        raise ValueError("importance sampling: the density is zero at every point that was tried.")
    counts = np.array([proposal.count for proposal in proposals])
    shares = np.log(counts / counts.sum())
    mixture = logsumexp([s + p.log_density(points) for s, p in zip(shares, proposals, strict=True)], axis=0)
    raw = np.where(finite, logs - mixture, -np.inf)  # no model there: no weight
    logarithms, k = smoothed(raw)
    mass = float(logsumexp(raw) - np.log(len(raw)))
    return Weighted(points, -logs, np.exp(logarithms), float(k), rounds, values, mass)


def _refitted(weighted: Weighted, covariance: np.ndarray, count: int, rng: np.random.Generator) -> list[Proposal]:
    """Return proposals for half of `count` points each: one with the weighted moments, and small ones at chosen points.

    The small ones follow a bent density, to which no single one fits. The covariance counts as much as the few points
    that it replaces where there are not more of them.
    """
    mean, found = weighted.moments()
    size, effective = len(mean), weighted.effective
    found = (effective * found + (size + 2) * covariance) / (effective + size + 2)
    kernels = int(np.clip(count // FOR_EACH, 1, KERNELS))
    width = (4 / (size + 2) / kernels) ** (1 / (size + 4))  # Silverman's rule
    centres = weighted.points[rng.choice(len(weighted.points), kernels, p=weighted.weights)]
    each = max(1, count // (2 * kernels))
    small = [_proposal(centre, (FOLLOWING * width) ** 2 * found, each) for centre in centres]
    return [_proposal(mean, FOLLOWING**2 * found, max(1, count - each * kernels)), *small]


def _proposal(mean: np.ndarray, covariance: np.ndarray, count: int) -> Proposal:
    scale = np.sqrt(np.diag(covariance))
    root = scale[:, None] * np.linalg.cholesky(covariance / np.outer(scale, scale))
    return Proposal(mean, WIDER * root, count)
