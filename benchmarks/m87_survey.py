"""Surveys of M87 images that take hours: they go on where they were killed, and tell what share of a grid they ran.

Ledgers are kept in the user's cache folder, or in the folder that SHARDFIT_BENCH_RUNS names, until their suite has come
to its end. SHARDFIT_BENCH_HOURS ends a survey after so many hours; the next run of its suite goes on.
"""

import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers import cache_folder
from shardfit import fit
from shardfit.domains.vlbi.recipes.surveys import SWEPT, ImagingSurvey, imaging_survey
from shardfit.domains.vlbi.uvfits import read_uvfits
from shardfit.io.files import write_json
from shardfit.surveys.axes import Start, apply
from shardfit.surveys.control import SurveyControl
from shardfit.surveys.designs import grid, lines
from shardfit.surveys.reading import Survey
from shardfit.surveys.run import survey

SLOTS, CHECKED, EVERY = 64, 12, 1.0
TIGHT = {"ftol": 0.0, "gtol": 0.0, "maxiter": 20_000, "memory": 20, "patience": 500, "ptol": 1e-8}
CLOSURES = ("data.cphase", "data.logcamp")
PUBLISHED = (2.46, 0.95)  # lowest χ² of the two published for the grid of 7,500 points


class Enough(RuntimeError):
    """The hours are over."""


@dataclass
class Stopwatch:
    """Wall and CPU seconds of all processes that worked in a folder, kept there every second."""

    folder: Path
    most: float = float("inf")
    wall: float = 0.0
    cpu: float = 0.0
    last: tuple[float, float] = field(default_factory=lambda: (time.perf_counter(), time.process_time()))
    began: float = field(default_factory=time.perf_counter)

    @classmethod
    def of(cls, folder: Path) -> "Stopwatch":
        """Go on from what is kept."""
        file = folder / "seconds.json"
        kept = json.loads(file.read_text()) if file.exists() else {}
        hours = float(os.environ.get("SHARDFIT_BENCH_HOURS", "inf"))
        return cls(folder, 3600 * hours, kept.get("wall", 0.0), kept.get("cpu", 0.0))

    def __call__(self, _: Any = None) -> None:
        """Take note of the time; raise Enough if there is none left."""
        now = time.perf_counter(), time.process_time()
        if now[0] - self.last[0] > EVERY:
            self.keep(now)
        if now[0] - self.began > self.most:
            raise Enough("the hours are over: run the suite again to go on.")

    def keep(self, now: tuple[float, float] | None = None) -> None:
        """Write the seconds so far."""
        now = now or (time.perf_counter(), time.process_time())
        self.wall, self.cpu = self.wall + now[0] - self.last[0], self.cpu + now[1] - self.last[1]
        self.last = now
        write_json(self.folder / "seconds.json", {"wall": self.wall, "cpu": self.cpu})


@contextmanager
def kept_folder(name: str, quick: bool) -> Iterator[Path]:
    """Give a folder for the ledgers of a suite, which is removed when all of its work is done, or in any case if quick.

    Raise Enough inside to keep it for the next run.
    """
    if quick:
        with tempfile.TemporaryDirectory() as folder:
            yield Path(folder)
        return
    folder = Path(os.environ.get("SHARDFIT_BENCH_RUNS") or cache_folder("bench-runs")) / name
    folder.mkdir(parents=True, exist_ok=True)
    yield folder
    if not (folder / "unfinished").exists():
        shutil.rmtree(folder)


def run_lines(name: str, source: Path, axes: Mapping[str, Sequence], n: int | None, quick: bool) -> dict[str, dict]:
    """Return the figures of n whole sweeps of a grid, drawn at random, or of all of them in random order."""
    made = imaging_survey(read_uvfits(source, channels="average"), axes, preset="eht", flux=0.6)
    whole = len(grid(made.axes))
    n = whole // len(axes[SWEPT]) if n is None else n
    with kept_folder(name, quick) as folder:
        watch = Stopwatch.of(folder)
        control = SurveyControl(min(SLOTS, n), on_points=watch, progress=True)
        asked = {**made.options, "design": lines(made.axes, n, (SWEPT,)), "control": control}
        unfinished = folder / "unfinished"
        unfinished.touch()
        try:
            survey(made.problem, made.axes, run_dir=folder, **asked).close()
            unfinished.unlink()
        except Enough:
            print(f"{name}: the hours are over; the next run goes on", file=sys.stderr)
        watch.keep()
        with Survey(folder) as found:
            cases = {"grid": ended(found, whole) | {"ours": watch.wall, "cpu_ours": watch.cpu}}
            print(cases, file=sys.stderr, flush=True)
            return cases | {"accuracy": accuracy(found, made)} | closures(found)


def ended(found: Survey, whole: int) -> dict:
    """Return how the points ended. polished: share that float64 finished, None as long as there are points to run."""
    evaluations = found.column("evaluations")
    return {
        "points": len(found),
        "share": len(found) / whole,
        "converged": found.converged,
        "failed": len(found.ledger.ids(failed=True)),
        "polished": float(np.mean(found.column("attempt") > 1)) if found.complete else None,
        "evaluations": float(np.median(evaluations)),
        "most_evaluations": float(evaluations.max()),
        "seconds_each": float(found.column("seconds").mean()),
    }


def accuracy(found: Survey, made: ImagingSurvey) -> dict:
    """Return how far some points are above the minimum that they reach in float64."""
    double = made.problem.replace(precision="float64")
    above = []
    for number in np.random.default_rng(1).permutation(found.ledger.ids(failed=False))[:CHECKED]:
        record = found.ledger.record(int(number))
        start = apply(Start(double.objective, double.x0), made.axes, record.axes)
        image = {"I": made.problem.transforms["I"].lifted(found.params(int(number))["I"].astype(float))}
        there = double.replace(objective=start.objective, x0=image)
        tight = fit(there, "lbfgs", certify=False, progress=False, **TIGHT)
        above.append(record.value / tight.value - 1)
    return {
        "points": len(above),
        "median": float(np.median(above)),
        "worst": float(np.max(above)),
        "close": float(np.mean(np.array(above) <= 1e-4)),
    }


def closures(found: Survey) -> dict[str, dict]:
    """Return for each assumed error, named in per cent, χ² of the point with the lowest sum of both closures.

    good: how many points have both at or below the best published.
    """
    systematic = found.column("systematic")
    chi2 = np.stack([found.column(name) for name in CLOSURES])
    cases = {}
    for value in np.unique(systematic):
        here = chi2[:, (systematic == value) & np.isfinite(chi2).all(0)]
        best = here[:, here.sum(0).argmin()]
        good = int(np.all(here <= np.array(PUBLISHED)[:, None], axis=0).sum())
        cases[f"error-{100 * value:.0f}"] = {
            "cphase": float(best[0]),
            "logcamp": float(best[1]),
            "good": good,
            "points": here.shape[1],
        }
    return cases
