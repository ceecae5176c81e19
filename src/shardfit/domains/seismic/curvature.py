"""Diagonal of the Gauss-Newton Hessian JᵀJ of squared residuals: how much the data feel a change of every cell.

White noise η sent back through the adjoint has (Jᵀη)² for its mean square in every cell exactly the diagonal, with all
that decides it: sources, receivers, wavelet, times, spreading, and how fast traces change with this parameter. One
gradient of a few shots, squared and smoothed, is a good estimate.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from shardfit.core.objective import Objective
from shardfit.core.term_makers import statistic_term
from shardfit.domains.seismic.arrays import Response
from shardfit.domains.seismic.bands import filtered
from shardfit.domains.seismic.geometry import select
from shardfit.domains.seismic.medium import bare
from shardfit.domains.seismic.options import WaveOptions
from shardfit.domains.seismic.propagate import propagate
from shardfit.domains.seismic.recording import Recording, by_sample
from shardfit.domains.seismic.simulation import Simulation

PROBES = 8  # shots, spread over the survey
SMOOTHED = 3.0  # cells: over so many the squares of noise are averaged


@dataclass(frozen=True)
class NoiseModel:
    """Function of one shot: (params, rows, response, known) → squares of what noise leaves in every cell, by name."""

    sim: Simulation
    waves: WaveOptions

    def __call__(self, params: Mapping, rows: Mapping, response: Any, known: Mapping) -> dict[str, Any]:
        """Send noise back through the adjoint."""

        def traces(params):
            medium = bare({**known, **params})
            engine, memory = self.waves.engine, self.waves.memory
            return filtered(propagate(self.sim, medium, rows["wavelet"], rows["shots"], engine, memory), response)

        (back,) = jax.vjp(traces, dict(params))[1](rows["noise"])
        return {name: (field**2)[None] for name, field in back.items()}


def hessian_diagonal(
    sim: Simulation,
    fitted: Mapping[str, Any],
    recording: Recording,
    known: Mapping[str, Any] | None = None,
    *,
    response: Response | None = None,
    movable: np.ndarray | None = None,
    seed: int = 0,
    mesh: Any = None,
    waves: WaveOptions | None = None,
) -> dict[str, np.ndarray]:
    """Return the diagonal (nz, nx) of JᵀJ for every field that is fitted, up to a factor that they share.

    Parameters
    ----------
    sim
        the simulation.
    fitted, known
        {"velocity": (nz, nx)}, or the fields of a medium that are fitted, and the others.
    recording
        shots, wavelet and weights of the traces; of the data only the size is used.
    response
        filter of the traces, see `MisfitOptions`.
    movable
        (nz, nx) cells that count, True or not 0; others get what their neighbours have. None: all do.
    seed
        of the noise.
    mesh, waves
        devices that share the shots, and how waves are computed.

    Example: `hessian_diagonal(sim, {"velocity": start}, recording)["velocity"]`.

    """
    waves = waves or WaveOptions()
    rows = _probes(recording, waves.dtype, seed)
    model, known = NoiseModel(sim, waves), {name: np.asarray(x, waves.dtype) for name, x in (known or {}).items()}
    term = statistic_term(model, rows, response, known, loss=_nothing, chunk=1)
    params = {name: np.asarray(x, waves.dtype) for name, x in fitted.items()}
    objective = Objective({"noise": term}).with_precision(waves.precision)
    totals = objective.place(mesh).totals(params)["noise"]
    counts = np.ones(sim.shape) if movable is None else np.asarray(movable != 0, float)
    return {name: _averaged(np.asarray(field, np.float64), counts) for name, field in totals.items()}


def _probes(recording: Recording, dtype: Any, seed: int) -> dict[str, Any]:
    """Return some shots, and noise in place of their traces."""
    some = np.unique(np.linspace(0, recording.n_shots - 1, PROBES).round().astype(int))
    noise = np.random.default_rng(seed).standard_normal((len(some), *recording.observed.shape[1:]), dtype)
    weights = recording.weight_rows()
    if weights is not None:
        weights = np.asarray(weights[some], dtype)
        noise *= np.sqrt(by_sample(weights))
    # of the size of the data: squares of faint gradients vanish in float32
    noise /= np.sqrt(np.mean(np.square(recording.observed[some], dtype=np.float64))) or 1.0
    return {"shots": select(recording.shots, some), "wavelet": recording.wavelet_rows()[some], "noise": noise}


def _averaged(squares: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return the squares smoothed over the cells that count."""
    from scipy.ndimage import gaussian_filter

    how = {"mode": "nearest", "truncate": 8.0}
    total, share = (gaussian_filter(field, SMOOTHED, **how) for field in (squares * counts, counts))
    found = total / np.where(share > 0, share, 1)
    return np.where(share > 0, found, found.max(initial=0.0))


def _nothing(totals: Any, *_: Any) -> Any:
    return jnp.zeros((), next(iter(totals.values())).dtype)
