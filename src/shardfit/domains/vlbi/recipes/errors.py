"""Error bars of images: those that hold under the regularisers as prior, and the spread of a Top Set added to them.

The objective weights data products for imaging, not for statistics, and its χ² are means. It is scaled to the negative
logarithm of a posterior: where every χ² is 1, its data part is half the number of independent measurements. The
regularisers are then the prior, scaled alike. Such errors hold if that prior describes the sky; they know nothing of
other minima of the objective, nor of calibration errors that the assumed noise leaves out. `posterior` has none of
these limits.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shardfit.core.problem import Problem
from shardfit.core.result import Result
from shardfit.core.transforms import Log
from shardfit.domains.vlbi.images import Image
from shardfit.domains.vlbi.problem import image_maps
from shardfit.domains.vlbi.recipes.fitting import data_chi2
from shardfit.domains.vlbi.recipes.imaging import ImagingResult
from shardfit.domains.vlbi.recipes.quality import Unexplained, unexplained
from shardfit.domains.vlbi.tables import DataSet
from shardfit.run_options import RunOptions
from shardfit.series import FitSeries
from shardfit.stats.laplace import Laplace, laplace

FAINTEST = 1e-9  # of the mean brightness
PATIENCE, TIGHT = 300, 1e-12  # a minimum is where so many evaluations lower the objective by no more than this share


@dataclass(frozen=True, eq=False)
class ErrorsUnderRegularisers:
    """Standard deviations of an image whose regularisers are taken as the prior.

    image: the minimum they are taken at, Jy per pixel; sd: standard deviation of each pixel, an Image; chi2: by
    product, at the minimum; uncertainty: typical relative error of sd itself; scale: of the objective, see the module;
    laplace: for numbers made of many pixels, `found.laplace.sd_of(lambda p: p["I"][:100].sum())`. The whole flux is
    held by its own regulariser, so its error here means nothing.
    """

    image: Image
    sd: Image
    chi2: Mapping[str, float]
    uncertainty: float
    scale: float
    laplace: Laplace


def errors_under_regularisers(found: ImagingResult, **options: Any) -> ErrorsUnderRegularisers:
    """Return the standard deviation of every pixel of an image, with its regularisers as prior.

    Raises Unexplained where χ² of a product is far above 1 at the minimum: errors of data that the image does not
    explain are too small, and so would be what follows from them. options: of `errors_around`.

    Example: `errors_under_regularisers(image(obs, preset="m87")).sd`.
    """
    weights = found.options.schedule()[-1].data
    return errors_around(found.problem, found.result.params, found.image, found.measured, weights, **options)


def errors_around(
    problem: Problem,
    params: Mapping[str, Any],
    about: Image,
    measured: DataSet,
    weights: Mapping[str, float],
    *,
    rank: int | None = None,
    probes: int = 100,
    seed: int = 0,
    maxiter: int = 5000,
    mesh: Any = None,
) -> ErrorsUnderRegularisers:
    """Return the standard deviations at the minimum that a fit of Stokes I leads to.

    The fit goes on from params until it converges (at most maxiter steps): imaging stops early by design, and errors
    are those of a minimum. about: an Image of the same pixels; measured, weights: the data products of the problem.
    rank, probes, seed: see `stats.laplace.laplace`.
    """
    problem, result = _minimum(problem, params, maxiter, mesh)
    chi2 = data_chi2(result)
    wrong = unexplained(chi2, measured)
    if wrong:
        values = ", ".join(f"{name} {chi2[name]:.3g}" for name in wrong)
        raise Unexplained(
            f"no error bars under the regularisers: χ² per measurement is far above 1 at the minimum ({values}), so "
            "the data are not explained within their errors, and bars made of these would be too small. Calibrate "
            "(preset m87), allow for calibration errors (tolerance, systematic), or draw images with posterior."
        )
    scale = posterior_scale(measured, weights)
    around = laplace(problem, result.params, scale=scale, rank=rank, probes=probes, seed=seed, mesh=mesh)
    maps = [image_maps(problem, {**result.params, "I": one})["I"] for one in (result.params["I"], around.sd["I"])]
    image, sd = (about.replace(values={"I": one}) for one in maps)
    return ErrorsUnderRegularisers(image, sd, chi2, around.uncertainty, scale, around)


def _minimum(problem: Problem, params: Mapping[str, Any], maxiter: int, mesh: Any) -> tuple[Problem, Result]:
    """Return the problem in the logarithm, as errors of a positive number are, and its fit from params to the minimum.

    The way there is in the problem's own variables: in the logarithm faint pixels hardly move, and where they have not
    arrived the objective curves downwards. Only the last steps are in the logarithm.
    """
    run = RunOptions(solver="lbfgs", mesh=mesh, progress=False)
    series = FitSeries(run, memory=50, maxiter=maxiter, ftol=0.0)
    own: Any = problem.transforms["I"]
    if hasattr(own, "lifted"):
        there = problem.replace(x0={"I": own.lifted(np.asarray(params["I"]))})
        params = series.fit(there, certify=False, gtol=0.0, patience=PATIENCE, ptol=TIGHT).params
    # a pixel that a fit has set to zero has no logarithm
    brightness = np.maximum(params["I"], FAINTEST * np.mean(params["I"]))
    problem = problem.replace(x0={"I": brightness}, transforms={"I": Log()})
    if not series.interrupted:
        series.fit(problem, certify=False, gtol=1e-6)
    if series.interrupted:  # errors are those of a minimum
        raise KeyboardInterrupt
    return problem, series.results[-1]


def posterior_scale(measured: DataSet, weights: Mapping[str, float]) -> float:
    """Return what the objective is multiplied with to be the negative logarithm of a posterior.

    Products made of the same visibilities share their information: there are never more independent real numbers than
    twice the visibilities.
    """
    real = sum(p.n * (2 if np.iscomplexobj(p.value) else 1) for p in (measured.products[name] for name in weights))
    return min(real, 2 * len(measured.u)) / (2 * sum(weights.values()))


@dataclass(frozen=True, eq=False)
class TopSetErrors:
    """Conservative error bars: sd² = spread² + that under the regularisers², where there is one.

    mean, spread: over the images of the set, spread as a standard deviation; under: whether errors under the
    regularisers are in sd. Without them sd is the spread alone, which is far too small.
    """

    mean: Image
    sd: Image
    spread: Image
    under: bool


def top_set_errors(
    images: Sequence[Image], under: ErrorsUnderRegularisers | None = None, *, fwhm_rad: float = 0.0
) -> TopSetErrors:
    """Return mean and conservative standard deviation of images that fit the data equally well.

    under: errors under the regularisers of one of them, aligned as they are; fwhm_rad: resolution to blur to, FWHM.
    There, deviations of neighbouring pixels are added as if they were one: an upper limit.

    Example: `top_set_errors([made.image(found.picture(i)) for i in chosen], made.errors(point, params))`.
    """
    if len(images) < 2:
        raise ValueError(f"top_set_errors: {len(images)} image has no spread. Choose several, or use posterior.")
    for one in (*images, *([] if under is None else [under.sd])):
        if one.shape != images[0].shape or not np.isclose(one.pixel_rad, images[0].pixel_rad):
            raise ValueError(f"top_set_errors: images of {images[0].shape} and {one.shape} pixels do not go together.")
    values = np.stack([one.blur(fwhm_rad).values["I"] for one in images])
    spread = values.std(0, ddof=1)
    sd = spread if under is None else np.hypot(spread, under.sd.blur(fwhm_rad).values["I"])
    mean, sd, spread = (images[0].replace(values={"I": one}) for one in (values.mean(0), sd, spread))
    return TopSetErrors(mean, sd, spread, under is not None)
