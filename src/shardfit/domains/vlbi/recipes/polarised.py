"""Polarised images: Stokes I and polarisation fitted together, or polarisation added to a Stokes I image that stays.

Fractions are relative to Stokes I, so an error of I is one of theirs. Calibration to an image that is too smooth puts
its errors into the data, where no later fit finds them. The joint fit needs no calibration: closures, and P/I and V/I
of each visibility, know nothing of station gains that are the same for both hands; amplitudes are given a tolerance.
Leakage and the offset between hands must be taken out before.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from shardfit.core.problem import Problem
from shardfit.core.result import Result
from shardfit.domains.vlbi import transforms
from shardfit.domains.vlbi.checks import check_weights
from shardfit.domains.vlbi.images import Image
from shardfit.domains.vlbi.imaging_options import PRODUCTS
from shardfit.domains.vlbi.observation import Observation
from shardfit.domains.vlbi.problem import REGULARISERS, image_maps, imaging_problem, with_start
from shardfit.domains.vlbi.recipes.fitting import data_chi2, fit_again, options_of, series_of
from shardfit.domains.vlbi.recipes.imaging import ImagingResult
from shardfit.domains.vlbi.recipes.measure import chi2
from shardfit.domains.vlbi.recipes.preparation import prepare
from shardfit.domains.vlbi.recipes.quality import HIGH, chi2_doubts, with_doubts
from shardfit.domains.vlbi.selfcal import self_calibrate
from shardfit.domains.vlbi.tables import ALIGNED, CLOSURES, data_set
from shardfit.run_options import RunOptions

# weights by letter of the mode, where I is fitted and where it stays; chosen on simulated sources, see docs/vlbi.md
JOINT = {"I": {"amp": 10.0, "cphase": 10.0, "logcamp": 10.0}, "P": {"m": 10.0}, "V": {"v": 10.0}}
ADDED = {"P": {"pvis": 10.0, "m": 10.0}, "V": {"vvis": 10.0}}
REGULARISATION = {
    "I": {"simple": 1.0, "tv": 1.0, "flux": 1e3},
    "P": {"hw": 1.0, "ptv": 1.0},
    "V": {"l1v": 1.0, "vtv": 1.0},
}
STOKES = {"I": "", "P": "QU", "V": "V"}  # what each letter of a mode needs beside I
WITH_GAINS = ("vis", "pvis", "vvis")  # products that need calibrated data
DARKEST = 1e-12  # of the peak: an image to begin with is positive
PATIENCE = 60  # evaluations over which progress is looked at
TOLERANCE = 0.1  # of amplitudes, where nothing is known of their calibration


@dataclass(frozen=True)
class PolarisedOptions:
    """Options of `polarimetric_image`.

    mode
        'IP' fits Stokes I and linear polarisation together, 'IPV' circular too, 'IV' without linear; 'P' and 'V' add to
        a Stokes I that stays.
    data, regularisers
        weights by name, None for those of the mode.
    tolerance, cp_uv_min
        as in `ImagingOptions`; None: those of the imaging run, else, and for a tolerance of zero, 0.1 and 0.
    calibrate
        calibrate to the Stokes I image first, unless the data are, where `data` names vis, pvis or vvis: other products
        do not need it.
    systematic, average, zero_baseline
        of `prepare`, for an Observation.
    restarts, blur
        further fits, each from the last image blurred by `blur` times the nominal resolution.
    maxiter, stop
        steps of every fit; it ends when 60 evaluations lower the objective by no more than this share.
    epsilon_tv, operator
        see `ImagingOptions`.
    """

    mode: str = "IP"
    data: Mapping[str, float] | None = None
    regularisers: Mapping[str, float] | None = None
    tolerance: float | Mapping[str, float] | None = None
    cp_uv_min: float | None = None
    calibrate: bool = True
    systematic: float = 0.0
    average: bool | float = False
    zero_baseline: float | str = 0.0
    restarts: int = 1
    blur: float = 1.0
    maxiter: int = 2000
    stop: float = 3e-4
    epsilon_tv: float = 1e-10
    operator: Any = "auto"

    def __post_init__(self):
        mode = polarised_mode(self.mode)
        object.__setattr__(self, "mode", mode)
        for name, known in (("data", JOINT if "I" in mode else ADDED), ("regularisers", REGULARISATION)):
            if getattr(self, name) is None:
                object.__setattr__(self, name, {k: w for letter in mode for k, w in known[letter].items()})
        check_weights("data", self.data or {}, ALIGNED + CLOSURES, least=0.0)
        check_weights("regularisers", self.regularisers or {}, REGULARISERS)
        if not (self.restarts >= 0 and self.maxiter >= 1 and self.blur >= 0):
            raise ValueError("polarimetric_image: restarts and blur must not be negative, maxiter at least 1.")


@dataclass(frozen=True, eq=False)
class PolarisedResult:
    """A polarised image.

    image: with planes I, Q, U and, where fitted or given, V; result: of the last fit; chi2: χ² per measurement by
    product; data: as fitted; options, problem: as used, the objective without the constant of `imaging_problem`;
    doubts: reasons not to believe it, in words.
    """

    image: Image
    result: Result
    chi2: Mapping[str, float]
    data: Observation
    options: PolarisedOptions
    problem: Problem
    doubts: tuple[str, ...] = ()

    @property
    def fraction(self) -> np.ndarray:
        """Linear polarised fraction of every pixel, (ny, nx); 0 where there is no flux."""
        return _share(np.abs(_linear(self.image)), self.image.values["I"])

    @property
    def evpa(self) -> np.ndarray:
        """Angle of the electric vector of every pixel, (ny, nx) rad from north to east, within ±π/2."""
        return 0.5 * np.angle(_linear(self.image))

    @property
    def mean_fraction(self) -> float:
        """Σ|P|/ΣI, the linear fraction as resolved by the image."""
        return float(np.abs(_linear(self.image)).sum() / self.image.flux)

    @property
    def net_fraction(self) -> float:
        """|ΣP|/ΣI, the linear fraction of the source as a whole."""
        return float(abs(_linear(self.image).sum()) / self.image.flux)


def polarimetric_image(
    obs: Observation | ImagingResult,
    stokes_i: Image | None = None,
    *,
    run: RunOptions | None = None,
    **options: Any,
) -> PolarisedResult:
    """Make a polarised image, beginning with a Stokes I image.

    obs: what `image` returned, which has image and data; or an observation, which is prepared, and stokes_i, an image
    of it. The fit begins with this image, its Q, U and V if it has them, and without polarisation if not; blurred to
    the nominal resolution it is the prior of I. options: fields of `PolarisedOptions`; the others as for `image`.

    Example: `polarimetric_image(image(obs), regularisers={"hw": 1, "ptv": 10}).mean_fraction`.
    """
    chosen = options_of(PolarisedOptions, "polarimetric_image", options)
    series = series_of(run or RunOptions(), chosen, "polarisation/", patience=PATIENCE)
    ready, total, about = _ready(obs, stokes_i, chosen)
    weights = chosen.data or {}
    measured = data_set(ready, weights, **about)
    beam = ready.nominal_resolution
    prior = {"I": total.values["I"]}
    if "I" in chosen.mode:
        prior["I"] = transforms.lifted(total.blur(beam).values["I"], total.flux / total.values["I"].size)

    def blurred(problem: Problem, result: Result) -> Problem:
        maps = _maps(_image(problem, result, total).blur(chosen.blur * beam))
        return with_start(problem, maps if "I" in chosen.mode else maps | prior)

    problem = imaging_problem(
        measured,
        total.grid,
        prior,
        init=_maps(total) | ({} if "I" in chosen.mode else prior),
        data_weights=weights,
        reg_weights=chosen.regularisers or {},
        flux=total.flux,
        beam=beam,
        mode=chosen.mode,
        epsilon_tv=chosen.epsilon_tv,
        operator=chosen.operator,
        name=f"{total.source or 'image'}, polarisation",
    )
    # without the constant, by which the objective of a good fit is about zero: progress is told relative to it
    problem = problem.replace(objective=problem.objective.with_weights(offset=dict.fromkeys(weights, 0.0)))
    problem, result, steps = fit_again(series, problem, blurred, chosen.restarts)
    found, chi2_of = _image(problem, result, total), data_chi2(result)
    told = chi2_doubts(chi2_of, measured, tolerance=about["systematic"])
    doubts = (*told, *_total_doubts(ready, found, chi2_of), *steps)
    if "I" not in chosen.mode and isinstance(obs, ImagingResult) and obs.doubts:
        doubts = (*doubts, f"it relies on a doubtful Stokes I image: {obs.doubts[0]}")
    return PolarisedResult(found, with_doubts(result, doubts), chi2_of, ready, chosen, problem, doubts)


def _total_doubts(ready: Observation, image: Image, known: Mapping[str, float]) -> list[str]:
    """Return a doubt where Stokes I of the image does not explain the calibrated data: fractions are relative to it."""
    if any(name in known for name in PRODUCTS):
        return []
    value = chi2(ready, image, ("vis",), any_frequency=True)["vis"]
    if value <= HIGH:
        return []
    return [
        f"Stokes I explains the calibrated visibilities only to χ² {value:.3g}: polarised fractions of faint parts may "
        "be wrong. Make a better image, or fit both together (mode='IP')."
    ]


def _ready(
    obs: Observation | ImagingResult, stokes_i: Image | None, options: PolarisedOptions
) -> tuple[Observation, Image, dict[str, Any]]:
    """Return data with the Stokes parameters of the mode, the Stokes I image, and settings of the data products."""
    about = {"cp_uv_min": options.cp_uv_min or 0.0, "systematic": options.tolerance or TOLERANCE}
    calibrated = None
    if isinstance(obs, ImagingResult):
        if stokes_i is not None:
            raise TypeError("polarimetric_image: the result of `image` has its own image. Give one of the two.")
        require_stokes(obs.data, options.mode)
        ready, total, calibrated = obs.data, obs.image, obs.calibrated
        about["count"] = obs.options.count
        if options.cp_uv_min is None:
            about["cp_uv_min"] = obs.options.cp_uv_min
        if options.tolerance is None:
            about["systematic"] = obs.options.schedule()[-1].tolerance or TOLERANCE
    else:
        if stokes_i is None:
            raise TypeError("polarimetric_image: an observation needs stokes_i, an image of it. Make one with `image`.")
        require_stokes(obs, options.mode)
        how = {name: getattr(options, name) for name in ("systematic", "average", "zero_baseline")}
        ready, total = prepare(obs, stokes_i.flux, **how), stokes_i
    if calibrated is not None:
        return calibrated, total, about
    needed = options.calibrate and any(name in WITH_GAINS for name in options.data or {})
    return (self_calibrate(ready, total).data if needed else ready), total, about


def polarised_mode(mode: str) -> str:
    """Return the plain name of a mode with polarisation; raise for others."""
    plain = transforms.ALIASES.get(mode, mode)
    if plain not in transforms.POLARISED:
        raise ValueError(f"polarimetric_image: mode={mode!r} must be one of {', '.join(transforms.POLARISED)}.")
    return plain


def require_stokes(obs: Observation, mode: str = "P") -> None:
    """Raise if an observation lacks Stokes parameters that a mode needs."""
    needed = [name for letter in mode for name in STOKES[letter]]
    missing = [name for name in needed if name not in obs.vis]
    if missing:
        raise ValueError(
            f"polarimetric_image: mode {mode!r} needs Stokes {', '.join(needed)}, but these data have "
            f"{', '.join(obs.vis)} only. Use a file with all four correlations; many public files carry Stokes I alone."
        )


def _maps(image: Image) -> dict[str, np.ndarray]:
    """Return the maps I, m, phi, v of an image, as far as it has them; its dark pixels are a little brighter."""
    values = image.values
    maps = {"I": np.maximum(values["I"], DARKEST * values["I"].max())}
    if "Q" in values and "U" in values:
        maps |= {"m": np.minimum(_share(np.abs(_linear(image)), values["I"]), 1.0), "phi": np.angle(_linear(image))}
    if "V" in values:
        maps["v"] = np.clip(_share(values["V"], values["I"]), -1.0, 1.0)
    return maps


def _image(problem: Problem, result: Result, total: Image) -> Image:
    """Return the fitted Stokes planes."""
    maps = image_maps(problem, result.params)
    size = maps["I"] * maps["m"]
    planes = {"I": maps["I"], "Q": size * np.cos(maps["phi"]), "U": size * np.sin(maps["phi"])}
    return total.replace(values={**planes, "V": maps["I"] * maps["v"]} if np.any(maps["v"]) else planes)


def _linear(image: Image) -> np.ndarray:
    return image.values["Q"] + 1j * image.values["U"]


def _share(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    return np.divide(part, whole, out=np.zeros_like(whole), where=whole > 0)
