"""Loss and gradient of statistics as users write them, with nothing said about chunks.

One mass function with one row of statistics for each row, in several ways, against diffopt 2.0.0, its example rewritten
with shared edges and compiled whole. Then statistics that sum their block (`block_statistic`): the same lines are the
peer's `calc_partial_sumstats_from_params`, compiled. `cpu_plain`: the same lines in plain jitted JAX. One process and
one thread each, float32 as the peer's users have it. Draws of `draws` come from a key for each row here, and from one
key on the other sides, so that losses agree to the noise of the draws only.
"""

from benchmarks.population import PEERS, SETTINGS, measured

__all__ = ["PEERS", "SETTINGS", "run"]

# rows, repeats of one round
CASES = {
    **{f"{form}-1e6": (1_000_000, 2) for form in ("broadcast", "diff", "stack", "leaves", "above")},
    **{f"{form}-1e6": (1_000_000, 2) for form in ("scan", "draws", "growth", "correlation")},
    **{f"{form}-1e6": (1_000_000, 10) for form in ("reweight", "cube", "ratio")},
    **{f"{form}-1e7": (10_000_000, 1) for form in ("broadcast", "diff", "reweight")},
}


def run(quick: bool) -> dict[str, dict]:
    """Return the figures of every form; --quick leaves out the large ones."""
    chosen = {case: sizes for case, sizes in CASES.items() if not quick or sizes[0] <= 1_000_000}
    return {case: _case(case, *sizes) for case, sizes in chosen.items()}


def _case(case: str, n: int, repeats: int) -> dict:
    return measured({"kind": "form", "form": case.partition("-")[0], "n": n, "repeats": repeats}, 5)
