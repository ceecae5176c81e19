"""Rounds of an imaging run: fit, blur, fit again, then self-calibration; and where they have got to."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from shardfit.core.problem import Problem
from shardfit.core.result import Result
from shardfit.domains.vlbi.constants import UAS
from shardfit.domains.vlbi.images import Image, blank, gaussian, prior
from shardfit.domains.vlbi.imaging_options import ImagingOptions, Round
from shardfit.domains.vlbi.observation import Observation
from shardfit.domains.vlbi.operations import taper
from shardfit.domains.vlbi.problem import image_maps, imaging_problem, with_start
from shardfit.domains.vlbi.recipes.fitting import data_chi2
from shardfit.domains.vlbi.selfcal import GainTable, apply_gains, self_calibrate, solve_gains
from shardfit.domains.vlbi.tables import DataSet, data_set
from shardfit.series import FitSeries


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


OnFit = Callable[[Fit, int, int], Any] | None


@dataclass(frozen=True, eq=False)
class Reached:
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


def run_rounds(
    initial: Observation, start: Image, options: ImagingOptions, series: FitSeries, on_fit: OnFit
) -> Reached:
    """Run the schedule; an interrupted fit ends it."""
    beam = initial.nominal_resolution
    data, gains = _precalibrated(initial, start, options), None
    fits: list[Fit] = []
    reached: Any = None
    for number, one in enumerate(options.schedule()):
        measured = measurements(data, options, number)
        problem = problem_of(measured, one.data, start, beam, options)
        first, last = len(fits), fits[reached.kept] if fits else None
        for k in range(one.restarts + 1):
            if last is not None:
                problem = with_start(problem, last.image.blur(options.blur * beam).values["I"])
            result = series.fit(problem)
            last = _fit_record(problem, result, start, number, k)
            fits.append(last)
            kept = series.best(since=first)
            if kept == len(fits) - 1:
                reached = Reached(fits, kept, result, problem, measured, data, gains)
            if series.interrupted:
                return reached
            if on_fit is not None:
                on_fit(last, len(fits), options.most_fits)
        if one.calibrate:
            data, gains = _calibrated(initial if one.afresh else data, fits[reached.kept].image, one)
    return replace(reached, data=data, gains=gains)


def further(
    reached: Reached, problem: Problem, series: FitSeries, on_fit: OnFit, planned: int, **settings: Any
) -> Reached:
    """Fit another problem of the same kind, and go on from there; settings: of this fit."""
    result = series.fit(problem, **settings)
    grid = reached.fits[reached.kept].image
    last = reached.fits[-1]
    one = _fit_record(problem, result, grid, last.round, last.restart + 1)
    fits = [*reached.fits, one]
    if on_fit is not None and not series.interrupted:
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


def prior_image(ready: Observation, flux: float, options: ImagingOptions) -> Image:
    """Return the Gaussian of this flux, Jy, that is prior and start, at the position and frequency of the data."""
    about = {name: getattr(ready, name) for name in ("ra_hours", "dec_deg", "freq_hz", "mjd", "source")}
    options = options.sized(ready)
    empty = blank(options.npix, (options.fov_uas or 0.0) * UAS, **about)
    return prior(empty, flux, (options.prior_fwhm_uas or 0.0) * UAS).normalise(flux)


def problem_of(
    measured: DataSet, weights: Mapping[str, float], start: Image, beam: float, options: ImagingOptions
) -> Problem:
    """Return the problem of data products with these weights; start: an Image that is prior and start."""
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
