"""Time loops of the JAX engine for a block of shots: same traces, different ways to go back.

Traces depend on kappa = (v dt)² through kappa (L + s) alone, which is the second difference of the wave in time, so the
derivative with respect to kappa is the sum over steps of the second difference times μ, over kappa² (see wave.py for
μ). The strategies differ in where the second differences come from: kept, computed anew, or rebuilt back in time.
Every one of them can be differentiated forward as well.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from shardfit.domains.seismic import wave
from shardfit.domains.seismic.linear import with_transpose
from shardfit.domains.seismic.schedule import walk_back
from shardfit.domains.seismic.simulation import Simulation
from shardfit.domains.seismic.strategies import BLOCK, Binomial, Checkpointed, Frame, Full, Stored, Strategy
from shardfit.domains.seismic.wave import Medium, State

TURNS = 3  # sets of fields that take turns: as many steps at a time spare copies


def record(sim: Simulation, strategy: Strategy, medium: Medium, signature: jax.Array) -> jax.Array:
    """Return the traces of a block of shots (shots, receivers, nt). signature: (shots, sources, nt)."""
    inputs = jnp.moveaxis(signature, -1, 0)
    match strategy:
        case Full():
            samples = nested(sim, medium, inputs, ())
        case Stored(dtype):
            samples = nested(sim, medium, inputs, (), dtype)
        case Checkpointed(segments):
            samples = nested(sim, medium, inputs, segments)
        case Frame():
            samples = _with_adjoint(sim, *_framed(sim))(medium, inputs)
        case Binomial(slots):
            samples = _with_adjoint(sim, *_binomial(sim, slots))(medium, inputs)
    return jnp.moveaxis(samples, 0, -1)


def nested(
    sim: Simulation, medium: Medium, inputs: jax.Array, segments: tuple[int, ...], keep: Any = None
) -> jax.Array:
    """Walk in segments of segments, each computed anew when differentiated. keep: type of what is kept."""
    blocks, steps = _blocks(inputs, segments), len(inputs)
    segment = _segment(sim, keep or inputs.dtype)

    def walk(state, x):
        if x.ndim == inputs.ndim:
            return segment(medium, state, x)
        return lax.scan(jax.checkpoint(walk, prevent_cse=False), state, x)

    samples = walk(wave.rest(sim, inputs.shape[1], inputs.dtype), blocks)[1]
    return samples.reshape(-1, *samples.shape[-2:])[:steps]


def _blocks(inputs: jax.Array, segments: tuple[int, ...]) -> jax.Array:
    """Return inputs as (*segments, steps, ...); steps beyond the last have no source, and their samples are dropped."""
    length = math.ceil(len(inputs) / math.prod(segments) / TURNS) * TURNS
    if segments:
        segments = (math.ceil(len(inputs) / length / math.prod(segments[1:])), *segments[1:])
    missing = math.prod(segments) * length - len(inputs)
    padded = jnp.pad(inputs, ((0, missing), *((0, 0),) * (inputs.ndim - 1)))
    return padded.reshape(*segments, length, *inputs.shape[1:])


def _segment(sim: Simulation, keep: Any) -> Callable:
    """Return run(medium, state, inputs) → state, samples, whose derivative keeps one field per step."""

    @jax.custom_jvp
    def run(medium, state, inputs):
        return _walk(sim, medium, state, inputs)[:2]

    @run.defjvp
    def rule(primals, tangents):
        medium, state, inputs = primals
        *found, curves = _walk(sim, medium, state, inputs, keep)
        change = (tangents[0].kappa, *tangents[1:])  # positions are data
        push, pull = partial(_push, sim, medium, curves), partial(_pull, sim, medium, curves)
        return tuple(found), with_transpose(push, pull, change)

    return run


def _walk(
    sim: Simulation, medium: Medium, state: State, inputs: jax.Array, keep: Any = None, force: Any = None
) -> tuple:
    """Return state, samples (steps, shots, receivers), second differences. inputs: (steps, shots, sources)."""
    scheme, receivers = wave.forward(sim, inputs.dtype), wave.cells_of(sim, medium.receivers)
    sources, factors = _injection(sim, medium)

    def step(fields, x):
        w, force = x
        sample = jnp.sum(wave.read(fields[0].u, receivers) * medium.receivers.weights, -1)
        values = factors * w[..., None]
        fields = wave.advance(scheme, medium.kappa, fields, sources, values, force)
        after, now, before = fields
        curve = None if keep is None else _curve(sim, after.u, now.u, before.u, sources, values).astype(keep)
        return fields, (sample, curve)

    fields, (samples, curves) = lax.scan(step, wave.unpack(sim, state), (inputs, force), unroll=TURNS)
    return wave.pack(fields), samples, curves


def _injection(sim: Simulation, medium: Medium) -> tuple[tuple, jax.Array]:
    """Return the sources' cells, and what their signature is multiplied by there."""
    cells, weights = wave.cells_of(sim, medium.sources), medium.sources.weights
    return cells, weights * _at(medium, medium.sources) if sim.scaling == "physical" else weights


