"""rtm: an image of reflectors by reverse-time migration, the gradient of the misfit in a fixed smooth velocity.

With iterations it is least-squares migration: the change of the velocity whose single scattering fits the data.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from shardfit.core.mesh import n_shards
from shardfit.core.problem import Problem
from shardfit.domains.seismic.arrays import Velocity
from shardfit.domains.seismic.born import migration_problem
from shardfit.domains.seismic.conditioning import Conditioning
from shardfit.domains.seismic.illumination import blocks, illumination
from shardfit.domains.seismic.medium import MediumSimulation, as_medium, bare
from shardfit.domains.seismic.options import MisfitOptions, ModelOptions, WaveOptions
from shardfit.domains.seismic.problem import inversion_problem
from shardfit.domains.seismic.recipes.lbfgs import PreconditionedLBFGS
from shardfit.domains.seismic.recording import Recording
from shardfit.domains.seismic.simulation import Simulation
from shardfit.fitting import fit
from shardfit.options.declared import Options, option

SUM = MisfitOptions(reduction="sum")


@dataclass(frozen=True)
class MigrationOptions(Options):
    """Options of `rtm`."""

    batchsize: int = option(8, "shots worked on at once\nmemory does not grow with the survey", least=1)
    compensation: float = option(1.0, "power of the division by the source's energy, 0 for none")
    floor: float = option(1e-2, "share of the largest energy that is added before dividing", least=0)
    high_pass: bool = option(True, "take minus the Laplacian, which removes the smooth part along the paths")
    iterations: int = option(
        0, "of least-squares migration, preconditioned by the compensation; 0 is plain migration", least=0
    )

    def check(self, sim: Simulation) -> None:
        """Raise for what does not go with these waves."""
        if self.iterations and isinstance(sim, MediumSimulation):
            raise ValueError(f"rtm: least-squares migration is acoustic. Use iterations=0 with {sim.waves} waves.")


def rtm(
    sim: Simulation,
    velocity: Velocity | Mapping[str, Velocity],
    recording: Recording,
    options: MigrationOptions | None = None,
    *,
    waves: WaveOptions | None = None,
    mesh: Any = None,
) -> np.ndarray:
    """Return the image (nz, nx), positive where the velocity should rise, in arbitrary units.

    With iterations and without the high-pass filter it is the change of the velocity in m/s.

    Parameters
    ----------
    sim
        the simulation.
    velocity
        (nz, nx) m/s, smooth; with another than `Simulation` a medium, such as {"vp", "vs", "rho"}, and the image is
        that of vp.
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
    options.check(sim)
    size, energy = max(options.batchsize, n_shards(mesh)), None
    if options.compensation:
        energy = illumination(sim, velocity, recording.wavelet, recording.shots, batchsize=size, mesh=mesh, waves=waves)
        energy = energy / energy.max() + options.floor
    if options.iterations:
        problem = migration_problem(sim, np.asarray(velocity), recording, waves, size)
        image = _least_squares(problem, options, energy, mesh)
    else:
        medium = as_medium(sim, velocity)
        model, start = ModelOptions(), bare(medium)
        if "vp" in medium:
            model = ModelOptions(known={name: x for name, x in medium.items() if name != "vp"})
            start = {"vp": medium["vp"]}
        problem = inversion_problem(sim, start, recording, SUM, model, waves)
        image = _migrated(problem, recording.n_shots, size, mesh)
        image = image if energy is None else image / energy**options.compensation
    return -laplacian(image, sim.dh) if options.high_pass else image


def _migrated(problem: Problem, n: int, size: int, mesh: Any) -> np.ndarray:
    """Return minus the gradient of the misfit of n shots, a block at a time."""
    (name,) = problem.x0
    image = np.zeros(problem.x0[name].shape)
    for block in blocks(n, size):
        some = problem.objective.take(lambda *_, block=block: block).place(mesh)
        gradient = some.value_and_grad(problem.x0)[1][name]
        image -= np.asarray(gradient, np.float64) * (len(block) / n)  # a batch stands for all shots
    return image


def _least_squares(problem: Problem, options: MigrationOptions, energy: np.ndarray | None, mesh: Any) -> np.ndarray:
    """Return the change of the velocity after some steps of preconditioned L-BFGS, which is linear here."""
    shape = problem.x0["change"].shape
    weights = np.ones(shape) if energy is None else energy**-options.compensation
    ends = {"maxiter": options.iterations, "gtol": 0.0, "ftol": 0.0}
    solver = PreconditionedLBFGS.of(Conditioning(), np.ones(shape), weights, **ends)
    result = fit(problem, solver, mesh=mesh, certify=False, progress=False)
    return np.asarray(result.params["change"], np.float64)


def laplacian(image: np.ndarray, spacing: tuple[float, ...]) -> np.ndarray:
    """Return the second derivatives along all axes, summed; edges are repeated."""
    second = np.zeros_like(image)
    for axis, h in enumerate(spacing):
        pad = [(1, 1) if i == axis else (0, 0) for i in range(image.ndim)]
        second += np.diff(np.pad(image, pad, mode="edge"), 2, axis=axis) / h**2
    return second
