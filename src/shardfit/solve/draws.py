"""Two uniform numbers for every particle and axis, which depend on seed, step and place alone.

Threefry-2x32 with 20 rounds (Salmon et al. 2011), the generator behind jax.random, written out: as one fused kernel it
takes a tenth of the time of the library's loop over rounds, which would otherwise be most of a swarm's step.
"""

import jax
import jax.numpy as jnp

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = 0x1BD11BDA


def threefry(key: jax.Array, high: jax.Array, low: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return two random words (uint32) of the counter (high, low) under a raw key (2,)."""
    words = (key[0], key[1], key[0] ^ key[1] ^ jnp.uint32(PARITY))
    high, low = high + words[0], low + words[1]
    for group in range(5):
        for turn in ROTATIONS[group % 2]:
            high = high + low
            low = (low << turn | low >> 32 - turn) ^ high
        high = high + words[(group + 1) % 3]
        low = low + words[(group + 2) % 3] + jnp.uint32(group + 1)
    return high, low


def uniform_pairs(key: jax.Array, step: jax.Array, shape: tuple[int, int], dtype) -> tuple[jax.Array, jax.Array]:
    """Return two arrays of a shape, uniform in [0, 1), for a raw key (2,) and a step."""
    place = jnp.arange(shape[0] * shape[1], dtype=jnp.uint32).reshape(shape)
    words = threefry(key, place, jnp.broadcast_to(step.astype(jnp.uint32), shape))
    # as many bits as the type holds exactly: rounding up would give 1
    bits = 32 if jnp.finfo(dtype).nmant >= 32 else jnp.finfo(dtype).nmant + 1
    first, second = ((word >> 32 - bits).astype(dtype) / 2.0**bits for word in words)
    return first, second
