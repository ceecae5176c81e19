"""Reasons to doubt a fit, in words: χ² far from 1, flux far from the given one, steps that ran out."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from shardfit.core.result import Result
from shardfit.core.status import Status
from shardfit.core.success import HIGH, LOW, SCATTER
from shardfit.domains.vlbi.error_sizes import noise_scale
from shardfit.domains.vlbi.images import Image
from shardfit.domains.vlbi.observation import Observation
from shardfit.domains.vlbi.sites import co_located
from shardfit.domains.vlbi.tables import DataSet

TOLERATED = ("vis", "amp", "logamp", "calvis")  # products whose errors a tolerance is added to
GAIN_FREE = ("cphase", "camp", "logcamp", "cphase_cov", "logcamp_cov", "m", "v")  # station gains drop out of these
AMPLITUDES = {"amp", "logamp", "camp", "logcamp", "logcamp_cov"}
CALIBRATE = "Calibrate, or allow for calibration errors (tolerance, systematic)."
LOOSEN = (
    "Gains do not affect them, so calibration will not help: lower the weights of the regularisers "
    "(`shardfit vlbi weights`, `cross_validate`), widen field and prior, or raise the errors (systematic)."
)
RESHAPE = "Gains do not affect them: the source has another shape, or the errors are too small (systematic)."
REGAIN = "No gains of the expected size explain them: the flux, the field, or the size of gains (tolerance) is wrong."
LARGE_GAINS = 0.4  # relative: a calibration so wrong is rare
EDGE, AT_EDGE = 2, 0.05  # pixels, and the share of the flux in them, of a field that is too small
WEAK_SNR = 2.5  # median: most closures are then no measurements
NOISY = 1.2  # times the errors that closure phases scatter
FLUX = 0.1  # relative difference of an image's flux from the given one


class Unexplained(ValueError):
    """What is asked for needs an image that explains the data within their errors."""


def unexplained(chi2: Mapping[str, float], data: DataSet | None = None) -> list[str]:
    """Return the products whose χ² per measurement is far above 1, or no number; data: as for `chi2_doubts`."""
    return [name for name, value in chi2.items() if not value <= max(HIGH, 1 + _scatter(name, data))]


def _scatter(name: str, data: DataSet | None) -> float:
    """Return by how much χ² per measurement of a product may be off by chance."""
    n = data.products[name].n if data is not None and name in data.products else np.inf
    return SCATTER * np.sqrt(2 / n)


def chi2_doubts(
    chi2: Mapping[str, float],
    data: DataSet | None = None,
    where: str = "",
    *,
    tolerance: Any = 0.0,
    what: str = "image",
    remedy: str | None = None,
) -> list[str]:
    """Return what is odd about χ² per measurement, by product; data: tells how many measurements there are.

    tolerance: that of amplitudes, as in `ImagingOptions`. It allows for errors that may be smaller, so a low χ² of
    amplitudes is then not odd. what: 'image', or 'shape' where there are no regularisers; remedy: for closures, where
    more is known of the cause (`closure_remedy`).
    """
    found, high = [], unexplained(chi2, data)
    for name, value in chi2.items():
        told = f"χ² of {name}{where} is {value:.3g}"
        if not np.isfinite(value):
            found.append(f"{told}.")
        elif name in high:
            usual = remedy or LOOSEN if what == "image" else RESHAPE
            advice = usual if name in GAIN_FREE else REGAIN if name == "calvis" else CALIBRATE
            found.append(
                f"{told} per measurement: the {what} does not explain these data within their errors. {advice}"
            )
        elif value < min(LOW, 1 - _scatter(name, data)) and not (tolerance and name in TOLERATED):
            found.append(f"{told} per measurement: the errors are too large, or noise is fitted.")
    return found


def closure_remedy(obs: Observation, image: Image) -> str:
    """Return what to do about closures that an image with weak regularisers does not explain, by their likely cause."""
    told = "Gains do not affect them, and weaker regularisers did not help. "
    edge = float(1 - image.values["I"][EDGE:-EDGE, EDGE:-EDGE].sum() / image.flux)
    if edge > AT_EDGE:
        return told + f"{100 * edge:.0f} % of the flux is at the edge: give a larger field (--fov)."
    try:
        scatter = noise_scale(obs)
    except ValueError:  # too few successive closure phases to tell
        scatter = None
    if scatter is not None and scatter.factor - 2 * scatter.sd > NOISY:
        return told + (
            f"They scatter {scatter.factor:.1f} times as much as their errors say from one time to the next: raise "
            "the errors (--systematic)."
        )
    return told + (
        "The source may change during the observation (`shardfit vlbi movie`), extend beyond the field (--fov), or the "
        "errors leave something out, such as leakage (--systematic)."
    )


def is_weak(obs: Observation, options: Any, least: float = WEAK_SNR) -> bool:
    """Return whether most data are weak and not left out; options: has snr_cut and data."""
    return bool(np.median(obs.snr) < least and options.snr_cut < WEAK_SNR and set(options.data) != {"vis"})


def weak_doubts(obs: Observation, options: Any) -> list[str]:
    """Return a doubt if most data are weak and not left out; options: as of `is_weak`."""
    if not is_weak(obs, options):
        return []
    return [
        f"the median signal-to-noise ratio is {np.median(obs.snr):.1f}, where noise raises amplitudes and closures are "
        "not Gaussian: average over time (--average), leave weak data out (--snr-cut 3), or fit calibrated "
        "visibilities (--products vis)."
    ]


def gain_doubts(errors: Mapping[str, float], obs: Observation, flux: float) -> list[str]:
    """Return doubts about an image for which amplitudes are off by more than gains are wrong, by station."""
    usual = float(np.median(list(errors.values())))
    if usual <= LARGE_GAINS:
        return []
    short = obs.uv_distance < co_located(obs)
    seen = f" Baselines within a site see {np.median(np.abs(obs.vis['I'][short])):.3g} Jy." if short.any() else ""
    return [
        f"amplitudes are off by {100 * usual:.0f} % (median of the stations), more than gains usually are: the flux of "
        f"{flux:.3g} Jy, the field, or the calibration is wrong.{seen} Give --flux, and --zero-baseline where "
        "baselines within a site see more."
    ]


def flux_doubts(flux: float, given: float) -> list[str]:
    """Return a doubt if an image's flux is far from the given one, both in Jy."""
    if abs(flux - given) <= FLUX * given:
        return []
    return [f"the image has {flux:.3g} Jy where {given:.3g} Jy were assumed: data and flux disagree."]


def phase_doubts(data: DataSet) -> list[str]:
    """Return a doubt if no product has phases: the image turned by 180° would fit as well."""
    if set(data.products) - AMPLITUDES:
        return []
    return [
        "the data have no phases (amplitudes alone): the image turned by 180° would fit as well, and detail is "
        "uncertain. Where phases are calibrated, fit visibilities (--products vis)."
    ]


def step_doubts(result: Result) -> list[str]:
    """Return a doubt if a fit ended at its limit of steps, or worse."""
    if result.status in (Status.MAX_STEPS, Status.COMPLETED):
        return [f"the fit ended at its limit of {result.steps} steps, its tolerance not met. Raise maxiter."]
    if result.status in (Status.NONFINITE, Status.FAILED, Status.STALLED):
        return [f"the fit ended early: {result.status.message}."]
    return []


def with_doubts(result: Result, doubts: tuple[str, ...] | list[str]) -> Result:
    """Return the result with more doubts, each once."""
    return replace(result, doubts=tuple(dict.fromkeys((*result.doubts, *doubts))))
