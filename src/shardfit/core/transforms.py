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


def log_det(transform: Transform, z: jax.Array) -> jax.Array:
    """Return the logarithm of how a transform stretches volume at z: number by number, or in all if it mixes them.

    A transform of your own may say so itself by a method `log_det(z)`; otherwise it is differentiated.
    """
    if hasattr(transform, "log_det"):
        return transform.log_det(z)  # pyright: ignore[reportAttributeAccessIssue]
    if z.size > LARGEST_DERIVED:
        raise ValueError(
            f"transform {transform} of {z.size} numbers has no log_det(z), and deriving it would take {z.size}² "
            "numbers. Give its class that method: the logarithm of |dx/dz|, number by number."
        )
    slopes = jax.jacfwd(lambda flat: jnp.ravel(transform.forward(flat.reshape(z.shape))))(jnp.ravel(z))
    if slopes.shape[0] != slopes.shape[1]:
        raise ValueError(f"transform {transform} changes the number of parameters. Give its class a method log_det(z).")
    return jnp.linalg.slogdet(slopes)[1]


@dataclass(frozen=True)
class Identity:
    """The parameter itself."""

    def forward(self, z):
        """Return z."""
        return z

    def inverse(self, x):
        """Return x."""
        return x

    def log_det(self, z):
        """Return zeros."""
        return jnp.zeros_like(z)


@dataclass(frozen=True)
class Log:
    """Positive parameter x = exp(z)."""

    def forward(self, z):
        """Return exp(z)."""
        return jnp.exp(z)

    def inverse(self, x):
        """Return log(x)."""
        return jnp.log(x)

    def log_det(self, z):
        """Return z."""
        return z


@dataclass(frozen=True)
class Softplus:
    """Positive parameter x = log(1 + exp(z)): linear where large, so steps stay moderate."""

    def forward(self, z):
        """Return log(1 + exp(z))."""
        return jax.nn.softplus(z)

    def inverse(self, x):
        """Return log(exp(x) - 1), without overflow."""
        return x + jnp.log(-jnp.expm1(-x))

    def log_det(self, z):
        """Return the logarithm of the logistic function."""
        return jax.nn.log_sigmoid(z)


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

    def log_det(self, z):
        """Return the logarithm of the logistic map's slope."""
        return jnp.log(self.upper - self.lower) + jax.nn.log_sigmoid(z) + jax.nn.log_sigmoid(-z)


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

    def log_det(self, z):
        """Return -log(1 + (z/s)²): tails as heavy as Cauchy's."""
        return -jnp.log1p((z / self._middle_and_size()[1]) ** 2)


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

    def log_det(self, z):
        """Return the logarithm of the hyperbola's slope."""
        return _log_slope(z)


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

    def log_det(self, z):
        """Return the logarithm of the hyperbola's slope."""
        return _log_slope(-z)


def _hyperbola(z):
    # for negative z the sum would cancel: the same number as a quotient
    root = jnp.sqrt(z * z + 4)
    return jnp.where(z < 0, 2 / (root - jnp.minimum(z, 0)), 0.5 * (root + z))


def _log_slope(z):
    return jnp.log(_hyperbola(z)) - 0.5 * jnp.log(z * z + 4)


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

    def log_det(self, z):
        """Return the sum of the logarithms of all n numbers, for each simplex."""
        return jnp.sum(jax.nn.log_softmax(jnp.concatenate([z, jnp.zeros((*z.shape[:-1], 1), z.dtype)], -1)), -1)


@dataclass(frozen=True)
class Shift:
    """Parameter beyond a number: x = end + side·exp(z), above it for side 1, below it for side -1."""

    end: float
    side: int

    def forward(self, z):
        """Return the number beyond the end."""
        return self.end + self.side * jnp.exp(z)

    def inverse(self, x):
        """Return the logarithm of the distance from the end."""
        return jnp.log(self.side * (x - self.end))

    def log_det(self, z):
        """Return z."""
        return z


@dataclass(frozen=True)
class Box:
    """Numbers of an array with ends of their own, infinite where there is none, flattened as tuples."""

    lower: tuple[float, ...]
    upper: tuple[float, ...]

    def _maps(self, z):
        """Yield where each kind of number is, and its map."""
        low, high = (np.reshape(np.array(end), np.shape(z)) for end in (self.lower, self.upper))
        has_low, has_high = np.isfinite(low), np.isfinite(high)
        ends = np.where(has_low, low, 0.0), np.where(has_high, high, 1.0)
        width = np.where(has_low & has_high, ends[1] - ends[0], 1.0)
        return has_low & has_high, has_low & ~has_high, ~has_low & has_high, *ends, width

    def forward(self, z):
        """Return the numbers: logistic between two ends, exponential beyond one."""
        both, above, below, low, high, width = self._maps(z)
        beyond = jnp.exp(jnp.where(above | below, z, 0))
        x = jnp.where(both, low + width * jax.nn.sigmoid(z), z)
        return jnp.where(above, low + beyond, jnp.where(below, high - beyond, x))

    def inverse(self, x):
        """Return the coordinates."""
        both, above, below, low, high, width = self._maps(x)
        share = jnp.where(both, (x - low) / width, 0.5)
        beyond = jnp.log(jnp.where(above, x - low, jnp.where(below, high - x, 1.0)))
        return jnp.where(both, jnp.log(share) - jnp.log1p(-share), jnp.where(above | below, beyond, x))

    def log_det(self, z):
        """Return the logarithm of the slopes."""
        both, above, below, _, _, width = self._maps(z)
        inside = jnp.log(width) + jax.nn.log_sigmoid(z) + jax.nn.log_sigmoid(-z)
        return jnp.where(both, inside, jnp.where(above | below, z, 0.0))


@dataclass(frozen=True)
class Chain:
    """One transform after another: x = outer(inner(z))."""

    outer: Any
    inner: Any

    def forward(self, z):
        """Return the parameter."""
        return self.outer.forward(self.inner.forward(z))

    def inverse(self, x):
        """Return the coordinates."""
        return self.inner.inverse(self.outer.inverse(x))

    def log_det(self, z):
        """Return the sum of both."""
        return log_det(self.inner, z) + log_det(self.outer, self.inner.forward(z))


HEAVY_TAILED = (TanInterval, Above, Below)  # a flat prior between their ends has the tails of a Cauchy density in z
LARGEST_DERIVED = 200  # numbers of a transform whose volume is derived by differentiation
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
