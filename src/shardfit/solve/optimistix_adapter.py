"""Any optimistix minimiser or least-squares solver, unchanged."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np

from shardfit.core.status import Status
from shardfit.solve.base import Solver, evaluate
from shardfit.solve.loop import Finish


@dataclass(frozen=True)
class Optimistix(Solver):
    """An optimistix solver object, for example `optimistix.LevenbergMarquardt(rtol=1e-8, atol=1e-8)`.

    It runs as one compiled call, so there is no callback and no checkpoint; its own tolerances apply.
    """

    solver: Any = field(default=None, kw_only=True, repr=False)
    name: ClassVar[str] = "optimistix"

    def describe(self):
        """Return the solver's class and tolerances."""
        inner = self.solver
        return f"optimistix.{type(inner).__name__}(rtol={inner.rtol}, atol={inner.atol}, maxiter={self.maxiter})"

    @property
    def least_squares(self) -> bool:
        """Whether it wants residuals."""
        import optimistix

        return isinstance(self.solver, optimistix.AbstractLeastSquaresSolver)

    def solve(self, space, objective, z0, monitor) -> Finish:
        """Run the solver and translate its verdict."""
        import equinox
        import optimistix

        def residuals(z, objective):
            return objective.residuals(space.unpack(z))

        def value(z, objective):
            return objective.value(space.unpack(z))

        ask, fn = (optimistix.least_squares, residuals) if self.least_squares else (optimistix.minimise, value)
        run = equinox.filter_jit(
            lambda objective, z0: ask(fn, self.solver, z0, args=objective, max_steps=self.maxiter, throw=False)
        )
        began = monitor.trace.seconds()
        compiled = run.lower(objective, jnp.asarray(z0)).compile()
        compile_seconds = monitor.trace.seconds() - began
        found = compiled(objective, jnp.asarray(z0))
        steps = int(found.stats["num_steps"])
        z = np.asarray(found.value)
        point = evaluate("value_and_grad", space, objective, z, None)
        monitor.trace.extend(float(point.value), float(jnp.max(jnp.abs(point.gradient))), steps)
        return Finish(z, *_verdict(optimistix, found, steps, self.maxiter, point), compile_seconds, "")


def _verdict(optimistix, found, steps, limit, point):
    if not (bool(jnp.isfinite(point.value)) and bool(jnp.all(jnp.isfinite(point.gradient)))):
        status = Status.NONFINITE
    elif found.result == optimistix.RESULTS.successful:
        status = Status.CONVERGED_STEP
    elif steps >= limit:
        status = Status.MAX_STEPS
    else:
        status = Status.FAILED
    return status, steps, steps + 1
