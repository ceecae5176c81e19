"""Runs a survey in processes that are killed at random instants; the only one that starts JAX is the one to be killed.

`python -m tests.surveys.killed FOLDER KILLS SEED` runs a survey unbroken in FOLDER/whole and one with kills in
FOLDER/killed, and prints how often a process was killed at work. Importing takes seconds and compiling more: children
are forked before JAX has made anything, and share the cache of compiled code that tests/conftest.py sets.
"""

import os
import select
import signal
import sys
import time
import traceback
from itertools import product
from pathlib import Path

import numpy as np

from tests.surveys.small import PRIORS, point, run

POINTS = [
    point(soft=soft, prior=prior, noise=noise, boot=boot)
    for soft, prior, noise, boot in product((0.3, 1, 3), PRIORS, (1.0, 0.5), range(8))
]
PAUSE = 0.05  # seconds after every write: time to be killed before all is done


def start(folder: Path, pause: float, **options) -> tuple[int, int]:
    """Fork a process that runs the survey; return its number and a pipe with one byte for every point written."""
    reader, writer = os.pipe()
    child = os.fork()
    if child:
        os.close(writer)
        return child, reader

    def tell(records):
        os.write(writer, b"." * len(records))
        time.sleep(pause)

    try:
        run(folder, POINTS, on_points=tell, **options)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def finish(folder: Path, **options) -> None:
    """Run the survey to its end."""
    child, reader = start(folder, 0.0, **options)
    while os.read(reader, 4096):
        pass
    os.close(reader)
    if os.waitpid(child, 0)[1]:
        raise SystemExit("the survey ended with an error")


def kill_once(folder: Path, draw: np.random.Generator, usual: float) -> bool:
    """Kill a process before its first point, or soon after one of the first few; return whether it was at work."""
    child, reader = start(folder, PAUSE)
    written, wanted = 0, int(draw.integers(0, 4))
    while written < wanted and (news := os.read(reader, 4096)):
        written += len(news)
    if wanted:
        time.sleep(draw.uniform(0, PAUSE))
    else:
        select.select([reader], [], [], draw.uniform(0, usual))
    os.kill(child, signal.SIGKILL)
    os.close(reader)
    return os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL


def main(folder: Path, kills: int, seed: int) -> None:
    """Run the survey whole, and with kills."""
    finish(folder / "whole")
    began = time.perf_counter()
    child, reader = start(folder / "warm", 0.0)
    select.select([reader], [], [])
    usual = time.perf_counter() - began
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    draw = np.random.default_rng(seed)
    hits = sum(kill_once(folder / "killed", draw, usual) for _ in range(kills))
    finish(folder / "killed")
    print(hits)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
