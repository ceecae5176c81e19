"""Imaging from an observation to an image: prepare the data, fit, blur, fit again.

The schedule is that of the first round of the published M87 images: closure quantities and loosely weighted
amplitudes, maximum entropy with total variation, and restarts from the image blurred to the nominal resolution, which
carry it out of poor minima.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any

import jax
import numpy as np

from shardfit.core.errors import suggestion
from shardfit.core.precision import problem_scope
from shardfit.core.problem import Problem
from shardfit.core.result import Result
from shardfit.domains.vlbi.constants import FWHM_TO_SIGMA, UAS
from shardfit.domains.vlbi.forward import as_operator
from shardfit.domains.vlbi.grid import Grid
from shardfit.domains.vlbi.image import Image, blank, prior, ring
from shardfit.domains.vlbi.observation import Observation
from shardfit.domains.vlbi.operations import add_fractional_noise, average_scans, rescale_zero_baselines
from shardfit.domains.vlbi.packing import ALIGNED, CLOSURES, pack
from shardfit.domains.vlbi.problem import REGULARISERS, image_maps, imaging_problem
from shardfit.domains.vlbi.products import DataModel
from shardfit.domains.vlbi.simulate import EHT2017, Gains, simulate
from shardfit.domains.vlbi.tables import DataSet, data_set
from shardfit.fit import fit
from shardfit.solve.registry import CLASSES

ZERO_BASELINE = 0.1e9  # wavelengths: shorter baselines see flux that is resolved out on all others
SHORT_BASELINE = 2e9  # wavelengths: up to here a compact source is hardly resolved
COMPACT_FWHM = 60 * UAS  # size assumed when its flux is read off the short baselines
_ERRORS = {"AA": 0.10, "AP": 0.11, "AZ": 0.07, "LM": 0.22, "PV": 0.10, "SM": 0.15, "JC": 0.14, "SP": 0.07}
# fractional amplitude tolerance of the 2017 stations; the LMT lost amplitude beyond its error budget
EHT2017_TOLERANCE: Mapping[str, float] = MappingProxyType(
    {name: 0.25 * (np.sqrt(1 + e) - 1) + (0.15 if name == "LM" else 0.0) for name, e in _ERRORS.items()}
)


@dataclass(frozen=True)
class Options:
    """Options of `image`.

    npix: pixels a side; fov_uas: field of view, µas; flux: Jy of the compact source, None to estimate it
    (`compact_flux`); prior_fwhm_uas: size of the Gaussian that is prior and start. data, regularisers: weights by name.
    systematic: fraction of |V| added to all errors; tolerance: fraction added to amplitude errors alone, one number or
    by station (stations not named get none). cp_uv_min: wavelengths, shorter baselines form no triangles; count:
    closure sets 'min' or 'max'. average: over scans first. restarts: further fits, each from the last image blurred by
    `blur` times the nominal resolution. maxiter, stop: iterations and relative tolerance of every fit; epsilon_tv:
    rounds off the total variation; operator: see `forward`.
    """

    npix: int = 64
    fov_uas: float = 128.0
    flux: float | None = None
    prior_fwhm_uas: float = 40.0
    data: Mapping[str, float] = field(default_factory=lambda: {"amp": 0.2, "cphase": 1.0, "logcamp": 1.0})
    regularisers: Mapping[str, float] = field(
        default_factory=lambda: {"simple": 100.0, "tv": 1.0, "tv2": 1.0, "flux": 1e4}
    )
    systematic: float = 0.02
    tolerance: float | Mapping[str, float] = field(default_factory=lambda: EHT2017_TOLERANCE)
    cp_uv_min: float = ZERO_BASELINE
    count: str = "min"
    average: bool = True
    restarts: int = 3
    blur: float = 1.0
    maxiter: int = 100
    stop: float = 1e-6
    epsilon_tv: float = 1e-10
    operator: Any = "auto"

    def __post_init__(self):
        for name, least in (("npix", 2), ("restarts", 0), ("maxiter", 1)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
                raise ValueError(f"image: {name}={value!r} must be a whole number, at least {least}.")
        for name in ("fov_uas", "prior_fwhm_uas", "stop"):
            _positive(name, getattr(self, name))
        if self.flux is not None:
            _positive("flux", self.flux)
        if not (np.isfinite(self.blur) and self.blur >= 0):
            raise ValueError(f"image: blur={self.blur!r} must not be negative.")
        for what, known in (("data", ALIGNED[:3] + CLOSURES), ("regularisers", REGULARISERS)):
            given = getattr(self, what)
            if not given:
                raise ValueError(f"image: {what} is empty. Give at least one weight by name.")
            for name, weight in given.items():
                if name not in known:
                    raise ValueError(f"image: {what} has an unknown name {name!r}.{suggestion(name, known)}")
                if not np.isfinite(weight):
                    raise ValueError(f"image: {what}[{name!r}]={weight!r} must be a finite weight.")


@dataclass(frozen=True, eq=False)
class Round:
    """One of the fits.

    value: objective at its end; history: (evaluations,) objective on the way; steps; seconds; converged: whether a
    tolerance was met; message: how it ended; chi2: χ² per measurement by product.
    """

    value: float
    history: np.ndarray
    steps: int
    seconds: float
    converged: bool
    message: str
    chi2: Mapping[str, float]


@dataclass(frozen=True, eq=False)
class ImagingResult:
    """An image and how it was reached.

    image: the last round's; result: Result of the last round; chi2: χ² per measurement by product, errors as in the
    fit; rounds: first fit and restarts; data: the prepared observation; flux: Jy, as fitted to; options: as used.
    """

    image: Image
    result: Result
    chi2: Mapping[str, float]
    rounds: tuple[Round, ...]
    data: Observation
    flux: float
    options: Options


def image(
    obs: Observation,
    *,
    solver: Any = "lbfgs",
    mesh: Any = None,
    seed: int = 0,
    progress: bool | None = None,
    **options: Any,
) -> ImagingResult:
    """Make a Stokes I image of an observation.

    options: fields of `Options`. solver: as for `fit`; None and names such as 'lbfgsb' take maxiter and stop from the
    options, a solver object has its own. mesh: devices to split the data over. seed: of the parity check; the
    image does not depend on it. progress: None shows it on a terminal.

    Example: `image(read_uvfits("m87.uvfits"), flux=0.6).image`.
    """
    chosen = _options(options)
    flux = compact_flux(obs) if chosen.flux is None else float(chosen.flux)
    ready = prepare(obs, flux, systematic=chosen.systematic, average=chosen.average)
    data = measurements(ready, chosen)
    start = _prior(ready, flux, chosen)
    rounds, current = [], start
    for k in range(chosen.restarts + 1):
        if k:
            current = current.blur(chosen.blur * ready.nominal_resolution)
        problem = _problem(ready, data, start, current, flux, chosen)
        result = fit(
            problem,
            solver,
            mesh=mesh,
            seed=seed,
            certify=k == 0,
            progress=progress,
            **_solver_options(solver, chosen),
        )
        with problem_scope(problem.precision):
            current = start.replace(values={"I": image_maps(problem, result.params)["I"]})
        rounds.append(_round(result, chosen))
    return ImagingResult(current, result, rounds[-1].chi2, tuple(rounds), ready, flux, chosen)


def prepare(obs: Observation, flux: float, *, systematic: float = 0.02, average: bool = True) -> Observation:
    """Return the observation ready for imaging.

    Averages over scans, scales baselines shorter than 0.1e9 wavelengths to the compact flux (Jy), drops stations
    without data, orders the others by signal-to-noise ratio, and adds the systematic fraction of |V| to all errors.
    """
    ready = average_scans(obs) if average else obs
    ready = rescale_zero_baselines(ready.drop_unused_stations(), flux, uv_max=ZERO_BASELINE)
    return add_fractional_noise(ready.order_by_snr(), systematic)


def compact_flux(obs: Observation) -> float:
    """Estimate the flux of the compact source, Jy; a rough start where the literature gives nothing better.

    Median scan average on baselines of 0.1e9 to 2e9 wavelengths, divided by the visibility of a Gaussian of 60 µas. It
    is at most the median on shorter baselines; where there are none between, it is that median, or else the largest
    amplitude. A station that lost amplitude makes it too low: on M87 in 2017 it gives 0.3 to 0.6 Jy.
    """
    averaged = average_scans(obs)
    distance, amplitude = averaged.uv_distance, np.abs(averaged.vis["I"])
    zero = distance < ZERO_BASELINE
    short = ~zero & (distance < SHORT_BASELINE)
    total = float(np.median(amplitude[zero])) if zero.any() else np.inf
    if not short.any():
        return total if zero.any() else float(amplitude.max())
    resolved = np.exp(-2 * (np.pi * COMPACT_FWHM * FWHM_TO_SIGMA * distance[short]) ** 2)
    return min(total, float(np.median(amplitude[short] / resolved)))


def measurements(ready: Observation, options: Options) -> DataSet:
    """Return the data products of a prepared observation that these options ask for."""
    return data_set(ready, options.data, count=options.count, cp_uv_min=options.cp_uv_min, systematic=options.tolerance)


def chi2(
    obs: Observation,
    model: Image,
    products: Iterable[str] = ("vis", "amp", "cphase", "logcamp"),
    **settings: Any,
) -> dict[str, float]:
    """Return χ² per measurement of an image, by data product; the observation is taken as it is.

    products: 'vis', 'amp', 'logamp', 'bs', 'cphase', 'camp', 'logcamp', 'cphase_cov', 'logcamp_cov'; settings: of
    `tables.data_set`, such as count, cp_uv_min, systematic, debias.

    Example: `chi2(prepare(obs, 0.6), image, ("cphase", "logcamp"))`.
    """
    products = tuple(products)
    for name in products:
        if name not in ALIGNED[:3] + CLOSURES:
            raise ValueError(f"chi2: unknown product {name!r}.{suggestion(name, ALIGNED[:3] + CLOSURES)}")
    data = data_set(obs, products, **settings)
    grid = _grid(model)
    kind = as_operator("separable")
    with problem_scope("float64"):
        rows = pack(data, grid, kind)
        fixed = {"kept": {}, "index": None, "log_ratio": 0.0}
        residuals = jax.jit(DataModel(grid, kind, products))({"I": model.values["I"].ravel()}, rows, fixed)
        return {name: float(0.5 * np.sum(np.abs(np.asarray(r)) ** 2)) for name, r in residuals.items()}


def cross_correlation(one: Image, other: Image) -> float:
    """Return the normalised cross-correlation of two images of one shape at the best shift, 1 for equal images.

    The comparison ignores flux and position, which closure quantities leave free.
    """
    if one.shape != other.shape:
        raise ValueError(f"cross_correlation: images of {one.shape} and {other.shape} pixels. Regrid one of them.")
    a, b = (i.values["I"] - i.values["I"].mean() for i in (one, other))
    size = np.sqrt(np.sum(a**2) * np.sum(b**2))
    if not size > 0:
        raise ValueError("cross_correlation: an image is constant.")
    return float(np.fft.ifft2(np.fft.fft2(a) * np.fft.fft2(b).conj()).real.max() / size)


def simulated_ring(npix: int = 64, *, seed: int = 0) -> tuple[Observation, Image]:
    """Return data of a lopsided ring like M87 as the 2017 array would see it, and the ring itself.

    0.6 Jy, diameter 42 µas, field 128 µas, brightest to the south; one minute every ten over a night, thermal noise,
    gain errors of 5 %, random phases. The same seed gives the same data.
    """
    about = {"ra_hours": 12.513729, "dec_deg": 12.391123, "freq_hz": 227.1e9, "mjd": 57854, "source": "RING"}
    empty = blank(npix, 128 * UAS, **about)
    truth = ring(empty, 0.6, 21 * UAS, 12 * UAS, asymmetry=0.6, position_angle_rad=np.deg2rad(160))
    obs = simulate(
        truth,
        EHT2017,
        start_h=0.0,
        stop_h=12.0,
        cadence_s=600.0,
        tint_s=60.0,
        bandwidth_hz=2e9,
        seed=seed,
        gains=Gains(offset=0.03, scatter=0.04, random_phase=True),
    )
    return obs, truth


def _options(given: Mapping[str, Any]) -> Options:
    known = {f.name for f in fields(Options)}
    for name in given:
        if name not in known:
            raise TypeError(f"image has no option {name!r}.{suggestion(name, known | {'solver', 'mesh', 'seed'})}")
    return Options(**given)


def _positive(name: str, value: Any) -> None:
    if not (np.isfinite(value) and value > 0):
        raise ValueError(f"image: {name}={value!r} must be positive.")


def _grid(model: Image) -> Grid:
    ny, nx = model.shape
    return Grid(nx, ny, model.pixel_rad, model.pulse)


def _prior(ready: Observation, flux: float, options: Options) -> Image:
    about = {name: getattr(ready, name) for name in ("ra_hours", "dec_deg", "freq_hz", "mjd", "source")}
    empty = blank(options.npix, options.fov_uas * UAS, **about)
    return prior(empty, flux, options.prior_fwhm_uas * UAS)


def _problem(ready: Observation, data: DataSet, start: Image, current: Image, flux: float, options: Options) -> Problem:
    return imaging_problem(
        data,
        _grid(start),
        start.values["I"],
        init=current.values["I"],
        data_weights=options.data,
        reg_weights=options.regularisers,
        flux=flux,
        beam=ready.nominal_resolution,
        operator=options.operator,
        epsilon_tv=options.epsilon_tv,
        name=ready.source or "image",
    )


def _solver_options(solver: Any, options: Options) -> dict[str, Any]:
    if not (solver is None or isinstance(solver, str)):
        return {}
    chosen = {"maxiter": options.maxiter, "gtol": options.stop}
    if solver is not None and solver not in CLASSES:
        return chosen  # for first-order methods a small change of the value is no sign of convergence
    chosen["ftol"] = options.stop
    many = solver is None or hasattr(CLASSES[solver], "memory")
    # a longer memory than usual pays: an evaluation costs more than the products with the stored pairs
    return {**chosen, "memory": 50} if many else chosen


def _round(result: Result, options: Options) -> Round:
    found = {name: result.parts[f"data.{name}"] for name in options.data}
    history = np.asarray(result.history.get("value", ()), float)
    return Round(
        value=result.value,
        history=history,
        steps=result.steps,
        seconds=result.timings["total"],
        converged=result.success,
        message=result.status.message,
        chi2=MappingProxyType(found),
    )
