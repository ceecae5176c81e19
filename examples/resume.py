"""Stop a fit in the middle and go on later: the second call finds the run directory and ends where one call would."""

import tempfile
from pathlib import Path

import jax.numpy as jnp
import numpy as np

import shardfit as sf


def valley(params, scale):
    x = params["x"]
    return jnp.sum(scale * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2)


problem = sf.Problem(
    sf.Objective({"valley": sf.penalty(valley, 100.0)}), {"x": np.full(20, -0.5)}, name="Rosenbrock's valley"
)


def stop(snapshot):
    print(f"step {snapshot.step}: value {snapshot.value:.4g}; the power fails")
    return True


with tempfile.TemporaryDirectory() as folder:
    run_dir = Path(folder) / "valley"
    broken = sf.fit(problem, "lbfgs", run_dir=run_dir, callback=stop, every=20)
    resumed = sf.fit(problem, "lbfgs", run_dir=run_dir)

whole = sf.fit(problem, "lbfgs")
print(resumed)

assert broken.status is sf.Status.INTERRUPTED
assert resumed.success
assert resumed.steps == whole.steps
assert np.array_equal(resumed.params["x"], whole.params["x"])  # to the last bit
