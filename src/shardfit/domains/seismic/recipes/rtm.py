"""rtm: an image of reflectors by reverse-time migration, the gradient of the misfit in a fixed smooth velocity."""

from typing import Any

import numpy as np

from shardfit.core.mesh import n_shards
from shardfit.core.precision import problem_scope
from shardfit.domains.seismic.geometry import Shots
from shardfit.domains.seismic.illumination import blocks, illumination
from shardfit.domains.seismic.native import Native
from shardfit.domains.seismic.problem import inversion_problem
from shardfit.domains.seismic.simulation import Simulation
from shardfit.domains.seismic.strategies import Strategy


def rtm(
    sim: Simulation,
    velocity: Any,
    wavelet: Any,
    shots: Shots,
    observed: Any,
    *,
    weights: Any = None,
    batchsize: int = 8,
    compensation: float = 1.0,
    floor: float = 1e-2,
    high_pass: bool = True,
    mesh: Any = None,
    engine: str | Native = "auto",
    memory: str | Strategy = "auto",
    precision: str = "float32",
) -> np.ndarray:
    """Return the image (nz, nx), positive where the velocity should rise, in arbitrary units.

    velocity: (nz, nx), smooth. wavelet, shots, observed, weights: see `inversion_problem`; what the velocity explains,
    such as the direct wave, is subtracted from the data. batchsize: shots worked on at once; memory does not grow with
    the survey. compensation: power of the division by the source's energy, 0 for none; floor: share of its maximum that
    is added. high_pass: take minus the Laplacian, which removes the smooth part along the paths.

    Example: `rtm(sim, smooth, ricker(10.0, sim.dt, sim.nt), shots, data)`.
    """
    how = {"engine": engine, "precision": precision}
    problem = inversion_problem(
        sim, velocity, wavelet, shots, observed, reduction="sum", weights=weights, memory=memory, **how
    )
    n, size = problem.objective.n_rows["data"], max(batchsize, n_shards(mesh))
    image = np.zeros(sim.shape)
    with problem_scope(precision):
        for block in blocks(n, size):
            some = problem.objective.take(lambda *_, block=block: block).place(mesh)
            gradient = some.value_and_grad(problem.x0)[1]["velocity"]
            image -= np.asarray(gradient, np.float64) * (len(block) / n)  # a batch stands for all shots
    if compensation:
        energy = illumination(sim, velocity, wavelet, shots, batchsize=size, mesh=mesh, **how)
        image /= (energy / energy.max() + floor) ** compensation
    return -laplacian(image, sim.dh) if high_pass else image


def laplacian(image: np.ndarray, spacing: tuple[float, ...]) -> np.ndarray:
    """Return the second derivatives along all axes, summed; edges are repeated."""
    found = np.zeros_like(image)
    for axis, h in enumerate(spacing):
        pad = [(1, 1) if i == axis else (0, 0) for i in range(image.ndim)]
        found += np.diff(np.pad(image, pad, mode="edge"), 2, axis=axis) / h**2
    return found
