"""Our side of the case `marmousi`: the compiled engine and optax's Adam."""

from collections.abc import Callable

from benchmarks.duel import serve
from benchmarks.seismic_marmousi import BOUNDS, EPSILON, RATE, batches, described, mask, start, truth
from benchmarks.seismic_ours import simulation


def prepare(asked: dict) -> tuple[Callable, Callable]:
    """Return the inversion, compiled, and what it says."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    import optax

    from shardfit.domains.seismic import Native, propagate, select

    given = truth(asked)
    sim, shots = simulation(given)

    def traces(velocity, shots):
        return propagate(sim, velocity, given.wavelet, shots, engine=Native(threads=1))

    observed = np.asarray(jax.jit(traces)(jnp.asarray(given.velocity), shots))
    scale, free = float((observed**2).sum()), jnp.asarray(mask(given.velocity))
    adam = optax.adam(RATE, eps=EPSILON)

    def loss(velocity, shots, observed):
        return jnp.sum((traces(velocity, shots) - observed) ** 2) / scale

    @jax.jit
    def step(velocity, state, shots, observed):
        gradient = jax.grad(loss)(velocity, shots, observed) * free
        update, state = adam.update(gradient, state)
        return jnp.clip(optax.apply_updates(velocity, update), *BOUNDS), state

    order, first = batches(asked), jnp.asarray(start(given.velocity))

    def invert():
        velocity, state = first, adam.init(first)
        for chosen in order:
            velocity, state = step(velocity, state, select(shots, chosen), observed[chosen])
        return np.asarray(velocity)

    jax.block_until_ready(step(first, adam.init(first), select(shots, order[0]), observed[order[0]]))
    return described(invert, lambda v: jax.jit(loss)(jnp.asarray(v), shots, observed), given.velocity)


if __name__ == "__main__":
    serve(prepare)
