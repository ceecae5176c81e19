"""Our solvers against peers, run by run through a suite."""

from benchmarks.peers import run_ours, run_peer

SETTINGS = {"precision": "float64", "threads": "one each"}
MODULE = "benchmarks.least_squares_run"


def compare(suite: str, quick: bool, pairs: list[tuple[str, str]], levels: dict[str, float]) -> dict[str, dict]:
    """Return one case per pair of our solver and a peer.

    A case has total seconds of runs that are already compiled, total evaluations of residuals and of Jacobians, each
    with or without the other, and how many runs reach each level of quality. For solvers that know gradients only, the
    gradient stands for the Jacobian.

    The first level is the case's quality; "runs" holds every run of both, by solver.
    """
    ask = lambda solver: {"suite": suite, "solver": solver, "quick": quick}  # noqa: E731
    ours = {name: run_ours(MODULE, ask(name)) for name in dict.fromkeys(pair[0] for pair in pairs)}
    peers = {name: run_peer("least_squares", MODULE, ask(name)) for name in dict.fromkeys(pair[1] for pair in pairs)}
    runs = ours | peers
    totals = {solver: _total(records, levels) for solver, records in runs.items()}
    return {
        f"{suite} {our} / {peer}": _case(totals[our], totals[peer])
        | {"n_runs": len(runs[peer]), "runs": {solver: runs[solver] for solver in (our, peer)}}
        for our, peer in pairs
    }


def _total(records: list[dict], levels: dict[str, float]) -> dict:
    reached = {name: sum(r["quality"] >= level for r in records) for name, level in levels.items()}
    sums = {key: sum(r[key] for r in records) for key in ("wall", "cpu", "residuals", "jacobians")}
    return {**sums, **reached, "quality": next(iter(reached.values()))}


def _case(ours: dict, peer: dict) -> dict:
    rest = [key for key in ours if key != "wall"]
    return {
        "ours": ours["wall"],
        "peer": peer["wall"],
        "ratio": peer["wall"] / ours["wall"],
        "cpu_ratio": peer["cpu"] / ours["cpu"],
        **{f"{key}_{side}": total[key] for key in rest for side, total in (("ours", ours), ("peer", peer))},
    }
