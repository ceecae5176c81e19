"""posterior: images drawn from what the data leave open, under a prior that does not know the source's shape.

The prior is a log-normal field in an envelope (`latent_image`); its hyper-parameters are weighted by their evidence,
and every draw is a fit of perturbed data and prior. No regulariser and no restart takes part.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.linalg import block_diag

from shardfit.check.identity import Identity
from shardfit.core.digests import digest
from shardfit.core.errors import suggestion
from shardfit.core.precision import arithmetic
from shardfit.domains.vlbi.constants import UAS
from shardfit.domains.vlbi.grid import Grid
from shardfit.domains.vlbi.images import Image, blank
from shardfit.domains.vlbi.imaging_options import FIELD
from shardfit.domains.vlbi.latent_image import HYPER, Scene, picture
from shardfit.domains.vlbi.observation import Observation
from shardfit.domains.vlbi.recipes.preparation import compact_flux
from shardfit.domains.vlbi.whitened import (
    centroid_rows,
    compress,
    polar_arrays,
    polar_residual,
    visibility_residual,
)
from shardfit.io.run_dir import RunDir
from shardfit.sampling.posterior import Posterior
from shardfit.sampling.refits.hyper_search import HyperPoints, search
from shardfit.sampling.refits.kept_modes import KeptModes, kept_modes
from shardfit.sampling.refits.latent import LatentModel, draw_refits, modes, one_thread

PRODUCTS = ("vis", "gains")
OTHERS = "others"  # stations whose gain error is not given by name
FITS = (0.75, 1.25)  # χ² per measurement of draws between which the data are explained within their errors
STARTS, STIR = 8, 0.5  # first fits, and the size of unit Gaussians that all but one of them start at
CENTRED = 0.02  # of the nominal resolution: error of the centroid, where data do not know the position
HOPELESS = 25.0  # logarithm of evidence by which hyper-parameters may be worse than the best: they count for nothing
ODD = 2.5  # standard deviations of their prior by which hyper-parameters may be off
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
    """visible: what is seen of pixels and of `more` unit Gaussians beside them; residual: of that, with its arrays.

    χ² has `rest` that no image changes, and n measurements.
    """

    visible: np.ndarray
    more: int
    residual: Callable[..., Any]
    arrays: dict[str, Any]
    rest: float
    n: int


@arithmetic("float64")
def posterior(
    obs: Observation,
    *,
    npix: int = 32,
    fov_uas: float | None = None,
    flux: float | None = None,
    products: str = "gains",
    gain_error: float | Mapping[str, float] = 0.1,
    draws: int = 100,
    start: Image | None = None,
    seed: int = 0,
    run_dir: str | Path | RunDir | None = None,
    resume: str = "auto",
    on_progress: Callable[[str], Any] | None = None,
) -> ImagePosterior:
    """Draw images from the posterior of an observation, which is taken as it is (`prepare` it first).

    Parameters
    ----------
    obs
        the observation; its errors must hold all that is not in the model (`add_fractional_noise`).
    npix, fov_uas
        pixels a side and field of view in µas, None: 8 nominal resolutions. Pixels must follow the longest baseline;
        finer ones cost time only.
    flux
        of the compact source in Jy, known to a factor of about 1.6; None to estimate it.
    products
        'gains': amplitudes, with station gains integrated out, and closure phases. 'vis': complex visibilities, for
        data whose gains and phases are calibrated.
    gain_error
        standard deviation of ln|g|, with products='gains', of every station or by name (those not named: 'others');
        half of its variance is taken to be constant, half to change from time to time.
    draws
        images to draw.
    start
        an image to begin the search with, of the same pixels: closure phases from few stations have several
        minima, and a search from nothing may end in a poor one.
    seed
        of all random numbers.
    run_dir
        folder that keeps all fits while they are made: the same call goes on after a crash, and has the same draws to
        the bit; with another number of draws, the search for hyper-parameters is not repeated.
    resume
        'auto' continues an earlier call if there is one, 'must' fails if there is none, 'never' starts over.
    on_progress
        on_progress(text) is called after every round of fits.

    Example: `posterior(obs, flux=0.6).blur(10 * UAS).sd()`.

    """
    began = time.perf_counter()
    _require(products, npix, draws)
    gain_errors = _by_station(gain_error, obs.stations.names)
    told = on_progress or (lambda text: None)
    fov = FIELD * obs.nominal_resolution if fov_uas is None else fov_uas * UAS
    flux = compact_flux(obs) if flux is None else float(flux)
    about = blank(npix, fov, ra_hours=obs.ra_hours, dec_deg=obs.dec_deg, freq_hz=obs.freq_hz, mjd=obs.mjd)
    # pixels as points: values are then samples of the sky, which blurring to the resolution does not shift
    about = about.replace(source=obs.source, pulse="delta")
    scene = Scene(about.grid, flux, 0.5 * obs.nominal_resolution, 0.2 * fov)
    asked = {"pixels": (npix, fov), "flux": flux, "products": products, "gain errors": gain_errors.tolist()}
    known = _identity(obs, start, {**asked, "seed": seed})
    with one_thread(), kept_modes(run_dir, known, resume) as kept:
        data = _data(obs, about.grid, flux, products, gain_errors)
        arrays = {**scene.arrays(), **data.arrays}
        model = LatentModel(data.visible, arrays, _field, data.residual, scene.n + data.more, len(HYPER))
        y0 = np.zeros(model.n)
        if start is not None:
            y0[: scene.n] = scene.start(_same_pixels(start, about, centred=data.more > 0))
        points = _explore(model, y0, seed, told, kept)
        images, y, chosen = _draw(model, points, draws, seed, kept)
        squares = jax.vmap(lambda one, h: (model.residuals(one, h) ** 2).sum())(y, chosen)
    chi2 = (np.asarray(squares) + data.rest) / data.n
    found = replace(
        _numbers(scene, points, chosen, images.sum((1, 2)), chi2),
        timings={"total": time.perf_counter() - began},
        seed=seed,
    )
    return ImagePosterior(images, about, chi2, found)


def _identity(obs: Observation, start: Image | None, asked: Mapping[str, Any]) -> Identity:
    """Return what makes two calls the same but for the number of draws."""
    rows = {name: getattr(obs, name) for name in ("time", "ant1", "ant2", "u", "v")}
    data = digest([rows, dict(obs.vis), dict(obs.sigma), obs.stations.xyz])
    facts = {"data": data, "start": "" if start is None else digest(start.values["I"])}
    return Identity({**facts, **{name: repr(value) for name, value in asked.items()}})


def _require(products: str, npix: int, draws: int) -> None:
    if products not in PRODUCTS:
        raise ValueError(f"posterior: unknown products {products!r}.{suggestion(str(products), PRODUCTS)}")
    for name, value, least in (("npix", npix, 8), ("draws", draws, 2)):
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
            raise ValueError(f"posterior: {name}={value!r} must be a whole number, at least {least}.")


def _by_station(given: float | Mapping[str, float], names: Sequence[str]) -> np.ndarray:
    """Return gain errors in the order of the stations."""
    errors = given if isinstance(given, Mapping) else {OTHERS: given}
    for name, value in errors.items():
        if name not in (*names, OTHERS):
            raise ValueError(f"posterior: gain_error of {name!r}, which did not observe.{suggestion(name, names)}")
        if not (np.isfinite(value) and value > 0):
            raise ValueError(
                f"posterior: gain_error={value!r} must be positive. With perfect gains use products='vis'."
            )
    missing = [name for name in names if name not in errors and OTHERS not in errors]
    if missing:
        raise ValueError(f"posterior: gain_error of {', '.join(missing)} is missing. Name them, or {OTHERS!r}.")
    return np.array([float(errors.get(name, errors.get(OTHERS, 0.0))) for name in names])


def _same_pixels(start: Image, about: Image, centred: bool) -> np.ndarray:
    if start.shape != about.shape or not np.isclose(start.pixel_rad, about.pixel_rad):
        raise ValueError(
            f"posterior: start has {start.shape} pixels of {start.pixel_rad / UAS:.4g} µas, the posterior "
            f"{about.shape} of {about.pixel_rad / UAS:.4g} µas. Make it with the same npix and fov_uas."
        )
    values = start.values["I"]
    if not centred:
        return values
    away = [np.sum(values * at) / (values.sum() * start.pixel_rad) for at in (start.y[:, None], start.x)]
    signs = np.sign([start.y[1] - start.y[0], start.x[1] - start.x[0]])
    return np.roll(values, [-round(one) for one in away * signs], (0, 1))


def _data(obs: Observation, grid: Grid, flux: float, products: str, gain_errors: np.ndarray) -> _Data:
    seen = compress(obs, grid, flux)
    if products == "vis":
        return _Data(seen.visible, 0, visibility_residual, {"target": seen.target}, seen.rest, seen.n)
    arrays, n = polar_arrays(obs, gain_errors)
    centred, more = centroid_rows(grid, flux, CENTRED * obs.nominal_resolution), len(obs.stations)
    visible = np.asarray(block_diag(np.concatenate([seen.visible, centred]), np.eye(more)))
    return _Data(visible, more, polar_residual, {"basis": seen.basis, **arrays}, 0.0, n)


def _field(y: jax.Array, h: jax.Array, arrays: dict[str, Any]) -> jax.Array:
    n = arrays["r2"].size + 1
    return jnp.concatenate([picture(y[:n], h, arrays).ravel(), y[n:]])


def _explore(model: LatentModel, y0: np.ndarray, seed: int, told: Callable, kept: KeptModes | None) -> HyperPoints:
    quiet = (np.zeros(model.n_residuals), np.zeros(model.n))
    best = -np.inf

    def solve(h: np.ndarray, y0: np.ndarray) -> Any:
        nonlocal best
        keep = None if kept is None else kept.next_round()
        zeros = (np.repeat(zero[None], len(h), 0) for zero in quiet)
        found = modes(model, h, y0, *zeros, least=best - HOPELESS, keep=keep)
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


def _draw(model: LatentModel, points: HyperPoints, draws: int, seed: int, kept: KeptModes | None) -> tuple:
    """Return images, unit Gaussians and hyper-parameters of the draws whose fits have converged."""
    at = points.pick(draws, seed)
    keep = None if kept is None else kept.next_round(f"draws-{draws}")
    found = draw_refits(model, points.h[at], points.y[at], seed, keep)
    reached, lost = found.reached, int((~found.reached).sum())
    if lost > 0.1 * draws:
        raise RuntimeError(
            f"posterior: {lost} of {draws} fits of perturbed data did not converge, so the others would "
            "not be a fair sample. Errors that are far too small are the usual reason: see add_fractional_noise."
        )
    y, h = np.asarray(found.y)[reached], points.h[at][reached]
    shape = model.args["r2"].shape
    fields = jax.vmap(lambda one, hyper: model.field(one, hyper, model.args)[: shape[0] * shape[1]])(y, h)
    return np.asarray(fields).reshape(-1, *shape), y, h


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
        note=_few(points),
        extra={
            "independent": True,
            "hyper_effective": points.effective,
            "hyper_points": len(points.h),
            "doubts": _doubts(float(chi2.mean()), h.mean(0)),
        },
    )


def _doubts(chi2: float, h: np.ndarray) -> list[str]:
    """Return what speaks against the draws."""
    told = []
    if not FITS[0] <= chi2 <= FITS[1]:
        size = "large" if chi2 < 1 else "small"
        told.append(
            f"χ² of the draws is {chi2:.2f} per measurement, not about 1: errors are too {size}, or the data are not "
            f"calibrated as assumed, and the spread of the images is too {size} as well."
        )
    odd = [name for name, one in zip(HYPER, h, strict=True) if not abs(one) <= ODD]
    if odd:
        told.append(
            f"Hyper-parameters ({', '.join(odd)}) are far from what compact sources have: errors of the data or gains "
            "that are too small are the usual reason, or a search that began in the wrong place (start)."
        )
    return told


def _few(points: HyperPoints) -> str:
    if points.effective >= FEW:
        return ""
    return f"Only {points.effective:.1f} effective hyper-parameters: the spread hardly contains their uncertainty."
