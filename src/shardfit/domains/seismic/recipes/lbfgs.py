"""Preconditioned L-BFGS for velocity models, on all shots or on mini-batches: held cells, bounds, an inverse Hessian.

The gradient stays the misfit's own. What `Conditioning` does to it for first-order methods is here the operator
P = D G D that two-loop recursions begin with: D holds mask and the root of the weights, G smooths. Where D is zero
nothing ever moves; cells that press against a bound are left out of a step.

A mini-batch is evaluated a few times. All evaluations but its first tell whether the step before lowered the misfit of
its shots, and how their gradient changed: pairs of one step and one change of the same function. The step after its
last is checked by nobody and ends where the next batch begins, so that there are as many steps as evaluations; no cell
may change by more than `limit` in a step.
"""

from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from shardfit.core.status import Status
from shardfit.domains.seismic.conditioning import Conditioning, smooth
from shardfit.solve.step import StepSolver

DECREASE = 1e-4  # share of the promised decrease that a step must bring
SHORTEST = 1e-3  # of a step, before the search along it is given up
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
class PreconditionedLBFGS(StepSolver):
    """L-BFGS with bounds and a fixed preconditioner.

    Attributes
    ----------
    scale
        (n,) D above, zero where the model is held.
    shape, smoothing
        (fields, nz, nx), and the standard deviation in cells of G above, 0 for none.
    first
        root mean square of the first step, in the units of the model.
    limit
        largest change of a cell in a step.
    memory
        pairs that are kept.
    batch, repeats
        shots of a mini-batch, None for all; how often it is evaluated.
    label
        for the record.

    """

    # follows from the problem: a run that goes on takes it from its own state
    scale: Any = field(default=None, kw_only=True, repr=False, compare=False, metadata={"derived": True})
    shape: tuple[int, ...] = field(kw_only=True, repr=False)
    smoothing: float = field(default=0.0, kw_only=True, repr=False)
    first: float = field(default=10.0, kw_only=True)
    limit: float = field(default=np.inf, kw_only=True)
    memory: int = field(default=20, kw_only=True)
    batch: int | None = field(default=None, kw_only=True)
    repeats: int = field(default=3, kw_only=True)
    label: str = field(default="", kw_only=True, compare=False)
    bounded: ClassVar[bool] = True
    slots: ClassVar[bool] = False
    any_length: ClassVar[bool] = True
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

    def populate(self, state, space, seed):
        """Return the initial state with the preconditioner."""
        return state._replace(scale=jnp.asarray(self.scale, state.x.dtype))

    def step(self, evaluate, state):
        """Evaluate, accept or shorten, and aim anew."""
        value, gradient = evaluate(state.ahead)
        start, fresh = ~jnp.isfinite(state.value), state.seen == 0
        taken = state.ahead - state.x
        old, new = (jnp.where(state.scale > 0, g, 0) for g in (state.gradient, gradient))
        promised = jnp.vdot(old, taken)
        enough = (promised < 0) & (value <= state.value + DECREASE * promised)
        moves = fresh | enough
        unit = jnp.where(start, jnp.max(jnp.abs(new)), state.unit)
        per_unit = 1 / jnp.where(unit > 0, unit, 1)
        pairs = _learn(state.pairs, taken, (new - old) * per_unit, ~fresh & enough)
        length = jnp.where(moves, 1.0, state.length * _shorter(value - state.value, promised))
        # what was learnt elsewhere misleads here
        lost = ~moves & (length < SHORTEST)
        stalled = lost & (pairs.count == 0)
        pairs = pairs._replace(count=jnp.where(lost, 0, pairs.count))
        x, here = jnp.where(moves, state.ahead, state.x), jnp.where(moves, new, old)
        free = self._free(state, x, here)
        aimed = _clipped(state, x + self._direction(state, pairs, here * per_unit, free))
        retried = state.x + (length / state.length) * taken
        status = self._status(state, value, here, free, (start, fresh, enough, stalled))
        return state._replace(
            x=x,
            value=jnp.where(moves, value, state.value),
            gradient=jnp.where(moves, gradient, state.gradient),
            status=status,
            steps=state.steps + (moves & ~start),
            ahead=jnp.where(moves | lost, aimed, retried),
            length=jnp.where(lost, 1.0, length).astype(x.dtype),
            seen=(state.seen + 1) % self.repeats if self.batch else jnp.ones_like(state.seen),
            unit=unit,
            pairs=pairs,
        )

    def _free(self, state: State, x: jax.Array, gradient: jax.Array) -> jax.Array:
        """Return which cells may move."""
        free = state.scale > 0
        if state.lower is None:
            return free
        return free & ~((x <= state.lower) & (gradient > 0)) & ~((x >= state.upper) & (gradient < 0))

    def _precondition(self, state: State, vector: jax.Array, free: jax.Array) -> jax.Array:
        scaled = jnp.where(free, state.scale * vector, 0)
        if self.smoothing:
            scaled = jnp.stack([smooth(one, self.smoothing) for one in scaled.reshape(self.shape)]).ravel()
        return jnp.where(free, state.scale * scaled, 0)

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
        reach = jnp.vdot(change, self._precondition(state, change, free))
        factor = jnp.where(used.any(), curvature[newest] / jnp.where(reach > 0, reach, 1), 1)
        found = jax.lax.scan(forth, factor * self._precondition(state, left, free), (*among, shares))[0]
        size = jnp.sqrt(jnp.sum(found**2) / jnp.maximum(jnp.sum(free), 1))
        found = jnp.where(used.any(), found, found * (self.first / jnp.where(size > 0, size, 1)))
        return jnp.clip(-found, -self.limit, self.limit)

    def _status(self, state: State, value: Any, gradient: jax.Array, free: jax.Array, events: tuple) -> jax.Array:
        start, fresh, enough, stalled = events
        if self.batch:  # a batch says nothing about the whole
            return jnp.where(fresh & ~jnp.isfinite(value), Status.NONFINITE.code, Status.RUNNING.code).astype(jnp.int32)
        flat = jnp.max(jnp.where(free, jnp.abs(gradient), 0)) <= self.gtol
        small = state.value - value <= self.ftol * jnp.abs(value)
        cases = (
            (start & ~jnp.isfinite(value), Status.NONFINITE),
            ((start | enough) & flat, Status.CONVERGED_GRADIENT),
            (~start & enough & small & (self.ftol > 0), Status.CONVERGED_VALUE),
            (stalled, Status.STALLED),
        )
        return jnp.select([holds for holds, _ in cases], [s.code for _, s in cases], Status.RUNNING.code).astype(
            jnp.int32
        )

    def note(self, state):
        """Say what a stalled run means."""
        stalled = int(state.status) == Status.STALLED.code
        return "No step along the gradient lowers the misfit." if stalled else ""


