"""Polarised fractions and angles of parts of known sources: Stokes I fitted too, and kept as `image` made it.

Five sources: core, knot and jet seen by the EHT of 2017 (jet) and by the VLBA at 43 GHz (vlba), a ring whose angles
turn with it, a double with different fractions, a disk with gradients seen by the EHT of 2022. Thermal noise, and five
times it; no gain errors, and 10 % with random phases; two nights. Truths have finer pixels than images. A part lies
within half a nominal resolution of its place, after image and truth are blurred to that resolution and aligned by
Stokes I. Its error is |m exp(2iχ) - that of the truth|, m the fraction and χ the angle, in percent. Weights were chosen
on jet and vlba, first night.
SHARDFIT_BENCH_RUNS names a folder that keeps cases, which are not run again.
"""

import itertools
import json
import os
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.problems.vlbi_arrays import eht2022, vlba
from shardfit.domains import vlbi
from shardfit.domains.vlbi import UAS, Image, Observation
from shardfit.domains.vlbi.observation import Stations
from shardfit.domains.vlbi.recipes.simulated import M87_LIKE

PEERS = ()
SETTINGS = {
    "precision": "float64",
    "threads": "all of one process",
    "time above": "of what was not kept from earlier runs",
}
SOURCES = ("jet", "vlba", "ring", "double", "disk")
NOISE, GAINS, SEEDS, MODES = (1.0, 5.0), (0.0, 0.1), (0, 1), ("P", "IP")
FINE, NPIX = 96, 32
EHT_NIGHT = {"cadence_s": 1200.0}
VLBA_NIGHT = {"bandwidth_hz": 256e6, "stop_h": 24.0, "cadence_s": 1800.0}
# flux (Jy), FWHM, east, north (in the unit), fraction, angle (degrees) of every part
PARTS = {
    "jet": [(0.6, 18, 20, -20, 0.05, 30), (0.25, 20, -12, 12, 0.29, -60), (0.15, 40, -32, 34, 0.22, 80)],
    "vlba": [(0.7, 1.5, 0, 0, 0.03, 10), (0.3, 2.0, -3.5, 2.5, 0.25, 70), (0.2, 4.0, -6.5, 5, 0.15, -40)],
    "double": [(0.35, 18, -10, 20, 0.40, 20), (0.45, 18, 10, -20, 0.08, -70)],
}
Places = list[tuple[float, float]]


def run(quick: bool) -> dict[str, dict]:
    """Return errors by source, by noise and gains, and of all; --quick: one night of a double."""
    asked = [("double", 5.0, 0.1, 0)] if quick else list(itertools.product(SOURCES, NOISE, GAINS, SEEDS))
    with tempfile.TemporaryDirectory() as spare:
        kept = Path(os.environ.get("SHARDFIT_BENCH_RUNS", spare))
        cases = [once(kept, *one) for one in asked]
    groups = {name: [c for c in cases if c["source"] == name] for name in dict.fromkeys(c["source"] for c in cases)}
    for noise, gains in dict.fromkeys((c["noise"], c["gains"]) for c in cases):
        alike = [c for c in cases if (c["noise"], c["gains"]) == (noise, gains)]
        groups[f"noise x{noise:g}" + " with gains" * (gains > 0)] = alike
    return {name: together(group) for name, group in {**groups, "all": cases}.items()}


def once(folder: Path, source: str, noise: float, gains: float, seed: int) -> dict:
    """Return one case, from its file if there is one."""
    file = folder / f"{source}-{noise:g}-{gains:g}-{seed}.json"
    if not file.exists():
        found = {"source": source, "noise": noise, "gains": gains, "seed": seed, **case(source, noise, gains, seed)}
        folder.mkdir(parents=True, exist_ok=True)
        file.with_suffix(".part").write_text(json.dumps(found, allow_nan=False))
        file.with_suffix(".part").replace(file)
        print(json.dumps(found), file=sys.stderr, flush=True)
    return json.loads(file.read_text())


def case(source: str, noise: float, gains: float, seed: int) -> dict:
    """Return what both modes find of every part of one source in one night."""
    sky, array, places, night = SKIES[source]()
    obs = observed(sky, array, noise, gains, seed, night)
    total = vlbi.image(obs, npix=NPIX, fov_uas=FINE * sky.pixel_rad / UAS, flux=sky.flux)
    made = {}
    for mode in MODES:
        began = time.process_time()
        found = vlbi.polarimetric_image(total, mode=mode)
        made[mode] = {
            "parts": parts(found.image, sky, places, obs.nominal_resolution),
            "chi2": dict(found.chi2),
            "doubts": len(found.doubts),
            "cpu": time.process_time() - began,
        }
    return made


def observed(sky: Image, array: Stations, noise: float, gains: float, seed: int, night: dict) -> Observation:
    """Return a night whose errors are what they say."""
    exact = vlbi.observe(sky, array, gains=gains, random_phase=gains > 0, seed=seed, noise=False, **night)
    rng = np.random.default_rng([seed, 77])
    sigma = {name: noise * exact.sigma[name] for name in exact.vis}
    vis = {k: v + sigma[k] * (rng.normal(size=len(v)) + 1j * rng.normal(size=len(v))) for k, v in exact.vis.items()}
    return exact.replace(vis=vis, sigma=sigma)


