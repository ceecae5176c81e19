"""Reasons to doubt a fit, in words: χ² far from 1, flux far from the given one, steps that ran out."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from shardfit.core.result import Result
from shardfit.core.status import Status
from shardfit.core.success import HIGH, LOW, SCATTER
from shardfit.domains.vlbi.tables import DataSet

TOLERATED = ("vis", "amp", "logamp")  # products whose errors a tolerance is added to
GAIN_FREE = ("cphase", "camp", "logcamp", "cphase_cov", "logcamp_cov", "m", "v")  # station gains drop out of these
AMPLITUDES = {"amp", "logamp", "camp", "logcamp", "logcamp_cov"}
CALIBRATE = "Calibrate, or allow for calibration errors (tolerance, systematic)."
LOOSEN = (
    "Gains do not affect them, so calibration will not help: lower the weights of the regularisers "
    "(`shardfit vlbi weights`, `cross_validate`), widen field and prior, or raise the errors (systematic)."
)
RESHAPE = "Gains do not affect them: the source has another shape, or the errors are too small (systematic)."
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
) -> list[str]:
    """Return what is odd about χ² per measurement, by product; data: tells how many measurements there are.

    tolerance: that of amplitudes, as in `ImagingOptions`. It allows for errors that may be smaller, so a low χ² of
    amplitudes is then not odd. what: 'image', or 'shape' where there are no regularisers.
    """
    found, high = [], unexplained(chi2, data)
    for name, value in chi2.items():
        told = f"χ² of {name}{where} is {value:.3g}"
        if not np.isfinite(value):
            found.append(f"{told}.")
        elif name in high:
            remedy = CALIBRATE if name not in GAIN_FREE else LOOSEN if what == "image" else RESHAPE
            found.append(
                f"{told} per measurement: the {what} does not explain these data within their errors. {remedy}"
            )
        elif value < min(LOW, 1 - _scatter(name, data)) and not (tolerance and name in TOLERATED):
            found.append(f"{told} per measurement: the errors are too large, or noise is fitted.")
    return found


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
