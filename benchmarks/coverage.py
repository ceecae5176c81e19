"""How often posteriors of images hold the truth: five sources that no prior knows, many nights, two noise levels.

Sources have pixels of 1 µas, posteriors of 4 µas: no grid is shared. Noise: that of the 2017 array, or five times it,
and 1 % of every amplitude. Over pixels above a tenth of the peak, blurred to 10 µas and as they are (raw): shares
within one and two standard deviations, rms of (mean - truth) / sd; averaged over cases alike. flux_z: rms of the same
for the flux; flux is told as 0.55 Jy and is 0.6. chi2: mean over draws; cpu: seconds of a case.
Sources named with gains: amplitudes with gain errors of 5 % integrated out, and closure phases, of centred sources.
SHARDFIT_BENCH_RUNS names a folder that keeps cases, which are not run again; SHARDFIT_BENCH_SEEDS: nights (10).
"""

import json
import os
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from scipy.ndimage import fourier_shift

from shardfit.domains.vlbi import UAS, Image, Observation, blank, known_image, observe, posterior
from shardfit.domains.vlbi.images import gaussian
from shardfit.domains.vlbi.recipes.simulated import M87_LIKE

PEERS = ()
SETTINGS = {
    "precision": "float64",
    "threads": "all of one process",
    "draws": "60",
    "time above": "of what was not kept from earlier runs of the suite",
}
TRUTHS = ("ring", "crescent", "disk", "double", "jet")
NOISE = (1.0, 5.0)
SEEDS = 10
UNCALIBRATED, UNCALIBRATED_SEEDS, GAINS = ("ring", "double"), 2, 0.05
FINE, NPIX, FIELD = 128, 32, 128 * UAS
FLUX, TOLD, SYSTEMATIC, BRIGHT, BLUR, DRAWS = 0.6, 0.55, 0.01, 0.1, 10 * UAS, 60


def run(quick: bool) -> dict[str, dict]:
    """Return figures of every truth, of every noise level, and of all; --quick: one night of a ring."""
    seeds = 1 if quick else int(os.environ.get("SHARDFIT_BENCH_SEEDS", SEEDS))
    truths, levels = (TRUTHS[:1], NOISE[:1]) if quick else (TRUTHS, NOISE)
    with tempfile.TemporaryDirectory() as spare:
        kept = Path(os.environ.get("SHARDFIT_BENCH_RUNS", spare))
        cases = [once(kept, t, n, s) for s in range(seeds) for n in levels for t in truths]
        others = [] if quick else [f"{truth} gains" for truth in UNCALIBRATED]
        more = {name: [once(kept, name, NOISE[0], s) for s in range(UNCALIBRATED_SEEDS)] for name in others}
    groups = {truth: [c for c in cases if c["truth"] == truth] for truth in truths}
    groups |= {f"noise x{level:g}": [c for c in cases if c["noise"] == level] for level in levels}
    return {name: together(group) for name, group in {**groups, "all": cases, **more}.items()}


def once(folder: Path, truth: str, noise: float, seed: int) -> dict:
    """Return one case, from its file if there is one."""
    file = folder / f"{truth}-{noise:g}-{seed}.json"
    if not file.exists():
        found = {"truth": truth, "noise": noise, "seed": seed, **case(truth, noise, seed)}
        folder.mkdir(parents=True, exist_ok=True)
        file.with_suffix(".part").write_text(json.dumps(found, allow_nan=False))
        file.with_suffix(".part").replace(file)
        print(json.dumps(found), file=sys.stderr, flush=True)
    return json.loads(file.read_text())


def case(truth: str, noise: float, seed: int) -> dict:
    """Return how one posterior compares with its truth."""
    name, _, gains = truth.partition(" ")
    sky = centred(source(name)) if gains else source(name)
    products, error = ("gains", GAINS) if gains else ("vis", 0.0)
    began = time.process_time()
    seen = night(sky, noise, seed, error)
    field = {"npix": NPIX, "fov_uas": FIELD / UAS}
    found = posterior(seen, **field, flux=TOLD, products=products, gain_error=error or GAINS, draws=DRAWS, seed=seed)
    cpu = time.process_time() - began
    flux = found.of(lambda image: image.flux)
    return {
        "raw": compare(found, sky),
        "blurred": compare(found.blur(BLUR), sky.blur(BLUR)),
        "flux_z": float((flux.mean() - FLUX) / flux.std(ddof=1)),
        "chi2": float(found.chi2.mean()),
        "effective": float(found.numbers.extra["hyper_effective"]),
        "cpu": cpu,
    }


