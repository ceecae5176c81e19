"""Bounds for L-BFGS as a state machine: a direction that stays inside the box, and how far it may be followed.

Coordinates on a bound that the gradient pushes against are held. Among the others the stored pairs, restricted to them,
give the inverse Hessian (two loops over their products: Nocedal 1980, on numbers instead of vectors as Chen, Wang and
Zhou 2014 do), and the full step is projected into the box. The straight line to that point lies inside, so the line
search is that of a problem without bounds which ends where the line leaves the box.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

STEEP = 1e-9  # cosine between direction and gradient below which the pairs are not followed


class Box(NamedTuple):
    """The bounds, and the largest step length along the current direction."""

    lower: jax.Array
    upper: jax.Array
    reach: jax.Array


class Aim(NamedTuple):
    """A direction inside the box, the slope along it, its largest step length, and the one to try first."""

    direction: jax.Array
    slope: jax.Array
    reach: jax.Array
    t: jax.Array


def make_box(lower: Any, upper: Any, dtype: Any) -> Box | None:
    """Return the box of a run; None where nothing is bounded."""
    return None if lower is None else Box(lower, upper, jnp.full((), jnp.inf, dtype))


def kept_inside(x: jax.Array, box: Box) -> jax.Array:
    """Return x in the box; what rounding alone keeps off a bound is on it."""
    low, high = (4 * jnp.finfo(x.dtype).eps * jnp.where(jnp.isfinite(end), jnp.abs(end), 0) for end in box[:2])
    x = jnp.where(x - box.lower <= low, box.lower, x)
    return jnp.where(box.upper - x <= high, box.upper, x)


def free_gradient(x: jax.Array, gradient: jax.Array, box: Box) -> jax.Array:
    """Return the gradient without what pushes against a bound that was reached."""
    return jnp.where(_held(x, gradient, box), 0, gradient)


def projected_gradient(x: jax.Array, gradient: jax.Array, unit: jax.Array, box: Box) -> jax.Array:
    """Return what of a step of minus the gradient stays inside the box, with the gradient's sign: zero at a minimum.

    unit: gradient that is a step of length one.
    """
    return unit * (x - jnp.clip(x - gradient / unit, box.lower, box.upper))


def aim(
    vectors: jax.Array, sy: jax.Array, head: jax.Array, x: jax.Array, gradient: jax.Array, unit: jax.Array, box: Box
) -> Aim:
    """Return where to go from x. vectors: stored pairs (m, 2, n); sy: their products, 0 where there is no pair.

    unit: gradient that is a first step of length one.
    """
    held = _held(x, gradient, box)
    slopes = jnp.where(held, 0, gradient)
    size = _length(slopes)
    newton = _two_loops(jnp.where(held, 0, vectors), sy, head, slopes)
    curved = jnp.clip(x + newton, box.lower, box.upper) - x
    slope = jnp.vdot(curved, gradient)
    followed = jnp.any(sy > 0) & jnp.isfinite(slope) & (slope < -STEEP * size * _length(curved))
    # without curvature a step of length one, as without bounds
    plain = jnp.clip(x - slopes / jnp.where(size > 0, size, 1), box.lower, box.upper) - x
    direction = jnp.where(followed, curved, plain)
    ends = jnp.where(direction > 0, box.upper, box.lower) - x
    moves = direction != 0
    reach = jnp.min(jnp.where(moves, ends / jnp.where(moves, direction, 1), jnp.inf), initial=jnp.inf)
    t = jnp.where(followed, 1, jnp.minimum(1, size / unit))
    return Aim(direction, jnp.vdot(direction, gradient), jnp.maximum(reach, 1), t)


def _held(x: jax.Array, gradient: jax.Array, box: Box) -> jax.Array:
    return ((x <= box.lower) & (gradient >= 0)) | ((x >= box.upper) & (gradient <= 0))


def _two_loops(vectors: jax.Array, sy: jax.Array, head: jax.Array, gradient: jax.Array) -> jax.Array:
    """Return minus the inverse-Hessian estimate of some pairs times the gradient."""
    m = len(sy)
    basis = jnp.concatenate([vectors[:, 0], vectors[:, 1], gradient[None]])
    products = basis @ basis.T
    s, y = jnp.arange(m), jnp.arange(m, 2 * m)
    curvature, change = products[s, y], products[y, y]
    least = jnp.finfo(gradient.dtype).eps * jnp.sqrt(products[s, s]) * jnp.sqrt(change)  # a cosine, in whatever units
    good = (sy > 0) & (curvature > least)  # of what is left of a pair
    rho = jnp.where(good, 1 / jnp.where(good, curvature, 1), 0)

    def younger_first(k, carry):
        share, alphas, scale = carry
        i = (head - 1 - k) % m
        alpha = rho[i] * (products[i] @ share)
        scale = jnp.where((scale == 0) & good[i], curvature[i] / jnp.where(good[i], change[i], 1), scale)
        return share.at[m + i].add(-alpha), alphas.at[i].set(alpha), scale

    def older_first(k, share):
        i = (head + k) % m
        return share.at[i].add(alphas[i] - rho[i] * (products[m + i] @ share))

    share = jnp.zeros(2 * m + 1, gradient.dtype).at[-1].set(1)
    share, alphas, scale = jax.lax.fori_loop(0, m, younger_first, (share, jnp.zeros_like(sy), jnp.zeros_like(sy[0])))
    share = jax.lax.fori_loop(0, m, older_first, share * jnp.where(scale > 0, scale, 1))
    return -(share @ basis)


def _length(vector: jax.Array) -> jax.Array:
    largest = jnp.maximum(jnp.max(jnp.abs(vector), initial=0), jnp.finfo(vector.dtype).tiny)
    return largest * jnp.sqrt(jnp.sum((vector / largest) ** 2))  # squares of large float32 numbers overflow
