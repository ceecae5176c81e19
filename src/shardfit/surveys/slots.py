"""Slots: many fits that share every evaluation, each with its own line search, history and end.

One tick evaluates all slots in one batch and lets each take its step. A slot that has ended keeps what it found until
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

from shardfit.core.mesh import RUNS
from shardfit.core.objective import Objective, named_parts
from shardfit.core.params import Space
from shardfit.core.reduce import value_grad_losses
from shardfit.core.status import Status
from shardfit.solve.loop import Run, answer, tick_once
from shardfit.solve.step import StepSolver
from shardfit.surveys.variants import bind

EMPTY = -1  # number of the point in a slot that has none


class Kind(NamedTuple):
    """What all slots have in common; static in compiled code. places: positions of the leaves that differ."""

    solver: StepSolver
    space: Space
    places: tuple[int, ...]


class Shared(NamedTuple):
    """Arrays that all slots have in common: the placed objective, bounds of z or None, and a random key."""

    objective: Objective
    lower: Any
    upper: Any
    key: jax.Array


class Found(NamedTuple):
    """What a slot found when it ended: coordinates, code of Status, steps, evaluations."""

    z: jax.Array
    status: jax.Array
    steps: jax.Array
    evaluations: jax.Array


class Slots(NamedTuple):
    """All slots; every array has them as leading axis."""

    point: jax.Array
    leaves: tuple[jax.Array, ...]
    run: Run
    ended: jax.Array
    found: Found


class Load(NamedTuple):
    """Points for some slots: (k,) slots and numbers, (k, ...) leaves and starts. Slots beyond the last are ignored."""

    slot: np.ndarray
    point: np.ndarray
    leaves: tuple[np.ndarray, ...]
    z0: np.ndarray


class Taken(NamedTuple):
    """What some slots found, (k, ...): with the parameters, the parts of the objective, and its value."""

    point: jax.Array
    found: Found
    params: Any
    parts: dict[str, jax.Array]
    value: jax.Array


def empty_slots(kind: Kind, shared: Shared, leaves: tuple, z0: np.ndarray, n: int) -> Slots:
    """Return n slots without points; leaves and z0 are any point's."""
    mesh = shared.objective.mesh

    def many(leaf):
        array = np.ascontiguousarray(np.broadcast_to(leaf, (n, *np.shape(leaf))))
        return jax.device_put(array) if mesh is None else jax.device_put(array, NamedSharding(mesh, P(RUNS)))

    run = _start(kind.solver, many(z0), shared.lower, shared.upper)
    if mesh is not None:
        run = jax.device_put(run, NamedSharding(mesh, P(RUNS)))
    found = Found(many(z0), *(many(np.int32(0)) for _ in range(3)))
    return Slots(many(np.int32(EMPTY)), tuple(map(many, leaves)), run, many(np.True_), found)


def _on_runs(slots: Slots, mesh: Mesh | None) -> Slots:
    """Keep slots split over the axis `runs`: placed otherwise, the next call would be compiled again."""
    return slots if mesh is None else jax.lax.with_sharding_constraint(slots, NamedSharding(mesh, P(RUNS)))


@partial(jax.jit, static_argnums=0)
def _start(solver: StepSolver, z0: jax.Array, lower: Any, upper: Any) -> Run:
    def one(z):
        count, far = jnp.zeros((), jnp.int32), jnp.full((), jnp.inf, z.dtype)
        return Run(solver.init(z, lower, upper), z, far, count)

    return jax.vmap(one)(z0)


@partial(jax.jit, static_argnums=0, donate_argnums=2)
def advance(kind: Kind, shared: Shared, slots: Slots, max_ticks: Any, enough: Any) -> tuple[Slots, jax.Array]:
    """Tick until `enough` slots with points in them have ended, or all have, at most max_ticks times; count ticks."""
    occupied = slots.point != EMPTY
    enough = jnp.minimum(enough, jnp.sum(occupied))
    noisy = bool(shared.objective.stochastic)

    def one(point, leaves, run):
        key = jax.random.fold_in(jax.random.fold_in(shared.key, point), run.ticks) if noisy else None
        objective = bind(shared.objective, kind.places, leaves)
        return tick_once(kind.solver, kind.space, objective, run, key)

    def go_on(carry):
        i, _, ended, _ = carry
        return (i < max_ticks) & (jnp.sum(ended & occupied) < enough)

    def tick(carry):
        i, run, ended, found = carry
        run = jax.vmap(one)(slots.point, slots.leaves, run)
        status = jnp.where(
            (run.state.status == Status.RUNNING.code) & (run.state.steps >= kind.solver.maxiter),
            jnp.int32(Status.MAX_STEPS.code),
            run.state.status,
        )
        ends = ~ended & (status != Status.RUNNING.code)
        z, _ = jax.vmap(partial(answer, noisy=noisy))(run)
        now = Found(z, status, run.state.steps, run.ticks * kind.solver.points)
        found = jax.tree.map(lambda new, old: jnp.where(_like(ends, new), new, old), now, found)
        return i + 1, run, ended | ends, found

    begin = (jnp.zeros((), jnp.int32), slots.run, slots.ended, slots.found)
    ticks, run, ended, found = jax.lax.while_loop(go_on, tick, begin)
    return _on_runs(slots._replace(run=run, ended=ended, found=found), shared.objective.mesh), ticks


@partial(jax.jit, static_argnums=0)
def take(kind: Kind, shared: Shared, slots: Slots, slot: np.ndarray) -> Taken:
    """Return what the named slots found."""
    chosen = jax.tree.map(lambda leaf: leaf[slot], (slots.point, slots.leaves, slots.found))

    def one(point, leaves, found):
        objective = bind(shared.objective, kind.places, leaves)
        key = jax.random.fold_in(shared.key, point) if objective.stochastic else None
        params = kind.space.unpack(found.z)
        # gradient and all: the same arithmetic as the solver's, so that the value is the one that it saw
        value, _, parts = value_grad_losses(objective.mesh, objective.terms, params, key)
        return Taken(point, found, params, named_parts(objective.names, parts), value)

    return jax.vmap(one)(*chosen)


@partial(jax.jit, static_argnums=0, donate_argnums=2)
def load(kind: Kind, shared: Shared, slots: Slots, new: Load) -> Slots:
    """Return the slots with new points in some of them; a point EMPTY frees its slot."""

    def put(old, fresh):
        return old.at[new.slot].set(fresh, mode="drop")

    run = _start(kind.solver, new.z0, shared.lower, shared.upper)
    loaded = Slots(
        put(slots.point, new.point),
        tuple(map(put, slots.leaves, new.leaves)),
        jax.tree.map(put, slots.run, run),
        put(slots.ended, new.point == EMPTY),
        slots.found,
    )
    return _on_runs(loaded, shared.objective.mesh)


def _like(mask: jax.Array, array: jax.Array) -> jax.Array:
    return mask.reshape(mask.shape + (1,) * (array.ndim - 1))
