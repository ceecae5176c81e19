"""rtm: an image of reflectors by reverse-time migration, the gradient of the misfit in a fixed smooth velocity."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from shardfit.core.mesh import n_shards
from shardfit.domains.seismic.arrays import Velocity
from shardfit.domains.seismic.illumination import blocks, illumination
from shardfit.domains.seismic.options import MisfitOptions, WaveOptions
from shardfit.domains.seismic.problem import inversion_problem
from shardfit.domains.seismic.recording import Recording
from shardfit.domains.seismic.simulation import Simulation


@dataclass(frozen=True)
class MigrationOptions:
    """Options of `rtm`.

    Attributes
    ----------
    batchsize
        shots worked on at once; memory does not grow with the survey.
    compensation
        power of the division by the source's energy, 0 for none.
    floor
        share of the largest energy that is added before dividing.
    high_pass
        take minus the Laplacian, which removes the smooth part along the paths.

    """

    batchsize: int = 8
    compensation: float = 1.0
    floor: float = 1e-2
    high_pass: bool = True

    def __post_init__(self):
        if self.batchsize < 1:
            raise ValueError(f"rtm: batchsize={self.batchsize} must be at least 1.")
        if not self.floor >= 0:
            raise ValueError(f"rtm: floor={self.floor} must be zero or positive.")


def rtm(
    sim: Simulation,
    velocity: Velocity,
    recording: Recording,
    options: MigrationOptions | None = None,
    *,
    waves: WaveOptions | None = None,
    mesh: Any = None,
) -> np.ndarray:
    """Return the image (nz, nx), positive where the velocity should rise, in arbitrary units.

    Parameters
    ----------
    sim
        the simulation.
    velocity
        (nz, nx) m/s, smooth.
    recording
        shots, wavelet and data; what the velocity explains, such as the direct wave, is subtracted from the data.
    options
        batches, compensation and filter.
    waves
        how waves are computed.
    mesh
        devices that share the shots of a batch.

    Example: `rtm(sim, smooth, Recording(shots, ricker(10.0, sim.dt, sim.nt), data))`.

    """
    options, waves = options or MigrationOptions(), waves or WaveOptions()
    problem = inversion_problem(sim, velocity, recording, MisfitOptions(reduction="sum"), waves=waves)
    n, size = recording.n_shots, max(options.batchsize, n_shards(mesh))
    image = np.zeros(sim.shape)
    for block in blocks(n, size):
        some = problem.objective.take(lambda *_, block=block: block).place(mesh)
        gradient = some.value_and_grad(problem.x0)[1]["velocity"]
        image -= np.asarray(gradient, np.float64) * (len(block) / n)  # a batch stands for all shots
    if options.compensation:
        energy = illumination(sim, velocity, recording.wavelet, recording.shots, batchsize=size, mesh=mesh, waves=waves)
        image /= (energy / energy.max() + options.floor) ** options.compensation
    return -laplacian(image, sim.dh) if options.high_pass else image


def laplacian(image: np.ndarray, spacing: tuple[float, ...]) -> np.ndarray:
    """Return the second derivatives along all axes, summed; edges are repeated."""
    second = np.zeros_like(image)
    for axis, h in enumerate(spacing):
        pad = [(1, 1) if i == axis else (0, 0) for i in range(image.ndim)]
        second += np.diff(np.pad(image, pad, mode="edge"), 2, axis=axis) / h**2
    return second
