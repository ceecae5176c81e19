"""Shot gathers from a velocity model: the one entrance to both engines.

- 'native': compiled time loops on the CPU, acoustic in two and three dimensions, elastic in two, with first derivatives
  forward and in reverse. Built on first use where a compiler is there.
- 'jax': everywhere, with second derivatives and a choice of memory strategies.

`engines.choose_engine` resolves 'auto' and says why. Both give the same numbers to rounding.
"""

import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from shardfit.domains.seismic import native, wave
from shardfit.domains.seismic.arrays import Series, Traces, Velocity
from shardfit.domains.seismic.engines import choose_engine
from shardfit.domains.seismic.geometry import Shots
from shardfit.domains.seismic.loops import record
from shardfit.domains.seismic.medium import MediumSimulation, check_medium
from shardfit.domains.seismic.native import Native
from shardfit.domains.seismic.simulation import (
    Simulation,
    check_cells,
    check_velocity,
    require_finite,
    require_floats,
)
from shardfit.domains.seismic.strategies import Strategy, as_strategy

CACHE = 1 << 21  # bytes of fields of the shots that share a loop: more fall out of a CPU core's cache


def propagate(
    sim: Simulation,
    velocity: Velocity | Mapping[str, Velocity],
    wavelet: Series,
    shots: Shots,
    engine: str | Native = "auto",
    memory: str | Strategy = "auto",
) -> Traces:
    """Return traces (shots, receivers, nt); sample n is the pressure at time n dt.

    velocity: (nz, nx) or (nz, ny, nx) m/s, for other waves a mapping of what their medium has, such as {"vp", "vs",
    "rho"}, {"vp", "epsilon", "delta"}, {"vp", "q"}; its type (float32, float64) is the type of everything. wavelet:
    (nt,) for all, (shots, nt) or (shots, sources, nt). shots: from `acquisition`. engine: 'auto', 'native', 'jax' or
    Native(...). memory: strategy of the JAX engine, see strategies.py; the native one keeps states by its own rule, and
    second derivatives need engine='jax'. Propagators that inject into u[n+1] and record it give this with raw scaling,
    one sample earlier.

    Example: `propagate(sim, jnp.full(sim.shape, 2000.0), ricker(10.0, sim.dt, sim.nt), shots)`.
    """
    if isinstance(sim, MediumSimulation):
        return _in_medium(sim, velocity, wavelet, shots, engine, memory)
    require_floats("velocity", velocity)
    velocity = jnp.asarray(velocity)
    check_velocity(sim, velocity)
    check_cells(sim, shots)
    n_shots, n_sources = shots.sources.cells.shape[:2]
    signature = _signatures(sim, wavelet, velocity.dtype, n_shots, n_sources)
    kappa = wave.padded_kappa(sim, velocity)
    shots = _of_type(shots, velocity.dtype)
    chosen, _ = choose_engine(engine, sim)
    if isinstance(chosen, Native):
        return native.traces(sim, chosen, kappa, signature, shots)
    strategy, _ = as_strategy(memory, sim, n_shots, velocity.dtype.itemsize)

    def block(rows):
        points, signature = rows
        return record(sim, strategy, wave.Medium(kappa, *points), signature)

    together = n_shots
    if jax.default_backend() == "cpu":
        limit = CACHE // (4 * math.prod(sim.padded) * velocity.dtype.itemsize)
        together = max(k for k in range(1, n_shots + 1) if n_shots % k == 0 and k <= max(1, limit))
    if together == n_shots:
        return block((shots, signature))
    rows = jax.tree.map(lambda leaf: leaf.reshape(-1, together, *leaf.shape[1:]), (shots, signature))
    traces = jax.lax.map(block, rows)
    return traces.reshape(n_shots, *traces.shape[2:])


def _in_medium(sim: MediumSimulation, medium: Any, wavelet: Any, shots: Shots, engine: Any, memory: Any) -> jax.Array:
    check_medium(sim, medium)
    check_cells(sim, shots)
    sim.check_shots(medium, shots)
    for name in sim.parameters:
        require_floats(name, medium[name])
    medium = {name: jnp.asarray(medium[name]) for name in sim.parameters}
    dtype = jnp.result_type(*medium.values())
    signature = _signatures(sim, wavelet, dtype, *shots.sources.cells.shape[:2])
    return sim.traces(medium, signature, _of_type(shots, dtype), choose_engine(engine, sim)[0], memory)


def _of_type(shots: Shots, dtype: Any) -> Shots:
    return jax.tree.map(lambda x: jnp.asarray(x, np.int32 if x.dtype.kind == "i" else dtype), shots)


def _signatures(sim: Simulation, given: Any, dtype: Any, n_shots: int, n_sources: int) -> jax.Array:
    found = given.dtype if hasattr(given, "dtype") else np.asarray(given).dtype
    if found.kind not in "fiu":
        raise TypeError(f"wavelet is {found}. Give an array of real numbers.")
    wavelet = jnp.asarray(given, dtype)
    if wavelet.ndim not in (1, 2, 3) or wavelet.shape[-1] != sim.nt:
        raise ValueError(
            f"wavelet has shape {wavelet.shape}; give (nt,), (shots, nt) or (shots, sources, nt) with nt={sim.nt}."
        )
    require_finite("wavelet", wavelet)
    shape = wavelet.shape[:-1] + (1,) * (wavelet.ndim == 2)
    if wavelet.ndim > 1 and (shape[0] != n_shots or shape[1] not in (1, n_sources)):
        raise ValueError(f"wavelet has shape {wavelet.shape} for {n_shots} shots of {n_sources} sources.")
    return jnp.broadcast_to(wavelet.reshape(*shape, sim.nt), (n_shots, n_sources, sim.nt))
