"""Imaging from an observation to an image: prepare the data, then rounds of fit, blur, fit again, and self-calibration.

Restarts from the image blurred to the nominal resolution carry it out of poor minima. The default is one round on the
data as they are; presets know an array.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import jax
import numpy as np

from shardfit.core.problem import Problem
from shardfit.core.result import Result, certified_by
from shardfit.core.status import Status
from shardfit.domains.vlbi.constants import UAS
from shardfit.domains.vlbi.images import Image, blank, gaussian, prior
from shardfit.domains.vlbi.imaging_options import FACTORS, ImagingOptions, Round
from shardfit.domains.vlbi.observation import Observation
from shardfit.domains.vlbi.operations import taper
from shardfit.domains.vlbi.problem import image_maps, imaging_problem, with_start
from shardfit.domains.vlbi.recipes.eht import EHT
from shardfit.domains.vlbi.recipes.fitting import as_planned, data_chi2, fit_settings
from shardfit.domains.vlbi.recipes.following import (
    AMPLITUDES,
    CALIBRATED,
    CALIBRATIONS,
    LONGER,
    NOT_EVEN_SO,
    PROGRESS,
    SAME_FLUX,
    SHORT_BASELINES,
    Gains,
    combined_flux,
    explained,
    gains_are_wrong,
    gains_of,
    tells_flux,
    weakened,
    worst,
)
from shardfit.domains.vlbi.recipes.m87 import M87
from shardfit.domains.vlbi.recipes.options import options_from
from shardfit.domains.vlbi.recipes.preparation import parts_of, prepare_all, usual_flux
from shardfit.domains.vlbi.recipes.quality import (
    chi2_doubts,
    closure_remedy,
    flux_doubts,
    gain_doubts,
    phase_doubts,
    step_doubts,
    weak_doubts,
    with_doubts,
)
from shardfit.domains.vlbi.selfcal import GainTable, apply_gains, self_calibrate, solve_gains
from shardfit.domains.vlbi.tables import CLOSURES, USUAL_GAIN, DataSet, data_set, unformable
from shardfit.fitting import fit
from shardfit.run_options import RunOptions

log = logging.getLogger(__name__)
PRESETS: Mapping[str, Mapping[str, Any]] = MappingProxyType({"default": {}, "eht": EHT, "m87": M87})


@dataclass(frozen=True, eq=False)
class Fit:
    """One of the fits of an imaging run.

    round, restart: its place, both from 0; value: objective at its end; history: (evaluations,) objective on the way;
    steps, evaluations; seconds, of which compiling; converged: whether a tolerance was met; message: how it ended;
    chi2: χ² per measurement by product; image: as fitted.
    """

    round: int
    restart: int
    value: float
    history: np.ndarray
    steps: int
    evaluations: int
    seconds: float
    compiling: float
    converged: bool
    message: str
    chi2: Mapping[str, float]
    image: Image

    @property
    def label(self) -> str:
        """Its place in words."""
        return f"round {self.round + 1}, " + (f"restart {self.restart}" if self.restart else "first fit")


@dataclass(frozen=True, eq=False)
class ImagingResult:
    """An image and how it was reached.

    image: that of the last round's best fit, blurred if there was a reverse taper; result: Result of that fit, with
    its doubts; chi2: χ² per measurement by product, data and errors as in that fit; fits: all of them in order;
    kept: the number of that fit; data: the prepared observation, without taper; calibrated: the same after the last
    self-calibration, and gains: its solution (None without); flux: Jy, as fitted to; options: as used; problem,
    measured: of that fit, and the products it was made of; doubts: reasons not to believe the image, in words;
    flux_uncertainty: of a flux estimated with gain errors, relative.
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
    on_fit: Callable[[Fit, int, int], Any] | None = None,
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
    run, gains = run or RunOptions(), None
    done = _rounds(initial, start, chosen, fit_settings(run, chosen, "fits/"), on_fit)
    if chosen.follow:
        done, chosen, flux, gains = _followed(done, flux, chosen, run, on_fit)
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
        result=with_doubts(as_planned(done.result, len(done.fits)), doubts),
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


