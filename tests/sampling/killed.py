"""Samples in processes that are killed at random instants; the only one that starts JAX is the one to be killed.

`python -m tests.sampling.killed FOLDER KILLS SEED` samples unbroken in FOLDER/whole and with so many kills in
FOLDER/killed0, FOLDER/killed1, ...: the next begins when one has come to its end. Children are forked before JAX has
made anything, and share the cache of compiled code that tests/conftest.py sets.
"""

import os
import signal
import sys
import time
import traceback
from pathlib import Path

import numpy as np

from shardfit.io.run_dir import RunDir
from shardfit.sampling.run import sample
from shardfit.solve.monitor import Monitor
from tests.sampling.test_run import problem

OPTIONS = {"chains": 2, "width": 1, "warmup": 150, "draws": 300, "progress": False}
PAUSE = 0.05  # seconds at every look of the host: time to be killed before all is done


def run(folder: Path, pause: float) -> None:
    """Sample, slowly."""
    look = Monitor.look

    def slowly(self, *arguments):
        time.sleep(pause)
        return look(self, *arguments)

    Monitor.look = slowly
    sample(problem(), run_dir=RunDir(folder, seconds=0.0), **OPTIONS)


def start(folder: Path, pause: float) -> int:
    """Fork a process that samples; return its number."""
    child = os.fork()
    if not child:
        try:
            run(folder, pause)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return child


def finish(folder: Path) -> float:
    """Sample to the end; return how long it took."""
    began = time.perf_counter()
    if os.waitpid(start(folder, PAUSE), 0)[1]:
        raise SystemExit("sampling ended with an error")
    return time.perf_counter() - began


def main(folder: Path, kills: int, seed: int) -> None:
    """Sample whole, and with kills."""
    finish(folder / "whole")
    usual = finish(folder / "warm")
    draw, hits, run = np.random.default_rng(seed), 0, 0
    while hits < kills:
        child = start(folder / f"killed{run}", PAUSE)
        time.sleep(draw.uniform(0.2, 0.9) * usual)
        os.kill(child, signal.SIGKILL)
        hits += os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
        run += (folder / f"killed{run}" / "posterior.json").exists()
    finish(folder / f"killed{run}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
