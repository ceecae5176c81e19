"""A denser grid around that of the 2019 M87 papers: eight weights of each of four regularisers, 49,152 points.

The cases of m87_grid, over all points in random order of their sweeps, or over those that the hours allowed; see
m87_survey.py.
"""

from benchmarks.m87_survey import run_lines
from benchmarks.vlbi import M87
from shardfit.domains.vlbi.recipes.surveys import PAPER_IV

PEERS = ()
SETTINGS = {"precision": "float32, float64 where that met no tolerance", "threads": "all of one process"}
WEIGHTS = (0, 1, 3, 10, 30, 100, 300, 1000)
AXES = {**PAPER_IV, **dict.fromkeys(("simple", "tv", "tv2", "l1"), WEIGHTS)}


def run(quick: bool) -> dict[str, dict]:
    """Return the figures."""
    return run_lines("m87_dense", M87, AXES, 4 if quick else None, quick)
