"""XPCS fits and posteriors of simulated laminar flow: CPU seconds, each case in fresh processes.

Fits: `new` with an empty folder of compiled programs, `cached` with a filled one: the whole process from its start to
the answer, reading the file apart; `again` the same fit once more in that process. Rates: millions of points of the
upper triangle per CPU second, of the normal equations and of the value. memory: bytes beyond those in use before the
fit. error: largest distance of a parameter from the truth, in standard errors. The peer is scipy's least_squares with
residual and Jacobian compiled by JAX, the faster of its methods 'trf' and 'lm', both from one start to one value.
"""

import json
import os
import subprocess
import sys
import tempfile

from benchmarks.peers import ROOT

PEERS = ()
SETTINGS = {"precision": "float64", "threads": "both cores for XLA", "processes": "fresh"}
CASES = {"23x210": (23, 210), "23x500": (23, 500), "23x1000": (23, 1000)}
PEER, SMALL, SHARD = "23x500 / scipy", "first small fit", "shard of 4830 points"
QUICK = ("23x210",)


def run(quick: bool) -> dict[str, dict]:
    """Return the figures of fits, of the peer, of a process's first small fit and of a sampled shard."""
    cases = {case: _fits(*CASES[case]) for case in (QUICK if quick else CASES)}
    if quick:
        return cases
    with tempfile.TemporaryDirectory() as folder:
        _program(folder, "make", 23, 500)
        cases[PEER] = _program(folder, "peer", 23, 500)
    with tempfile.TemporaryDirectory() as folder:
        _program(folder, "make", 3, 50)
        _program(folder, "fit", 3, 50)
        small = _program(folder, "fit", 3, 50)
        cases[SMALL] = {"wall": small["wall"], "cpu": small["whole"], "error": small["error"]}
    with tempfile.TemporaryDirectory() as folder:
        _program(folder, "sample", 23, 21)
        cases[SHARD] = _program(folder, "sample", 23, 21)
    return cases


def _fits(n: int, nt: int) -> dict:
    with tempfile.TemporaryDirectory() as folder:
        _program(folder, "make", n, nt)
        first, second = (_program(folder, "fit", n, nt) for _ in range(2))
    return {**second, "new": first["whole"], "cached": second["whole"], "memory": first["memory"]}


def _program(folder: str, what: str, n: int, nt: int) -> dict:
    # JAX's own settings of the cache would come first
    plain = {k: v for k, v in os.environ.items() if not k.startswith(("JAX_COMPILATION", "JAX_PERSISTENT"))}
    environment = {**plain, "JAX_PLATFORMS": "cpu", "SHARDFIT_COMPILE_CACHE": f"{folder}/compiled"}
    environment["PYTHONPATH"] = f"{ROOT / 'src'}:{ROOT}"
    command = [sys.executable, "-m", "benchmarks.xpcs_run", what, str(n), str(nt), f"{folder}/data.npz"]
    done = subprocess.run(command, env=environment, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.splitlines()[-1])
