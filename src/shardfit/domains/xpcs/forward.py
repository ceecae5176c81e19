"""From rates to pairs of frames: the frame grid, cumulative integrals, and which pairs are evaluated.

Rates are integrated once along the frame grid; a pair of frames then costs a difference. Pairs come in four layouts
with one interface: all of them, some frames with those that follow, a list of points, or bins that are averaged over.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.tree_util import register_dataclass

FLOOR = 1e-10  # least rate, and least g1
SMOOTH = 1e-12  # makes the absolute difference of two integrals smooth at zero


@register_dataclass
@dataclass(frozen=True)
class Geometry:
    """What a measurement fixes: times t (nt,) s, azimuths phi (n,) °, q () or (n,) 1/Å, gap Å, dt s."""

    t: Any
    phi: Any
    q: Any
    gap: Any
    dt: Any


def moments_of_frames(t: jax.Array) -> jax.Array:
    """Return the frame times at which rates are taken: the first is half a frame, since t^alpha diverges at zero."""
    least = jnp.maximum(0.5 * jnp.abs(t[1] - t[0]), 1e-8)
    return jnp.where(t <= least, least, t)


def integrate(rate: jax.Array) -> jax.Array:
    """Return the cumulative trapezoid (nt,) of a rate (nt,), floored, in units of frames."""
    return cumulate(jnp.where(rate > FLOOR, rate, FLOOR))


def cumulate(rate: jax.Array) -> jax.Array:
    """Return the cumulative trapezoid (nt,) of values (nt,) in units of frames, zero at the first."""
    return jnp.concatenate([jnp.zeros(1, rate.dtype), jnp.cumsum(0.5 * (rate[1:] + rate[:-1]))])


def distance(first: jax.Array, second: jax.Array) -> jax.Array:
    """Return |second − first|, smooth where they are equal."""
    return jnp.sqrt((second - first) ** 2 + SMOOTH)


class Grid(NamedTuple):
    """All pairs of frames: (n, nt, nt)."""

    def ends(self, on_frames: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return a quantity of frames (nt,) at both frames of every pair."""
        return on_frames[:, None], on_frames[None, :]

    def per_angle(self, values: jax.Array) -> jax.Array:
        """Return one value per angle in a shape that goes with pairs."""
        return values[:, None, None]


class Ahead(NamedTuple):
    """Pairs of each of some frames (r,) with the nt/2 frames after it, the last followed by the first: (n, r · nt/2).

    Taken from all frames these are the pairs of the upper triangle, each once (of an even number, half a turn comes
    twice). A frame's partners are contiguous, so nothing is gathered, and every frame has pairs of all lags.
    """

    frames: Any

    def ends(self, on_frames: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return a quantity of frames (nt,) at both frames of every pair."""
        reach = on_frames.shape[0] // 2
        twice = jnp.concatenate([on_frames, on_frames])
        window = jax.vmap(lambda frame: jax.lax.dynamic_slice(twice, (frame,), (reach + 1,)))(self.frames)
        return jnp.broadcast_to(window[:, :1], (len(window), reach)).reshape(-1), window[:, 1:].reshape(-1)

    def per_angle(self, values: jax.Array) -> jax.Array:
        """Return one value per angle in a shape that goes with pairs."""
        return values[:, None]


class Points(NamedTuple):
    """Any points: frames i (m,), j (m,) and angles k (m,); k None: all angles at every pair, (m, n)."""

    i: jax.Array
    j: jax.Array
    k: jax.Array | None = None

    def ends(self, on_frames: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return a quantity of frames (nt,) at both frames of every pair."""
        first, second = on_frames[self.i], on_frames[self.j]
        return (first, second) if self.k is not None else (first[:, None], second[:, None])

    def per_angle(self, values: jax.Array) -> jax.Array:
        """Return one value per angle in a shape that goes with pairs."""
        return values[self.k] if self.k is not None else values


class Bins(NamedTuple):
    """Bins of pairs: frames first (m, s) and second (m, s) of s pairs in each of m bins, at all angles: (n, m, s).

    Frames may be fractions: integrals are straight lines between frames. `averaged` takes the mean over a bin.
    """

    first: jax.Array
    second: jax.Array

    def ends(self, on_frames: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return a quantity of frames (nt,) at both ends of every pair."""

        def at(frame):
            before = jnp.clip(jnp.floor(frame).astype(int), 0, on_frames.shape[0] - 2)
            share = frame - before
            return (1 - share) * on_frames[before] + share * on_frames[before + 1]

        return at(self.first), at(self.second)

    def per_angle(self, values: jax.Array) -> jax.Array:
        """Return one value per angle in a shape that goes with pairs."""
        return values[:, None, None]


def averaged(f: jax.Array, pairs: Any) -> jax.Array:
    """Return a model's values of pairs as the data have them: means over bins, else as they are."""
    return jnp.mean(f, axis=-1) if isinstance(pairs, Bins) else f
