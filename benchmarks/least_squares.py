"""Our Levenberg–Marquardt against a peer, run by run through a suite."""

from benchmarks.peers import run_ours, run_peer

MODULE = "benchmarks.least_squares_run"
OURS = "shardfit lm"


def compare(suite: str, quick: bool, peers: tuple[str, ...], levels: dict[str, float]) -> dict[str, dict]:
    """Return one case per peer: total seconds, total evaluations, and how many runs reach each level of quality.

    The first level is the case's quality; "runs" holds every run of both, by solver.
    """
    ask = lambda solver: {"suite": suite, "solver": solver, "quick": quick}  # noqa: E731
    runs = {OURS: run_ours(MODULE, ask(OURS))} | {p: run_peer("least_squares", MODULE, ask(p)) for p in peers}
    totals = {solver: _total(records, levels) for solver, records in runs.items()}
    return {
        f"{suite} / {peer}": _case(totals[OURS], totals[peer])
        | {"n_runs": len(runs[peer]), "runs": {solver: runs[solver] for solver in (OURS, peer)}}
        for peer in peers
    }


def _total(records: list[dict], levels: dict[str, float]) -> dict:
    reached = {name: sum(r["quality"] >= level for r in records) for name, level in levels.items()}
    sums = {key: sum(r[key] for r in records) for key in ("wall", "cpu", "evaluations")}
    return {**sums, **reached, "quality": next(iter(reached.values()))}


def _case(ours: dict, peer: dict) -> dict:
    rest = [key for key in ours if key != "wall"]
    return {
        "ours": ours["wall"],
        "peer": peer["wall"],
        "ratio": peer["wall"] / ours["wall"],
        **{f"{key}_{side}": total[key] for key in rest for side, total in (("ours", ours), ("peer", peer))},
    }
