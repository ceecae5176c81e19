"""Chains of one shard on so many devices, in a process of their own."""

import json
import sys
import time

from benchmarks.peers import use_devices


def main(asked: dict) -> None:
    """Print seconds and quality of a call that is already compiled."""
    use_devices(asked["devices"])
    import numpy as np

    import shardfit as sf
    from benchmarks.xpcs_run import MODEL, TRUTH, experiment
    from shardfit.domains.xpcs import FitOptions, curved, fit_correlation, sample_correlation, simulate

    data = simulate(MODEL, TRUTH, experiment(23, 21), 1)
    mesh = sf.mesh(rows=1, runs=asked["devices"]) if asked["devices"] > 1 else None
    found = fit_correlation(data, curved(MODEL, data), FitOptions(scaling="individual"), sf.RunOptions(progress=False))
    options = {"chains": 4, "warmup": asked["warmup"]}
    spent = []
    for seed in (1, 2):  # the first compiles
        wall, cpu = time.perf_counter(), time.process_time()
        run = sf.RunOptions(progress=False, mesh=mesh, seed=seed)
        posterior = sample_correlation(found, asked["draws"], run=run, **options)
        spent.append((time.perf_counter() - wall, time.process_time() - cpu))
    summary = posterior.summary()
    figures = {
        "points": found.setup.n_points,
        "ours": spent[1][0],
        "cpu_ours": spent[1][1],
        "compile": max(0.0, spent[0][1] - spent[1][1]),
        "gradients": posterior.evaluations,
        "effective": float(min(np.min(summary["ess_bulk"]), np.min(summary["ess_tail"]))),
        "rhat": float(np.max(summary["rhat"])),
        "divergences": int(np.sum(posterior.stats["diverging"])),
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main(json.load(sys.stdin))