def judged(found: Fit, done: "_Reached", options: ImagingOptions, gains: Gains | None) -> list[str]:
    """Return doubts about χ². Amplitudes whose errors were taken from themselves are no test: their size is.

    Closures of weak data are not Gaussian: visibilities with gains of their own stand for them, where they were fitted.
    """
    weak, calibrated = weak_doubts(done.data, options) if options.follow else [], "calvis" in found.chi2
    trusted = {name for name in found.chi2 if name not in AMPLITUDES or (gains is None and not weak)}
    chi2 = {name: value for name, value in found.chi2.items() if name in trusted or not value <= NOT_EVEN_SO}
    if calibrated and weak:
        weak, chi2 = [], {"calvis": found.chi2["calvis"]}
    remedy = closure_remedy(done.data, found.image) if options.follow else None
    doubts = chi2_doubts(chi2, done.measured, tolerance=options.schedule()[-1].tolerance, remedy=remedy)
    return weak + doubts + ([] if gains is None else gain_doubts(gains.errors, done.data, found.image.flux))


@dataclass(frozen=True, eq=False)
class _Reached:
    """Where a schedule got to.

    fits: all of them; kept: number of the last round's best; result, problem, measured: of that one; data: as
    calibrated, with their gains.
    """

    fits: list[Fit]
    kept: int
    result: Result
    problem: Problem
    measured: DataSet
    data: Observation
    gains: GainTable | None


def _rounds(
    initial: Observation, start: Image, options: ImagingOptions, settings: Callable[[int], dict], on_fit: Any
) -> _Reached:
    """Run the schedule; an interrupted fit ends it."""
    beam = initial.nominal_resolution
    data, gains = _precalibrated(initial, start, options), None
    fits: list[Fit] = []
    reached: Any = None
    certified = {}  # by what terms compute: another start, weight or calibration does not change it
    for number, one in enumerate(options.schedule()):
        measured = measurements(data, options, number)
        problem = _problem(measured, one.data, start, beam, options)
        last = fits[reached.kept] if fits else None
        reached = None
        for k in range(one.restarts + 1):
            if last is not None:
                problem = with_start(problem, last.image.blur(options.blur * beam).values["I"])
            program = jax.tree.structure(problem.objective)
            result = fit(problem, certify=program not in certified, **settings(len(fits) + 1))
            result = certified_by(result, certified.setdefault(program, result.certificate))
            last = _fit_record(problem, result, start, number, k)
            fits.append(last)
            if reached is None or result.value < reached.result.value or not np.isfinite(reached.result.value):
                reached = _Reached(fits, len(fits) - 1, result, problem, measured, data, gains)
            if result.status is Status.INTERRUPTED:
                return replace(reached, result=replace(reached.result, status=Status.INTERRUPTED))
            if on_fit is not None:
                on_fit(fits[-1], len(fits), options.most_fits)
        if one.calibrate:
            data, gains = _calibrated(initial if one.afresh else data, fits[reached.kept].image, one)
    return replace(reached, data=data, gains=gains)


