"""Preconditioned L-BFGS for velocity models, on all shots or on mini-batches: held cells, bounds, an inverse Hessian.

Two-loop recursions begin with the operator P of conditioned.py.

A mini-batch is evaluated a few times. All evaluations but its first tell whether the step before lowered the misfit of
its shots, and how their gradient changed: pairs of one step and one change of the same function. The step after its
last is checked by nobody and ends where the next batch begins, so that there are as many steps as evaluations; no cell
may change by more than `limit` in a step.
"""

from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from shardfit.domains.seismic.recipes.conditioned import SHORTEST, Conditioned, clipped

POSITIVE = 1e-6  # cosine of step and change of the gradient, above which the pair is kept: float32 has seven digits


class Pairs(NamedTuple):
    """Steps (m, n), changes of the gradient (m, n), newest last, and how many there are."""

    steps: jax.Array
    changes: jax.Array
    count: jax.Array


class State(NamedTuple):
    """The last point that was accepted, with value and gradient of the present rows, and the point to evaluate next."""

    x: jax.Array
    value: jax.Array
    gradient: jax.Array
    status: jax.Array
    steps: jax.Array
    ahead: jax.Array
    length: jax.Array  # of the step to `ahead`, 1 before it was shortened
    seen: jax.Array  # evaluations of the present rows
    unit: jax.Array  # largest component of the first gradient: squares of small ones vanish in float32
    pairs: Pairs
    scale: jax.Array  # (n,) D above
    lower: Any  # (n,), or None without bounds
    upper: Any


@dataclass(frozen=True)
class PreconditionedLBFGS(Conditioned):
    """L-BFGS with bounds and a fixed preconditioner.

    Attributes
    ----------
    first
        root mean square of the first step, in the units of the model.
    memory
        pairs that are kept.
    repeats
        how often a mini-batch is evaluated.

    """

    first: float = field(default=10.0, kw_only=True)
    memory: int = field(default=20, kw_only=True)
    repeats: int = field(default=3, kw_only=True)
    name: ClassVar[str] = "plbfgs"

    def init(self, z0, lower, upper):
        """Return the state before the first evaluation."""
        nothing, one = jnp.zeros((), jnp.int32), jnp.ones((), z0.dtype)
        none = jnp.zeros((self.memory, z0.size), z0.dtype)
        return State(
            x=z0,
            value=jnp.full((), jnp.inf, z0.dtype),
            gradient=jnp.zeros_like(z0),
            status=nothing,
            steps=nothing,
            ahead=z0,
            length=one,
            seen=nothing,
            unit=jnp.zeros((), z0.dtype),
            pairs=Pairs(none, none, nothing),
            scale=jnp.ones_like(z0),
            lower=lower,
            upper=upper,
        )

    def step(self, evaluate, state):
        """Evaluate, accept or shorten, and aim anew."""
        value, gradient = evaluate(state.ahead)
        said = self.judge(state, value, gradient, state.seen == 0)
        pairs = _learn(state.pairs, said.taken, said.change, ~said.fresh & said.enough)
        # what was learnt elsewhere misleads here
        lost = ~said.moves & (said.length < SHORTEST)
        stalled = lost & (pairs.count == 0)
        pairs = pairs._replace(count=jnp.where(lost, 0, pairs.count))
        aimed = clipped(state, said.x + self._direction(state, pairs, said.slope, said.free))
        retried = state.x + (said.length / state.length) * said.taken
        state = state._replace(
            ahead=jnp.where(said.moves | lost, aimed, retried),
            seen=(state.seen + 1) % self.repeats if self.batch else jnp.ones_like(state.seen),
            pairs=pairs,
        )
        said = said._replace(length=jnp.where(lost, 1.0, said.length).astype(said.x.dtype))
        return self.accepted(state, value, gradient, said, stalled)

    def _direction(self, state: State, pairs: Pairs, gradient: jax.Array, free: jax.Array) -> jax.Array:
        """Return minus the inverse Hessian times a gradient, among the cells that are free, within the limit."""
        steps, changes = (jnp.where(free, vectors, 0) for vectors in pairs[:2])
        curvature = jnp.sum(steps * changes, 1)
        used = (jnp.arange(self.memory) >= self.memory - pairs.count) & (curvature > 0)
        inverse = jnp.where(used, 1 / jnp.where(used, curvature, 1), 0)

        def back(left, pair):
            step, change, inverse = pair
            share = inverse * jnp.vdot(step, left)
            return left - share * change, share

        def forth(found, pair):
            step, change, inverse, share = pair
            return found + step * (share - inverse * jnp.vdot(change, found)), None

        among = (steps, changes, inverse)
        left, shares = jax.lax.scan(back, jnp.where(free, gradient, 0), among, reverse=True)
        newest = self.memory - 1 - jnp.argmax(used[::-1])
        change = changes[newest]
        reach = jnp.vdot(change, self.precondition(state, change, free))
        factor = jnp.where(used.any(), curvature[newest] / jnp.where(reach > 0, reach, 1), 1)
        found = jax.lax.scan(forth, factor * self.precondition(state, left, free), (*among, shares))[0]
        size = jnp.sqrt(jnp.sum(found**2) / jnp.maximum(jnp.sum(free), 1))
        found = jnp.where(used.any(), found, found * (self.first / jnp.where(size > 0, size, 1)))
        return jnp.clip(-found, -self.limit, self.limit)


def _learn(pairs: Pairs, step: jax.Array, change: jax.Array, wanted: Any) -> Pairs:
    """Add a pair if it is wanted and curvature is positive along it."""
    size = jnp.linalg.norm(step) * jnp.linalg.norm(change)
    good = wanted & (jnp.vdot(step, change) > POSITIVE * size)
    steps, changes = (
        jnp.where(good, jnp.concatenate([held[1:], new[None]]), held)
        for held, new in zip(pairs[:2], (step, change), strict=True)
    )
    return Pairs(steps, changes, jnp.minimum(pairs.count + good, len(pairs.steps)))
