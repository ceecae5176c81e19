"""inversion_problem: from recorded shots to a Problem that `fit`, surveys and samplers take. A shot is a row.

Observed data are read through once, block by block, to be checked, filtered and measured; then only the shots of a step
are read, and an evaluation filters what it models, not what was observed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import jax.numpy as jnp
import numpy as np

from shardfit.core.objective import Objective
from shardfit.core.precision import refuse_memory_map
from shardfit.core.problem import Problem
from shardfit.core.term_makers import statistic_term
from shardfit.core.terms import Penalty
from shardfit.domains.seismic.arrays import Velocity
from shardfit.domains.seismic.bands import filtered
from shardfit.domains.seismic.engines import choose_engine
from shardfit.domains.seismic.losses import Loss, as_loss, units
from shardfit.domains.seismic.medium import MediumSimulation, check_medium
from shardfit.domains.seismic.native import Native
from shardfit.domains.seismic.options import MisfitOptions, ModelOptions, WaveOptions
from shardfit.domains.seismic.parametrisation import transform_of
from shardfit.domains.seismic.propagate import propagate
from shardfit.domains.seismic.recording import Recording, by_sample, read_once
from shardfit.domains.seismic.signature import matched
from shardfit.domains.seismic.simulation import Simulation, check_velocity
from shardfit.domains.seismic.strategies import Full, Strategy


@dataclass(frozen=True)
class ShotModel:
    """Function of the data term: (params, rows, response, scale, known) → sum and count of every shot.

    response: filter of the modelled traces; the observed ones have gone through it. known: parameters of a
    medium that are not fitted. match: None, 'scalar' or 'filter', fitted to the observed data of every shot at every
    evaluation.
    """

    sim: Simulation
    loss: Loss
    engine: str | Native = "auto"
    memory: str | Strategy = "auto"
    per_trace: bool = False
    match: str | None = None

    def portable(self) -> "ShotModel":
        """Return the same function without what depends on the machine, threads and free memory: see check.identity."""
        chosen = "jax" if choose_engine(self.engine, self.sim)[0] == "jax" else Native(1, 1)
        return replace(self, engine=chosen, memory=Full() if self.memory == "auto" else self.memory)

    def __call__(self, params: Mapping, rows: Mapping, response: Any, scale: Any, known: Mapping) -> dict[str, Any]:
        """Propagate a block of shots and compare."""
        sums, counts = self.loss(*self.traces(params, rows, response, scale, known))
        return {"sum": sums, "count": counts}

    def traces(self, params: Mapping, rows: Mapping, response: Any, scale: Any, known: Mapping) -> tuple:
        """Return what the loss compares: modelled and observed traces, and weights or None."""
        medium = {**known, **params} if isinstance(self.sim, MediumSimulation) else params["velocity"]
        modelled = propagate(self.sim, medium, rows["wavelet"], rows["shots"], self.engine, self.memory)
        observed = jnp.asarray(rows["observed"], modelled.dtype) / scale
        modelled = filtered(modelled, response) / scale
        weights = rows.get("weights")
        if weights is not None:
            weights = by_sample(weights)
            observed = jnp.where(weights > 0, observed, 0)  # 0 times the square of a spike is not a number in float32
        if self.match is not None:
            modelled = matched(self.match, modelled, observed, weights)
        if self.per_trace:
            modelled, observed = (traces * self.sim.nt**0.5 for traces in units(modelled, observed))
        return modelled, observed, weights


def mean_loss(totals: Mapping, *_: Any) -> Any:
    """Mean over all that counts, however it is spread over devices."""
    return totals["sum"] / jnp.where(totals["count"] > 0, totals["count"], 1)


def sum_loss(totals: Mapping, *_: Any) -> Any:
    """Sum over all shots."""
    return totals["sum"]


def inversion_problem(
    sim: Simulation,
    start: Velocity | Mapping[str, Velocity],
    recording: Recording,
    misfit: MisfitOptions | None = None,
    model: ModelOptions | None = None,
    waves: WaveOptions | None = None,
    penalties: Mapping[str, Penalty] | None = None,
) -> Problem:
    """Return the fit of a velocity model {"velocity": (nz, nx)}, m/s, to recorded shots.

    Parameters
    ----------
    sim
        the simulation; with another than `Simulation` what is fitted are some of the parameters of its medium, such
        as vp, vs and rho.
    start
        (nz, nx) m/s; of a medium a mapping of what is fitted, `model.known` being one of the rest.
    recording
        shots, wavelet and observed data.
    misfit
        how traces are compared.
    model
        bounds and coordinates of what is fitted.
    waves
        how waves are computed.
    penalties
        by name, see `penalties`.

    Example: `fit(inversion_problem(sim, start, Recording(shots, wavelet, data)), "lbfgsb", maxiter=20)`.

    """
    misfit, model, waves = misfit or MisfitOptions(), model or ModelOptions(), waves or WaveOptions()
    if isinstance(sim, MediumSimulation):
        known, fitted = _in_medium(sim, start, model, waves.dtype)
        sim.check_shots({**known, **fitted["x0"]}, recording.shots)
    else:
        known, fitted = _acoustic(sim, start, model, waves.dtype)
    engine = choose_engine(waves.engine, sim)[1]
    recording.check(sim)
    _check_mapped(recording.observed, misfit.response, waves)
    weights = recording.weight_rows()
    observed, rms = read_once(recording.observed, waves.dtype, misfit.response, weights)
    rows = {"shots": recording.shots, "observed": observed, "wavelet": recording.wavelet_rows()}
    per_trace = misfit.normalise == "trace"
    term = statistic_term(
        ShotModel(sim, as_loss(misfit.loss), waves.engine, waves.memory, per_trace, misfit.match),
        rows if weights is None else {**rows, "weights": weights},
        misfit.response,
        1.0 if misfit.normalise == "none" else rms,
        known,
        loss=mean_loss if misfit.reduction == "mean" else sum_loss,
        chunk=waves.chunk,
        checked=True,
    )
    return Problem(
        Objective({"data": term, **(penalties or {})}),
        **fitted,
        name="waveform inversion",
        decode=lambda params: {"engine": engine},
        precision=waves.precision,
    )


def _acoustic(sim: Simulation, start: Any, model: ModelOptions, dtype: Any) -> tuple[dict, dict]:
    """Return what is known, and the start, bounds, transforms and units of a Problem."""
    if model.known:
        raise ValueError(f"known={sorted(model.known)}: acoustic waves have no parameter but the velocity.")
    if isinstance(model.unit, Mapping):
        raise ValueError(f"unit={model.unit!r}: acoustic waves have one parameter. Give a number.")
    start = np.asarray(start, dtype)
    check_velocity(sim, start)
    _check_bounds(sim, start, model.bounds)
    return {}, {
        "x0": {"velocity": start},
        "bounds": None if model.bounds is None else {"velocity": tuple(model.bounds)},
        "transforms": {"velocity": transform_of(model.parameter, start, model.unit)},
        "units": {"velocity": "m/s"},
    }


def _in_medium(sim: MediumSimulation, start: Any, model: ModelOptions, dtype: Any) -> tuple[dict, dict]:
    """The same for a medium of several parameters."""
    if model.parameter != "velocity":
        raise ValueError(
            f"parameter={model.parameter!r} is for acoustic waves. Those that are {sim.waves} are fitted in "
            f"{sim.names}."
        )
    known = dict(model.known or {})
    if not isinstance(start, Mapping) or not start or set(start) & set(known):
        raise ValueError(f"start: give a mapping of what is fitted of {sim.names}, and the others as `known`.")
    start, known = ({name: np.asarray(x, dtype) for name, x in given.items()} for given in (start, known))
    check_medium(sim, {**known, **start})
    for name, values in start.items():
        if not np.isfinite(values).all():
            raise ValueError(f"start: {name} is infinite somewhere. What is fitted must be finite.")
    bounds, unit = model.bounds or {}, {} if model.unit == 1.0 else model.unit
    for name, given in (("bounds", bounds), ("unit", unit)):
        if not isinstance(given, Mapping) or not set(given) <= set(start):
            raise ValueError(f"{name}={given!r}: give a mapping by what is fitted, {sorted(start)}.")
    assert isinstance(bounds, Mapping) and isinstance(unit, Mapping)
    # what nobody bounds could come to where waves grow without end
    bounds = {**sim.ranges({**known, **start}, tuple(start), bounds.get("vp")), **bounds}
    _check_ranges(sim, start, known, bounds)
    kinds = {name: sim.parameters[name] for name in start}
    return known, {
        "x0": start,
        "bounds": bounds,
        "transforms": {n: transform_of(kinds[n].coordinate, x, unit.get(n, 1.0)) for n, x in start.items()},
        "units": {name: kind.unit for name, kind in kinds.items()},
    }


def _check_ranges(sim: MediumSimulation, start: Mapping, known: Mapping, bounds: Mapping) -> None:
    for name, given in bounds.items():
        if name == "vp":
            _check_bounds(sim, start[name], given)
        else:
            _check_start(name, start[name], *(np.asarray(end, float) for end in given))
    low, high = ({name: np.asarray(given[end], float) for name, given in bounds.items()} for end in (0, 1))
    sim.refuse_ranges({**known, **low}, {**known, **high})


def _check_mapped(observed: np.ndarray, response: Any, waves: WaveOptions) -> None:
    if response is None:  # filtered data are new arrays
        refuse_memory_map("observed", observed, waves.precision)


def _check_bounds(sim: Simulation, start: np.ndarray, bounds: Any) -> None:
    if bounds is None:
        return
    low, high = (np.asarray(end, float) for end in bounds)
    if not low.min() > 0:
        raise ValueError(f"bounds: the lowest velocity {low.min():g} m/s must be positive.")
    if high.max() > sim.v_max:
        raise ValueError(
            f"bounds: the highest velocity {high.max():g} m/s is above v_max={sim.v_max:g} of the simulation, for "
            "which the time step was checked. Lower it, or raise v_max, which may need a smaller dt."
        )
    _check_start("start", start, low, high)


def _check_start(name: str, start: np.ndarray, low: np.ndarray, high: np.ndarray) -> None:
    outside = (start < low.astype(start.dtype)) | (start > high.astype(start.dtype))
    if outside.any():
        cell = tuple(map(int, np.argwhere(outside)[0]))
        unit = " m/s" if name == "start" else ""
        raise ValueError(f"{name} is {start[cell]:g}{unit} at cell {cell}, outside the bounds. Move one of the two.")
