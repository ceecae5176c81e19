"""How far draws can be trusted: R-hat, effective sample sizes, Monte Carlo errors, energies.

Draws are arrays (chains, draws) or (chains, draws, n), n numbers at once; a result has one entry per number. A number
that never changes has no R-hat and no effective draws: NaN. Definitions: Vehtari, Gelman, Simpson, Carpenter and
Bürkner, Bayesian Analysis 16 (2021); Betancourt, arXiv:1604.00695, for energies.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

FEWEST_DRAWS = 4  # of a chain: less cannot be split and leave a lag


def rhat(x: Any) -> np.ndarray:
    """Return R-hat of rank-normalised split chains: the larger of that of the draws and of their distances from the
    median, so that chains which differ in place or in width are both seen.
    """
    x = require_chains("rhat", x)
    folded = np.abs(x - np.median(x, axis=(0, 1)))
    # fmax: chains stuck at two points have equal distances, whose R-hat is not defined
    return np.fmax(_split_rhat(normal_scores(x)), _split_rhat(normal_scores(folded)))


def ess_bulk(x: Any) -> np.ndarray:
    """Return effective draws for the centre: those of the rank-normalised draws."""
    return _ess(split(normal_scores(require_chains("ess_bulk", x))))


def ess_tail(x: Any) -> np.ndarray:
    """Return effective draws for the tails: the fewer of those for the 5 % and the 95 % quantile."""
    return np.minimum(ess_quantile(x, 0.05), ess_quantile(x, 0.95))


def ess_mean(x: Any) -> np.ndarray:
    """Return effective draws for the mean."""
    return _ess(split(require_chains("ess_mean", x)))


def ess_quantile(x: Any, probability: float) -> np.ndarray:
    """Return effective draws for a quantile: those of the indicator of being below it."""
    x = require_chains("ess_quantile", x)
    below = x <= np.quantile(x, probability, axis=(0, 1))
    return np.where(_constant(x), np.nan, _ess(split(below.astype(float))))


def mcse_mean(x: Any) -> np.ndarray:
    """Return the Monte Carlo standard error of the mean."""
    x = require_chains("mcse_mean", x)
    return x.std((0, 1), ddof=1) / np.sqrt(ess_mean(x))


def mcse_sd(x: Any) -> np.ndarray:
    """Return the Monte Carlo standard error of the standard deviation, from the draws' own fourth moment."""
    x = require_chains("mcse_sd", x)
    square = (x - x.mean((0, 1))) ** 2
    variance = square.mean((0, 1))
    with np.errstate(invalid="ignore"):
        return np.sqrt(square.var((0, 1)) / ess_mean(square) / (4 * variance))


def mcse_quantile(x: Any, probability: float) -> np.ndarray:
    """Return the Monte Carlo standard error of a quantile: half the width that the quantiles one error of the
    probability apart span.
    """
    from scipy.special import betaincinv

    x = require_chains("mcse_quantile", x)
    effective = ess_quantile(x, probability)
    ordered = np.sort(x.reshape(-1, *x.shape[2:]), axis=0)
    a, b = effective * probability + 1, effective * (1 - probability) + 1
    low, high = (np.nan_to_num(betaincinv(a, b, side)) for side in (0.15865525393145707, 0.8413447460685429))
    # rounded outwards: an error is better too large than too small
    below = np.floor(np.maximum(low * len(ordered) - 1, 0)).astype(int)
    above = np.ceil(np.minimum(high * len(ordered), len(ordered)) - 1).astype(int)
    upper, lower = (np.take_along_axis(ordered, at[None], 0)[0] for at in (above, below))
    return np.where(np.isnan(effective), np.nan, (upper - lower) / 2)


def bfmi(energy: Any) -> np.ndarray:
    """Return, for every chain of energies (chains, draws), how much of the energy's spread one new momentum explores.

    Below 0.3 the chain crosses its energies too slowly to reach the tails.
    """
    energy = require_chains("bfmi", energy)
    return np.mean(np.diff(energy, axis=1) ** 2, axis=1) / energy.var(1, ddof=1)


def weighted_quantile(x: Any, weights: Any, probabilities: Any) -> np.ndarray:
    """Return quantiles (q, ...) of draws (draws, ...) with weights (draws,): where their summed weight, each draw's
    counted half, reaches the probabilities; equal weights give Hazen's quantiles.
    """
    x, weights = np.asarray(x, float), np.asarray(weights, float)
    wanted = np.atleast_1d(probabilities)
    columns = x.reshape(len(x), -1)
    found = np.empty((len(wanted), columns.shape[1]))
    for i, column in enumerate(columns.T):
        order = np.argsort(column, kind="stable")
        reached = np.cumsum(weights[order]) - 0.5 * weights[order]
        found[:, i] = np.interp(wanted, reached / weights.sum(), column[order])
    return found.reshape(*wanted.shape, *x.shape[1:])


