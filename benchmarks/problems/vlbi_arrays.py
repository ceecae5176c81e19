"""Arrays other than the EHT of 2017. Positions are rounded to 10 m."""

import numpy as np

from shardfit.domains.vlbi.observation import Stations
from shardfit.domains.vlbi.simulation import EHT2017

_VLBA = {
    "BR": (-2112065, -3705356, 4726814),
    "FD": (-1324009, -5332182, 3231962),
    "HN": (1446375, -4447940, 4322306),
    "KP": (-1995679, -5037318, 3357328),
    "LA": (-1449752, -4975299, 3709124),
    "MK": (-5464075, -2495248, 2148297),
    "NL": (-130872, -4762317, 4226851),
    "OV": (-2409150, -4478573, 3838617),
    "PT": (-1640954, -5014816, 3575412),
    "SC": (2607849, -5488070, 1932740),
}
_LATER = {"GL": (541547, -1387979, 6180982), "KT": (-1995954, -5037389, 3357044), "NN": (4524000, 468042, 4460310)}


def vlba(sefd=550.0):
    return Stations(tuple(_VLBA), np.array(list(_VLBA.values()), float), np.full(len(_VLBA), sefd))


def alma_like(n=12):
    """Dishes within 2 km on the Chajnantor plateau."""
    rng = np.random.default_rng(3)
    east, north = rng.normal(0, 700, (2, n))
    centre = EHT2017.xyz[0]
    up = centre / np.linalg.norm(centre)
    axis = np.cross([0, 0, 1.0], up)
    axis /= np.linalg.norm(axis)
    xyz = centre + east[:, None] * axis + north[:, None] * np.cross(up, axis)
    return Stations(tuple(f"D{k:02d}" for k in range(n)), xyz, np.full(n, 2000.0))


def eht2022():
    names = (*EHT2017.names, *_LATER)
    return Stations(names, np.vstack([EHT2017.xyz, list(_LATER.values())]), np.append(EHT2017.sefd, [5000, 13000, 700]))
