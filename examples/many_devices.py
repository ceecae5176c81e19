"""The same fit on one device and on four: only `mesh` changes, the answer does not."""

import jax
import jax.numpy as jnp
import numpy as np

import shardfit as sf

jax.config.update("jax_num_cpu_devices", 4)  # four virtual devices; on a machine with GPUs leave this line out

rng = np.random.default_rng(3)
t = rng.uniform(0.0, 5.0, 100_001)  # an odd number: rows need not divide evenly
sigma = np.full_like(t, 0.1)
y = 1.5 * np.exp(-t / 0.8) + 0.2 + sigma * rng.standard_normal(t.size)


def residual(params, rows):
    model = params["amplitude"] * jnp.exp(-rows["t"] / params["lifetime"]) + params["floor"]
    return (rows["y"] - model) / rows["sigma"]


problem = sf.Problem(
    sf.Objective({"decay": sf.residual_term(residual, {"t": t, "y": y, "sigma": sigma})}),
    {"amplitude": 1.0, "lifetime": 1.0, "floor": 0.0},
    transforms={"amplitude": "log", "lifetime": "log"},
    units={"lifetime": "ns"},
    name="decay",
)

one = sf.fit(problem, "lm")
four = sf.fit(problem, "lm", mesh=sf.mesh(rows=4))
print(four)
print("largest difference between four shards and one, before the fit:", four.certificate["sharded"])

assert four.layout["rows"] == 4
for name in problem.x0:
    assert abs(one.params[name] - four.params[name]) < 1e-4 * one.stderr[name]
