"""scipy's L-BFGS-B: bounds, and the reference the others are measured against."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from shardfit.core.status import Status
from shardfit.solve.host import HostSolver, Outcome


@dataclass(frozen=True)
class LBFGSB(HostSolver):
    """L-BFGS-B on the host, with box bounds.

    memory: stored pairs. ftol: relative change of the value; gtol: largest component of the projected gradient.
    """

    memory: int = 10
    bounded: ClassVar[bool] = True
    name: ClassVar[str] = "lbfgsb"

    def vectors(self):
        """Return the stored pairs, scipy's workspace, and what is kept of the best and the last point."""
        return 2 * self.memory + 18

    def minimise(self, function, z0, lower, upper):
        """Run scipy.optimize.minimize(method='L-BFGS-B')."""
        from scipy.optimize import Bounds, minimize

        previous = [np.array(z0)]
        reached = []

        def each_step(z):
            change = np.max(np.abs(z - previous[0]), initial=0.0)
            previous[0] = np.array(z)
            if self.xtol > 0 and change <= self.xtol * np.max(np.abs(z), initial=0.0):
                reached.append(True)
                raise StopIteration
            function.step(z)

        options = {
            "maxiter": self.maxiter,
            "maxfun": np.iinfo(np.int32).max,
            "ftol": self.ftol,
            "gtol": self.gtol,
            "maxcor": self.memory,
        }
        bounds = None if lower is None else Bounds(lower, upper)
        # its vectors are short: threads would spend far more time waiting for each other than working
        with _blas().limit(limits=1):
            answer = minimize(
                function, z0, jac=True, method="L-BFGS-B", bounds=bounds, callback=each_step, options=options
            )
        if reached:
            return Outcome(answer.x, Status.CONVERGED_STEP, answer.nit)
        text = str(answer.message).upper()
        if answer.success:
            status = Status.CONVERGED_GRADIENT if "GRADIENT" in text else Status.CONVERGED_VALUE
        else:
            status = Status.MAX_STEPS if answer.status == 1 else Status.STALLED
        return Outcome(answer.x, status, answer.nit)


@lru_cache(maxsize=1)
def _blas() -> Any:
    """Return the handle on the linear algebra library's threads; finding it takes milliseconds, once."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api="blas")
