"""Losses of squared normalised residuals z, with scipy's definitions: the value is ½Σρ(z)."""

import jax.numpy as jnp

from shardfit.core.errors import suggestion

LOSSES = {
    "linear": lambda z: z,
    "soft_l1": lambda z: 2 * (jnp.sqrt(1 + z) - 1),
    "huber": lambda z: jnp.where(z <= 1, z, 2 * jnp.sqrt(jnp.where(z <= 1, 1.0, z)) - 1),
    "cauchy": jnp.log1p,
    "arctan": jnp.arctan,
}
SLOPES = {
    "linear": jnp.ones_like,
    "soft_l1": lambda z: 1 / jnp.sqrt(1 + z),
    "huber": lambda z: jnp.where(z <= 1, 1.0, 1 / jnp.sqrt(jnp.where(z <= 1, 1.0, z))),
    "cauchy": lambda z: 1 / (1 + z),
    "arctan": lambda z: 1 / (1 + z * z),
}


def check_loss(name: str) -> str:
    """Return the name of a loss, or raise naming those there are."""
    if name not in LOSSES:
        raise ValueError(f"unknown loss {name!r}.{suggestion(name, LOSSES)} Known: {', '.join(LOSSES)}.")
    return name
