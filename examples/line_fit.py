"""A straight line with error bars: residuals in, parameters with covariance out."""

import numpy as np

import shardfit as sf

rng = np.random.default_rng(1)
x = np.linspace(0.0, 10.0, 1000)
sigma = np.full_like(x, 0.5)
y = 2.0 + 0.7 * x + sigma * rng.standard_normal(x.size)


def residual(params, rows):
    return (rows["y"] - params["offset"] - params["slope"] * rows["x"]) / rows["sigma"]


objective = sf.Objective({"line": sf.residual_term(residual, {"x": x, "y": y, "sigma": sigma})})
problem = sf.Problem(objective, {"offset": 0.0, "slope": 0.0}, units={"offset": "V", "slope": "V/s"}, name="line")

result = sf.fit(problem, "lm")
print(result)

# a line has a closed answer, errors included
A = np.stack([np.ones_like(x), x], axis=1) / sigma[:, None]
exact = np.linalg.solve(A.T @ A, A.T @ (y / sigma))
assert np.allclose([result.params["offset"], result.params["slope"]], exact, rtol=1e-8)
assert np.allclose(result.covariance, np.linalg.inv(A.T @ A), rtol=1e-6)
