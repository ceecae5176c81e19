"""Images of the eight public M87 files by the command, with preset eht and preset m87, compact flux 0.6 Jy.

Cases are days of 2017 and bands. χ² per measurement as the command prints it: eht_*, m87_*, of the image on the
prepared data; calibrated_*, on the self-calibrated data, both without station tolerances; eht_fit_amp: of amplitudes as
fitted, with them. doubts: how many things the command doubts. ring: µas, diameter of the ring in the image of preset
m87. bands: per day, correlation of the images of both bands. SHARDFIT_DATA names the folder whose subfolder eht holds
the files; SHARDFIT_BENCH_RUNS keeps the run directories, with their pictures.
"""

import os
import re
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.peers import ROOT
from shardfit.domains.vlbi import UAS, extract_ring, read_image
from shardfit.domains.vlbi.recipes import cross_correlation

PEERS = ()
SETTINGS = {"precision": "float64", "threads": "all of one process"}
DAYS, BANDS = ("095", "096", "100", "101"), ("lo", "hi")
LINE = re.compile(r"  χ² (\w+) +\d+ measurements  (.*)")
NUMBER = re.compile(r"(fit|prepared data|self-calibrated) ([\d.]+)")


def run(quick: bool) -> dict[str, dict]:
    """Return the figures of every file; --quick: one file, few steps."""
    if "SHARDFIT_DATA" not in os.environ:
        raise RuntimeError("the suite m87_days needs the eight files: SHARDFIT_DATA names a folder that holds eht/.")
    days, bands = (DAYS[-1:], BANDS[:1]) if quick else (DAYS, BANDS)
    cases, images = {}, {}
    with tempfile.TemporaryDirectory() as spare:
        kept = Path(os.environ.get("SHARDFIT_BENCH_RUNS", spare))
        for day in days:
            for band in bands:
                name = f"{day} {band}"
                cases[name], images[day, band] = _file(day, band, kept, quick)
                print(name, cases[name], file=sys.stderr, flush=True)
    if not quick:
        pairs = {day: cross_correlation(*(images[day, band] for band in bands)) for day in days}
        cases["bands"] = {**pairs, "least": min(pairs.values())}
        rings = [case["ring"] for name, case in cases.items() if name != "bands"]
        cases["ring"] = {"mean": float(np.mean(rings)), "least": min(rings), "most": max(rings)}
    return cases


def _file(day: str, band: str, folder: Path, quick: bool) -> tuple[dict, object]:
    """Return the figures of one file, and its image by preset m87."""
    figures = {}
    file = Path(os.environ["SHARDFIT_DATA"]) / "eht" / f"SR1_M87_2017_{day}_{band}_hops_netcal_StokesI.uvfits"
    for preset in ("eht", "m87"):
        out = folder / f"{day}-{band}-{preset}"
        said = _command(file, preset, out, quick)
        table = {name: dict(NUMBER.findall(rest)) for name, rest in LINE.findall(said["text"])}
        products = ("amp", "cphase", "logcamp")
        figures |= {f"{preset}_{name}": float(table[name]["prepared data"]) for name in products}
        if preset == "eht":
            figures["eht_fit_amp"] = float(table["amp"]["fit"])
        figures |= {f"{preset}_doubts": said["text"].count("doubtful:"), f"{preset}_cpu": said["cpu"]}
    figures |= {f"calibrated_{name}": float(table[name]["self-calibrated"]) for name in ("vis", "amp")}
    image = read_image(out / "image.fits")
    return figures | {"ring": extract_ring(image).diameter / UAS}, image


def _command(file: Path, preset: str, out: Path, quick: bool) -> dict:
    command = [sys.executable, "-m", "shardfit", "vlbi", "image", str(file), "--preset", preset]
    command += ["--flux", "0.6", "--out", str(out), *(["--maxiter", "30"] if quick else [])]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode not in (0, 1):  # 1: the answer is doubtful
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
    return {"text": done.stdout, "cpu": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime}
