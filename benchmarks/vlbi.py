"""Imaging against eht-imaging 1.3.2, one thread each, float64, on the same data and settings.

vis, closures, channels, m87: one value and gradient, the peer by each of its exact transforms (-direct, -nfft, whose
calls finufft answers); nufft: ours by jax-finufft too, both to the same tolerance. optimizer-*: 200 iterations from the
same start, and schedule: the first round of the M87 pipeline, one fit and three restarts to equal tolerances; the peer
by the transform that was faster before. memory-*: peak memory of an evaluation against the matrix that a direct
transform would hold, which is computed, not measured.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.duel import duel
from benchmarks.peers import ROOT
from shardfit import data

PEERS = ("ehtim",)
SETTINGS = {"precision": "float64", "threads": "one each", "NUFFT": "1e-9 on both sides"}
SIDES = ("benchmarks.vlbi_ours", "benchmarks.vlbi_ehtim")
M87 = data.folder("m87") / "SR1_M87_2017_101_lo_hops_netcal_StokesI.uvfits"
CLOSURES = {"amp": 0.2, "cphase": 1.0, "logcamp": 1.0}
SMOOTH = {"simple": 1.0, "tv": 1.0}
PIPELINE = {"simple": 100.0, "tv": 1.0, "tv2": 1.0, "flux": 1e4}
# seconds from one integration to the next decide the number of visibilities
SKIES = {
    "vis": {"shape": (40, 40), "cadence": 191.5, "data": {"vis": 1.0}},
    "closures": {"shape": (40, 40), "cadence": 191.5, "data": CLOSURES},
    "channels": {"shape": (32, 64), "cadence": 298.0, "data": {"vis": 1.0}, "channels": 8},
}
EVEN = {"shape": (32, 32), "cadence": 240.0, "data": {"vis": 1.0}}
TOLERANCE = 1e-9
STOP = 1e-6  # of a fit: relative change of the objective, and largest slope
SOLVERS = ("lbfgs", "lbfgs-bt", "lbfgsb")
TRANSFORMS = ("direct", "nfft")
MATRICES = {"memory-128": (128, 10_000), "memory-1024": (1024, 10_000)}


def run(quick: bool) -> dict[str, dict]:
    """Return the figures of every case; --quick leaves out the long ones."""
    cases = {}
    with tempfile.TemporaryDirectory() as folder:
        skies = {case: simulated(sky, Path(folder) / case) for case, sky in SKIES.items()}
        skies["m87"] = m87(Path(folder) / "m87")
        for case, sky in skies.items():
            for transform in TRANSFORMS:
                cases[f"{case}-{transform}"] = _duel({"kind": "evaluate", "repeats": 20, **sky, "transform": transform})
        even = {**simulated(EVEN, Path(folder) / "even"), "operator": "nufft", "transform": "nfft"}
        cases["nufft"] = _duel({"kind": "evaluate", "repeats": 20, **even})
        if quick:
            return cases
        for solver in SOLVERS:
            sky = {**skies["vis"], "transform": _faster(cases, "vis")}
            cases[f"optimizer-{solver}"] = _duel({"kind": "optimize", "solver": solver, **sky}, 2)
        schedule = {"kind": "schedule", "stop": STOP, **skies["m87"], "transform": _faster(cases, "m87")}
        cases["schedule"] = _duel(schedule, 2)
        for case, (npix, n) in MATRICES.items():
            cases[case] = _memory(npix, n)
    return cases


def _faster(cases: dict, case: str) -> str:
    """Return the transform by which the peer needed less CPU time."""
    return min(TRANSFORMS, key=lambda transform: cases[f"{case}-{transform}"]["cpu_peer"])


def _duel(arguments: dict, rounds: int = 5) -> dict:
    figures = duel("ehtim", SIDES, {"stop": 1e-30, **arguments, "nufft_tolerance": TOLERANCE}, rounds)
    ours, peer = figures.pop("said_ours"), figures.pop("said_peer")
    repeats = arguments.get("repeats", 1)
    for name in ("ours", "peer", "cpu_ours", "cpu_peer"):
        figures[name] /= repeats
    qualities = {"quality_ours": ours["J"], "quality_peer": peer["J"], "transform": arguments["transform"]}
    return figures | qualities | {"details": {"ours": ours, "peer": peer}}


def simulated(sky: dict, folder: Path) -> dict:
    """Write a simulated observation of a ring, one file a channel, and return what both sides need to know."""
    from shardfit.domains.vlbi.constants import UAS
    from shardfit.domains.vlbi.images import blank, prior, ring
    from shardfit.domains.vlbi.simulation import EHT2017, Night, simulate
    from shardfit.domains.vlbi.uvfits import write_uvfits

    ny, nx = sky["shape"]
    folder.mkdir(exist_ok=True)
    pixel = 128 * UAS / nx
    files, n = [], sky.get("channels", 1)
    for k in range(n):
        hertz = 230e9 + (k - (n - 1) / 2) * 2e9
        about = {"ra_hours": 12.513729, "dec_deg": 12.391123, "freq_hz": hertz, "mjd": 57854, "source": "RING"}
        truth = ring(blank(nx, nx * pixel, ny=ny, **about), 0.6, 15 * UAS, 12 * UAS, asymmetry=0.6)
        obs = simulate(truth, EHT2017, Night(stop_h=24.0, cadence_s=sky["cadence"]), seed=k)
        files.append(str(folder / f"channel{k}.uvfits"))
        write_uvfits(obs, files[-1], overwrite=True)
    start = prior(truth, 0.6, 40 * UAS)
    np.save(folder / "prior.npy", start.values["I"])
    return {
        "files": files,
        "prior": str(folder / "prior.npy"),
        "pixel_rad": pixel,
        "reference_hz": 222e9,
        "data": sky["data"],
        "regularisers": SMOOTH,
        "tolerance": {},
        "operator": "auto",
    }


def m87(folder: Path) -> dict:
    """Write the prepared M87 data of day 101, low band."""
    from shardfit.domains.vlbi.constants import UAS
    from shardfit.domains.vlbi.images import blank, prior
    from shardfit.domains.vlbi.recipes import EHT2017_TOLERANCE, ZERO_BASELINE, prepare
    from shardfit.domains.vlbi.uvfits import read_uvfits, write_uvfits

    folder.mkdir(exist_ok=True)
    ready = prepare(read_uvfits(M87), 0.6, systematic=0.02, average=True, zero_baseline=ZERO_BASELINE)
    write_uvfits(ready, folder / "m87.uvfits", overwrite=True)
    about = {name: getattr(ready, name) for name in ("ra_hours", "dec_deg", "freq_hz", "mjd", "source")}
    np.save(folder / "prior.npy", prior(blank(64, 128 * UAS, **about), 0.6, 40 * UAS).values["I"])
    return {
        "files": [str(folder / "m87.uvfits")],
        "prior": str(folder / "prior.npy"),
        "pixel_rad": 2 * UAS,
        "reference_hz": ready.freq_hz,
        "data": CLOSURES,
        "regularisers": PIPELINE,
        "tolerance": dict(EHT2017_TOLERANCE),
        "operator": "auto",
    }


def _memory(npix: int, n: int) -> dict:
    command = [sys.executable, "-m", "benchmarks.vlbi_memory", str(npix), str(n)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"memory case of {npix} pixels failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])
