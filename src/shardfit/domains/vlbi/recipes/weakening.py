"""Regularisers that follow the data: weaker fits from the last image, and gain errors read off its amplitudes."""

from dataclasses import replace

from shardfit.core.problem import Problem
from shardfit.domains.vlbi.imaging_options import FACTORS, ImagingOptions
from shardfit.domains.vlbi.problem import with_start
from shardfit.domains.vlbi.recipes.following import (
    CALIBRATED,
    CALIBRATIONS,
    EXPLAINED,
    LONGER,
    PROGRESS,
    RATHER_WEAK,
    SAME_FLUX,
    SHORT_BASELINES,
    Gains,
    combined_flux,
    explained,
    gains_are_wrong,
    gains_of,
    keeps_closures,
    tells_flux,
    weakened,
    worst,
)
from shardfit.domains.vlbi.recipes.quality import is_weak
from shardfit.domains.vlbi.recipes.rounds import OnFit, Reached, further, measurements, prior_image, problem_of
from shardfit.domains.vlbi.tables import CLOSURES, USUAL_GAIN
from shardfit.series import FitSeries


def followed(
    reached: Reached, flux: float, options: ImagingOptions, series: FitSeries, on_fit: OnFit
) -> tuple[Reached, ImagingOptions, float, Gains | None]:
    """Weaken the regularisers until the data are explained; return where this led to, the options and flux as used.

    Amplitudes that are not explained then, though closures are, get the errors of gains that they show, and it begins
    again with these, and with the flux for which gains are 1 on the mean, unless it was given.
    """
    done, used = _weakened(reached, options, series, on_fit)
    chi2 = done.fits[done.kept].chi2
    weak = is_weak(done.data, options) or (is_weak(done.data, options, RATHER_WEAK) and worst(chi2) > EXPLAINED)
    wrong = gains_are_wrong(chi2) or weak
    if series.interrupted or options.tolerance or not wrong:
        told = options.flux is None and tells_flux(chi2)
        return done, used, done.fits[done.kept].image.flux if told else flux, None
    if weak:  # amplitudes are noise, and do not tell gains
        gains = Gains(dict.fromkeys(done.data.stations.names, USUAL_GAIN), 1.0, SHORT_BASELINES)
        return _with_gains(done, flux, used, options, gains, series, on_fit)
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
        problem = problem_of(measured, used.schedule()[-1].data, prior_image(done.data, flux, used), beam, used)
        problem = with_start(problem, first.blur(options.blur * beam).values["I"])
        done = _longer(replace(done, measured=measured), problem, options, series, on_fit)
        # errors taken from amplitudes explain them: closures alone say whether the image does
        done, used = _weakened(done, used, series, on_fit, gains=True)
        if series.interrupted:
            return done, used, flux, gains
    found = _with_gains(done, short, used, options, None, series, on_fit)
    if series.interrupted or keeps_closures(found[0].fits[found[0].kept].chi2, done.fits[done.kept].chi2):
        return found
    # what gains cannot explain, such as emission that short baselines alone see, went into the image
    return replace(done, fits=found[0].fits), used, flux, gains


def _with_gains(
    reached: Reached,
    short: float,
    used: ImagingOptions,
    options: ImagingOptions,
    given: Gains | None,
    series: FitSeries,
    on_fit: OnFit,
) -> tuple[Reached, ImagingOptions, float, Gains]:
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
        problem = problem_of(measured, used.data, prior_image(done.data, flux, used), beam, used)
        problem = with_start(problem, last.blur(options.blur * beam / 2).values["I"])
        done = _longer(replace(done, measured=measured), problem, options, series, on_fit)
        if series.interrupted or abs(flux / before - 1) < SAME_FLUX:
            break
    done, used = _weakened(done, used, series, on_fit, gains=True)
    return done, used, flux, gains


def _weakened(
    reached: Reached, options: ImagingOptions, series: FitSeries, on_fit: OnFit, gains: bool = False
) -> tuple[Reached, ImagingOptions]:
    """Fit with weaker and weaker regularisers, each from the last image, as long as χ² comes closer to 1.

    gains: amplitudes may be wrong, so that closures alone are looked at and amplitudes do not tell the flux.
    """
    used, flux_known = options, gains or options.flux is not None
    for factor in FACTORS:
        last = reached.fits[reached.kept]
        if series.interrupted or worst(last.chi2, gains) <= explained(last.chi2):
            break
        weights = weakened(options.regularisers, factor, flux_known=flux_known)
        problem = reached.problem.replace(objective=reached.problem.objective.with_weights(reg=weights))
        found = _longer(reached, with_start(problem, last.image.values["I"]), options, series, on_fit)
        if series.interrupted:
            return found, used
        if worst(found.fits[-1].chi2, gains) > (1 - PROGRESS) * worst(last.chi2, gains):
            return replace(reached, fits=found.fits), used
        reached, used = found, replace(options, regularisers=weights)
    return reached, used


def _longer(reached: Reached, problem: Problem, options: ImagingOptions, series: FitSeries, on_fit: OnFit) -> Reached:
    """Fit on with more steps, where the options limit them."""
    settings = {"maxiter": LONGER * options.maxiter} if "maxiter" in series.settings else {}
    return further(reached, problem, series, on_fit, options.most_fits, **settings)
