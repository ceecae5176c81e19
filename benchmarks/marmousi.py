"""The inversion of Marmousi that docs/seismic.md shows, by the command, pictures and report included.

It has no peer: what counts is how far from the truth the model is before and after. The model is not part of this
package; SHARDFIT_DATA names the folder that holds it.
"""

import csv
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.peers import ROOT

PEERS = ()
SETTINGS = {"precision": "float32", "threads": "both cores"}
SHOWN = ("loss", "model_error", "similarity")


def run(quick: bool) -> dict[str, dict]:
    """Return the one case; --quick takes two steps."""
    rows, seconds = inverted("marmousi.toml", *(["--epochs", "2"] if quick else []))
    return {"inversion": {**seconds, "steps": len(rows) - 1, **ends(rows)}}


def inverted(config: str, *options: str) -> tuple[list[dict], dict]:
    """Return the rows of metrics.csv of an inversion by the command, and its wall and CPU seconds."""
    if "SHARDFIT_DATA" not in os.environ:
        raise RuntimeError("the suite marmousi needs the model: name its folder by SHARDFIT_DATA, see docs/seismic.md.")
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "shardfit", "seismic", "invert", str(ROOT / "benchmarks" / config)]
        wall, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run([*command, "--out", folder, *options], cwd=ROOT, capture_output=True, text=True)
        wall, after = time.perf_counter() - wall, resource.getrusage(resource.RUSAGE_CHILDREN)
        if done.returncode not in (0, 1):  # 1: the answer is doubtful
            raise RuntimeError(f"the inversion failed:\n{done.stderr[-2000:]}")
        with open(Path(folder) / "metrics.csv") as file:
            rows = list(csv.DictReader(file))
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return rows, {"ours": wall, "cpu_ours": cpu}


def ends(rows: list[dict]) -> dict[str, float]:
    """Return what a run shows of its first and last step."""
    return {f"{name}_{when}": float(rows[i][name]) for name in SHOWN for when, i in (("first", 0), ("last", -1))}