def _at(medium: Medium, points: Any) -> jax.Array:
    return medium.kappa.reshape(-1)[points.cells]


def _curve(sim: Simulation, after: Any, u: Any, before: Any, sources: tuple, values: jax.Array) -> jax.Array:
    """Return the part of the second difference in time that kappa multiplies."""
    curve = after - 2 * u + before
    return curve if sim.scaling == "physical" else wave.add(curve, sources, -values)


def _push(sim: Simulation, medium: Medium, curves: jax.Array, change: tuple) -> tuple:
    """Changes of (kappa, state, inputs) → those of state and samples."""
    kappa, state, inputs = change
    force = jax.vmap(partial(wave.inside, sim))(curves.astype(inputs.dtype)) * (kappa / medium.kappa)
    return _walk(sim, medium, state, inputs, force=force)[:2]


def _pull(sim: Simulation, medium: Medium, curves: jax.Array, bars: tuple) -> tuple:
    """Derivatives with respect to (state, samples) after a segment → those to (kappa, state, inputs) before it."""
    state, samples = bars
    step = _back(sim, medium, samples.dtype)
    carry, inputs = lax.scan(step, _begin_back(sim, medium, state), (curves, samples), reverse=True, unroll=TURNS)
    kappa, state = _end_back(sim, medium, carry)
    return kappa, state, inputs


def _back(sim: Simulation, medium: Medium, dtype: Any) -> Callable:
    """Return one step back: (fields of μ, sum of μ times curve), (curve, derivative of samples) → both, input's."""
    scheme, receivers = wave.transposed(sim, dtype), wave.cells_of(sim, medium.receivers)
    sources, factors = _injection(sim, medium)
    taken = factors / _at(medium, medium.sources)
    given = medium.receivers.weights * _at(medium, medium.receivers)

    def step(carry, x):
        fields, total = carry
        curve, sample = x
        mu = fields[0].u
        input_ = jnp.sum(wave.read(mu, sources) * taken, -1)
        total = total + mu * curve.astype(dtype)
        return (wave.advance(scheme, medium.kappa, fields, receivers, given * sample[..., None]), total), input_

    return step


def _begin_back(sim: Simulation, medium: Medium, bars: State) -> tuple:
    """Return what `_back` carries, from derivatives with respect to a state."""
    kappa = jnp.pad(medium.kappa, sim.half)
    fields = wave.unpack(sim, wave.reflected(sim, bars._replace(u=kappa * bars.u, previous=-kappa * bars.previous)))
    return fields, jnp.zeros_like(bars.u)


def _end_back(sim: Simulation, medium: Medium, carry: tuple) -> tuple[jax.Array, State]:
    """Return derivatives with respect to kappa and the state."""
    fields, total = carry
    state, inverse = wave.pack(fields), jnp.pad(1 / medium.kappa, sim.half)
    bars = state._replace(u=inverse * state.u, previous=-inverse * state.previous)
    return wave.inside(sim, total).sum(0) / medium.kappa**2, bars


