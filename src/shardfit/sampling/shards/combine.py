"""Posteriors of shards, combined to one: rules on arrays of draws (shards, draws, n).

If every shard's posterior is a Gaussian, so is their product, with the sum of precisions: the rules that use whole
covariances are then exact up to the draws' own scatter. The rules by parameter lose every correlation; they are kept
because published results were made with them.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.stats import chi2

from shardfit.core.errors import suggestion

FEWEST = 3  # shards that must remain when outliers are left out
FAR = 1e-3  # probability, for all shards together, below which one disagrees with the others
OUTLIER = 3.5  # robust standard deviations from the median, of the published rule


class Combined(NamedTuple):
    """A Gaussian for the posterior of all rows: mean (n,), covariance (n, n).

    used: (shards,) which shards went into all of it, True for those that did; points: (draws, n) draws that were
    combined one by one, None where a rule gives moments only.
    """

    mean: np.ndarray
    covariance: np.ndarray
    used: np.ndarray
    points: np.ndarray | None = None


def combine(draws: np.ndarray, rule: str = "full", effective: np.ndarray | None = None) -> Combined:
    """Combine draws (shards, draws, n) of shards, in coordinates without bounds.

    rule: 'full' (precisions add), 'debiased' (the same, less what few draws add to a precision), 'draws' (every draw is
    a weighted mean of one draw from each shard), 'robust' ('full' without shards whose means are far from the others'),
    'consensus_mc' and 'robust_consensus_mc' (each parameter by itself). effective: (shards,) effective draws, for
    'debiased'.

    Example: `combine(draws, "draws").points`.
    """
    require_rule(rule)
    if draws.ndim != 3 or draws.shape[1] <= draws.shape[2] + 2:
        raise ValueError(
            f"combine: draws of shape {draws.shape} (shards, draws, n) are too few for a covariance. Draw more."
        )
    if rule == "debiased":
        return full_covariance(draws, draws.shape[1] if effective is None else effective)
    return RULES[rule](draws)


def require_rule(rule: str) -> None:
    """Raise for a name that no rule has."""
    if rule not in RULES:
        raise ValueError(f"unknown rule {rule!r}.{suggestion(str(rule), RULES)}")


def full_covariance(draws: np.ndarray, effective: np.ndarray | float | None = None) -> Combined:
    """Add precisions: V = (Σ S⁻¹)⁻¹, mean = V Σ S⁻¹ m.

    effective: (shards,) effective draws, if the inverse of a covariance estimated from draws is to be made smaller by
    what it is too large on average (Hartlap's factor).
    """
    precisions = _precisions(draws)
    if effective is not None:
        n, size = np.broadcast_to(effective, len(draws)), draws.shape[2]
        if np.any(n <= size + 2):
            raise ValueError(f"combine: a shard has {np.min(n):.0f} effective draws for {size} parameters. Draw more.")
        precisions = precisions * ((n - size - 2) / (n - 1))[:, None, None]
    covariance = _inverse(precisions.sum(0))
    mean = covariance @ np.einsum("kij,kj->i", precisions, draws.mean(1))
    return Combined(mean, covariance, np.ones(len(draws), bool))


def draw_by_draw(draws: np.ndarray) -> Combined:
    """Make every draw the weighted mean of one draw from each shard: skewness of shards is not lost altogether."""
    whole = full_covariance(draws)
    weights = np.einsum("ij,kjl->kil", whole.covariance, _precisions(draws))
    points = np.einsum("kij,kdj->di", weights, draws)
    return Combined(points.mean(0), np.cov(points.T, ddof=1).reshape(whole.covariance.shape), whole.used, points)


def without_outliers(draws: np.ndarray) -> Combined:
    """Add the precisions of shards whose means agree with the median of all means within their own errors."""
    away = draws.mean(1) - np.median(draws.mean(1), axis=0)
    squared = np.einsum("ki,kij,kj->k", away, _precisions(draws), away)
    used = chi2.sf(squared / (1 + np.pi / 2 / len(draws)), draws.shape[2]) > FAR / len(draws)  # a median errs too
    if used.sum() < FEWEST:
        used = np.ones(len(draws), bool)
    return full_covariance(draws[used])._replace(used=used)


def consensus_mc(draws: np.ndarray) -> Combined:
    """Weigh every parameter by itself with inverse variances, as published for XPCS; floors are the published ones."""
    means, variances = draws.mean(1), draws.var(1, ddof=1)
    return _by_parameter(means, variances, np.ones_like(means, bool), clip=False)


def robust_consensus_mc(draws: np.ndarray) -> Combined:
    """Weigh every parameter by itself, without outliers and with extreme variances clipped, as published for XPCS."""
    means, variances = draws.mean(1), draws.var(1, ddof=1)
    kept = _typical(means)
    kept |= kept.sum(0) < FEWEST
    return _by_parameter(means, variances, kept, clip=True)


def _by_parameter(means: np.ndarray, variances: np.ndarray, kept: np.ndarray, clip: bool) -> Combined:
    mean, variance = np.empty(means.shape[1]), np.empty(means.shape[1])
    used = kept.copy()
    for j in range(means.shape[1]):
        own = variances[kept[:, j], j]
        usable = own >= 1e-6 * np.median(own)
        used[kept[:, j], j] = usable
        own = own[usable]
        if clip and len(own) >= 5:
            own = np.clip(own, *np.percentile(own, (5, 95)))
        weight = 1 / np.maximum(own, 1e-10)
        variance[j] = max(1 / weight.sum(), 1e-12)
        mean[j] = variance[j] * (weight @ means[used[:, j], j])
    return Combined(mean, np.diag(variance), np.all(used, axis=1))


def _typical(means: np.ndarray) -> np.ndarray:
    """Return (shards, n) whether a shard's mean is within OUTLIER robust standard deviations of the median."""
    away = np.abs(means - np.median(means, axis=0))
    spread = np.median(away, axis=0)
    return 0.6745 * away < OUTLIER * np.where(spread > 0, spread, np.inf)


def _precisions(draws: np.ndarray) -> np.ndarray:
    size = draws.shape[2]
    return np.stack([_inverse(np.cov(own.T, ddof=1).reshape(size, size)) for own in draws])


def _inverse(matrix: np.ndarray) -> np.ndarray:
    """Invert a covariance in units of its own standard deviations, which may differ by many orders of magnitude."""
    scale = np.sqrt(np.diag(matrix))
    if not (np.isfinite(matrix).all() and (scale > 0).all()):
        raise ValueError(
            "combine: the draws of a shard do not vary, or are not finite, in some parameter: its chains are stuck. "
            "See the table of shards."
        )
    inverse = np.linalg.inv(matrix / np.outer(scale, scale))
    return 0.5 * (inverse + inverse.T) / np.outer(scale, scale)


RULES: dict[str, Callable[[np.ndarray], Combined]] = {
    "full": full_covariance,
    "debiased": full_covariance,
    "draws": draw_by_draw,
    "robust": without_outliers,
    "consensus_mc": consensus_mc,
    "robust_consensus_mc": robust_consensus_mc,
}
