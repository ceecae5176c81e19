"""A decay curve, fitted on whatever there is: one device, many, one process, many. Run with arguments, or imported.

Arguments: solver, 'all' or 'own' (rows every process holds), folder for the answers, and optionally a run directory,
the rank and step at which a process is killed, and on how many attempts: at twice this step on the second.
"""

import json
import os
import signal
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import shardfit as sf

N = 1001
POINT = {"amplitude": 1.2, "floor": 0.1, "lifetime": 0.7}


def residual(p, rows):
    return rows["y"] - p["amplitude"] * jnp.exp(-rows["t"] / p["lifetime"]) - p["floor"]


def count(p, rows):
    return jnp.stack([jax.nn.sigmoid((p["lifetime"] - rows["t"]) / 0.3), rows["t"] * p["floor"]], axis=1)


def log_misfit(totals):
    return jnp.sum(jnp.log(totals / jnp.array([150.0, 400.0])) ** 2)


def read(part=slice(None)):
    """Rows of the chosen part; no two are alike."""
    rng = np.random.default_rng(3)
    t = rng.uniform(0.0, 5.0, N)
    return {"t": t[part], "y": (1.5 * np.exp(-t / 0.8) + 0.2 + 0.1 * rng.standard_normal(N))[part]}


def objective_of(rows, squares_only=False):
    terms = {"decay": sf.residual_term(residual, rows), "prior": sf.residual_penalty(lambda p: p["floor"] - 0.2)}
    if not squares_only:
        terms["count"] = sf.statistic_term(count, rows, loss=log_misfit, chunk=100)
    return sf.Objective(terms)


def main(solver, whose, folder, run_dir=None, rank=-1, step=0, times=1):
    mesh = sf.mesh()
    if whose == "own":
        objective = objective_of(read(sf.my_rows(N)), solver == "lm").place_local(mesh)
    else:
        objective = objective_of(read(), solver == "lm").place(mesh)
    value, gradient = objective.value_and_grad(jax.tree.map(np.float64, POINT))
    problem = sf.Problem(objective, {name: np.float64(1.0) for name in POINT}, name="decay")
    store = None if run_dir is None else sf.RunDir(run_dir, seconds=0.0)
    attempt = 1 + (sum(event["event"] == "started" for event in store.events()) if store else times)

    def fall(snapshot):
        if attempt <= times and jax.process_index() == rank and snapshot.step >= step * attempt:
            os.kill(os.getpid(), signal.SIGKILL)

    run = {"run_dir": store, "callback": fall, "every": 1, "progress": False, "certify": whose == "all"}
    answer = sf.fit(problem, solver, mesh=mesh, **run)
    found = {
        "value": float(value),
        "gradient": {name: float(g) for name, g in gradient.items()},
        "n_rows": objective.n_rows,
        "processes": answer.layout["processes"],
        "shards": answer.layout["rows"],
        "params": {name: float(p) for name, p in answer.params.items()},
        "stderr": answer.stderr and {name: float(s) for name, s in answer.stderr.items()},
        "final": answer.value,
        "steps": answer.steps,
        "timings": answer.timings,
        "history": {name: column.tolist() for name, column in answer.history.items()},
    }
    Path(folder, f"{jax.process_index()}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    run_dir, *numbers = sys.argv[4:] or (None,)
    main(*sys.argv[1:4], run_dir, *map(int, numbers))
