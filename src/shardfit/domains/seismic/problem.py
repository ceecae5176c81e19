"""inversion_problem: from recorded shots to a Problem that `fit`, surveys and samplers take. A shot is a row.

Observed data stay where they are, a NumPy array or a memory map: they are read through once, block by block, to be
checked and measured, and then only the shots of a step are read.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from shardfit.core.errors import suggestion
from shardfit.core.objective import Objective
from shardfit.core.precision import PRECISIONS
from shardfit.core.problem import Problem
from shardfit.core.terms import Penalty, statistic_term
from shardfit.domains.seismic.bands import filtered
from shardfit.domains.seismic.elastic import ElasticSimulation, check_medium
from shardfit.domains.seismic.engines import choose_engine
from shardfit.domains.seismic.geometry import Shots
from shardfit.domains.seismic.losses import Loss, as_loss, units
from shardfit.domains.seismic.native import Native
from shardfit.domains.seismic.parametrisation import transform_of
from shardfit.domains.seismic.propagate import propagate
from shardfit.domains.seismic.signature import matched
from shardfit.domains.seismic.simulation import Simulation, check_velocity
from shardfit.domains.seismic.strategies import Strategy

BLOCK = 1 << 24  # samples looked at in one go
NORMALISE = ("rms", "trace", "none")
REDUCTIONS = ("mean", "sum")


@dataclass(frozen=True)
class ShotModel:
    """Function of the data term: (params, rows, response, scale, known) → sum and count of every shot.

    known: parameters of an elastic medium that are not fitted. match: None, 'scalar' or 'filter', fitted to the
    observed data of every shot at every evaluation.
    """

    sim: Simulation
    loss: Loss
    engine: str | Native = "auto"
    memory: str | Strategy = "auto"
    per_trace: bool = False
    match: str | None = None

    def __post_init__(self):
        # by this a run directory tells fits with different models apart
        object.__setattr__(self, "__qualname__", repr(self))

    def __call__(self, params: Mapping, rows: Mapping, response: Any, scale: Any, known: Mapping) -> dict[str, Any]:
        """Propagate a block of shots and compare."""
        medium = {**known, **params} if isinstance(self.sim, ElasticSimulation) else params["velocity"]
        modelled = propagate(self.sim, medium, rows["wavelet"], rows["shots"], self.engine, self.memory)
        observed = jnp.asarray(rows["observed"], modelled.dtype)
        modelled, observed = (filtered(traces, response) / scale for traces in (modelled, observed))
        weights = rows.get("weights")
        if weights is not None:
            weights = weights.reshape(weights.shape + (1,) * (3 - weights.ndim))
        if self.match is not None:
            modelled = matched(self.match, modelled, observed, weights)
        if self.per_trace:
            modelled, observed = (traces * self.sim.nt**0.5 for traces in units(modelled, observed))
        sums, counts = self.loss(modelled, observed, weights)
        return {"sum": sums, "count": counts}


def mean_loss(totals: Mapping, *_: Any) -> Any:
    """Mean over all that counts, however it is spread over devices."""
    return totals["sum"] / jnp.where(totals["count"] > 0, totals["count"], 1)


def sum_loss(totals: Mapping, *_: Any) -> Any:
    """Sum over all shots."""
    return totals["sum"]


def inversion_problem(
    sim: Simulation,
    start: Any,
    wavelet: Any,
    shots: Shots,
    observed: Any,
    *,
    loss: str | Loss = "l2",
    normalise: str = "rms",
    reduction: str = "mean",
    bounds: tuple[Any, Any] | Mapping[str, tuple[Any, Any]] | None = None,
    parameter: str = "velocity",
    unit: float | Mapping[str, float] = 1.0,
    known: Mapping[str, Any] | None = None,
    penalties: Mapping[str, Penalty] | None = None,
    weights: Any = None,
    response: Any = None,
    match: str | None = None,
    engine: str | Native = "auto",
    memory: str | Strategy = "auto",
    chunk: int | None = None,
    precision: str = "float32",
) -> Problem:
    """Return the fit of a velocity model {"velocity": (nz, nx)}, m/s, to recorded shots.

    start: (nz, nx). wavelet: (nt,), (shots, nt) or (shots, sources, nt). observed: (shots, receivers, nt), NumPy or a
    memory map. loss: a name or object of `losses`. normalise: divide modelled and observed by the rms of all observed
    data ('rms'), every trace by its own ('trace'), or not at all ('none'). reduction: 'mean' or 'sum' over what counts.
    bounds: (lowest, highest) velocity, numbers or (nz, nx). parameter: what a solver sees, see `parametrisation`, in
    units of `unit` m/s. penalties: by name, see `penalties`. weights: (shots,), (shots, receivers) or (shots,
    receivers, nt), 0 removes. response: filter of both sides, from `low_pass`. match: 'scalar' or 'filter' fits the
    source of every shot at every evaluation, see `signature`. chunk: most shots that a device works on at once. engine,
    memory: see `propagate`.

    With an `ElasticSimulation`, start is a mapping of what is fitted, known one of the rest of vp, vs and rho; bounds
    and unit are mappings by the same names. Keep the bounds of vs below those of vp. A solver's step is one unit of
    each, so that units set the rates: {"vs": 0.58} lets vs change by 0.58 m/s where vp changes by 1.

    Example: `fit(inversion_problem(sim, start, wavelet, shots, data, bounds=(1500, 4500)), "lbfgsb", maxiter=20)`.
    """
    for name, value, names in (("normalise", normalise, NORMALISE), ("reduction", reduction, REDUCTIONS)):
        if value not in names:
            raise ValueError(f"inversion_problem: unknown {name} {value!r}.{suggestion(str(value), names)}")
    if precision not in PRECISIONS:
        raise ValueError(f"unknown precision {precision!r}.{suggestion(str(precision), PRECISIONS)}")
    if isinstance(sim, ElasticSimulation):
        known, fitted = _elastic(sim, start, bounds, parameter, unit, known or {}, PRECISIONS[precision])
        used = "jax: elastic waves"
    else:
        known, fitted = _acoustic(sim, start, bounds, parameter, unit, known or {}, PRECISIONS[precision])
        used = choose_engine(engine, sim)[1]
    observed = _check_observed(sim, shots, observed, precision)
    rows = {"shots": shots, "observed": observed, "wavelet": _wavelet_rows(sim, wavelet, shots)}
    weights = _weight_rows(shots, weights, observed.shape)
    scale = 1.0 if normalise == "none" else data_rms(observed, response)
    model = ShotModel(sim, as_loss(loss), engine, memory, normalise == "trace", match)
    term = statistic_term(
        model,
        rows if weights is None else {**rows, "weights": weights},
        response,
        scale,
        known,
        loss=mean_loss if reduction == "mean" else sum_loss,
        chunk=chunk,
    )
    return Problem(
        Objective({"data": term, **(penalties or {})}),
        **fitted,
        name="waveform inversion",
        decode=lambda params: {"engine": used},
        precision=precision,
    )


def _acoustic(
    sim: Simulation, start: Any, bounds: Any, parameter: str, unit: Any, known: Mapping, dtype: Any
) -> tuple[dict, dict]:
    """Return what is known, and the start, bounds, transforms and units of a Problem."""
    if known:
        raise ValueError(f"known={sorted(known)}: acoustic waves have no parameter but the velocity.")
    start = np.asarray(start, dtype)
    check_velocity(sim, start)
    _check_bounds(sim, start, bounds)
    return {}, {
        "x0": {"velocity": start},
        "bounds": None if bounds is None else {"velocity": tuple(bounds)},
        "transforms": {"velocity": transform_of(parameter, start, unit)},
        "units": {"velocity": "m/s"},
    }


def _elastic(
    sim: ElasticSimulation, start: Any, bounds: Any, parameter: str, unit: Any, known: Mapping, dtype: Any
) -> tuple[dict, dict]:
    """The same for an elastic medium."""
    if parameter != "velocity":
        raise ValueError(f"parameter={parameter!r} is for acoustic waves. Elastic ones are fitted in vp, vs and rho.")
    if not isinstance(start, Mapping) or not start or set(start) & set(known):
        raise ValueError("start: give a mapping of what is fitted of vp, vs and rho, and the others as `known`.")
    start, known = ({name: np.asarray(x, dtype) for name, x in given.items()} for given in (start, known))
    check_medium(sim, {**known, **start})
    bounds, unit = bounds or {}, {} if unit == 1.0 else unit
    for name, given in (("bounds", bounds), ("unit", unit)):
        if not isinstance(given, Mapping) or not set(given) <= set(start):
            raise ValueError(f"{name}={given!r}: give a mapping by what is fitted, {sorted(start)}.")
    if "vp" in bounds:
        _check_bounds(sim, start["vp"], bounds["vp"])
    return known, {
        "x0": start,
        "bounds": dict(bounds) or None,
        "transforms": {name: transform_of(parameter, x, unit.get(name, 1.0)) for name, x in start.items()},
        "units": {name: "kg/m³" if name == "rho" else "m/s" for name in start},
    }


def data_rms(observed: np.ndarray, response: Any = None) -> float:
    """Return the root mean square of all data, filtered first where a response is given; raise for a shot with NaN."""
    squares = 0.0
    step = max(1, BLOCK // (observed.shape[1] * observed.shape[2]))
    for first in range(0, len(observed), step):
        block = filtered(np.asarray(observed[first : first + step]), response)
        found = np.einsum("srt,srt->s", block, block, dtype=np.float64)
        if not np.isfinite(found).all():
            shot = first + int(np.argmin(np.isfinite(found)))
            raise ValueError(f"observed holds NaN or infinity in shot {shot}. Set bad traces and their weights to 0.")
        squares += float(found.sum())
    if not squares > 0:
        raise ValueError("observed is zero everywhere. Give recorded data.")
    return (squares / observed.size) ** 0.5


def _check_observed(sim: Simulation, shots: Shots, observed: Any, precision: str) -> np.ndarray:
    if not isinstance(observed, np.ndarray):  # np.asarray would make a memory map forget what it is
        observed = np.asarray(observed)
    expected = (*shots.receivers.cells.shape[:2], sim.nt)
    if observed.shape != expected:
        raise ValueError(f"observed has shape {observed.shape}, expected {expected}: (shots, receivers, nt).")
    if observed.dtype.kind != "f":
        raise TypeError(f"observed is {observed.dtype}. Give real floating-point numbers.")
    if isinstance(observed, np.memmap) and observed.dtype != PRECISIONS[precision]:
        raise TypeError(
            f"observed is a memory map of {observed.dtype.str} and the problem {precision}, so all of it would be read "
            f"into memory to be cast. Write it as {precision} once, or use the other precision."
        )
    return observed


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
    outside = (start < low.astype(start.dtype)) | (start > high.astype(start.dtype))
    if outside.any():
        cell = tuple(map(int, np.argwhere(outside)[0]))
        raise ValueError(f"start is {start[cell]:g} m/s at cell {cell}, outside the bounds. Move one of the two.")


def _wavelet_rows(sim: Simulation, wavelet: Any, shots: Shots) -> np.ndarray:
    wavelet, n = np.asarray(wavelet), len(shots.sources.cells)
    if wavelet.shape[-1:] != (sim.nt,) or wavelet.ndim not in (1, 2, 3) or (wavelet.ndim > 1 and len(wavelet) != n):
        raise ValueError(
            f"wavelet has shape {wavelet.shape}; give (nt,), (shots, nt) or (shots, sources, nt) with {n} shots and "
            f"nt={sim.nt}."
        )
    return np.broadcast_to(wavelet, (n, sim.nt)) if wavelet.ndim == 1 else wavelet


def _weight_rows(shots: Shots, weights: Any, shape: tuple[int, ...]) -> np.ndarray | None:
    """Return weights as given, but zero for receivers that only pad a shot; None where all are 1."""
    real = np.any(np.asarray(shots.receivers.weights) != 0, axis=-1)
    if weights is None:
        return None if real.all() else real.astype(float)
    weights = weights if isinstance(weights, np.ndarray) else np.asarray(weights, float)
    if weights.shape not in (shape[:1], shape[:2], shape):
        raise ValueError(f"weights have shape {weights.shape}; give {shape[:1]}, {shape[:2]} or {shape}.")
    if (weights < 0).any():
        raise ValueError("weights must not be negative. Use 0 to remove.")
    if real.all():
        return weights
    trailing = max(2, weights.ndim)
    return weights.reshape(weights.shape + (1,) * (trailing - weights.ndim)) * real.reshape(
        shape[:2] + (1,) * (trailing - 2)
    )
