"""Waveform inversion: simulate shots in a faulted section, then find the section from a smooth start."""

import jax.numpy as jnp
import numpy as np

from shardfit.domains.seismic import (
    Recording,
    Simulation,
    acquisition,
    model_error,
    propagate,
    ricker,
    structural_similarity,
)
from shardfit.domains.seismic.conditioning import Conditioning
from shardfit.domains.seismic.models import faulted_section, smoothed, water_cells
from shardfit.domains.seismic.recipes import InversionOptions, invert

dh = 30.0  # metres
truth = faulted_section((48, 100), dh)
start = smoothed(truth, 200.0, dh, water=water_cells(truth))

sim = Simulation(truth.shape, dh, dt=0.003, nt=550, v_max=4700.0, f_peak=5.0)
wavelet = ricker(5.0, sim.dt, sim.nt)
sources = [(1, x) for x in range(4, 100, 8)]  # (z, x) in cells
receivers = [(2, x) for x in range(100)]
shots = acquisition(sim, sources, receivers)
observed = np.asarray(propagate(sim, jnp.asarray(truth, jnp.float32), wavelet, shots))  # (shots, receivers, nt)

options = InversionOptions(epochs=30, batchsize=6, conditioning=Conditioning(rows=4, smoothing=1.0))
found = invert(sim, start, Recording(shots, wavelet, observed), options, truth=truth)

before, after = (model_error(model, truth) for model in (start, found.velocity))
losses = found.metrics["loss"]
print(f"model error {before:.0f} -> {after:.0f} m/s, loss {losses[0]:.3g} -> {losses[-1]:.3g}")
assert after < 0.8 * before
assert structural_similarity(found.velocity, truth) > structural_similarity(start, truth) + 0.1
