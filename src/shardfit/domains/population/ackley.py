"""Ackley's function with the published scales: many local minima around one deep one, to try global searches on."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import jax.numpy as jnp
import numpy as np

from shardfit.core.objective import Objective
from shardfit.core.problem import Problem
from shardfit.core.term_makers import penalty

if TYPE_CHECKING:  # fits run without jaxtyping
    from jaxtyping import Array, Float

MINIMUM = math.e - math.e**2  # at the origin in four dimensions; sums are halved there, not averaged


def ackley(x: Float[Array, " n"]) -> Float[Array, ""]:
    """Return 20 + e - 20 exp(-0.2 √(½ Σ x²)) - exp(½ Σ cos 2πx)."""
    distance = jnp.sqrt(0.5 * jnp.sum(x * x))
    return 20 + math.e - 20 * jnp.exp(-0.2 * distance) - jnp.exp(0.5 * jnp.sum(jnp.cos(2 * math.pi * x)))


def problem(dimensions: int = 4, precision: str = "float64") -> Problem:
    """Return the search for the minimum in [-5, 5] on every axis, from a corner region far from it."""
    start = np.full(dimensions, 3.3)
    return Problem(
        Objective({"ackley": penalty(ackley)}), start, bounds=(-5.0, 5.0), name="Ackley's function", precision=precision
    )
