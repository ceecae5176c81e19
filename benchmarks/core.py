"""The core against the plainest thing that does the same: a bare jit, scipy, one device, the data's own size.

Every case runs in its own process, so that device counts, threads and peak memory belong to it.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

PEERS = ()
SETTINGS = {
    "precision": "float64",
    "threads": "both cores for XLA, one for OpenMP and OpenBLAS",
    "devices": "one; two virtual ones in devices-*",
}
CASES = ("overhead-1e6", "lbfgs-1600", "lbfgs-16384", "devices-elementwise", "devices-scan", "gram-1e7")


def run(quick: bool) -> dict[str, dict]:
    """Return the figures of every case; --quick leaves out the one that needs a gigabyte of disk and memory."""
    return {case: _child(case) for case in CASES if not (quick and case.startswith("gram"))}


def _child(case: str) -> dict:
    devices = 2 if case.startswith("devices") else 1
    env = {**os.environ, "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}", "JAX_PLATFORMS": "cpu"}
    env["JAX_ENABLE_COMPILATION_CACHE"] = "false"
    env |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    out = subprocess.run([sys.executable, "-m", "benchmarks.core", case], env=env, capture_output=True, text=True)
    if out.returncode:
        raise RuntimeError(f"benchmark case {case} failed:\n{out.stderr[-2000:]}")
    return json.loads(out.stdout.splitlines()[-1])


def clock(call: Callable, repeats: int) -> tuple[float, float]:
    """Return wall and CPU seconds of one call, the one before it left out: the other side may have emptied caches."""
    call()
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(repeats):
        result = call()
    import jax

    jax.block_until_ready(result)
    return (time.perf_counter() - wall) / repeats, (time.process_time() - cpu) / repeats


def race(ours: Callable, peer: Callable, repeats: int, rounds: int = 15) -> dict:
    """Alternate both, so that a busy machine hurts both alike; the best round of each counts."""
    times = [(clock(ours, repeats), clock(peer, repeats)) for _ in range(rounds)]
    (wall, cpu), (peer_wall, peer_cpu) = (tuple(min(t[i][k] for t in times) for k in (0, 1)) for i in (0, 1))
    ratios = {"ratio": peer_wall / wall, "cpu_ratio": peer_cpu / cpu}
    return {"ours": wall, "peer": peer_wall, "cpu_ours": cpu, "cpu_peer": peer_cpu, **ratios}


def overhead(n: int) -> dict:
    """Time objective.value_and_grad against a bare jit of the same mathematics on the same arrays."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    import shardfit as sf

    rng = np.random.default_rng(0)
    x = rng.uniform(0, 5, n)
    rows = {"x": x, "y": 2 * np.exp(-x / 1.3) + 0.1 * rng.standard_normal(n), "sigma": np.full(n, 0.1)}

    def residual(p, r):
        return (r["y"] - p["a"] * jnp.exp(-r["x"] / p["tau"])) / r["sigma"]

    params = {"a": np.array(1.5), "tau": np.array(1.0)}
    with jax.enable_x64(True):
        placed = sf.Objective({"data": sf.residual_term(residual, rows)}).place()
        arrays = placed.terms[0].rows
        bare = jax.jit(jax.value_and_grad(lambda p, r: 0.5 * jnp.sum(residual(p, r) ** 2)))
        figures = race(lambda: placed.value_and_grad(params), lambda: bare(params, arrays), 20)
        value, other = placed.value_and_grad(params), bare(params, arrays)
        figures |= {"quality_ours": float(value[0]), "quality_peer": float(other[0])}
    return figures


def lbfgs(n: int) -> dict:
    """Time whole calls of 300 iterations: device L-BFGS, and bare scipy's L-BFGS-B on a compiled value and gradient.

    Seconds per iteration; both keep 10 pairs. `wrapped` is scipy's by way of `fit`, with its checks and history.
    """
    import jax
    import jax.numpy as jnp
    import numpy as np
    from scipy.optimize import minimize

    import shardfit as sf

    def valley(x):
        return jnp.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)

    start = np.full(n, -1.2)
    problem = sf.Problem(sf.Objective({"valley": sf.penalty(valley)}), start, name="valley")
    options = {"maxiter": 300, "ftol": 0.0, "gtol": 0.0, "memory": 10, "certify": False, "progress": False}
    last = {}

    def by(solver):
        def call():
            last[solver] = sf.fit(problem, solver, **options)

        return call

    both = jax.jit(jax.value_and_grad(valley))

    def function(x):
        value, gradient = both(x)
        return float(value), np.asarray(gradient)

    def bare():
        with jax.enable_x64(True):
            limits = {"maxiter": 300, "maxfun": 10**6, "maxcor": 10, "ftol": 0.0, "gtol": 0.0}
            last["bare"] = minimize(function, start, jac=True, method="L-BFGS-B", options=limits)

    figures = race(by("lbfgs"), bare, 1, rounds=5)
    wrapped = race(by("lbfgsb"), bare, 1, rounds=5)
    figures |= {"wrapped": wrapped["ours"], "cpu_wrapped": wrapped["cpu_ours"]}
    steps = {"ours": last["lbfgs"].steps, "peer": last["bare"].nit, "wrapped": last["lbfgsb"].steps}
    for side, count in steps.items():
        figures[side] /= count
        figures[f"cpu_{side}"] /= count
    ratios = {"ratio": figures["peer"] / figures["ours"], "cpu_ratio": figures["cpu_peer"] / figures["cpu_ours"]}
    qualities = {"quality_ours": last["lbfgs"].value, "quality_peer": float(last["bare"].fun)}
    counts = {"evaluations_ours": last["lbfgs"].evaluations, "evaluations_peer": int(last["bare"].nfev)}
    return figures | ratios | qualities | counts


