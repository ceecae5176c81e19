"""Rates of a fitted model with their bands."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from shardfit.domains.xpcs.forward import Geometry
from shardfit.domains.xpcs.problem import Setup


def of_frames(rates: dict[str, np.ndarray], setup: Setup) -> dict[str, np.ndarray]:
    """Return rates of the frames of the data, without those of padding."""
    return {name: rate[: setup.data.n_frames] for name, rate in rates.items()}


def held_of(setup: Setup) -> np.ndarray:
    """Return which of the model's parameters are held."""
    return np.array([name in setup.options.fixed for name in setup.model.names])


def rates_with_bands(model: Any, geometry: Geometry, values: jax.Array, spread: Any, held: Any) -> dict[str, Any]:
    """Return J and S (nt, 2) with standard errors by linear propagation of the parameters' covariance.

    The error is NaN where the rate depends on a parameter without a finite one, and where it would be 0 although not
    all parameters are held: at bounds, and where a rate is at its floor. A zero would claim what nobody has measured.
    """
    if not hasattr(model, "rates"):
        return {}
    rates, slopes = model.rates(values, geometry.t), jax.jacfwd(model.rates)(values, geometry.t)
    lost, finite = ~jnp.isfinite(jnp.diag(spread)), jnp.where(jnp.isfinite(spread), spread, 0.0)

    def band(s):
        error = jnp.sqrt(jnp.maximum(jnp.einsum("ti,ij,tj->t", s, finite, s), 0.0))
        moves = s != 0
        unknown = jnp.any(moves & ~held, axis=1) | ~jnp.any(moves, axis=1)
        return jnp.where(jnp.any(moves & lost, axis=1) | ((error == 0) & unknown), jnp.nan, error)

    return {name: jnp.stack([rate, band(slopes[name])], axis=1) for name, rate in rates.items()}
