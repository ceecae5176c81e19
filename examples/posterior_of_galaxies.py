"""Sample a population model: halos give expected counts, and counted galaxies a Poisson likelihood of the totals.

The likelihood is no sum over halos but a function of their summed histogram, which a posterior of all rows allows.
"""

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr

import shardfit as sf

rng = np.random.default_rng(5)
log_mass = 11.0 + rng.exponential(0.4, 1000)  # log10 of halo masses
edges = np.linspace(9.0, 11.0, 9)  # log10 of stellar masses


def membership(params, halos, counted):
    """Probability of every halo's galaxy to lie in each bin."""
    mean = halos["log_mass"] + params["efficiency"]
    return jnp.diff(ndtr((jnp.asarray(edges) - mean[:, None]) / params["scatter"]), axis=1)


def poisson(expected, counted):
    return jnp.sum(expected - counted * jnp.log(expected))


truth = {"efficiency": -1.8, "scatter": 0.25}
counted = rng.poisson(np.asarray(membership(truth, {"log_mass": log_mass}, None).sum(0))).astype(float)
term = sf.statistic_term(membership, {"log_mass": log_mass}, counted, loss=poisson)
priors = {"efficiency": sf.Normal(-2.0, 0.5), "scatter": sf.LogNormal(-1.0, 0.5)}
problem = sf.Problem(sf.Objective({"galaxies": term}), {"efficiency": -2.0, "scatter": 0.4}, priors=priors)

posterior = sf.sample(problem, chains=2, draws=300, warmup=150)
print(posterior)
for name, true in truth.items():
    assert abs(posterior.mean()[name] - true) < 4 * posterior.sd()[name]
