"""What both kinds of Levenberg–Marquardt have in common: options, declarations, and how a trust region grows."""

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp

from shardfit.core.objective import Objective, normalised
from shardfit.solve.step import StepSolver
from shardfit.solve.trust_region import positive

ACCEPT, POOR, GOOD = 1e-4, 0.25, 0.75  # actual over predicted decrease
MISSED = 1e-5  # share of the decrease that the model may get wrong where steps grow faster than twofold
FURTHEST = 1e3  # times a step that was predicted perfectly, by which the next may be longer
SETTLED = 10.0  # how often the value's resolution the model's minimum may seem to gain: gradients are rounded too


@dataclass(frozen=True)
class Marquardt(StepSolver):
    """A solver of least squares.

    absolute_sigma: True takes residuals as normalised, covariance (JᵀJ)⁻¹; False scales it by the reduced χ²; None
    takes them as normalised if every data term has an entry `sigma`.
    """

    absolute_sigma: bool | None = None
    error_bars: ClassVar[bool] = True
    any_length: ClassVar[bool] = True

    def is_absolute(self, objective: Objective) -> bool:
        """Return whether residuals are in units of known errors."""
        return normalised(objective) if self.absolute_sigma is None else self.absolute_sigma


def grown(radius: jax.Array, ratio: jax.Array, length: jax.Array) -> jax.Array:
    """Return the radius after a step of some length, longer where the model was right about it."""
    # a model that misses nothing, as of residuals linear in the parameters, holds much farther
    further = jnp.clip(MISSED / positive(jnp.abs(1 - ratio)), 2, FURTHEST)
    return jnp.where(ratio > GOOD, jnp.maximum(radius, further * length), radius)
