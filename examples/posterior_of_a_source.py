"""Sample flux, size and place of a Gaussian source from simulated visibilities: error bars of a model fit."""

import jax.numpy as jnp
import numpy as np

import shardfit as sf
from shardfit.domains import vlbi

truth = {"flux": 0.8, "fwhm": 40.0, "east": 6.0, "north": -9.0}  # Jy, µas
place = {"x_rad": truth["east"] * vlbi.UAS, "y_rad": truth["north"] * vlbi.UAS}
source = vlbi.gaussian(vlbi.blank(256, 300 * vlbi.UAS), truth["flux"], truth["fwhm"] * vlbi.UAS, **place)
seen = vlbi.simulate(source, vlbi.EHT2017, vlbi.Night(cadence_s=3600), seed=2)
rows = {"u": seen.u * vlbi.UAS, "v": seen.v * vlbi.UAS, "vis": seen.vis["I"], "sigma": seen.sigma["I"]}


def residual(params, rows):
    shape = jnp.exp(-((jnp.pi * params["fwhm"]) ** 2) * (rows["u"] ** 2 + rows["v"] ** 2) / (4 * jnp.log(2)))
    phase = 2 * jnp.pi * (rows["u"] * params["east"] + rows["v"] * params["north"])
    return (rows["vis"] - params["flux"] * shape * jnp.exp(1j * phase)) / rows["sigma"]


priors = {
    "flux": sf.LogNormal(0.0, 1.0),
    "fwhm": sf.Uniform(1.0, 200.0),
    "east": sf.Normal(0.0, 30.0),
    "north": sf.Normal(0.0, 30.0),
}
start = {"flux": 1.0, "fwhm": 30.0, "east": 0.0, "north": 0.0}
units = {"flux": "Jy", "fwhm": "µas", "east": "µas", "north": "µas"}
problem = sf.Problem(sf.Objective({"vis": sf.residual_term(residual, rows)}), start, priors=priors, units=units)

posterior = sf.sample(problem, chains=2, draws=400, warmup=200)
print(posterior)
mean, sd = posterior.mean(), posterior.sd()
assert all(np.abs(mean[name] - true) < 4 * sd[name] for name, true in truth.items())
