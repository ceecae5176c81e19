"""One process of the suite `scale`: evaluations of small problems of every science, and messages without any work."""

import json
import sys
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import jax
import numpy as np

import shardfit as sf
from shardfit.core.mesh import first_says, replicate
from shardfit.core.precision import arithmetic
from shardfit.core.reduce import on_shards
from shardfit.planning.exchange import exchanged
from shardfit.planning.peak import Layout
from shardfit.solve.base import evaluate

SECONDS = 4.0  # of a measurement
BLOCK_SECONDS = 0.01  # of calls that are timed together
# numbers of a message; fewer than some hundred take another way through the network library, which is quicker
SMALL, LARGE = 1 << 10, 1 << 17


def clocked(run: Callable[[], Any]) -> dict[str, float]:
    """Return the shortest wall time of a call, for most calls waited for others, and the median of its CPU times."""
    jax.block_until_ready(run())
    began = time.perf_counter()
    jax.block_until_ready(run())
    # all processes call equally often
    one = first_says(np.array([time.perf_counter() - began]))[0]
    calls = max(1, round(BLOCK_SECONDS / one))
    walls, cpus = [], []
    for _ in range(max(5, min(200, round(SECONDS / (calls * one))))):
        wall, cpu = time.perf_counter(), time.process_time()
        for _ in range(calls):
            jax.block_until_ready(run())
        walls.append((time.perf_counter() - wall) / calls)
        cpus.append((time.process_time() - cpu) / calls)
    return {"wall": min(walls), "cpu": float(np.median(cpus))}


def case(science: str) -> tuple[Any, str]:
    """Return the problem that `shardfit bench` measures of a science, and what is evaluated of it."""
    made = import_module(f"shardfit.cli.{science}.rates").cases()[-1]
    return made.problem, made.needs


def evaluation(problem: Any, needs: str, placed: Any) -> Callable[[], Any]:
    z = problem.z0()
    return lambda: evaluate(needs, problem.space, placed, z, None)


def alone(problem: Any, needs: str) -> dict:
    """Return what one, a quarter, half and all of the rows take, what is exchanged, and what plan says."""
    n = max(problem.objective.n_rows.values())
    rows = sorted({1, -(-n // 4), -(-n // 2), n})
    times = []
    for share in rows:
        part = problem.objective.take(lambda _, n_own, share=share: np.arange(n_own)[: -(-n_own * share // n)])
        times.append(clocked(evaluation(problem, needs, part.place())))
    sent = exchanged(Layout(problem.objective, problem.space, problem.precision, None, needs))
    return {
        "rows": rows,
        "wall": [each["wall"] for each in times],
        "cpu": [each["cpu"] for each in times],
        "exchange": (sent.messages, sent.bytes),
        "plan": sf.plan(problem, "lm" if needs == "gram" else None).seconds,
    }


def messages(mesh: Any) -> dict:
    """Return what a sum over all processes takes: of a few numbers, and of many."""
    told: dict[str, Any] = {"wall": {}, "cpu": {}, "bytes": 4 * (LARGE - SMALL)}
    send = jax.jit(lambda x: on_shards(mesh, lambda shard, _, x: shard.sum(x), (), x))
    for name, size in (("small", SMALL), ("large", LARGE)):
        x = replicate(np.zeros(size, np.float32), mesh)
        for clock, seconds in clocked(lambda x=x: send(x)).items():
            told[clock][name] = seconds
    return told


def main(answer: str, *sciences: str) -> None:
    """Write what was measured, in the first process."""
    mesh, told = sf.mesh(), {}
    for science in sciences:
        problem, needs = case(science)
        with arithmetic(problem.precision):
            if jax.process_count() == 1:
                told[science] = alone(problem, needs)
            else:
                told[science] = clocked(evaluation(problem, needs, problem.objective.place(mesh)))
    if jax.process_count() > 1:
        told["messages"] = messages(mesh)
    if jax.process_index() == 0:
        Path(answer).write_text(json.dumps(told))


if __name__ == "__main__":
    main(*sys.argv[1:])
