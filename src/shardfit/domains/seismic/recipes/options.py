"""What an inversion is asked to do, as plain data."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from shardfit.domains.seismic.bands import check_corner
from shardfit.domains.seismic.conditioning import FIRST_ORDER, Conditioning
from shardfit.domains.seismic.gauss_newton import require_residuals
from shardfit.domains.seismic.losses import Loss, as_loss
from shardfit.domains.seismic.medium import MediumSimulation
from shardfit.domains.seismic.native import Native
from shardfit.domains.seismic.options import (
    SOURCE_FITS,
    MisfitOptions,
    ModelOptions,
    SourceOptions,
    WaveOptions,
    require_known,
)
from shardfit.domains.seismic.simulation import Simulation
from shardfit.domains.seismic.strategies import Strategy
from shardfit.options.declared import Options, like, option, section
from shardfit.solve.registry import CLASSES

PRECONDITIONED = ("plbfgs", "gauss-newton")
SOLVERS = (*FIRST_ORDER, *PRECONDITIONED, "lbfgsb", "lbfgs", "lbfgs-bt")


@dataclass(frozen=True)
class InversionOptions(Options):
    """Options of `invert`."""

    loss: str | Loss = like(MisfitOptions, "loss")
    normalise: str = like(MisfitOptions, "normalise")
    parameter: str = like(ModelOptions, "parameter")
    fitted: tuple[str, ...] | None = option(
        None,
        """of a medium: which of its parameters change
        the others stay as in the start; left out: 'vp' and 'vs' of an elastic one, 'vp' and 'epsilon' of a VTI one,
        'vp' and 'q' of a viscoacoustic one""",
        example=["vp", "vs"],
    )
    solver: str = option(
        "adam",
        """how it is minimised
        first-order ones, 'plbfgs' (preconditioned L-BFGS) and 'gauss-newton' (truncated) on mini-batches or all shots;
        'lbfgsb', 'lbfgs', 'lbfgs-bt' on all shots""",
        choices=SOLVERS,
    )
    learning_rate: float = option(
        25.0,
        """change of the velocity in a step
        of vs 0.58 of it, of epsilon and delta 0.0005, of q 0.1 (near its median). With 'plbfgs' and 'gauss-newton' on
        mini-batches the most that a cell may change in a step""",
        unit="m/s",
        above=0,
    )
    products: int = option(
        6,
        """most products of the Gauss-Newton Hessian in a step of 'gauss-newton'
        one costs somewhat more than a gradient""",
        least=1,
    )
    decay: float = option(1.0, "factor of the learning rate from band to band", above=0)
    epochs: int | tuple[int, ...] = option(100, "steps, of every band, or a list with one number for each", least=1)
    batchsize: int | tuple[int | None, ...] | None = option(
        8,
        """shots per step, or 'all'; or a list with one number for each band
        in an order that is shuffled whenever all were used. 'plbfgs' takes three steps with each batch, 'gauss-newton'
        one""",
        least=1,
        none="all",
    )
    bands: tuple[float | None, ...] = option(
        (),
        """from low frequencies to high: corners in Hz of low-pass filters, one fit each, 'all' for none
        an empty list is one fit without filter""",
        above=0,
        none="all",
        example=[4.0, "all"],
    )
    band_order: int = option(4, "order of the filters", least=1)
    bounds: tuple[Any, Any] | Mapping[str, tuple[Any, Any]] | None = option(
        None,
        """lowest and highest velocity, m/s, numbers or files; of a medium those of vp, or by what is fitted
        in Python also (nz, nx). Left out: from half the slowest start to the simulation's v_max where the solver knows
        bounds. Those of a medium that are not given keep waves stable: vs below √3/2 of vp, so that the bulk modulus is
        positive, epsilon above delta (of two that are fitted, both bounds lie midway between the starts), velocities
        with epsilon or q below v_max""",
        example=[1450.0, 4500.0],
    )
    conditioning: Conditioning = section(
        Conditioning,
        """of gradients, for first-order solvers
        for 'plbfgs' and 'gauss-newton' the inverse Hessian they begin with""",
    )
    tikhonov: float = option(0.0, "weight of the penalty of this name", least=0)
    tv: float = option(0.0, "weight of the total variation", least=0)
    tv_eps: float = option(1.0, "rounds off the total variation", unit="m/s per cell", above=0)
    estimate_source: str | None = option(
        None, "fit the wavelet before every band", choices=SOURCE_FITS, example="filter"
    )
    source_per_shot: bool = option(False, "one estimated wavelet for each shot, instead of one for all")
    match: str | None = like(MisfitOptions, "match")
    eps: float = option(1e-12, "of Adam and its kin, relative to the largest component of the first gradient", above=0)
    compare: bool = option(
        True,
        """compare some shots with those of the start first
        and refuse data that cannot be what is modelled: of another scale, or without correlation. Losses of envelopes
        and distributions (W2, NIM) are not compared""",
    )
    strict: bool = option(False, "refuse a batch that the devices do not share evenly, instead of padding it")
    certify: bool = option(True, "check the gradient on a few shots\nat the start of the first band and at its answer")
    engine: str | Native = like(WaveOptions, "engine")
    memory: str | Strategy = like(WaveOptions, "memory")
    chunk: int | None = like(WaveOptions, "chunk")
    precision: str = like(WaveOptions, "precision")

    def __post_init__(self):
        super().__post_init__()
        if self.fitted == ():
            raise ValueError("fitted = [] must be a list of parameters, at least one.")
        for name in ("epochs", "batchsize"):
            given, bands = getattr(self, name), len(self.corners)
            if isinstance(given, tuple) and len(given) != bands:
                there = "there is 1" if bands == 1 else f"there are {bands}"
                raise ValueError(f"invert: {name}={given!r} are numbers of {len(given)} bands, and {there}.")
        self._check_second_order()

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
