"""The side of SWEEP's JAX backend in the seismic suite; runs in an environment of its own."""

from collections.abc import Callable

import numpy as np

from benchmarks.duel import serve
from benchmarks.seismic_scene import LAYER, scene, watched


def prepare(asked: dict) -> tuple[Callable, Callable]:
    """Return what is timed, compiled, and what it says."""
    import jax
    import jax.numpy as jnp
    from sweep.equations import Acoustic
    from sweep.propagator.jax import PropJax
    from sweep.propagator.options import Ckpt, Full

    given = scene(asked)
    solver = PropJax(
        Acoustic(spatial_order=given.order, backend="jax"),
        shape=given.velocity.shape,
        dh=given.dh,
        dt=given.dt,
        source_type=["h1"],
        receiver_type=["h1"],
        abcn=LAYER,
        memory=Full() if asked["kind"] == "forward" else Ckpt(),
    )
    # its positions are (x, z)
    sources = given.sources[:, ::-1]
    receivers = np.broadcast_to(given.receivers[:, ::-1], (len(sources), *given.receivers.shape))
    velocity = jnp.asarray(given.velocity)

    def traces(v):
        found = solver(given.wavelet, sources, receivers, models=[v])[..., 0]
        # it records after a step what we record before the next one
        return jnp.pad(found.swapaxes(1, 2)[..., :-1], ((0, 0), (0, 0), (1, 0)))

    run = traces if asked["kind"] == "forward" else jax.grad(lambda v: jnp.sum(traces(v) ** 2))
    compiled = jax.jit(run)
    return watched(lambda: jax.block_until_ready(compiled(velocity)), asked["folder"] + "/peer.npy")


if __name__ == "__main__":
    serve(prepare)
