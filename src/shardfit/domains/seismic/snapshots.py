"""The wave of one shot as a film: a receiver in every few cells, on either engine."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from shardfit.domains.seismic.geometry import acquisition
from shardfit.domains.seismic.propagate import propagate
from shardfit.domains.seismic.simulation import Simulation

MOST = 1 << 26  # numbers recorded: 256 MB in float32


def wavefield(
    sim: Simulation, velocity: Any, wavelet: Any, source: Any, frames: int = 36, engine: Any = "auto"
) -> tuple[np.ndarray, np.ndarray]:
    """Return pressure (frames, nz', nx') and times (frames,) of one shot, on every few cells if there are many.

    source: (z, x) in cells. Example: `wavefield(sim, model, ricker(6.0, sim.dt, sim.nt), (1, 50))`.
    """
    step = max(1, math.ceil(math.sqrt(math.prod(sim.shape) * sim.nt / MOST)))
    z, x = (np.arange(0, n, step) for n in sim.shape)
    grid = np.stack(np.meshgrid(z, x, indexing="ij"), -1).reshape(-1, 2)
    shot = acquisition(sim, [source], grid)
    model = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), velocity)
    traces = np.asarray(propagate(sim, model, wavelet, shot, engine))[0]
    when = np.linspace(0, sim.nt - 1, min(frames, sim.nt)).astype(int)
    return traces[:, when].T.reshape(len(when), len(z), len(x)), sim.dt * when