def parts(found: Image, sky: Image, places: Places, beam: float) -> list[dict]:
    """Return true and found fraction of every part, how far off the angle is (degrees), and its share of flux."""
    one, other = sky.blur(beam), vlbi.regrid(found, FINE, FINE * sky.pixel_rad).blur(beam)
    match = np.fft.ifft2(np.fft.fft2(one.values["I"]) * np.fft.fft2(other.values["I"]).conj()).real
    shift = np.unravel_index(match.argmax(), match.shape)
    x, y = np.meshgrid(sky.x, sky.y)
    out = []
    for east, north in places:
        near = np.hypot(x - east, y - north) < 0.5 * beam
        i, q, u = (one.values[k][near].sum() for k in "IQU")
        found_i, found_q, found_u = (np.roll(other.values[k], shift, (0, 1))[near].sum() for k in "IQU")
        truth, answer = (q + 1j * u) / i, (found_q + 1j * found_u) / found_i
        angle = float(np.rad2deg(np.angle(answer / truth)) / 2)
        known = {"true": abs(truth), "found": abs(answer), "flux": found_i / i}
        out.append({**known, "angle": angle, "error": abs(answer - truth)})
    return out


def together(cases: list[dict]) -> dict:
    """Return root mean squares over parts and cases, and the worst; fractions in percent, angles in degrees."""
    figures: dict[str, float] = {"cases": len(cases)}
    for mode in MODES:
        every = [part for c in cases for part in c[mode]["parts"]]
        error, angle = (np.array([part[name] for part in every]) for name in ("error", "angle"))
        figures |= {f"{mode}_error": 100 * _rms(error), f"{mode}_worst": 100 * float(error.max())}
        figures |= {f"{mode}_angle": float(np.median(np.abs(angle)))}
        figures |= {f"{mode}_flux": _rms([part["flux"] - 1 for part in every])}
        figures |= {f"{mode}_doubtful": sum(c[mode]["doubts"] > 0 for c in cases)}
        figures |= {f"{mode}_cpu": float(np.mean([c[mode]["cpu"] for c in cases]))}
        if len({c["source"] for c in cases}) == 1:
            for k in range(len(cases[0][mode]["parts"])):
                figures[f"{mode}_part{k + 1}"] = 100 * float(np.mean([c[mode]["parts"][k]["found"] for c in cases]))
                figures[f"true_part{k + 1}"] = 100 * cases[0][mode]["parts"][k]["true"]
    figures["better"] = sum(_case_rms(c, "IP") < _case_rms(c, "P") for c in cases)
    return figures


def _case_rms(one: dict, mode: str) -> float:
    return _rms([part["error"] for part in one[mode]["parts"]])


def _rms(values) -> float:
    return float(np.sqrt(np.mean(np.square(values))))


def _of_parts(name: str, unit: float, **about) -> tuple[Image, Places]:
    grid = vlbi.blank(FINE, about.pop("field"), mjd=57854, source=name.upper(), **about)
    total, linear = 0.0, 0.0
    for flux, width, east, north, fraction, angle in PARTS[name]:
        part = vlbi.gaussian(grid, flux, width * unit, x_rad=east * unit, y_rad=north * unit).values["I"]
        total = total + part
        linear = linear + fraction * part * np.exp(2j * np.deg2rad(angle))
    return _polarised(grid, total, linear), [(east * unit, north * unit) for _, _, east, north, _, _ in PARTS[name]]


def _polarised(grid: Image, total, linear) -> Image:
    return grid.replace(values={"I": total, "Q": linear.real, "U": linear.imag})


def _jet():
    about = {k: v for k, v in M87_LIKE.items() if k != "mjd"}
    return *_with(vlbi.EHT2017, _of_parts("jet", UAS, field=160 * UAS, **about)), EHT_NIGHT


def _double():
    about = {k: v for k, v in M87_LIKE.items() if k != "mjd"}
    return *_with(vlbi.EHT2017, _of_parts("double", UAS, field=128 * UAS, **about)), EHT_NIGHT


def _vlba():
    about = {"dec_deg": 30.0, "ra_hours": 6.0, "freq_hz": 43.1e9}
    return *_with(vlba(1400.0), _of_parts("vlba", 100 * UAS, field=2400 * UAS, **about)), VLBA_NIGHT


def _with(array: Stations, made: tuple[Image, Places]) -> tuple[Image, Stations, Places]:
    return made[0], array, made[1]


def _ring():
    total = vlbi.known_image("ring", FINE)
    x, y = np.meshgrid(total.x, total.y)
    linear = 0.25 * total.values["I"] * np.exp(2j * (np.arctan2(x, y) + 0.6))
    around = np.deg2rad([90, 180, 270])
    places = [(21 * UAS * np.sin(angle), 21 * UAS * np.cos(angle)) for angle in around]
    return _polarised(total, total.values["I"], linear), vlbi.EHT2017, places, EHT_NIGHT


def _disk():
    total = vlbi.known_image("disk", FINE)
    x, y = np.meshgrid(total.x, total.y)
    fraction = np.clip(0.2 + 0.15 * x / (30 * UAS), 0, 0.6)
    linear = fraction * total.values["I"] * np.exp(2j * (0.4 + 0.5 * y / (30 * UAS)))
    places = [(15 * UAS, 0), (-15 * UAS, 0), (0, 15 * UAS), (0, -15 * UAS)]
    return _polarised(total, total.values["I"], linear), eht2022(), places, EHT_NIGHT


SKIES = {"jet": _jet, "vlba": _vlba, "ring": _ring, "double": _double, "disk": _disk}
