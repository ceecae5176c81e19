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

REACH = 0.9  # share of the work within which kills fall: what is left has to last until the last one
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


def finish(work: Work, folder: Path) -> tuple[float, int]:
    """Work to the end; return the seconds until something was written, and how many things were."""
    began = time.perf_counter()
    child, reader = start(work, folder, 0.0)
    select.select([reader], [], [])
    first, written = time.perf_counter() - began, 0
    while news := os.read(reader, 4096):
        written += len(news)
    os.close(reader)
    if os.waitpid(child, 0)[1]:
        raise SystemExit("the work ended with an error")
    return first, written


def kill_once(work: Work, folder: Path, draw: np.random.Generator, usual: float, wanted: int) -> tuple[bool, int]:
    """Kill a process soon after it has written so many things, or before its first write if that is none.

    Return whether it was at work, and how many things it has written.
    """
    child, reader = start(work, folder, PAUSE)
    written = 0
    while written < wanted and (news := os.read(reader, 4096)):
        written += len(news)
    if wanted:
        time.sleep(draw.uniform(0, PAUSE))
    else:
        select.select([reader], [], [], draw.uniform(0, usual))
    os.kill(child, signal.SIGKILL)
    os.close(reader)
    return os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL, written


def main(work: Work, folder: Path, kills: int, seed: int) -> None:
    """Work unbroken in folder/whole and with kills in folder/killed, evenly from its beginning to its end.

    Print how often a process was killed at work, and what share of all things was written after each kill.
    """
    usual, total = finish(work, folder / "whole")
    draw, hits, done, shares = np.random.default_rng(seed), 0, 0, []
    for k in range(kills):
        target = int(REACH * total * (k + draw.uniform()) / kills)
        hit, written = kill_once(work, folder / "killed", draw, usual, max(0, target - done))
        hits, done = hits + hit, done + written
        shares.append(f"{done / total:.2f}")
    finish(work, folder / "killed")
    print(hits, *shares)
