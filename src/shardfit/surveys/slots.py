"""Slots: many fits that share every evaluation, each with its own line search, history and end.

One tick evaluates all slots in one batch and lets each take its step. A slot that has ended keeps where it ended until
the host takes it and loads the next point; meanwhile it ticks on without effect, which costs less than selecting
between old and new states. No slot waits for another, and none can see another's numbers.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from shardfit.core.evaluations import named_parts
from shardfit.core.mesh import RUNS
from shardfit.core.objective import Objective
from shardfit.core.params import Space
from shardfit.core.reduce import value_grad_losses
from shardfit.core.status import Status
from shardfit.solve.loop import Run, answer, maintained, start, tick_once
from shardfit.solve.scale import Scaled
from shardfit.solve.step import StepSolver
from shardfit.surveys.variants import bind

EMPTY = -1  # number of the point in a slot that has none


class BatchSpec(NamedTuple):
    """What all slots have in common; static in compiled code. places: positions of the leaves that differ."""

    solver: StepSolver
    space: Space
    places: tuple[int, ...]


class Shared(NamedTuple):
    """Arrays that all slots have in common: the placed objective, bounds of z or None, a random key.

    given: arrays for the solver's `begin`.
    """

    objective: Objective
    lower: Any
    upper: Any
    key: jax.Array
    given: Any = None


class Ended(NamedTuple):
    """Where slots ended: coordinates, code of Status, steps, evaluations."""

    z: jax.Array
    status: jax.Array
    steps: jax.Array
    evaluations: jax.Array


class Slots(NamedTuple):
    """All slots; every array has them as leading axis.

    idle: a slot has ended, or never had a point. scale: of its coordinates (n,) to its solver, or one number.
    """

    point: jax.Array
    leaves: tuple[jax.Array, ...]
    run: Run
    idle: jax.Array
    ended: Ended
    scale: jax.Array


def empty_slots(kind: BatchSpec, shared: Shared, leaves: tuple, z0: np.ndarray, scale: np.ndarray, n: int) -> Slots:
    """Return n slots without points; leaves, z0 and scale are any point's."""
    mesh = shared.objective.mesh

    def many(leaf):
        array = np.ascontiguousarray(np.broadcast_to(leaf, (n, *np.shape(leaf))))
        return jax.device_put(array) if mesh is None else jax.device_put(array, NamedSharding(mesh, P(RUNS)))

    run = _start(kind.solver, shared, many(z0), many(scale), many(np.int32(EMPTY)))
    if mesh is not None:
        run = jax.device_put(run, NamedSharding(mesh, P(RUNS)))
    ended = Ended(many(z0), *(many(np.int32(0)) for _ in range(3)))
    return Slots(many(np.int32(EMPTY)), tuple(map(many, leaves)), run, many(np.True_), ended, many(scale))


def _on_runs(slots: Slots, mesh: Mesh | None) -> Slots:
    """Keep slots split over the axis `runs`: placed otherwise, the next call would be compiled again."""
    return slots if mesh is None else jax.lax.with_sharding_constraint(slots, NamedSharding(mesh, P(RUNS)))


@partial(jax.jit, static_argnums=0)
def _start(solver: StepSolver, shared: Shared, z0: jax.Array, scale: jax.Array, point: jax.Array) -> Run:
    """Return runs before their first evaluation; what each draws depends on the number of its point alone."""

    def one(z, scale, number):
        lower, upper = (None if end is None else end / scale for end in (shared.lower, shared.upper))
        u = z / scale if lower is None else jnp.clip(z / scale, lower, upper)
        return start(solver, u, lower, upper, jax.random.fold_in(shared.key, number), shared.given)

    return jax.vmap(one)(z0, scale, point)


