"""Covariance of least-squares parameters from the normal equations' matrix."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from shardfit.core.objective import Objective
from shardfit.core.problem import Problem
from shardfit.core.rows import leading
from shardfit.core.terms import RowTerm


class Covariance(NamedTuple):
    """matrix (p, p), stderr (p,), rank, and the residual variance the matrix was multiplied with.

    Parameters the data do not identify have an infinite variance and standard error, and zero covariances: what is
    known about the others stays usable.
    """

    matrix: jax.Array
    stderr: jax.Array
    rank: jax.Array
    variance: jax.Array


def covariance(gram_matrix, dof, value, scale: bool) -> Covariance:
    """Return the covariance (JᵀJ)⁻¹, times the residual variance 2·value/dof if scale.

    gram_matrix: (p, p) JᵀJ at the answer; value: ½Σr² there; dof: rows less parameters. Use scale=False where residuals
    are in units of known standard deviations. With dof ≤ 0 a residual variance does not exist: it is infinite.

    Example: `covariance(gram.matrix, n_rows - 4, gram.value, scale=True).stderr`.
    """
    p, dtype = gram_matrix.shape[0], gram_matrix.dtype
    lengths = jnp.sqrt(jnp.diag(gram_matrix))
    unit = jnp.where(lengths > 0, lengths, 1)
    # unit columns: rank is then a matter of directions, not of the parameters' units
    size, direction = jnp.linalg.eigh(gram_matrix / jnp.outer(unit, unit))
    known = size > p * jnp.finfo(dtype).eps * size[-1]
    inverse = (direction * jnp.where(known, 1 / jnp.where(known, size, 1), 0)) @ direction.T
    # how much of each parameter lies in directions without information; rounding leaves a little in all of them
    lost = jnp.sum(jnp.where(known, 0, direction**2), axis=1) > jnp.sqrt(jnp.finfo(dtype).eps)
    some = jnp.asarray(dof) > 0
    variance = jnp.where(some, 2 * value / jnp.where(some, dof, 1), jnp.inf) if scale else jnp.ones((), dtype)
    identified = ~(lost[:, None] | lost[None, :])
    finite = jnp.where(identified, inverse / jnp.outer(unit, unit), 0)
    matrix = jnp.where(finite == 0, 0, variance * finite)
    matrix = matrix + jnp.diag(jnp.where(lost, jnp.inf, 0))
    return Covariance(matrix, jnp.sqrt(jnp.diag(matrix)), jnp.sum(known), jnp.asarray(variance, dtype))


def count_residuals(objective: Objective, params: Any) -> int:
    """Return how many residuals there are; copies that pad a shard are not counted."""
    total = jax.eval_shape(objective.residuals, params).shape[0]
    for name, term in objective.items():
        if isinstance(term, RowTerm) and term.counts is not None:
            present = leading(term.rows)
            alone = jax.eval_shape(objective.only(name).residuals, params).shape[0]
            total -= alone // present * (present - term.n_rows)
    return total


def standard_errors(
    problem: Problem, placed: Objective, params: Any, z: np.ndarray, absolute_sigma: bool | None
) -> tuple[dict, str]:
    """Return a Result's covariance and stderr fields at the answer, and what to know about them."""
    if absolute_sigma is None:
        terms = [t for t in problem.objective.terms if isinstance(t, RowTerm)]
        absolute_sigma = all(isinstance(t.rows, dict) and "sigma" in t.rows for t in terms)
    gram = placed.gram(params)
    n_params = gram.gradient.shape[0]
    n_residuals = count_residuals(placed, params)
    if not absolute_sigma and n_residuals <= n_params:
        return {}, f"No standard errors: {n_residuals} residuals for {n_params} parameters."
    found = covariance(gram.matrix, n_residuals - n_params, gram.value, scale=not absolute_sigma)
    notes = [] if absolute_sigma else ["Standard errors are scaled by the reduced χ²."]
    if int(found.rank) < n_params:
        notes.append(f"The data determine {int(found.rank)} of {n_params} directions: others have infinite errors.")
    if problem.box is not None and np.any((z <= problem.box[0]) | (z >= problem.box[1])):
        notes.append("A parameter is at its bound, where its standard error means little.")
    stderr = jax.tree.map(np.asarray, ravel_pytree(params)[1](found.stderr))
    return {"covariance": np.asarray(found.matrix), "stderr": stderr}, " ".join(notes)
