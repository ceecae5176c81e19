"""One process of the weak-scaling suite: time evaluations with all processes, and of its own rows alone."""

import json
import sys
import time
from pathlib import Path

import jax
import numpy as np

import shardfit as sf
from shardfit.domains.population import smf

POINT = {"efficiency": np.float64(-1.9), "scatter": np.float64(0.25)}


def clock(objective) -> tuple[float, float, float]:
    """Return wall and CPU seconds of one evaluation, the best of several, and its value."""
    best = [np.inf, np.inf]
    objective.value_and_grad(POINT)
    for _ in range(8):
        wall, cpu = time.perf_counter(), time.process_time()
        for _ in range(3):
            value, gradient = jax.block_until_ready(objective.value_and_grad(POINT))
        best = [min(best[0], (time.perf_counter() - wall) / 3), min(best[1], (time.process_time() - cpu) / 3)]
    return best[0], best[1], float(value)


def main(answer: str, rows: int) -> None:
    """Write what was measured, in the first process."""
    n = rows * jax.process_count()
    together = smf.problem("B", n, mesh=sf.mesh()).objective
    wall, cpu, value = clock(together)
    alone, alone_cpu, _ = clock(smf.problem("B", rows).objective.place(sf.mesh(local=True)))
    if jax.process_index():
        return
    figures = {"ours": wall, "peer": alone, "ratio": alone / wall, "cpu_ours": cpu, "cpu_peer": alone_cpu}
    figures["cpu_ratio"] = alone_cpu / cpu
    figures |= {"quality_ours": value, "rows": n, "exchange": max(0.0, 1 - alone / wall)}
    Path(answer).write_text(json.dumps(figures))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
