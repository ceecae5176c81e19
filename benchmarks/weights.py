"""Weights of regularisers by cross-validation against those of `image`: which image is closer to the truth?

Sources of 0.6 Jy seen by the EHT of 2017 with gain errors of 5 % and random phases (ring, crescent, disk, double, jet;
short: a ring for half of the night) and by the VLBA at 43 GHz (vlba), two nights each, images of 32 x 32 pixels; truths
have finer ones. Both images are made with the same preset (eht; default for the VLBA), fits and restarts. match:
normalised cross-correlation with the truth; coarse: the same of both blurred to half the nominal resolution. chi2: mean
of the closures' χ² per measurement. best_*: highest of all choices that were tried, each fitted once to all data.
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

from benchmarks.problems.vlbi_arrays import vlba
from shardfit.domains import vlbi
from shardfit.domains.vlbi import UAS, Image, Observation
from shardfit.domains.vlbi.recipes.simulated import M87_LIKE
from shardfit.domains.vlbi.recipes.weights import AXES, FOLDER
from shardfit.surveys.control import SurveyControl
from shardfit.surveys.reading import Survey

PEERS = ()
SETTINGS = {
    "precision": "float32, float64 for the last image",
    "threads": "all of one process",
    "time above": "of what was not kept from earlier runs",
}
SOURCES = ("ring", "crescent", "disk", "double", "jet", "short", "vlba")
SEEDS, DIVISIONS = (0, 1), ("scans", "baselines")
FINE, NPIX, FLUX, SLOTS = 96, 32, 0.6, 54
CLOSURES = ("cphase", "logcamp")


def run(quick: bool) -> dict[str, dict]:
    """Return figures of every source, and of all; --quick: one night of a double, few choices."""
    asked = [("double", 0)] if quick else list(itertools.product(SOURCES, SEEDS))
    axes = {"simple": (1.0, 100.0)} if quick else AXES
    with tempfile.TemporaryDirectory() as spare:
        kept = Path(os.environ.get("SHARDFIT_BENCH_RUNS", spare))
        cases = [once(kept, name, seed, axes) for name, seed in asked]
    groups = {name: [c for c in cases if c["source"] == name] for name in dict.fromkeys(c["source"] for c in cases)}
    return {name: together(group) for name, group in {**groups, "all": cases}.items()}


def once(folder: Path, source: str, seed: int, axes) -> dict:
    """Return one case, from its file if there is one."""
    file = folder / f"{source}-{seed}.json"
    if not file.exists():
        found = {"source": source, "seed": seed, **case(source, seed, axes)}
        folder.mkdir(parents=True, exist_ok=True)
        file.with_suffix(".part").write_text(json.dumps(found, allow_nan=False))
        file.with_suffix(".part").replace(file)
        print(json.dumps(found), file=sys.stderr, flush=True)
    return json.loads(file.read_text())


def case(source: str, seed: int, axes) -> dict:
    """Return how images with given and with chosen weights compare with the truth."""
    sky, obs, preset = SKIES[source](seed)
    field = FINE * sky.pixel_rad
    truth = vlbi.regrid(sky, NPIX, field)
    options = {"preset": preset, "npix": NPIX, "fov_uas": field / UAS, "flux": sky.flux}
    plain = vlbi.image(obs, **options, follow=False)
    beam = 0.5 * obs.nominal_resolution
    made = {"default": _figures(plain, truth, beam)}
    for by in DIVISIONS:
        began = time.process_time()
        with tempfile.TemporaryDirectory() as folder:
            control = SurveyControl(SLOTS, progress=False)
            found = vlbi.cross_validate(obs, axes, run_dir=folder, by=by, seed=seed, control=control, **options)
            cpu = time.process_time() - began
            with Survey(Path(folder) / FOLDER) as survey:
                made["choices"] = _choices(survey, axes, truth, beam)
                made[f"{by}_converged"] = survey.converged
        made[by] = {**_figures(found.image, truth, beam), "weights": dict(found.weights), "cpu": cpu}
        made[by] |= {"scores": found.mean.tolist(), "training": found.training.tolist()}
    made |= {name: max(one[name] for one in made["choices"]) for name in ("match", "coarse")}
    return made


def _choices(survey: Survey, axes, truth: Image, beam: float) -> list[dict]:
    """Return every choice's weights, and how alike image and truth are."""
    found = []
    for i in np.flatnonzero(survey.column("fold") == -1):
        image = truth.replace(values={"I": survey.picture(int(survey.column("id")[i])).astype(float)})
        found.append({"weights": {name: float(survey.column(name)[i]) for name in axes}, **_alike(image, truth, beam)})
    return found