def source(name: str) -> Image:
    """Return a truth of 0.6 Jy, 128 x 128 pixels of 1 µas."""
    if name != "jet":
        return known_image(name, FINE, flux=FLUX)
    # a core and knots of a jet that become wider and fainter
    empty = blank(FINE, FIELD, **M87_LIKE)
    parts = [gaussian(empty, 0.3, 14 * UAS, x_rad=-18 * UAS, y_rad=-14 * UAS)]
    for i, flux in enumerate((0.12, 0.08, 0.05, 0.03, 0.02)):
        at = {"x_rad": (-6 + 10 * i) * UAS, "y_rad": (-4 + 9 * i) * UAS}
        parts.append(gaussian(empty, flux, (14 + 3 * i) * UAS, **at))
    return empty.replace(values={"I": sum(part.values["I"] for part in parts)}).normalise(FLUX)


def centred(sky: Image) -> Image:
    """Return a sky with its centroid in the middle, where images without known phases are put."""
    values = sky.values["I"]
    middle = [(np.arange(n) - (n - 1) / 2) for n in values.shape]
    away = [np.sum(values.sum(1 - axis) * middle[axis]) / values.sum() for axis in (0, 1)]
    moved = np.fft.ifft2(fourier_shift(np.fft.fft2(values), [-one for one in away])).real
    return sky.replace(values={"I": moved})


def night(sky: Image, noise: float, seed: int, gains: float = 0.0) -> Observation:
    """Return visibilities whose errors are what they say; calibrated, or with gain errors and random phases."""
    exact = observe(sky, gains=gains, random_phase=gains > 0, seed=seed, noise=False)
    sigma = np.hypot(noise * exact.sigma["I"], SYSTEMATIC * np.abs(exact.vis["I"]))
    real, imaginary = np.random.default_rng([seed, 1000]).normal(size=(2, len(sigma)))
    return exact.replace(vis={"I": exact.vis["I"] + sigma * (real + 1j * imaginary)}, sigma={"I": sigma})


def compare(found, sky: Image) -> list[float]:
    """Return the shares of bright pixels within one and two standard deviations, and the rms deviation."""
    truth = sampled(sky)
    z = ((found.mean().values["I"] - truth) / found.sd().values["I"])[truth > BRIGHT * truth.max()]
    return [float(np.mean(np.abs(z) < 1)), float(np.mean(np.abs(z) < 2)), float(np.sqrt(np.mean(z**2)))]


def sampled(sky: Image) -> np.ndarray:
    """Return the sky at the centres of the posterior's pixels, in Jy of a pixel."""
    step = FINE // NPIX
    middle = slice(step // 2 - 1, step // 2 + 1)  # centres lie between pixels
    blocks = sky.values["I"].reshape(NPIX, step, NPIX, step)[:, middle, :, middle]
    return blocks.mean((1, 3)) * step**2


def together(cases: list[dict]) -> dict:
    """Return means over cases, and root mean squares of what is in standard deviations."""
    figures: dict[str, float] = {"cases": len(cases)}
    for kind in ("blurred", "raw"):
        one, two, rms = np.array([c[kind] for c in cases]).T
        figures |= {f"{kind}_1sd": float(one.mean()), f"{kind}_2sd": float(two.mean()), f"{kind}_z": _rms(rms)}
        figures |= {f"{kind}_lowest": float(one.min()), f"{kind}_error": float(one.std() / np.sqrt(len(one)))}
    figures["flux_z"] = _rms([c["flux_z"] for c in cases])
    for name in ("chi2", "effective", "cpu"):
        figures[name] = float(np.mean([c[name] for c in cases]))
    figures["chi2_off"] = float(np.max(np.abs(np.array([c["chi2"] for c in cases]) - 1)))
    return figures


def _rms(values) -> float:
    return float(np.sqrt(np.mean(np.square(values))))
