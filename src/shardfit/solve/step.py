"""Step solvers: state machines on the flat coordinates z that run in the one device loop.

`init`, then `step` until the state's status says stop. Most are written as `ask` (the next point) and `tell` (its
evaluation), so that one evaluation is one tick and thousands of runs can share a batch.
"""

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar, Protocol

import jax
import numpy as np

from shardfit.core.factor import Factored
from shardfit.core.gram import Gram
from shardfit.core.objective import Objective
from shardfit.core.params import Space
from shardfit.solve.base import Finish, Solver, Task, evaluate
from shardfit.solve.loop import run_steps


class StepState(Protocol):
    """What the loop reads of any step solver's state: an evaluated point, and whether to go on."""

    x: jax.Array
    value: jax.Array
    gradient: jax.Array | None  # None where there is none
    status: jax.Array  # int32 code of Status
    steps: jax.Array  # int32


RENAMED = {"due": "needs_maintenance", "tend": "maintain", "seeks": "minimises", "brief": "short_runs"}


class StepSolver(Solver):
    """A state machine that runs in the device loop."""

    def __init_subclass__(cls, **keywords: Any) -> None:
        """Take what a solver still defines under an earlier name, with a warning."""
        super().__init_subclass__(**keywords)
        for old, new in RENAMED.items():
            if old in vars(cls):
                warnings.warn(f"{cls.__name__}.{old} is now {new}: rename it.", DeprecationWarning, stacklevel=2)
                setattr(cls, new, vars(cls)[old])

    slots: ClassVar[bool] = True
    keep: ClassVar[int] = 0
    any_length: ClassVar[bool] = False  # steps do not depend on maxiter
    short_runs: ClassVar[bool] = False  # runs take hundreds of ticks: how soon they are compiled counts
    minimises: ClassVar[bool] = True  # a lower value is better: the best point is remembered, and values make a history

    def solve(self, task: Task) -> Finish:
        """Run in the device loop."""
        return run_steps(self, task)

    def program(self) -> "StepSolver":
        """Return the solver that the loop is compiled for: where steps allow it, runs of any length share one."""
        return replace(self, maxiter=1) if self.any_length else self

    def init(self, z0: jax.Array, lower: Any, upper: Any) -> Any:
        """Return the state before the first evaluation; lower and upper are (n,) or None."""
        raise TypeError(f"{type(self).__name__} must define init")

    def populate(self, state: Any, space: Space, seed: int) -> Any:
        """Return the initial state with what only the host can draw or decide; most solvers add nothing."""
        return state

    def begin(self, state: Any, key: jax.Array, given: Any) -> Any:
        """Return the initial state with its random key, and with arrays that the caller gives; most use neither."""
        return state

    def check_slots(self) -> None:  # noqa: B027 (most have none)
        """Raise for options that runs which share a batch cannot have."""

    def shared(self, space: Space, box: Any, seed: int) -> Any:
        """Return the arrays for `begin` that runs which share a batch have in common; most solvers have none."""
        return None

    def evaluate(self, space: Space, objective: Objective, z: Any, key: Any) -> Any:
        """Return what `step` needs to know at z."""
        return evaluate(self.needs, space, objective, z, key)

    def step(self, evaluate: Callable[[Any], Any], state: Any) -> Any:
        """Return the state after one evaluation."""
        return self.tell(state, evaluate(self.ask(state)))

    def ask(self, state: Any) -> jax.Array:
        """Return the next point to evaluate."""
        raise TypeError(f"{type(self).__name__} must define ask and tell, or step")

    def tell(self, state: Any, evaluation: Any) -> Any:
        """Return the state after the asked point was evaluated."""
        raise TypeError(f"{type(self).__name__} must define ask and tell, or step")

    def needs_maintenance(self, state: Any) -> Any:
        """Return whether `maintain` has something to do; None for a solver that has none."""
        return None

    def maintain(self, state: Any) -> Any:
        """Return the state after rare and costly work, such as a new metric: done only when some run is due."""
        return state

    def payload(self, state: Any) -> dict[str, jax.Array]:
        """Return the arrays that a survey hands over with a run that has ended, besides where it ended."""
        return {}

    @property
    def tells_parts(self) -> bool:
        """Whether the unweighted losses of the objective come with its evaluations."""
        return self.minimises and self.needs == "value_and_grad" and type(self).evaluate is StepSolver.evaluate

    @property
    def points(self) -> int:
        """Evaluations per tick."""
        return 1

    def record(self, state: Any) -> dict[str, jax.Array]:
        """Return what the history keeps, every `keep` steps, besides value and gradient."""
        return {}

    def kept(self, steps: np.ndarray) -> np.ndarray:
        """Return which evaluations' records are kept: every keep-th step, the start included."""
        return steps % max(1, self.keep) == 0

    def glance(self, state: Any) -> dict[str, Any]:
        """Return what a progress display shows of a running state besides its value; called a few times a second."""
        return {}

    def leave(self, state: Any) -> dict[str, np.ndarray]:
        """Return what a Result keeps of the final state."""
        return {}

    def equations(self, state: Any) -> Gram | Factored | None:
        """Return the normal equations at the state's point, for a solver that has them."""
        return None

    def note(self, state: Any) -> str:
        """Return what to know about the run beyond its status."""
        return ""
