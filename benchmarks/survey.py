"""Surveys: reconstructions of M87 with many choices of weights, ours against whole optimizers run side by side.

ehtim: eht-imaging's serial fits, one process per core, by the faster of its exact transforms, on the same points as
ours in float64; ehtim-float32: the same with ours in float32. backtracking, zoom: `vmap` of optax's L-BFGS with either
line search, the better of two limits for it, in batches as large as our slots, float32 on both sides. All take 100
iterations on the same objective; seconds are per reconstruction, quality is the mean objective, `lower` the share of
points at which ours is lower than the peer's or within 1e-4. slots-N: ours alone, by number of slots.
"""

import os
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from benchmarks.peers import peer_python, run_peer
from benchmarks.survey_objective import ITERATIONS, Study
from benchmarks.vlbi import M87, TOLERANCE, TRANSFORMS

PEERS = ("ehtim",)
SETTINGS = {
    "precision": "as each case says",
    "threads": "both cores: ours and vmap by XLA, eht-imaging by two processes of one thread",
    "NUFFT of the peer": f"{TOLERANCE:g}",
}
SLOTS, EHTIM_SLOTS, EHTIM_POINTS = 32, 16, 48
TRIALS = (5, 15)  # most steps of a peer's line search: with few a hard lane costs the others less
NO_PEER = dict.fromkeys(("peer", "ratio", "quality_peer", "cpu_peer", "cpu_ratio", "lower"))


def run(quick: bool) -> dict[str, dict]:
    """Return the figures of every case."""
    study = Study(M87)
    cases = _ehtim(study, 4 if quick else EHTIM_POINTS)
    ours = study.ours(SLOTS)
    for kind in ("backtracking", "zoom"):
        points = study.points(2 * SLOTS if kind == "backtracking" else SLOTS)
        mine = _timed(ours, points)
        peers = {n: _timed(study.vmapped(f"{kind}-{n}", SLOTS), points) for n in TRIALS}
        trials = min(peers, key=lambda n: peers[n][1])  # the peer's better setting counts
        _keep(cases, kind, _against(mine, peers[trials]) | {"precision": "float32", "trials": trials})
    if quick:
        return cases
    for slots in (1, 4, 16, 64):
        wall, cpu, values = _timed(study.ours(slots), study.points(max(8, 2 * slots)))
        alone = {"ours": wall, "cpu_ours": cpu, "quality_ours": float(np.mean(values)), **NO_PEER}
        _keep(cases, f"slots-{slots}", alone | {"precision": "float32", "useful": study.useful})
    return cases


def _keep(cases: dict, case: str, figures: dict) -> None:
    cases[case] = figures
    print(case, figures, file=sys.stderr, flush=True)


def _timed(method, points) -> tuple[float, float, np.ndarray]:
    """Return wall and CPU seconds per reconstruction, and the objective reached at each point."""
    method(points[: method.batch])  # compiles
    wall, cpu = time.perf_counter(), time.process_time()
    values = method(points)
    return (time.perf_counter() - wall) / len(points), (time.process_time() - cpu) / len(points), values


def _against(ours: tuple, peer: tuple) -> dict:
    return {
        "ours": ours[0],
        "peer": peer[0],
        "ratio": peer[0] / ours[0],
        "quality_ours": float(np.mean(ours[2])),
        "quality_peer": float(np.mean(peer[2])),
        "cpu_ours": ours[1],
        "cpu_peer": peer[1],
        "cpu_ratio": peer[1] / ours[1],
        "lower": float(np.mean(ours[2] <= peer[2] + 1e-4 * np.abs(peer[2]))),
    }


def _ehtim(study: Study, n: int) -> dict[str, dict]:
    """Return the cases with eht-imaging, run on every core at once."""
    cores, points = os.cpu_count() or 1, study.points(n)
    peer_python("ehtim")  # built before anything is timed
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(cores) as pool:
        task = {**study.for_ehtim(Path(folder)), "nufft_tolerance": TOLERANCE}

        def fit(chosen, transform):
            tasks = [{**task, "points": chosen[k::cores], "transform": transform} for k in range(cores)]
            answers = list(pool.map(lambda one: run_peer("ehtim", "benchmarks.survey_ehtim", one), tasks))
            reached = {key: value for answer in answers for key, value in answer["values"].items()}
            values = np.array([reached[study.key(point)] for point in chosen])
            wall, cpu = max(a["seconds"] for a in answers), sum(a["cpu"] for a in answers)
            return wall / len(chosen), cpu / len(chosen), values

        faster = min(TRANSFORMS, key=lambda transform: fit(points[:cores], transform)[1])
        peer = fit(points, faster)
    cases = {}
    for case, precision in (("ehtim", "float64"), ("ehtim-float32", "float32")):
        ours = _timed(Study(study.source, precision).ours(EHTIM_SLOTS), points)
        more = {"precision": precision, "transform": faster, "points": n, "iterations": ITERATIONS}
        _keep(cases, case, _against(ours, peer) | more)
    return cases
