"""Options of imaging_problem, in groups that belong together; each field may also be given to it by itself."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from shardfit.core.errors import suggestion
from shardfit.domains.vlbi import transforms
from shardfit.domains.vlbi.constants import UAS
from shardfit.domains.vlbi.forward import OPERATORS, Nufft
from shardfit.domains.vlbi.penalties import OF_LOG
from shardfit.options.common import precision_option
from shardfit.options.declared import Options, option


@dataclass(frozen=True)
class Regularisation(Options):
    """What regularisers measure with."""

    norm_reg: bool = option(
        True, "divide each by a scale of its own\nso that weights mean about the same for any field"
    )
    epsilon_tv: float = option(0.0, "added under the root of total variation", unit="Jy²", least=0)
    alpha_a: float = option(1.0, "of lA", above=0)
    major: float = option(50 * UAS, "major axis of the Gaussian of rgauss", unit="rad", above=0)
    minor: float = option(50 * UAS, "minor axis of the Gaussian of rgauss", unit="rad", above=0)
    pa: float = option(0.0, "position angle of the Gaussian of rgauss", unit="rad")
    vflux: float | None = option(None, "circular polarisation, the flux unless given", unit="Jy")
    clipfloor: float = option(0.0, "pixels of the prior above it are fitted", unit="Jy per pixel")


@dataclass(frozen=True)
class Polarisation(Options):
    """Which Stokes parameters are solved, and in which variables: see `transforms`."""

    mode: str = option("I", "'I', 'P', 'IP', 'V', 'IV', 'IPV'")
    transform: str | None = option(
        None, "left out: 'ball', or, of mode 'I', 'power', or 'log' if a regulariser is of ln I"
    )

    def __post_init__(self):
        super().__post_init__()
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
class Spectrum(Options):
    """How the image changes with frequency."""

    spectral: Sequence[str] = option((), "maps to solve", choices=transforms.SPECTRAL)
    fraction: str = option("odds", "of polarisation, see `transforms.at_frequency`", choices=transforms.FRACTIONS)
    mf_flux: Sequence[float] | None = option(None, "of every channel, for flux_mf", unit="Jy", above=0)
    limits: Mapping[str, tuple[float, float]] = option(
        {}, "lowest and highest by map, between which its values stay", infinite=True
    )

    def __post_init__(self):
        super().__post_init__()
        for name in self.limits:
            if name not in self.spectral:
                raise ValueError(f"limits: {name!r} is not solved for.{suggestion(str(name), self.spectral)}")


@dataclass(frozen=True)
class Computation(Options):
    """How model visibilities are computed."""

    operator: str | Nufft = option("auto", "also Nufft(...), see `forward`", choices=("auto", *OPERATORS))
    chunk: int | None = option(None, "most visibilities worked on at once\nwhich bounds memory", least=1)
    blocks: int | None = option(
        None,
        """parts of a channel that devices can share
        where each channel has an image of its own (None: as many as eight devices can share)""",
        least=1,
    )
    precision: str = precision_option()
    coarse_pixels: bool = option(False, "allow pixels that are too large for the longest baseline")


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
