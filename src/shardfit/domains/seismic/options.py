"""What an inversion problem is made of: the misfit, the model that is fitted, how waves are computed."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from shardfit.core.errors import suggestion
from shardfit.core.precision import PRECISIONS
from shardfit.domains.seismic.arrays import Response
from shardfit.domains.seismic.engines import ENGINES
from shardfit.domains.seismic.losses import NAMED, Loss
from shardfit.domains.seismic.native import Native
from shardfit.domains.seismic.parametrisation import PARAMETERS
from shardfit.domains.seismic.strategies import NAMES as STRATEGIES
from shardfit.domains.seismic.strategies import Strategy
from shardfit.options.common import precision_option
from shardfit.options.declared import Options, option

NORMALISE = ("rms", "trace", "none")
REDUCTIONS = ("mean", "sum")
SOURCE_FITS = ("scalar", "filter")
DAMPING = 1e-3  # of the largest power: frequencies far below it are not excited, and noise there is not fitted


@dataclass(frozen=True)
class MisfitOptions(Options):
    """How modelled and observed traces are compared."""

    loss: str | Loss = option("l2", "misfit of the traces\nalso an object of `losses`", choices=NAMED)
    normalise: str = option(
        "rms",
        """what both sides are divided by
        'rms' of the observed data that count, 'trace': every trace by its own, or not at all""",
        choices=NORMALISE,
    )
    reduction: str = option("mean", "over what counts", choices=REDUCTIONS)
    response: Response | None = option(None, "filter of both sides, from `low_pass`", file=False)
    match: str | None = option(
        None, "fit the source of every shot at every evaluation\nsee `signature`", choices=SOURCE_FITS, example="filter"
    )


@dataclass(frozen=True)
class ModelOptions(Options):
    """Which model is fitted, and in which coordinates."""

    bounds: tuple[Any, Any] | Mapping[str, tuple[Any, Any]] | None = option(
        None,
        """lowest and highest velocity
        numbers or (nz, nx); of a medium by what is fitted. Those of a medium that are not given keep its waves stable,
        see `InversionOptions`, and its solvers must support bounds""",
    )
    parameter: str = option("velocity", "what a solver sees\nsee `parametrisation`", choices=PARAMETERS)
    unit: float | Mapping[str, float] = option(
        1.0,
        """of the solver's coordinates, m/s
        of a medium by what is fitted: {"vs": 0.58} lets vs change by 0.58 m/s where vp changes by 1""",
        above=0,
    )
    known: Mapping[str, Any] | None = option(None, "parameters of a medium that are not fitted, (nz, nx) each")


@dataclass(frozen=True)
class WaveOptions(Options):
    """How waves are computed; none of it changes the answer beyond rounding."""

    engine: str | Native = option("auto", "what propagates waves\nalso a `Native`, see `propagate`", choices=ENGINES)
    memory: str | Strategy = option(
        "auto", "how states are kept for the gradient\nalso an object of `strategies`", choices=STRATEGIES
    )
    chunk: int | None = option(None, "most shots that a device works on at once; all if left out", least=1, example=4)
    precision: str = precision_option(default="float32")

    @property
    def dtype(self) -> Any:
        """The precision as a NumPy type."""
        return PRECISIONS[self.precision]


@dataclass(frozen=True)
class SourceOptions(Options):
    """How a wavelet is estimated from observed data."""

    kind: str = option("filter", "'scalar' scales the wavelet, 'filter' filters it", choices=SOURCE_FITS)
    per_shot: bool = option(False, "one wavelet for each shot instead of one for all")
    damping: float = option(DAMPING, "share of the largest power that is added, for 'filter'")


def require_known(name: str, value: Any, known: Any) -> None:
    """Raise for a value that is none of the known ones."""
    if value not in known:
        raise ValueError(f"unknown {name} {value!r}.{suggestion(str(value), known)}")
