import collections
import enum
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from scipy.optimize import minimize

import shardfit as sf
from shardfit.solve.base import Finish, evaluate

RATE, steps, ahead = 0.05, 2, None


class Mode(enum.Enum):
    PLAIN = 1.0
    SLOW = 0.5


Memory = collections.namedtuple("Memory", "x value")


class Chosen(list):
    """Options in a list of its own class."""

    tolerance: float


CHOSEN = Chosen(["BFGS"])
CHOSEN.tolerance = 1e-6


def by_scipy(value_and_grad, x0, *, maxiter, tol, callback):
    return minimize(value_and_grad, x0, jac=True, method=CHOSEN[0], tol=CHOSEN.tolerance, callback=callback).x


@dataclass(frozen=True)
class Walk(sf.HostSolver):
    """Steepest descent on the host."""

    mode: Mode = Mode.PLAIN
    name: ClassVar[str] = "walk"

    def minimise(self, function, z0, lower, upper):
        memory = Memory(np.array(z0), np.inf)
        for _ in range(self.maxiter):
            value, gradient = function(memory.x)
            memory = Memory(memory.x - RATE * self.mode.value * gradient, value)
            function.step(memory.x)
        return function.best_z, sf.Status.MAX_STEPS, function.steps, ""


@dataclass(frozen=True)
class Once(sf.Solver):
    """One step of steepest descent, without either loop."""

    rates: dict = field(default_factory=lambda: {"plain": RATE}, hash=False)
    name: ClassVar[str] = "once"
    resumable: ClassVar[bool] = False

    def solve(self, task):
        first = evaluate("value_and_grad", task.space, task.objective, task.z0, None)
        z = np.asarray(task.z0 - self.rates["plain"] * first.gradient)
        value = float(evaluate("value", task.space, task.objective, z, None))
        return Finish(z, value, sf.Status.MAX_STEPS, 1, 2)
