"""Elastic inversion: a soft lens under a free surface, seen by vertical hammers and geophones, in vp and vs."""

import jax.numpy as jnp
import numpy as np

from shardfit.domains.seismic import ElasticSimulation, Recording, acquisition, model_error, propagate, ricker
from shardfit.domains.seismic.conditioning import Conditioning
from shardfit.domains.seismic.models import lens
from shardfit.domains.seismic.recipes import InversionOptions, invert

dh, shape = 5.0, (24, 48)  # metres, cells
vp = lens(shape, dh, background=1200.0, change=-250.0, radius=30.0)
truth = {"vp": vp, "vs": vp / 2, "rho": np.full(shape, 1800.0)}
start = {"vp": np.full(shape, 1200.0), "vs": np.full(shape, 600.0), "rho": truth["rho"]}

kinds = {"source": "force_z", "receiver": "velocity_z"}
sim = ElasticSimulation(shape, dh, dt=0.002, nt=250, v_max=1400.0, f_peak=12.0, free_surface=True, **kinds)
wavelet = ricker(sim.f_peak, sim.dt, sim.nt)
shots = acquisition(sim, [(1, x) for x in range(4, 48, 8)], [(0, x) for x in range(0, 48, 2)])  # (z, x) in cells
observed = propagate(sim, {name: jnp.asarray(x, jnp.float32) for name, x in truth.items()}, wavelet, shots)

conditioning = Conditioning(near=3.0, smoothing=1.5)
options = InversionOptions(solver="plbfgs", epochs=12, batchsize=None, conditioning=conditioning)
found = invert(sim, start, Recording(shots, wavelet, np.asarray(observed)), options, truth=truth)

losses = found.metrics["loss"]
errors = {name: [model_error(m[name], truth[name]) for m in (start, found.medium)] for name in ("vp", "vs")}
print(f"loss {losses[0]:.3g} -> {losses[-1]:.3g};", *(f"{n} {a:.1f} -> {b:.1f} m/s" for n, (a, b) in errors.items()))
assert losses[-1] < 0.1 * losses[0]
assert errors["vs"][1] < 0.8 * errors["vs"][0]
