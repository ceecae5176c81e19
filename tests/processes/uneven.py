"""Rows of which rank 1 has none, with a key for each row, and data of another kind that only rank 1 has.

Arguments: folder, and 'alike' or 'mixed' (types of rows).
"""

import json
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import shardfit as sf

N = 50
POINT = {"shift": 0.2, "scale": 1.3}


def drawn(p, rows, key, keys):
    x = rows["x"][:, 0] * p["scale"] + jax.vmap(jax.random.normal)(keys)
    return jax.nn.sigmoid((x[:, None] - jnp.array([-1.0, 0.0, 1.0]) - p["shift"]) / 0.5)


def objective_of(rows, others):
    term = sf.statistic_term(drawn, rows, loss=lambda t, key: jnp.sum(jnp.log(t) ** 2), stochastic="rows")
    line = sf.residual_term(lambda p, rows: rows["y"] - p["scale"] * rows["t"], others)
    return sf.Objective({"drawn": term, "line": line})


def read(part=slice(None)):
    return {"x": np.random.default_rng(1).normal(size=(N, 2))[part]}


def others(part=slice(None)):
    t = np.linspace(0.0, 1.0, 40)
    return {"t": t[part], "y": (1.7 * t + 0.1 * np.sin(9 * t))[part]}


if __name__ == "__main__":
    rank = jax.process_index()
    part = [slice(0, 30), slice(30, 30), slice(30, N)][rank]
    rows = read(part)
    if sys.argv[2] == "mixed" and rank == 2:
        rows["x"] = rows["x"].astype(np.float32)
    objective = objective_of(rows, others(slice(0, 40 if rank == 1 else 0))).place_local(sf.mesh())
    value, gradient = objective.value_and_grad(POINT, key=7)
    problem = sf.Problem(objective.freeze(7), POINT)
    answer = sf.fit(problem, "lbfgs", mesh=sf.mesh(), maxiter=5, progress=False, certify=False)
    found = {"value": float(value), "gradient": {k: float(g) for k, g in gradient.items()}, "n": objective.n_rows}
    Path(sys.argv[1], f"{rank}.json").write_text(json.dumps(found | {"final": answer.value}))