def _alike(image: Image, truth: Image, beam: float) -> dict:
    coarse = vlbi.cross_correlation(image.blur(beam), truth.blur(beam))
    return {"match": vlbi.cross_correlation(image, truth), "coarse": coarse}


def _figures(found, truth: Image, beam: float) -> dict:
    chi2 = float(np.mean([found.chi2[name] for name in CLOSURES]))
    return {**_alike(found.image, truth, beam), "chi2": chi2}


def together(cases: list[dict]) -> dict:
    """Return means over cases."""
    figures: dict[str, float] = {"cases": len(cases)}
    for kind in ("default", *DIVISIONS):
        for name in ("match", "coarse", "chi2"):
            figures[f"{kind}_{name}"] = float(np.mean([c[kind][name] for c in cases]))
    for by in DIVISIONS:
        for name in ("match", "coarse"):
            figures[f"{by}_better_{name}"] = sum(c[by][name] > c["default"][name] for c in cases)
        figures[f"{by}_cpu"] = float(np.mean([c[by]["cpu"] for c in cases]))
        figures[f"{by}_converged"] = float(np.mean([c[f"{by}_converged"] for c in cases]))
    figures |= {f"best_{name}": float(np.mean([c[name] for c in cases])) for name in ("match", "coarse")}
    return figures


def _known(name: str, **night):
    def make(seed: int) -> tuple[Image, Observation, str]:
        sky = vlbi.known_image(name, FINE, flux=FLUX)
        return sky, vlbi.observe(sky, seed=seed, **night), "eht"

    return make


def _parts(empty: Image, unit: float, parts) -> Image:
    planes = [vlbi.gaussian(empty, f, w * unit, x_rad=x * unit, y_rad=y * unit).values["I"] for f, w, x, y in parts]
    return empty.replace(values={"I": np.sum(planes, axis=0)}).normalise(FLUX)


def _jet(seed: int) -> tuple[Image, Observation, str]:
    knots = [(0.3, 14, -18, -14), (0.12, 14, -6, -4), (0.08, 17, 4, 5), (0.05, 20, 14, 14), (0.03, 23, 24, 23)]
    sky = _parts(vlbi.blank(FINE, 128 * UAS, **M87_LIKE, source="JET"), UAS, knots)
    return sky, vlbi.observe(sky, seed=seed), "eht"


def _vlba(seed: int) -> tuple[Image, Observation, str]:
    about = {"ra_hours": 6.0, "dec_deg": 30.0, "freq_hz": 43.1e9, "mjd": 57854, "source": "JET43"}
    sky = _parts(
        vlbi.blank(FINE, 2400 * UAS, **about), 100 * UAS, [(0.7, 1.5, 0, 0), (0.3, 2, -3.5, 2.5), (0.2, 4, -6.5, 5)]
    )
    night = {"bandwidth_hz": 256e6, "stop_h": 24.0, "cadence_s": 1800.0}
    return sky, vlbi.observe(sky, vlba(1400.0), seed=seed, **night), "default"


SKIES = {name: _known(name) for name in ("ring", "crescent", "disk", "double")}
SKIES |= {"short": _known("ring", stop_h=6.0), "jet": _jet, "vlba": _vlba}
