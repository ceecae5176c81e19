"""What an inversion is asked to do, as plain data."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from shardfit.core.errors import suggestion
from shardfit.core.precision import PRECISIONS
from shardfit.domains.seismic.bands import check_corner
from shardfit.domains.seismic.conditioning import FIRST_ORDER, Conditioning
from shardfit.domains.seismic.gauss_newton import require_residuals
from shardfit.domains.seismic.losses import Loss, as_loss
from shardfit.domains.seismic.medium import MediumSimulation
from shardfit.domains.seismic.native import Native
from shardfit.domains.seismic.options import NORMALISE, SOURCE_FITS, SourceOptions, WaveOptions, require_known
from shardfit.domains.seismic.parametrisation import PARAMETERS
from shardfit.domains.seismic.simulation import Simulation
from shardfit.domains.seismic.strategies import Strategy
from shardfit.solve.registry import CLASSES

PRECONDITIONED = ("plbfgs", "gauss-newton")
SOLVERS = (*FIRST_ORDER, *PRECONDITIONED, "lbfgsb", "lbfgs", "lbfgs-bt")


@dataclass(frozen=True)
class InversionOptions:
    """Options of `invert`.

    Attributes
    ----------
    loss, normalise, match
        see `MisfitOptions`.
    parameter
        what the solver sees, see `parametrisation`.
    fitted
        of a medium: which of its parameters change, the others stay as in the start; None is 'vp' and 'vs' of an
        elastic one, 'vp' and 'epsilon' of a VTI one, 'vp' and 'q' of a viscoacoustic one.
    solver
        'adam', 'adamw', 'sgd', 'rmsprop', 'plbfgs' (preconditioned L-BFGS) or 'gauss-newton' (truncated) on
        mini-batches or all shots; 'lbfgsb', 'lbfgs', 'lbfgs-bt' on all shots.
    learning_rate
        m/s per step; of vs 0.58 of it, of epsilon and delta 0.0005, of q 0.1 (near its median). With 'plbfgs' and
        'gauss-newton' on mini-batches the most that a cell may change in a step.
    products
        products of the Gauss-Newton Hessian in a step of 'gauss-newton', at most; one costs somewhat more than a
        gradient.
    decay
        factor of the learning rate from band to band.
    epochs
        steps, of every band, or one number for each.
    batchsize
        shots per step, in an order that is shuffled whenever all were used, or one number for each band; None for all.
        'plbfgs' takes three steps with each batch, 'gauss-newton' one.
    bands
        corners of low-pass filters in Hz, one fit each, None for all frequencies; () is one fit without filter.
    band_order
        of the filter.
    bounds
        velocities, m/s, numbers or (nz, nx), of a medium those of vp, or a mapping by what is fitted; None is from half
        the slowest start to the simulation's v_max where the solver knows bounds. Those of a medium that are not given
        keep waves stable: vs below √3/2 of vp, so that the bulk modulus is positive, epsilon above delta (of two that
        are fitted, both bounds lie midway between the starts), velocities with epsilon or q below v_max.
    conditioning
        of gradients, for first-order solvers; for 'plbfgs' and 'gauss-newton' the inverse Hessian they begin with.
    tikhonov, tv
        weights of these penalties; tv_eps: m/s per cell.
    estimate_source
        'scalar' or 'filter' fits the wavelet before every band, one for all shots, or one for each if source_per_shot.
    eps
        of Adam and its kin, relative to the largest component of the first gradient.
    compare
        compare some shots with those of the start first, and refuse data that cannot be what is modelled: of another
        scale, or without correlation. Losses of envelopes and distributions (W2, NIM) are not compared.
    strict
        refuse a batch that the devices do not share evenly, instead of padding it.
    certify
        check the gradient on a few shots, at the start of the first band and at its answer.
    engine, memory, chunk, precision
        see `WaveOptions`.

    """

    loss: str | Loss = "l2"
    normalise: str = "rms"
    parameter: str = "velocity"
    fitted: tuple[str, ...] | None = None
    solver: str = "adam"
    learning_rate: float = 25.0
    products: int = 6
    decay: float = 1.0
    epochs: int | tuple[int, ...] = 100
    batchsize: int | tuple[int | None, ...] | None = 8
    bands: tuple[float | None, ...] = ()
    band_order: int = 4
    bounds: tuple[Any, Any] | Mapping[str, tuple[Any, Any]] | None = None
    conditioning: Conditioning = Conditioning()
    tikhonov: float = 0.0
    tv: float = 0.0
    tv_eps: float = 1.0
    estimate_source: str | None = None
    source_per_shot: bool = False
    match: str | None = None
    eps: float = 1e-12
    compare: bool = True
    strict: bool = False
    certify: bool = True
    engine: str | Native = "auto"
    memory: str | Strategy = "auto"
    chunk: int | None = None
    precision: str = "float32"

    def __post_init__(self):
        as_loss(self.loss)
        object.__setattr__(self, "bands", tuple(self.bands))
        if self.fitted is not None:
            if isinstance(self.fitted, str) or not self.fitted:
                raise ValueError(f"invert: fitted={self.fitted!r} must be a list of parameters, at least one.")
            object.__setattr__(self, "fitted", tuple(self.fitted))
        named = [("normalise", NORMALISE), ("parameter", PARAMETERS), ("solver", SOLVERS)]
        named += [(n, SOURCE_FITS) for n in ("estimate_source", "match") if getattr(self, n) is not None]
        for name, known in named:
            if getattr(self, name) not in known:
                given = getattr(self, name)
                raise ValueError(f"invert: unknown {name} {given!r}.{suggestion(str(given), known)}")
        for name in ("epochs", "batchsize"):
            self._check_counts(name)
        _require_count("products", self.products)
        for name in ("learning_rate", "decay", "eps", "tv_eps"):
            if not (np.isfinite(getattr(self, name)) and getattr(self, name) > 0):
                raise ValueError(f"invert: {name}={getattr(self, name)!r} must be positive.")
        for name in ("tikhonov", "tv"):
            if not (np.isfinite(getattr(self, name)) and getattr(self, name) >= 0):
                raise ValueError(f"invert: {name}={getattr(self, name)!r} must be zero or positive.")
        self._check_second_order()
        require_known("precision", self.precision, PRECISIONS)

    def _check_counts(self, name: str) -> None:
        if isinstance(getattr(self, name), list):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        given, bands = getattr(self, name), len(self.corners)
        if isinstance(given, tuple) and len(given) != bands:
            there = "there is 1" if bands == 1 else f"there are {bands}"
            raise ValueError(f"invert: {name}={given!r} are numbers of {len(given)} bands, and {there}.")
        for value in given if isinstance(given, tuple) else (given,):
            if value is None and name == "batchsize":
                continue
            _require_count(name, value)

    def _check_second_order(self):
        if self.first_order:
            return
        if self.conditioning.clip is not None:
            raise ValueError(
                f"invert: solver {self.solver!r} uses a line search, which needs the exact gradient, not a clipped "
                "one. Drop conditioning.clip."
            )
        if self.solver == "gauss-newton":
            require_residuals(as_loss(self.loss))
        if self.solver in PRECONDITIONED:
            return
        if not self.conditioning.idle:
            raise ValueError(
                f"invert: solver {self.solver!r} does not support conditioning. Use {PRECONDITIONED[0]!r}, or one of "
                f"{', '.join(FIRST_ORDER)}, or drop it."
            )
        if any(size is not None for size in self.batchsizes):
            raise ValueError(f"invert: solver {self.solver!r} needs the same shots at every step. Set batchsize=None.")

    @property
    def first_order(self) -> bool:
        """Whether the solver takes one gradient per step."""
        return self.solver in FIRST_ORDER

    @property
    def bounded(self) -> bool:
        """Whether the solver knows bounds."""
        return self.first_order or self.solver in PRECONDITIONED or CLASSES[self.solver].bounded

    @property
    def waves(self) -> WaveOptions:
        """How waves are computed."""
        return WaveOptions(self.engine, self.memory, self.chunk, self.precision)

    @property
    def source(self) -> SourceOptions | None:
        """How the wavelet is estimated before every band, None where it is not."""
        return None if self.estimate_source is None else SourceOptions(self.estimate_source, self.source_per_shot)

    @property
    def corners(self) -> tuple[float | None, ...]:
        """Corner of every fit."""
        return self.bands or (None,)

    @property
    def steps(self) -> tuple[int, ...]:
        """Steps of every fit."""
        return self.epochs if isinstance(self.epochs, tuple) else (self.epochs,) * len(self.corners)

    @property
    def batchsizes(self) -> tuple[int | None, ...]:
        """Shots per step of every fit, None for all."""
        return self.batchsize if isinstance(self.batchsize, tuple) else (self.batchsize,) * len(self.corners)

    def of(self, sim: Simulation) -> "InversionOptions":
        """Return the options with what is fitted of these waves' medium; raise for parameters that it has not."""
        if not isinstance(sim, MediumSimulation):
            if self.fitted is not None or isinstance(self.bounds, Mapping):
                raise ValueError("invert: acoustic waves have one parameter. Drop fitted, and give bounds as a pair.")
            return self
        for name in self.fitted or ():
            require_known(f"fitted parameter of {sim.waves} waves:", name, sim.parameters)
        return replace(self, fitted=self.fitted or sim.usual)

    def check(self, sim: Simulation, n_shots: int, n_devices: int) -> None:
        """Raise for what does not go with this survey or these devices."""
        if isinstance(sim, MediumSimulation) and (self.tikhonov or self.tv):
            raise ValueError("invert: tikhonov and tv are for the one velocity of acoustic waves. Drop them.")
        for corner in self.bands:
            if corner is not None:
                check_corner(sim, corner, self.band_order)
        for size in self.batchsizes:
            self._check_batch(size or n_shots, n_shots, n_devices if size else 1)

    def _check_batch(self, size: int, n_shots: int, n_devices: int) -> None:
        if size > n_shots:
            raise ValueError(f"invert: batchsize={size} is more than the {n_shots} shots of the survey.")
        if self.strict and size % n_devices:
            low = size // n_devices * n_devices
            near = [size for size in (low, low + n_devices) if 0 < size <= n_shots]
            raise ValueError(
                f"invert: batchsize={size} does not divide by {n_devices} devices. Use "
                f"{' or '.join(map(str, near)) or 'fewer devices'}, or strict=False, which pads the last share."
            )


def _require_count(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise ValueError(f"invert: {name}={value!r} must be a whole number, at least 1.")
