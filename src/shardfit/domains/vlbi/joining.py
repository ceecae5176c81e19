"""Several observations as one."""

from collections.abc import Sequence

import numpy as np

from shardfit.domains.vlbi.observation import Observation, Stations, make_observation

APART_H = 1e-6  # by which rows of joined observations are set apart in time
ONE_BAND = 0.02  # relative difference of frequencies that count as one band
ONE_PLACE = 1e-3  # degrees: pointings further apart are of different sources


def join(observations: Sequence[Observation]) -> Observation:
    """Return several observations of one source and band as one: days, or the sidebands of a receiver.

    Every row keeps its u, v, frequency, data and error; the reference frequency is the mean. Times count from the first
    day. Rows of different observations never form a closure or share a gain: each later one that overlaps in time is
    set later by some milliseconds. Stations are those of all, by name. Scans are left to gaps.
    """
    if len(observations) == 1:
        return observations[0]
    _check_join(observations)
    first = min(one.mjd for one in observations)
    names = list(dict.fromkeys(name for one in observations for name in one.stations.names))
    owners = [next(one.stations for one in observations if name in one.stations.names) for name in names]
    xyz = [s.xyz[s.index(name)] for name, s in zip(names, owners, strict=True)]
    sefd = [s.sefd[s.index(name)] for name, s in zip(names, owners, strict=True)]
    common = set.intersection(*(set(one.vis) for one in observations))
    rows: dict[str, list] = {name: [] for name in ("time", "tint", "ant1", "ant2", "u", "v", "hz")}
    for k, one in enumerate(observations):
        place = np.array([names.index(name) for name in one.stations.names])
        changed = {"time": one.time + 24.0 * (one.mjd - first) + k * APART_H}
        changed |= {"ant1": place[one.ant1], "ant2": place[one.ant2]}
        for name in rows:
            rows[name].append(changed.get(name, getattr(one, name)))
    lead = observations[0]
    return make_observation(
        **{name: np.concatenate(parts) for name, parts in rows.items()},
        vis={name: np.concatenate([one.vis[name] for one in observations]) for name in common},
        sigma={name: np.concatenate([one.sigma[name] for one in observations]) for name in common},
        stations=Stations(tuple(names), np.array(xyz), np.array(sefd)),
        freq_hz=float(np.mean([one.freq_hz for one in observations])),
        bandwidth_hz=sum({one.freq_hz: one.bandwidth_hz for one in observations}.values()),
        mjd=first,
        scans=None,
        **{name: getattr(lead, name) for name in ("source", "ra_hours", "dec_deg", "polrep")},
    ).order_by_snr()


def _check_join(observations: Sequence[Observation]) -> None:
    if not observations:
        raise ValueError("join: no observations were given.")
    hz = [one.freq_hz for one in observations]
    if max(hz) > (1 + ONE_BAND) * min(hz):
        raise ValueError(
            f"join: {min(hz) / 1e9:.6g} and {max(hz) / 1e9:.6g} GHz are different bands, in which a source may look "
            "different. Use spectral_image (--spectral-index), or make one image of each."
        )
    places = np.array([(15 * one.ra_hours, one.dec_deg) for one in observations])
    if np.ptp(places, axis=0).max() > ONE_PLACE:
        raise ValueError("join: the observations point at different positions. Give those of one source.")
