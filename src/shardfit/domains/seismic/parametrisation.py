"""Coordinates of the velocity that a solver works on.

All are shifted and scaled so that at the reference velocity they equal it and change as it does, in units of `unit`
m/s: a step of 25 there is 25 m/s in each of them. All rise with the velocity, so bounds carry over.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np

from shardfit.core.errors import suggestion


@dataclass(frozen=True)
class Velocity:
    """z = v."""

    reference: float
    unit: float = 1.0
    increasing: ClassVar[bool] = True

    def forward(self, z):
        """Return the velocity."""
        return self.velocity(self.unit * z)

    def inverse(self, x):
        """Return the coordinate."""
        return self.coordinate(jnp.asarray(x)) / self.unit

    def velocity(self, z):
        """Return the velocity of a coordinate in m/s."""
        return z

    def coordinate(self, v):
        """Return the coordinate in m/s."""
        return v


@dataclass(frozen=True)
class Slowness(Velocity):
    """z = 2 r - r² / v, with the reference velocity r."""

    def velocity(self, z):
        """Return the velocity of a coordinate in m/s."""
        return self.reference**2 / (2 * self.reference - z)

    def coordinate(self, v):
        """Return the coordinate in m/s."""
        return 2 * self.reference - self.reference**2 / v


@dataclass(frozen=True)
class SlownessSquared(Velocity):
    """z = 3 r / 2 - r³ / (2 v²), with the reference velocity r."""

    def velocity(self, z):
        """Return the velocity of a coordinate in m/s."""
        return jnp.sqrt(self.reference**3 / (3 * self.reference - 2 * z))

    def coordinate(self, v):
        """Return the coordinate in m/s."""
        return 1.5 * self.reference - self.reference**3 / (2 * v**2)


PARAMETERS = {"velocity": Velocity, "slowness": Slowness, "slowness_squared": SlownessSquared}


def transform_of(parameter: str, start: Any, unit: float = 1.0) -> Velocity | None:
    """Return the transform of a named parameter, None where it changes nothing; reference: median of the start."""
    if parameter not in PARAMETERS:
        raise ValueError(f"unknown parameter {parameter!r}.{suggestion(str(parameter), PARAMETERS)}")
    if not (np.isfinite(unit) and unit > 0):
        raise ValueError(f"unit={unit!r} m/s must be positive.")
    return None if (parameter, unit) == ("velocity", 1.0) else PARAMETERS[parameter](float(np.median(start)), unit)
