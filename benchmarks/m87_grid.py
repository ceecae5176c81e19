"""The survey of the 2019 M87 papers, or a stated fraction of it, with the defaults of imaging surveys.

grid: whole sweeps of the entropy's weight, one in so many, evenly over the grid: how many points converged, how they
ended, what it took. accuracy: some of its points go on from where they ended, in float64 to tight tolerances: how far
they were above the minimum in whose reach they are. systematic-*: the lowest closure χ² for each assumed error.
"""

import sys
import tempfile
import time

import numpy as np

from benchmarks.vlbi import M87
from shardfit import fit
from shardfit.domains.vlbi.recipes.surveys import PAPER_IV, imaging_survey
from shardfit.domains.vlbi.uvfits import read_uvfits
from shardfit.surveys.axes import Start, apply
from shardfit.surveys.control import SurveyControl
from shardfit.surveys.designs import grid, table
from shardfit.surveys.run import survey

PEERS = ()
SETTINGS = {"precision": "float32, float64 where that met no tolerance", "threads": "all of one process"}
ONE_IN, SLOTS, CHECKED = 5, 64, 12
TIGHT = {"ftol": 0.0, "gtol": 0.0, "maxiter": 20_000, "memory": 20, "patience": 500, "ptol": 1e-8}
CLOSURES = ("data.cphase", "data.logcamp")
PUBLISHED = (2.46, 0.95)  # lowest χ² of the two published for this grid


def run(quick: bool) -> dict[str, dict]:
    """Return the figures."""
    made = imaging_survey(read_uvfits(M87, channels="average"), PAPER_IV, preset="eht", flux=0.6)
    points = sample(made, 300 if quick else ONE_IN)
    wall, cpu = time.perf_counter(), time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        slots = SurveyControl(min(SLOTS, len(points) // len(PAPER_IV["simple"])))
        asked = {**made.options, "design": table(made.axes, points), "control": slots}
        with survey(made.problem, made.axes, run_dir=folder, **asked) as found:
            seconds = {"ours": time.perf_counter() - wall, "cpu_ours": time.process_time() - cpu}
            cases = {"grid": _ended(found, len(grid(made.axes))) | seconds}
            print(cases, file=sys.stderr, flush=True)
            cases["accuracy"] = _accuracy(found, made, points)
            cases |= _closures(found)
    return cases


def sample(made, one_in: int) -> list[dict]:
    """Return whole sweeps, one in so many."""
    design = grid(made.axes)
    lines: dict[tuple, list[dict]] = {}
    for point in (design[i] for i in range(len(design))):
        lines.setdefault(tuple(v for k, v in point.items() if k != "simple"), []).append(point)
    chosen = np.random.default_rng(0).permutation(len(lines))[: len(lines) // one_in]
    keys = list(lines)
    return [point for i in sorted(chosen) for point in lines[keys[i]]]


def _ended(found, whole: int) -> dict:
    evaluations = found.column("evaluations")
    return {
        "points": len(found),
        "share": len(found) / whole,
        "converged": found.converged,
        "failed": len(found.ledger.ids(failed=True)),
        "polished": float(np.mean(found.column("attempt") > 1)),
        "evaluations": float(np.median(evaluations)),
        "most_evaluations": float(evaluations.max()),
    }


def _accuracy(found, made, points: list[dict]) -> dict:
    """Return how far points are above the minimum that they reach in float64."""
    double = made.problem.replace(precision="float64")
    above = []
    for i in np.random.default_rng(1).permutation(len(points))[:CHECKED]:
        start = apply(Start(double.objective, double.x0), made.axes, points[i])
        image = {"I": made.problem.transforms["I"].lifted(found.params(int(i))["I"].astype(float))}
        there = double.replace(objective=start.objective, x0=image)
        tight = fit(there, "lbfgs", certify=False, progress=False, **TIGHT)
        above.append(found.column("value")[i] / tight.value - 1)
    return {
        "points": len(above),
        "median": float(np.median(above)),
        "worst": float(np.max(above)),
        "close": float(np.mean(np.array(above) <= 1e-4)),
    }


def _closures(found) -> dict[str, dict]:
    systematic = found.column("systematic")
    chi2 = np.stack([found.column(name) for name in CLOSURES])
    cases = {}
    for value in np.unique(systematic):
        here = chi2[:, systematic == value]
        best = here[:, here.sum(0).argmin()]
        good = int(np.all(here <= np.array(PUBLISHED)[:, None], axis=0).sum())
        cases[f"systematic-{value:g}"] = {"cphase": best[0], "logcamp": best[1], "good": good, "points": here.shape[1]}
    return cases
