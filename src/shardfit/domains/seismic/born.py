"""Single scattering: traces that a small change of the velocity adds, to first order (Born modelling).

As a Problem the change is fitted to what a smooth velocity leaves of the data: least-squares migration.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from shardfit.core.objective import Objective
from shardfit.core.precision import arithmetic
from shardfit.core.problem import Problem
from shardfit.core.term_makers import statistic_term
from shardfit.domains.seismic.arrays import Series, Traces, Velocity
from shardfit.domains.seismic.geometry import Shots, select
from shardfit.domains.seismic.illumination import blocks
from shardfit.domains.seismic.losses import L2
from shardfit.domains.seismic.medium import MediumSimulation
from shardfit.domains.seismic.native import Native
from shardfit.domains.seismic.options import WaveOptions
from shardfit.domains.seismic.problem import ShotModel, mean_loss
from shardfit.domains.seismic.propagate import propagate
from shardfit.domains.seismic.recording import Recording, by_sample, read_once
from shardfit.domains.seismic.simulation import Simulation, check_velocity
from shardfit.domains.seismic.strategies import Strategy


def born(
    sim: Simulation,
    velocity: Velocity,
    change: Velocity,
    wavelet: Series,
    shots: Shots,
    engine: str | Native = "auto",
    memory: str | Strategy = "auto",
) -> Traces:
    """Return the traces (shots, receivers, nt) that a change of the velocity, m/s, adds to first order.

    Linear in the change, and differentiable in it in reverse. Other arguments as of `propagate`.

    Example: `born(sim, smooth, truth - smooth, ricker(10.0, sim.dt, sim.nt), shots)`.
    """
    velocity = jnp.asarray(velocity)

    def traces(v):
        return propagate(sim, v, wavelet, shots, engine, memory)

    return jax.jvp(traces, (velocity,), (jnp.asarray(change, velocity.dtype),))[1]


@dataclass(frozen=True)
class BornModel(ShotModel):
    """Function of the data term of a migration: `known` holds the velocity, params the change."""

    def __call__(self, params: Mapping, rows: Mapping, response: Any, scale: Any, known: Mapping) -> dict[str, Any]:
        """Scatter a block of shots and compare."""
        modelled = born(
            self.sim, known["velocity"], params["change"], rows["wavelet"], rows["shots"], self.engine, self.memory
        )
        weights, observed = rows.get("weights"), jnp.asarray(rows["observed"], modelled.dtype) / scale
        if weights is not None:
            weights = by_sample(weights)
            observed = jnp.where(weights > 0, observed, 0)
        sums, counts = self.loss(modelled / scale, observed, weights)
        return {"sum": sums, "count": counts}


def migration_problem(
    sim: Simulation, velocity: Velocity, recording: Recording, waves: WaveOptions | None = None, batchsize: int = 8
) -> Problem:
    """Return the fit of a change of the velocity {"change": (nz, nx)}, m/s, to what the velocity leaves of the data.

    Quadratic: the mean of squares of (observed - traces in the velocity - born(change)), over the mean square of the
    first two's difference. batchsize: shots modelled at once for that difference.

    Example: `fit(migration_problem(sim, smooth, recording), "lbfgsb", maxiter=10)`.
    """
    if isinstance(sim, MediumSimulation):
        raise ValueError(f"migration is for acoustic waves: give a Simulation, not one of {sim.waves} waves.")
    waves = waves or WaveOptions()
    velocity = np.asarray(velocity, waves.dtype)
    check_velocity(sim, velocity)
    recording.check(sim)
    weights = recording.weight_rows()
    left, rms = read_once(_residual(sim, velocity, recording, waves, batchsize), waves.dtype, weights=weights)
    rows = {"shots": recording.shots, "observed": left, "wavelet": recording.wavelet_rows()}
    term = statistic_term(
        BornModel(sim, L2(), waves.engine, waves.memory),
        rows if weights is None else {**rows, "weights": weights},
        None,
        rms,
        {"velocity": velocity},
        loss=mean_loss,
        chunk=waves.chunk,
        checked=True,
    )
    return Problem(
        Objective({"data": term}),
        x0={"change": np.zeros(sim.shape, waves.dtype)},
        units={"change": "m/s"},
        name="least-squares migration",
        precision=waves.precision,
    )


def _residual(sim: Simulation, velocity: np.ndarray, recording: Recording, waves: WaveOptions, size: int) -> np.ndarray:
    """Return observed minus modelled traces (shots, receivers, nt), made block by block."""
    wavelet, left = recording.wavelet_rows(), np.empty(recording.observed.shape, waves.dtype)
    with arithmetic(waves.precision):
        run = jax.jit(lambda w, shots: propagate(sim, velocity, w, shots, waves.engine, waves.memory))
        for block in blocks(recording.n_shots, size):
            modelled = run(np.asarray(wavelet[block], waves.dtype), select(recording.shots, block))
            left[block] = recording.observed[block] - np.asarray(modelled)
    return left
