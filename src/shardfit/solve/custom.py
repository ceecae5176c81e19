"""Any callable as a solver: solver(value_and_grad, x0, *, maxiter, tol, callback)."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from shardfit.core.status import Status
from shardfit.solve.host import HostSolver, Outcome


@dataclass(frozen=True)
class Custom(HostSolver):
    """A user's minimiser.

    run(value_and_grad, x0, *, maxiter, tol, callback) works on flat NumPy vectors, calls callback(x) once per
    iteration, and returns the last x, or None to take the best point evaluated. Whether it converged is not assumed:
    the gradient at the best point is compared with gtol times that at the start, which is the tol it is given.
    """

    run: Callable | None = field(default=None, kw_only=True, repr=False)
    name: ClassVar[str] = "custom"

    def describe(self):
        """Return the callable's name and the options it is given."""
        return f"{getattr(self.run, '__qualname__', 'custom')}(maxiter={self.maxiter!r}, gtol={self.gtol!r})"

    def minimise(self, function, z0, lower, upper):
        """Run the callable, then judge the best point by its gradient."""
        assert self.run is not None
        tol = self.gtol * function.unit
        self.run(function, z0, maxiter=self.maxiter, tol=tol, callback=function.step)
        _, gradient = function(function.best_z)
        converged = np.max(np.abs(gradient)) <= tol
        status = Status.CONVERGED_GRADIENT if converged else Status.STALLED
        note = (
            ""
            if converged
            else f"The callable ended with a largest gradient component of {np.max(np.abs(gradient)):.2g}."
        )
        return Outcome(function.best_z, status, function.steps, note)
