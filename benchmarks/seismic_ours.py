"""Our side of the seismic suite."""

from collections.abc import Callable

from benchmarks.duel import serve
from benchmarks.seismic_scene import LAYER, Scene, scene, watched


def prepare(asked: dict) -> tuple[Callable, Callable]:
    """Return what is timed, compiled, and what it says."""
    import jax
    import jax.numpy as jnp

    given = scene(asked)
    traces = modelling(given, asked["engine"], asked["scaling"])
    velocity = jnp.asarray(given.velocity)
    run = traces if asked["kind"] == "forward" else jax.grad(lambda v: jnp.sum(traces(v) ** 2))
    compiled = jax.jit(run)
    return watched(lambda: jax.block_until_ready(compiled(velocity)), asked["folder"] + "/ours.npy")


def modelling(given: Scene, engine: str, scaling: str = "physical") -> Callable:
    """Return velocity → traces (shots, receivers, nt) on one thread."""
    from shardfit.domains.seismic import Native, choose_engine, propagate

    sim, shots = simulation(given, scaling)
    # resolved here, for the first use of a kernel compiles and checks it
    chosen, _ = choose_engine(Native(threads=1) if engine == "native" else engine, sim)
    return lambda velocity: propagate(sim, velocity, given.wavelet, shots, engine=chosen)


def simulation(given: Scene, scaling: str = "physical") -> tuple:
    """Return the simulation and its shots."""
    from shardfit.domains.seismic import Simulation, acquisition

    shape, nt = given.velocity.shape, len(given.wavelet)
    physics = given.dh, given.dt, nt, given.v_max, given.f_peak, given.order
    sim = Simulation(shape, *physics, widths=LAYER, scaling=scaling)
    return sim, acquisition(sim, given.sources, given.receivers)


if __name__ == "__main__":
    serve(prepare)