def _with_adjoint(sim: Simulation, forward: Callable, backward: Callable) -> Callable:
    """Join forward(medium, inputs) → samples, saved and backward(medium, inputs, saved, bar) → derivatives."""

    @jax.custom_jvp
    def run(medium, inputs):
        return nested(sim, medium, inputs, ())

    @run.defjvp
    def rule(primals, tangents):
        medium, inputs = primals
        samples, saved = forward(medium, inputs)

        def push(change):
            plain = lambda kappa, inputs: nested(sim, medium._replace(kappa=kappa), inputs, (8,))  # noqa: E731
            return jax.jvp(plain, (medium.kappa, inputs), change)[1]

        return samples, with_transpose(push, partial(backward, medium, inputs, saved), (tangents[0].kappa, tangents[1]))

    return run


def _framed(sim: Simulation) -> tuple[Callable, Callable]:
    slabs = wave.frame(sim)

    def forward(medium, inputs):
        scheme, receivers = wave.forward(sim, inputs.dtype), wave.cells_of(sim, medium.receivers)
        sources, factors = _injection(sim, medium)

        def step(fields, w):
            kept = [fields[1].u[slab] for slab in slabs]
            sample = jnp.sum(wave.read(fields[0].u, receivers) * medium.receivers.weights, -1)
            return wave.advance(scheme, medium.kappa, fields, sources, factors * w[..., None]), (sample, kept)

        start = wave.unpack(sim, wave.rest(sim, inputs.shape[1], inputs.dtype))
        fields, (samples, frames) = lax.scan(step, start, inputs, unroll=TURNS)
        return samples, (frames, fields[0].u, fields[1].u)

    def backward(medium, inputs, saved, bar):
        plain = wave.forward(sim, inputs.dtype)._replace(edges=())
        sources, factors = _injection(sim, medium)
        back = _back(sim, medium, inputs.dtype)

        def step(carry, x):
            frame, w, sample = x
            carry, (now, after, spare) = carry
            values = factors * w[..., None]
            before, *_ = wave.advance(plain, medium.kappa, (now, after, spare), sources, values)
            u = before.u
            for slab, kept in zip(slabs, frame, strict=True):
                u = u.at[slab].set(kept)
            carry, input_ = back(carry, (_curve(sim, after.u, now.u, u, sources, values), sample))
            return (carry, (before._replace(u=u), now, after)), input_

        frames, last, previous = saved
        begin = _begin_back(sim, medium, wave.rest(sim, inputs.shape[1], inputs.dtype))
        wave_fields = wave.unpack(sim, State(previous, last, ()))
        carry, inputs_bar = lax.scan(step, (begin, wave_fields), (frames, inputs, bar), reverse=True)
        return _end_back(sim, medium, carry[0])[0], inputs_bar

    return forward, backward


def _binomial(sim: Simulation, slots: int) -> tuple[Callable, Callable]:
    def forward(medium, inputs):
        return nested(sim, medium, inputs, ()), None

    def backward(medium, inputs, _, bar):
        count = math.ceil(len(inputs) / BLOCK)
        blocks, bars = (_blocks(x, (count,)) for x in (inputs, bar))
        start = wave.rest(sim, inputs.shape[1], inputs.dtype)

        def reverse(state, n, carry):
            state_bar, kappa_bar, inputs_bar = carry
            curves = _walk(sim, medium, state, blocks[n], inputs.dtype)[2]
            more, state_bar, input_bar = _pull(sim, medium, curves, (state_bar, bars[n]))
            return state_bar, kappa_bar + more, inputs_bar.at[n].set(input_bar)

        begin = (start, jnp.zeros_like(medium.kappa), jnp.zeros_like(blocks))
        go = lambda state, n: _walk(sim, medium, state, blocks[n])[0]  # noqa: E731
        _, kappa_bar, inputs_bar = walk_back(go, reverse, start, begin, steps=len(blocks), slots=slots)
        return kappa_bar, inputs_bar.reshape(-1, *inputs.shape[1:])[: len(inputs)]

    return forward, backward
