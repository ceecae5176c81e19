"""How long an evaluation takes: measured on a growing part of the rows, and extrapolated to all of them.

An operation count divided by the machine's rates was wrong by up to a factor of fifteen: models differ too much. The
model itself, on as many of its own rows as take a moment, tells what a row costs and what a call costs.
"""

import time
from typing import Any

import jax
import numpy as np

from shardfit.core.problem import Problem
from shardfit.solve.base import evaluate

ENOUGH_SECONDS = 0.05  # an evaluation this long is known well
LONGEST_SECONDS = 1.0  # what the next part may be expected to take
GROWTH = 64  # at most, from one part to the next: every part compiles anew
REPEATS = 3


def evaluation_seconds(problem: Problem, needs: str, share: float) -> float:
    """Return the time of one evaluation of a share of all rows on one device; call it in the problem's precision."""
    most = max(problem.objective.n_rows.values(), default=1)
    wanted = max(1.0, share * most)
    times: list[tuple[float, float]] = []  # (rows of the longest term, seconds)
    rows = 1.0
    while True:
        rows = min(rows, wanted)
        times.append((rows, _measured(problem, needs, rows / most)))
        seconds = times[-1][1]
        if rows >= wanted:
            return seconds
        growth = min(GROWTH, LONGEST_SECONDS / seconds)
        if seconds >= ENOUGH_SECONDS or growth < 2:
            return _extrapolated(times, wanted)
        rows = max(rows + 1, rows * growth)


def _measured(problem: Problem, needs: str, share: float) -> float:
    """Return the shortest of several evaluations of a share of every term's rows; others may have had to wait."""

    def select(_, n):  # spread over all rows, for neighbours may be alike
        return np.linspace(0, n - 1, max(1, round(share * n))).astype(int)

    part, z = problem.objective.take(select).place(), problem.z0()
    key = jax.random.key(0) if part.stochastic else None

    def run() -> Any:
        return jax.block_until_ready(evaluate(needs, problem.space, part, z, key))

    run()
    times = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        run()
        times.append(time.perf_counter() - began)
        if times[-1] > LONGEST_SECONDS:
            break
    return min(times)


def _extrapolated(times: list[tuple[float, float]], rows: float) -> float:
    """Return the time of so many rows; the difference of the last two parts leaves out what a call costs by itself."""
    n, seconds = times[-1]
    if len(times) == 1:
        return seconds * rows / n
    before, less = times[-2]
    per_row = (seconds - less) / (n - before)
    return seconds + max(per_row, 0.5 * seconds / n) * (rows - n)