def _followed(
    reached: _Reached, flux: float, options: ImagingOptions, run: RunOptions, on_fit: Any
) -> tuple[_Reached, ImagingOptions, float, Gains | None]:
    """Weaken the regularisers until the data are explained; return where this led to, the options and flux as used.

    Amplitudes that are not explained then, though closures are, get the errors of gains that they show, and it begins
    again with these, and with the flux for which gains are 1 on the mean, unless it was given.
    """
    settings = fit_settings(run, replace(options, maxiter=LONGER * options.maxiter), "fits/")
    done, used = _weakened(reached, options, settings, on_fit)
    chi2 = done.fits[done.kept].chi2
    weak = bool(weak_doubts(done.data, options))
    wrong = gains_are_wrong(chi2) or weak
    if done.result.status is Status.INTERRUPTED or options.tolerance or not wrong:
        told = options.flux is None and tells_flux(chi2)
        return done, used, done.fits[done.kept].image.flux if told else flux, None
    if weak:  # amplitudes are noise, and do not tell gains
        gains = Gains(dict.fromkeys(done.data.stations.names, USUAL_GAIN), 1.0, SHORT_BASELINES)
        return _with_gains(done, flux, used, options, gains, settings, on_fit)
    known, short = options.flux is not None or bool(options.zero_baseline), flux
    first, gains = reached.fits[reached.kept].image, None
    beam = done.data.nominal_resolution
    for _ in range(2):  # the first image was pulled by amplitudes that were believed
        gains = gains_of(done.data, done.fits[done.kept].image, flux_known=known)
        if not known:
            flux, sure = combined_flux(short, done.fits[done.kept].image, gains)
            gains = replace(gains, uncertainty=sure)
        used = replace(options, tolerance=dict(gains.errors))
        measured = measurements(done.data, used)
        problem = _problem(measured, used.schedule()[-1].data, prior_image(done.data, flux, used), beam, used)
        problem = with_start(problem, first.blur(options.blur * beam).values["I"])
        done = _further(replace(done, measured=measured), problem, settings, on_fit, options.most_fits)
        # errors taken from amplitudes explain them: closures alone say whether the image does
        done, used = _weakened(done, used, settings, on_fit, gains=True)
        if done.result.status is Status.INTERRUPTED:
            return done, used, flux, gains
    return _with_gains(done, short, used, options, None, settings, on_fit)


def _with_gains(
    reached: _Reached,
    short: float,
    used: ImagingOptions,
    options: ImagingOptions,
    given: Gains | None,
    settings: Callable[[int], dict],
    on_fit: Any,
) -> tuple[_Reached, ImagingOptions, float, Gains]:
    """Fit the visibilities themselves with the gains that suit them best, from an image that closures have shaped.

    short: flux by short baselines, Jy. given: what is known of the gains; None: their sizes, and the flux for which
    they are 1 on the mean, follow the image.
    """
    known = options.flux is not None or bool(options.zero_baseline)
    done, beam, flux, gains = reached, reached.data.nominal_resolution, short, given or Gains({}, 1.0, 1.0)
    closures = dict.fromkeys((name for name in used.data if name in CLOSURES), 0.0)
    used = replace(used, data={"calvis": CALIBRATED, **closures}, regularisers=dict(options.regularisers))
    for _ in range(CALIBRATIONS):
        before, last = flux, done.fits[done.kept].image
        gains = given or gains_of(done.data, last, flux_known=known)
        if not (known or given):
            flux, sure = combined_flux(short, last, gains)
            gains = replace(gains, uncertainty=sure)
        used = replace(used, tolerance=dict(gains.errors))
        measured = measurements(done.data, used)
        problem = _problem(measured, used.data, prior_image(done.data, flux, used), beam, used)
        problem = with_start(problem, last.blur(options.blur * beam / 2).values["I"])
        done = _further(replace(done, measured=measured), problem, settings, on_fit, options.most_fits)
        if done.result.status is Status.INTERRUPTED or abs(flux / before - 1) < SAME_FLUX:
            break
    done, used = _weakened(done, used, settings, on_fit, gains=True)
    return done, used, flux, gains


def _weakened(
    reached: _Reached,
    options: ImagingOptions,
    settings: Callable[[int], dict],
    on_fit: Any,
    gains: bool = False,
) -> tuple[_Reached, ImagingOptions]:
    """Fit with weaker and weaker regularisers, each from the last image, as long as χ² comes closer to 1.

    gains: amplitudes may be wrong, so that closures alone are looked at and amplitudes do not tell the flux.
    """
    used, flux_known = options, gains or options.flux is not None
    for factor in FACTORS:
        last = reached.fits[reached.kept]
        if reached.result.status is Status.INTERRUPTED or worst(last.chi2, gains) <= explained(last.chi2):
            break
        weights = weakened(options.regularisers, factor, flux_known=flux_known)
        problem = reached.problem.replace(objective=reached.problem.objective.with_weights(reg=weights))
        further = _further(reached, with_start(problem, last.image.values["I"]), settings, on_fit, options.most_fits)
        if further.result.status is Status.INTERRUPTED:
            return further, used
        if worst(further.fits[-1].chi2, gains) > (1 - PROGRESS) * worst(last.chi2, gains):
            return replace(reached, fits=further.fits), used
        reached, used = further, replace(options, regularisers=weights)
    return reached, used


