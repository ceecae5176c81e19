"""What Gauss and Newton's step promises at an answer: all that residuals tell of curvature, in all directions at once.

Gradients over small distances see a few directions only, and none whose curvature lies below rounding of the largest.
Sums over rows see them all, by the triangular factor of the Jacobian, for as many parameters as a matrix is cheap for.
"""

from typing import Any

import jax
import numpy as np

from shardfit.core.factor import Factored, factored, singular
from shardfit.solve.covariance import of_residuals
from shardfit.solve.looking import Look

BLURRED = 1e3  # roundings by which coordinates are never known better
MOST = 64  # parameters
SHARES = (1.0, 0.3, 0.1)  # of the step that are tried


def applies(look: Look, free: np.ndarray) -> bool:
    """Return whether the objective is made of residuals, of not too many parameters, none of them on a bound."""
    return of_residuals(look.task.objective) and free.size <= MOST and bool(free.all())


def residual_step(look: Look, u: np.ndarray, value: float, allowed: float) -> tuple[np.ndarray, float]:
    """Return a point along the step from u and its value, if the step promises more than allowed and keeps to it."""
    here = _factored(look.space, look.task.objective, look.said(u))
    look.evaluations += 1
    if not isinstance(here, Factored) or not np.isfinite(here.root).all():
        return u, value
    root, along = np.asarray(here.root, float), np.asarray(here.along, float)
    lengths = np.linalg.norm(root, axis=0)
    unit = np.where(lengths > 0, lengths, 1)
    left, sizes, right = np.linalg.svd(root / unit)
    known = sizes > singular(len(unit), look.dtype) * sizes[0]
    told = left[:, known].T @ along
    if not 0.5 * float(told @ told) > allowed:
        return u, value
    step = -(right[known].T @ (told / sizes[known])) / unit
    for share in SHARES:
        trial = look.inside(u + share * step)
        there, _ = look(trial)
        if np.isfinite(there) and value - there > allowed:
            return trial, there
    return u, value


def rounding(look: Look, u: np.ndarray) -> float:
    """Return the value that rounding of the coordinates at u may make of residuals that vanish."""
    here = _factored(look.space, look.task.objective, look.said(u))
    sizes = np.sqrt(np.diag(np.asarray(here.matrix, float))) * np.abs(u)
    return 0.5 * (BLURRED * look.eps * float(np.sum(sizes))) ** 2


@jax.jit
def _factored(space: Any, objective: Any, u: Any) -> Any:
    return factored(objective, space, u, None)
