"""Network calibration: gains of stations that share a site, without an image.

Baselines within a site see the whole source as a point of known flux F: V = g₁ g₂* F. Baselines from the stations of a
site to any other place see the same visibility, whatever it is: V = g₁ g₂* X, with X unknown, one for each two places
and interval. Both together fix the gains of all stations that have a partner; others keep g = 1. Closure quantities do
not change. See Blackburn et al. 2019 (ApJ 882, 23).
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from shardfit.domains.vlbi.gain_solver import solve
from shardfit.domains.vlbi.observation import Observation
from shardfit.domains.vlbi.selfcal import Calibrated, GainTable, apply_gains, batch, intervals
from shardfit.domains.vlbi.sites import sites


def network_calibrate(obs: Observation, flux: Any, **settings: Any) -> Calibrated:
    """Solve for the gains of co-located stations from the source's flux, and take them out of the data.

    flux, settings: of `solve_network`. Stations without a partner, and times without a baseline between partners, are
    left as they are.

    Example: `network_calibrate(obs, 1.13).data`.
    """
    gains = solve_network(obs, flux, **settings)
    return Calibrated(apply_gains(obs, gains), gains)


def solve_network(
    obs: Observation,
    flux: float | tuple[Sequence[float], Sequence[float]],
    *,
    method: str = "amp",
    stations: Sequence[str] | None = None,
    tolerance: Any = (0.2, 0.2),
    interval: str | float = "time",
) -> GainTable:
    """Return the gains of stations that have a partner at their site.

    flux: Jy, of the whole source as baselines within a site see it, or (hours, Jy), a light curve that is linear in
    between. method: 'amp' (amplitudes, debiased; phases are ignored), 'phase' or 'both'; of the stations of a site the
    first keeps its phase. stations: names to solve for, None for all with a partner. tolerance, interval: as for
    `solve_gains`.
    """
    known = _light_curve(flux)
    site = sites(obs)
    # stations of a site next to each other: all baselines between two sites then point the same way
    obs, site = obs.with_stations(np.argsort(site, kind="stable")), np.sort(site)
    if len(np.unique(site)) == len(site):
        raise ValueError(
            "network calibration: no two stations share a site, so no baseline sees the whole source. Use "
            "self-calibration with an image."
        )
    when = intervals(obs, interval)
    wanted = _partnered(obs, site, when, stations)
    one, other = site[obs.ant1], site[obs.ant2]
    group = when[2]
    asked = wanted[group, obs.ant1] | wanted[group, obs.ant2]
    use = np.flatnonzero(asked)
    within = (one == other)[use]
    # a baseline between two sites sees another visibility at another frequency
    pairs, unknown = np.unique(np.stack([one, other, obs.hz], 1)[use], axis=0, return_inverse=True)
    unknown = np.where(within, -1, unknown.ravel())
    model = np.where(within, known(obs.time[use]), _likeliest(obs, use, group[use] * len(pairs) + unknown))
    made = batch(obs, use, model, wanted, when, method=method, tolerance=tolerance, unknown=unknown)
    x, before, after, converged = solve(made.rows)
    n = len(obs.stations)
    phase = x[:, 1, :n]
    for number in np.unique(site):
        here = np.flatnonzero(site == number)
        first = here[made.solved[:, here].argmax(1)]
        phase[:, here] -= phase[np.arange(len(x)), first][:, None]
    gain = np.where(made.solved, np.exp(x[:, 0, :n] + 1j * phase), 1.0)
    return GainTable(made.start, made.stop, obs.stations.names, gain, made.solved, before, after, converged)


def _partnered(obs: Observation, site: np.ndarray, when: tuple, names: Sequence[str] | None) -> np.ndarray:
    """Return which stations have, in every interval, a baseline to a partner, and are asked for: (intervals, s)."""
    start, _, group = when
    found = np.zeros((len(start), len(obs.stations)), bool)
    within = np.flatnonzero(site[obs.ant1] == site[obs.ant2])
    found[group[within], obs.ant1[within]] = found[group[within], obs.ant2[within]] = True
    if names is None:
        return found
    asked = np.zeros(len(obs.stations), bool)
    asked[[obs.stations.index(str(name)) for name in np.atleast_1d(names)]] = True
    alone = [obs.stations.names[k] for k in np.flatnonzero(asked & ~found.any(0))]
    if alone:
        raise ValueError(f"network calibration: station {alone[0]!r} has no partner at its site. Leave it out.")
    return found & asked


def _likeliest(obs: Observation, use: np.ndarray, group: np.ndarray) -> np.ndarray:
    """Return, for every row, the visibility with the highest signal-to-noise ratio among rows of its group: a start."""
    order = np.lexsort((-obs.snr[use], group))
    first = np.unique(group[order], return_index=True)[1]
    best = dict(zip(group[order][first].tolist(), use[order][first].tolist(), strict=True))
    return obs.vis["I"][[best[number] for number in group.tolist()]]


def _light_curve(flux: Any) -> Any:
    """Return time (h) → flux (Jy)."""
    if isinstance(flux, tuple | list):
        hours, values = (np.asarray(part, float) for part in flux)
        if hours.shape != values.shape or hours.ndim != 1 or not (np.diff(hours) > 0).all():
            raise ValueError("network calibration: a light curve is (hours, Jy), as many of both, hours rising.")
    else:
        hours, values = np.zeros(1), np.asarray([flux], float)
    if not (np.isfinite(hours).all() and np.isfinite(values).all() and (values > 0).all()):
        raise ValueError(f"network calibration: flux={flux!r} must be positive, in Jy.")
    return lambda time: np.interp(time, hours, values)
