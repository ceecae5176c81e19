"""How long an evaluation takes: measured on a growing part of the rows, and extrapolated to all of them.

An operation count divided by the machine's rates was wrong by up to a factor of fifteen: models differ too much. The
model itself, on as many of its own rows as take a moment, tells what a row costs and what a call costs.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from shardfit.core.objective import Objective
from shardfit.core.problem import Problem
from shardfit.solve.base import evaluate
from shardfit.solve.loop import handing_seconds, loop_of, segment, ticks_ahead
from shardfit.solve.step import StepSolver

ENOUGH_SECONDS = 0.05  # an evaluation this long is known well
LONGEST_SECONDS = 1.0  # what the next part may be expected to take
GROWTH = 64  # at most, from one part to the next: every part compiles anew
BLOCK_SECONDS = 0.002  # of calls that are timed together: clocks of processor time lag behind by some tenths of it
STEPS = 4  # of a solver that are timed together
REPEATS = 5  # at least, and as many more as fit into the time of one that is known well


@dataclass(frozen=True)
class Curve:
    """Seconds of an evaluation on one device, measured for some numbers of rows of the longest term."""

    rows: tuple[float, ...]
    seconds: tuple[float, ...]

    def at(self, rows: float) -> float:
        """Return the seconds of so many rows: between two parts by their straight line, beyond by the last two."""
        seconds = np.maximum.accumulate(self.seconds)  # more rows never take less time: it is the clock that errs
        if rows <= self.rows[-1]:
            return float(np.interp(rows, self.rows, seconds))
        n, last = self.rows[-1], float(seconds[-1])
        if len(self.rows) == 1:
            return last * rows / n
        # the difference of two parts leaves out what a call costs by itself
        per_row = (last - float(seconds[-2])) / (n - self.rows[-2])
        return last + max(per_row, 0.5 * last / n) * (rows - n)


def time_curve(problem: Problem, needs: str, share: float = 1.0) -> Curve:
    """Measure parts of the rows, up to a share of them or as many as take a moment; call it in the precision."""
    most = max(problem.objective.n_rows.values(), default=1)
    wanted = max(1.0, share * most)
    rows, times = [1.0], []
    while True:
        times.append(_measured(problem, needs, rows[-1] / most))
        growth = min(GROWTH, LONGEST_SECONDS / times[-1])
        if rows[-1] >= wanted or times[-1] >= ENOUGH_SECONDS or growth < 2:
            return Curve(tuple(rows), tuple(times))
        rows.append(min(wanted, max(rows[-1] + 1, rows[-1] * growth)))


def step_seconds(problem: Problem, solver: StepSolver, curve: Curve) -> float:
    """Return what a solver adds to an evaluation, measured in its own loop on the last part of the curve.

    Call it in the precision.
    """
    most = max(problem.objective.n_rows.values(), default=1)
    part = _part(problem, curve.rows[-1] / most)
    key = jax.random.key(0) if part.stochastic else None
    run, go_on = loop_of(solver, problem, part, key)
    run = jax.block_until_ready(go_on(run, 1))
    # a fit hands its state over once in so many steps
    clock = time.process_time if jax.default_backend() == "cpu" else time.perf_counter
    handing, times = handing_seconds(lambda: go_on(run, 0), run, clock), []
    for _ in range(REPEATS):
        before, began = int(run.ticks), _Clocks()
        run = jax.block_until_ready(go_on(run, STEPS))
        done = int(run.ticks) - before
        if done:
            seconds = began.seconds()
            alone = max(seconds - handing, 0.1 * seconds) / done
            times.append(alone + handing / ticks_ahead(done, seconds, handing, segment(solver)))
    return max(0.0, min(times, default=0.0) - curve.seconds[-1])


class _Clocks:
    """Seconds since it was made. On a CPU never more than the processor's time: a program may wait for others."""

    def __init__(self):
        self.wall, self.cpu = time.perf_counter(), time.process_time()

    def seconds(self) -> float:
        wall, cpu = time.perf_counter() - self.wall, time.process_time() - self.cpu
        return min(wall, cpu) if jax.default_backend() == "cpu" else wall


def _part(problem: Problem, share: float) -> Objective:
    """Return a share of every term's rows, spread over all of them, for neighbours may be alike."""

    def select(_, n):
        return np.linspace(0, n - 1, max(1, round(share * n))).astype(int)

    return problem.objective.take(select).place()


def _measured(problem: Problem, needs: str, share: float) -> float:
    """Return the shortest of several evaluations of a share of every term's rows; others may have had to wait."""
    part, z = _part(problem, share), problem.z0()
    key = jax.random.key(0) if part.stochastic else None

    def run() -> Any:
        return jax.block_until_ready(evaluate(needs, problem.space, part, z, key))

    run()
    began = time.perf_counter()
    run()
    calls = max(1, round(BLOCK_SECONDS / (time.perf_counter() - began)))
    times, spent = [], 0.0
    while len(times) < REPEATS or spent < ENOUGH_SECONDS:
        times.append(_seconds(run, calls))
        spent += calls * times[-1]
        if times[-1] > LONGEST_SECONDS:
            break
    return min(times)


def _seconds(run: Callable[[], Any], calls: int) -> float:
    """Return how long a call takes."""
    clocks = _Clocks()
    for _ in range(calls):
        run()
    return clocks.seconds() / calls
