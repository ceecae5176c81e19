"""Peak memory of one value and gradient of a large image, against the matrix of a direct transform."""

import json
import sys
import time

import numpy as np

from benchmarks.core import memory, reset_peak


def main(npix: int, n: int) -> None:
    """Evaluate npix² pixels against n visibilities once and print the figures."""
    import jax

    from shardfit.domains.vlbi.constants import UAS
    from shardfit.domains.vlbi.grid import Grid
    from shardfit.domains.vlbi.problem import imaging_problem
    from shardfit.domains.vlbi.tables import DataSet, Product
    from shardfit.solve.base import evaluate

    rng = np.random.default_rng(0)
    u, v = rng.uniform(-8e9, 8e9, (2, n))
    vis = 0.6 * np.exp(-((u**2 + v**2) / 4e9**2)) + 0.01 * (rng.standard_normal(n) + 1j * rng.standard_normal(n))
    data = DataSet(u, v, {"vis": Product(np.arange(n), vis, np.full(n, 0.01))}, 0.0)
    base = memory("VmRSS")
    reset_peak()
    start = np.full((npix, npix), 0.6 / npix**2)
    given = {"data_weights": {"vis": 1.0}, "reg_weights": {"simple": 1.0, "tv": 1.0}, "flux": 0.6, "beam": 20 * UAS}
    problem = imaging_problem(data, Grid(npix, npix, 400 * UAS / npix), start, **given, epsilon_tv=1e-10)
    jax.config.update("jax_enable_x64", True)
    placed, z = problem.objective.place(), problem.z0()
    wall = time.perf_counter()
    value, gradient = jax.block_until_ready(evaluate("value_and_grad", problem.space, placed, z, None))
    first = time.perf_counter() - wall
    wall, cpu = time.perf_counter(), time.process_time()
    jax.block_until_ready(evaluate("value_and_grad", problem.space, placed, z, None))
    matrix = 16 * n * npix**2  # complex numbers of a direct transform, as eht-imaging holds it
    peak = memory("VmHWM")
    figures = {
        "ours": peak,
        "peer": matrix,
        "ratio": matrix / peak,
        "cpu_ours": time.process_time() - cpu,
        "cpu_peer": None,
        "quality_ours": float(value),
        "quality_peer": None,
        "details": {"base": base, "wall": time.perf_counter() - wall, "first": first},
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main(*(int(word) for word in sys.argv[1:]))