def _learn(pairs: Pairs, step: jax.Array, change: jax.Array, wanted: Any) -> Pairs:
    """Add a pair if it is wanted and curvature is positive along it."""
    size = jnp.linalg.norm(step) * jnp.linalg.norm(change)
    good = wanted & (jnp.vdot(step, change) > POSITIVE * size)
    steps, changes = (
        jnp.where(good, jnp.concatenate([held[1:], new[None]]), held)
        for held, new in zip(pairs[:2], (step, change), strict=True)
    )
    return Pairs(steps, changes, jnp.minimum(pairs.count + good, len(pairs.steps)))


def _shorter(rise: Any, promised: Any) -> Any:
    """Return by what to shorten a step: the minimum of the parabola through values and slope, within reason."""
    bend = rise - promised
    known = jnp.isfinite(bend) & (bend > 0) & (promised < 0)
    return jnp.where(known, jnp.clip(-promised / (2 * jnp.where(known, bend, 1)), 0.1, 0.5), 0.25)


def _clipped(state: State, x: jax.Array) -> jax.Array:
    return x if state.lower is None else jnp.clip(x, state.lower, state.upper)


def preconditioned(
    how: Conditioning, mask: np.ndarray, weights: np.ndarray, fields: int = 1, **options: Any
) -> PreconditionedLBFGS:
    """Return the solver that conditions as told.

    mask: (nz, nx); weights: (nz, nx), or (fields, nz, nx) where fields differ. options: of `PreconditionedLBFGS`.
    """
    scale = mask * np.sqrt(weights / weights.max())
    return PreconditionedLBFGS(
        scale=np.broadcast_to(scale, (fields, *mask.shape)).ravel(),
        shape=(fields, *mask.shape),
        smoothing=how.smoothing,
        label=str(how),
        **options,
    )
