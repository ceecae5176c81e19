"""SEG-Y: write shot gathers, read them back with their positions, and see that a wrong model does not explain them."""

import jax.numpy as jnp
import numpy as np

from shardfit.domains.seismic import Simulation, acquisition, propagate, ricker
from shardfit.domains.seismic.files import load_gathers, save_gathers
from shardfit.domains.seismic.gathers import Gathers
from shardfit.domains.seismic.models import lens

model = lens((60, 120), 10.0, background=2000.0, change=500.0).astype(np.float32)
sim = Simulation(model.shape, 10.0, dt=0.0015, nt=400, v_max=2600.0, f_peak=15.0)
wavelet = ricker(15.0, sim.dt, sim.nt)
sources = np.array([[2, 20], [2, 60], [2, 100]])  # (z, x) in cells; files keep metres
receivers = np.broadcast_to([[55, x] for x in range(0, 120, 4)], (3, 30, 2))
traces = np.asarray(propagate(sim, jnp.asarray(model), wavelet, acquisition(sim, sources, receivers)))
save_gathers("line.sgy", Gathers(traces, sim.dt, sources * 10.0, receivers * 10.0))

found = load_gathers("line.sgy")  # grouped by field record, positions scaled by the headers' scalars
shots = acquisition(sim, *found.cells(sim.dh))


def misfit(velocity):
    modelled = propagate(sim, jnp.asarray(velocity, jnp.float32), wavelet, shots)
    return float(np.mean((np.asarray(modelled) - found.traces) ** 2) / np.mean(found.traces**2))


right, wrong = misfit(model), misfit(np.full(sim.shape, 2000.0))
print(f"{found.traces.shape} traces, dt {found.dt} s; misfit {right:.2g}, without the lens {wrong:.2g}")
assert found.dt == sim.dt
assert right < 1e-9
assert wrong > 0.05