def _further(
    reached: _Reached, problem: Problem, settings: Callable[[int], dict], on_fit: Any, planned: int
) -> _Reached:
    """Fit another problem of the same kind, and go on from there."""
    result = fit(problem, certify=False, **settings(len(reached.fits) + 1))
    result = certified_by(result, reached.result.certificate)
    grid = reached.fits[reached.kept].image
    last = reached.fits[-1]
    one = _fit_record(problem, result, grid, last.round, last.restart + 1)
    fits = [*reached.fits, one]
    if on_fit is not None and result.status is not Status.INTERRUPTED:
        on_fit(one, len(fits), max(planned, len(fits)))
    return replace(reached, fits=fits, kept=len(fits) - 1, result=result, problem=problem)


def measurements(ready: Observation, options: ImagingOptions, number: int = -1) -> DataSet:
    """Return the data products of a prepared observation that a round asks for (default: the last)."""
    one = options.schedule()[number]
    return data_set(
        ready,
        one.data,
        count=options.count,
        cp_uv_min=options.cp_uv_min,
        snrcut=options.snr_cut,
        systematic=one.tolerance,
    )


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


def prior_image(ready: Observation, flux: float, options: ImagingOptions) -> Image:
    """Return the Gaussian of this flux, Jy, that is prior and start, at the position and frequency of the data."""
    about = {name: getattr(ready, name) for name in ("ra_hours", "dec_deg", "freq_hz", "mjd", "source")}
    options = options.sized(ready)
    empty = blank(options.npix, (options.fov_uas or 0.0) * UAS, **about)
    return prior(empty, flux, (options.prior_fwhm_uas or 0.0) * UAS).normalise(flux)


def _precalibrated(initial: Observation, grid: Image, options: ImagingOptions) -> Observation:
    """Return the data after the calibration to a Gaussian, or as they are."""
    wanted = options.precal
    stations = () if wanted is None else [name for name in wanted.stations if name in initial.stations.names]
    if wanted is None or not stations:
        return initial
    # the Gaussian describes the sky, not the sharper image that a reverse taper asks for
    seen = taper(initial, options.taper_uas * UAS)
    model = gaussian(grid, wanted.flux, wanted.fwhm_uas * UAS)
    gains = solve_gains(seen, model, stations=stations, tolerance=wanted.tolerance, uv_max=wanted.uv_max)
    return apply_gains(initial, gains, nearest=True)


def _calibrated(data: Observation, model: Image, one: Round) -> tuple[Observation, GainTable | None]:
    """Return data after the self-calibrations of a round, and the gains of the last."""
    gains = None
    for wanted in one.calibrate:
        stations = [name for name in data.stations.names if wanted.stations is None or name in wanted.stations]
        found = self_calibrate(data, model, method=wanted.method, stations=stations, tolerance=wanted.tolerance)
        data, gains = found.data, found.gains
    return data, gains


def _problem(
    measured: DataSet, weights: Mapping[str, float], start: Image, beam: float, options: ImagingOptions
) -> Problem:
    return imaging_problem(
        measured,
        start.grid,
        start.values["I"],
        data_weights=weights,
        reg_weights=options.regularisers,
        flux=start.flux,
        beam=beam,
        operator=options.operator,
        transform=options.transform,
        epsilon_tv=options.epsilon_tv,
        name=start.source or "image",
    )


def _fit_record(problem: Problem, result: Result, grid: Image, number: int, restart: int) -> Fit:
    found = grid.replace(values={"I": image_maps(problem, result.params)["I"]})
    return Fit(
        round=number,
        restart=restart,
        value=result.value,
        history=np.asarray(result.history.get("value", ()), float),
        steps=result.steps,
        evaluations=result.evaluations,
        seconds=result.timings["total"],
        compiling=result.timings.get("compile", 0.0),
        converged=result.status.converged,
        message=result.status.message,
        chi2=MappingProxyType(data_chi2(result)),
        image=found,
    )
