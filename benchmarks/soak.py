"""Long processes: memory, and pieces of memory that the kernel counts, over many fits and points of one process.

`fits`: one model, other data at every fit. `models`: a model function of its own at every fit, as a loop around a
lambda has, so that every fit brings programs of its own. `points`: one survey. Each is a process of its own.
SHARDFIT_BENCH_RUNS names a folder that keeps the cases that are done, which are not run again.
"""

import json
import multiprocessing
import os
import resource
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

PEERS: tuple[str, ...] = ()
SETTINGS = {"precision": "float64", "threads": "as JAX chooses; one process"}
SIZES = {"fits": (10_000, 60), "models": (240, 12), "points": (50_000, 200)}  # when quick
LOOKS = 50
WARM = 0.2  # of the work: what every process needs is loaded by then


def run(quick: bool) -> dict[str, dict[str, Any]]:
    """Return memory and maps of every case over time."""
    return {name: _in_a_process(name, sizes[quick]) for name, sizes in SIZES.items()}


def _in_a_process(name: str, size: int) -> dict[str, Any]:
    kept = Path(os.environ["SHARDFIT_BENCH_RUNS"]) / "soak" if "SHARDFIT_BENCH_RUNS" in os.environ else None
    file = kept and kept / f"{name} {size}.json"
    if file and file.exists():
        return json.loads(file.read_text())
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        found = pool.apply(_case, (name, size))
    if file:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(found))
    return found


def _case(name: str, size: int) -> dict[str, Any]:
    watch = Watch(size)
    WORK[name](size, watch)
    return {"size": size, **summary(watch.seen)}


class Watch:
    """Looks at this process so many times, evenly over its work."""

    def __init__(self, size: int):
        self.every, self.seen = max(1, size // LOOKS), []

    def __call__(self, done: int) -> None:
        """Look, if it is time. done: of the work."""
        if done // self.every > len(self.seen):
            self.seen.append((done, *state()))
            print(json.dumps(self.seen[-1]), file=sys.stderr, flush=True)


def state() -> tuple[int, int, float]:
    """Return resident bytes, memory maps and CPU seconds of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    used = resource.getrusage(resource.RUSAGE_SELF)
    maps = Path("/proc/self/maps").read_bytes().count(b"\n")
    return pages * resource.getpagesize(), maps, used.ru_utime + used.ru_stime


def summary(seen: list[tuple[int, int, int, float]]) -> dict[str, Any]:
    """Return memory and maps when warm, at most and at the end, and growth per thousand by a straight line."""
    done, memory, maps, cpu = (np.array(column, float) for column in zip(*seen, strict=True))
    warm = done >= WARM * done[-1]
    found: dict[str, Any] = {"cpu": cpu[-1] / done[-1]}
    for name, values in (("memory", memory), ("maps", maps)):
        kept = values[warm]
        # halves, not a straight line: a saw-tooth that is let go again and again does not grow
        middle = len(kept) // 2
        first, last = kept[:middle].max(initial=0), kept[middle:].max()
        found |= {name: kept[0], f"{name}_most": values.max(), f"{name}_growth": last / first - 1 if first else 0.0}
    return found


def fits(size: int, watch: Callable[[int], None]) -> None:
    """Fit one model to other data, again and again."""
    import shardfit as sf
    from benchmarks.reliability.small import ROWS, START, residual

    draw = np.random.default_rng(0)
    for k in range(size):
        rows = {"t": ROWS["t"], "y": ROWS["y"] + 0.1 * draw.normal(size=40)}
        problem = sf.Problem(sf.Objective({"decay": sf.residual_term(residual, rows)}), START)
        result = sf.fit(problem, "lbfgs", progress=False, certify=False)
        assert abs(result.params["k"] - 0.7) < 0.5, result
        watch(k + 1)


def models(size: int, watch: Callable[[int], None]) -> None:
    """Fit with a model of its own at every fit."""
    import shardfit as sf
    from benchmarks.reliability.small import ROWS, START, residual

    for k in range(size):
        # another function though it says the same: JAX loads programs of its own for it, from the cache on disk
        terms = {"decay": sf.residual_term(lambda p, rows: residual(p, rows), ROWS)}
        result = sf.fit(sf.Problem(sf.Objective(terms), START), "lbfgs", progress=False, certify=False)
        assert abs(result.params["k"] - 0.7) < 0.5, result
        watch(k + 1)


def points(size: int, watch: Callable[[int], None]) -> None:
    """Run one survey of so many points."""
    from benchmarks.reliability.small import make_survey

    done = 0

    def look(records: Any) -> None:
        nonlocal done
        done += len(records)
        watch(done)

    with tempfile.TemporaryDirectory() as folder, make_survey(Path(folder), size, slots=64, on_points=look) as survey:
        assert survey.complete and survey.converged > 0.99, survey


WORK: dict[str, Callable[[int, Callable[[int], None]], None]] = {"fits": fits, "models": models, "points": points}
