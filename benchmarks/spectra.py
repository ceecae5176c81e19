"""Spectral indices of known sources: a core and jet seen by the VLBA, a double and a core with a halo by the EHT.

calibrated: visibilities without gain errors, data={"vis": 10}; closures: the default products, gain errors of 5 %,
random phases, a tolerance of 10 %. Two nights each, fluxes given. error: of α, root mean square over pixels above 5 %
of the peak, weighted by brightness, after the image is aligned with the truth by whole pixels, for closures know no
position; coarse: the same of images blurred to the nominal resolution; whole: of the index of the source as a whole.
"""

import itertools
import time

import numpy as np

from benchmarks.problems.vlbi_arrays import eht2022, vlba
from shardfit.domains import vlbi
from shardfit.domains.vlbi import UAS, Image, Observation

PEERS = ()
SETTINGS = {"precision": "float64", "threads": "all of one process"}
NPIX, SEEDS = 32, (0, 1)
# flux (Jy), FWHM, east, north (in the unit) and index of every part
PARTS = {
    "jet": [(0.6, 0.8, 0, 0, 0.3), (0.25, 1.0, -1.6, 1.2, -0.7), (0.15, 2.0, -2.4, 1.8, -1.0)],
    "double": [(0.3, 18, -10, 20, 0.5), (0.4, 18, 10, -20, -1.0)],
    "halo": [(0.3, 15, 0, 0, 0.2), (0.5, 55, 5, 0, -1.2)],
}
# unit (rad), field (units), declination, array, frequencies (Hz), bandwidth (Hz)
SEEN = {
    "jet": (480 * UAS, 10, 30.0, vlba, (15.4e9, 22.2e9), 256e6),
    "double": (UAS, 128, 12.4, lambda: vlbi.EHT2017, (227.1e9, 345e9), 2e9),
    "halo": (UAS, 160, 12.4, eht2022, (227.1e9, 345e9), 2e9),
}
KINDS = {
    "calibrated": (0.0, {"data": {"vis": 10.0}}),
    "closures": (0.05, {"tolerance": 0.1}),
}


def run(quick: bool) -> dict[str, dict]:
    """Return errors of every source and kind of data; --quick: one night of a double."""
    names, seeds = (["double"], SEEDS[:1]) if quick else (list(PARTS), SEEDS)
    cases = {}
    for name, kind in itertools.product(names, KINDS):
        found = [case(name, kind, seed) for seed in seeds]
        figures = {key: float(np.mean([one[key] for one in found])) for key in ("coarse", "whole", "chi2", "cpu")}
        figures |= {"error": float(np.mean([one["error"] for one in found])), "cases": len(found)}
        figures |= {"worst": max(one["error"] for one in found), "doubtful": sum(one["doubtful"] for one in found)}
        cases[f"{name} {kind}"] = figures
    return cases


def case(name: str, kind: str, seed: int) -> dict:
    """Return how one spectral image compares with the truth."""
    gains, options = KINDS[kind]
    skies = [sky(name, hz) for hz in SEEN[name][4]]
    seen = observed(name, gains, seed)
    fluxes = [one.flux for one in skies]
    about = {"npix": NPIX, "fov_uas": SEEN[name][0] * SEEN[name][1] / UAS, "ref_hz": skies[0].freq_hz}
    began = time.process_time()
    found = vlbi.spectral_image(seen, fluxes=fluxes, **about, **options)
    images = [found.at(one.freq_hz) for one in skies]
    beam = min(one.nominal_resolution for one in seen)
    octave = np.log(skies[1].freq_hz / skies[0].freq_hz)
    return {
        "error": index_error(skies, images),
        "coarse": index_error([one.blur(beam) for one in skies], [one.blur(beam) for one in images]),
        "whole": abs(found.mean_alpha - np.log(fluxes[1] / fluxes[0]) / octave),
        "chi2": float(np.mean([value.mean() for value in found.chi2.values()])),
        "doubtful": bool(found.doubts),
        "cpu": time.process_time() - began,
    }


def sky(name: str, hz: float) -> Image:
    """Return a source at one frequency."""
    unit, field, dec, _, frequencies, _ = SEEN[name]
    grid = vlbi.blank(NPIX, field * unit, dec_deg=dec, ra_hours=12.5, mjd=57854, freq_hz=hz)
    planes = [
        vlbi.gaussian(grid, flux * (hz / frequencies[0]) ** index, width * unit, x_rad=x * unit, y_rad=y * unit)
        for flux, width, x, y, index in PARTS[name]
    ]
    return grid.replace(values={"I": np.sum([plane.values["I"] for plane in planes], axis=0)})


def observed(name: str, gains: float, seed: int) -> list[Observation]:
    """Return one night at each frequency."""
    _, _, _, array, frequencies, bandwidth = SEEN[name]
    night = {"stop_h": 24.0, "cadence_s": 1800.0, "bandwidth_hz": bandwidth, "gains": gains, "random_phase": gains > 0}
    return [vlbi.observe(sky(name, hz), array(), seed=2 * seed + k, **night) for k, hz in enumerate(frequencies)]


def index_error(truth: list[Image], found: list[Image]) -> float:
    """Return the error of α between two frequencies, where the truth is bright, images aligned at the first."""
    low, high = (one.values["I"] for one in truth)
    match = np.fft.ifft2(np.fft.fft2(low) * np.fft.fft2(found[0].values["I"]).conj()).real
    shift = np.unravel_index(match.argmax(), match.shape)
    octave = np.log(truth[1].freq_hz / truth[0].freq_hz)
    bright = low > 0.05 * low.max()
    seen_low, seen_high = (np.roll(one.values["I"], shift, (0, 1))[bright] for one in found)
    off = (np.log(seen_high / seen_low) - np.log(high[bright] / low[bright])) / octave
    return float(np.sqrt(np.average(off**2, weights=low[bright])))
