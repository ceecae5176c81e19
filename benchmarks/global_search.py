"""Our CMA-ES and swarm against evosax's CMA-ES and the package cmaes: ten functions in 10 dimensions.

Evaluations are equal. Functions are shifted and rotated anew for every seed, the same way for all, and so is the start.
All draw 20 points at a time; `ours-restarts` is our CMA-ES with growing restarts. `quality` is the number of seeds
below 1e-6, `median` the median value; seconds are the median of one run that is already compiled.
"""

import numpy as np

from benchmarks.peers import run_ours, run_peer
from benchmarks.problems.landscapes import TEN

MODULE = "benchmarks.global_search_run"
SEEDS = (7000, 7020)  # not those that anything was chosen on
SOLVED = 1e-6
OURS = {"ours": {}, "ours-restarts": {"restarts": 6}, "ours-swarm": {}}
THEIRS = ("evosax", "cmaes")
PEERS = ("swarm",)
SETTINGS = {"precision": "float64", "threads": "one each"}


def run(quick: bool) -> dict[str, dict]:
    """Return the figures of every function; --quick takes three seeds."""
    seeds = (SEEDS[0], SEEDS[0] + 3) if quick else SEEDS
    runs = {name: run_ours(MODULE, {"solver": name, "options": o, "seeds": seeds}) for name, o in OURS.items()}
    runs |= {name: run_peer("swarm", MODULE, {"solver": name, "seeds": seeds}) for name in THEIRS}
    return {name: _case(name, runs) | {"n_runs": seeds[1] - seeds[0], "runs": runs} for name in TEN}


def _case(landscape: str, runs: dict[str, list[dict]]) -> dict:
    figures = {}
    for solver, records in runs.items():
        own = [r for r in records if r["landscape"] == landscape]
        values = np.array([r["value"] for r in own])
        suffix = solver.replace("-", "_")
        figures[f"quality_{suffix}"] = int(np.sum(values < SOLVED))
        figures[f"median_{suffix}"] = float(np.median(values))
        figures[f"cpu_{suffix}"] = float(np.median([r["cpu"] for r in own]))
        figures[f"wall_{suffix}"] = float(np.median([r["wall"] for r in own]))
    return figures
