"""Movies: from an observation of a source that changes while it is observed to images at several times."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from shardfit.core.problem import Problem
from shardfit.core.result import Result
from shardfit.core.status import Status
from shardfit.domains.vlbi.images import Image
from shardfit.domains.vlbi.imaging_options import ImagingOptions
from shardfit.domains.vlbi.movie_problem import TEMPORAL, frame_maps, movie_problem, part_chi2, split_times
from shardfit.domains.vlbi.movies import Movie
from shardfit.domains.vlbi.observation import Observation
from shardfit.domains.vlbi.recipes.fitting import data_chi2, fit_again, series_of
from shardfit.domains.vlbi.recipes.imaging import PRESETS, ImagingResult, image
from shardfit.domains.vlbi.recipes.options import options_from
from shardfit.domains.vlbi.recipes.quality import chi2_doubts, flux_doubts, with_doubts
from shardfit.domains.vlbi.recipes.rounds import measurements, prior_image
from shardfit.domains.vlbi.tables import DataSet
from shardfit.run_options import RunOptions

# chosen on simulated sources that orbit, flare, grow and move, see docs/vlbi.md; a weaker entropy than that of a single
# image, for it pulls every frame to the middle
REGULARISATION: Mapping[str, float] = MappingProxyType({"simple": 10.0, "tv": 1.0, "tv2": 1.0, "flux": 1e3})
JOINING: Mapping[str, float] = MappingProxyType({"dt": 1.0, "di": 0.1})
ELSEWHERE = ("taper_uas", "precal", "rounds")
MAXITER = 1000  # of a movie, unless given; it has as many times more numbers than an image as there are frames


@dataclass(frozen=True, eq=False)
class MovieResult:
    """A movie and how it was reached.

    movie: the frames and their times; chi2: χ² per measurement by product, of all data; part_chi2: the same between
    each two frames, (frames - 1,), NaN without data; counts: (frames - 1,) visibilities there; static: the best single
    image of the same data, where the frames began; result: of the best fit, with its doubts; data: prepared;
    options, problem: as used; doubts: reasons not to believe it.
    """

    movie: Movie
    chi2: Mapping[str, float]
    part_chi2: Mapping[str, np.ndarray]
    counts: np.ndarray
    static: ImagingResult
    result: Result
    data: Observation
    options: ImagingOptions
    problem: Problem
    doubts: tuple[str, ...] = ()


def movie(
    obs: Observation,
    *,
    frames: int | Any = 12,
    joining: Mapping[str, float] | None = None,
    light_curve: Any = None,
    preset: str = "default",
    run: RunOptions | None = None,
    **options: Any,
) -> MovieResult:
    """Make a movie of an observation: images at several times, linear in between, all fitted together.

    Interrupted from the keyboard, it returns the movie so far; result.status says so.

    Parameters
    ----------
    obs
        one observation, of one day.
    frames
        how many, at equal steps from the first time to the last; or their times in h UTC, rising. A source should
        change little from one to the next.
    joining
        weights of what joins the frames: 'dt' (smooth change) and 'di' (little change). Larger weights give a calmer
        movie; without any, a frame knows its own baselines only. Closure quantities leave the position of every frame
        open, so that only this holds it: give calibrated visibilities (data={"vis": 1}) where there are any.
    light_curve
        Jy of every frame, (frames,), where it is known from other data, such as ALMA's; None for a constant flux.
    preset, run, options
        as for `image`, which makes the single image that the frames start from; taper_uas, precal and rounds are not
        for movies: calibrate first.

    Example: `movie(read_uvfits("sgra.uvfits"), frames=20).movie.light_curve`.
    """
    weights = dict(JOINING if joining is None else joining)
    _check(preset, weights, options)
    options = {"regularisers": dict(REGULARISATION), **options}
    chosen = options_from(preset, PRESETS, options)
    hours = _hours(obs, frames)
    if light_curve is not None and np.shape(light_curve) != hours.shape:
        raise ValueError(
            f"movie: light_curve has shape {np.shape(light_curve)} for {len(hours)} frames. Give one each."
        )
    run = run or RunOptions()
    static = image(obs, preset=preset, run=run, **options)
    if static.result.status is Status.INTERRUPTED:
        raise KeyboardInterrupt  # there is no movie yet; the single image goes on when it is called again
    fluxes = np.full(len(hours), static.flux) if light_curve is None else np.asarray(light_curve, float)
    parts = split_times(measurements(static.data, chosen), static.data.time, hours)
    prior = prior_image(static.data, static.flux, chosen)
    beam = static.data.nominal_resolution
    about = {"beam": beam, "fluxes": fluxes, "data_weights": chosen.data, "epsilon_tv": chosen.epsilon_tv}
    about |= {"reg_weights": {**chosen.regularisers, **weights}, "transform": chosen.transform}
    about |= {"operator": chosen.operator, "name": f"{static.image.source or 'image'}, movie"}

    def problem_from(images: Sequence[Image]) -> Problem:
        start = np.stack([one.blur(chosen.blur * beam).values["I"] for one in images])
        return movie_problem(parts, hours, prior.grid, prior.values["I"], init=start, **about)

    def blurred(problem: Problem, result: Result) -> Problem:
        return problem_from([static.image.replace(values={"I": one}) for one in frame_maps(problem, result.params)])

    longer = replace(chosen, maxiter=options.get("maxiter", MAXITER))
    # the single image may be older than the frames, which then have nothing to resume
    series = series_of(run.later, longer, "frames/")
    begun = problem_from([static.image] * len(hours))
    problem, result, steps = fit_again(series, begun, blurred, chosen.restarts)
    return _judged(problem, result, steps, parts, hours, fluxes, static)


def _judged(
    problem: Problem,
    result: Result,
    steps: Sequence[str],
    parts: Sequence[DataSet],
    hours: np.ndarray,
    fluxes: np.ndarray,
    static: ImagingResult,
) -> MovieResult:
    """Return the movie of a fit, with what speaks against it; steps: doubts about its steps."""
    frames = frame_maps(problem, result.params)
    found = Movie(tuple(static.image.replace(values={"I": one}) for one in frames), hours)
    chi2 = data_chi2(result)
    doubts = [*chi2_doubts(chi2), *steps]
    doubts += flux_doubts(float(found.light_curve.mean()), float(fluxes.mean()))
    return MovieResult(
        movie=found,
        chi2=MappingProxyType(chi2),
        part_chi2=MappingProxyType(part_chi2(problem, result.params, parts)),
        counts=np.array([len(one.u) for one in parts]),
        static=static,
        result=with_doubts(result, doubts),
        data=static.data,
        options=static.options,
        problem=problem,
        doubts=tuple(doubts),
    )


def _check(preset: str, joining: Mapping[str, float], options: Mapping[str, Any]) -> None:
    for name in ELSEWHERE:
        if name in options:
            raise TypeError(f"movie has no option {name!r}. Calibrate with image() or self_calibrate() first.")
    if preset == "m87":
        raise ValueError("movie: preset 'm87' has rounds of self-calibration. Use 'eht' on calibrated data.")
    for name in joining:
        if name not in TEMPORAL:
            raise ValueError(f"movie: joining has an unknown name {name!r}. Use {' and '.join(TEMPORAL)}.")


def _hours(obs: Observation, frames: Any) -> np.ndarray:
    """Return the times of the frames, h UTC."""
    first, last = float(obs.time.min()), float(obs.time.max())
    if np.ndim(frames) == 0:
        if isinstance(frames, bool) or not isinstance(frames, int | np.integer) or frames < 2:
            raise ValueError(f"movie: frames={frames!r} must be a whole number, at least 2, or times in h UTC.")
        if not last > first:
            raise ValueError("movie: all data are of one time. Make an image of them.")
        return np.linspace(first, last, int(frames))
    hours = np.asarray(frames, float)
    if hours.ndim != 1 or len(hours) < 2 or not (np.diff(hours) > 0).all():
        raise ValueError("movie: times of frames must be at least two, in h UTC, rising.")
    if first < hours[0] or last > hours[-1]:
        raise ValueError(
            f"movie: data from {first:.3f} to {last:.3f} h lie outside the frames, {hours[0]:.3f} to {hours[-1]:.3f} "
            "h. Add frames, or select the rows."
        )
    return hours