def ess_weights(weights: Any) -> float:
    """Return how many equally weighted independent draws have the spread of these weights: (Σw)² / Σw²."""
    weights = np.asarray(weights, float)
    return float(weights.sum() ** 2 / (weights**2).sum())


def mcse_weighted(values: Any, weights: Any) -> np.ndarray:
    """Return the Monte Carlo standard error of the weighted mean of values (chains, draws, ...).

    weights: (chains, draws). A draw's share in the error of a ratio estimate is weight · (value − mean), whose own
    correlation along the chains counts, so that both uneven weights and slow chains widen it.
    """
    values = require_chains("mcse_weighted", values)
    weights = np.asarray(weights, float) / np.sum(weights)
    weights = weights.reshape(*weights.shape, *([1] * (values.ndim - 2)))
    share = weights.size * weights * (values - (weights * values).sum((0, 1)))
    return mcse_mean(share)


def in_blocks(measure: Callable[[np.ndarray], np.ndarray], x: np.ndarray, numbers: int = 2**21) -> np.ndarray:
    """Apply a diagnostic to draws (chains, draws, n), about so many numbers at a time, which bounds its memory."""
    step = max(1, numbers // (x.shape[0] * x.shape[1]))
    pieces = [measure(x[:, :, i : i + step]) for i in range(0, x.shape[2], step)]
    return np.concatenate(pieces, axis=-1) if pieces else np.zeros(0)


def normal_scores(x: np.ndarray) -> np.ndarray:
    """Return draws (chains, draws, ...) replaced by the normal quantiles of their ranks over all chains."""
    from scipy.special import ndtri
    from scipy.stats import rankdata

    flat = x.reshape(-1, *x.shape[2:])
    ranks = rankdata(flat, axis=0)
    return ndtri((ranks - 0.375) / (len(flat) + 0.25)).reshape(x.shape)


def split(x: np.ndarray) -> np.ndarray:
    """Return the halves of every chain as chains of their own; the middle draw of an odd number is left out."""
    half = x.shape[1] // 2
    return np.concatenate([x[:, :half], x[:, -half:]])


def require_chains(what: str, x: Any) -> np.ndarray:
    """Return draws as floating (chains, draws, ...), or raise for another shape or too few draws."""
    x = np.asarray(x, float)
    if x.ndim < 2:
        raise ValueError(f"{what}: draws have shape {x.shape}. Give (chains, draws) or (chains, draws, n).")
    if x.shape[1] < FEWEST_DRAWS:
        raise ValueError(f"{what}: {x.shape[1]} draws per chain are too few. Draw at least {FEWEST_DRAWS}.")
    return x


def _split_rhat(scores: np.ndarray) -> np.ndarray:
    chains = split(scores)
    draws = chains.shape[1]
    within = chains.var(1, ddof=1).mean(0)
    between = chains.mean(1).var(0, ddof=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.sqrt((draws - 1) / draws + between / within)


def _ess(chains: np.ndarray) -> np.ndarray:
    """Return effective draws of chains (m, d, ...): m · d over the integrated autocorrelation time.

    Geyer's initial monotone sequence: lags are summed in pairs while the pairs are positive, none larger than the one
    before; the even lag of the pair that ends the sum counts once, which lets anticorrelated chains have more effective
    draws than draws, up to log10 of their number times as many.
    """
    m, d = chains.shape[:2]
    covariance = _autocovariance(chains).mean(0)  # (d, ...)
    within = covariance[0] * d / (d - 1)
    spread = covariance[0] + (chains.mean(1).var(0, ddof=1) if m > 1 else 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        correlation = 1 - (within - covariance) / spread
    correlation[0] = 1.0
    last = max(0, (d - 3) // 2)  # the last pair that may be summed
    even, odd = correlation[0 : 2 * last + 1 : 2], correlation[1 : 2 * last + 2 : 2]
    pairs = even + odd
    ended = pairs < 0
    ended[-1] = True
    stop = ended.argmax(0)[None]
    before = np.arange(last + 1).reshape(-1, *([1] * (pairs.ndim - 1))) < stop
    falling = np.minimum.accumulate(np.where(before, pairs, np.inf), 0)
    time = -1 + 2 * np.where(before, falling, 0.0).sum(0) + np.maximum(np.take_along_axis(even, stop, 0)[0], 0.0)
    total = m * d
    effective = total / np.maximum(time, 1 / np.log10(total))
    return np.where(_constant(chains) | ~np.isfinite(spread), np.nan, effective)


def _autocovariance(chains: np.ndarray) -> np.ndarray:
    """Return autocovariances by lag of chains (m, d, ...), divided by d."""
    from scipy.fft import next_fast_len

    d = chains.shape[1]
    length = next_fast_len(2 * d, real=True)
    spectrum = np.fft.rfft(chains - chains.mean(1, keepdims=True), length, axis=1)
    power = spectrum.real**2 + spectrum.imag**2
    return np.fft.irfft(power, length, axis=1)[:, :d] / d


def _constant(x: np.ndarray) -> np.ndarray:
    return np.ptp(x, axis=(0, 1)) == 0
