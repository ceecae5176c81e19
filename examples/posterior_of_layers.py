"""Sample the speeds of two layers from recorded waves, on the compiled wave engine."""

import jax.numpy as jnp
import numpy as np

import shardfit as sf
from shardfit.domains.seismic import Simulation, acquisition, propagate, ricker

sim = Simulation((14, 20), 20.0, dt=0.004, nt=70, v_max=2600.0, f_peak=8.0, widths=6)
wavelet = ricker(8.0, sim.dt, sim.nt)
shots = acquisition(sim, [(2, 10)], [(2, x) for x in range(2, 20, 4)])
shallow = (np.arange(14) < 7)[:, None] & np.ones(20, bool)
noise = 0.02


def waves(params):
    velocity = jnp.where(shallow, params["upper"], params["lower"])
    return propagate(sim, velocity, wavelet, shots)  # (shots, receivers, nt)


truth = {"upper": 1700.0, "lower": 2200.0}
clean = np.asarray(waves(truth), float)
recorded = clean / np.std(clean) + noise * np.random.default_rng(0).standard_normal(clean.shape)


def residual(params, rows):  # one row: all shots are fired for it
    return (rows["traces"] - waves(params) / np.std(clean)) / noise


term = sf.residual_term(residual, {"traces": recorded})
priors = {"upper": sf.Normal(1750.0, 50.0), "lower": sf.Normal(2150.0, 100.0)}
start = {"upper": 1750.0, "lower": 2150.0}
problem = sf.Problem(sf.Objective({"waves": term}), start, priors=priors, units={"upper": "m/s", "lower": "m/s"})

posterior = sf.sample(problem, chains=2, warmup=60, draws=250)
print(posterior)
mean, sd = posterior.mean(), posterior.sd()
assert all(np.abs(mean[name] - true) < 4 * sd[name] for name, true in truth.items())
