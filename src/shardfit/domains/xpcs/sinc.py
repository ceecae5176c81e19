"""sin(x)/x with its derivatives, quick on long arrays.

Sine and cosine of double precision are calls for every single number on a CPU, ten times as long as all else in the
model. Here x is taken to within a quarter turn of a multiple of π and both are polynomials of what is left, without
branches, so that a loop over an array is vectorised.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np

# π in three parts: products of the first two with whole numbers below 2²³ are exact
PI = (3.141592651605606, 1.9841871583270443e-09, 1.034036596358821e-18)
SINE = tuple((-1) ** k / math.factorial(2 * k + 1) for k in range(11))
COSINE = tuple((-1) ** k / math.factorial(2 * k) for k in range(12))
# sin(x)/x and its derivative over x, in powers of x², used where differences would lose digits
SMALL = 0.05
NEAR = tuple((-1) ** k / math.factorial(2 * k + 1) for k in range(6))
NEAR_SLOPE = tuple(2 * k * NEAR[k] for k in range(1, 6))
NEAR_BEND = tuple(2 * k * (2 * k - 1) * NEAR[k] for k in range(1, 6))


@jax.custom_jvp
def sinc_and_slope(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return sin(x)/x of x in radians and its derivative, both to a few roundings of one."""
    sine, cosine = _sine_and_cosine(x) if x.dtype == np.float64 else (jnp.sin(x), jnp.cos(x))
    small, square, divisor = _near_zero(x)
    value = jnp.where(small, _polynomial(NEAR, square), sine / divisor)
    return value, jnp.where(small, x * _polynomial(NEAR_SLOPE, square), (cosine - value) / divisor)


@sinc_and_slope.defjvp
def _sinc_jvp(primals, tangents):
    (x,), (move,) = primals, tangents
    value, slope = sinc_and_slope(x)
    small, square, divisor = _near_zero(x)
    bend = jnp.where(small, _polynomial(NEAR_BEND, square), -value - 2 * slope / divisor)
    return (value, slope), (slope * move, bend * move)


def _near_zero(x):
    small = jnp.abs(x) < SMALL
    return small, x * x, jnp.where(small, 1.0, x)


def _sine_and_cosine(x):
    turns = jnp.round(x * (1 / math.pi))
    rest = ((x - turns * PI[0]) - turns * PI[1]) - turns * PI[2]
    # far out, where no digit of the phase is left, the polynomials must not grow
    rest = jnp.clip(rest, -0.5 * math.pi, 0.5 * math.pi)
    sign = 1 - 2 * (turns - 2 * jnp.floor(0.5 * turns))
    square = rest * rest
    return sign * rest * _polynomial(SINE, square), sign * _polynomial(COSINE, square)


def _polynomial(coefficients, t):
    total = jnp.full_like(t, coefficients[-1])
    for c in coefficients[-2::-1]:
        total = total * t + c
    return total
