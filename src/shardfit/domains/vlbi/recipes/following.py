"""How weights follow the data: regularisers are weakened until χ² is 1, and gain errors are read off amplitudes.

Weights that suit one array pull too hard on more or better data: χ² stays above 1 though the sky itself would reach
it. By the discrepancy principle the strongest regularisers are taken with which the data are explained. Amplitudes
that no image explains, where closures are explained, are wrong by the gains of their stations.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls

from shardfit.core.success import HIGH
from shardfit.domains.vlbi.images import Image, visibilities
from shardfit.domains.vlbi.observation import Observation
from shardfit.domains.vlbi.sites import co_located
from shardfit.domains.vlbi.tables import CLOSURES, debias_amplitude

EXPLAINED = 1.1  # χ² per measurement of every product that is aimed at
CALIBRATED_WELL = 1.03  # the same of visibilities with gains, whose number is what gains leave of them
PROGRESS = 0.03  # relative, of the worst χ²: with less, weaker regularisers fit errors that are no noise
LONGER = 8  # times the usual steps of a fit: weak regularisers take more
NOT_EVEN_SO = 4.0  # χ² of amplitudes above which the gain errors that they show do not explain them either
KEPT = ("cm", "rgauss", "compact", "compact2")  # what is known of the source, which the data do not replace
AMPLITUDES = ("amp", "logamp")
LEAST_SNR, LEAST_MODEL = 3.0, 0.02  # of amplitudes that tell gains: over their error, and over the flux
USUAL = 0.455  # median of a squared normal deviate
ROUNDS = 4  # of weighting
ALIKE = 0.02  # share of the rows by which stations without many are taken to be like the others
TINY = 1e-8
EXTRAPOLATED = 0.5  # error of ln flux, as a share of that of the part that a baseline beyond a site sees
CALIBRATED = 100.0  # weight of visibilities with gains of their own, for the usual regularisers
CALIBRATIONS = 6  # fits of these at most, for each of which flux and sizes of gains are taken anew
RATHER_WEAK = 5.0  # median SNR below which amplitudes that no image explains tell noise rather than gains
SAME_FLUX = 0.02  # relative change with which they end
SHORT_BASELINES = 0.25  # relative error of a flux from short baselines alone, without gains
LARGEST = 2.0  # |ln| of a ratio that counts: more is a sign of the image's nulls


def weakened(weights: Mapping[str, float], factor: float, *, flux_known: bool) -> dict[str, float]:
    """Return weights of regularisers times a factor, but for those of what is known of the source."""
    kept = {*KEPT, "flux"} if flux_known else {*KEPT}
    return {name: weight if name in kept else weight * factor for name, weight in weights.items()}


def worst(chi2: Mapping[str, float], closures: bool = False) -> float:
    """Return the largest χ² per measurement, infinite if one is no number; closures: of these alone.

    Visibilities with gains of their own hold what closures do, with errors that are Gaussian: they speak for all.
    """
    chosen = ("calvis",) if "calvis" in chi2 else CLOSURES if closures else tuple(chi2)
    largest = max(value for name, value in chi2.items() if name in chosen)
    return float(largest) if np.isfinite(largest) else np.inf


def keeps_closures(chi2: Mapping[str, float], before: Mapping[str, float]) -> bool:
    """Return whether closures are explained, or about as well as by an image that they have shaped."""
    each = [(value, before[name]) for name, value in chi2.items() if name in CLOSURES and name in before]
    return all(value <= EXPLAINED * max(earlier, EXPLAINED) for value, earlier in each)


def explained(chi2: Mapping[str, float]) -> float:
    """Return the χ² per measurement that is aimed at."""
    return CALIBRATED_WELL if "calvis" in chi2 else EXPLAINED


def gains_are_wrong(chi2: Mapping[str, float]) -> bool:
    """Return whether amplitudes are not explained by an image that closures, which are free of gains, agree with."""
    amplitudes = [value for name, value in chi2.items() if name in AMPLITUDES]
    closures = [value for name, value in chi2.items() if name in CLOSURES]
    return bool(amplitudes and closures) and max(amplitudes) > max(EXPLAINED**2, 2 * max(closures))


def tells_flux(chi2: Mapping[str, float]) -> bool:
    """Return whether an image explains amplitudes, so that its flux is theirs."""
    flux = [value for name, value in chi2.items() if name in ("vis", *AMPLITUDES)]
    return bool(flux) and max(flux) <= HIGH


@dataclass(frozen=True)
class Gains:
    """What amplitudes compared with an image tell of gains.

    errors: their relative size by station, about factor; factor: what the image's flux should be multiplied with for
    gains to be 1 on the mean; uncertainty: of the flux, relative, from the gains and from what no baseline sees.
    """

    errors: Mapping[str, float]
    factor: float
    uncertainty: float


def gains_of(obs: Observation, image: Image, *, flux_known: bool) -> Gains:
    """Compare amplitudes with an image. flux_known: its flux is not to be doubted, so factor is 1.

    The mean square of ln|V_ij/V(image)|, less the noise, is the sum of the squares of two stations. Baselines within a
    site, which see more than the compact source, tell nothing.
    """
    model, sigma = np.abs(visibilities(image, obs.u, obs.v)["I"]), obs.sigma["I"]
    amplitude = debias_amplitude(np.abs(obs.vis["I"]), sigma)
    beyond = obs.uv_distance > co_located(obs)
    good = np.flatnonzero((amplitude > LEAST_SNR * sigma) & (model > LEAST_MODEL * image.flux) & beyond)
    names = obs.stations.names
    if not len(good):
        return Gains(dict.fromkeys(names, 0.0), 1.0, 1.0)
    ratio = np.log(amplitude[good] / model[good]).clip(-LARGEST, LARGEST)
    noise = (sigma[good] / amplitude[good]) ** 2
    pairs = obs.ant1[good] * len(names) + obs.ant2[good]
    shift = 0.0 if flux_known else float(np.median([np.median(ratio[pairs == pair]) for pair in np.unique(pairs)]))
    ends = np.stack([obs.ant1[good], obs.ant2[good]])
    squares = _station_squares((ratio - shift) ** 2 - noise, noise, ends, len(names))
    present = np.unique(ends)
    # a mean over baselines is one over stations of two gains each
    from_gains = 2 * np.sqrt(squares[present].sum()) / len(present)
    seen = min(1.0, float(model[beyond].max()) / image.flux)
    errors = {name: float(np.sqrt(x)) for name, x in zip(names, squares, strict=True)}
    return Gains(errors, float(np.exp(shift)), float(np.hypot(from_gains, -EXTRAPOLATED * np.log(seen))))


def combined_flux(short: float, image: Image, gains: Gains) -> tuple[float, float]:
    """Return a flux, Jy, and its relative uncertainty, from short baselines and from an image and all its amplitudes.

    An image that closures alone shape may have any flux that no baseline sees, so each counts by its own uncertainty.
    """
    usual = float(np.sqrt(np.mean(np.square(list(gains.errors.values())))))
    sizes = np.array([np.hypot(SHORT_BASELINES, usual), max(gains.uncertainty, TINY)])
    weights = sizes**-2 / np.sum(sizes**-2)
    found = float(np.exp(weights @ np.log([short, gains.factor * image.flux])))
    return found, float(np.sum(sizes**-2) ** -0.5)


def _station_squares(excess: np.ndarray, noise: np.ndarray, ends: np.ndarray, n: int) -> np.ndarray:
    """Return the mean square gain error of every station, (n,), from the sums of two."""
    design = np.zeros((len(excess), n))
    design[np.arange(len(design)), ends] = 1.0
    common = float(np.median(np.maximum(excess, 0.0))) / USUAL / 2
    squares = np.full(n, common)
    for _ in range(ROUNDS):
        # the scatter of a square is in proportion to its mean: rows of weak or wrong amplitudes say less of small gains
        weight = 1 / (design @ squares + noise + TINY)
        alike = np.eye(n) * np.sqrt(ALIKE * len(design)) / (2 * squares.mean() + np.median(noise) + TINY)
        system = np.concatenate([design * weight[:, None], alike])
        squares, _ = nnls(system, np.concatenate([excess * weight, alike @ np.full(n, common)]))
        common = float(squares.mean())
    return squares
