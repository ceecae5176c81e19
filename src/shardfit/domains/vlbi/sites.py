"""Stations that stand at one site, as the array's own baselines tell."""

import numpy as np

from shardfit.domains.vlbi.observation import Observation

GAP = 20.0  # stations of one site: every other baseline is longer by this factor
NEAR = 0.01  # ... and they are shorter than this share of the longest baseline


def co_located(obs: Observation) -> float:
    """Return the length, wavelengths, below which baselines join stations of one site; 0 if there are none.

    The array decides: such baselines are shorter than a hundredth of the longest, and all others 20 times longer.
    """
    pair = obs.ant1 * len(obs.stations) + obs.ant2
    _, which = np.unique(pair, return_inverse=True)
    length = np.zeros(which.max() + 1)
    np.maximum.at(length, which, obs.uv_distance)
    length = np.sort(length[length > 0])
    if len(length) < 2:
        return 0.0
    jump = length[1:] / length[:-1]
    found = np.flatnonzero((jump > GAP) & (length[:-1] < NEAR * length[-1]))
    return float(np.sqrt(length[found[-1]] * length[found[-1] + 1])) if found.size else 0.0


def sites(obs: Observation) -> np.ndarray:
    """Return the number of every station's site, (s,); stations have one in common if short baselines join them."""
    site = np.arange(len(obs.stations))
    short = obs.uv_distance < co_located(obs)
    for one, other in np.unique(np.stack([obs.ant1[short], obs.ant2[short]], 1), axis=0):
        site[site == site[other]] = site[one]
    return site
