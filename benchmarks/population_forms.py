"""Loss and gradient of one mass function in the ways users write it, with nothing said about chunks.

Against diffopt 2.0.0, its example rewritten with shared edges and compiled whole, and (`cpu_plain`) against the same
lines in plain jitted JAX; one process and one thread each, float32 as the peer's users have it.
"""

from benchmarks.population import PEERS, SETTINGS, measured

__all__ = ["PEERS", "SETTINGS", "run"]

# rows, repeats of one round
CASES = {
    **{f"{form}-1e6": (1_000_000, 2) for form in ("broadcast", "diff", "stack", "leaves", "above")},
    **{f"{form}-1e7": (10_000_000, 1) for form in ("broadcast", "diff")},
}


def run(quick: bool) -> dict[str, dict]:
    """Return the figures of every form; --quick leaves out the large ones."""
    chosen = {case: sizes for case, sizes in CASES.items() if not quick or sizes[0] <= 1_000_000}
    return {case: _case(case, *sizes) for case, sizes in chosen.items()}


def _case(case: str, n: int, repeats: int) -> dict:
    return measured({"kind": "form", "form": case.partition("-")[0], "n": n, "repeats": repeats}, 5)
