"""Arrays other than the one of 2017, and skies of a size that they resolve."""

import numpy as np

from benchmarks.problems.vlbi_arrays import alma_like, eht2022, vlba
from shardfit.domains.vlbi.images import blank, gaussian
from shardfit.domains.vlbi.simulation import Night, simulate

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
