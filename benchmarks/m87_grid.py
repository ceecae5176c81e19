"""The survey of the 2019 M87 papers, 7,500 points, with the defaults of imaging surveys.

grid: whole sweeps of the entropy's weight, in random order: how many points converged, how they ended, what it took.
accuracy: some of its points go on from where they ended, in float64 to tight tolerances: how far they were above the
minimum in whose reach they are. error-*: the lowest closure χ² for each assumed error, in per cent. A run that was
killed goes on, see m87_survey.py.
"""

from benchmarks.m87_survey import run_lines
from benchmarks.vlbi import M87
from shardfit.domains.vlbi.recipes.surveys import PAPER_IV

PEERS = ()
SETTINGS = {"precision": "float32, float64 where that met no tolerance", "threads": "all of one process"}


def run(quick: bool) -> dict[str, dict]:
    """Return the figures."""
    return run_lines("m87_grid", M87, PAPER_IV, 5 if quick else None, quick)
