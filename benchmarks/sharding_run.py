"""Value and gradient of one imaging objective on several numbers of virtual devices, in turn, in this process."""

import json
import sys
import time

import numpy as np

from benchmarks.peers import use_devices

ROUNDS, REPEATS = 3, 5


def main(asked: dict) -> None:
    """Print differences from one device and the best times of all."""
    use_devices(max(asked["devices"]))
    import jax

    import shardfit as sf
    from benchmarks.vlbi_ours import problem_of
    from shardfit.solve.base import evaluate

    problem, _ = problem_of({**asked, "nufft_tolerance": 1e-9})
    jax.config.update("jax_enable_x64", True)
    z = problem.z0()
    placed = {n: problem.objective.place(sf.mesh(rows=n)) for n in asked["devices"]}
    best: dict[int, list[float]] = {n: [float("inf")] * 2 for n in placed}
    found = {n: _evaluated(evaluate, problem.space, one, z) for n, one in placed.items()}  # compiles
    for _ in range(ROUNDS):
        for n, one in placed.items():
            wall, cpu = time.perf_counter(), time.process_time()
            for _ in range(REPEATS):
                _evaluated(evaluate, problem.space, one, z)
            spent = time.perf_counter() - wall, time.process_time() - cpu
            best[n] = [min(kept, new / REPEATS) for kept, new in zip(best[n], spent, strict=True)]
    value, slope = found[1]
    figures = {
        "rows": int(sum(problem.objective.n_rows.values())),
        "pixels": int(np.prod(np.load(asked["prior"]).shape)),
        "value_difference": max(abs(v / value - 1) for v, _ in found.values()),
        "gradient_difference": max(float(np.linalg.norm(g - slope) / np.linalg.norm(slope)) for _, g in found.values()),
    }
    for n, (wall, cpu) in best.items():
        figures |= {f"wall-{n}": wall, f"cpu-{n}": cpu}
    print(json.dumps(figures))


def _evaluated(evaluate, space, placed, z) -> tuple[float, np.ndarray]:
    value, gradient = evaluate("value_and_grad", space, placed, z, None)
    return float(value), np.asarray(gradient)


if __name__ == "__main__":
    main(json.load(sys.stdin))
