"""Damped Newton method for station gains: a batch of small independent problems, one per interval, in float64.

Variables of an interval are x (2, s): ln|g| and the phase of every station. Inactive ones stay at zero. A direction
that changes nothing, such as a phase common to all stations, has neither gradient nor curvature: no step goes along it.
The curvature is exact, by automatic differentiation: that of Gauss and Newton is wrong where data and image differ in
amplitude, as they do before amplitudes are calibrated, and steps then overshoot or creep.
"""

from typing import Any

import jax
import jax.numpy as jnp

MAX_STEPS = 200
TOLERANCE = 1e-13  # of the cost: what a full step may still be expected to gain
START = 1e-4  # rad
DAMPING = (1e-10, 1e10)  # range, relative to the largest curvature


def residuals(x: jax.Array, row: dict[str, jax.Array]) -> jax.Array:
    """Residuals of one interval: real and imaginary parts over σ, then ln|g| over tolerance → (2 b + s,).

    row: first, second (b,) stations; data, model (b,); weight (b,) 1/σ or 0; active (2, s); limits (2, s) tolerance
    above and below |g| = 1.
    """
    log_gain, phase = jnp.where(row["active"], x, 0.0)
    i, j = row["first"], row["second"]
    size, angle = jnp.exp(log_gain[i] + log_gain[j]), phase[i] - phase[j]
    model = size * jax.lax.complex(jnp.cos(angle), jnp.sin(angle)) * row["model"]
    off = (row["data"] - model) * row["weight"]
    held = log_gain / jnp.where(log_gain > 0, row["limits"][0], row["limits"][1])
    return jnp.concatenate([off.real, off.imag, held])


def cost(x: jax.Array, row: dict[str, jax.Array]) -> jax.Array:
    """Sum of squared residuals of one interval."""
    return jnp.sum(residuals(x, row) ** 2)


@jax.jit
def total_cost(x: Any, rows: dict[str, Any]) -> jax.Array:
    """Cost (t,) of variables x (t, 2, s)."""
    return jax.vmap(cost)(x, rows)


@jax.jit
def solve(rows: dict[str, Any]) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Minimise every interval's cost → x (t, 2, s), cost (t,) at gains 1, cost at x, whether it converged."""
    x, after, converged = jax.vmap(_solve_one)(rows)
    return x, total_cost(jnp.zeros_like(x), rows), after, converged


def _solve_one(row):
    shape = row["active"].shape

    def value_of(x):
        return cost(x.reshape(shape), row)

    def body(state):
        x, value, damping, count, _ = state
        gradient = jax.grad(value_of)(x)
        curvature, axes = jnp.linalg.eigh(jax.hessian(value_of)(x))
        along = axes.T @ gradient
        # downhill along every axis, also where the cost curves down
        size = jnp.abs(curvature)
        scale = jnp.where(size.max() > 0, size.max(), 1.0)
        expected = 0.5 * jnp.sum(along**2 / (size + DAMPING[0] * scale))
        done = expected <= TOLERANCE * (1 + value)
        trial = x - axes @ (along / (size + damping * scale))
        lower = value_of(trial) < value
        move = lower & ~done
        damping = jnp.clip(jnp.where(lower, 0.1 * damping, 10 * damping), *DAMPING)
        return jnp.where(move, trial, x), jnp.where(move, value_of(trial), value), damping, count + 1, done

    def going(state):
        _, _, damping, count, done = state
        return ~done & (count < MAX_STEPS) & (damping < DAMPING[1])

    # phases a little apart: data exactly opposite to the image have no gradient at zero
    x = jnp.concatenate([jnp.zeros(shape[1]), START * jnp.arange(shape[1])])
    first = (x, value_of(x), jnp.asarray(1e-3), 0, jnp.asarray(False))
    x, value, _, _, done = jax.lax.while_loop(going, body, first)
    return jnp.where(row["active"], x.reshape(shape), 0.0), value, done
