"""The ground as recipes see it: named fields, one for acoustic waves, several for others, and what they have in common.

A kind of wave other than acoustic is a subclass of `MediumSimulation` that says which parameters its medium has, which
values it can simulate, and how a medium becomes traces; everything else follows from that.
"""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import numpy as np
from jax.core import Tracer

from shardfit.domains.seismic.geometry import Shots
from shardfit.domains.seismic.simulation import CELLS_PER_WAVELENGTH, Simulation

Medium = dict[str, np.ndarray]
Range = tuple[Any, Any]  # lowest and highest


class Parameter(NamedTuple):
    """A field of a medium.

    unit: of its values. step: how much of it an inversion changes where it changes vp by 1 m/s. size: of what counts as
    a large value, None for the start's. coordinate: what a solver sees, see parametrisation.py.
    """

    unit: str = "m/s"
    step: float = 1.0
    size: float | None = None
    coordinate: str = "velocity"


@dataclass(frozen=True)
class MediumSimulation(Simulation):
    """A simulation whose medium has several parameters, one of them vp."""

    waves: ClassVar[str]  # as a sentence and a configuration name them
    parameters: ClassVar[dict[str, Parameter]]
    usual: ClassVar[tuple[str, ...]]  # what an inversion fits unless it is told otherwise
    kept: ClassVar[int]  # fields that a differentiated step keeps: what the factors of a medium multiply
    compiled: ClassVar[bool] = False

    @property
    def names(self) -> str:
        """The parameters in words."""
        *some, last = self.parameters
        return f"{', '.join(some)} and {last}"

    def refuse(self, medium: Medium) -> None:
        """Raise for values that cannot be simulated, naming the cell; they are numbers and of the right shape."""
        raise NotImplementedError

    def speeds(self, medium: Mapping[str, Any]) -> tuple[Any, Any, str]:
        """Return slowest and fastest speed (m/s) of the waves in every cell, and what the fastest is called."""
        raise NotImplementedError

    def check_shots(self, medium: Mapping[str, Any], shots: Shots) -> None:
        """Raise or warn where sources or receivers do not go with the medium; traced values pass unseen."""

    def refuse_ranges(self, low: Mapping[str, Any], high: Mapping[str, Any]) -> None:
        """Raise where bounds, those of what is known being its values, let an inversion leave what can be simulated."""

    def ranges(self, medium: Medium, fitted: tuple[str, ...], vp: Range | None) -> dict[str, Range]:
        """Return bounds that keep what is fitted within what can be simulated. vp: its own, None to choose them."""
        raise NotImplementedError

    def traces(
        self, medium: dict[str, jax.Array], signature: jax.Array, shots: Shots, engine: Any, memory: Any
    ) -> jax.Array:
        """Return traces (shots, receivers, nt), see `propagate`. signature: (shots, sources, nt); engine: as chosen."""
        raise NotImplementedError


def check_medium(sim: MediumSimulation, medium: Mapping[str, Any]) -> None:
    """Raise if a medium cannot be simulated, warn if waves would disperse; traced values pass unseen."""
    _check_names(sim, medium)
    for name in sim.parameters:
        if tuple(np.shape(medium[name])) != sim.shape:
            axes = ", ".join(f"n{axis}" for axis in sim.axes)
            raise ValueError(f"{name} has shape {np.shape(medium[name])}, but the simulation is {sim.shape}: ({axes}).")
    if any(isinstance(medium[name], Tracer) for name in sim.parameters):
        return
    values = {name: np.asarray(medium[name]) for name in sim.parameters}
    refuse_cells(~np.isfinite(values["vp"]), "vp", values["vp"], "not finite")
    refuse_cells(values["vp"] <= 0, "vp", values["vp"], "not positive")
    sim.refuse(values)
    slow, fast, name = sim.speeds(values)
    slowest, fastest = float(np.min(slow)), float(np.max(fast))
    if fastest > sim.v_max * (1 + 1e-6):  # bounds are met to rounding in float32
        raise ValueError(
            f"{name} reaches {fastest:g} m/s, above v_max={sim.v_max:g} for which the time step was checked. "
            "Raise v_max, which may need a smaller dt."
        )
    cells = slowest / sim.f_peak / max(sim.dh)
    if cells < CELLS_PER_WAVELENGTH:
        warnings.warn(
            f"only {cells:.2g} cells per wavelength at {sim.f_peak:g} Hz and {slowest:g} m/s, so waves disperse. "
            f"Use dh below {slowest / sim.f_peak / CELLS_PER_WAVELENGTH:.3g} m, or a lower frequency.",
            stacklevel=3,
        )


def _check_names(sim: MediumSimulation, medium: Any) -> None:
    if not isinstance(medium, Mapping) or set(medium) != set(sim.parameters):
        found = sorted(medium) if isinstance(medium, Mapping) else f"an array of shape {np.shape(medium)}"
        raise ValueError(f"the medium of {sim.waves} waves is a mapping of {sim.names}; got {found}.")


def refuse_cells(bad: np.ndarray, name: str, values: np.ndarray, what: str) -> None:
    """Raise if a value is bad, naming the first cell."""
    if bad.any():
        cell = tuple(map(int, np.argwhere(bad)[0]))
        raise ValueError(f"{name} = {values[cell]:g} at cell {cell} is {what}.")


def as_medium(sim: Simulation, model: Any) -> Medium:
    """Return a model by its names: 'velocity', or those that a `MediumSimulation` has."""
    if not isinstance(sim, MediumSimulation):
        return {"velocity": np.asarray(model)}
    _check_names(sim, model)
    return {name: np.asarray(model[name]) for name in sim.parameters}


def bare(medium: Mapping[str, Any]) -> Any:
    """Return what `propagate` takes: the velocity alone, or the mapping."""
    return medium["velocity"] if "velocity" in medium else dict(medium)


def speed(medium: Mapping[str, Any]) -> Any:
    """Return the velocity of P waves."""
    return medium["velocity" if "velocity" in medium else "vp"]
