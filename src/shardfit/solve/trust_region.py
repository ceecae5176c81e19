"""The step of a trust-region method on a small quadratic model, with bounds, found exactly."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

RADIUS_SLACK = 0.1  # how closely a step must reach the trust region's edge
MAX_DAMPINGS = 40


class Step(NamedTuple):
    """A step (p,), whether it is the model's minimum, not shortened by the trust region, and what that would gain."""

    step: jax.Array
    full: jax.Array
    gain: jax.Array  # decrease at the model's minimum, however far away; inf where the model has none


def norm(vector):
    """Return the length of a vector."""
    return jnp.sqrt(jnp.sum(vector**2))


def positive(scale):
    """Return scales with 1 for columns that are zero: any will do, as they cannot matter yet."""
    return jnp.where(scale > 0, scale, 1)


def model_decrease(gradient, hessian, step):
    """Return by how much a step lowers the model."""
    return -(gradient @ step + 0.5 * step @ hessian @ step)


def free_parameters(x, gradient, lower, upper):
    """Return which parameters may move: not at a bound that the value pushes against."""
    return ~(((x <= lower) & (gradient > 0)) | ((x >= upper) & (gradient < 0)))


def bounded_step(x, gradient, hessian, scale, radius, free, lower, upper, solved=None) -> Step:
    """Return a step inside the box: whatever would leave it is put on its bound, and the rest is solved again.

    solved(fixed, free): the step of the free parameters after the fixed ones' own; None for that of the matrix.
    """
    if solved is None:
        solved = lambda fixed, free: trust_step(gradient + hessian @ fixed, hessian, scale, radius, free)  # noqa: E731

    def solve(carry):
        free, fixed, earlier, _ = carry
        trial = solved(fixed, free)
        reached = jnp.clip(x + trial.step + fixed, lower, upper) - x
        leaves = free & ((x + trial.step < lower) | (x + trial.step > upper))
        inside = Step(reached, trial.full, jnp.maximum(earlier.gain, trial.gain))
        return free & ~leaves, jnp.where(leaves, reached, fixed), inside, jnp.any(leaves)

    nothing = jnp.zeros_like(x)
    start = (free, nothing, Step(nothing, jnp.zeros((), bool), jnp.zeros_like(radius)), jnp.ones((), bool))
    left, _, inside, _ = jax.lax.while_loop(lambda carry: carry[3], solve, start)
    downhill = _downhill_step(x, gradient, hessian, scale, radius, free, lower, upper)
    # putting parameters on bounds one by one can spoil the model's decrease; straight downhill cannot
    better = model_decrease(gradient, hessian, downhill) > model_decrease(gradient, hessian, inside.step)
    better &= jnp.any(left != free)
    return Step(jnp.where(better, downhill, inside.step), inside.full & ~better, inside.gain)


def _downhill_step(x, gradient, hessian, scale, radius, free, lower, upper):
    """Return the scaled steepest-descent step to the model's minimum or the trust region's edge, clipped to the box."""
    direction = jnp.where(free, -gradient / scale**2, 0)
    curvature, length = direction @ hessian @ direction, norm(scale * direction)
    edge = radius / positive(length)
    best = jnp.where(curvature > 0, -(gradient @ direction) / positive(curvature), edge)
    return jnp.clip(x + jnp.minimum(best, edge) * direction, lower, upper) - x


def factored_step(along, root, scale, radius, free, noise) -> Step:
    """Minimise ½|along + root · step|² over the free parameters with |scale · step| ≤ radius, to RADIUS_SLACK.

    By singular values, so that nothing is squared. noise: what rounding makes of `along` by itself, and through the
    Jacobian's columns, where a direction's singular value divides it; what lies below is no reason to move.
    """
    scaled = jnp.where(free, root / scale, 0)
    left, sizes, right = jnp.linalg.svd(scaled)
    # columns are rounded by what they are now: after a steep start scales may be larger by many orders
    rounded = jnp.sqrt(right**2 @ jnp.sum(scaled**2, axis=0))
    known = sizes > 0
    sizes = jnp.where(known, sizes, 1)
    parts = left.T @ along
    parts = jnp.where(known & (jnp.abs(parts) > noise[0] + noise[1] * rounded / sizes), parts, 0)

    def lengths(damping):
        damped = sizes**2 + damping
        taken = sizes * parts / damped
        length = norm(taken)
        return length, jnp.sum(taken**2 / damped) / positive(length)  # and how fast it falls

    def closer(carry):
        count, damping, low, high = carry
        length, fall = lengths(damping)
        low, high = jnp.where(length > radius, damping, low), jnp.where(length > radius, high, damping)
        newton = damping + (length / radius - 1) * length / positive(fall)
        return count + 1, jnp.where((newton > low) & (newton < high), newton, 0.5 * (low + high)), low, high

    def far(carry):
        return (jnp.abs(lengths(carry[1])[0] - radius) > RADIUS_SLACK * radius) & (carry[0] < MAX_DAMPINGS)

    zero = jnp.zeros_like(radius)
    full = lengths(zero)[0] <= radius
    search = jnp.zeros((), jnp.int32), zero, zero, norm(sizes * parts) / radius
    damping = jax.lax.while_loop(lambda carry: ~full & far(carry), closer, search)[1]
    length = lengths(damping)[0]
    step = -(right.T @ (sizes * parts / (sizes**2 + damping))) / scale
    shortened = jnp.minimum(1, (1 + RADIUS_SLACK) * radius / positive(length))
    return Step(step * jnp.where(full, 1, shortened), full, 0.5 * jnp.sum(parts**2))