def devices(kind: str) -> dict:
    """Time one evaluation on two virtual devices against one."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    import shardfit as sf

    rng = np.random.default_rng(0)

    def elementwise(p, r):
        return r["y"] - p[0] * jnp.exp(-p[1] * r["x"]) * jnp.sin(p[2] * r["x"])

    def scanned(p, r):
        def step(state, _):
            return state + 0.01 * jnp.tanh(p[0] * state + p[1]), None

        return jax.lax.scan(step, r["x"], None, length=400)[0] - p[2] * r["y"]

    n, fn = (2_000_000, elementwise) if kind == "elementwise" else (2_000, scanned)
    rows = {"x": rng.uniform(0, 3, n), "y": rng.standard_normal(n)}
    objective = sf.Objective({"data": sf.residual_term(fn, rows)})
    params = np.array([1.0, 0.5, 2.0])
    with jax.enable_x64(True):
        one, two = objective.place(sf.mesh(rows=1)), objective.place(sf.mesh(rows=2))
        figures = race(lambda: two.value_and_grad(params), lambda: one.value_and_grad(params), 5)
        values = two.value_and_grad(params), one.value_and_grad(params)
    return figures | {"quality_ours": float(values[0][0]), "quality_peer": float(values[1][0])}


def gram(n: int) -> dict:
    """Fit 8 parameters to n rows of 10 numbers with "lm"; ours = peak memory of data and fit, peer = the data alone."""
    import jax.numpy as jnp
    import numpy as np

    import shardfit as sf

    truth = np.array([1.0, 0.3, -0.5, 0.2, 0.8, -1.7, 0.4, 0.1])
    shapes = {"x": (8,), "y": (), "sigma": ()}
    folder = tempfile.TemporaryDirectory()

    def residual(p, r):
        return (r["y"] - jnp.exp(r["x"] @ p)) / r["sigma"]

    def make(n):
        """Return memory maps, as large data come; on a CPU they are used in place."""
        path = f"{folder.name}/{{}}-{n}.npy".format
        rows = {k: np.lib.format.open_memmap(path(k), "w+", float, (n, *shape)) for k, shape in shapes.items()}
        rng = np.random.default_rng(0)
        for start in range(0, n, 1 << 18):
            part = slice(start, min(n, start + (1 << 18)))
            x = rng.uniform(-0.5, 0.5, (part.stop - start, 8))
            noise = 0.1 * rng.standard_normal(len(x))
            rows["x"][part], rows["y"][part], rows["sigma"][part] = x, np.exp(x @ truth) + noise, 0.1
        return {name: np.load(path(name), mmap_mode="r") for name in rows}

    def fit(rows):
        objective = sf.Objective({"data": sf.residual_term(residual, rows, chunk=1 << 16)})
        return sf.fit(sf.Problem(objective, np.zeros(8)), "lm", progress=False)

    fit(make(1000))  # libraries and code loaded: not the fit's memory
    base = memory("VmRSS")
    rows = make(n)
    reset_peak()
    data = sum(leaf.nbytes for leaf in rows.values())
    cpu, wall = time.process_time(), time.perf_counter()
    result = fit(rows)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    peak = memory("VmHWM") - base
    pulls = np.abs(np.asarray(result.params) - truth) / np.asarray(result.stderr)
    return {
        "ours": peak,
        "peer": data,
        "ratio": data / peak,
        "quality_ours": float(pulls.max()),
        "quality_peer": None,
        "cpu_ours": cpu,
        "cpu_peer": None,
        "cpu_ratio": None,
        "wall_seconds": wall,
        "evaluations": result.evaluations,
        "success": result.success,
    }


def memory(field: str) -> int:
    """Return a figure of this process's memory in bytes, from the kernel."""
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(field))


def reset_peak() -> None:
    """Start the peak anew."""
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")


def main(case: str) -> None:
    """Run one case in this process and print its figures."""
    kind, _, size = case.partition("-")
    runner = {"overhead": overhead, "lbfgs": lbfgs, "devices": devices, "gram": gram}[kind]
    print(json.dumps(runner(size if kind == "devices" else int(float(size)))))


if __name__ == "__main__":
    main(sys.argv[1])
