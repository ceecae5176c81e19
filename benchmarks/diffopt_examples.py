"""DiffOpt's three documented examples at their published sizes, ours and the package itself on the same machine.

smf: L-BFGS-B from the published start, 10,000 halos. kdescent: a normal distribution in two dimensions, 10,000 training
points, 5,000 model points and 20 kernels a step, Adam with rate 1 for 100 steps; the error is that of the mean of the
last 20, in the five parameters, rms. ackley: a swarm of 100 particles for 100 steps in four dimensions. Whole calls,
compiled before, in the default precision of each side; its optimizers are loops in Python, made for longer losses.
"""

from benchmarks.duel import duel

PEERS = ("diffopt",)
SETTINGS = {"precision": "float64 for ours, float32 for diffopt: the defaults of both", "threads": "one each"}
SIDES = ("benchmarks.diffopt_examples_ours", "benchmarks.diffopt_examples_peer")
CASES = ("smf", "kdescent", "ackley")


def run(quick: bool) -> dict[str, dict]:
    """Return the figures of every example; --quick runs the first alone, once."""
    return {case: _case(case, 1 if quick else 2) for case in (CASES[:1] if quick else CASES)}


def _case(case: str, rounds: int) -> dict:
    figures = duel("diffopt", SIDES, {"case": case}, rounds)
    for side in ("ours", "peer"):
        figures |= {f"{name}_{side}": value for name, value in figures.pop(f"said_{side}").items()}
    return figures
