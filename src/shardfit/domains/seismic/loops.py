"""Time loops of the JAX engine for one shot: same traces, different ways to go back.

`nested` leaves the derivative to JAX. The others define it: a step is linear in the state, so its transpose needs no
stored field at all, and the derivative with respect to kappa = (v dt)² is the sum over steps of the adjoint field times
the drive L + s. They differ in where the drive comes from.
"""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax

from shardfit.domains.seismic import wave
from shardfit.domains.seismic.memory import Binomial, Checkpointed, Frame, Full, Stored, Strategy
from shardfit.domains.seismic.schedule import walk_back
from shardfit.domains.seismic.simulation import Simulation
from shardfit.domains.seismic.wave import Medium, State


def record(sim: Simulation, strategy: Strategy, medium: Medium, signature: jax.Array) -> jax.Array:
    """Return the traces of one shot (receivers, nt). signature: (sources, nt)."""
    match strategy:
        case Full():
            samples = nested(sim, medium, signature.T, ())
        case Checkpointed(segments):
            samples = nested(sim, medium, signature.T, segments)
        case Stored(dtype):
            samples = _with_adjoint(*_stored(sim, dtype))(medium, signature.T)
        case Frame():
            samples = _with_adjoint(*_framed(sim))(medium, signature.T)
        case Binomial(slots):
            samples = _with_adjoint(*_binomial(sim, slots))(medium, signature.T)
    return samples.T


def nested(sim: Simulation, medium: Medium, inputs: jax.Array, segments: tuple[int, ...]) -> jax.Array:
    """Scan in segments of segments, each computed anew when differentiated."""
    step, start = _parts(sim, inputs)
    steps, parts = len(inputs), math.prod(segments)
    length = math.ceil(steps / parts)
    # steps beyond the last have no source, and their samples are dropped
    padded = jnp.pad(inputs, ((0, parts * length - steps), (0, 0))).reshape(*segments, length, -1)

    def walk(state, x):
        if x.ndim == 2:
            return lax.scan(lambda s, w: step(medium, s, w)[:2], state, x)
        return lax.scan(jax.checkpoint(walk, prevent_cse=False), state, x)

    return walk(start, padded)[1].reshape(parts * length, -1)[:steps]


def _parts(sim: Simulation, inputs: jax.Array) -> tuple[Callable, State]:
    return wave.stepper(sim, inputs.dtype), wave.start(sim, inputs.dtype)


def _with_adjoint(forward: Callable, backward: Callable) -> Callable:
    """Join forward(medium, inputs) → samples, saved and backward(medium, inputs, saved, bar) → derivatives."""

    @jax.custom_vjp
    def run(medium, inputs):
        return forward(medium, inputs)[0]

    def run_forward(medium, inputs):
        samples, saved = forward(medium, inputs)
        return samples, (medium, inputs, saved)

    def run_backward(kept, bar):
        medium, inputs, saved = kept
        kappa_bar, inputs_bar = backward(medium, inputs, saved, bar)
        return medium._replace(kappa=kappa_bar, sources=None, receivers=None), inputs_bar  # positions are data

    run.defvjp(run_forward, run_backward)
    return run


def _pull(sim: Simulation, medium: Medium, drive: jax.Array, bars: tuple, sample_bar: jax.Array) -> tuple:
    """One step back: derivatives with respect to (state, kappa) and sample → those before it, and the input's."""
    state_bar, kappa_bar = bars
    step, like = _parts(sim, sample_bar)
    signature = jax.ShapeDtypeStruct(medium.sources.cells.shape[:1], drive.dtype)
    transposed = jax.linear_transpose(lambda s, w: step(medium, s, w)[:2], like, signature)
    changed = state_bar.u * drive
    if sim.free_surface:
        changed = changed.at[0].set(0)  # row 0 is zero whatever kappa is
    state_bar, input_bar = transposed((state_bar, sample_bar))
    return (state_bar, kappa_bar + changed), input_bar


def _at_rest(sim: Simulation, medium: Medium) -> tuple[State, jax.Array]:
    return wave.start(sim, medium.kappa.dtype), jnp.zeros_like(medium.kappa)


def _stored(sim: Simulation, dtype: str) -> tuple[Callable, Callable]:
    def forward(medium, inputs):
        step, start = _parts(sim, inputs)

        def body(state, w):
            state, sample, drive = step(medium, state, w)
            return state, (sample, drive.astype(dtype))

        return lax.scan(body, start, inputs)[1]

    def backward(medium, inputs, drives, bar):
        def body(bars, x):
            return _pull(sim, medium, x[0].astype(inputs.dtype), bars, x[1])

        (_, kappa_bar), inputs_bar = lax.scan(body, _at_rest(sim, medium), (drives, bar), reverse=True)
        return kappa_bar, inputs_bar

    return forward, backward


def _framed(sim: Simulation) -> tuple[Callable, Callable]:
    top, bottom, left, right = (w + sim.half if w else 0 for w in sim.widths)
    nz, nx = sim.padded
    rows = slice(top, nz - bottom)

    def cut(u):
        return u[:top], u[nz - bottom :], u[rows, :left], u[rows, nx - right :]

    def put(u, frame):
        u = u.at[:top].set(frame[0]).at[nz - bottom :].set(frame[1])
        return u.at[rows, :left].set(frame[2]).at[rows, nx - right :].set(frame[3])

    def forward(medium, inputs):
        step, start = _parts(sim, inputs)

        def body(state, w):
            before = cut(state.previous)
            state, sample, _ = step(medium, state, w)
            return state, (sample, before)

        state, (samples, frames) = lax.scan(body, start, inputs)
        return samples, (frames, state.u, state.previous)

    def backward(medium, inputs, saved, bar):
        def body(carry, x):
            bars, after, u = carry
            frame, w, sample_bar = x
            before = put(wave.plain_step(sim, medium, u, after, w), frame)
            drive = (after - 2 * u + before - wave.raw_source(sim, medium, u, w)) / medium.kappa
            bars, input_bar = _pull(sim, medium, drive, bars, sample_bar)
            return (bars, u, before), input_bar

        frames, last, previous = saved
        begin = (_at_rest(sim, medium), last, previous)
        carry, inputs_bar = lax.scan(body, begin, (frames, inputs, bar), reverse=True)
        return carry[0][1], inputs_bar

    return forward, backward


def _binomial(sim: Simulation, slots: int) -> tuple[Callable, Callable]:
    def forward(medium, inputs):
        return nested(sim, medium, inputs, ()), None

    def backward(medium, inputs, _, bar):
        step, start = _parts(sim, inputs)

        def reverse(state, n, bars):
            drive = step(medium, state, inputs[n])[2]
            bars, inputs_bar = bars
            bars, input_bar = _pull(sim, medium, drive, bars, bar[n])
            return bars, inputs_bar.at[n].set(input_bar)

        begin = (_at_rest(sim, medium), jnp.zeros_like(inputs))
        bars, inputs_bar = walk_back(
            lambda state, n: step(medium, state, inputs[n])[0], reverse, start, begin, steps=len(inputs), slots=slots
        )
        return bars[1], inputs_bar

    return forward, backward
