"""Pareto-smoothed importance sampling: weights whose largest are smoothed, and a number that says if to trust them.

The upper tail of the weights is fitted by a generalised Pareto distribution and replaced by its quantiles. Its shape k
is the diagnostic: below 0.7 estimates with the weights settle at practical numbers of draws, above they do not, and
from 1 on the weights have no mean. Vehtari, Simpson, Gelman, Yao and Gabry, JMLR 25 (2024); Zhang and Stephens,
Technometrics 51 (2009).
"""

from typing import Any

import numpy as np

LARGEST_K = 0.7  # above it no number of draws that one can afford makes an estimate settle
FEWEST_IN_TAIL = 5  # fewer say nothing about a tail's shape
PRIOR_K, PRIOR_DRAWS = 0.5, 10.0  # the weak prior of k: so many draws at this value


def smoothed(log_weights: Any, efficiency: Any = 1.0) -> tuple[np.ndarray, Any]:
    """Return log weights that sum to one over the draws, their tail smoothed, and the shape k of that tail.

    log_weights: (draws,) or (draws, n), n sets of weights of the same draws; -inf is a weight of zero. efficiency:
    effective draws per draw, less than 1 for correlated ones; they make the tail longer. k: a number or (n,); inf where
    the draws are too few to tell, -inf where the tail's weights are all equal.

    Example: `log_weights, k = smoothed(log_target - log_proposal)`.
    """
    given = np.asarray(log_weights, float)
    if given.ndim not in (1, 2) or not given.size:
        raise ValueError(f"smoothed: log_weights have shape {given.shape}. Give (draws,) or (draws, n).")
    if np.isnan(given).any() or (given == np.inf).any():
        raise ValueError("smoothed: a log weight is NaN or +inf. Leave out draws at which the density is not defined.")
    columns = given.reshape(len(given), -1)
    largest = columns.max(0)
    if not np.isfinite(largest).all():
        raise ValueError("smoothed: all weights are zero. The draws do not reach the target.")
    columns = columns - largest
    k = np.full(columns.shape[1], np.inf)
    lengths = _tail_lengths(len(columns), np.broadcast_to(efficiency, k.shape))
    for length in np.unique(lengths[lengths >= FEWEST_IN_TAIL]):
        chosen = lengths == length
        columns[:, chosen], k[chosen] = _with_smooth_tail(columns[:, chosen], int(length))
    columns -= np.log(np.exp(columns).sum(0))
    return columns.reshape(given.shape), float(k[0]) if given.ndim == 1 else k


def _tail_lengths(draws: int, efficiency: np.ndarray) -> np.ndarray:
    return np.ceil(np.minimum(0.2 * draws, 3 * np.sqrt(draws / efficiency))).astype(int)


def _with_smooth_tail(columns: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Smooth the `length` largest of every column of log weights (draws, n) whose maxima are 0."""
    order = np.argsort(columns, axis=0, kind="stable")
    tail = order[-length:]
    cut = np.exp(np.take_along_axis(columns, order[-length - 1][None], 0))
    excess = np.exp(np.take_along_axis(columns, tail, 0)) - cut
    varied = excess[-1] > np.finfo(float).eps
    k = np.full(columns.shape[1], -np.inf)
    if not varied.any():
        return columns, k
    k[varied], scale = pareto_fit(excess[:, varied])
    share = (np.arange(1, length + 1) - 0.5) / length
    smooth = cut[:, varied] + _pareto_quantiles(share[:, None], k[varied], scale)
    columns = columns.copy()
    # no smoothed weight exceeds the largest that was drawn
    columns[tail[:, varied], np.flatnonzero(varied)] = np.minimum(np.log(smooth), 0.0)
    return columns, k


def pareto_fit(excess: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Fit generalised Pareto distributions to excesses (m, n) over a threshold, ascending; return shape k and scale.

    The estimate of Zhang and Stephens: a mean of profile likelihoods over a grid, not an optimisation, so it never
    fails to converge; k is then drawn weakly towards 0.5.
    """
    m = len(excess)
    grid = 30 + int(np.sqrt(m))
    quartile = excess[int(m / 4 + 0.5) - 1]
    smallest = np.min(np.where(excess > 0, excess, np.inf), axis=0)
    quartile = np.where(quartile > 0, quartile, smallest)  # zero where weights tie with the threshold
    nodes = 1 - np.sqrt(grid / (np.arange(1, grid + 1) - 0.5))
    theta = nodes[:, None] / (3 * quartile) + 1 / excess[-1]  # (grid, n)
    shapes = np.log1p(-theta[:, None] * excess).mean(1)
    likelihood = m * (np.log(-theta / shapes) - shapes - 1)
    posterior = np.exp(likelihood - likelihood.max(0))
    best = (theta * posterior).sum(0) / posterior.sum(0)
    k = np.log1p(-best * excess).mean(0)
    scale = -k / best
    return (m * k + PRIOR_DRAWS * PRIOR_K) / (m + PRIOR_DRAWS), scale


def _pareto_quantiles(share: np.ndarray, k: np.ndarray, scale: np.ndarray) -> np.ndarray:
    exponent = -np.log1p(-share)
    safe = np.where(np.abs(k) < 1e-12, 1.0, k)
    return scale * np.where(np.abs(k) < 1e-12, exponent, np.expm1(exponent * k) / safe)
