"""Runs work in processes that are killed at random instants; the only one that starts JAX is the one to be killed.

Importing takes seconds and compiling more: children are forked before JAX has made anything, and share the cache of
compiled code that tests/conftest.py sets.
"""

import os
import select
import signal
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import numpy as np

PAUSE = 0.05  # seconds after everything that is written: time to be killed before all is done
Work = Callable[[Path, Callable[[int], None]], object]  # work(folder, tell) calls tell(n) after n things were written


def start(work: Work, folder: Path, pause: float) -> tuple[int, int]:
    """Fork a process that works; return its number and a pipe with one byte for everything written."""
    reader, writer = os.pipe()
    child = os.fork()
    if child:
        os.close(writer)
        return child, reader

    def tell(n):
        os.write(writer, b"." * n)
        time.sleep(pause)

    try:
        work(folder, tell)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def finish(work: Work, folder: Path) -> float:
    """Work to the end; return the seconds until something was written."""
    began = time.perf_counter()
    child, reader = start(work, folder, 0.0)
    select.select([reader], [], [])
    first = time.perf_counter() - began
    while os.read(reader, 4096):
        pass
    os.close(reader)
    if os.waitpid(child, 0)[1]:
        raise SystemExit("the work ended with an error")
    return first


def kill_once(work: Work, folder: Path, draw: np.random.Generator, usual: float) -> bool:
    """Kill a process before its first write, or soon after one of the first few; return whether it was at work."""
    child, reader = start(work, folder, PAUSE)
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


def main(work: Work, folder: Path, kills: int, seed: int) -> None:
    """Work unbroken in folder/whole and with kills in folder/killed; print how often a process was killed at work."""
    usual = finish(work, folder / "whole")
    draw = np.random.default_rng(seed)
    hits = sum(kill_once(work, folder / "killed", draw, usual) for _ in range(kills))
    finish(work, folder / "killed")
    print(hits)
