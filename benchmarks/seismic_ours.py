"""Our side of the seismic suite."""

from collections.abc import Callable

from benchmarks.duel import serve
from benchmarks.seismic_scene import LAYER, Scene, scene, solid, watched


def prepare(asked: dict) -> tuple[Callable, Callable]:
    """Return what is timed, compiled, and what it says."""
    import jax
    import jax.numpy as jnp

    given, waves = scene(asked), asked.get("waves", "acoustic")
    traces = modelling(given, asked["engine"], asked["scaling"], waves)
    model = jax.tree.map(jnp.asarray, solid(given.velocity) if waves == "elastic" else given.velocity)
    run = traces if asked["kind"] == "forward" else jax.grad(lambda m: jnp.sum(traces(m) ** 2))

    @jax.jit
    def compiled(model):
        found = run(model)
        return jnp.stack([found[name] for name in ("vp", "vs", "rho")]) if isinstance(found, dict) else found

    return watched(lambda: jax.block_until_ready(compiled(model)), asked["folder"] + "/ours.npy")


def modelling(given: Scene, engine: str, scaling: str = "physical", waves: str = "acoustic") -> Callable:
    """Return velocity, or elastic medium, → traces (shots, receivers, nt) on one thread."""
    from shardfit.domains.seismic import Native, choose_engine, propagate

    sim, shots = simulation(given, scaling, waves)
    # resolved here, for the first use of a kernel compiles and checks it
    chosen, _ = choose_engine(Native(threads=1) if engine == "native" else engine, sim)
    return lambda model: propagate(sim, model, given.wavelet, shots, engine=chosen)


def simulation(given: Scene, scaling: str = "physical", waves: str = "acoustic") -> tuple:
    """Return the simulation and its shots."""
    from shardfit.domains.seismic import ElasticSimulation, Simulation, acquisition

    shape, nt = given.velocity.shape, len(given.wavelet)
    physics = given.dh, given.dt, nt, given.v_max, given.f_peak, given.order
    sim = {"acoustic": Simulation, "elastic": ElasticSimulation}[waves](shape, *physics, widths=LAYER, scaling=scaling)
    return sim, acquisition(sim, given.sources, given.receivers)


if __name__ == "__main__":
    serve(prepare)
