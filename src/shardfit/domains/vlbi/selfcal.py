"""Self-calibration: station gains that bring the data closest to an image, one solution for every time stamp.

Data are V = g₁ g₂* V_image + noise. The cost of an interval is Σ |V - g₁ g₂* V_image|²/σ² + Σ (ln|g|/tolerance)². All
intervals are solved at once, as one padded batch, by a damped Newton method. Closure quantities do not change.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shardfit.core.errors import suggestion
from shardfit.domains.vlbi.gain_solver import Intervals, cost, solve
from shardfit.domains.vlbi.images import Image, visibilities
from shardfit.domains.vlbi.observation import Observation, frozen
from shardfit.domains.vlbi.operations import scan_table
from shardfit.domains.vlbi.tables import debias_amplitude

METHODS = {"phase": (False, True), "amp": (True, False), "both": (True, True)}  # (amplitudes, phases) are solved


@dataclass(frozen=True, eq=False)
class GainTable:
    """Station gains by interval.

    start, stop: (t,) h, first and last time of each interval; stations: names; gain: (t, s) complex, 1 where nothing
    was solved; solved: (t, s), whether the station had data there and was asked for; cost_before: (t,) cost with all
    gains 1; cost_after: (t,); converged: (t,).
    """

    start: np.ndarray
    stop: np.ndarray
    stations: tuple[str, ...]
    gain: np.ndarray
    solved: np.ndarray
    cost_before: np.ndarray
    cost_after: np.ndarray
    converged: np.ndarray

    def __post_init__(self):
        n, k = len(self.start), len(self.stations)
        shapes = {"gain": (complex, (n, k)), "solved": (bool, (n, k)), "converged": (bool, (n,))}
        for name in ("start", "stop", "cost_before", "cost_after"):
            shapes[name] = (float, (n,))
        for name, (dtype, shape) in shapes.items():
            object.__setattr__(self, name, frozen(getattr(self, name), dtype, shape, f"GainTable.{name}"))
        if not (np.isfinite(self.gain).all() and (self.gain != 0).all()):
            raise ValueError("GainTable: a gain is zero or not finite. A station without solution has gain 1.")

    def __len__(self) -> int:
        return len(self.start)


@dataclass(frozen=True, eq=False)
class Calibrated:
    """An observation with its gains taken out, and the gains."""

    data: Observation
    gains: GainTable


def self_calibrate(obs: Observation, image: Image, *, nearest: bool = False, **settings: Any) -> Calibrated:
    """Solve for station gains against an image and take them out of the data.

    settings: of `solve_gains` (method, stations, tolerance, uv_max, interval); nearest: of `apply_gains`. The
    observation given is left alone.

    Example: `self_calibrate(obs, image, method="phase").data`.
    """
    gains = solve_gains(obs, image, **settings)
    return Calibrated(apply_gains(obs, gains, nearest=nearest), gains)


def solve_gains(
    obs: Observation,
    image: Image,
    *,
    method: str = "both",
    stations: Sequence[str] | None = None,
    tolerance: Any = (0.2, 0.2),
    uv_max: float = np.inf,
    interval: str | float = "time",
) -> GainTable:
    """Return the gains that bring the data closest to an image.

    method: 'phase' (|g| = 1), 'amp' (phases are ignored, amplitudes debiased) or 'both'. stations: names to solve for,
    None for all; the others keep g = 1. tolerance: expected size of ln|g| for |g| above 1 and at most 1, as (a, b), one
    number for both, or a mapping by station (0.2 for those not named). uv_max: wavelengths, only shorter baselines are
    used. interval: one solution per 'time' stamp, per 'scan', or per this many seconds.

    Data say nothing about a phase common to all stations. Where all stations of an interval are solved for, the first
    of them has phase 0. A station without usable baselines keeps g = 1.
    """
    batch = _batch(obs, image, method, stations, tolerance, uv_max, interval)
    x, before, after, converged = solve(batch.rows)
    alone = (batch.solved == batch.present).all(1)  # no station is held fixed
    reference = np.where(alone, x[np.arange(len(x)), 1, batch.present.argmax(1)], 0.0)
    phase = np.where(batch.solved, x[:, 1] - reference[:, None], 0.0)
    gain = np.exp(x[:, 0] + 1j * phase)
    return GainTable(batch.start, batch.stop, obs.stations.names, gain, batch.solved, before, after, converged)


def gain_cost(obs: Observation, image: Image, gain: Any, *, method: str = "both", **settings: Any) -> np.ndarray:
    """Return the cost, (t,) by interval, of given gains (s,) or (t, s). settings: as for `solve_gains`.

    For 'phase' the gains are divided by their moduli, for 'amp' replaced by |Re g|.
    """
    batch = _batch(obs, image, method, **settings)
    gain = np.broadcast_to(np.asarray(gain, complex), batch.solved.shape)
    gain = np.abs(gain.real) if method == "amp" else gain
    return cost(np.stack([np.log(np.abs(gain)), np.angle(gain)], 1), batch.rows)


def apply_gains(obs: Observation, gains: GainTable, *, nearest: bool = False) -> Observation:
    """Return the observation divided by gains: V/(g₁ g₂*), σ/|g₁ g₂|, for all Stokes parameters.

    A station without a solution at a time keeps its data; with nearest=True it takes its solution nearest in time.
    Stations without any solution keep their data.
    """
    place = {name: k for k, name in enumerate(gains.stations)}
    missing = [name for name in obs.stations.names if name not in place]
    if missing:
        raise ValueError(f"apply_gains: no gains of station {missing[0]!r}. Solve for gains with the same stations.")
    times, at = np.unique(obs.time, return_inverse=True)
    away = np.maximum(gains.start - times[:, None], times[:, None] - gains.stop)  # (times, t) h, <= 0 inside
    table = np.ones((len(times), len(obs.stations)), complex)
    for k, name in enumerate(obs.stations.names):
        known = np.flatnonzero(gains.solved[:, place[name]])
        if not len(known):
            continue
        best = away[:, known].argmin(1)
        found = gains.gain[known[best], place[name]]
        inside = away[np.arange(len(times)), known[best]] <= 0
        table[:, k] = found if nearest else np.where(inside, found, 1.0)
    factor = table[at, obs.ant1] * table[at, obs.ant2].conj()
    vis = {name: v / factor for name, v in obs.vis.items()}
    return obs.replace(vis=vis, sigma={name: s / np.abs(factor) for name, s in obs.sigma.items()})


@dataclass(frozen=True, eq=False)
class Batch:
    """Rows of the solver with their intervals; present: station has usable baselines; solved: and is asked for."""

    rows: Intervals
    start: np.ndarray
    stop: np.ndarray
    present: np.ndarray
    solved: np.ndarray


def _batch(
    obs, image, method="both", stations=None, tolerance=(0.2, 0.2), uv_max=np.inf, interval: Any = "time"
) -> Batch:
    """Check the settings and put the baselines of every interval into one row."""
    names = obs.stations.names if stations is None else np.atleast_1d(stations)
    wanted = np.isin(np.arange(len(obs.stations)), [obs.stations.index(str(name)) for name in names])
    image.grid.check_baselines(obs.u, obs.v)
    use = np.flatnonzero(obs.uv_distance < uv_max)
    if not len(use):
        raise ValueError(f"self-calibration: no baseline is shorter than uv_max={uv_max:.4g} wavelengths. Raise it.")
    model = visibilities(image, obs.u[use], obs.v[use])["I"]
    return batch(obs, use, model, wanted, intervals(obs, interval), method=method, tolerance=tolerance)


def batch(
    obs: Observation,
    use: np.ndarray,
    model: np.ndarray,
    wanted: np.ndarray,
    when: tuple,
    *,
    method: str,
    tolerance: Any,
    unknown: np.ndarray | None = None,
) -> Batch:
    """Put the baselines of every interval into one row, padded with weight 0.

    use: (k,) rows; model: (k,) Jy, what they should be; wanted: (s,) or (intervals, s), stations to solve for; when: of
    `intervals`; unknown: (k,) rows of one number share a model that is known up to one complex factor in every
    interval, which is solved for too; -1: known.
    """
    if method not in METHODS:
        raise ValueError(f"self-calibration: unknown method {method!r}.{suggestion(str(method), METHODS)}")
    limits = _limits(obs, tolerance)
    start, stop, group = when
    wanted = np.broadcast_to(wanted, (len(start), len(obs.stations)))
    kept, group = np.unique(group[use], return_inverse=True)
    order = np.argsort(group, kind="stable")
    use, model, group = use[order], model[order], group[order]
    unknown = None if unknown is None else unknown[order]
    column = np.arange(len(use)) - np.searchsorted(group, group)
    shape = (len(kept), int(column.max()) + 1)

    def padded(values, dtype):
        out = np.zeros(shape, dtype)
        out[group, column] = values
        return out

    data, sigma = obs.vis["I"][use], obs.sigma["I"][use]
    if method == "amp":
        model, data = np.abs(model), debias_amplitude(np.abs(data), sigma)
    present = np.zeros((len(kept), len(obs.stations)), bool)
    present[group, obs.ant1[use]] = present[group, obs.ant2[use]] = True
    solved = present & wanted[kept]
    moving, third = solved, None
    if unknown is not None:
        # one variable for each, and a last one that never moves for models that are known
        more = np.zeros((len(kept), int(unknown.max(initial=-1)) + 2), bool)
        more[group, unknown] = unknown >= 0
        moving = np.concatenate([solved, more], 1)
        third = padded(unknown % more.shape[1] + len(obs.stations), np.intp)
        limits = np.concatenate([limits, np.full((2, more.shape[1]), np.inf)], 1)
    rows = Intervals(
        first=padded(obs.ant1[use], np.intp),
        second=padded(obs.ant2[use], np.intp),
        data=padded(data, complex),
        model=padded(model, complex),
        weight=padded(1 / sigma, float),
        active=moving[:, None] & np.array(METHODS[method])[:, None],
        limits=np.broadcast_to(limits, (len(kept), *limits.shape)),
        third=third,
    )
    return Batch(rows, start[kept], stop[kept], present, solved)


def _limits(obs: Observation, tolerance: Any) -> np.ndarray:
    """Return the tolerance (2, s) for gains above and below 1."""
    by_name = tolerance if isinstance(tolerance, Mapping) else {name: tolerance for name in obs.stations.names}
    for name in by_name:
        obs.stations.index(name)
    pairs = [np.broadcast_to(by_name.get(name, 0.2), (2,)) for name in obs.stations.names]
    limits = np.array(pairs, float).T
    if not (np.isfinite(limits).all() and (limits > 0).all()):
        raise ValueError(f"self-calibration: tolerance={tolerance!r} must be positive. Leave a station out instead.")
    return limits


def intervals(obs: Observation, interval: str | float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return start and stop (t,) h of the intervals, and the interval of every row (n,)."""
    if interval == "time":
        times, group = np.unique(obs.time, return_inverse=True)
        return times, times, group
    if interval == "scan":
        scans = scan_table(obs)
        mark = np.searchsorted(scans[:, 0], obs.time, side="left")
    elif isinstance(interval, str) or not (np.isfinite(interval) and interval > 0):
        raise ValueError(f"self-calibration: interval={interval!r} must be 'time', 'scan' or a length in seconds.")
    else:
        mark = np.floor(3600 * obs.time / interval)
    first, group = np.unique(mark, return_index=True, return_inverse=True)[1:]
    last = np.searchsorted(group, np.arange(len(first)), side="right") - 1  # rows are in order of time
    return obs.time[first], obs.time[last], group
