"""What a solver is, and what it is given and gives back.

A solver declares what it needs and can (class variables below), runs itself (`solve`), and adds its own fields to the
Result (`extras`). Nobody asks for its class: `capabilities.py` compares the declarations with a problem, for fits,
surveys and plans alike. Two kinds come with a loop: a `StepSolver` (step.py) is a state machine in the one device loop,
a `HostSolver` (host.py) has a loop of its own around a host function.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax
import numpy as np

from shardfit.core import reduce
from shardfit.core.errors import suggestion
from shardfit.core.evaluations import named_parts
from shardfit.core.factor import Factored
from shardfit.core.gram import Gram, gram, residuals
from shardfit.core.objective import Objective
from shardfit.core.params import Space
from shardfit.core.problem import Problem
from shardfit.core.status import Status
from shardfit.options.declared import taken_by
from shardfit.options.kinds import REFUSED
from shardfit.solve.monitor import Monitor


class ValueAndGrad(NamedTuple):
    """One evaluation at z: value and gradient (n,)."""

    value: jax.Array
    gradient: jax.Array


@dataclass(frozen=True, eq=False)
class Task:
    """What a solver is given to minimise.

    space, z0, box: coordinates, where to start, and (lower, upper) or None. placed: the objective on the mesh; None for
    a solver with mini-batches, which places rows as it draws them. monitor: history, callback, progress, checkpoints.
    given: arrays for the solver's `begin`, such as the covariance to start from. trusted: what the solver knows of its
    answer is not evaluated again. earlier: steps and evaluations before this leg of the run (legs.py). ready(): to be
    called when programs are compiled and nothing has been searched yet; it raises where gradients are wrong.
    """

    problem: Problem
    space: Any
    z0: np.ndarray
    box: tuple[np.ndarray, np.ndarray] | None
    placed: Objective | None
    mesh: Any
    seed: int
    monitor: Monitor
    given: Any = None
    trusted: bool = False
    earlier: tuple[int, int] = (0, 0)
    ready: Callable[[], Any] = lambda: None

    @property
    def objective(self) -> Objective:
        """The placed objective."""
        assert self.placed is not None, "a solver with mini-batches has no placed objective"
        return self.placed


class Finish(NamedTuple):
    """How a run ended; value is the solver's own at z, None where it knows none or only a noisy one."""

    z: np.ndarray
    value: float | None
    status: Status
    steps: int
    evaluations: int
    compile_seconds: float = 0.0
    note: str = ""
    leaves: dict[str, np.ndarray] | None = None  # what a later run can start from
    parts: dict[str, float] | None = None  # unweighted losses at z, where the solver has them
    equations: Gram | Factored | None = None  # normal equations at z, where the solver has them
    doubts: tuple[str, ...] = ()  # what speaks against the answer
    stands: bool = False  # the answer has been confirmed


@dataclass(frozen=True)
class Solver:
    """Options common to all solvers, and the declarations that each kind makes."""

    maxiter: int = 1000
    ftol: float = 1e-9
    gtol: float = 1e-6
    xtol: float = 0.0

    name: ClassVar[str] = "solver"
    needs: ClassVar[str] = "value_and_grad"  # or "gram", "residuals", "value"
    bounded: ClassVar[bool] = False  # honours box bounds
    gatol: ClassVar[float] = 0.0  # absolute tolerance of the gradient, where values have a natural unit
    scaled: ClassVar[bool] = False  # works in scale-free coordinates (scale.py); False: in those of the parameters
    stochastic: ClassVar[bool] = False  # copes with a fresh random key every step
    slots: ClassVar[bool] = False  # one evaluation per step: many runs can share a batch
    slow: ClassVar[bool] = False  # ends near the minimum, not at it: steps have a length of their own
    error_bars: ClassVar[bool] = False  # adds covariance and standard errors
    resumable: ClassVar[bool] = True  # stops between steps: callbacks, checkpoints
    confirmed: ClassVar[bool] = True  # what it calls converged is looked at from outside (confirm.py)
    batch: ClassVar[int | None] = None  # rows of a mini-batch; None: all
    repeats: ClassVar[int] = 1  # evaluations of a mini-batch

    def __post_init__(self):
        if self.maxiter < 1:
            raise ValueError(f"{self.name}: maxiter={self.maxiter} must be at least 1.")
        for tolerance in ("ftol", "gtol", "xtol"):
            if not getattr(self, tolerance) >= 0:
                raise ValueError(f"{self.name}: {tolerance}={getattr(self, tolerance)} must be zero or positive.")

    @property
    def tolerated(self) -> tuple[float, float]:
        """What its tolerances leave: of the value, as a share, and of the coordinates, beside their size."""
        # a gradient smaller by a factor promises a gain smaller by its square; that it is nearly so is enough
        return max(10 * self.ftol, 10 * self.gtol**1.5), max(self.xtol, self.gtol if self.slow else 0.0)

    @property
    def differentiates(self) -> bool:
        """Whether a run uses gradients, which a certificate vouches for."""
        return self.needs != "value"

    def describe(self) -> str:
        """Return name and options, as stored in a Result."""
        shown = ", ".join(f"{f.name}={getattr(self, f.name)!r}" for f in fields(self) if f.repr)
        return f"{self.name}({shown})"

    def check(self, problem: Problem) -> None:  # noqa: B027 (most solvers take any problem)
        """Raise for a problem that this solver cannot take, beyond what its declarations say."""

    def solve(self, task: Task) -> Finish:
        """Minimise."""
        raise TypeError(f"{type(self).__name__} must define solve")

    def extras(self, task: Task, params: Any, finish: Finish) -> tuple[dict[str, Any], str]:
        """Return the solver's own fields of the Result at the answer, and what to know about them."""
        return {}, ""


@partial(jax.jit, static_argnums=0)
def evaluate(needs: str, space: Space, objective: Objective, z: jax.Array, key: Any) -> Any:
    """Return what a solver needs at coordinates z: ValueAndGrad, Gram, residuals, or the value alone."""
    if needs == "value":
        return reduce.value(objective, space.unpack(z), key).astype(z.dtype)
    if needs == "residuals":
        return residuals(objective.mesh, objective.terms, space.unpack(z), key)
    if needs == "gram":
        return gram(objective, space, z, key)
    return value_and_grad_parts(space, objective, z, key)[0]


def value_and_grad_parts(space: Space, objective: Objective, z: jax.Array, key: Any) -> tuple[ValueAndGrad, dict]:
    """Return value and gradient at z, and the unweighted losses by name, which come at no cost."""
    params, pull = jax.vjp(space.unpack, z)
    value, gradient, losses = reduce.value_grad_losses(objective.mesh, objective.terms, params, key)
    return ValueAndGrad(value.astype(z.dtype), pull(gradient)[0]), named_parts(objective.names, losses)


evaluate_parts = jax.jit(value_and_grad_parts)


def options_of(factory: Any) -> set[str]:
    """Return the option names a solver class takes."""
    return {f.name for f in fields(factory) if f.init}


def check_options(name: str, factory: Any, options: dict) -> None:
    """Raise for an option the solver does not have, suggesting the nearest, and for a text in place of a number."""
    known = taken_by(factory)
    for option, value in options.items():
        if option not in known:
            raise TypeError(f"solver {name!r} has no option {option!r}.{suggestion(option, known)}")
        if isinstance(value, str) and known[option].kind.take(value) is REFUSED:
            raise TypeError(f"solver {name!r}: {option} = {value!r} must be {known[option].kind.words()}.")
