"""L-BFGS for velocity models: cells that are held, bounds by projection, and an initial inverse Hessian.

The gradient stays the misfit's own. What `Conditioning` does to it for first-order methods is here the operator
P = D G D that two-loop recursions begin with: D holds mask and the root of the weights, G smooths. Where D is zero
nothing ever moves; cells that press against a bound are left out of a step.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from shardfit.core.status import Status
from shardfit.domains.seismic.conditioning import Conditioning
from shardfit.solve.host import HostSolver, Outcome

DECREASE = 1e-4  # share of the promised decrease that a step must bring
SHORTEST = 1e-3  # of a step, before the search along it is given up
Operator = Callable[[np.ndarray, np.ndarray], np.ndarray]  # (vector, cells that may move) → vector


@dataclass(frozen=True)
class PreconditionedLBFGS(HostSolver):
    """L-BFGS with bounds and a fixed preconditioner.

    scale: (n,) D above, zero where the model is held. smooth: a symmetric operator on (n,), G above; None for none.
    first: largest change of the first step, in the units of the model. memory: stored pairs. label: for the record.
    """

    scale: Any = field(default=None, kw_only=True, repr=False, compare=False)
    smooth: Callable | None = field(default=None, kw_only=True, repr=False, compare=False)
    first: float = field(default=40.0, kw_only=True)
    memory: int = field(default=10, kw_only=True)
    label: str = field(default="", kw_only=True)
    bounded: ClassVar[bool] = True
    name: ClassVar[str] = "preconditioned-lbfgs"

    def minimise(self, function, z0, lower, upper):
        """Step along preconditioned directions, projected onto the bounds."""
        lower, upper = (-np.inf, np.inf) if lower is None else (lower, upper)
        movable = np.asarray(self.scale) > 0
        x, pairs = np.array(z0), Pairs(self.memory, self._precondition)
        value, gradient = function(x)
        steps = 0
        while steps < self.maxiter:
            gradient = np.where(movable, gradient, 0.0)
            free = movable & ~((x <= lower) & (gradient > 0)) & ~((x >= upper) & (gradient < 0))
            if np.max(np.abs(gradient[free]), initial=0.0) <= self.gtol:
                return Outcome(x, Status.CONVERGED_GRADIENT, steps)
            direction = -pairs.solve(gradient, free)
            if not pairs.held:
                direction *= self.first / np.max(np.abs(direction))
            found = self._search(function, (x, value, gradient), direction, lower, upper)
            if found is None and pairs.held:
                pairs.forget()  # what was learnt elsewhere misleads here
                continue
            if found is None:
                return Outcome(x, Status.STALLED, steps, "No step along the gradient lowers the misfit.")
            ahead, new_value, new_gradient = found
            pairs.learn(ahead - x, np.where(movable, new_gradient, 0.0) - gradient)
            gain, (x, value, gradient) = value - new_value, (ahead, new_value, new_gradient)
            steps += 1
            function.step(x)
            if gain <= self.ftol * abs(value):
                return Outcome(x, Status.CONVERGED_VALUE, steps)
        return Outcome(x, Status.MAX_STEPS, steps)

    def _precondition(self, vector: np.ndarray, free: np.ndarray) -> np.ndarray:
        scaled = np.where(free, self.scale * vector, 0.0)
        return np.where(free, self.scale * (scaled if self.smooth is None else self.smooth(scaled)), 0.0)

    def _search(self, function, here: tuple, direction: np.ndarray, lower, upper) -> tuple | None:
        """Return the first point along a direction, bent at the bounds, that lowers the misfit enough."""
        x, value, gradient = here
        length = 1.0
        while length >= SHORTEST:
            ahead = np.clip(x + length * direction, lower, upper)
            promised = float(gradient @ (ahead - x))
            new_value, new_gradient = function(ahead)
            if promised < 0 and new_value <= value + DECREASE * promised:
                return ahead, new_value, new_gradient
            # the parabola through both values and the slope, kept within reason
            bend = new_value - value - promised
            length *= float(np.clip(-promised / (2 * bend), 0.1, 0.5)) if bend > 0 else 0.5
        return None


class Pairs:
    """Steps and changes of the gradient, of which the inverse Hessian is made."""

    def __init__(self, memory: int, precondition: Operator):
        self.memory, self.precondition = memory, precondition
        self.held: list[tuple[np.ndarray, np.ndarray]] = []

    def learn(self, step: np.ndarray, change: np.ndarray) -> None:
        """Keep a pair if curvature is positive along it."""
        if step @ change > 1e-10 * np.linalg.norm(step) * np.linalg.norm(change):
            self.held = [*self.held, (step, change)][-self.memory :]

    def forget(self) -> None:
        """Begin anew."""
        self.held = []

    def solve(self, gradient: np.ndarray, free: np.ndarray) -> np.ndarray:
        """Return the inverse Hessian times a gradient, among the cells that are free."""
        left = np.where(free, gradient, 0.0)
        among = [(np.where(free, s, 0.0), np.where(free, y, 0.0)) for s, y in self.held]
        among = [(s, y, s @ y) for s, y in among if s @ y > 0]
        shares = []
        for s, y, sy in reversed(among):
            shares.append(s @ left / sy)
            left = left - shares[-1] * y
        found = self.precondition(left, free)
        if among:
            s, y, sy = among[-1]
            found = found * (sy / (y @ self.precondition(y, free)))
        for (s, y, sy), share in zip(among, reversed(shares), strict=True):
            found = found + s * (share - y @ found / sy)
        return found


def preconditioned(
    how: Conditioning, mask: np.ndarray, weights: np.ndarray, typical: float, fields: int = 1, **options: Any
) -> PreconditionedLBFGS:
    """Return the solver that conditions as told, each of so many fields alike.

    mask, weights: (nz, nx); typical: velocity; 2 % may change first.
    """
    from scipy.ndimage import gaussian_filter

    def smooth(vector: np.ndarray) -> np.ndarray:
        each = vector.reshape(fields, *mask.shape)
        return np.stack([gaussian_filter(one, how.smoothing) for one in each]).ravel()

    return PreconditionedLBFGS(
        scale=np.tile((mask * np.sqrt(weights / weights.max())).ravel(), fields),
        smooth=smooth if how.smoothing else None,
        first=float(f"{0.02 * typical:.3g}"),
        label=str(how),
        **options,
    )
