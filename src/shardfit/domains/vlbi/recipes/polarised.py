"""Polarised images: a second stage that adds Q, U or V to a Stokes I image.

Data are calibrated to the Stokes I image first, so that polarised visibilities have its position and phases. Gains are
taken as equal for both hands; leakage and the offset between hands must be taken out before.
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
from shardfit.domains.vlbi.observation import Observation
from shardfit.domains.vlbi.problem import REGULARISERS, image_maps, imaging_problem
from shardfit.domains.vlbi.recipes.fitting import data_chi2, fit_again, fit_settings, options_of
from shardfit.domains.vlbi.recipes.imaging import ImagingResult
from shardfit.domains.vlbi.recipes.measure import chi2
from shardfit.domains.vlbi.recipes.preparation import prepare
from shardfit.domains.vlbi.recipes.quality import HIGH, chi2_doubts, step_doubts, with_doubts
from shardfit.domains.vlbi.selfcal import self_calibrate
from shardfit.domains.vlbi.tables import ALIGNED, CLOSURES, data_set
from shardfit.run_options import RunOptions

# weights by letter of the mode; chosen on simulated rings, see docs/vlbi.md
DATA = {"I": {"vis": 10.0}, "P": {"pvis": 10.0, "m": 10.0}, "V": {"vvis": 10.0}}
REGULARISATION = {
    "I": {"simple": 1.0, "tv": 1.0, "flux": 1e3},
    "P": {"hw": 1.0, "ptv": 1.0},
    "V": {"l1v": 1.0, "vtv": 1.0},
}
STOKES = {"I": "", "P": "QU", "V": "V"}  # what each letter of a mode needs beside I
FRACTIONS = (1e-3, 0.99)  # limits of a start: the solver's variable is infinite at 0 and 1


@dataclass(frozen=True)
class PolarisedOptions:
    """Options of `polarimetric_image`.

    mode: 'P' fits linear polarisation with Stokes I fixed, 'IP' both, 'V', 'IV' circular, 'IPV' all. data,
    regularisers: weights by name, None for those of the mode. calibrate: calibrate to the Stokes I image first, unless
    the data are already. systematic, average, zero_baseline: of `prepare`, for an Observation. restarts: further fits,
    each from the last image blurred by `blur` times the nominal resolution. maxiter, stop: of every fit; epsilon_tv,
    operator: see `ImagingOptions`.
    """

    mode: str = "P"
    data: Mapping[str, float] | None = None
    regularisers: Mapping[str, float] | None = None
    calibrate: bool = True
    systematic: float = 0.0
    average: bool | float = False
    zero_baseline: float | str = 0.0
    restarts: int = 3
    blur: float = 1.0
    maxiter: int = 200
    stop: float = 1e-6
    epsilon_tv: float = 1e-10
    operator: Any = "auto"

    def __post_init__(self):
        mode = transforms.ALIASES.get(self.mode, self.mode)
        if mode not in transforms.REQUIRED:
            raise ValueError(f"polarimetric_image: mode={self.mode!r} must be one of {', '.join(transforms.REQUIRED)}.")
        object.__setattr__(self, "mode", mode)
        for name, known in (("data", DATA), ("regularisers", REGULARISATION)):
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
    product; data: as fitted, calibrated; options, problem: as used; doubts: reasons not to believe it, in words: the
    fractions are as good as Stokes I is.
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
    """Add polarisation to a Stokes I image.

    obs: what `image` returned, which has image and calibrated data; or an observation, which is prepared and calibrated
    to stokes_i, an image of it. An image with Q and U is the start; without, it is small and random by seed. options:
    fields of `PolarisedOptions`; the others as for `image`.

    Example: `polarimetric_image(image(obs), regularisers={"hw": 1, "ptv": 10}).mean_fraction`.
    """
    chosen = options_of(PolarisedOptions, "polarimetric_image", options)
    how = run or RunOptions()
    settings = fit_settings(how, chosen, "polarisation/")
    ready, total = _ready(obs, stokes_i, chosen)
    measured = data_set(ready, chosen.data or {})
    beam = ready.nominal_resolution
    prior = {"I": total.values["I"]}

    def start(image: Image) -> dict[str, np.ndarray]:
        return _start(image, chosen, how.seed) | ({} if "I" in chosen.mode else prior)

    def blurred(problem: Problem, result: Result) -> dict[str, np.ndarray]:
        return start(_image(problem, result, total).blur(chosen.blur * beam))

    problem = imaging_problem(
        measured,
        total.grid,
        prior,
        init=start(total),
        data_weights=chosen.data or {},
        reg_weights=chosen.regularisers or {},
        flux=total.flux,
        beam=beam,
        mode=chosen.mode,
        epsilon_tv=chosen.epsilon_tv,
        operator=chosen.operator,
        name=f"{total.source or 'image'}, polarisation",
    )
    problem, result = fit_again(problem, blurred, chosen.restarts, settings)
    found, chi2_of = _image(problem, result, total), data_chi2(result)
    doubts = (*chi2_doubts(chi2_of, measured), *_total_doubts(ready, found, chi2_of), *step_doubts(result))
    if isinstance(obs, ImagingResult) and obs.doubts:
        doubts = (*doubts, f"it rests on a Stokes I image that is doubtful: {obs.doubts[0]}")
    return PolarisedResult(found, with_doubts(result, doubts), chi2_of, ready, chosen, problem, doubts)


def _total_doubts(ready: Observation, image: Image, known: Mapping[str, float]) -> list[str]:
    """Return a doubt where Stokes I of the image does not explain the calibrated data: fractions are relative to it."""
    if "vis" in known:
        return []
    value = chi2(ready, image, ("vis",), any_frequency=True)["vis"]
    if value <= HIGH:
        return []
    return [
        f"Stokes I explains the calibrated visibilities only to χ² {value:.3g}: polarised fractions of faint parts may "
        "be wrong. Make a better image, or fit both together (mode='IP')."
    ]


def _ready(obs: Observation | ImagingResult, stokes_i: Image | None, options: PolarisedOptions) -> tuple:
    """Return data with the Stokes parameters of the mode, and the Stokes I image."""
    if isinstance(obs, ImagingResult):
        if stokes_i is not None:
            raise TypeError("polarimetric_image: the result of `image` has its own image. Give one of the two.")
        require_stokes(obs.data, options.mode)
        if obs.calibrated is not None:
            return obs.calibrated, obs.image
        ready, total = obs.data, obs.image
    else:
        if stokes_i is None:
            raise TypeError("polarimetric_image: an observation needs stokes_i, an image of it. Make one with `image`.")
        require_stokes(obs, options.mode)
        how = {name: getattr(options, name) for name in ("systematic", "average", "zero_baseline")}
        ready, total = prepare(obs, stokes_i.flux, **how), stokes_i
    return (self_calibrate(ready, total).data if options.calibrate else ready), total


def require_stokes(obs: Observation, mode: str = "P") -> None:
    """Raise if an observation lacks Stokes parameters that a mode needs."""
    needed = [name for letter in mode for name in STOKES[letter]]
    missing = [name for name in needed if name not in obs.vis]
    if missing:
        raise ValueError(
            f"polarimetric_image: mode {mode!r} needs Stokes {', '.join(needed)}, but these data have "
            f"{', '.join(obs.vis)} only. Use a file with all four correlations; many public files carry Stokes I alone."
        )


def _start(image: Image, options: PolarisedOptions, seed: int) -> dict[str, np.ndarray]:
    """Return the maps I, m, phi, v of an image; what is solved and missing is small and random."""
    values, total = image.values, image.values["I"]
    guess = {k: a.reshape(total.shape) for k, a in transforms.random_polarisation(total.size, seed).items()}
    maps = {"I": total}
    if "Q" in values and "U" in values:
        fraction = _share(np.abs(_linear(image)), total)
        maps |= {"m": np.clip(fraction, *FRACTIONS), "phi": np.angle(_linear(image))}
    elif "P" in options.mode:
        maps |= {"m": guess["m"], "phi": guess["phi"]}
    if "V" in values:
        maps["v"] = np.clip(_share(values["V"], total), -0.99, 0.99)
    elif "V" in options.mode:
        maps["v"] = guess["v"]
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
