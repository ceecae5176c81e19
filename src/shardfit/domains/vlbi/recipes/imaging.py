"""Imaging from an observation to an image: prepare the data, then rounds of fit, blur, fit again, and self-calibration.

Restarts from the image blurred to the nominal resolution carry it out of poor minima. The default is one round on the
data as they are; presets know an array.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from shardfit.core.problem import Problem
from shardfit.core.result import Result
from shardfit.domains.vlbi.constants import UAS
from shardfit.domains.vlbi.images import Image
from shardfit.domains.vlbi.imaging_options import ImagingOptions
from shardfit.domains.vlbi.observation import Observation
from shardfit.domains.vlbi.operations import taper
from shardfit.domains.vlbi.recipes.eht import EHT
from shardfit.domains.vlbi.recipes.fitting import series_of
from shardfit.domains.vlbi.recipes.following import AMPLITUDES, NOT_EVEN_SO, RATHER_WEAK, Gains
from shardfit.domains.vlbi.recipes.m87 import M87
from shardfit.domains.vlbi.recipes.options import options_from
from shardfit.domains.vlbi.recipes.preparation import parts_of, prepare_all, usual_flux
from shardfit.domains.vlbi.recipes.quality import (
    chi2_doubts,
    closure_remedy,
    flux_doubts,
    gain_doubts,
    is_weak,
    phase_doubts,
    step_doubts,
    weak_doubts,
    with_doubts,
)
from shardfit.domains.vlbi.recipes.rounds import Fit, OnFit, Reached, prior_image, run_rounds
from shardfit.domains.vlbi.recipes.weakening import followed
from shardfit.domains.vlbi.selfcal import GainTable
from shardfit.domains.vlbi.tables import DataSet, unformable
from shardfit.run_options import RunOptions

log = logging.getLogger(__name__)
PRESETS: Mapping[str, Mapping[str, Any]] = MappingProxyType({"default": {}, "eht": EHT, "m87": M87})


@dataclass(frozen=True, eq=False)
class ImagingResult:
    """An image and how it was reached.

    image: that of the last round's best fit, blurred if there was a reverse taper; result: Result of that fit, with
    its doubts, and the steps and times of all; chi2: χ² per measurement by product, data and errors as in that fit;
    fits: all of them in order; kept: the number of that fit; data: the prepared observation, without taper; calibrated:
    the same after the last self-calibration, and gains: its solution (None without); flux: Jy, as fitted to; options:
    as used; problem, measured: of that fit, and the products it was made of; doubts: reasons not to believe the image,
    in words; flux_uncertainty: of a flux estimated with gain errors, relative.
    """

    image: Image
    result: Result
    chi2: Mapping[str, float]
    fits: tuple[Fit, ...]
    kept: int
    data: Observation
    calibrated: Observation | None
    gains: GainTable | None
    flux: float
    options: ImagingOptions
    problem: Problem
    measured: DataSet
    doubts: tuple[str, ...] = ()
    flux_uncertainty: float | None = None


def image(
    obs: Observation | Sequence[Observation],
    *,
    preset: str = "default",
    run: RunOptions | None = None,
    on_fit: OnFit = None,
    **options: Any,
) -> ImagingResult:
    """Make a Stokes I image of an observation.

    Interrupted from the keyboard, it returns the image so far; result.status says so.

    Parameters
    ----------
    obs
        the observation, or several of one source in one band: days, low and high sideband; see `join`.
    preset
        'default' (one round, the data as they are), 'eht' (one round, with errors and field of the Event Horizon
        Telescope) or 'm87' (the released M87 pipeline).
    run
        solver, devices, seed and folder of the fits. A solver that is named ('lbfgs' by default) takes maxiter and stop
        from the options, a solver object has its own. The seed is that of the parity check; the image does not depend
        on it.
    on_fit
        on_fit(fit, number, total) is called after every fit.
    options
        fields of `ImagingOptions` that differ from the preset.

    Example: `image(read_uvfits("m87.uvfits"), preset="m87").image`.
    """
    parts = parts_of(obs)
    chosen = options_from(preset, PRESETS, options).sized(*parts)
    flux = usual_flux(parts, chosen.flux)
    initial = prepare_all(parts, flux, **chosen.preparation, taper_uas=chosen.taper_uas)
    if "data" not in options and "rounds" not in options:
        chosen = _formable(initial, chosen)
    start = prior_image(initial, flux, chosen)
    series, gains = series_of(run or RunOptions(), chosen, "fits/"), None
    done = run_rounds(initial, start, chosen, series, on_fit)
    if chosen.follow:
        done, chosen, flux, gains = followed(done, flux, chosen, series, on_fit)
    width = chosen.taper_uas * UAS
    found = done.fits[done.kept]
    doubts = (
        *judged(found, done, chosen, gains),
        *flux_doubts(found.image.flux, flux),
        *step_doubts(done.result),
        *phase_doubts(done.measured),
    )
    return ImagingResult(
        image=found.image.blur(width),
        result=with_doubts(series.answer(done.result, planned=True), doubts),
        chi2=found.chi2,
        fits=tuple(done.fits),
        kept=done.kept,
        doubts=doubts,
        data=taper(initial, width),
        calibrated=None if done.data is initial else taper(done.data, width),
        gains=done.gains,
        flux=flux,
        options=chosen,
        problem=done.problem,
        measured=done.measured,
        flux_uncertainty=None if gains is None or options.get("flux") else gains.uncertainty,
    )


CLOSED_AMPLITUDES = {"camp", "logcamp", "logcamp_cov"}
UNCLOSED = (
    "fewer than four stations observe at a time, so no closure amplitudes say what gains do not change: flux and size "
    "rest on amplitudes whose gains are wrong. Give --flux, or calibrated data."
)


def judged(found: Fit, done: Reached, options: ImagingOptions, gains: Gains | None) -> list[str]:
    """Return doubts about χ². Amplitudes whose errors were taken from themselves are no test: their size is.

    Closures of weak data are not Gaussian: visibilities with gains of their own stand for them, where they were fitted.
    """
    weak, calibrated = weak_doubts(done.data, options) if options.follow else [], "calvis" in found.chi2
    trusted = {name for name in found.chi2 if name not in AMPLITUDES or (gains is None and not weak)}
    chi2 = {name: value for name, value in found.chi2.items() if name in trusted or not value <= NOT_EVEN_SO}
    if calibrated and is_weak(done.data, options, RATHER_WEAK):
        weak, chi2 = [], {"calvis": found.chi2["calvis"]}
    remedy = closure_remedy(done.data, found.image) if options.follow else None
    doubts = chi2_doubts(chi2, done.measured, tolerance=options.schedule()[-1].tolerance, remedy=remedy)
    told = [] if gains is None else gain_doubts(gains.errors, done.data, found.image.flux)
    if gains is not None and not CLOSED_AMPLITUDES & found.chi2.keys():
        told.append(UNCLOSED)
    return weak + doubts + told


def _formable(ready: Observation, options: ImagingOptions) -> ImagingOptions:
    """Return the options without closures that no time has enough stations for, in the usual data and in all rounds."""
    names = {name for one in options.schedule() for name in one.data}
    missing = unformable(ready, sorted(names), count=options.count, cp_uv_min=options.cp_uv_min)
    if not missing:
        return options
    log.warning(
        "no %s can be formed: no time has enough stations at once. The image is made without. Where phases are "
        "calibrated, fit the visibilities themselves: data={'vis': 1.0}, or --products vis.",
        " and no ".join(missing),
    )

    def rest(data: Mapping[str, float]) -> dict[str, float]:
        return {name: weight for name, weight in data.items() if name not in missing}

    rounds = tuple(one if one.data is None else replace(one, data=rest(one.data)) for one in options.rounds)
    return replace(options, data=rest(options.data), rounds=rounds)
