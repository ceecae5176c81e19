"""A loss of summed statistics: match a histogram on a logarithmic scale, where the loss is not a sum over rows.

Every halo is spread over bins of galaxy mass; only the totals of the bins are compared. Between devices travel 12 bin
totals and two derivatives, however many halos there are.
"""

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr

import shardfit as sf

rng = np.random.default_rng(2)
halo_mass = 11.0 + rng.exponential(0.5, 20_000)  # log10 of solar masses
edges = np.linspace(9.0, 12.0, 13)


def bin_membership(params, rows, edges, observed):
    mean = rows["mass"][:, None] + params["ratio"]
    return jnp.diff(ndtr((edges - mean) / params["scatter"]), axis=1)  # (n, 12)


def misfit(counts, edges, observed):
    return jnp.mean((jnp.log10(counts) - jnp.log10(observed)) ** 2)


galaxy_mass = halo_mass - 2.0 + 0.3 * rng.standard_normal(halo_mass.size)
observed = np.histogram(galaxy_mass, edges)[0].astype(float)
term = sf.statistic_term(bin_membership, {"mass": halo_mass}, edges, observed, loss=misfit, chunk=4096)
problem = sf.Problem(
    sf.Objective({"mass function": term}),
    {"ratio": -1.5, "scatter": 0.6},
    transforms={"scatter": "log"},
    units={"ratio": "dex", "scatter": "dex"},
    name="stellar mass function",
)

result = sf.fit(problem, "lbfgsb")
print(result)
assert result.success
assert abs(result.params["ratio"] + 2.0) < 0.02
assert abs(result.params["scatter"] - 0.3) < 0.02
