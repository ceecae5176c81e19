"""Covariance of parameters from the curvature at an answer: the normal equations' matrix, or the Hessian."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from shardfit.core.equations import parameter_slopes
from shardfit.core.factor import Factored, factored, singular
from shardfit.core.fast_compile import unoptimised_jit
from shardfit.core.gram import Gram, gram, of_derivatives
from shardfit.core.mesh import everywhere
from shardfit.core.objective import Objective, normalised
from shardfit.core.params import Space
from shardfit.core.problem import Problem
from shardfit.core.robust_terms import is_robust, n_robust, scores, with_whole_curvature
from shardfit.core.rules import called
from shardfit.core.terms import RowTerm, numbers_in

__all__ = ["Covariance", "ErrorBars", "covariance", "normalised", "standard_errors"]


class Covariance(NamedTuple):
    """matrix (p, p), stderr (p,), rank, and the residual variance the matrix was multiplied with.

    Parameters the data do not identify have an infinite variance and standard error, and zero covariances: what is
    known about the others stays usable. lowest: least curvature over the largest, in units in which every parameter
    alone has curvature 1; clearly below zero away from a minimum.
    """

    matrix: jax.Array
    stderr: jax.Array
    rank: jax.Array
    variance: jax.Array
    lowest: jax.Array


class ErrorBars(NamedTuple):
    """A Result's fields, what to know about them, and how far from the minimum the answer is, in standard errors."""

    fields: dict[str, Any]
    note: str
    lowest: float = 0.0
    distance: float = 0.0


SANDWICH = "Standard errors are those of the scatter of the data (sandwich), whatever their own errors say."
REJECTED = 3.0  # standard errors by which data must push a coordinate out of its box, for its bound to count as known


class _Here(NamedTuple):
    """Errors of all parameters at an answer, and which coordinates they take as free to move."""

    errors: Covariance
    dof: jax.Array
    distance: jax.Array
    moves: jax.Array


def covariance(gram_matrix, dof, value, scale, root=None) -> Covariance:
    """Return the covariance (JᵀJ)⁻¹, times the residual variance 2·value/dof if scale.

    gram_matrix: (p, p) JᵀJ at the answer, or a Hessian; value: ½Σr² there; dof: rows less parameters. Use scale=False
    where residuals are in units of known standard deviations. With dof ≤ 0 a residual variance does not exist: it is
    infinite. root: (m, p) with rootᵀ·root = JᵀJ, where there is one: it tells directions apart that JᵀJ has lost.

    Example: `covariance(gram.matrix, n_rows - 4, gram.value, scale=True).stderr`.
    """
    p, dtype = gram_matrix.shape[0], gram_matrix.dtype
    lengths = jnp.sqrt(jnp.abs(jnp.diag(gram_matrix)))
    unit = jnp.where(lengths > 0, lengths, 1)
    # unit columns: rank is then a matter of directions, not of the parameters' units
    if root is None:
        size, direction = jnp.linalg.eigh(gram_matrix / jnp.outer(unit, unit))
        known = size > p * jnp.finfo(dtype).eps * size[-1]
    else:
        _, stretch, turn = jnp.linalg.svd(root / unit, full_matrices=False)
        size, direction = stretch[::-1] ** 2, turn[::-1].T
        known = stretch[::-1] > singular(p, dtype) * stretch[0]
    inverse = (direction * jnp.where(known, 1 / jnp.where(known, size, 1), 0)) @ direction.T
    # how much of each parameter lies in directions without information; rounding leaves a little in all of them
    lost = jnp.sum(jnp.where(known, 0, direction**2), axis=1) > jnp.sqrt(jnp.finfo(dtype).eps)
    some = jnp.asarray(dof) > 0
    variance = jnp.where(scale, jnp.where(some, 2 * value / jnp.where(some, dof, 1), jnp.inf), 1)
    identified = ~(lost[:, None] | lost[None, :])
    finite = jnp.where(identified, inverse / jnp.outer(unit, unit), 0)
    matrix = jnp.where(finite == 0, 0, variance * finite)
    matrix = matrix + jnp.diag(jnp.where(lost, jnp.inf, 0))
    lowest = size[0] / jnp.where(size[-1] > 0, size[-1], 1)
    return Covariance(matrix, jnp.sqrt(jnp.diag(matrix)), jnp.sum(known), jnp.asarray(variance, dtype), lowest)


def count_residuals(objective: Objective, params: Any) -> Any:
    """Return how many residuals there are, less eliminated parameters; copies that pad a shard are not counted."""
    total = 0
    for term in objective.terms:
        if isinstance(term, RowTerm):
            total += term.n_residuals(params)
        else:
            total += numbers_in(jax.eval_shape(lambda p, t: called(t.fn, p, *t.args), params, term))
    return total


