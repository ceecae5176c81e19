"""Any optimistix minimiser or least-squares solver, unchanged."""

from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from shardfit.core import reduce
from shardfit.core.gram import residuals
from shardfit.core.status import Status
from shardfit.solve.base import Finish, Solver, Task, evaluate_parts
from shardfit.solve.sameness import Key


@dataclass(frozen=True)
class Optimistix(Solver):
    """An optimistix solver object, for example `optimistix.LevenbergMarquardt(rtol=1e-8, atol=1e-8)`.

    It runs as one compiled call, so there is no callback and no checkpoint; its own tolerances apply.
    """

    solver: Any = field(default=None, kw_only=True, repr=False, compare=False)
    key: Key = field(init=False, repr=False)  # stands for the solver: equal ones share a compiled call
    name: ClassVar[str] = "optimistix"
    resumable: ClassVar[bool] = False

    def __post_init__(self):
        super().__post_init__()
        object.__setattr__(self, "key", Key(self.solver))

    def describe(self):
        """Return the solver's class and tolerances."""
        inner = self.solver
        return f"optimistix.{type(inner).__name__}(rtol={inner.rtol}, atol={inner.atol}, maxiter={self.maxiter})"

    @property
    def tolerated(self) -> tuple[float, float]:
        """Its own relative tolerance, of values and of coordinates; absolute ones depend on units."""
        return 10 * float(self.solver.rtol), float(self.solver.rtol)

    @property
    def needs(self) -> str:  # type: ignore[override]
        """Residuals for a least-squares solver, else value and gradient."""
        import optimistix

        least_squares = isinstance(self.solver, optimistix.AbstractLeastSquaresSolver)
        return "residuals" if least_squares else "value_and_grad"

    def solve(self, task: Task) -> Finish:
        """Run the solver and translate its verdict."""
        import optimistix

        space, objective, trace = task.space, task.objective, task.monitor.trace
        z0, began = jnp.asarray(task.z0), trace.seconds()
        first, _ = evaluate_parts(space, objective, task.z0, None)
        before, evaluated = task.earlier
        trace.extend(float(first.value), float(jnp.max(jnp.abs(first.gradient))), before)
        if not evaluated:
            _solve.lower(self, space, objective, z0).compile()
        compile_seconds = trace.seconds() - began
        z, result, steps = _solve(self, space, objective, z0)
        z, steps = np.asarray(z), int(steps)
        point, _ = evaluate_parts(space, objective, z, None)
        value = float(point.value)
        trace.extend(value, float(jnp.max(jnp.abs(point.gradient))), before + steps)
        if not (np.isfinite(value) and bool(jnp.all(jnp.isfinite(point.gradient)))):
            status = Status.NONFINITE
        elif bool(result == optimistix.RESULTS.successful):
            status = Status.CONVERGED_STEP
        else:
            status = Status.MAX_STEPS if steps >= self.maxiter else Status.FAILED
        return Finish(z, value, status, before + steps, evaluated + steps + 2, compile_seconds)


@partial(jax.jit, static_argnums=0)
def _solve(how: Optimistix, space, objective, z0):
    import optimistix

    def all_residuals(z, at):
        space, objective = at
        return residuals(objective.mesh, objective.terms, space.unpack(z), None)

    def value(z, at):
        space, objective = at
        return reduce.value(objective, space.unpack(z), None)

    least_squares = how.needs == "residuals"
    question, fn = (optimistix.least_squares, all_residuals) if least_squares else (optimistix.minimise, value)
    solution = question(fn, how.solver, z0, args=(space, objective), max_steps=how.maxiter, throw=False)
    return solution.value, solution.result, solution.stats["num_steps"]
