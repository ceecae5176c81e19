"""Time loops whose steps JAX differentiates by itself: elastic, anisotropic and attenuating waves, shot by shot.

A differentiated step keeps the fields that the factors of its medium multiply; segments of steps are computed anew
where all steps would be too many to keep. Second differences and absorbing layers of acoustic waves come with their
transpose, which JAX would find too, but make slow.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from shardfit.domains.seismic import wave
from shardfit.domains.seismic.geometry import Points, Shots
from shardfit.domains.seismic.linear import with_transpose
from shardfit.domains.seismic.medium import MediumSimulation
from shardfit.domains.seismic.simulation import Simulation
from shardfit.domains.seismic.strategies import Checkpointed, Full, Strategy, as_strategy

CACHE = 1 << 21  # bytes of fields of the shots that share a loop, as for acoustic waves


def over_shots(
    sim: MediumSimulation, record: Callable, shots: Shots, signature: jax.Array, memory: str | Strategy
) -> jax.Array:
    """Return record(segments, shot, signature) of every shot; on a CPU as many share a loop as its cache holds."""
    n, item = len(signature), signature.dtype.itemsize
    segments = _segments(sim, memory, n, item)
    together = n
    if jax.default_backend() == "cpu":
        together = max(1, CACHE // (2 * sim.kept * math.prod(sim.padded) * item))
    return lax.map(lambda row: record(segments, *row), (shots, signature), batch_size=min(together, n))


def _segments(sim: MediumSimulation, memory: str | Strategy, shots: int, item: int) -> tuple[int, ...]:
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


def second_differences(sim: Simulation, dtype: Any) -> Callable:
    """Return apply(fields, layers) → the parts of L along the axes, and the layers one step on, for one shot.

    fields: one for every axis, on the padded grid; row 0 is zero under a free surface.
    """

    def run(scheme, x):
        # made anew here: what a trace makes outside of the rule below may not be used in it
        found = wave.along_axes(scheme(sim, dtype), *jax.tree.map(lambda leaf: leaf[None], x))
        return jax.tree.map(lambda leaf: leaf[0], found)

    ahead, back = (partial(run, scheme) for scheme in (wave.forward, wave.transposed))

    @jax.custom_jvp
    def linear(x):
        return ahead(x)

    @linear.defjvp
    def rule(primals, tangents):
        return ahead(*primals), with_transpose(ahead, back, *tangents)

    return lambda fields, layers: linear((list(fields), layers))


def read(u: jax.Array, points: Points) -> jax.Array:
    """Return a field at points, (points,)."""
    return jnp.sum(u.reshape(-1)[points.cells] * points.weights, -1)


def add(u: jax.Array, points: Points, values: jax.Array) -> jax.Array:
    """Return a field with values (points, 1), or one for each of their cells, added at points."""
    return u.reshape(-1).at[points.cells].add(points.weights * values).reshape(u.shape)


def surface(sim: Simulation, u: jax.Array) -> jax.Array:
    """Return a field that fulfils the condition at a free surface, if there is one."""
    return u.at[0].set(0.0) if sim.free_surface else u


def layers_at_rest(sim: Simulation, dtype: Any) -> tuple:
    """Return the memory of the absorbing layers of one shot."""
    return jax.tree.map(lambda leaf: leaf[0], wave.rest(sim, 1, dtype).layers)
