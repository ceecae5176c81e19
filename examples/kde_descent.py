"""Kernel descent: find the distribution behind a sample by comparing it with random samples of a model.

All points enter each comparison; the places of comparison and the model's random numbers are drawn again at every step.
"""

import jax.numpy as jnp
import numpy as np

import shardfit as sf
from shardfit.stats.bank import make_bank
from shardfit.stats.compare import comparison_term, density_difference, row_normals
from shardfit.stats.scan import trajectory

rng = np.random.default_rng(1)
observed = np.exp(0.4 + 0.3 * rng.standard_normal((8000, 1)))  # log-normal


def sample(params, rows, key):
    return jnp.exp(params["centre"] + params["width"] * row_normals(key, rows["row"], (1,)))


bank = make_bank(observed, kernels=15, positions=15, reach=2.0)
term = comparison_term(sample, {"row": np.arange(4000, dtype=np.int32)}, bank, misfit=density_difference)
problem = sf.Problem(sf.Objective({"density": term}), {"centre": 0.0, "width": 0.8}, transforms={"width": sf.Log()})

result = sf.fit(problem, "adam", learning_rate=0.05, maxiter=200, keep=1, x_scale=1.0)
way = trajectory(problem, result.history).params
centre, width = (float(way[name][-50:].mean()) for name in ("centre", "width"))
print(f"centre {centre:.3f} (0.4), width {width:.3f} (0.3)")
assert abs(centre - 0.4) < 0.02
assert abs(width - 0.3) < 0.02
