"""Is plan() right? Predicted against measured peak memory of a whole process, over all its devices.

Each case runs in a fresh process. Its baseline is taken with everything compiled once on a few rows and the data in
host arrays, as they are when a fit begins; then the rows are placed and evaluated, and the growth of the process's
peak resident memory (VmHWM, reset at the baseline) is what the prediction is compared with.
`ours` is the prediction and `peer` the measurement, in bytes; quality_* are predicted and measured seconds.
"""

import argparse
import gc
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
PEERS = ()
SETTINGS = {"precision": "float64", "threads": "both cores for XLA", "devices": "one or two virtual ones"}
TOLERANCE = 0.2
CASES = ("residual", "residual-chunked", "statistic", "statistic-chunked", "operator", "gram")
QUICK = (("residual", 1), ("statistic-chunked", 2), ("gram", 2))


def run(quick: bool) -> dict:
    """Return {case: {ours, peer, ratio, quality_ours, quality_peer}}."""
    chosen = QUICK if quick else [(case, devices) for case in CASES for devices in (1, 2)]
    return {f"{case}/{devices}": measure(case, devices) for case, devices in chosen}


def measure(case: str, devices: int) -> dict:
    """Run one case in a process of its own."""
    environment = {
        **os.environ,
        "JAX_PLATFORMS": "cpu",
        "JAX_ENABLE_COMPILATION_CACHE": "false",
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}",
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH")])),
    }
    command = [sys.executable, "-m", "benchmarks.memory", case, str(devices)]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=300)
    if done.returncode:
        raise RuntimeError(f"memory case {case} on {devices} devices failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def problem(case: str, scale: float):
    """Make a case's problem; at scale 1 it needs some hundred megabytes."""
    import jax
    import jax.numpy as jnp

    from shardfit.core.objective import Objective
    from shardfit.core.problem import Problem
    from shardfit.core.term_makers import residual_term, statistic_term

    rng = np.random.default_rng(0)
    kind, _, chunked = case.partition("-")
    n = int({"residual": 1.2e7, "statistic": 1.6e6 if chunked else 8e5, "operator": 8e4, "gram": 1.6e7}[kind] * scale)
    chunk = max(1, n // {"residual": 40, "statistic": 3}[kind]) if chunked else None
    start = {"a": 1.0, "b": 0.1, "tau": 1.3}

    def columns(*names):
        return {name: rng.random(n) + 0.5 for name in names}

    def decay(p, rows):
        return (rows["y"] - p["a"] * jnp.exp(-rows["x"] / p["tau"]) - p["b"]) / rows["sigma"]

    def membership(p, rows, edges):
        return jnp.diff(jax.scipy.special.ndtr((edges - p["a"] * rows["x"][:, None]) / p["tau"]), axis=1)

    def misfit(counts, edges):
        return jnp.mean((jnp.log(counts + 1.0) - 3.0) ** 2)

    def product(p, rows):
        return rows["A"] @ jnp.exp(p["z"]) - rows["y"]

    if kind == "statistic":
        term = statistic_term(membership, columns("x"), np.linspace(-3, 3, 17), loss=misfit, chunk=chunk)
    elif kind == "operator":
        term, start = residual_term(product, {"A": rng.random((n, 512)), **columns("y")}), {"z": np.zeros(512)}
    else:
        term = residual_term(decay, columns("x", "y", "sigma"), chunk=chunk)
    return Problem(Objective({"data": term}), start, name=case)


def observe(case: str, devices: int) -> dict:
    """Predict, then place and evaluate, in this process."""
    import jax

    from shardfit.core.mesh import mesh
    from shardfit.core.precision import arithmetic
    from shardfit.planning import plan
    from shardfit.solve.base import evaluate

    grid = mesh(rows=devices) if devices > 1 else None
    needs = "gram" if case == "gram" else "value_and_grad"

    def evaluations(given):
        with arithmetic(given.precision):
            placed, z, seconds = given.objective.place(grid), given.z0(), []
            for _ in range(3):
                began = time.perf_counter()
                jax.block_until_ready(evaluate(needs, given.space, placed, z, None))
                seconds.append(time.perf_counter() - began)
            return min(seconds[1:])

    evaluations(problem(case, 1e-3))
    full = problem(case, 1.0)
    predicted = plan(full, "lm" if case == "gram" else None, mesh=grid)
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")
    before = _status("VmRSS")
    seconds = evaluations(full)
    peak = _status("VmHWM") - before
    held = predicted.memory  # of the evaluations alone, which were compiled before
    total = (held.total - held.checks - held.state) * devices
    return {
        "ours": total,
        "peer": peak,
        "ratio": total / peak,
        "quality_ours": predicted.seconds,
        "quality_peer": seconds,
    }


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name + ":"))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("case", choices=CASES)
    parser.add_argument("devices", type=int)
    options = parser.parse_args()
    print(json.dumps(observe(options.case, options.devices)))
