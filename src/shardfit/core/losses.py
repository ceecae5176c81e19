"""Losses of residuals that let outliers count less, with their derivatives: one set for all kinds of terms.

They are functions of s, the squared residual in units of a scale C; the loss of a residual r is ½C²ρ(r²/C²), as in
scipy.optimize.least_squares, so that small residuals cost what they cost without.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp

from shardfit.core.errors import suggestion


class Loss(NamedTuple):
    """ρ(s), its derivative and its second derivative."""

    rho: Callable[[Any], Any]
    slope: Callable[[Any], Any]
    bend: Callable[[Any], Any]


LOSSES = {
    "linear": Loss(lambda s: s, jnp.ones_like, jnp.zeros_like),
    "soft_l1": Loss(
        lambda s: 2 * s / (1 + jnp.sqrt(1 + s)), lambda s: 1 / jnp.sqrt(1 + s), lambda s: -0.5 * (1 + s) ** -1.5
    ),
    "huber": Loss(
        lambda s: jnp.where(s <= 1, s, 2 * jnp.sqrt(jnp.maximum(s, 1)) - 1),
        lambda s: 1 / jnp.sqrt(jnp.maximum(s, 1)),
        lambda s: jnp.where(s <= 1, 0, -0.5 * jnp.maximum(s, 1) ** -1.5),
    ),
    "cauchy": Loss(jnp.log1p, lambda s: 1 / (1 + s), lambda s: -1 / (1 + s) ** 2),
    "arctan": Loss(jnp.arctan, lambda s: 1 / (1 + s**2), lambda s: -2 * s / (1 + s**2) ** 2),
}


def loss_named(name: Any, where: str) -> Loss:
    """Return a loss by name; where: who asks, for the message."""
    if not isinstance(name, str) or name not in LOSSES:
        raise ValueError(f"{where}: unknown robust loss {name!r}.{suggestion(str(name), LOSSES)}")
    return LOSSES[name]
