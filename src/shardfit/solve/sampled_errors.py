"""Standard errors of very many parameters: solutions of the normal equations for random right-hand sides.

With u random signs of the residuals, Jᵀu has the covariance JᵀJ, so (JᵀJ)⁻¹Jᵀu has the covariance (JᵀJ)⁻¹ of the
parameters. The mean square of such draws is the variance, whatever the matrix is like.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from shardfit.core.evaluations import value as value_at
from shardfit.core.products import normal_product, of_signs
from shardfit.solve.base import Task
from shardfit.solve.covariance import count_residuals

EXACT = 1e-4  # of the right-hand side, that a solve may leave
FIRST_SIGNS = 8  # sets of signs for the diagonal that preconditions


class _Draw(NamedTuple):
    """A solution under way: what is left of the right-hand side, the next direction, and how much that is."""

    count: jax.Array
    found: jax.Array
    left: jax.Array
    along: jax.Array
    size: jax.Array


def preconditioner(diagonal: jax.Array) -> jax.Array:
    """Return an estimated diagonal of JᵀJ with a unit where nothing depends on a parameter."""
    return jnp.where(diagonal > 0, diagonal, 1)


def sampled_errors(task: Task, z: np.ndarray, draws: int, products: int, absolute: bool) -> tuple[dict[str, Any], str]:
    """Return a Result's fields with standard errors of all parameters, and what to know about them.

    draws: how many solutions; products: most conjugate gradients of each. absolute: residuals are in units of known
    errors.
    """
    problem, space, objective = task.problem, task.space, task.objective
    if space.shapes != space.inner_shapes:
        return {}, "No standard errors: a transform mixes parameters, which have no error each then."
    scale = not absolute
    params = space.host_params(z)
    dof = int(count_residuals(problem.objective, params)) - space.size
    if scale and dof <= 0:
        return {"dof": dof}, f"No standard errors: {dof + space.size} residuals for {space.size} parameters."
    key, here = jax.random.key(task.seed), jnp.asarray(z)
    signs = [np.asarray(_signs(space, objective, here, jax.random.fold_in(key, i))) for i in range(FIRST_SIGNS)]
    metric = preconditioner(jnp.asarray(np.mean(np.square(signs), axis=0)))
    idle = np.mean(np.square(signs), axis=0) == 0
    squares = jax.tree.map(lambda leaf: np.zeros(leaf.shape), params)
    for i in range(draws):
        drawn = _draw(space, objective, here, metric, jax.random.fold_in(key, FIRST_SIGNS + i), products)
        if int(drawn.count) >= products:
            return {"dof": dof}, (
                f"No standard errors: {products} conjugate gradients do not solve the normal equations. Raise "
                "products, or add a residual_penalty for what the data do not determine."
            )
        squares = jax.tree.map(lambda s, d: s + np.asarray(d, float) ** 2, squares, _along(space, here, drawn.found))
    factor = 2 * float(value_at(objective, params, None)) / dof if scale else 1.0
    lost = _along(space, here, idle.astype(z.dtype))
    stderr = jax.tree.map(
        lambda s, d: np.where(np.asarray(d) != 0, np.inf, np.sqrt(factor / draws * s)).astype(z.dtype), squares, lost
    )
    scaled = " They are scaled by the reduced χ²." if scale else ""
    note = f"Standard errors are those of {draws} sampled solves, uncertain by {(2 * draws) ** -0.5:.0%}.{scaled}"
    return {"stderr": stderr, "dof": dof}, note


@jax.jit
def _along(space: Any, z: jax.Array, direction: jax.Array) -> Any:
    """Return how all parameters, held and tied ones too, change along a direction of coordinates."""
    return jax.jvp(space.unpack, (z,), (direction,))[1]


@jax.jit
def _signs(space: Any, objective: Any, z: jax.Array, key: Any) -> jax.Array:
    return of_signs(objective, space, z, key)


@jax.jit
def _draw(space: Any, objective: Any, z: jax.Array, metric: jax.Array, key: Any, products: Any) -> _Draw:
    """Return (JᵀJ)⁻¹Jᵀu for random signs u, by preconditioned conjugate gradients."""
    multiply = partial(normal_product, objective, space, z)
    right = of_signs(objective, space, z, key)
    start = _Draw(jnp.zeros((), jnp.int32), jnp.zeros_like(z), right, right / metric, right @ (right / metric))

    def step(now):
        product = multiply(now.along)
        curvature = now.along @ product
        length = now.size / jnp.where(curvature > 0, curvature, 1)
        left = now.left - length * product
        turned = left / metric
        size = left @ turned
        return _Draw(now.count + 1, now.found + length * now.along, left, turned + size / now.size * now.along, size)

    return jax.lax.while_loop(lambda now: (now.size > EXACT**2 * start.size) & (now.count < products), step, start)