def standard_errors(
    problem: Problem,
    placed: Objective,
    params: Any,
    scale: bool,
    curvature: Callable[..., Gram | Factored] = factored,
    known: Gram | Factored | None = None,
) -> ErrorBars:
    """Return a Result's covariance, stderr and dof at the answer, and what to know about them.

    scale: multiply by the residual variance. curvature(objective, space, z, None) gives value, gradient and matrix: the
    normal equations, or the Hessian; known: what it gives at the answer, where a solver has it already. Covariance and
    stderr are for all parameters. Held numbers are taken as known: their rows and columns of the covariance are zero.
    So are those at a bound that the data push outside by more than three standard errors. Others at a bound may as well
    lie inside of it: the covariance is the one without the bound, so that the errors of what they trade off against are
    not too small. None of these is a parameter in the degrees of freedom. A held number has the standard error 0, one
    at a bound NaN: what lies on one side only has no plus and minus, see `confidence`.
    """
    space = problem.space
    z = space.host_z(params)
    held = [f"Held, so without error: {_names(space.held_labels())}."] if space.held_labels() else []
    if space.ties:
        held.append(f"Tied, with errors of what they follow: {_names(space.tied_labels())}.")
    if not z.size:
        size = sum(leaf.size for leaf in jax.tree.leaves(params))
        return ErrorBars(_fields(np.zeros((size, size), z.dtype), np.zeros(size, z.dtype), params), held[0])
    robust = is_robust(problem.objective)
    scale = scale and not robust
    if robust and not of_derivatives(problem.objective):
        return ErrorBars({"dof": None}, "No standard errors: beside a robust loss all terms must be residual terms.")
    bound = at_bound(problem, z)
    unknown = uncounted(problem.objective)
    if scale and unknown:
        return ErrorBars({"dof": None}, _how_to_count(unknown[0]))
    here = jax.device_get(errors_at(curvature, space, placed, known, z, bound if bound.any() else None, scale))
    errors, n_free, dof = here.errors, int(np.sum(~bound)), None if unknown else int(here.dof)
    if scale and (dof is None or dof <= 0):
        return ErrorBars({"dof": dof}, f"No standard errors: {(dof or 0) + n_free} residuals for {n_free} parameters.")
    notes = ["Standard errors are scaled by the reduced χ²."] if scale else [SANDWICH] if robust else []
    if int(errors.rank) < (n_moves := int(np.sum(here.moves))):
        notes.append(f"The data determine {int(errors.rank)} of {n_moves} directions: others have infinite errors.")
    notes += held + _at_bounds(space, bound, here.moves)
    fields = _fields(errors.matrix, errors.stderr, params) | {"dof": dof}
    return ErrorBars(fields, " ".join(notes), float(errors.lowest), float(here.distance))


def _at_bounds(space: Space, bound: np.ndarray, moves: np.ndarray) -> list[str]:
    """Return in words what the errors of the others assume of the coordinates at a bound."""
    labels = np.array(space.coordinate_labels()) if bound.any() else np.zeros(0, str)
    kinds = {
        "At a bound, so taken as known in the covariance": bound & ~moves,
        "At a bound, and without it in the covariance, for the truth may lie inside": bound & moves,
    }
    return [f"{what}: {_names(list(labels[there]))}." for what, there in kinds.items() if there.any()]


def at_bound(problem: Problem, z: np.ndarray) -> np.ndarray:
    """Return which coordinates are on an end of the box."""
    return np.zeros(z.shape, bool) if problem.box is None else (z <= problem.box[0]) | (z >= problem.box[1])


def of_residuals(objective: Objective) -> bool:
    """Return whether every term is half a sum of squared residuals, and has normal equations."""
    return all(term.least_squares for term in objective.terms)


def uncounted(objective: Objective) -> list[str]:
    """Return the terms of which it is not known how many residuals they are."""
    return [n for n, t in objective.items() if not (t.counted if isinstance(t, RowTerm) else t.least_squares)]


def _how_to_count(name: str) -> str:
    return (
        f"No standard errors: term {name!r} does not say how many residuals it stands for. Give "
        "NormalEquations(n_residuals=...), or absolute_sigma=True if residuals are in units of their noise."
    )


def _fields(matrix: np.ndarray, stderr: np.ndarray, params: Any) -> dict:
    leaves, tree = jax.tree.flatten(params)
    pieces = np.split(stderr, np.cumsum([leaf.size for leaf in leaves])[:-1])
    like_params = tree.unflatten([piece.reshape(leaf.shape) for piece, leaf in zip(pieces, leaves, strict=True)])
    return {"covariance": matrix, "stderr": like_params}


def _names(labels: list[str]) -> str:
    return ", ".join(labels[:8]) + (f" and {len(labels) - 8} more" if len(labels) > 8 else "")


