"""The frame of perturbed refits: coordinates u around the mode in which the posterior is close to a unit Gaussian.

z = center + root · u, where root · rootᵀ is the inverse of the normal equations' matrix at the mode. Refits in u start
near their answers, need few steps, and their tolerances are in standard deviations.
"""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import register_dataclass

from shardfit.core.current import working_on_it
from shardfit.core.gram import gram
from shardfit.core.objective import Objective
from shardfit.core.params import Space
from shardfit.core.problem import Problem
from shardfit.fitting import fit
from shardfit.sampling.density import parameters_of, values_on_z
from shardfit.sampling.run_arrays import read_run_arrays, write_run_arrays
from shardfit.solve.base import value_and_grad_parts

DENSE = 1000  # coordinates up to which the matrix is formed; beyond, u are the coordinates themselves, shifted
SMALL = 300  # coordinates up to which Levenberg–Marquardt finds the mode
NEAR = 0.1  # standard deviations between the fit's answer and the mode
FLAT = 1e-13  # curvature, relative to the largest, that rounding leaves of none


@register_dataclass
@dataclass(frozen=True, eq=False)
class Frame:
    """Coordinates u (n,) of a space. center: (n,); root: (n, n), or (n,) where it is diagonal."""

    space: Space
    center: Any
    root: Any

    def z(self, u: Any) -> Any:
        """Return coordinates of the space, u: (..., n)."""
        return self.center + (u @ self.root.T if self.root.ndim == 2 else self.root * u)

    def params(self, u: Any) -> Any:
        """Return the parameters at u (n,)."""
        return self.space.unpack(self.z(u))


@working_on_it
def find_frame(problem: Problem, mesh: Any, kept: Path, run: str) -> Frame:
    """Fit the problem, of residuals in unconstrained coordinates, and return the frame around its answer.

    kept: file for the frame, so that a later call of the same run, named by its digest, has the same to the bit.
    """
    if kept.is_file():
        arrays = read_run_arrays(kept, run, "Start anew with resume='never'.")
        return Frame(problem.space, arrays["center"], arrays["root"])
    small = problem.space.size <= SMALL
    options = {} if small else {"maxiter": 5000, "ftol": 1e-12, "gtol": 1e-6}
    result = fit(problem, "lm" if small else "lbfgs", mesh=mesh, progress=False, **options)
    z = problem.space.host_z(result.params)
    placed = problem.objective.place(mesh)
    root, near = np.ones_like(z), NEAR
    if z.size <= DENSE:
        equations = jax.device_get(_equations(placed, problem.space, z))
        root = _root(problem, equations.matrix).astype(z.dtype)
        gradient = root.T @ equations.gradient
    else:
        gradient = np.asarray(_gradient(placed, problem.space, z))
        near *= np.sqrt(z.size)
    left = float(np.linalg.norm(gradient))
    if not left <= near:
        raise ValueError(
            f"rto: the fit that comes first ended {left:.2g} standard deviations from the mode ({result.message}) "
            "Start from a better x0, such as the answer of a longer fit."
        )
    write_run_arrays(kept, {"center": z, "root": root}, run)
    return Frame(problem.space, z, root)


def _root(problem: Problem, matrix: np.ndarray) -> np.ndarray:
    """Return a root (n, n) of the inverse; raise where neither data nor priors determine a direction."""
    if not np.isfinite(matrix).all():
        raise ValueError("rto: the derivatives are not finite at the mode. Bound or transform the parameters.")
    scale = np.sqrt(np.maximum(np.diag(matrix), np.finfo(matrix.dtype).tiny ** 0.5))
    size, direction = np.linalg.eigh(matrix / np.outer(scale, scale))
    flat = size <= max(FLAT, len(size) * float(np.finfo(matrix.dtype).eps)) * size[-1]
    if flat.any():
        involved = np.abs(direction[:, flat]).max(1) > 0.1
        labels = np.array(problem.space.coordinate_labels())[involved]
        raise ValueError(
            f"rto: the posterior is improper: neither data nor priors determine {', '.join(labels[:6])} (together). "
            "Give Gaussian priors, or hold some: fixed=[...]."
        )
    return direction / np.sqrt(size) / scale[:, None]


@jax.jit
def _equations(objective: Objective, space: Space, z: jax.Array) -> Any:
    return gram(objective, space, z, None)


@jax.jit
def _gradient(objective: Objective, space: Space, z: jax.Array) -> jax.Array:
    return value_and_grad_parts(space, objective, z, None)[0].gradient


@partial(jax.jit, static_argnums=2)
def at_draws(frame: Frame, u: jax.Array, fn: Any, *args: Any) -> Any:
    """Return fn(frame, u, *args) at every u of (draws, n), a few at a time."""
    return jax.lax.map(lambda one: fn(frame, one, *args), jnp.asarray(u), batch_size=8)


@working_on_it
def points_of(problem: Problem, z: np.ndarray) -> tuple[np.ndarray, Any]:
    """Return -log density (draws,) and parameters, leaves (draws, *shape), at coordinates z (draws, n)."""
    space = problem.space
    values = values_on_z(problem.objective.place(None), space, jnp.asarray(z))
    return np.asarray(values), jax.tree.map(np.asarray, parameters_of(space, z))
