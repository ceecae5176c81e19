"""Transforms: maps from the unconstrained numbers that solvers move to parameters with a range of their own."""

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np

from shardfit.core.errors import suggestion


@runtime_checkable
class Transform(Protocol):
    """A map from unconstrained numbers to a parameter and back; must be hashable."""

    def forward(self, z: jax.Array) -> jax.Array:
        """Return the parameter."""
        ...

    def inverse(self, x: jax.Array) -> jax.Array:
        """Return the unconstrained numbers."""
        ...


@dataclass(frozen=True)
class Identity:
    """The parameter itself."""

    def forward(self, z):
        """Return z."""
        return z

    def inverse(self, x):
        """Return x."""
        return x


@dataclass(frozen=True)
class Log:
    """Positive parameter x = exp(z)."""

    def forward(self, z):
        """Return exp(z)."""
        return jnp.exp(z)

    def inverse(self, x):
        """Return log(x)."""
        return jnp.log(x)


@dataclass(frozen=True)
class Softplus:
    """Positive parameter x = log(1 + exp(z)): linear where large, so steps stay moderate."""

    def forward(self, z):
        """Return log(1 + exp(z))."""
        return jax.nn.softplus(z)

    def inverse(self, x):
        """Return log(exp(x) - 1), without overflow."""
        return x + jnp.log(-jnp.expm1(-x))


@dataclass(frozen=True)
class Interval:
    """Parameter between two numbers: x = lower + (upper - lower) / (1 + exp(-z))."""

    lower: float
    upper: float

    def __post_init__(self):
        if not (np.isfinite(self.lower) and np.isfinite(self.upper) and self.lower < self.upper):
            raise ValueError(f"Interval({self.lower}, {self.upper}): both ends must be finite and in ascending order.")

    def forward(self, z):
        """Return the logistic map of z onto the interval."""
        return self.lower + (self.upper - self.lower) * jax.nn.sigmoid(z)

    def inverse(self, x):
        """Return the logit of x within the interval."""
        share = (x - self.lower) / (self.upper - self.lower)
        return jnp.log(share) - jnp.log1p(-share)


@dataclass(frozen=True)
class TanInterval:
    """Parameter between two numbers, x = middle + s·atan(z / s): slope 1 at the middle, where steps keep their size."""

    lower: float
    upper: float

    def __post_init__(self):
        Interval(self.lower, self.upper)  # the same demands

    def _middle_and_size(self):
        return 0.5 * (self.lower + self.upper), (self.upper - self.lower) / np.pi

    def forward(self, z):
        """Return the point of the interval."""
        middle, size = self._middle_and_size()
        return middle + size * jnp.arctan(z / size)

    def inverse(self, x):
        """Return the tangent of x within the interval; NaN on a bound, which is infinitely far away."""
        middle, size = self._middle_and_size()
        return jnp.where((x > self.lower) & (x < self.upper), size * jnp.tan((x - middle) / size), jnp.nan)


@dataclass(frozen=True)
class Above:
    """Parameter above a number, x = lower + (z + √(z² + 4)) / 2: slope 1 far inside, less and less near the bound."""

    lower: float

    def forward(self, z):
        """Return the number above the bound."""
        return self.lower + _hyperbola(z)

    def inverse(self, x):
        """Return d - 1/d of the distance d from the bound; NaN on it or beyond."""
        distance = x - self.lower
        return jnp.where(distance > 0, distance - 1 / distance, jnp.nan)


@dataclass(frozen=True)
class Below:
    """Parameter below a number: the mirror image of Above."""

    upper: float

    def forward(self, z):
        """Return the number below the bound."""
        return self.upper - _hyperbola(-z)

    def inverse(self, x):
        """Return 1/d - d of the distance d from the bound; NaN on it or beyond."""
        distance = self.upper - x
        return jnp.where(distance > 0, 1 / distance - distance, jnp.nan)


def _hyperbola(z):
    # for negative z the sum would cancel: the same number as a quotient
    root = jnp.sqrt(z * z + 4)
    return jnp.where(z < 0, 2 / (root - jnp.minimum(z, 0)), 0.5 * (root + z))


def within(lower: float | None = None, upper: float | None = None) -> "Transform":
    """Return the transform for open bounds: TanInterval, Above, Below, or Identity where neither end is finite."""
    low, high = -np.inf if lower is None else lower, np.inf if upper is None else upper
    if np.isfinite(low) and np.isfinite(high):
        return TanInterval(low, high)
    return Above(low) if np.isfinite(low) else Below(high) if np.isfinite(high) else Identity()


@dataclass(frozen=True)
class Simplex:
    """Non-negative numbers that add up to 1 along the last axis; n numbers have n - 1 coordinates."""

    def forward(self, z):
        """Return softmax(z, 0)."""
        return jax.nn.softmax(jnp.concatenate([z, jnp.zeros((*z.shape[:-1], 1), z.dtype)], -1), axis=-1)

    def inverse(self, x):
        """Return log(x / last x)."""
        return jnp.log(x[..., :-1]) - jnp.log(x[..., -1:])


NAMED = {"identity": Identity(), "log": Log(), "softplus": Softplus(), "simplex": Simplex()}
MONOTONE = (Identity, Log, Softplus)


def as_transform(value: Any) -> Transform:
    """Return a transform from an object or a name."""
    if value is None:
        return Identity()
    if isinstance(value, str):
        if value not in NAMED:
            raise ValueError(f"unknown transform {value!r}.{suggestion(value, [*NAMED, 'Interval(lower, upper)'])}")
        return NAMED[value]
    if not isinstance(value, Transform):
        raise TypeError(
            f"transform {value!r} has no forward and inverse. Use Log(), Interval(lo, hi) or your own class."
        )
    if type(value).__hash__ is None:
        raise TypeError(f"transform {value!r} cannot be hashed. Make its class a frozen dataclass.")
    return value
