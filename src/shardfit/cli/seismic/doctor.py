"""What waves need beside the core: the compiled kernel."""

import numpy as np

from shardfit.cli.doctor.finding import BAD, GOOD, NOTE, Finding


def wave_kernel() -> Finding:
    """The compiled engine against the one in JAX, on a small section."""
    from shardfit.domains.seismic import Simulation, acquisition, propagate, ricker
    from shardfit.domains.seismic.build import BuildError, compiler

    sim = Simulation(shape=(24, 30), dh=10.0, dt=1e-3, nt=80, widths=8, order=4, v_max=1600.0, f_peak=25.0)
    shots = acquisition(sim, [(4, 8)], [(4, 20), (15, 12)])
    wavelet = ricker(25.0, sim.dt, sim.nt)
    velocity = np.full(sim.shape, 1500.0, np.float32)
    try:
        native = np.asarray(propagate(sim, velocity, wavelet, shots, engine="native"))
    except BuildError as error:
        remedy = "Install g++ or clang++; until then waves run in JAX, several times slower."
        return Finding("wave kernel", NOTE, str(error), remedy)
    exact = np.asarray(propagate(sim, velocity, wavelet, shots, engine="jax"))
    apart = float(np.abs(native - exact).max() / np.abs(exact).max())
    name = (compiler() or ("no compiler, kept from before",))[0]
    if not apart < 1e-5:
        return Finding("wave kernel", BAD, f"differs from JAX by {apart:.0e}", "Use engine='jax', and report this.")
    return Finding("wave kernel", GOOD, f"agrees with JAX to {apart:.0e} ({name})")


CHECKS = (wave_kernel,)
