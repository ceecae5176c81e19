"""Find the deepest of many minima: a swarm picks the valley, gradients go to its bottom."""

import jax.numpy as jnp
import numpy as np

import shardfit as sf

times = np.linspace(0, 10, 200)
signal = 1.3 * np.sin(2.7 * times + 0.4) + 0.1 * np.random.default_rng(0).standard_normal(200)


def residual(params, rows):
    model = params["height"] * jnp.sin(params["frequency"] * rows["t"] + params["phase"])
    return (rows["y"] - model) / 0.1


problem = sf.Problem(
    sf.Objective({"signal": sf.residual_term(residual, {"t": times, "y": signal})}),
    {"height": 1.0, "frequency": 6.0, "phase": 0.0},
    bounds={"height": (0.1, 5.0), "frequency": (0.1, 10.0), "phase": (-np.pi, np.pi)},
    name="a sine among many",
)

nearest = sf.fit(problem)  # from x0, a gradient leads to the nearest minimum
swarm = sf.fit(problem, "swarm", polish="lm")
print(nearest, swarm, sep="\n\n")

assert nearest.value > 10 * swarm.value
assert swarm.success
assert swarm.value < 0.65 * len(times)  # half a unit per residual is the noise
assert abs(swarm.params["frequency"] - 2.7) < 0.01
