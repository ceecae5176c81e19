"""What an imaging run is asked to do, as plain data: options, rounds of fits, self-calibration between them."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from shardfit.core.errors import suggestion
from shardfit.domains.vlbi.constants import UAS
from shardfit.domains.vlbi.observation import Observation
from shardfit.domains.vlbi.problem import REGULARISERS
from shardfit.domains.vlbi.recipes.following import FACTORS
from shardfit.domains.vlbi.selfcal import METHODS
from shardfit.domains.vlbi.tables import ALIGNED, CLOSURES

FIELD = 8.0  # nominal resolutions across a field of which nothing is said
PRIOR = 0.3  # share of the field that the prior's FWHM is
OWN_WEIGHTS = {"regularisers", "rounds", "precal"}  # who gives them wants no others
PRODUCTS = (*ALIGNED[:4], *CLOSURES)


@dataclass(frozen=True)
class SelfCal:
    """Self-calibration to the image so far; see `solve_gains`. Stations that the data lack are passed over."""

    method: str = "both"
    stations: tuple[str, ...] | None = None
    tolerance: float | tuple[float, float] = (0.2, 0.2)

    def __post_init__(self):
        if self.method not in METHODS:
            raise ValueError(f"SelfCal: unknown method {self.method!r}.{suggestion(str(self.method), METHODS)}")


@dataclass(frozen=True)
class PreCal:
    """Calibration of some stations to a circular Gaussian, on baselines shorter than uv_max, before the first fit.

    flux: Jy; fwhm_uas: µas; uv_max: wavelengths. Times without such a baseline take the solution nearest in time.
    """

    stations: tuple[str, ...]
    flux: float
    fwhm_uas: float
    uv_max: float = 2e9
    tolerance: float | tuple[float, float] = 1.0


@dataclass(frozen=True)
class Round:
    """A first fit and its restarts, then self-calibration. None takes the value from the options.

    data: weights by product; tolerance: as in ImagingOptions; restarts; calibrate: applied one after the other, to the
    data before any self-calibration if `afresh`, else to those of this round.
    """

    data: Mapping[str, float] | None = None
    tolerance: float | Mapping[str, float] | None = None
    restarts: int | None = None
    calibrate: tuple[SelfCal, ...] = ()
    afresh: bool = True


@dataclass(frozen=True)
class ImagingOptions:
    """Options of `image`. By default data are taken as they are; presets change them as their array needs.

    npix
        pixels a side.
    fov_uas
        field of view, µas; None: 8 nominal resolutions.
    flux
        of the compact source, Jy; None to estimate it (`compact_flux`).
    prior_fwhm_uas
        size of the Gaussian that is prior and start, µas; None: 0.3 of the field.
    data, regularisers
        weights by name.
    average, zero_baseline, systematic, taper_uas
        see `prepare`; the final image is blurred by the taper.
    tolerance
        fraction added to amplitude errors alone, one number or by station (stations not named get none).
    cp_uv_min
        wavelengths: shorter baselines form no triangles.
    snr_cut
        least signal-to-noise ratio of a measurement; weaker ones are left out.
    count
        closure sets 'min' or 'max'.
    restarts, blur
        further fits, each from the last image blurred by `blur` times the nominal resolution.
    maxiter, stop
        iterations and relative tolerance of every fit; with weaker regularisers four times as many iterations.
    follow
        weaken the regularisers until χ² is 1, and take gain errors from the amplitudes (see `following`); None: in the
        preset 'default', unless regularisers, rounds or precal are given. A tolerance that is given is kept.
    epsilon_tv
        rounds off the total variation.
    operator
        see `forward`.
    transform
        variables of the image, 'power' or 'log'; None to choose, see `transforms`.
    precal, rounds
        calibration before the first fit; see `Round`.
    """

    npix: int = 64
    fov_uas: float | None = None
    flux: float | None = None
    prior_fwhm_uas: float | None = None
    data: Mapping[str, float] = field(default_factory=lambda: {"amp": 0.2, "cphase": 1.0, "logcamp": 1.0})
    regularisers: Mapping[str, float] = field(
        default_factory=lambda: {"simple": 100.0, "tv": 1.0, "tv2": 1.0, "flux": 1e4}
    )
    systematic: float = 0.0
    tolerance: float | Mapping[str, float] = 0.0
    cp_uv_min: float = 0.0
    snr_cut: float = 0.0
    zero_baseline: float | str = 0.0
    count: str = "min"
    average: bool | float = False
    restarts: int = 3
    blur: float = 1.0
    maxiter: int = 100
    stop: float = 1e-6
    follow: bool | None = None
    epsilon_tv: float = 1e-10
    operator: Any = "auto"
    transform: str | None = None
    taper_uas: float = 0.0
    precal: PreCal | None = None
    rounds: tuple[Round, ...] = (Round(),)

    def __post_init__(self):
        whole = [("npix", self.npix, 2), ("maxiter", self.maxiter, 1)]
        whole += [("restarts", one.restarts, 0) for one in self.schedule()]
        for name, value, least in whole:
            if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
                raise ValueError(f"image: {name}={value!r} must be a whole number, at least {least}.")
        for name in ("fov_uas", "prior_fwhm_uas", "stop", "flux"):
            if getattr(self, name) is not None:
                _require(name, getattr(self, name), positive=True)
        for name in ("blur", "taper_uas", "systematic", "cp_uv_min", "average", "snr_cut"):
            _require(name, getattr(self, name))
        if not self.rounds:
            raise ValueError("image: rounds is empty. Give at least one Round.")
        for one in self.schedule():
            _check_weights("data", one.data, PRODUCTS)
        _check_weights("regularisers", self.regularisers, REGULARISERS)

    def schedule(self) -> tuple[Any, ...]:
        """Return the rounds with everything filled in."""
        common = {name: getattr(self, name) for name in ("data", "tolerance", "restarts")}
        return tuple(
            replace(one, **{name: value for name, value in common.items() if getattr(one, name) is None})
            for one in self.rounds
        )

    def sized(self, *parts: Observation) -> "ImagingOptions":
        """Return the options with a field and a prior; where none are given the finest resolution decides."""
        finest = min(one.nominal_resolution for one in parts)
        fov = FIELD * finest / UAS if self.fov_uas is None else self.fov_uas
        fwhm = PRIOR * fov if self.prior_fwhm_uas is None else self.prior_fwhm_uas
        return replace(self, fov_uas=fov, prior_fwhm_uas=fwhm)

    @property
    def preparation(self) -> dict[str, Any]:
        """Keywords of `prepare`, but for the taper."""
        return {name: getattr(self, name) for name in ("systematic", "average", "zero_baseline")}

    @property
    def n_fits(self) -> int:
        """Number of fits of all rounds."""
        return sum(one.restarts + 1 for one in self.schedule())

    @property
    def most_fits(self) -> int:
        """The same with those of weaker regularisers, which wrong gains repeat."""
        return self.n_fits + (len(FACTORS) if self.follow else 0)


def options_from(preset: str, presets: Mapping[str, Mapping[str, Any]], given: Mapping[str, Any]) -> ImagingOptions:
    """Return the options of a preset, changed by those given."""
    if preset not in presets:
        raise ValueError(f"image: unknown preset {preset!r}.{suggestion(str(preset), presets)}")
    known = {f.name for f in fields(ImagingOptions)}
    for name in given:
        if name not in known:
            more = {"preset", "solver", "mesh", "seed", "run_dir"}
            raise TypeError(f"image has no option {name!r}.{suggestion(name, known | more)}")
    options = ImagingOptions(**{**presets[preset], **given})
    if options.follow is None:
        options = replace(options, follow=preset == "default" and not OWN_WEIGHTS & given.keys())
    if "data" in given and "rounds" not in given and any(one.data is not None for one in options.rounds):
        raise ValueError(
            f"image: the rounds of preset {preset!r} have data of their own, so those given would not be used. Leave "
            "them (--products) out, or give rounds=(Round(data=...), ...)."
        )
    return options


def _require(name: str, value: Any, positive: bool = False) -> None:
    if not (np.isfinite(value) and value >= 0 and (value > 0 or not positive)):
        raise ValueError(f"image: {name}={value!r} must {'be positive' if positive else 'not be negative'}.")


def _check_weights(what: str, given: Any, known: tuple[str, ...]) -> None:
    if not given:
        raise ValueError(f"image: {what} is empty. Give at least one weight by name.")
    for name, weight in given.items():
        if name not in known:
            raise ValueError(f"image: {what} has an unknown name {name!r}.{suggestion(name, known)}")
        if not np.isfinite(weight):
            raise ValueError(f"image: {what}[{name!r}]={weight!r} must be a finite weight.")
