"""What a solver is.

Two kinds. A **step solver** is a state machine on the flat coordinates z: `init`, then `step` until its status says
stop; the one device loop (`loop.py`) runs it with no host sync per step. Most are written as `ask` (the next point) and
`tell` (its evaluation), so that one evaluation is one tick and thousands of runs can share a batch. A **host solver**
is given a host function and runs its own loop.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, ClassVar, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from shardfit.core import reduce
from shardfit.core.errors import suggestion
from shardfit.core.objective import Objective
from shardfit.core.params import Space
from shardfit.core.precision import jit
from shardfit.core.problem import Problem
from shardfit.core.reduce import Gram
from shardfit.core.status import Status


class Point(NamedTuple):
    """One evaluation at z: value and gradient (n,)."""

    value: jax.Array
    gradient: jax.Array


class StepState(Protocol):
    """What the loop reads of any step solver's state: an evaluated point, and whether to go on."""

    x: jax.Array
    value: jax.Array
    gradient: jax.Array | None  # None where there is none
    status: jax.Array  # int32 code of Status
    steps: jax.Array  # int32


@dataclass(frozen=True)
class Solver:
    """Options common to all solvers; subclasses declare what they need and can do."""

    maxiter: int = 1000
    ftol: float = 1e-9
    gtol: float = 1e-6
    xtol: float = 0.0

    needs: ClassVar[str] = "value_and_grad"  # or "gram", "value"
    bounded: ClassVar[bool] = False  # honours box bounds
    stochastic: ClassVar[bool] = False  # copes with a fresh random key every step
    name: ClassVar[str] = "solver"

    def __post_init__(self):
        if self.maxiter < 1:
            raise ValueError(f"{self.name}: maxiter={self.maxiter} must be at least 1.")
        for tolerance in ("ftol", "gtol", "xtol"):
            if not getattr(self, tolerance) >= 0:
                raise ValueError(f"{self.name}: {tolerance}={getattr(self, tolerance)} must be zero or positive.")

    def describe(self) -> str:
        """Return name and options, as stored in a Result."""
        shown = ", ".join(f"{f.name}={getattr(self, f.name)!r}" for f in fields(self) if f.repr)
        return f"{self.name}({shown})"

    def check(self, problem: Problem) -> None:  # noqa: B027 (most solvers take any problem)
        """Raise for a problem that this solver cannot take."""


class StepSolver(Solver):
    """A state machine that runs in the device loop."""

    batch: ClassVar[int | None] = None
    keep: ClassVar[int] = 0

    def init(self, z0: jax.Array, lower: Any, upper: Any) -> Any:
        """Return the state before the first evaluation; lower and upper are (n,) or None."""
        raise TypeError(f"{type(self).__name__} must define init")

    def populate(self, state: Any, space: Space, seed: int) -> Any:
        """Return the initial state with what only the host can draw or decide; most solvers add nothing."""
        return state

    def evaluate(self, space: Space, objective: Objective, z: jax.Array, key: Any) -> Any:
        """Return what `step` needs to know at z."""
        return evaluate(self.needs, space, objective, z, key)

    def step(self, evaluate: Callable[[jax.Array], Any], state: Any) -> Any:
        """Return the state after one evaluation."""
        return self.tell(state, evaluate(self.ask(state)))

    def ask(self, state: Any) -> jax.Array:
        """Return the next point to evaluate."""
        raise TypeError(f"{type(self).__name__} must define ask and tell, or step")

    def tell(self, state: Any, evaluation: Any) -> Any:
        """Return the state after the asked point was evaluated."""
        raise TypeError(f"{type(self).__name__} must define ask and tell, or step")

    @property
    def points(self) -> int:
        """Evaluations per tick."""
        return 1

    def record(self, state: Any) -> dict[str, jax.Array]:
        """Return what the history keeps, every `keep` steps, besides value and gradient."""
        return {}

    def leave(self, state: Any) -> dict[str, np.ndarray]:
        """Return what a Result keeps of the final state."""
        return {}

    def note(self, state: Any) -> str:
        """Return what to know about the run beyond its status."""
        return ""


class Outcome(NamedTuple):
    """What a host solver hands back."""

    z: np.ndarray
    status: Status
    steps: int
    note: str = ""


class HostSolver(Solver):
    """A solver with a loop of its own on the host."""

    def minimise(self, function: Any, z0: np.ndarray, lower: Any, upper: Any) -> Outcome:
        """Minimise function(z) -> (value, gradient), calling function.step(z, value) after each iteration."""
        raise TypeError(f"{type(self).__name__} must define minimise")


@partial(jit, static_argnums=(0, 1))
def evaluate(needs: str, space: Space, objective: Objective, z: jax.Array, key: Any) -> Any:
    """Return what a solver needs at coordinates z: Point, Gram, or the value alone."""
    if needs == "value":
        return reduce.value(objective, space.unpack(z), key).astype(z.dtype)
    if needs == "gram":
        found = reduce.gram(objective.mesh, objective.terms, space.unpack(z), key)
        if space.plain:
            return found
        turn = jax.jacfwd(lambda z: jnp.concatenate([jnp.ravel(x) for x in jax.tree.leaves(space.unpack(z))]))(z)
        return Gram(found.value, turn.T @ found.gradient, turn.T @ found.matrix @ turn)
    params, pull = jax.vjp(space.unpack, z)
    value, gradient, _ = reduce.value_grad_losses(objective.mesh, objective.terms, params, key)
    return Point(value.astype(z.dtype), pull(gradient)[0])


def options_of(factory: Any) -> set[str]:
    """Return the option names a solver class takes."""
    return {f.name for f in fields(factory) if f.init}


def check_options(name: str, factory: Any, options: dict) -> None:
    """Raise for an option the solver does not have, suggesting the nearest."""
    known = options_of(factory)
    for option in options:
        if option not in known:
            raise TypeError(f"solver {name!r} has no option {option!r}.{suggestion(option, known)}")
