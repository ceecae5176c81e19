"""Arrays other than the one of 2017, and skies of a size that they resolve. Positions are rounded to 10 m."""

import numpy as np

from shardfit.domains.vlbi.images import blank, gaussian
from shardfit.domains.vlbi.observation import Stations
from shardfit.domains.vlbi.simulation import EHT2017, Night, simulate

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


# array, frequency (Hz), declination, bandwidth (Hz)
CASES = {
    "vlba15": (vlba(), 15.4e9, 30.0, 256e6),
    "vlba43": (vlba(1400.0), 43.1e9, 30.0, 256e6),
    "alma": (alma_like(), 230e9, -29.0, 2e9),
    "eht2022": (eht2022(), 227.1e9, 12.4, 2e9),
}


def core_jet(name, npix=64, flux=1.2):
    """Core, knot and jet, seven resolutions of the array long."""
    array, freq, dec, _ = CASES[name]
    longest = max(np.linalg.norm(a - b) for a in array.xyz for b in array.xyz) * freq / 2.998e8
    beam = 1 / longest
    grid = blank(npix, 10 * beam, freq_hz=freq, dec_deg=dec, ra_hours=6.0, mjd=57854, source="JET")
    parts = [(0.6, 0.8, 0.0, 0.0), (0.25, 0.9, -1.6, 1.2), (0.15, 2.0, -2.4, 1.8)]
    values = sum(gaussian(grid, f, w * beam, x_rad=x * beam, y_rad=y * beam).values["I"] for f, w, x, y in parts)
    return grid.replace(values={"I": flux * values})


def observed(name, seed=0, **more):
    """A night of a core and jet with thermal noise only."""
    array, _, _, bandwidth = CASES[name]
    truth = core_jet(name)
    night = Night(start_h=0, stop_h=24, cadence_s=3600, bandwidth_hz=bandwidth)
    return simulate(truth, array, night, seed=seed, **more), truth


__all__ = ["CASES", "alma_like", "core_jet", "eht2022", "observed", "vlba"]
