"""The first round of the M87 pipeline in our own variables, against eht-imaging with NFFT: one fit, three restarts.

m87: both to equal tolerances, one thread each, float64; ours solves the image in the power 1.5, the peer in the
logarithm. cold: with imports and reading, for ours also compiling without a cache. cached: ours in a new process that
finds what an earlier one compiled.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.duel import duel
from benchmarks.peers import ROOT, THREADS
from benchmarks.vlbi import SIDES, STOP, TOLERANCE, m87

PEERS = ("ehtim",)
SETTINGS = {"precision": "float64", "threads": "one each", "NUFFT of the peer": f"{TOLERANCE:g}"}


def run(quick: bool) -> dict[str, dict]:
    """Return the figures."""
    with tempfile.TemporaryDirectory() as folder:
        task = {
            "kind": "schedule",
            "stop": STOP,
            "variables": "power",
            "transform": "nfft",
            "nufft_tolerance": TOLERANCE,
        }
        task |= {**m87(Path(folder) / "m87"), "transform": "nfft", "nufft_tolerance": TOLERANCE}
        figures = duel("ehtim", SIDES, task, 1 if quick else 3)
        ours, peer = figures.pop("said_ours"), figures.pop("said_peer")
        cached = [_alone(task, Path(folder) / "compiled") for _ in range(2)][-1]
    figures |= {"quality_ours": ours["J"], "quality_peer": peer["J"]}
    for kind, mine in (("cold", ours), ("cached", cached)):
        figures |= {f"{kind}_ours": mine["cold"], f"{kind}_cpu_ours": mine["cold_cpu"]}
        figures |= {f"{kind}_cpu_ratio": peer["cold_cpu"] / mine["cold_cpu"]}
    return {"m87": figures | {"cold_peer": peer["cold"], "cold_cpu_peer": peer["cold_cpu"]}}


def _alone(task: dict, cache: Path) -> dict:
    """Return what our side says of its first call in a new process with a folder of compiled programs."""
    own = {"JAX_ENABLE_COMPILATION_CACHE": "true", "SHARDFIT_COMPILE_CACHE": str(cache)}
    env = {k: v for k, v in os.environ.items() if k != "JAX_COMPILATION_CACHE_DIR"} | THREADS | own
    asked = f"{json.dumps(task)}\n{json.dumps('describe')}\n"
    command = [sys.executable, "-m", SIDES[0]]
    done = subprocess.run(command, input=asked, cwd=ROOT, env=env, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{SIDES[0]} failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])
