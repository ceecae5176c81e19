"""Our swarm against evosax (PSO, CMA-ES) and pyswarms at equal evaluations: how many seeds it solves, how fast.

Functions are shifted and rotated anew for every seed, the same way for all; the first is the centred 4-D Ackley
function. `quality` is the number of seeds solved; seconds are the median of one run that is already compiled.
"""

import numpy as np

from benchmarks.peers import run_ours, run_peer
from benchmarks.problems.landscapes import LANDSCAPES

MODULE = "benchmarks.swarm_quality_run"
SEEDS = (5000, 5020)  # not those that defaults were chosen on
SOLVERS = {"evosax": {}, "pyswarms": {}, "evosax-cma": {"cma": True}}  # options of each
PEERS = ("swarm",)
SETTINGS = {"precision": "float64", "threads": "one each"}


def run(quick: bool) -> dict[str, dict]:
    seeds = (SEEDS[0], SEEDS[0] + 5) if quick else SEEDS
    ours = run_ours(MODULE, {"solver": "ours", "seeds": seeds})
    runs = {
        name: run_peer("swarm", MODULE, {"solver": name.partition("-")[0], "options": options, "seeds": seeds})
        for name, options in SOLVERS.items()
    }
    return {
        f"{landscape} / {peer}": _case(landscape, ours, runs[peer])
        | {"n_runs": seeds[1] - seeds[0], "runs": {"ours": ours, peer: runs[peer]}}
        for landscape in LANDSCAPES
        for peer in SOLVERS
    }


def _case(landscape: str, ours: list[dict], peer: list[dict]) -> dict:
    figures = {}
    for side, records in (("ours", ours), ("peer", peer)):
        own = [r for r in records if r["landscape"] == landscape]
        values = np.array([r["value"] for r in own])
        figures[side] = float(np.median([r["wall"] for r in own]))
        figures[f"cpu_{side}"] = float(np.median([r["cpu"] for r in own]))
        figures[f"quality_{side}"] = int(np.sum(values < LANDSCAPES[landscape].solved))
        figures[f"median_{side}"] = float(np.median(values))
    ratios = {"ratio": figures["peer"] / figures["ours"], "cpu_ratio": figures["cpu_peer"] / figures["cpu_ours"]}
    return figures | ratios
