"""After a global search, gradients: the best particles are improved by another solver inside the same box."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from shardfit.core.objective import Objective
from shardfit.core.params import Space
from shardfit.core.problem import Problem
from shardfit.solve.base import Solver
from shardfit.solve.loop import Finish
from shardfit.solve.monitor import Monitor
from shardfit.solve.registry import as_solver
from shardfit.solve.swarm import Swarm

EDGE = 1e-6  # box widths between a start and the bound, where the unbounded coordinate would be infinite


@dataclass(frozen=True)
class Boxed:
    """A space whose coordinates u are unbounded: z = lower + (upper - lower)·sigmoid(u), for solvers without bounds."""

    space: Space
    lower: tuple[float, ...]
    upper: tuple[float, ...]
    plain = False  # as Space.plain: u are not the parameters themselves

    def z(self, u: Any) -> Any:
        """Return the coordinates inside the box."""
        lower, upper = (jnp.asarray(end, u.dtype) for end in (self.lower, self.upper))
        return lower + (upper - lower) * jax.nn.sigmoid(u)

    def u(self, z: np.ndarray) -> np.ndarray:
        """Return the unbounded coordinates of z; a point on its bound is moved inside by a hair."""
        lower, upper = np.asarray(self.lower), np.asarray(self.upper)
        width = np.where(upper > lower, upper - lower, 1.0)
        share = np.clip((z - lower) / width, EDGE, 1 - EDGE)
        return np.log(share / (1 - share)).astype(z.dtype)

    def unpack(self, u: Any) -> Any:
        """Return the parameters."""
        return self.space.unpack(self.z(u))


def polish(
    swarm: Swarm, problem: Problem, placed: Objective, finish: Finish, minimise: Callable[..., Finish], monitor: Monitor
) -> Finish:
    """Descend from the swarm's best particles and return one finish for both phases.

    minimise(solver, space, z0, box, monitor) runs one solver on the placed objective.
    """
    assert finish.leaves is not None
    solver, space = as_solver(swarm.polish), problem.space
    best = np.argsort(finish.leaves["best_loss"], stable=True)[: swarm.polish_best]
    descend = _in_box(minimise, solver, space, problem.box)
    found = []
    for start in finish.leaves["best_x"][best]:
        own = Monitor()
        found.append(descend(start, own))
        history = own.trace.arrays()
        monitor.trace.extend(history["value"], history["gradient"], history["step"] + finish.steps)
    key = jax.random.key(0) if problem.objective.stochastic else None
    values = [float(placed.value(space.host_params(f.z), key)) for f in (finish, *found)]
    return _both(solver.name, finish, found, values)


def _in_box(minimise: Callable[..., Finish], solver: Solver, space: Space, box: Any) -> Callable[..., Finish]:
    """Return descend(z0, monitor), which keeps any solver inside the box."""
    if solver.bounded:
        return lambda z0, monitor: minimise(solver, space, z0, box, monitor)
    boxed = Boxed(space, *(tuple(map(float, end)) for end in box))

    def descend(z0, monitor):
        found = minimise(solver, boxed, boxed.u(z0), None, monitor)
        return found._replace(z=np.asarray(boxed.z(found.z)))

    return descend


def _both(name: str, swarm: Finish, found: list[Finish], values: list[float]) -> Finish:
    """Return the best of the swarm and the descents found from it; values are theirs, in this order."""
    first, *rest = values
    reached = min(v if np.isfinite(v) else np.inf for v in rest)
    # a descent that gained nothing still knows that there is nothing to gain; a worse one is not used
    best = found[rest.index(reached)] if reached <= first else swarm
    steps, evaluations = sum(f.steps for f in found), sum(f.evaluations for f in found)
    note = (
        f"Swarm: {swarm.status.message}, value {first:.8g} after {swarm.steps} steps and {swarm.evaluations} "
        f"evaluations. Polish by {name!r} from its best {len(found)}: value {reached:.8g}, {steps} steps and "
        f"{evaluations} evaluations."
    )
    return Finish(
        best.z,
        best.status,
        swarm.steps + steps,
        swarm.evaluations + evaluations,
        swarm.compile_seconds + sum(f.compile_seconds for f in found),
        " ".join(text for text in (swarm.note, note, "" if best is swarm else best.note) if text),
        swarm.leaves,
    )
