"""Options of imaging_problem, in groups that belong together; each field may also be given to it by itself."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from shardfit.core.errors import suggestion
from shardfit.core.precision import PRECISIONS
from shardfit.domains.vlbi import transforms
from shardfit.domains.vlbi.constants import UAS
from shardfit.domains.vlbi.forward import Nufft, as_operator
from shardfit.domains.vlbi.penalties import OF_LOG


@dataclass(frozen=True)
class Regularisation:
    """What regularisers measure with.

    norm_reg: divide each by a scale of its own, so that weights mean about the same for any field; epsilon_tv: Jy²
    added under the root of total variation; alpha_a: of lA; major, minor, pa: rad, the Gaussian of rgauss; vflux: Jy of
    circular polarisation, the flux unless given; clipfloor: Jy per pixel, pixels of the prior above it are fitted.
    """

    norm_reg: bool = True
    epsilon_tv: float = 0.0
    alpha_a: float = 1.0
    major: float = 50 * UAS
    minor: float = 50 * UAS
    pa: float = 0.0
    vflux: float | None = None
    clipfloor: float = 0.0

    def __post_init__(self):
        _check_numbers(self, ("epsilon_tv",), least=0.0)
        _check_numbers(self, ("alpha_a", "major", "minor"), above=0.0)
        _check_numbers(self, ("pa", "clipfloor", "vflux"))


@dataclass(frozen=True)
class Polarisation:
    """Which Stokes parameters are solved, and in which variables: see `transforms`.

    mode: 'I', 'P', 'IP', 'V', 'IV', 'IPV'; transform: None for 'ball', or, of mode 'I', 'power', or 'log' if a
    regulariser is of ln I.
    """

    mode: str = "I"
    transform: str | None = None

    def __post_init__(self):
        mode = transforms.check_mode(self.mode, self.transform)
        transform = "ball" if self.transform is None and mode != "I" else self.transform
        object.__setattr__(self, "mode", mode)
        object.__setattr__(self, "transform", transform)

    @property
    def solved(self) -> tuple[str, ...]:
        """Names of what a solver moves."""
        return transforms.solved_maps(self.mode, self.transform or "ball")

    def intensity(self, regularisers: Iterable[str]) -> str:
        """Return the transform of I for these regularisers; raise for one that they cannot take."""
        of_log = [name for name in regularisers if name in OF_LOG]
        if self.transform == "power" and of_log:
            raise ValueError(
                f"{of_log[0]} measures ln I, which is infinite where I is zero, as it may be with transform='power'. "
                "Use transform='log'."
            )
        if self.transform in ("log", *transforms.POLARISED.values()) or of_log:
            return "log"
        return self.transform if self.transform == "identity" else "power"


@dataclass(frozen=True)
class Spectrum:
    """How the image changes with frequency.

    spectral: maps to solve, of 'alpha', 'beta', 'alphap', 'betap', 'rm'; fraction: see `transforms.at_frequency`;
    mf_flux: Jy of every channel, for flux_mf; limits: (lowest, highest) by map, between which its values stay.
    """

    spectral: Sequence[str] = ()
    fraction: str = "odds"
    mf_flux: Sequence[float] | None = None
    limits: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def __post_init__(self):
        for name in self.limits:
            if name not in self.spectral:
                raise ValueError(f"limits: {name!r} is not solved for.{suggestion(str(name), self.spectral)}")
        for name in self.spectral:
            if name not in transforms.SPECTRAL:
                raise ValueError(f"spectral: unknown map {name!r}.{suggestion(name, transforms.SPECTRAL)}")
        if self.fraction not in transforms.FRACTIONS:
            raise ValueError(
                f"unknown fraction law {self.fraction!r}.{suggestion(str(self.fraction), transforms.FRACTIONS)}"
            )
        for value in self.mf_flux or ():
            if not (np.isfinite(value) and value > 0):
                raise ValueError(f"mf_flux: {value!r} must be a positive number of Jy.")


@dataclass(frozen=True)
class Computation:
    """How model visibilities are computed.

    operator: 'auto', 'separable', 'dense', 'nufft' or Nufft(...), see `forward`; chunk: most visibilities worked on at
    once, which bounds memory; blocks: parts of a channel that devices can share, where each channel has an image of its
    own (None: as many as eight devices can share); precision: 'float64' or 'float32'; coarse_pixels: allow
    pixels that are too large for the longest baseline.
    """

    operator: str | Nufft = "auto"
    chunk: int | None = None
    blocks: int | None = None
    precision: str = "float64"
    coarse_pixels: bool = False

    def __post_init__(self):
        if self.operator != "auto":
            as_operator(self.operator)
        for name in ("chunk", "blocks"):
            value = getattr(self, name)
            whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
            if value is not None and not (whole and value >= 1):
                raise ValueError(f"{name}={value!r} must be a whole number, at least 1, or None.")
        if self.precision not in PRECISIONS:
            raise ValueError(f"unknown precision {self.precision!r}.{suggestion(str(self.precision), PRECISIONS)}")


@dataclass(frozen=True)
class ProblemOptions:
    """All groups together."""

    regularisation: Regularisation = field(default_factory=Regularisation)
    polarisation: Polarisation = field(default_factory=Polarisation)
    spectrum: Spectrum = field(default_factory=Spectrum)
    computation: Computation = field(default_factory=Computation)


GROUPS: dict[str, type] = {
    "regularisation": Regularisation,
    "polarisation": Polarisation,
    "spectrum": Spectrum,
    "computation": Computation,
}
HOMES = {f.name: group for group, kind in GROUPS.items() for f in fields(kind)}


def options_of(given: Mapping[str, Any]) -> ProblemOptions:
    """Options from groups (`spectrum=Spectrum(...)`) and single fields (`mode="IP"`), not both of one group."""
    made: dict[str, Any] = {name: value for name, value in given.items() if name in GROUPS}
    for name, value in made.items():
        if not isinstance(value, GROUPS[name]):
            raise TypeError(f"imaging_problem: {name} is {type(value).__name__}. Give {name.capitalize()}(...).")
    single: dict[str, dict] = {}
    for name, value in given.items():
        if name in GROUPS:
            continue
        if name not in HOMES:
            raise ValueError(f"imaging_problem: unknown option {name!r}.{suggestion(name, [*HOMES, *GROUPS])}")
        if HOMES[name] in made:
            raise ValueError(f"imaging_problem: {name} belongs to {HOMES[name]}, which is given too. Put it in there.")
        single.setdefault(HOMES[name], {})[name] = value
    return ProblemOptions(**made, **{group: GROUPS[group](**values) for group, values in single.items()})


def _check_numbers(group: Any, names: Sequence[str], *, least: float = -np.inf, above: float = -np.inf) -> None:
    for name in names:
        value = getattr(group, name)
        if value is not None and not (np.isfinite(value) and value >= least and value > above):
            limit = f", at least {least:g}" if least > -np.inf else f" above {above:g}" if above > -np.inf else ""
            raise ValueError(f"{name}={value!r} must be a finite number{limit}.")
