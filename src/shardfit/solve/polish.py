"""After a global search, gradients: the best particles are improved by another solver inside the same box."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import register_dataclass

from shardfit.core.params import Space
from shardfit.solve.base import Finish, Solver, Task
from shardfit.solve.legs import solve_in_legs
from shardfit.solve.monitor import Monitor

EDGE = 1e-6  # box widths between a start and the bound, where the unbounded coordinate would be infinite


@partial(register_dataclass, data_fields=("space",), meta_fields=("lower", "upper"))
@dataclass(frozen=True)
class Boxed:
    """A space whose coordinates u are unbounded: z = lower + (upper - lower)·sigmoid(u), for solvers without bounds."""

    space: Space
    lower: tuple[float, ...]
    upper: tuple[float, ...]

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


def polish(solver: Solver, count: int, task: Task, finish: Finish) -> Finish:
    """Descend from the `count` best particles of a swarm's finish and return one finish for both phases."""
    assert finish.leaves is not None
    trace = task.monitor.trace
    best = np.argsort(finish.leaves["best_loss"], stable=True)[:count]
    descents = []
    for start in finish.leaves["best_x"][best]:
        own = Monitor()
        descents.append(_descend(solver, replace(task, z0=start, monitor=own)))
        history = own.trace.arrays()
        more = {"evaluation": own.trace.evaluations() + (trace.evaluations()[-1] if len(trace) else 0)}
        trace.extend(history["value"], history["gradient"], history["step"] + finish.steps, more)
    key = jax.random.key(0) if task.objective.stochastic else None
    values = [float(task.objective.value(task.space.host_params(f.z), key)) for f in (finish, *descents)]
    return _both(solver.name, finish, descents, values)


def _descend(solver: Solver, task: Task) -> Finish:
    """Run any solver inside the box."""
    if solver.bounded or task.box is None:
        return solve_in_legs(solver, task, None)
    boxed = Boxed(task.space, *(tuple(map(float, end)) for end in task.box))
    finish = solver.solve(replace(task, space=boxed, z0=boxed.u(task.z0), box=None))
    return finish._replace(z=np.asarray(boxed.z(finish.z)))


def _both(name: str, swarm: Finish, descents: list[Finish], values: list[float]) -> Finish:
    """Return the best of the swarm and the descents from it; values are theirs, in this order."""
    first, *rest = values
    reached = min(v if np.isfinite(v) else np.inf for v in rest)
    # a descent that gained nothing still knows that there is nothing to gain; a worse one is not used
    best = descents[rest.index(reached)] if reached <= first else swarm
    steps, evaluations = sum(f.steps for f in descents), sum(f.evaluations for f in descents)
    note = (
        f"Swarm: {swarm.status.message}, value {first:.8g} after {swarm.steps} steps and {swarm.evaluations} "
        f"evaluations. Polish by {name!r} from its best {len(descents)}: value {reached:.8g}, {steps} steps and "
        f"{evaluations} evaluations."
    )
    return Finish(
        best.z,
        best.value,
        best.status,
        swarm.steps + steps,
        swarm.evaluations + evaluations,
        swarm.compile_seconds + sum(f.compile_seconds for f in descents),
        " ".join(text for text in (swarm.note, note, "" if best is swarm else best.note) if text),
        swarm.leaves,
        doubts=best.doubts,
        stands=best.stands,
    )