@partial(jax.jit, static_argnums=0, donate_argnums=2)
def advance(kind: BatchSpec, shared: Shared, slots: Slots, max_ticks: Any, enough: Any) -> tuple[Slots, jax.Array]:
    """Tick until `enough` slots with points in them have ended, or all have, at most max_ticks times; count ticks."""
    occupied = slots.point != EMPTY
    enough = jnp.minimum(enough, jnp.sum(occupied))
    noisy = bool(shared.objective.stochastic)

    def one(point, leaves, scale, run):
        key = jax.random.fold_in(jax.random.fold_in(shared.key, point), run.ticks) if noisy else None
        objective = bind(shared.objective, kind.places, leaves)
        return tick_once(kind.solver, _seen(kind, shared, scale), objective, run, key)

    def go_on(carry):
        i, _, idle, _ = carry
        return (i < max_ticks) & (jnp.sum(idle & occupied) < enough)

    def tick(carry):
        i, run, idle, ended = carry
        run = maintained(kind.solver, jax.vmap(one)(slots.point, slots.leaves, slots.scale, run), many=True)
        status = jnp.where(
            (run.state.status == Status.RUNNING.code) & (run.state.steps >= kind.solver.maxiter),
            jnp.int32(Status.MAX_STEPS.code),
            run.state.status,
        )
        ends = ~idle & (status != Status.RUNNING.code)
        u, _ = jax.vmap(partial(answer, noisy=noisy))(run)
        z = jax.vmap(partial(_coordinates, kind, shared))(slots.scale, u)
        now = Ended(z, status, run.state.steps, run.ticks * kind.solver.points)
        ended = jax.tree.map(lambda new, old: jnp.where(_like(ends, new), new, old), now, ended)
        return i + 1, run, idle | ends, ended

    begin = (jnp.zeros((), jnp.int32), slots.run, slots.idle, slots.ended)
    ticks, run, idle, ended = jax.lax.while_loop(go_on, tick, begin)
    return _on_runs(slots._replace(run=run, idle=idle, ended=ended), shared.objective.mesh), ticks


@partial(jax.jit, static_argnums=0)
def take(kind: BatchSpec, shared: Shared, slots: Slots, slot: np.ndarray) -> tuple[Ended, Any, dict, jax.Array, dict]:
    """Return where the named slots ended: parameters, the parts of the objective, its value, the solver's payload."""
    chosen = jax.tree.map(lambda leaf: leaf[slot], (slots.point, slots.leaves, slots.ended, slots.run.state))

    def one(point, leaves, ended, state):
        objective = bind(shared.objective, kind.places, leaves)
        key = jax.random.fold_in(shared.key, point) if objective.stochastic else None
        params = kind.space.unpack(ended.z)
        if kind.solver.needs == "value":  # the model may have no gradient
            return ended, params, objective.parts(params, key), objective.value(params, key), kind.solver.payload(state)
        # gradient and all: the same arithmetic as the solver's, so that the value is the one that it saw
        value, _, parts = value_grad_losses(objective.mesh, objective.terms, params, key)
        return ended, params, named_parts(objective.names, parts), value, kind.solver.payload(state)

    return jax.vmap(one)(*chosen)


@partial(jax.jit, static_argnums=0, donate_argnums=2)
def load(
    kind: BatchSpec,
    shared: Shared,
    slots: Slots,
    slot: np.ndarray,
    point: np.ndarray,
    leaves: tuple,
    z0: np.ndarray,
    scale: np.ndarray,
) -> Slots:
    """Return the slots with new points in some of them.

    slot, point: (k,) numbers; leaves, z0, scale: (k, ...) of each point. A point EMPTY frees its slot; a slot
    beyond the last is ignored.
    """

    def put(old, fresh):
        return old.at[slot].set(fresh, mode="drop")

    run = _start(kind.solver, shared, z0, scale, point)
    loaded = Slots(
        put(slots.point, point),
        tuple(map(put, slots.leaves, leaves)),
        jax.tree.map(put, slots.run, run),
        put(slots.idle, point == EMPTY),
        slots.ended,
        put(slots.scale, scale),
    )
    return _on_runs(loaded, shared.objective.mesh)


def _seen(kind: BatchSpec, shared: Shared, scale: jax.Array) -> Any:
    """Return the space as the solver of one slot sees it."""
    return Scaled(kind.space, scale, shared.lower, shared.upper) if scale.ndim else kind.space


def _coordinates(kind: BatchSpec, shared: Shared, scale: jax.Array, u: jax.Array) -> jax.Array:
    """Return the coordinates z of what the solver of one slot works in."""
    return _seen(kind, shared, scale).coordinates(u) if scale.ndim else u


def _like(mask: jax.Array, array: jax.Array) -> jax.Array:
    return mask.reshape(mask.shape + (1,) * (array.ndim - 1))
