"""posterior: images drawn from what the data leave open, under a prior that does not know the source's shape.

The prior is a log-normal field in an envelope (`latent_image`); its hyper-parameters are weighted by their evidence,
and every draw is a fit of perturbed data and prior. No regulariser and no restart takes part.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import numpy as np

from shardfit.core.errors import suggestion
from shardfit.core.precision import arithmetic
from shardfit.domains.vlbi.constants import UAS
from shardfit.domains.vlbi.grid import Grid
from shardfit.domains.vlbi.images import Image, blank
from shardfit.domains.vlbi.latent_image import HYPER, Scene, picture
from shardfit.domains.vlbi.observation import Observation
from shardfit.domains.vlbi.recipes.preparation import compact_flux
from shardfit.domains.vlbi.whitened import (
    compress,
    polar_arrays,
    polar_residual,
    visibility_residual,
)
from shardfit.sampling.posterior import Posterior
from shardfit.sampling.refits.hyper_search import HyperPoints, search
from shardfit.sampling.refits.latent import LatentModel, draw_refits, modes, one_thread

PRODUCTS = ("vis", "gains")
FITS = (0.75, 1.25)  # χ² per measurement of draws between which the data are explained within their errors
STARTS, STIR = 8, 0.5  # first fits, and the size of unit Gaussians that all but one of them start at
HOPELESS = 25.0  # logarithm of evidence by which hyper-parameters may be worse than the best: they count for nothing
FEW = 5.0  # effective hyper-parameters below which one combination decides nearly all


@dataclass(frozen=True, eq=False)
class ImagePosterior:
    """Images drawn from a posterior, all equally probable.

    images: (draws, ny, nx) Jy per pixel; about: an Image of the same pixels; chi2: (draws,) χ² per measurement of each;
    numbers: Posterior of flux (Jy) and hyper-parameters (lengths in µas) of the same draws, and what to know about
    them.
    """

    images: np.ndarray
    about: Image
    chi2: np.ndarray
    numbers: Posterior

    def mean(self) -> Image:
        """Return the mean image."""
        return self._image(self.images.mean(0))

    def sd(self) -> Image:
        """Return the standard deviation of every pixel."""
        return self._image(self.images.std(0, ddof=1))

    def quantile(self, q: float) -> Image:
        """Return a quantile of every pixel."""
        return self._image(np.quantile(self.images, q, axis=0))

    def blur(self, fwhm_rad: float) -> "ImagePosterior":
        """Return the posterior of the image at a lower resolution, FWHM in rad: what data determine better."""
        blurred = np.stack([self._image(one).blur(fwhm_rad).values["I"] for one in self.images])
        return replace(self, images=blurred)

    def of(self, measure: Callable[[Image], Any]) -> np.ndarray:
        """Return a number or array made of the image, at every draw: (draws, ...).

        Example: `posterior.of(lambda image: image.flux).std()`.
        """
        return np.array([measure(self._image(one)) for one in self.images])

    def _image(self, values: np.ndarray) -> Image:
        return self.about.replace(values={"I": values})


class _Data(NamedTuple):
    """visible: what is seen of pixels; residual: of that, with its arrays.

    χ² has `rest` that no image changes, and n measurements.
    """

    visible: np.ndarray
    residual: Callable[..., Any]
    arrays: dict[str, Any]
    rest: float
    n: int


@arithmetic("float64")
def posterior(
    obs: Observation,
    *,
    npix: int = 32,
    fov_uas: float = 128.0,
    flux: float | None = None,
    products: str = "gains",
    gain_error: float = 0.1,
    draws: int = 100,
    start: Image | None = None,
    seed: int = 0,
    on_progress: Callable[[str], Any] | None = None,
) -> ImagePosterior:
    """Draw images from the posterior of an observation, which is taken as it is (`prepare` it first).

    Parameters
    ----------
    obs
        the observation; its errors must hold all that is not in the model (`add_fractional_noise`).
    npix, fov_uas
        pixels a side and field of view in µas. Pixels must follow the longest baseline; finer ones cost time only.
    flux
        of the compact source in Jy, known to a factor of about 1.6; None to estimate it.
    products
        'gains': amplitudes, with station gains integrated out, and closure phases. 'vis': complex visibilities, for
        data whose gains and phases are calibrated.
    gain_error
        standard deviation of ln|g| of every station and time, with products='gains'.
    draws
        images to draw.
    start
        an image to begin the search with, for closure phases from few stations.
    seed
        of everything random.
    on_progress
        on_progress(text) is called after every round of fits.

    Example: `posterior(obs, flux=0.6).blur(10 * UAS).sd()`.

    """
    began = time.perf_counter()
    _require(products, npix, draws, gain_error)
    told = on_progress or (lambda text: None)
    flux = compact_flux(obs) if flux is None else float(flux)
    about = blank(npix, fov_uas * UAS, ra_hours=obs.ra_hours, dec_deg=obs.dec_deg, freq_hz=obs.freq_hz, mjd=obs.mjd)
    # pixels as points: values are then samples of the sky, which blurring to the resolution does not shift
    about = about.replace(source=obs.source, pulse="delta")
    scene = Scene(about.grid, flux, 0.5 * obs.nominal_resolution, 0.2 * fov_uas * UAS)
    with one_thread():
        data = _data(obs, about.grid, flux, products, gain_error)
        arrays = {**scene.arrays(), **data.arrays}
        model = LatentModel(data.visible, arrays, _field, data.residual, scene.n, len(HYPER))
        y0 = np.zeros(scene.n) if start is None else scene.start(_same_pixels(start, about))
        points = _explore(model, y0, seed, told)
        images, y, chosen = _draw(model, points, draws, seed)
        squares = jax.vmap(lambda one, h: (model.residuals(one, h) ** 2).sum())(y, chosen)
    chi2 = (np.asarray(squares) + data.rest) / data.n
    found = replace(
        _numbers(scene, points, chosen, images.sum((1, 2)), chi2),
        timings={"total": time.perf_counter() - began},
        seed=seed,
    )
    return ImagePosterior(images, about, chi2, found)


def _require(products: str, npix: int, draws: int, gain_error: float) -> None:
    if products not in PRODUCTS:
        raise ValueError(f"posterior: unknown products {products!r}.{suggestion(str(products), PRODUCTS)}")
    for name, value, least in (("npix", npix, 8), ("draws", draws, 2)):
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
            raise ValueError(f"posterior: {name}={value!r} must be a whole number, at least {least}.")
    if not (np.isfinite(gain_error) and gain_error > 0):
        raise ValueError(
            f"posterior: gain_error={gain_error!r} must be positive. With perfect gains use products='vis'."
        )


def _same_pixels(start: Image, about: Image) -> np.ndarray:
    if start.shape != about.shape or not np.isclose(start.pixel_rad, about.pixel_rad):
        raise ValueError(
            f"posterior: start has {start.shape} pixels of {start.pixel_rad / UAS:.4g} µas, the posterior "
            f"{about.shape} of {about.pixel_rad / UAS:.4g} µas. Make it with the same npix and fov_uas."
        )
    return start.values["I"]


def _data(obs: Observation, grid: Grid, flux: float, products: str, gain_error: float) -> _Data:
    seen = compress(obs, grid, flux)
    if products == "vis":
        return _Data(seen.visible, visibility_residual, {"target": seen.target}, seen.rest, seen.n)
    arrays, n = polar_arrays(obs, gain_error)
    return _Data(seen.visible, polar_residual, {"basis": seen.basis, **arrays}, 0.0, n)


def _field(y: jax.Array, h: jax.Array, arrays: dict[str, Any]) -> jax.Array:
    return picture(y, h, arrays).ravel()


def _explore(model: LatentModel, y0: np.ndarray, seed: int, told: Callable) -> HyperPoints:
    quiet = (np.zeros(model.n_residuals), np.zeros(model.n))
    best = -np.inf

    def solve(h: np.ndarray, y0: np.ndarray) -> Any:
        nonlocal best
        found = modes(model, h, y0, *(np.repeat(zero[None], len(h), 0) for zero in quiet), least=best - HOPELESS)
        told(f"{len(h)} fits, best log evidence {found.log_evidence.max():.1f}")
        best = max(best, found.log_evidence.max())
        return found

    # closure phases have several minima: all that follows starts from the best of a few
    starts = (
        y0 + STIR * np.random.default_rng(seed).standard_normal((STARTS, model.n)) * (np.arange(STARTS) > 0)[:, None]
    )
    first = solve(np.zeros((STARTS, model.d)), starts)
    points = search(solve, np.asarray(first.y[np.argmin(first.value)]), model.d, seed)
    told(f"hyper-parameters: {points.effective:.0f} effective of {len(points.h)}; drawing images")
    return points


def _draw(model: LatentModel, points: HyperPoints, draws: int, seed: int) -> tuple:
    """Return images, unit Gaussians and hyper-parameters of the draws whose fits have converged."""
    at = points.pick(draws, seed)
    found = draw_refits(model, points.h[at], points.y[at], seed)
    kept = found.reached
    if kept.sum() < 0.9 * draws:
        raise RuntimeError(
            f"posterior: {int((~kept).sum())} of {draws} fits of perturbed data did not converge, so the others would "
            "not be a fair sample. Errors that are far too small are the usual reason: see add_fractional_noise."
        )
    y, h = np.asarray(found.y)[kept], points.h[at][kept]
    return np.asarray(jax.vmap(lambda one, hyper: picture(one, hyper, model.args))(y, h)), y, h


def _numbers(scene: Scene, points: HyperPoints, h: np.ndarray, flux: np.ndarray, chi2: np.ndarray) -> Posterior:
    """Return the draws of flux and hyper-parameters; the images themselves are kept beside."""
    hyper = {k: v / UAS if k in ("length", "width") else v for k, v in scene.hyper(h).items()}
    return Posterior(
        draws={name: values[None] for name, values in {"flux": flux, **hyper}.items()},
        z=np.column_stack([np.log(flux), h])[None],
        stats={"chi2": chi2[None]},
        weights=None,
        method="perturbed refits of a log-normal field",
        problem="image",
        labels=("ln flux", *HYPER),
        units={"flux": "Jy", "length": "µas", "width": "µas"},
        note=_in_words(points, float(chi2.mean())),
        extra={"independent": True, "hyper_effective": points.effective, "hyper_points": len(points.h)},
    )


def _in_words(points: HyperPoints, chi2: float) -> str:
    told = []
    if not FITS[0] <= chi2 <= FITS[1]:
        size = "small" if chi2 > 1 else "large"
        told.append(
            f"χ² of the draws is {chi2:.2f} per measurement, not about 1: errors are too {size}, or the data are not "
            f"calibrated as assumed, and the spread of the images is too {size} as well."
        )
    if points.effective < FEW:
        told.append(
            f"Only {points.effective:.1f} effective hyper-parameters: what they leave open is hardly in the spread."
        )
    return " ".join(told)
