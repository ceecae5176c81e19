"""One process of the suite xpcs: `python -m benchmarks.xpcs_run make|fit|peer|sample ANGLES FRAMES FILE`."""

import json
import resource
import sys
import time

import jax
import numpy as np

from shardfit import RunOptions
from shardfit.core.precision import arithmetic
from shardfit.domains.xpcs import (
    Experiment,
    FitOptions,
    curved,
    fit_correlation,
    laminar_flow,
    read,
    sample_correlation,
    setup,
    simulate,
    write,
)

MODEL, QUIET = laminar_flow(), RunOptions(progress=False)
TRUTH = dict(zip(MODEL.names, (8000.0, -0.25, 300.0, 2e-3, -0.2, 1e-4, -4.0), strict=True))


def experiment(n: int, nt: int) -> Experiment:
    """Return what is simulated: 20 s of flow."""
    return Experiment(phi=np.linspace(-90, 90, n), n_frames=nt, dt=20.0 / nt)


def make(n: int, nt: int, path: str) -> dict:
    """Write the data."""
    write(path, simulate(MODEL, TRUTH, experiment(n, nt), 1))
    return {}


def fit(n: int, nt: int, path: str) -> dict:
    """Fit once in this new process, and once more; then measure the rates of evaluations."""
    reading = time.process_time(), time.perf_counter()
    data = read(path, gap=2e6)
    reading = time.process_time() - reading[0], time.perf_counter() - reading[1]
    options, before = FitOptions(scaling="individual", law="full"), _peak()
    answer = fit_correlation(data, MODEL, options, QUIET)
    whole, wall = time.process_time() - reading[0], time.perf_counter() - reading[1] - BEGAN
    memory, began = _peak() - before, time.process_time()
    fit_correlation(data, MODEL, options, QUIET)
    again = time.process_time() - began
    ready = setup(data, MODEL, options)
    placed, rates = ready.problem.objective.place(), []
    for evaluate in (placed.gram, placed.value):
        jax.block_until_ready(evaluate(TRUTH))
        spent = []
        for _ in range(5):
            began = time.process_time()
            jax.block_until_ready(evaluate(TRUTH))
            spent.append(time.process_time() - began)
        rates.append(1e-6 * ready.n_points / float(np.median(spent)))
    return {
        "whole": whole,
        "wall": wall,
        "again": again,
        "normal_rate": rates[0],
        "value_rate": rates[1],
        "memory": memory,
        "evaluations": answer.result.evaluations,
        "error": max(abs(answer.params[k] - TRUTH[k]) / answer.stderr[k] for k in TRUTH),
    }


def peer(n: int, nt: int, path: str) -> dict:
    """Fit with one contrast and offset for all angles, and the same by scipy; both warm, from one start."""
    from scipy.optimize import least_squares

    data = read(path, gap=2e6)
    start = {k: 1.05 * v for k, v in TRUTH.items()}
    options = FitOptions(scaling="auto", start=start)
    for _ in range(2):
        began = time.process_time()
        answer = fit_correlation(data, MODEL, options, QUIET)
        ours = time.process_time() - began
    with arithmetic("float64"):
        ready = setup(data, MODEL, options)
        term = ready.problem.objective.terms[0]
        rows, geometry = jax.device_put(term.rows), jax.device_put(ready.geometry)
        level, sigma = float(ready.design.level), 1 / np.sqrt(float(ready.design.precision[0]))

        def residual(x):
            def tile(row):  # pairs that come twice have weight 0
                curve = MODEL.curve(x[2:], geometry, row["pairs"])
                return (x[1] - level + x[0] * curve - row["y"]) * (row["w"] / sigma)

            return jax.lax.map(tile, rows).ravel()

        functions = [jax.jit(fn) for fn in (residual, jax.jacfwd(residual))]
        x0 = np.array([0.3, 1.0, *start.values()])
        for fn in functions:
            jax.block_until_ready(fn(x0))
        value, slope = (lambda x, fn=fn: np.asarray(fn(x)) for fn in functions)
        tried = {}
        for method in ("trf", "lm"):
            began = time.process_time()
            found = least_squares(value, x0, slope, method=method, x_scale="jac", ftol=1e-12, xtol=1e-12, gtol=1e-12)
            tried[method] = time.process_time() - began, found
    method = min(tried, key=lambda name: tried[name][0])
    theirs, found = tried[method]
    return {
        "cpu_ours": ours,
        "cpu_peer": theirs,
        "cpu_ratio": theirs / ours,
        "quality_ours": answer.result.value,
        "quality_peer": float(found.cost),
        "method": method,
        "evaluations_ours": answer.result.evaluations,
        "evaluations_peer": int(found.nfev),
    }


def sample(n: int, nt: int, path: str) -> dict:
    """Draw from the posterior of a few points in coordinates without a ridge: 4 chains of 1,000 draws."""
    data = simulate(MODEL, TRUTH, experiment(n, nt), 1)
    found = fit_correlation(data, curved(MODEL, data), FitOptions(scaling="individual"), QUIET)
    began = time.process_time()
    posterior = sample_correlation(found, 1000, run=QUIET, chains=4, warmup=500)
    cpu, summary = time.process_time() - began, posterior.summary()
    effective = float(min(np.min(summary["ess_bulk"]), np.min(summary["ess_tail"])))
    return {
        "points": found.setup.n_points,
        "cpu": cpu,
        "divergences": int(np.sum(posterior.stats["diverging"])),
        "rhat": float(np.max(summary["rhat"])),
        "effective": effective,
        "effective_per_cpu": effective / cpu,
        "gradients": posterior.evaluations,
    }


def _peak() -> int:
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


if __name__ == "__main__":
    # from the start of the process, imports included
    with open("/proc/self/stat") as stat:
        ticks = float(stat.read().rpartition(")")[2].split()[19])
    with open("/proc/uptime") as uptime:
        age = float(uptime.read().split()[0]) - ticks / 100
    BEGAN = time.perf_counter() - age
    what, angles, frames, file = sys.argv[1:]
    print(json.dumps({"make": make, "fit": fit, "peer": peer, "sample": sample}[what](int(angles), int(frames), file)))
