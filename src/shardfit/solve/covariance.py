"""Covariance of least-squares parameters from the normal equations' matrix."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from shardfit.core.gram import gram
from shardfit.core.objective import Objective
from shardfit.core.problem import Problem
from shardfit.core.rows import leading
from shardfit.core.terms import ResidualTerm, RowTerm


class Covariance(NamedTuple):
    """matrix (p, p), stderr (p,), rank, and the residual variance the matrix was multiplied with.

    Parameters the data do not identify have an infinite variance and standard error, and zero covariances: what is
    known about the others stays usable.
    """

    matrix: jax.Array
    stderr: jax.Array
    rank: jax.Array
    variance: jax.Array


def covariance(gram_matrix, dof, value, scale) -> Covariance:
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
    variance = jnp.where(scale, jnp.where(some, 2 * value / jnp.where(some, dof, 1), jnp.inf), 1)
    identified = ~(lost[:, None] | lost[None, :])
    finite = jnp.where(identified, inverse / jnp.outer(unit, unit), 0)
    matrix = jnp.where(finite == 0, 0, variance * finite)
    matrix = matrix + jnp.diag(jnp.where(lost, jnp.inf, 0))
    return Covariance(matrix, jnp.sqrt(jnp.diag(matrix)), jnp.sum(known), jnp.asarray(variance, dtype))


def count_residuals(objective: Objective, params: Any) -> Any:
    """Return how many residuals there are; copies that pad a shard are not counted."""
    total = 0
    for term in objective.terms:
        if isinstance(term, ResidualTerm):
            block = jax.eval_shape(lambda p, t: t.contributions(p, t.rows, None), params, term)
            n = leading(term.rows)
            total += _numbers(block) // n * (n if term.counts is None else jnp.sum(term.counts))
        else:
            total += _numbers(jax.eval_shape(lambda p, t: t.fn(p, *t.args), params, term))
    return total


def _numbers(residuals: Any) -> int:
    return sum(leaf.size * (2 if jnp.iscomplexobj(leaf) else 1) for leaf in jax.tree.leaves(residuals))


def standard_errors(
    problem: Problem, placed: Objective, params: Any, z: np.ndarray, absolute_sigma: bool | None
) -> tuple[dict, str]:
    """Return a Result's covariance and stderr fields at the answer, and what to know about them.

    Both are for all parameters. Numbers that are held, and those at a bound, are taken as known: their rows and columns
    of the covariance are zero, and they are no parameters in the degrees of freedom. A held number has the standard
    error 0, one at a bound NaN, for the data push it outside and say nothing of its error.
    """
    if absolute_sigma is None:
        terms = [t for t in problem.objective.terms if isinstance(t, RowTerm)]
        absolute_sigma = all(isinstance(t.rows, dict) and "sigma" in t.rows for t in terms)
    space = problem.space
    held = [f"Held, so without error: {_names(space.held_labels())}."] if space.held_labels() else []
    if not z.size:
        size = sum(leaf.size for leaf in jax.tree.leaves(params))
        return _fields(np.zeros((size, size), z.dtype), np.zeros(size, z.dtype), params), held[0]
    bound = np.zeros(z.shape, bool) if problem.box is None else (z <= problem.box[0]) | (z >= problem.box[1])
    n_free = int(np.sum(~bound))
    errors, dof = jax.device_get(_at(space, placed, z, ~bound, not absolute_sigma))
    if not absolute_sigma and dof <= 0:
        return {}, f"No standard errors: {dof + n_free} residuals for {n_free} parameters."
    notes = [] if absolute_sigma else ["Standard errors are scaled by the reduced χ²."]
    if int(errors.rank) < n_free:
        notes.append(f"The data determine {int(errors.rank)} of {n_free} directions: others have infinite errors.")
    notes += held
    if bound.any():
        at_bound = [name for name, there in zip(space.coordinate_labels(), bound, strict=True) if there]
        notes.append(f"At a bound, so taken as known in the covariance: {_names(at_bound)}.")
    return _fields(errors.matrix, errors.stderr, params), " ".join(notes)


def _fields(matrix: np.ndarray, stderr: np.ndarray, params: Any) -> dict:
    leaves, tree = jax.tree.flatten(params)
    pieces = np.split(stderr, np.cumsum([leaf.size for leaf in leaves])[:-1])
    like_params = tree.unflatten([piece.reshape(leaf.shape) for piece, leaf in zip(pieces, leaves, strict=True)])
    return {"covariance": matrix, "stderr": like_params}


def _names(labels: list[str]) -> str:
    return ", ".join(labels[:8]) + (f" and {len(labels) - 8} more" if len(labels) > 8 else "")


@jax.jit
def _at(space, objective, z, free, scale) -> tuple[Covariance, jax.Array]:
    """Return the covariance of all parameters at coordinates z, of which some are free, and the degrees of freedom.

    One program does all of it.
    """
    dof = jnp.asarray(count_residuals(objective, space.unpack(z)) - jnp.sum(free))
    equations = gram(objective, space, z, None)
    # a unit of its own for what is not free: it takes no part, and the shape stays
    matrix = jnp.where(free[:, None] & free, equations.matrix, jnp.diag(jnp.where(free, 0, 1).astype(z.dtype)))
    errors = covariance(matrix, dof, equations.value, scale)
    inner = jnp.where(free[:, None] & free, errors.matrix, 0)
    lost = jnp.isinf(jnp.diag(inner))

    def flat(z):
        return jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(space.unpack(z))])

    # parameters by coordinates: the unit matrix where nothing is transformed or held
    slope = jnp.eye(z.size, dtype=z.dtype) if space.plain else jax.jacfwd(flat)(z)
    known = slope @ jnp.where(jnp.isinf(inner), 0, inner) @ slope.T
    reached = jnp.any((slope != 0) & lost, axis=1)
    outer = jnp.where(reached[:, None] | reached, 0, known) + jnp.diag(jnp.where(reached, jnp.inf, 0))
    at_bound = jnp.any((slope != 0) & ~free, axis=1)
    stderr = jnp.where(at_bound, jnp.nan, jnp.sqrt(jnp.diag(outer)))
    answer = Covariance(outer, stderr, errors.rank - jnp.sum(~free), errors.variance), dof
    if objective.mesh is None:
        return answer
    # whole on every device: the host of each process reads it
    return jax.lax.with_sharding_constraint(answer, NamedSharding(objective.mesh, PartitionSpec()))
