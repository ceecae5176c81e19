"""A posterior: priors, chains, how well they mixed, and what they say about a derived quantity."""

import jax.numpy as jnp
import numpy as np

import shardfit as sf

rng = np.random.default_rng(3)
t = np.linspace(0.0, 4.0, 80)  # s
sigma = np.full_like(t, 0.15)
y = 1.5 * np.exp(-0.8 * t) + 0.4 + sigma * rng.standard_normal(t.size)


def residual(params, rows):
    model = params["amplitude"] * jnp.exp(-params["rate"] * rows["t"]) + params["offset"]
    return (rows["y"] - model) / rows["sigma"]


objective = sf.Objective({"decay": sf.residual_term(residual, {"t": t, "y": y, "sigma": sigma})})
priors = {"amplitude": sf.HalfNormal(3.0), "rate": sf.LogNormal(0.0, 1.0), "offset": sf.Normal(0.0, 1.0)}
start = {"amplitude": 1.0, "rate": 1.0, "offset": 0.0}
problem = sf.Problem(objective, start, priors=priors, units={"rate": "1/s"}, name="decay")

posterior = sf.sample(problem, chains=4, draws=500, warmup=300, seed=1)
print(posterior)

half_life = posterior.predict(lambda params: jnp.log(2) / params["rate"])
low, high = np.quantile(half_life, [0.05, 0.95])
print(f"half-life between {low:.2f} and {high:.2f} s with 90 % probability")

assert posterior.verdict()  # chains agree, enough effective draws, no divergences
assert low < np.log(2) / 0.8 < high
