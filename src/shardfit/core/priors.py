"""Priors: what is known of a parameter before the data, and the term that they become.

A prior is anything with `log_prob(x)`: one of these classes, or a distribution of NumPyro. `support` says where it
lives: a parameter with a bounded one is fitted and sampled in coordinates that cannot leave it. Numbers in a prior are
data, so a survey can vary them without compiling anew.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, dataclass_transform, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import betaln, gammaln, log_ndtr, ndtr, ndtri
from jax.tree_util import register_dataclass

from shardfit.core.terms import Penalty, ResidualPenalty
from shardfit.core.transforms import Box, Identity, Interval, Log, Shift, Simplex, Transform

LOG_ROOT_2PI = 0.5 * float(np.log(2 * np.pi))


@runtime_checkable
class Prior(Protocol):
    """A density of one parameter; numbers of an array are independent unless log_prob says otherwise."""

    def log_prob(self, x: Any) -> Any:
        """Return the logarithm of the density at x, number by number or in all."""
        ...


@dataclass_transform(frozen_default=True)
def _registered(cls):
    """Make a class of numbers a frozen pytree with them as leaves; `check_prior` knows what they must be."""
    return register_dataclass(dataclass(frozen=True, eq=False)(cls))


@_registered
class Flat:
    """No prior knowledge: density 1 everywhere. It is improper, so the data alone must determine the parameter."""

    support: ClassVar = (-np.inf, np.inf)

    def log_prob(self, x):
        """Return zeros."""
        return jnp.zeros_like(x)


@_registered
class Normal:
    """Gaussian of mean and standard deviation."""

    mean: Any = 0.0
    sd: Any = 1.0
    positive: ClassVar = ("sd",)
    support: ClassVar = (-np.inf, np.inf)

    def log_prob(self, x):
        """Return the log density."""
        return -0.5 * ((x - self.mean) / self.sd) ** 2 - jnp.log(self.sd) - LOG_ROOT_2PI

    def sample(self, key, shape):
        """Draw an array."""
        return self.mean + self.sd * jax.random.normal(key, shape)


@_registered
class LogNormal:
    """Positive parameter whose logarithm is Normal(mean, sd)."""

    mean: Any = 0.0
    sd: Any = 1.0
    positive: ClassVar = ("sd",)
    support: ClassVar = (0.0, np.inf)

    def log_prob(self, x):
        """Return the log density."""
        return Normal(self.mean, self.sd).log_prob(jnp.log(x)) - jnp.log(x)

    def sample(self, key, shape):
        """Draw an array."""
        return jnp.exp(Normal(self.mean, self.sd).sample(key, shape))


@_registered
class HalfNormal:
    """Absolute value of a Gaussian around zero."""

    sd: Any = 1.0
    positive: ClassVar = ("sd",)
    support: ClassVar = (0.0, np.inf)

    def log_prob(self, x):
        """Return the log density."""
        return Normal(0.0, self.sd).log_prob(x) + np.log(2.0)

    def sample(self, key, shape):
        """Draw an array."""
        return jnp.abs(Normal(0.0, self.sd).sample(key, shape))


@_registered
class HalfCauchy:
    """Absolute value of a Cauchy number around zero; its tail is heavy."""

    scale: Any = 1.0
    positive: ClassVar = ("scale",)
    support: ClassVar = (0.0, np.inf)

    def log_prob(self, x):
        """Return the log density."""
        return np.log(2 / np.pi) - jnp.log(self.scale) - jnp.log1p((x / self.scale) ** 2)

    def sample(self, key, shape):
        """Draw an array."""
        return jnp.abs(self.scale * jax.random.cauchy(key, shape))


@_registered
class Exponential:
    """Positive parameter of a given mean."""

    mean: Any = 1.0
    positive: ClassVar = ("mean",)
    support: ClassVar = (0.0, np.inf)

    def log_prob(self, x):
        """Return the log density."""
        return -x / self.mean - jnp.log(self.mean)

    def sample(self, key, shape):
        """Draw an array."""
        return self.mean * jax.random.exponential(key, shape)


@_registered
class Gamma:
    """Gamma density of shape and rate: mean shape / rate."""

    shape: Any
    rate: Any
    positive: ClassVar = ("shape", "rate")
    support: ClassVar = (0.0, np.inf)

    def log_prob(self, x):
        """Return the log density."""
        a, b = jnp.asarray(self.shape), jnp.asarray(self.rate)
        return a * jnp.log(b) + (a - 1) * jnp.log(x) - b * x - gammaln(a)

    def sample(self, key, shape):
        """Draw an array."""
        return jax.random.gamma(key, self.shape, shape) / self.rate


@_registered
class Beta:
    """Beta density on (0, 1)."""

    a: Any
    b: Any
    positive: ClassVar = ("a", "b")
    support: ClassVar = (0.0, 1.0)

    def log_prob(self, x):
        """Return the log density."""
        return (self.a - 1) * jnp.log(x) + (self.b - 1) * jnp.log1p(-x) - betaln(self.a, self.b)

    def sample(self, key, shape):
        """Draw an array."""
        return jax.random.beta(key, self.a, self.b, shape)


@_registered
class Uniform:
    """Equal density between two numbers."""

    lower: Any
    upper: Any

    @property
    def support(self):
        """The two numbers."""
        return self.lower, self.upper

    def log_prob(self, x):
        """Return the log density."""
        inside = (x >= self.lower) & (x <= self.upper)
        return jnp.where(inside, -jnp.log(jnp.asarray(self.upper) - self.lower), -jnp.inf)

    def sample(self, key, shape):
        """Draw an array."""
        return jax.random.uniform(key, shape, minval=self.lower, maxval=self.upper)


@_registered
class TruncatedNormal:
    """Gaussian between two numbers, either of which may be infinite."""

    mean: Any = 0.0
    sd: Any = 1.0
    lower: Any = -np.inf
    upper: Any = np.inf
    positive: ClassVar = ("sd",)

    @property
    def support(self):
        """The two numbers."""
        return self.lower, self.upper

    def _tail(self):
        """Return whether both ends lie above the mean, and the ends in standard deviations, mirrored below it if so.

        Above the mean the normal distribution's differences would be differences of numbers near 1.
        """
        low, high = (jnp.asarray(self.lower) - self.mean) / self.sd, (jnp.asarray(self.upper) - self.mean) / self.sd
        flip = low > 0
        return flip, jnp.where(flip, -high, low), jnp.where(flip, -low, high)

    def log_prob(self, x):
        """Return the log density."""
        _, near, far = self._tail()
        mass = log_ndtr(far) + jnp.log1p(-jnp.exp(jnp.minimum(log_ndtr(near) - log_ndtr(far), -1e-300)))
        inside = (x >= self.lower) & (x <= self.upper)
        return jnp.where(inside, Normal(self.mean, self.sd).log_prob(x) - mass, -jnp.inf)

    def sample(self, key, shape):
        """Draw an array."""
        flip, near, far = self._tail()
        z = ndtri(jax.random.uniform(key, shape, minval=ndtr(near), maxval=ndtr(far)))
        return self.mean + self.sd * jnp.where(flip, -z, z)


# ---- from priors to terms and coordinates ---------------------------------------------------------------------------


def check_prior(label: str, entry: Any) -> None:
    """Raise unless an entry is a prior of the parameter of that name."""
    if entry is not None and not callable(getattr(entry, "log_prob", None)):
        raise TypeError(
            f"priors: {label} has {type(entry).__name__}, which has no log_prob. Use shardfit.Normal(mean, sd) and its "
            "like, or a distribution of numpyro. A prior on several parameters together is a term: prior(fn)."
        )
    for name, value in vars(entry).items() if type(entry).__module__ == __name__ else ():
        array = np.asarray(value)
        ends = name in ("lower", "upper")
        if np.isnan(array).any() or not (ends or np.isfinite(array).all()):
            raise ValueError(f"priors: {name}={value} of {label}'s {type(entry).__name__} is not finite.")
        if name in getattr(entry, "positive", ()) and not (array > 0).all():
            raise ValueError(f"priors: {name}={value} of {label}'s {type(entry).__name__} must be positive.")
    if getattr(getattr(entry, "support", None), "is_discrete", False):
        raise ValueError(f"priors: {label} is continuous, and a {type(entry).__name__} is a prior of whole numbers.")
    low, high = map(np.asarray, support_of(entry) if entry is not None else (0, 1))
    if not (low < high).all():
        raise ValueError(f"priors: {label} lies between {low} and {high}: the first must be below the second.")
    if isinstance(entry, Uniform) and not np.isfinite([low, high]).all():
        raise ValueError(f"priors: Uniform of {label} needs finite ends. Use Flat() for no prior at all.")


def support_of(entry: Any) -> tuple[Any, Any]:
    """Return the ends between which a prior lives; a distribution of NumPyro tells by its constraint."""
    support = getattr(entry, "support", (-np.inf, np.inf))
    if isinstance(support, tuple):
        return support
    low, high = getattr(support, "lower_bound", -np.inf), getattr(support, "upper_bound", np.inf)
    return np.asarray(low), np.asarray(high)


def transform_of(label: str, shape: tuple[int, ...], entry: Any) -> Transform:
    """Return coordinates of a parameter that cannot leave its prior's support; the identity where it has no ends."""
    kind = _kind_of(entry)
    if kind == "Simplex":
        return Simplex()
    if kind is not None:
        raise ValueError(
            f"priors: {label} has a {type(entry).__name__}, whose numbers are no interval each ({kind}). Give a "
            f'transform onto them: transforms={{"{label}": ...}}.'
        )
    return between(*support_of(entry), shape)


