"""What an inversion problem is made of: the misfit, the model that is fitted, how waves are computed."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from shardfit.core.errors import suggestion
from shardfit.core.precision import PRECISIONS
from shardfit.domains.seismic.arrays import Response
from shardfit.domains.seismic.losses import Loss, as_loss
from shardfit.domains.seismic.native import Native
from shardfit.domains.seismic.parametrisation import PARAMETERS
from shardfit.domains.seismic.strategies import Strategy

NORMALISE = ("rms", "trace", "none")
REDUCTIONS = ("mean", "sum")
SOURCE_FITS = ("scalar", "filter")
DAMPING = 1e-3  # of the largest power: frequencies far below it are not excited, and noise there is not fitted


@dataclass(frozen=True)
class MisfitOptions:
    """How modelled and observed traces are compared.

    Attributes
    ----------
    loss
        a name or object of `losses`.
    normalise
        divide modelled and observed by the rms of the observed data that count ('rms'), every trace by its own
        ('trace'), or not at all ('none').
    reduction
        'mean' or 'sum' over what counts.
    response
        filter of both sides, from `low_pass`.
    match
        'scalar' or 'filter' fits the source of every shot at every evaluation, see `signature`.

    """

    loss: str | Loss = "l2"
    normalise: str = "rms"
    reduction: str = "mean"
    response: Response | None = None
    match: str | None = None

    def __post_init__(self):
        as_loss(self.loss)
        require_known("normalise", self.normalise, NORMALISE)
        require_known("reduction", self.reduction, REDUCTIONS)
        if self.match is not None:
            require_known("match", self.match, SOURCE_FITS)


@dataclass(frozen=True)
class ModelOptions:
    """Which model is fitted, and in which coordinates.

    Attributes
    ----------
    bounds
        (lowest, highest) velocity, numbers or (nz, nx); of a medium a mapping by what is fitted. Those of a medium
        that are not given keep its waves stable, see `InversionOptions`, and its solvers must support bounds.
    parameter
        what a solver sees, see `parametrisation`.
    unit
        of the solver's coordinates, m/s; of a medium a mapping by what is fitted: {"vs": 0.58} lets vs change
        by 0.58 m/s where vp changes by 1.
    known
        parameters of a medium that are not fitted, (nz, nx) each.

    """

    bounds: tuple[Any, Any] | Mapping[str, tuple[Any, Any]] | None = None
    parameter: str = "velocity"
    unit: float | Mapping[str, float] = 1.0
    known: Mapping[str, Any] | None = None

    def __post_init__(self):
        require_known("parameter", self.parameter, PARAMETERS)


@dataclass(frozen=True)
class WaveOptions:
    """How waves are computed; none of it changes the answer beyond rounding.

    Attributes
    ----------
    engine
        'native', 'jax', 'auto', or a `Native`, see `propagate`.
    memory
        how states are kept for the gradient, see `strategies`.
    chunk
        most shots that a device works on at once; None for all.
    precision
        'float32' or 'float64'.

    """

    engine: str | Native = "auto"
    memory: str | Strategy = "auto"
    chunk: int | None = None
    precision: str = "float32"

    def __post_init__(self):
        require_known("precision", self.precision, PRECISIONS)

    @property
    def dtype(self) -> Any:
        """The precision as a NumPy type."""
        return PRECISIONS[self.precision]


@dataclass(frozen=True)
class SourceOptions:
    """How a wavelet is estimated from observed data.

    Attributes
    ----------
    kind
        'scalar' scales the wavelet, 'filter' filters it.
    per_shot
        one wavelet for each shot instead of one for all.
    damping
        share of the largest power that is added, for 'filter'.

    """

    kind: str = "filter"
    per_shot: bool = False
    damping: float = DAMPING

    def __post_init__(self):
        require_known("source estimate", self.kind, SOURCE_FITS)


def require_known(name: str, value: Any, known: Any) -> None:
    """Raise for a value that is none of the known ones."""
    if value not in known:
        raise ValueError(f"unknown {name} {value!r}.{suggestion(str(value), known)}")
