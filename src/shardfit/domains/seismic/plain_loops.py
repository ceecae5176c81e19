"""Time loops whose steps JAX differentiates by itself: elastic, anisotropic and attenuating waves, shot by shot.

A differentiated step keeps the fields that the factors of its medium multiply; segments of steps are computed anew
where all steps would be too many to keep.
"""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from shardfit.domains.seismic.medium import MediumSimulation
from shardfit.domains.seismic.strategies import Checkpointed, Full, Strategy, as_strategy

CACHE = 1 << 21  # bytes of fields of the shots that share a loop, as for acoustic waves


def segments_of(sim: MediumSimulation, memory: str | Strategy, shots: int, item: int) -> tuple[int, ...]:
    """Return how many segments at each level are computed anew; a step counts as `kept` acoustic ones."""
    strategy, _ = as_strategy(memory, sim, sim.kept * shots, item)
    if memory == "auto" and not isinstance(strategy, Full | Checkpointed):
        strategy, _ = as_strategy("two-level", sim, sim.kept * shots, item)
    match strategy:
        case Full():
            return ()
        case Checkpointed(segments):
            return segments
    raise ValueError(f"{strategy} is not for {sim.waves} waves. Use memory='full', 'segmented', 'two-level' or 'auto'.")


def over_shots(sim: MediumSimulation, one: Callable, rows: Any, item: int) -> jax.Array:
    """Return one(row) of every shot; on a CPU as many share a loop as its cache holds. item: bytes of a number."""
    together = n = len(jax.tree.leaves(rows)[0])
    if jax.default_backend() == "cpu":
        together = max(1, CACHE // (2 * sim.kept * math.prod(sim.padded) * item))
    return lax.map(one, rows, batch_size=min(together, n))


def walk(step: Callable, start: Any, inputs: jax.Array, segments: tuple[int, ...]) -> jax.Array:
    """Scan in segments of segments, each computed anew when differentiated; steps beyond the last have no source."""
    length = math.ceil(len(inputs) / math.prod(segments))
    missing = math.prod(segments) * length - len(inputs)
    blocks = jnp.pad(inputs, ((0, missing), (0, 0))).reshape(*segments, length, -1)

    def go(state, x):
        if x.ndim == inputs.ndim:
            return lax.scan(step, state, x)
        return lax.scan(jax.checkpoint(go, prevent_cse=False), state, x)

    samples = go(start, blocks)[1]
    return samples.reshape(-1, samples.shape[-1])[: len(inputs)]
