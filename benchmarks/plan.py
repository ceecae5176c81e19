"""Is plan() right about whole fits? Predicted against measured peak memory and processor time of 12 kinds of models.

Each fit runs in a fresh process with one thread; what its peak resident memory grows by (VmHWM, from just before the
fit, with the data in host arrays) and the processor time it takes, compiling and checks included, are compared with
what `plan` says in another process. `ours` is the prediction and `peer` the measurement, in bytes; quality_ours and
quality_peer are predicted and measured seconds, for the evaluations that the fit took.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers import ROOT, THREADS

PEERS = ()
SETTINGS = {
    "precision": "float64, float32 where a case says so",
    "threads": "one",
    "steps": "as many as each case says",
}
TOLERANCE = 0.25
# by case: solver and its options
CASES: dict[str, tuple[str, dict]] = {
    "rows-lm": ("lm", {"maxiter": 30}),
    "rows-lbfgsb": ("lbfgsb", {"maxiter": 15}),
    "bins-adam": ("adam", {"maxiter": 15}),
    "bins-chunked-lbfgs": ("lbfgs", {"maxiter": 8}),
    "operator-lbfgs": ("lbfgs", {"maxiter": 20}),
    "operator-float32-lbfgs": ("lbfgs", {"maxiter": 20}),
    "operator-lm": ("lm", {"maxiter": 5}),
    "pixels-lbfgs": ("lbfgs", {"maxiter": 40}),
    "pixels-lbfgsb": ("lbfgsb", {"maxiter": 40}),
    "pixels-adam": ("adam", {"maxiter": 60}),
    "image-lbfgs-bt": ("lbfgs-bt", {"maxiter": 30}),
    "rows-swarm": ("swarm", {"maxiter": 10, "particles": 8}),
}
QUICK = ("pixels-lbfgs", "rows-lm")


def run(quick: bool) -> dict:
    """Return {case: {ours, peer, ratio, quality_ours, quality_peer}}."""
    return {case: compared(case) for case in (QUICK if quick else CASES)}


def compared(case: str) -> dict:
    """Return what was said and what was measured of a case, each in a process of its own."""
    fitted = in_a_process("fit", case)
    said = in_a_process("plan", case)
    seconds = said["overhead"] + said["seconds"] * fitted["evaluations"]
    return {
        "ours": said["bytes"],
        "peer": fitted["bytes"],
        "ratio": said["bytes"] / fitted["bytes"],
        "quality_ours": seconds,
        "quality_peer": fitted["seconds"],
    }


def in_a_process(what: str, case: str) -> dict:
    """Return what a process of its own says: of its "fit", or of the "plan"."""
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    environment = {**os.environ, **THREADS, "PYTHONPATH": paths, "SHARDFIT_COMPILE_CACHE": "off"}
    command = [sys.executable, "-m", "benchmarks.plan", what, case]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=900)
    if done.returncode:
        raise RuntimeError(f"{what} of {case} failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def problem(case: str) -> Any:
    """Make a case's problem; it needs some hundred megabytes."""
    import jax
    import jax.numpy as jnp

    import shardfit as sf

    rng = np.random.default_rng(0)
    kind = case.partition("-")[0]
    precision = "float32" if "float32" in case else "float64"

    def decay(p, rows):
        return (rows["y"] - p["a"] * jnp.exp(-rows["x"] / p["tau"]) - p["b"]) / rows["sigma"]

    def membership(p, rows, edges):
        return jnp.diff(jax.scipy.special.ndtr((edges - p["a"] * rows["x"][:, None]) / p["tau"]), axis=1)

    def misfit(counts, edges):
        return jnp.mean((jnp.log(counts + 1.0) - 3.0) ** 2)

    def product(p, rows):
        return rows["A"] @ jnp.exp(p["z"]) - rows["y"]

    def sampled(p, rows):
        return jnp.tanh(p["z"][rows["at"]]) - rows["y"]

    def roughness(p):
        return jnp.concatenate([jnp.diff(p["z"]), 0.1 * p["z"]])

    def columns(n, *names):
        return {name: rng.random(n) + 0.5 for name in names}

    start: Any = {"a": 1.0, "b": 0.1, "tau": 1.3}
    if kind == "rows":
        n = 400_000 if case.endswith("swarm") else 8_000_000
        terms = {"data": sf.residual_term(decay, columns(n, "x", "y", "sigma"))}
        if case.endswith("lbfgsb"):
            terms = {"data": sf.residual_term(decay, columns(n, "x", "y", "sigma"), chunk=None)}
    elif kind == "bins":
        chunk = 200_000 if "chunked" in case else None
        rows, edges = columns(600_000, "x"), np.linspace(-3, 3, 17)
        terms = {"data": sf.statistic_term(membership, rows, edges, loss=misfit, chunk=chunk)}
        start = {"a": 1.0, "tau": 1.3}
    elif kind == "operator":
        n, p = (30_000, 256) if case.endswith("lm") else (60_000, 512)
        rows = {"A": rng.random((n, p)) / p, "y": rng.random(n)}
        terms, start = {"data": sf.residual_term(product, rows)}, {"z": np.zeros(p)}
    else:
        n = 1_000_000 if kind == "pixels" else 400_000
        rows = {"at": rng.integers(0, n, 300_000), "y": rng.random(300_000) - 0.5}
        terms = {"data": sf.residual_term(sampled, rows), "smooth": sf.residual_penalty(roughness)}
        start = {"z": np.zeros(n)}
    bounds = (0.1, 3.0) if case.endswith("swarm") else None
    return sf.Problem(sf.Objective(terms), start, bounds=bounds, name=case, precision=precision)


def fit(case: str) -> dict:
    """Fit in this process and return what it took."""
    import jax

    import shardfit as sf

    given = problem(case)
    solver, options = CASES[case]
    jax.block_until_ready(jax.numpy.zeros(3) + 1)
    Path("/proc/self/clear_refs").write_text("5")
    before, cpu, began = _status("VmRSS"), time.process_time(), time.perf_counter()
    result = sf.fit(given, solver, progress=False, **options)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - began
    return {
        "bytes": _status("VmHWM") - before,
        "seconds": cpu,
        "wall": wall,
        "evaluations": result.evaluations,
        "timings": result.timings,
        "status": str(result.status),
    }


def plan(case: str) -> dict:
    """Say what the fit will take."""
    import shardfit as sf

    solver, options = CASES[case]
    cpu = time.process_time()
    said = sf.plan(problem(case), solver, **options)
    return {
        "bytes": said.total,
        "seconds": said.seconds,
        "overhead": said.overhead,
        "memory": {k: int(v) for k, v in vars(said.memory).items()},
        "took": time.process_time() - cpu,
    }


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name + ":"))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("fit", "plan"))
    parser.add_argument("case", choices=CASES)
    chosen = parser.parse_args()
    print(json.dumps({"fit": fit, "plan": plan}[chosen.what](chosen.case)))