def in_parameters(
    space: Space, z: jax.Array, inner: jax.Array, bound: jax.Array | None = None
) -> tuple[jax.Array, jax.Array]:
    """Return covariance (p, p) and standard errors (p,) of all parameters from the covariance of coordinates.

    inner: (n, n) at z, infinite on the diagonal where a coordinate is not identified; bound: (n,), True where a
    coordinate is at a bound. Parameters follow coordinates by the slope of the transforms (the delta method).
    """
    lost = jnp.isinf(jnp.diag(inner))
    slope = parameter_slopes(space, z)
    known = slope @ jnp.where(jnp.isinf(inner), 0, inner) @ slope.T
    reached = jnp.any((slope != 0) & lost, axis=1)
    outer = jnp.where(reached[:, None] | reached, 0, known) + jnp.diag(jnp.where(reached, jnp.inf, 0))
    stderr = jnp.sqrt(jnp.diag(outer))
    return outer, stderr if bound is None else jnp.where(jnp.any((slope != 0) & bound, axis=1), jnp.nan, stderr)


@partial(unoptimised_jit, static_argnums=0)
def errors_at(curvature, space, objective, known, z, bound, scale) -> _Here:
    """Return the covariance of all parameters at coordinates z; bound: which of these are at a bound, None for none.

    One program does all of it. Errors beside a robust loss are those of the sandwich.
    """
    robust = is_robust(objective)
    if robust:
        curvature, known, objective, scale = gram, None, with_whole_curvature(objective), False
    free = jnp.ones(z.shape, bool) if bound is None else ~bound
    residuals = 0 if uncounted(objective) else count_residuals(objective, space.unpack(z))
    dof = jnp.asarray(residuals - jnp.sum(free))
    equations = curvature(objective, space, z, None) if known is None else known
    errors = among(equations, free, dof, scale)
    lowest, moves = errors.lowest, free
    slope = jnp.where(free & jnp.isfinite(jnp.diag(errors.matrix)), equations.gradient, 0)
    # Newton's step in standard errors; scaled, the covariance holds the variance that the gradient lacks
    left = slope @ jnp.where(jnp.isinf(errors.matrix), 0, errors.matrix) @ slope
    distance = jnp.sqrt(jnp.maximum(left, 0)) / jnp.where(errors.variance > 0, errors.variance, 1)
    if bound is not None:
        moves = free | _may_be_inside(equations, bound, errors)
        errors = among(equations, moves, dof, scale)
    if robust:
        errors = _scattered(errors, scores(objective, space, z), n_robust(objective, space.unpack(z)))
    outer, stderr = in_parameters(space, z, errors.matrix, bound)
    told = Covariance(outer, stderr, errors.rank - jnp.sum(~moves), errors.variance, lowest)
    return everywhere(_Here(told, dof, distance, moves), objective.mesh)


def _scattered(errors: Covariance, spread: jax.Array, n: Any) -> Covariance:
    """Return the covariance from the curvature's inverse and the scatter of the gradient, the sandwich (Huber 1967).

    n: number of residuals; as many as there are parameters have adapted to them.
    """
    lost = jnp.isinf(errors.matrix)
    inverse = jnp.where(lost, 0, errors.matrix)
    taken = jnp.sum(jnp.diag(inverse) > 0)
    matrix = inverse @ spread @ inverse * (n / jnp.maximum(n - taken, 1))
    return errors._replace(matrix=jnp.where(lost, jnp.inf, matrix))


def among(equations: Gram | Factored, moves: jax.Array, dof: Any, scale: Any) -> Covariance:
    """Return the covariance of coordinates of which some move, zero for the others."""
    # a unit of its own for what does not move: it takes no part, and the shape stays
    own = jnp.diag(jnp.where(moves, 0, 1).astype(equations.matrix.dtype))
    matrix = jnp.where(moves[:, None] & moves, equations.matrix, own)
    root = jnp.concatenate([jnp.where(moves, equations.root, 0), own]) if isinstance(equations, Factored) else None
    errors = covariance(matrix, dof, equations.value, scale, root)
    return errors._replace(matrix=jnp.where(moves[:, None] & moves, errors.matrix, 0))


def _may_be_inside(equations: Gram | Factored, bound: jax.Array, errors: Covariance) -> jax.Array:
    """Return which coordinates at a bound the data push outside by few standard errors, so that they may lie inside.

    errors: of the others with these held. All or none of them, where the objective curves downwards between them.
    """
    matrix, lengths = equations.matrix, jnp.sqrt(jnp.abs(jnp.diag(equations.matrix)))
    variance = jnp.where(errors.variance > 0, errors.variance, 1)
    inverse = jnp.where(jnp.isinf(errors.matrix), 0, errors.matrix) / variance
    left = jnp.where(bound[:, None] & bound, matrix - matrix @ inverse @ matrix, 0)  # with the others fitted again
    blurred = jnp.sqrt(jnp.finfo(matrix.dtype).eps) * lengths**2
    pushed = equations.gradient**2 > REJECTED**2 * variance * jnp.maximum(jnp.diag(left), blurred)
    inside = bound & ~pushed & (lengths > 0)
    unit = jnp.where(inside, lengths, jnp.inf)
    lowest = jnp.linalg.eigvalsh(left / jnp.outer(unit, unit))[0]
    return inside & (lowest > -jnp.sqrt(jnp.finfo(matrix.dtype).eps))
