"""The Moré–Garbow–Hillstrom problems from 1, 10 and 100 times the standard start; quality is the number solved."""

from benchmarks.least_squares import compare
from benchmarks.nist import PEERS

GRADIENT_ONLY = ("scipy L-BFGS-B", "optax lbfgs")


def run(quick: bool) -> dict[str, dict]:
    """Return one case per peer."""
    return compare("mgh", quick, PEERS + GRADIENT_ONLY, {"solved": 1.0})
