"""Evaluations around an answer, in scale-free coordinates: of value and gradient, or of values alone."""

from typing import Any

import jax
import numpy as np

from shardfit.core.mesh import first_says, spans_processes
from shardfit.solve.base import Task, evaluate_parts
from shardfit.solve.points import values_at
from shardfit.solve.scale import Scaled

SHORTER = 4  # distances tried


class Look:
    """Values and gradients; on several processes the first says where."""

    blur = 0.0  # error of slopes beyond rounding

    def __init__(self, task: Task, z: np.ndarray, scale: np.ndarray):
        self.box = (None, None) if task.box is None else tuple(np.asarray(end, z.dtype) for end in task.box)
        self.space, self.task, self.scale = Scaled(task.space, scale, *self.box), task, scale
        self.followed, self.evaluations = spans_processes(task.objective.mesh), 0
        self.dtype, self.eps = z.dtype, float(np.finfo(z.dtype).eps)
        self.lower, self.upper = (None, None) if task.box is None else (end / scale for end in self.box)

    def rescaled(self, z: np.ndarray, scale: np.ndarray) -> "Look":
        """Return the same in another scale."""
        other = type(self)(self.task, z, scale)
        other.evaluations = self.evaluations
        return other

    def __call__(self, u: np.ndarray) -> tuple[float, np.ndarray]:
        """Return value and gradient at u."""
        self.evaluations += 1
        here, _ = evaluate_parts(self.space, self.task.objective, self.said(u), None)
        return float(here.value), np.asarray(here.gradient, float)

    def said(self, u: np.ndarray) -> np.ndarray:
        """Return where to evaluate."""
        u = np.asarray(u, self.dtype)
        return first_says(u, self.task.objective.mesh) if self.followed else u

    def settled(self, u: np.ndarray, value: float, gradient: np.ndarray, much: float) -> np.ndarray:
        """Return the gradient at u, over distances at which the value changes by less than `much`."""
        return gradient

    def curvature_distance(self, central: bool) -> float:
        """Return over what distance, beside the size of coordinates, gradients tell the curvature."""
        return self.eps ** (1 / 3 if central else 0.45)

    def inside(self, u: np.ndarray) -> np.ndarray:
        """Return the nearest point within the bounds."""
        return u if self.lower is None else np.clip(u, self.lower, self.upper)

    def free(self, u: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        """Return which coordinates may move downhill."""
        if self.lower is None:
            return np.ones(u.size, bool)
        return ~(((u <= self.lower) & (gradient > 0)) | ((u >= self.upper) & (gradient < 0)))


class LookByValues(Look):
    """The same of an objective that may have no derivatives: slopes are central differences, 2n evaluations each."""

    def __init__(self, task: Task, z: np.ndarray, scale: np.ndarray):
        super().__init__(task, z, scale)
        size = np.maximum(1.0, np.abs(np.asarray(z / scale, float)))
        self.distances = size * self.eps ** (1 / 3)

    def __call__(self, u: np.ndarray) -> tuple[float, np.ndarray]:
        """Return value and gradient at u."""
        return self._differences(u)[:2]

    def _differences(self, u: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        """Return value, slopes, and by how much the value changed at most in each coordinate."""
        u = np.asarray(self.said(u), float)
        steps = np.diag(self.distances)
        points = np.concatenate([u[None], self.inside(u + steps), self.inside(u - steps)]).astype(self.dtype)
        values = np.asarray(_values(self.space, self.task.objective, points), float)
        self.evaluations += len(points)
        value, (above, below) = float(values[0]), np.split(values[1:], 2)
        ends = [np.diag(half).astype(float) for half in np.split(points[1:], 2)]
        # where one side has no value the other tells
        above, ends[0] = (np.where(np.isfinite(above), one, here) for one, here in ((above, value), (ends[0], u)))
        below, ends[1] = (np.where(np.isfinite(below), one, here) for one, here in ((below, value), (ends[1], u)))
        apart = ends[0] - ends[1]
        slopes = np.where(apart > 0, (above - below) / np.where(apart > 0, apart, 1), 0)
        self.blur = self.eps * abs(value) / float(np.min(self.distances))
        return value, slopes, np.maximum(np.abs(above - value), np.abs(below - value))

    def settled(self, u: np.ndarray, value: float, gradient: np.ndarray, much: float) -> np.ndarray:
        """Shorten the distances until the value changes little."""
        for _ in range(SHORTER):
            _, gradient, changes = self._differences(u)
            if not (changes > much).any():
                break
            self.distances = np.where(changes > much, 0.1 * self.distances, self.distances)
        return gradient

    def curvature_distance(self, central: bool) -> float:
        """Return a longer distance: differences of differences lose more digits."""
        return self.eps**0.25


@jax.jit
def _values(space: Any, objective: Any, points: Any) -> jax.Array:
    return values_at(space, objective, points, None)
