"""The model of many devices beside runs of one, two and four processes, and what it predicts for 64 to 4,096.

One thread in each process. What rows cost is measured without exchange, on all cores at the same time, since cores of
a machine share its memory, and what messages cost with empty programs in two processes; from these the model says what
an evaluation takes in two and in four processes (`ours`), which is measured as well (`peer`). Compared is the CPU time
of one process: four of them take turns on fewer cores, so that wall times, which are kept too, say more about the
machine than about the program. Predictions are for the sizes of real campaigns.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict

from benchmarks.processes import launched
from shardfit.planning.exchange import Exchange
from shardfit.planning.scaling import CLUSTERS, Cluster, scaled
from shardfit.planning.timing import Curve

PEERS = ()
SETTINGS = {"precision": "of each science", "threads": "one in each process"}
PROCESSES = (2, 4)
CORES = min(os.cpu_count() or 1, max(PROCESSES))
DEVICES = (64, 256, 1024, 4096)
# rows of a campaign: 512 nights or channels of M87, 23 angles of 1000 frames, 4,096 shots, 10⁹ halos
CAMPAIGN = {"vlbi": 512 * 11, "xpcs": 250, "seismic": 4096, "population": 10**9}


def run(quick: bool) -> dict[str, dict]:
    """Return cases science-N, measured against the model, and science/N, predicted."""
    sciences = ("population",) if quick else tuple(CAMPAIGN)
    with ThreadPoolExecutor(CORES) as pool:
        together = list(pool.map(lambda _: launched(1, "scale_run.py", *sciences), range(CORES)))
    told = {1: together[0]} | {n: launched(n, "scale_run.py", *sciences) for n in PROCESSES}
    cases = {}
    for name in sciences:
        alone, sent = told[1][name], Exchange(*told[1][name]["exchange"])
        curves = {clock: Curve(tuple(alone["rows"]), tuple(alone[clock])) for clock in ("cpu", "wall")}
        for n in PROCESSES:
            measured = told[n][name]
            cases[f"{name}-{n}"] = _compared(curves, alone["rows"][-1], sent, n, told[2]["messages"], measured)
        cases[f"{name}-1"] = {"plan": alone["plan"], "measured": alone["cpu"][-1]}
        for n in DEVICES:
            cases |= {f"{name}/{n}/{kind}": _predicted(curves["cpu"], name, sent, kind, n) for kind in CLUSTERS}
    return cases


def _compared(curves: dict, rows: int, sent: Exchange, n: int, network: dict, measured: dict) -> dict:
    """Return the model beside a measurement, in CPU and wall seconds. network: what messages take in two processes."""
    model = {}
    for clock, curve in curves.items():
        latency = network[clock]["small"]
        bandwidth = network["bytes"] / max(network[clock]["large"] - latency, 1e-9)
        model[clock] = scaled(curve, rows, sent, Cluster(latency, bandwidth, jitter=0.0), n).seconds
    return {
        "ours": model["cpu"],
        "peer": measured["cpu"],
        "ratio": model["cpu"] / measured["cpu"],
        "wall_ours": model["wall"] * max(1.0, n / CORES),
        "wall_peer": measured["wall"],
        "messages": sent.messages,
        "bytes": sent.bytes,
    }


def _predicted(curve: Curve, name: str, sent: Exchange, kind: str, n: int) -> dict:
    told = scaled(curve, CAMPAIGN[name], sent, CLUSTERS[kind], n)
    return {**asdict(told), "seconds": told.seconds, "efficiency": told.efficiency}