def between(low: Any, high: Any, shape: tuple[int, ...]) -> Transform:
    """Return coordinates between ends, infinite where there is none; those of an array of this shape may differ."""
    low, high = np.asarray(low, float), np.asarray(high, float)
    if len(np.unique(low)) > 1 or len(np.unique(high)) > 1:
        return Box(*(tuple(np.broadcast_to(end, shape).ravel().tolist()) for end in (low, high)))
    low, high = float(low.flat[0]), float(high.flat[0])
    if np.isfinite(low) and np.isfinite(high):
        return Interval(low, high)
    if np.isfinite(low):
        return Log() if low == 0 else Shift(low, 1)
    return Shift(high, -1) if np.isfinite(high) else Identity()


def _kind_of(entry: Any) -> str | None:
    """Return the name of a distribution's support that is neither all numbers nor an interval of them; else None."""
    support: Any = getattr(entry, "support", None)
    while hasattr(support, "base_constraint"):  # of arrays whose numbers have the same, as NumPyro writes it
        support = support.base_constraint
    if support is None or isinstance(support, tuple) or hasattr(support, "lower_bound"):
        return None
    name = type(support).__name__.lstrip("_")
    return None if hasattr(support, "upper_bound") or name.startswith("Real") else name


def prior_term(entries: Sequence[Any]) -> Penalty | None:
    """Return the term of priors, one entry for each leaf; None where there are none.

    Gaussians alone are residuals, so that least squares can use them; constants are left out there.
    """
    entries = tuple(entries)
    if all(entry is None or isinstance(entry, Flat) for entry in entries):
        return None
    if all(entry is None or isinstance(entry, Normal | Flat) for entry in entries):
        return ResidualPenalty((entries,), 1.0, _standardised, prior=True)
    return Penalty((entries,), 1.0, _negative_log, prior=True)


def _standardised(params, entries):
    pairs = zip(jax.tree.leaves(params), entries, strict=True)
    return jnp.concatenate([jnp.ravel((leaf - e.mean) / e.sd) for leaf, e in pairs if isinstance(e, Normal)])


def _negative_log(params, entries):
    pairs = zip(jax.tree.leaves(params), entries, strict=True)
    return -sum(jnp.sum(entry.log_prob(leaf)) for leaf, entry in pairs if entry is not None)
