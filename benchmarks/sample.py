"""Samplers on the same densities: effective draws per gradient and per CPU second, ours, NumPyro, BlackJAX and nutpie.

All get the same function of the same unconstrained coordinates in float64. Peers start at draws of the Gaussian around
the mode; ours finds the mode itself, and pays for it. Effective draws are the fewest of any coordinate, of it and of
its square about the mean. Gradients are those of the chains' own trees, warm-up included. Each sampler has a process of
its own; figures are medians over seeds. `shift`, `spread`: largest difference of a mean, in standard deviations, and
of a standard deviation, relative, from those of all other samplers together. `16 shards`: the share of useful gradients
of a posterior by shards, whose chains share a batch.
"""

import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import shardfit as sf
from benchmarks.peers import run_ours, run_peer
from benchmarks.problems.densities import DENSITIES

MODULE = "benchmarks.sample_run"
PEERS = ("numpyro", "blackjax", "nutpie")
SETTINGS = {
    "precision": "float64",
    "threads": "one each, but NumPyro parallel one for each chain and nutpie two; two processes at a time",
}
SEEDS = (11, 12, 13)
WARMUP, DRAWS = 500, 1000
ENGINES: dict[str, tuple[str, dict[str, Any]]] = {
    "ours": ("ours", {}),
    "numpyro-vectorized": ("numpyro", {"method": "vectorized"}),
    "numpyro-parallel": ("numpyro", {"method": "parallel"}),
    "blackjax": ("blackjax", {"metric": "dense"}),
    "blackjax-low-rank": ("blackjax", {"metric": "low_rank"}),
    "nutpie": ("nutpie", {}),
    "nutpie-low-rank": ("nutpie", {"low_rank_modified_mass_matrix": True}),
}
BATCHES = ("ours", "numpyro-vectorized", "blackjax", "blackjax-low-rank")  # those that can run many chains as one
CHAINS, MANY = 4, 64
AT_ONCE = 2  # processes: CPU seconds are compared
SHARDS, SPLIT = (
    16,
    ("logistic", "correlations on a ridge"),
)  # even shards, and such as need very different numbers of gradients
QUICK = ("eight-schools", "gaussian", "kidiq")


class Measured(NamedTuple):
    """Records of all seeds, and their draws z (seeds, chains, draws, n)."""

    found: dict
    z: np.ndarray


def run(quick: bool) -> dict[str, dict]:
    """Return the figures of every density and sampler; --quick: three cheap densities, one seed."""
    seeds = SEEDS[:1] if quick else SEEDS
    figures = {}
    for density in QUICK if quick else DENSITIES:
        figures |= compare(density, density, CHAINS, tuple(ENGINES), seeds)
    figures |= compare(f"eight-schools-{MANY}", "eight-schools", MANY, BATCHES, seeds)
    return figures | {f"{name}, {SHARDS} shards": by_shards(name) for name in SPLIT[: 1 if quick else None]}


def by_shards(name: str) -> dict[str, float]:
    """Return how much of what all shards compute together is of use."""
    from benchmarks.problems.shards import PROBLEMS

    began = time.process_time()
    found = sf.consensus(PROBLEMS[name](), SHARDS, correct=False, control=sf.ShardControl(progress=False))
    cpu, layout = time.process_time() - began, found.layout
    return {"useful": layout["useful_gradients"], "slots": layout["slots"], "gradients": found.evaluations, "cpu": cpu}


def compare(case: str, density: str, chains: int, engines: tuple[str, ...], seeds: tuple[int, ...]) -> dict[str, dict]:
    """Return the figures of one density by `case / engine`."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        runs = pool.map(lambda engine: measure(engine, density, chains, seeds), engines)
        measured = dict(zip(engines, runs, strict=True))
    return {f"{case} / {engine}": _figures(engine, measured) for engine in engines}


def measure(engine: str, density: str, chains: int, seeds: tuple[int, ...]) -> Measured:
    """Run one sampler in a process of its own."""
    package, options = ENGINES[engine]
    with tempfile.TemporaryDirectory() as folder:
        start = Path(folder) / "start.npz"
        np.savez(start, z=starts(density, chains, seeds))
        counts = {"chains": chains, "warmup": WARMUP, "draws": DRAWS, "seeds": seeds}
        files = {"start": str(start), "out": folder}
        asked = {"engine": package, "options": options, "density": density, **counts, **files}
        found = run_ours(MODULE, asked) if package == "ours" else run_peer(package, MODULE, asked)
        z = np.stack([np.load(Path(folder) / f"{seed}.npz")["z"] for seed in seeds])
    print(f"{density}, {chains} chains, {engine}: {found}", file=sys.stderr, flush=True)
    return Measured(found, z)


def starts(density: str, chains: int, seeds: tuple[int, ...]) -> np.ndarray:
    """Return starts (seeds, chains, n): draws of the Gaussian around the mode, the same for every sampler."""
    z, root = _mode(density)
    return np.stack([z + np.random.default_rng(seed).standard_normal((chains, len(z))) @ root.T for seed in seeds])


@cache
def _mode(density: str) -> tuple[np.ndarray, np.ndarray]:
    from shardfit.sampling.density import sampled
    from shardfit.sampling.start import find_start

    start = find_start(sampled(DENSITIES[density]()))
    if start.root is None:
        raise RuntimeError(f"{density} has no Gaussian around a mode: {start.note}")
    return start.z, start.root


def _figures(engine: str, measured: dict[str, Measured]) -> dict:
    found, z = measured[engine]
    effective = np.array([fewest_effective(one) for one in z])
    median = {name: float(np.median([one[name] for one in found["runs"]])) for name in found["runs"][0]}
    gradients, cpu = (np.array([one[name] for one in found["runs"]]) for name in ("gradients", "cpu"))
    shift, spread = agreement(engine, {name: one.z for name, one in measured.items()})
    return {
        "effective": float(np.median(effective)),
        "per_gradients": float(np.median(1000 * effective / gradients)),
        "per_cpu": float(np.median(effective / cpu)),
        **median,
        # our first call samples, too
        "compile": found["compile"] - (median["cpu"] if engine == "ours" else 0.0),
        "rhat": float(np.max([_rhat(one) for one in z])),
        "shift": shift,
        "spread": spread,
    }


def fewest_effective(z: np.ndarray) -> float:
    """Return the fewest effective draws of any coordinate or of its square about the mean. z: (chains, draws, n)."""
    from shardfit.sampling.quality.diagnostics import ess_bulk

    return float(min(ess_bulk(z).min(), ess_bulk((z - z.mean((0, 1))) ** 2).min()))


def _rhat(z: np.ndarray) -> float:
    from shardfit.sampling.quality.diagnostics import rhat

    return float(rhat(z).max())


def agreement(engine: str, draws: dict[str, np.ndarray]) -> tuple[float, float]:
    """Return the largest differences of mean (in sd) and sd (relative) from those of the other samplers together."""
    others = np.concatenate([z.reshape(-1, z.shape[-1]) for name, z in draws.items() if name != engine])
    own = draws[engine].reshape(-1, others.shape[1])
    shift = np.abs(own.mean(0) - others.mean(0)) / others.std(0)
    return float(shift.max()), float(np.abs(own.std(0) / others.std(0) - 1).max())
