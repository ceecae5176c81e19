"""The Moré–Garbow–Hillstrom problems from 1, 10 and 100 times the standard start; quality is the number solved."""

from benchmarks.least_squares import SETTINGS as SETTINGS
from benchmarks.least_squares import compare
from benchmarks.nist import PEERS as PEERS
from benchmarks.nist import SOLVERS

GRADIENT_ONLY = [
    ("shardfit lbfgsb", "scipy L-BFGS-B"),
    ("shardfit lbfgs", "scipy L-BFGS-B"),
    ("shardfit lbfgs", "optax lbfgs"),
]


def run(quick: bool) -> dict[str, dict]:
    """Return one case per pair of solvers."""
    pairs = [("shardfit lm", peer) for peer in SOLVERS] + GRADIENT_ONLY
    return compare("mgh", quick, pairs, {"solved": 1.0})
