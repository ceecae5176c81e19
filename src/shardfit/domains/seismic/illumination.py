"""Energy of the source wavefield in every cell: what a gradient or an image is divided by.

The field's second time difference is recorded on a coarse lattice of receivers, squared and summed over time and shots.
As a statistic of rows it is summed over devices like any other; between lattice cells it is interpolated.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from shardfit.core.mesh import n_shards
from shardfit.core.objective import Objective
from shardfit.core.term_makers import statistic_term
from shardfit.domains.seismic.arrays import Series, Velocity
from shardfit.domains.seismic.geometry import Points, Shots
from shardfit.domains.seismic.medium import as_medium, bare, speed
from shardfit.domains.seismic.native import Native
from shardfit.domains.seismic.options import WaveOptions
from shardfit.domains.seismic.propagate import propagate
from shardfit.domains.seismic.simulation import Simulation


@dataclass(frozen=True)
class EnergyModel:
    """Function of a block of shots: (params, rows, cells) → energy (shots, cells)."""

    sim: Simulation
    engine: str | Native = "auto"

    def __call__(self, params: Any, rows: Any, cells: Any) -> Any:
        """Record the lattice and sum squares over time."""
        n = rows["shots"].sources.cells.shape[0]
        lattice = jnp.broadcast_to(cells[:, None], (n, cells.size, 1))
        shots = rows["shots"]._replace(receivers=Points(lattice, jnp.ones(lattice.shape, speed(params).dtype)))
        field = propagate(self.sim, bare(params), rows["wavelet"], shots, self.engine)
        return jnp.sum(jnp.diff(field, 2) ** 2, -1)


def illumination(
    sim: Simulation,
    velocity: Velocity | Mapping[str, Velocity],
    wavelet: Series,
    shots: Shots,
    *,
    every: int = 2,
    batchsize: int = 8,
    mesh: Any = None,
    waves: WaveOptions | None = None,
) -> np.ndarray:
    """Return the energy (nz, nx) of all shots, in arbitrary units.

    Each device works on one shot at a time and holds its field on the lattice for all times.

    Parameters
    ----------
    sim, velocity
        the simulation, and the model (nz, nx) in m/s, or a medium.
    wavelet
        (nt,), (shots, nt) or (shots, sources, nt).
    shots
        places of the sources.
    every
        cells between lattice points.
    batchsize
        shots that are simulated at once.
    mesh
        devices that share them.
    waves
        how waves are computed.

    Example: `illumination(sim, velocity, ricker(10.0, sim.dt, sim.nt), shots)`.

    """
    waves = waves or WaveOptions()
    axes = [np.unique(np.append(np.arange(0, n, every), n - 1)) for n in sim.shape]
    inside = np.ix_(*(along + low for along, low in zip(axes, sim.widths[::2], strict=True)))
    cells = np.ravel_multi_index(inside, sim.padded)
    n = len(shots.sources.cells)
    wavelet = np.asarray(wavelet)
    rows = {
        "shots": shots._replace(receivers=None),
        "wavelet": np.broadcast_to(wavelet, (n, sim.nt)) if wavelet.ndim == 1 else wavelet,
    }
    term = statistic_term(EnergyModel(sim, waves.engine), rows, cells.ravel().astype(np.int32), loss=jnp.sum, chunk=1)
    objective = Objective({"energy": term}).with_precision(waves.precision)
    params = {name: x.astype(waves.dtype) for name, x in as_medium(sim, velocity).items()}
    energy = 0.0
    for block in blocks(n, max(batchsize, n_shards(mesh))):
        some = objective.take(lambda *_, block=block: block).place(mesh)
        energy = energy + np.asarray(some.totals(params)["energy"], np.float64)
    energy = np.reshape(energy, cells.shape)
    for axis, (n, along) in enumerate(zip(sim.shape, axes, strict=True)):
        energy = np.apply_along_axis(lambda line, n=n, along=along: np.interp(np.arange(n), along, line), axis, energy)
    return energy


def blocks(n: int, size: int) -> list[np.ndarray]:
    """Return shot numbers in blocks of at most `size`, of two sizes at most: each size is compiled once."""
    return np.array_split(np.arange(n), -(-n // size))
