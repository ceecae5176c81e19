"""What an imaging run is asked to do, as plain data: options, rounds of fits, self-calibration between them.

It loads neither JAX nor what images are made with: commands read it for their help.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from shardfit.core.errors import suggestion
from shardfit.domains.vlbi.constants import UAS
from shardfit.domains.vlbi.selfcal import METHODS
from shardfit.domains.vlbi.tables import ALIGNED, CLOSURES
from shardfit.options.declared import Options, option

if TYPE_CHECKING:
    from shardfit.domains.vlbi.observation import Observation

FIELD = 8.0  # nominal resolutions across a field of which nothing is said
PRIOR = 0.3  # share of the field that the prior's FWHM is
FACTORS = tuple(10 ** (-k / 2) for k in range(1, 7))  # of the weights, one after the other
PRODUCTS = (*ALIGNED[:4], *CLOSURES)
COUNTS = ("min", "max", "min-cut0bl")  # the last for closure phases alone
TRANSFORMS = ("power", "log", "identity")
OPERATORS = ("auto", "separable", "dense", "nufft")


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
class ImagingOptions(Options):
    """Options of `image`. By default data are taken as they are; presets change them as their array needs."""

    npix: int = option(64, "pixels a side", least=2)
    fov_uas: float | None = option(
        None, "field of view\nleft out: 8 nominal resolutions", unit="µas", above=0, example=128.0
    )
    flux: float | None = option(
        None, "flux of the compact source\nleft out: estimated (`compact_flux`)", unit="Jy", above=0, example=0.6
    )
    prior_fwhm_uas: float | None = option(
        None,
        "FWHM of the Gaussian that is prior and start\nleft out: 0.3 of the field",
        unit="µas",
        above=0,
        example=40.0,
    )
    data: Mapping[str, float] = option(
        {"amp": 0.2, "cphase": 1.0, "logcamp": 1.0}, "data that are fitted, weights by product", keys=PRODUCTS
    )
    regularisers: Mapping[str, float] = option(
        {"simple": 100.0, "tv": 1.0, "tv2": 1.0, "flux": 1e4}, "weights of regularisers by name"
    )
    systematic: float = option(0.0, "fraction of |V| added to all errors\nsee `prepare`", least=0)
    tolerance: float | Mapping[str, float] = option(
        0.0, "fraction added to amplitude errors alone, one number or by station\nstations not named get none", least=0
    )
    cp_uv_min: float = option(0.0, "shorter baselines form no triangles", unit="wavelengths", least=0)
    snr_cut: float = option(0.0, "least signal-to-noise ratio of a measurement\nweaker ones are left out", least=0)
    zero_baseline: float | Literal["auto"] = option(
        0.0, "baselines shorter than so many wavelengths are scaled to the flux; 'auto': those within a site", least=0
    )
    count: str = option("min", "closure sets", choices=COUNTS)
    average: bool | float = option(False, "average over scans, or so many seconds\nsee `prepare`", least=0)
    restarts: int = option(3, "further fits, each from the last image blurred", least=0)
    blur: float = option(1.0, "of the image before a restart, in nominal resolutions", least=0)
    maxiter: int = option(100, "iterations of every fit\nwith weaker regularisers four times as many", least=1)
    stop: float = option(1e-6, "relative tolerance of every fit", above=0)
    follow: bool | None = option(
        None,
        """weaken the regularisers until χ² is 1
        and take gain errors from the amplitudes (see `following`). Left out: in the preset 'default', unless
        regularisers, rounds or precal are given. A tolerance that is given is kept""",
        example=True,
    )
    epsilon_tv: float = option(1e-10, "rounds off the total variation", unit="Jy²", least=0)
    operator: Any = option("auto", "how visibilities are computed\nsee `forward`", choices=OPERATORS)
    transform: str | None = option(
        None, "variables of the image\nleft out: chosen, see `transforms`", choices=TRANSFORMS, example="power"
    )
    taper_uas: float = option(
        0.0, "resolution that data are tapered to\nthe final image is blurred by it", unit="µas", least=0
    )
    precal: PreCal | None = option(None, "calibration before the first fit", file=False)
    rounds: tuple[Round, ...] = option((Round(),), "fits and self-calibrations one after the other", file=False)

    def __post_init__(self):
        super().__post_init__()
        if not self.rounds:
            raise ValueError("image: rounds is empty. Give at least one Round.")
        for one in self.schedule():
            _check_weights("data", one.data, PRODUCTS)
            if isinstance(one.restarts, bool) or not isinstance(one.restarts, int) or one.restarts < 0:
                raise ValueError(f"image: restarts={one.restarts!r} of a round must be a whole number, at least 0.")
        from shardfit.domains.vlbi.problem import REGULARISERS

        _check_weights("regularisers", self.regularisers, REGULARISERS)

    def schedule(self) -> tuple[Any, ...]:
        """Return the rounds with everything filled in."""
        common = {name: getattr(self, name) for name in ("data", "tolerance", "restarts")}
        return tuple(
            replace(one, **{name: value for name, value in common.items() if getattr(one, name) is None})
            for one in self.rounds
        )

    def sized(self, *parts: "Observation") -> "ImagingOptions":
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


def _check_weights(what: str, given: Any, known: tuple[str, ...]) -> None:
    if not given:
        raise ValueError(f"image: {what} is empty. Give at least one weight by name.")
    for name in given:
        if name not in known:
            raise ValueError(f"image: {what} has an unknown name {name!r}.{suggestion(name, known)}")
