"""Weights of regularisers by cross-validation: how well do images predict data that they were not made of?

The data are divided into parts, the folds. Every choice of weights is fitted to all folds but one, each in turn, and to
all; all of these fits are points of one survey, so they share batches and a run directory. A choice is scored by χ² of
the data held out. Of the choices that are as good as the best, within one standard error, the one is taken that fits
its own data least closely: the simplest image that predicts as well.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from shardfit.core.errors import suggestion
from shardfit.domains.vlbi.imaging_options import ImagingOptions
from shardfit.domains.vlbi.observation import Observation
from shardfit.domains.vlbi.operations import scan_table
from shardfit.domains.vlbi.recipes.imaging import PRESETS, ImagingResult, image
from shardfit.domains.vlbi.recipes.options import options_from
from shardfit.domains.vlbi.recipes.preparation import compact_flux, prepare
from shardfit.domains.vlbi.recipes.surveys import ImagingSurvey, imaging_survey
from shardfit.domains.vlbi.tables import CLOSURES
from shardfit.run_options import RunOptions
from shardfit.surveys.control import SurveyControl
from shardfit.surveys.reading import Survey
from shardfit.surveys.run import survey

AXES: Mapping[str, Sequence[float]] = MappingProxyType(
    {"simple": (0.1, 1.0, 10.0, 100.0), "tv": (0.1, 1.0, 10.0), "tv2": (0.01, 0.1, 1.0)}
)
HELD = ("scans", "baselines")
FOLDER = "survey"
MAXITER = 1000  # of the last image's fits: weak regularisers need more steps than the usual ones


@dataclass(frozen=True, eq=False)
class CrossValidation:
    """What cross-validation found.

    choices
        weights by name, one mapping for each choice.
    scores, mean, error
        (choices, folds) χ² per measurement held out, mean over `products`; (choices,) its mean over folds; (choices,)
        standard error of the difference from the best choice.
    training
        (choices,) χ² per measurement of the data fitted to, mean over folds.
    best, chosen
        number of the choice with the lowest mean, and of the one taken.
    products, folds
        what is scored; (n,) the part of every row of the prepared data.
    image
        made with the weights chosen, of all data.
    doubts
        reasons not to believe the choice, in words.
    """

    choices: tuple[Mapping[str, float], ...]
    scores: np.ndarray
    training: np.ndarray
    mean: np.ndarray
    error: np.ndarray
    best: int
    chosen: int
    products: tuple[str, ...]
    folds: np.ndarray
    image: ImagingResult
    doubts: tuple[str, ...] = ()

    @property
    def weights(self) -> Mapping[str, float]:
        """Weights chosen."""
        return self.choices[self.chosen]


def cross_validate(
    obs: Observation,
    axes: Mapping[str, Sequence[float]] = AXES,
    *,
    run_dir: str | Path,
    folds: int = 5,
    by: str = "scans",
    score: Sequence[str] | None = None,
    preset: str = "default",
    seed: int = 0,
    mesh: Any = None,
    control: SurveyControl | None = None,
    run: RunOptions | None = None,
    **options: Any,
) -> CrossValidation:
    """Choose weights by cross-validation, and make the image with them.

    Parameters
    ----------
    obs
        the observation.
    axes
        values to try by name: regularisers, data products, prior_fwhm_uas, epsilon_tv. Every combination is tried.
    run_dir
        holds the survey, in `survey`; the same call continues an earlier one.
    folds
        number of parts.
    by
        'scans': each scan is in one part, so closures, which are made at one time, are never divided. 'baselines':
        stricter, for other baselines see other parts of the uv plane; closures with a leg that is held out are not
        fitted but scored.
    score
        products whose χ² counts; None: the closures among those fitted, which do not depend on gains, or all of them.
    preset, options
        as for `image`, with maxiter 1000; one round. A flux that is not given is estimated, from all data.
    seed
        of the division.
    mesh, control
        of the survey: devices, and how it runs.
    run
        of the fits of the last image.

    Example: `cross_validate(obs, {"simple": (1, 10, 100), "tv": (0.1, 1, 10)}, run_dir="cv", preset="eht").weights`.

    """
    chosen = options_from(preset, PRESETS, options)
    products = _scored(chosen, score)
    _check(axes, chosen, folds)
    flux = compact_flux(obs) if chosen.flux is None else float(chosen.flux)
    parts = divide(prepare(obs, flux, **chosen.preparation), folds, by=by, seed=seed)
    every = {**axes, "fold": tuple(range(-1, folds))}
    made = imaging_survey(obs, every, preset=preset, folds=parts, **{**options, "flux": flux})
    where = Path(run_dir) / FOLDER
    with survey(made.problem, made.axes, run_dir=where, seed=seed, mesh=mesh, control=control, **made.options) as found:
        choices, scores, training = _scores(found, made, axes, folds, products)
        doubts = _doubts(found)
    if not np.isfinite(scores).all(1).any():
        raise ValueError(f"cross_validate: every choice failed in some fold. See {where}: shardfit survey status.")
    mean, error, best, taken = choose(scores, training)
    weights = choices[taken]
    last = {"maxiter": MAXITER, **options, **_as_options(weights, chosen), "flux": flux}
    final = image(obs, preset=preset, run=run, **last)
    doubts += _edges(axes, weights)
    numbers = {"choices": choices, "scores": scores, "training": training.mean(1), "mean": mean, "error": error}
    return CrossValidation(
        **numbers, best=best, chosen=taken, products=products, folds=parts, image=final, doubts=tuple(doubts)
    )


def divide(obs: Observation, folds: int, *, by: str = "scans", seed: int = 0) -> np.ndarray:
    """Return the part, 0 to folds - 1, of every row (n,): whole scans or baselines, dealt out at random by seed."""
    if by not in HELD:
        raise ValueError(f"cross_validate: by={by!r} must be 'scans' or 'baselines'.{suggestion(str(by), HELD)}")
    if by == "scans":
        unit = np.searchsorted(scan_table(obs)[:, 0], obs.time, side="left")
    else:
        unit = obs.ant1 * len(obs.stations) + obs.ant2
    _, unit = np.unique(unit, return_inverse=True)
    n = int(unit.max()) + 1
    if n < 2 * folds:
        raise ValueError(f"cross_validate: {n} {by} are too few for {folds} folds. Make fewer, or divide by the other.")
    dealt = np.empty(n, int)
    dealt[np.random.default_rng(seed).permutation(n)] = np.arange(n) % folds
    return dealt[unit]


def choose(scores: np.ndarray, training: np.ndarray) -> tuple[np.ndarray, np.ndarray, int, int]:
    """Return mean and error of scores (choices, folds), the number of the best choice and of the one to take.

    error: of the mean difference from the best, fold by fold: that some folds are harder than others does not count.
    The choice taken has the largest training χ² (choices, folds) among those not worse than the best by more than that.
    """
    mean = np.where(np.isfinite(scores).all(1), scores.mean(1), np.inf)
    best = int(mean.argmin())
    with np.errstate(invalid="ignore"):
        error = np.nan_to_num((scores - scores[best]).std(1, ddof=1) / np.sqrt(scores.shape[1]), nan=0.0)
    alike = mean - mean[best] <= error
    return mean, error, best, int(np.where(alike, training.mean(1), -np.inf).argmax())


def _scores(
    found: Survey, made: ImagingSurvey, axes: Mapping[str, Any], folds: int, products: Sequence[str]
) -> tuple[tuple[Mapping[str, float], ...], np.ndarray, np.ndarray]:
    """Return the choices, and χ² of held-out and of fitted data, (choices, folds); NaN where a fit failed."""
    choices = tuple(
        MappingProxyType(dict(zip(axes, map(float, values), strict=True))) for values in product(*axes.values())
    )
    columns = {name: found.column(name) for name in (*axes, "fold", "failed")}
    numbers = found.column("id")
    training = np.mean([found.column(f"data.{name}") for name in products], axis=0)
    place = {tuple(float(columns[name][i]) for name in (*axes, "fold")): i for i in range(len(numbers))}
    scores = np.full((2, len(choices), folds), np.nan)
    for k, choice in enumerate(choices):
        for fold in range(folds):
            i = place[*choice.values(), float(fold)]
            if columns["failed"][i]:
                continue
            held = made.held_out({**choice, "fold": fold}, found.params(int(numbers[i])))
            scores[:, k, fold] = np.mean([held[name] for name in products]), training[i]
    return choices, scores[0], scores[1]


def _scored(options: ImagingOptions, score: Sequence[str] | None) -> tuple[str, ...]:
    """Return the products that count."""
    fitted = options.schedule()[-1].data
    if score is None:
        return tuple(name for name in fitted if name in CLOSURES) or tuple(fitted)
    for name in score:
        if name not in fitted:
            raise ValueError(f"cross_validate: {name!r} is not fitted.{suggestion(str(name), fitted)}")
    return tuple(score)


def _check(axes: Mapping[str, Any], options: ImagingOptions, folds: int) -> None:
    if len(options.rounds) > 1:
        raise ValueError("cross_validate: a preset with rounds of self-calibration has no data to hold out. Use 'eht'.")
    if not axes or any(name in ("fold", "data", "bootstrap", "flux", "systematic") for name in axes):
        raise ValueError(
            "cross_validate: axes are weights of regularisers or products, prior_fwhm_uas or epsilon_tv. What changes "
            "the data or their errors cannot be judged by them."
        )
    if isinstance(folds, bool) or not isinstance(folds, int) or folds < 2:
        raise ValueError(f"cross_validate: folds={folds!r} must be a whole number, at least 2.")


def _as_options(choice: Mapping[str, float], options: ImagingOptions) -> dict[str, Any]:
    """Return a choice as options of `image`."""
    single = {name: value for name, value in choice.items() if name in ("prior_fwhm_uas", "epsilon_tv")}
    data = {name: choice.get(name, weight) for name, weight in options.data.items()}
    more = {name: value for name, value in choice.items() if name not in single and name not in data}
    return {**single, "data": data, "regularisers": {**options.regularisers, **more}}


def _doubts(found: Survey) -> list[str]:
    if found.converged >= 0.99:
        return []
    return [f"{1 - found.converged:.1%} of the fits did not converge; `shardfit survey continue` continues them."]


def _edges(axes: Mapping[str, Sequence[float]], choice: Mapping[str, float]) -> list[str]:
    """Return a doubt for every axis at whose end the choice lies."""
    found = []
    for name, values in axes.items():
        if len(values) > 1 and choice[name] in (min(values), max(values)):
            end = "smallest" if choice[name] == min(values) else "largest"
            found.append(f"the {end} value of {name} was chosen, {choice[name]:g}: a wider range may be better.")
    return found


__all__ = ["AXES", "CrossValidation", "choose", "cross_validate", "divide"]
