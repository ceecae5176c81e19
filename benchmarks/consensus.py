"""Posteriors by shards against one NUTS of all rows: how far moments are off, before and after the correction.

20,000 data, 4 and 16 shards, settings by default. `mean`: largest error of a mean in standard deviations; `least`,
`most`: of the ratios of standard deviations; `correlation`: largest error of a correlation; all of coordinates. `plain`
has those of the shards combined by the rule `full`, `single` by the rule `consensus_mc`, without any correction. The
reference has 20,000 draws; `reference` is its own largest Monte Carlo error of any of these, `error` that of the
corrected points. SHARDFIT_BENCH_RUNS names a folder that keeps the runs: what is there is not sampled again.
"""

import os
import tempfile
import time
from pathlib import Path

import numpy as np

import shardfit as sf
from benchmarks.problems.shards import PROBLEMS
from shardfit.sampling.quality.diagnostics import mcse_mean

PEERS = ()
SETTINGS = {"precision": "float64", "threads": "all"}
SHARDS = (4, 16)
QUIET = sf.ShardControl(progress=False)


def run(quick: bool) -> dict[str, dict]:
    """Return the figures of every problem and number of shards; --quick: the logistic regression in 4 shards."""
    with tempfile.TemporaryDirectory() as spare:
        kept = Path(os.environ.get("SHARDFIT_BENCH_RUNS", spare))
        return {
            f"{name}, {shards} shards": compare(name, shards, kept)
            for name in (list(PROBLEMS)[:1] if quick else PROBLEMS)
            for shards in (SHARDS[:1] if quick else SHARDS)
        }


def compare(name: str, shards: int, kept: Path) -> dict:
    """Return errors of one posterior by shards against the one of all rows."""
    problem, own = PROBLEMS[name](), kept / name.replace(" ", "-")
    whole = sf.sample(problem, draws=5000, warmup=500, target_accept=0.9, seed=1, run_dir=own / "whole", progress=False)
    if whole.summary()["rhat"].max() > 1.01:
        raise RuntimeError(f"{name}: the reference has not converged. {whole.verdict()}")
    folder = own / f"{shards}-shards"
    single = sf.consensus(problem, shards, rule="consensus_mc", correct=False, run_dir=folder, control=QUIET)
    began = time.process_time()
    found = sf.consensus(problem, shards, run_dir=folder, control=QUIET)
    combining = time.process_time() - began
    told, truth = found.extra, moments(whole.z, None)
    table = sf.ShardTable(told["shards"])
    return {
        **errors(moments(found.z, found.weights), truth),
        "plain": errors((told["uncorrected_mean"], told["uncorrected_covariance"]), truth),
        "single": errors((single.extra["uncorrected_mean"], single.extra["uncorrected_covariance"]), truth),
        "pareto_k": float(told["pareto_k"]),
        "points": found.size,
        "values": int(told["values"]),
        "effective": float(told["effective"]),
        "error": float(told["error"]),
        "gradients": int(found.evaluations),
        "divergences": float(table["divergences"].mean()),
        "reported": len(table.complaints()),
        "reference": own_error(whole.z),
        "cpu_combining": combining,
    }


def moments(z: np.ndarray, weights: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and covariance of draws z (chains, draws, n)."""
    flat = z.reshape(-1, z.shape[2])
    w = np.full(len(flat), 1 / len(flat)) if weights is None else weights.ravel()
    away = flat - w @ flat
    return w @ flat, (w[:, None] * away).T @ away


def own_error(z: np.ndarray) -> float:
    """Return the largest Monte Carlo error of a mean (in sd), an sd (relative) or a correlation of chains z."""
    mean, covariance = moments(z, None)
    scale = np.sqrt(np.diag(covariance))
    unit, largest = (z - mean) / scale, 0.0
    for j, row in enumerate(covariance / np.outer(scale, scale)):
        own = unit[..., [j]]
        drift = np.delete(own * unit - 0.5 * row * (own**2 + unit**2), j, axis=2)
        for moved in (own, 0.5 * (own**2 - 1), drift):
            largest = max(largest, float(mcse_mean(moved).max(initial=0.0)))
    return largest


def errors(found: tuple[np.ndarray, np.ndarray], truth: tuple[np.ndarray, np.ndarray]) -> dict[str, float]:
    """Return the largest errors of mean (in sd) and correlation, and the range of sd ratios."""
    (mean, covariance), (true_mean, true_covariance) = found, truth
    sd, true_sd = np.sqrt(np.diag(covariance)), np.sqrt(np.diag(true_covariance))
    away = covariance / np.outer(sd, sd) - true_covariance / np.outer(true_sd, true_sd)
    ratio = sd / true_sd
    return {
        "mean": float(np.max(np.abs(mean - true_mean) / true_sd)),
        "least": float(ratio.min()),
        "most": float(ratio.max()),
        "correlation": float(np.abs(away).max()),
    }
