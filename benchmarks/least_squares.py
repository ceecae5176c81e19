"""Our Levenberg–Marquardt against a peer, run by run through a suite."""

from benchmarks.peers import run_ours, run_peer

MODULE = "benchmarks.least_squares_run"


def compare(suite: str, quick: bool, peers: tuple[str, ...], levels: dict[str, float]) -> dict[str, dict]:
    """Return one case per peer: total seconds, total evaluations, and how many runs reach each level of quality.

    The first level is the case's quality; "runs" holds every run of both.
    """
    ours = _total(run_ours(MODULE, {"suite": suite, "solver": "shardfit lm", "quick": quick}), levels)
    return {
        f"{suite} / {peer}": _case(
            ours, _total(run_peer("least_squares", MODULE, {"suite": suite, "solver": peer, "quick": quick}), levels)
        )
        for peer in peers
    }


def _total(records: list[dict], levels: dict[str, float]) -> dict:
    reached = {name: sum(r["quality"] >= level for r in records) for name, level in levels.items()}
    sums = {key: sum(r[key] for r in records) for key in ("wall", "cpu", "evaluations")}
    return {**sums, **reached, "quality": next(iter(reached.values())), "runs": records}


def _case(ours: dict, peer: dict) -> dict:
    rest = [key for key in ours if key not in ("wall", "runs")]
    return {
        "ours": ours["wall"],
        "peer": peer["wall"],
        "ratio": peer["wall"] / ours["wall"],
        "n_runs": len(ours["runs"]),
        **{f"{key}_{side}": total[key] for key in rest for side, total in (("ours", ours), ("peer", peer))},
        "runs": {"ours": ours["runs"], "peer": peer["runs"]},
    }
