"""How chains are laid out: which share a batch, and on which devices the batches run.

`width` chains share every evaluation and their adaptation; they are a group. Groups are runs of their own, with seeds
of their own, so that the draws of a group depend on its width and number alone, to the bit, and never on how many
devices there are. Cheap gradients pay in wide groups, costly ones in narrow groups, one for each device.
"""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh

from shardfit.core.blocks import with_resolved_chunk
from shardfit.core.current import working_on_it
from shardfit.core.mesh import ROWS, RUNS, n_shards
from shardfit.core.objective import Objective
from shardfit.core.params import Space
from shardfit.core.problem import Problem
from shardfit.core.recent import present
from shardfit.core.shape_structs import shape_structs, types_of
from shardfit.core.terms import RowTerm
from shardfit.solve.base import value_and_grad_parts

CHEAP = 3e5  # operations of a gradient below which a batch pays on a CPU: most of the time is the price of a call
TRANSCENDENTAL = 10.0  # operations that an exponential or a sine stands for
TRIALS = 5


class Place(NamedTuple):
    """Where a group runs: a mesh, or one device; neither means JAX's default."""

    mesh: Mesh | None = None
    device: Any = None

    @contextmanager
    def chosen(self) -> Iterator[None]:
        """Make this place the default for a while."""
        with jax.default_device(self.device) if self.device is not None else nullcontext():
            yield


def places(mesh: Mesh | None, groups: int) -> list[Place]:
    """Return the places that groups can use at the same time: slices of a mesh along `runs`, or all of it for one."""
    if mesh is None:
        return [Place()]
    if groups == 1:
        return [Place(mesh)]
    by_run = np.moveaxis(mesh.devices, list(mesh.axis_names).index(RUNS), 0) if RUNS in mesh.axis_names else None
    slices = [mesh.devices] if by_run is None else list(by_run)
    if n_shards(mesh) == 1:
        return [Place(device=one.flat[0]) for one in slices]
    kinds = (AxisType.Auto,) * 2
    return [Place(Mesh(one.reshape(-1, 1), (ROWS, RUNS), axis_types=kinds)) for one in slices]


def run_groups(run: Callable[[int, Place], Any], groups: int, where: list[Place]) -> list[Any]:
    """Return run(number, place) of every group; as many run at once as there are places, and a failure ends all."""
    if len(where) == 1 or groups == 1:
        return [run(i, where[0]) for i in range(groups)]
    free = list(where)

    def one(i: int) -> Any:
        place = free.pop()
        try:
            return run(i, place)
        finally:
            free.append(place)

    with ThreadPoolExecutor(len(where), "chains") as pool:
        return list(pool.map(one, range(groups)))


@working_on_it
def choose_width(problem: Problem, chains: int, mesh: Mesh | None) -> tuple[int, str]:
    """Return how many chains share a batch, and a sentence that says why.

    By the operations of a gradient, not by its time: a seed gives the same draws however busy the machine is.
    """
    if chains == 1:
        return 1, "one chain"
    if n_shards(mesh) > 1:
        return chains, f"{chains} chains in one batch, for the rows are split over devices"
    work = operations(problem)
    if work < CHEAP:
        return chains, f"{chains} chains in one batch: a gradient takes some {work:.2g} operations"
    return 1, f"every chain by itself: a gradient takes some {work:.2g} operations, which a batch does not make cheaper"


@working_on_it
def measured_width(problem: Problem, chains: int, mesh: Mesh | None) -> tuple[int, str]:
    """Return the same by measuring a gradient alone and in a batch, on the device that would do it."""
    if chains == 1 or n_shards(mesh) > 1:
        return choose_width(problem, chains, mesh)
    placed, space = problem.objective.place(None), problem.space
    z = jnp.asarray(problem.z0())
    alone = _seconds(_gradient, space, placed, z)
    together = _seconds(_gradients, space, placed, jnp.tile(z, (chains, 1))) / chains
    told = f"a gradient takes {alone * 1e3:.3g} ms alone and {together * 1e3:.3g} ms in a batch of {chains}"
    devices = 1 if mesh is None else mesh.shape.get(RUNS, 1)
    if together * min(devices, chains) < alone:
        return chains, f"{chains} chains in one batch: {told}"
    return 1, f"every chain by itself: {told}"


def operations(problem: Problem) -> float:
    """Return about how many operations a gradient takes, from its program; a block of rows counts for all of them."""
    work = _counted(present.key, *types_of(problem.space, problem.objective, problem.z0()))
    terms = [
        with_resolved_chunk(term, problem.x0, None) for term in problem.objective.terms if isinstance(term, RowTerm)
    ]
    # XLA counts the body of a loop once
    blocks = max((-(-term.n_rows // term.chunk) for term in terms if term.chunk is not None), default=1)
    return work * blocks


@lru_cache(maxsize=256)  # a translation of the whole program: for a cheap model it costs as much as many draws
def _counted(content: tuple, structure: Any, types: tuple) -> float:
    """Return the operations of a gradient, those of loops once, of arguments of these types.

    content: what their functions are at present.
    """
    cost = _gradient.lower(*shape_structs(structure, types)).cost_analysis() or {}
    return cost.get("flops", 0.0) + TRANSCENDENTAL * cost.get("transcendentals", 0.0)


@jax.jit
def _gradient(space: Space, objective: Objective, z: jax.Array) -> Any:
    return value_and_grad_parts(space, objective, z, None)[0]


@jax.jit
def _gradients(space: Space, objective: Objective, z: jax.Array) -> Any:
    return jax.vmap(lambda one: value_and_grad_parts(space, objective, one, None)[0])(z)


def _seconds(fn: Callable, *args: Any) -> float:
    jax.block_until_ready(fn(*args))
    least = np.inf
    for _ in range(TRIALS):
        began = time.perf_counter()
        jax.block_until_ready(fn(*args))
        least = min(least, time.perf_counter() - began)
    return least
