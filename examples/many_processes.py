"""Every process loads its own rows, and all fit them together.

The same file, unchanged, runs in one process, in four of this machine, and on a cluster:

    python many_processes.py
    shardfit launch -n 4 -- many_processes.py
    srun shardfit rank -- many_processes.py
"""

import jax
import jax.numpy as jnp
import numpy as np

import shardfit as sf

N_ROWS = 100_003


def read(part):
    """Stand for a reader of a large file: only the rows asked for are ever in memory."""
    number = np.arange(N_ROWS)[part]
    t = 5.0 * ((number * 0.6180339887498949) % 1.0)
    noise = np.sin(12.9898 * number) * np.cos(78.233 * number)
    return {"t": t, "y": 1.5 * np.exp(-t / 0.8) + 0.2 + 0.1 * noise, "sigma": np.full(t.size, 0.05)}


def residual(params, rows):
    model = params["amplitude"] * jnp.exp(-rows["t"] / params["lifetime"]) + params["floor"]
    return (rows["y"] - model) / rows["sigma"]


mesh = sf.mesh()
rows = read(sf.my_rows(N_ROWS))
objective = sf.Objective({"decay": sf.residual_term(residual, rows)}).place_local(mesh)
problem = sf.Problem(
    objective,
    {"amplitude": 1.0, "lifetime": 1.0, "floor": 0.0},
    transforms={"amplitude": "log", "lifetime": "log"},
    units={"lifetime": "ns"},
    name="decay",
)
result = sf.fit(problem, "lm", mesh=mesh)

if jax.process_index() == 0:
    print(f"{rows['t'].size} of {objective.n_rows['decay']} rows are in this process, one of {jax.process_count()}")
    print(result)

assert objective.n_rows["decay"] == N_ROWS
assert result.success
assert abs(result.params["lifetime"] - 0.8) < 5 * result.stderr["lifetime"]
