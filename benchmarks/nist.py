"""NIST's certified regressions: 27 sets, two starts each; quality is the number of runs with six digits or more."""

from benchmarks.least_squares import SETTINGS as SETTINGS
from benchmarks.least_squares import compare

SOLVERS = ("optimistix LevenbergMarquardt", "optimistix Dogleg", "scipy lm", "scipy trf")
PEERS = ("least_squares",)
LEVELS = {"digits6": 6.0, "digits4": 4.0, "digits8": 8.0}


def run(quick: bool) -> dict[str, dict]:
    """Return one case per peer."""
    return compare("nist", quick, [("shardfit lm", peer) for peer in SOLVERS], LEVELS)
