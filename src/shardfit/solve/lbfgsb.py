"""scipy's L-BFGS-B: bounds, and the reference the others are measured against."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from shardfit.core.status import Status
from shardfit.solve.host import HostSolver, Outcome
from shardfit.solve.lbfgs import FLAT


@dataclass(frozen=True)
class LBFGSB(HostSolver):
    """L-BFGS-B on the host, with box bounds.

    memory: stored pairs. ftol: relative change of the value; gtol: largest component of the projected gradient,
    relative to that at the start; gatol: the same, absolute, for values that have a natural unit.
    """

    gtol: float = 1e-8
    gatol: float = 0.0  # type: ignore[misc]
    memory: int = 10
    bounded: ClassVar[bool] = True
    name: ClassVar[str] = "lbfgsb"
    scaled: ClassVar[bool] = True

    def vectors(self):
        """Return the stored pairs, scipy's workspace, and what is kept of the best and the last point."""
        return 2 * self.memory + 18

    def minimise(self, function, z0, lower, upper):
        """Run scipy.optimize.minimize(method='L-BFGS-B')."""
        from scipy.optimize import Bounds, minimize

        units = Units(lower, upper, np.finfo(function.dtype).eps, self.gatol)
        previous, values = [np.array(z0)], [np.inf]
        reached: list[Status] = []

        def in_units(z):
            return units(z, *function(z))

        def each_step(z):
            change, gain = np.max(np.abs(z - previous[0]), initial=0.0), values[0] - function.best_value
            previous[0], values[0] = np.array(z), function.best_value
            # scipy takes the value's change relative to 1 where the value is smaller
            if gain <= self.ftol * abs(values[0]) and self.ftol > 0:
                reached.append(Status.CONVERGED_VALUE)
            elif self.xtol > 0 and change <= self.xtol * np.max(np.abs(z), initial=0.0):
                reached.append(Status.CONVERGED_STEP)
            if reached:
                raise StopIteration
            function.step(z)

        options = {
            "maxiter": self.maxiter,
            "maxfun": np.iinfo(np.int32).max,
            "ftol": 0.0,
            "gtol": self.gtol,
            "maxcor": self.memory,
        }
        bounds = None if lower is None else Bounds(lower, upper)
        how = {"method": "L-BFGS-B", "bounds": bounds, "callback": each_step, "options": options}
        # its vectors are short: threads would spend far more time waiting for each other than working
        with _blas().limit(limits=1):
            answer = minimize(in_units, z0, jac=True, **how)
        if reached:
            return Outcome(answer.x, reached[0], answer.nit)
        text = str(answer.message).upper()
        if answer.success:
            status = Status.CONVERGED_GRADIENT if "GRADIENT" in text else Status.CONVERGED_VALUE
        else:
            status = Status.MAX_STEPS if answer.status == 1 else Status.STALLED
        return Outcome(answer.x, status, answer.nit)


class Units:
    """Value and gradient in units of the start's, for solvers whose tolerances and first steps are not relative."""

    def __init__(self, lower: Any, upper: Any, eps: Any, gatol: float):
        self.lower, self.upper, self.eps, self.gatol = lower, upper, eps, gatol
        self.unit = 0.0

    def __call__(self, z: np.ndarray, value: float, gradient: np.ndarray) -> tuple[float, np.ndarray]:
        """Return both in the unit; a gradient that is rounding of the value as zero."""
        if self.unit == 0:
            largest = np.max(np.abs(self._free(z, gradient)), initial=0.0)
            self.unit = float(largest or np.max(np.abs(gradient), initial=0.0) or abs(value) or 1.0)
        free = np.abs(self._free(z, gradient))
        flat = np.max(free * np.maximum(np.abs(z), 1), initial=0.0)
        if np.max(free, initial=0.0) <= self.gatol or flat <= FLAT * self.eps * abs(value):
            return value / self.unit, np.zeros_like(gradient)
        return value / self.unit, gradient / self.unit

    def _free(self, z: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        if self.lower is None:
            return gradient
        held = ((z <= self.lower) & (gradient > 0)) | ((z >= self.upper) & (gradient < 0))
        return np.where(held, 0, gradient)


@lru_cache(maxsize=1)
def _blas() -> Any:
    """Return the handle on the linear algebra library's threads; finding it takes milliseconds, once."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api="blas")
