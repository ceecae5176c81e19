"""The compiled acoustic engine now and at an earlier commit, in turn, one thread each, float32.

forward-SIZE-oN, gradient-SIZE-oN: traces of 8 shots, and the gradient of their energy, with layers of 20 cells. 151x461
has the cells of Marmousi at 20 m. Rates are 10⁹ updates of model cells per CPU second, without layers; peaks are bytes
beyond libraries and inputs; `difference` is the relative distance of what both return: stencils of the earlier commit
do not sum to zero when they are rounded.

The earlier commit comes from the history of this repository and runs its own program of the `seismic` suite.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.duel import Side, compared
from benchmarks.earlier import sources
from benchmarks.peers import ROOT
from benchmarks.seismic import distance, figures_of

PEERS = ()
EARLIER = "f51bda3"  # one row at a time, absorbing strips in passes of their own
SETTINGS = {"precision": "float32", "threads": "one each", "compared with": f"commit {EARLIER}"}
STEPS = {"200x600": 250, "151x461": 400, "400x1200": 100, "800x2400": 40}
SHOTS, MODULE, ROUNDS = 8, "benchmarks.seismic_ours", {"forward": 7, "gradient": 5}


def run(quick: bool) -> dict[str, dict]:
    """Return the figures of every case; --quick runs one grid only."""
    cases = {}
    with tempfile.TemporaryDirectory() as folder:
        roots = ROOT, sources(EARLIER, Path(folder))
        for kind in ROUNDS:
            for size in list(STEPS)[: 1 if quick else None]:
                for order in (4, 8):
                    name = f"{kind}-{size}-o{order}"
                    cases[name] = _case(roots, kind, size, order, 2 if quick else ROUNDS[kind])
                    print(name, cases[name], file=sys.stderr, flush=True)
    return cases


def _case(roots: tuple[Path, Path], kind: str, size: str, order: int, rounds: int) -> dict:
    shape = [int(n) for n in size.split("x")]
    task = {"kind": kind, "shape": shape, "nt": STEPS[size], "shots": SHOTS, "order": order}
    task |= {"engine": "native", "scaling": "physical"}
    with tempfile.TemporaryDirectory() as ours, tempfile.TemporaryDirectory() as theirs:
        folders = ours, theirs
        sides = [
            Side(Path(sys.executable), MODULE, {**task, "folder": folder}, root)
            for folder, root in zip(folders, roots, strict=True)
        ]
        figures = compared(sides, rounds)
        arrays = [np.load(f"{folder}/ours.npy").astype(float) for folder in folders]
    figures |= {f"peak_{side}": figures.pop(f"said_{side}")["peak"] for side in ("ours", "peer")}
    return figures_of(figures, task, distance(*arrays), *(float(np.linalg.norm(array)) for array in arrays))
