"""Surveys: reconstructions of M87 with many choices of weights, ours against whole optimizers run side by side.

ehtim: eht-imaging's serial fits, one process per core. backtracking, zoom: `vmap` of optax's L-BFGS with either line
search, the better of two limits for it, in batches as large as our slots. All take 100 iterations on the same
objective; times are seconds per reconstruction, quality is the mean objective. mixed: seconds until every point of a
survey of mixed difficulty is within 1e-4 of its converged objective; the peer is told in hindsight how many iterations
each batch needs. slots-N: our rate by number of slots.
"""

import os
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from benchmarks.peers import run_peer
from benchmarks.survey_objective import ITERATIONS, MOST, Study
from benchmarks.vlbi import M87

SLOTS = 64
MIXED_SLOTS, MIXED_POINTS, MIXED_FTOL = 8, 24, 1e-8
ROUNDS = 2
TRIALS = (5, 15)  # most steps of a peer's line search: with few a hard lane costs the others less
NO_PEER = dict.fromkeys(("peer", "ratio", "quality_peer", "cpu_peer"), float("nan"))


def run(quick: bool) -> dict[str, dict]:
    """Return the figures of every case."""
    study = Study(M87)
    found = {}
    points = study.points(2 * SLOTS if quick else 8 * SLOTS)
    ours = study.ours(SLOTS)
    for kind in ("backtracking", "zoom"):
        few = points[: 2 * SLOTS if kind == "backtracking" else SLOTS]
        tried = [_compare(ours, study.vmapped(f"{kind}-{n}", SLOTS), points, few) | {"trials": n} for n in TRIALS]
        _tell(found, kind, min(tried, key=lambda one: one["peer"]))  # the peer's better setting counts
    _tell(found, "ehtim", _ehtim(study, found["backtracking"], 2 if quick else 4))
    if quick:
        return found
    for slots in (1, 4, 16, 32, 128):
        seconds, cpu, values = _timed(study.ours(slots), points[: max(4, 4 * slots)])
        rate = {"ours": seconds, "cpu_ours": cpu, "quality_ours": float(np.mean(values)), "per_second": 1 / seconds}
        _tell(found, f"slots-{slots}", rate | NO_PEER | {"useful": study.useful})
    _tell(found, "mixed", _mixed(Study(study.source, "float64"), points[:MIXED_POINTS]))
    return found


def _tell(found: dict, case: str, figures: dict) -> None:
    found[case] = figures
    print(case, figures, file=sys.stderr, flush=True)


def _timed(method, points) -> tuple[float, float, np.ndarray]:
    """Return wall and CPU seconds per reconstruction, best of the rounds, and the objective reached at each point."""
    method(points[: method.batch])  # compiles
    best = (np.inf, np.inf)
    for _ in range(ROUNDS):
        wall, cpu = time.perf_counter(), time.process_time()
        values = method(points)
        best = min(best, ((time.perf_counter() - wall) / len(points), (time.process_time() - cpu) / len(points)))
    return *best, values


def _compare(ours, peer, points, peer_points) -> dict:
    seconds, cpu, values = _timed(ours, points)
    peer_seconds, peer_cpu, peer_values = _timed(peer, peer_points)
    n = len(peer_points)
    return {
        "ours": seconds,
        "peer": peer_seconds,
        "ratio": peer_seconds / seconds,
        "quality_ours": float(np.mean(values[:n])),
        "quality_peer": float(np.mean(peer_values)),
        "cpu_ours": cpu,
        "cpu_peer": peer_cpu,
        "per_second": 1 / seconds,
        "useful": ours.study.useful,
        "lower": float(np.mean(values[:n] <= peer_values * (1 + 1e-4 * np.sign(peer_values)))),
    }


def _ehtim(study: Study, known: dict, each: int) -> dict:
    """Run eht-imaging on every core at once; ours is the rate that was just measured."""
    cores = os.cpu_count() or 1
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(cores) as pool:
        asked = study.for_ehtim(Path(folder))
        points = study.points(cores * each)
        tasks = [{**asked, "points": points[k::cores]} for k in range(cores)]
        answers = list(pool.map(lambda task: run_peer("ehtim", "benchmarks.survey_ehtim", task), tasks))
    seconds = max(a["seconds"] for a in answers) / (cores * each)
    reached = {k: v for a in answers for k, v in a["values"].items()}
    ours = study.ours(SLOTS)
    values = ours(points)
    return {
        "ours": known["ours"],
        "peer": seconds,
        "ratio": seconds / known["ours"],
        "quality_ours": float(np.mean(values)),
        "quality_peer": float(np.mean([reached[study.key(p)] for p in points])),
        "cpu_ours": known["cpu_ours"],
        "cpu_peer": sum(a["cpu"] for a in answers) / (cores * each),
        "per_second": known["per_second"],
        "useful": known["useful"],
        "iterations": ITERATIONS,
    }


def _mixed(study: Study, points) -> dict:
    """Bring every point within 1e-4 of its converged objective; in float64, for float32 stalls before."""
    goal = study.converged(points)
    limit = goal + 1e-4 * np.abs(goal)
    seconds, cpu, values = _timed(study.ours(MIXED_SLOTS, maxiter=MOST, ftol=MIXED_FTOL), points)
    total, reached = study.vmapped_until("backtracking-15", MIXED_SLOTS, limit, points)
    return {
        "ours": seconds * len(points),
        "peer": total,
        "ratio": total / (seconds * len(points)),
        "quality_ours": float(np.mean(values <= limit)),
        "quality_peer": reached,
        "cpu_ours": cpu * len(points),
        "cpu_peer": float("nan"),
        "per_second": 1 / seconds,
        "useful": study.useful,
    }
