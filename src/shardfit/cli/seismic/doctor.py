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
        remedy = "Set CXX to a C++ compiler that works, or unset it." if compiler() else "Install g++ or clang++."
        return Finding("wave kernel", NOTE, f"{error} Waves run in JAX, several times slower.", remedy)
    exact = np.asarray(propagate(sim, velocity, wavelet, shots, engine="jax"))
    apart = float(np.abs(native - exact).max() / np.abs(exact).max())
    if not apart < 1e-5:
        return Finding("wave kernel", BAD, f"differs from JAX by {apart:.0e}", "Use engine='jax', and report this.")
    return Finding("wave kernel", GOOD, f"agrees with JAX to {apart:.0e} ({_origin(sim.half)})")


def _origin(half: int) -> str:
    """Where the kernel of acoustic waves in two dimensions, which was just used, has come from."""
    from shardfit.domains.seismic.build import compiler, library_path
    from shardfit.domains.seismic.prebuilt import find

    ready = find("acoustic", half)
    if ready is not None and ready.read_bytes() == library_path("acoustic", half).read_bytes():
        return "came compiled with the package"
    return f"compiled here by {found[0]}" if (found := compiler()) else "compiled here before; no compiler now"


CHECKS = (wave_kernel,)
