"""Error bars of an image: how well the data and the regularisers determine each pixel, and numbers made of pixels.

The objective weights data products for imaging, not for statistics, and its χ² are means. `error_map` scales it to the
negative logarithm of a posterior: where every χ² is 1, its data part is half the number of independent measurements.
The regularisers are then the prior, scaled alike. The errors hold if that prior describes the sky; they know nothing of
other minima of the objective, nor of calibration errors that the assumed noise leaves out.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from shardfit.core.transforms import Log
from shardfit.domains.vlbi.images import Image
from shardfit.domains.vlbi.problem import image_maps
from shardfit.domains.vlbi.recipes.imaging import ImagingResult
from shardfit.domains.vlbi.tables import DataSet
from shardfit.fitting import fit
from shardfit.stats.laplace import Laplace, laplace

FAINTEST = 1e-6  # of the mean brightness


@dataclass(frozen=True, eq=False)
class ErrorMap:
    """Standard deviations of an image.

    image: the minimum they are taken at, Jy per pixel; sd: standard deviation of each pixel, an Image; uncertainty:
    typical relative error of sd itself; scale: of the objective, see the module; laplace: for numbers made of many
    pixels, `found.laplace.sd_of(lambda p: p["I"].sum())`.
    """

    image: Image
    sd: Image
    uncertainty: float
    scale: float
    laplace: Laplace


def error_map(
    found: ImagingResult,
    *,
    rank: int = 300,
    probes: int = 100,
    seed: int = 0,
    maxiter: int = 5000,
    mesh: Any = None,
) -> ErrorMap:
    """Return the standard deviation of every pixel of an image.

    The last fit goes on until it converges (at most maxiter steps): the schedule's fits stop early by design, and
    errors are those of a minimum. rank, probes, seed: see `stats.laplace.laplace`.

    Example: `error_map(image(obs)).sd`.
    """
    # in the logarithm, as errors of a positive number are; a pixel that a fit has set to zero has none
    brightness = np.maximum(found.result.params["I"], FAINTEST * found.flux / found.result.params["I"].size)
    problem = found.problem.replace(x0={**found.result.params, "I": brightness}, transforms={"I": Log()})
    settings = {"maxiter": maxiter, "ftol": 0.0, "gtol": 1e-6, "memory": 50}
    result = fit(problem, "lbfgs", mesh=mesh, progress=False, certify=False, **settings)
    scale = posterior_scale(found.measured, found.options.schedule()[-1].data)
    around = laplace(problem, result.params, scale=scale, rank=rank, probes=probes, seed=seed, mesh=mesh)
    maps = image_maps(problem, result.params)
    sd = image_maps(problem, {**result.params, "I": around.sd["I"]})
    return ErrorMap(
        image=found.image.replace(values={"I": maps["I"]}),
        sd=found.image.replace(values={"I": sd["I"]}),
        uncertainty=around.uncertainty,
        scale=scale,
        laplace=around,
    )


def posterior_scale(measured: DataSet, weights: Mapping[str, float]) -> float:
    """Return what the objective is multiplied with to be the negative logarithm of a posterior.

    Products made of the same visibilities share their information: there are never more independent real numbers than
    twice the visibilities.
    """
    real = sum(p.n * (2 if np.iscomplexobj(p.value) else 1) for p in (measured.products[name] for name in weights))
    return min(real, 2 * len(measured.u)) / (2 * sum(weights.values()))