class _Search(NamedTuple):
    """Search for the damping whose step reaches the trust region's edge."""

    count: jax.Array
    damping: jax.Array
    low: jax.Array
    high: jax.Array
    step: jax.Array
    length: jax.Array
    gain: jax.Array
    full: jax.Array
    done: jax.Array


def trust_step(gradient, hessian, scale, radius, free) -> Step:
    """Minimise the quadratic model over the free parameters with |scale · step| ≤ radius, to RADIUS_SLACK.

    Newton's iteration on the reciprocal length (Moré and Sorensen 1983), from zero damping up, in a shrinking bracket.
    """
    p, eps = gradient.shape[0], jnp.finfo(gradient.dtype).eps
    metric, gradient = scale**2, jnp.where(free, gradient, 0)
    hessian = jnp.where(free[:, None] & free[None, :], hessian, 0)

    def attempt(search):
        matrix = hessian + jnp.diag(jnp.where(free, search.damping * metric, 1))
        unit = jnp.sqrt(positive(jnp.abs(jnp.diag(matrix))))
        # the small addition keeps a numerically singular matrix definite without being felt elsewhere
        matrix = matrix / jnp.outer(unit, unit) + p * eps * jnp.eye(p, dtype=gradient.dtype)
        factor = jnp.linalg.cholesky(matrix, symmetrize_input=False)
        step = -jax.scipy.linalg.cho_solve((factor, True), gradient / unit) / unit
        definite = jnp.all(jnp.isfinite(step))
        length = norm(scale * step)
        undamped = definite & (search.damping == 0)
        full = undamped & (length <= radius)
        done = full | (definite & (jnp.abs(length - radius) <= RADIUS_SLACK * radius))
        short = definite & (length <= radius)
        low, high = jnp.where(short, search.low, search.damping), jnp.where(short, search.damping, search.high)
        slope = norm(jax.scipy.linalg.solve_triangular(factor, metric * step / unit, lower=True))
        newton = search.damping + (length / radius - 1) * (length / slope) ** 2
        inside = definite & (newton > low) & (newton < high)
        damping = jnp.where(inside, newton, jnp.maximum(jnp.sqrt(low * high), 1e-3 * high))
        return _Search(
            count=search.count + 1,
            damping=damping,
            low=low,
            high=high,
            # the last damping tried may be too small by rounding: the step before it stands
            step=jnp.where(definite, step, search.step),
            length=jnp.where(definite, length, search.length),
            gain=jnp.where(undamped, -0.5 * gradient @ step, search.gain),
            full=full,
            done=done,
        )

    # at this damping even a matrix as negative as its norm is definite beyond rounding, and the step inside the region
    enough = norm(gradient / scale) / radius + 2 * norm(hessian / jnp.outer(scale, scale))
    zero, no = jnp.zeros_like(radius), jnp.zeros((), bool)
    nothing, inf = jnp.zeros_like(gradient), jnp.full_like(radius, jnp.inf)
    start = _Search(jnp.zeros((), jnp.int32), zero, zero, enough, nothing, zero, inf, no, no)
    end = jax.lax.while_loop(lambda s: ~s.done & (s.count < MAX_DAMPINGS), attempt, start)
    reach = (1 + RADIUS_SLACK) * radius / jnp.where(end.length > 0, end.length, 1)
    return Step(end.step * jnp.where(end.length > 0, jnp.minimum(1, reach), 1), end.full, end.gain)
