"""One tick of a survey's 64 slots and its parts, now and at an earlier commit, in turn, one thread each.

The objective is that of M87 at 64 × 64 pixels, float32, in the variables of `image`. tick: everything, from the start
of 64 points on; quality: the median objective after these ticks. objective: value and gradient of data and
regularisers; data, regularisers: of one of them. lbfgs: ticks of a sum of squares of as many numbers. gemm: the bare
products with the operator, there and back, which no data term can do without. Seconds are per tick of all slots.

The earlier commit comes from the history of this repository and is given today's programs of this suite.
"""

import sys
import tempfile
from pathlib import Path

from benchmarks.duel import Side, compared
from benchmarks.earlier import sources
from benchmarks.peers import ROOT

PEERS = ()
EARLIER = "6e078a1"  # before regularisers shared differences and L-BFGS read its pairs twice
SETTINGS = {"precision": "float32", "threads": "one each", "slots": "64", "compared with": f"commit {EARLIER}"}
SLOTS, TICKS, ROUNDS = 64, 50, 9
PARTS = ("tick", "objective", "data", "regularisers", "lbfgs", "gemm")
MODULE = "benchmarks.tick_run"


def run(quick: bool) -> dict[str, dict]:
    """Return the figures of every part."""
    cases = {}
    with tempfile.TemporaryDirectory() as folder:
        earlier = sources(EARLIER, Path(folder), ("tick_run.py",))
        for part in PARTS[:1] if quick else PARTS:
            task = {"slots": SLOTS, "ticks": TICKS, "transform": "power", "part": part}
            sides = [Side(Path(sys.executable), MODULE, task, root) for root in (ROOT, earlier)]
            cases[part] = _per_tick(compared(sides, 2 if quick else ROUNDS))
            print(part, cases[part], file=sys.stderr, flush=True)
    return cases


def _per_tick(figures: dict) -> dict:
    said = figures.pop("said_ours"), figures.pop("said_peer")
    seconds = {key: figures[key] / TICKS for key in ("ours", "peer", "cpu_ours", "cpu_peer")}
    reached = {f"quality_{who}": one["value"] for who, one in zip(("ours", "peer"), said, strict=True) if one}
    return figures | seconds | reached
