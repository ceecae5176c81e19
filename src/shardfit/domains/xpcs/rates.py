"""How fast the sample moves: the transport coefficient J(t) and the shear rate S(t) as functions of time.

A rate names its parameters, says their unit, range and start, and computes itself from their values. A new one is a
frozen dataclass with `table` and `__call__`, registered as static so that programs are compiled once per kind of rate.
Values at or below FLOOR are set to it by the forward model, so a rate may be written without care for its sign.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import register_static


class Parameter(NamedTuple):
    """Range, start and unit of a parameter; mean and standard deviation of the prior that is usual in the field."""

    lower: float
    upper: float
    start: float
    unit: str = ""
    prior: tuple[float, float] | None = None


class Rate(Protocol):
    """A rate of time with named parameters."""

    @property
    def table(self) -> dict[str, Parameter]:
        """Parameters by name, in the order of the values."""
        ...

    def __call__(self, values: Any, t: jax.Array) -> jax.Array:
        """Return the rate at times t (nt,) s."""
        ...


LEVEL = {"D": Parameter(1e-3, 1e7, 1e3, "Å²/s"), "gamma_dot": Parameter(1e-8, 1.0, 1e-2, "1/s")}
EXPONENT = {"D": "alpha", "gamma_dot": "beta"}
POWER_LAW = {
    "D0": Parameter(100.0, 1e5, 1e4, "Å²/s", (1000.0, 1000.0)),
    "alpha": Parameter(-2.0, 2.0, -0.5, "", (0.5, 0.5)),
    "D_offset": Parameter(-1e5, 1e5, 0.0, "Å²/s", (10.0, 200.0)),
    "gamma_dot_t0": Parameter(1e-6, 0.5, 1e-3, "1/s", (0.01, 0.1)),
    "beta": Parameter(-2.0, 2.0, 0.0, "", (0.0, 0.5)),
    "gamma_dot_t_offset": Parameter(-0.1, 0.1, 0.0, "1/s", (0.0, 0.02)),
}
PHI0 = Parameter(-10.0, 10.0, 0.0, "°", (0.0, 5.0))


def _level(stem: str) -> Parameter:
    if stem not in LEVEL:
        raise ValueError(f"rate of {stem!r}: use 'D' for the transport coefficient, 'gamma_dot' for the shear rate.")
    return LEVEL[stem]


@register_static
@dataclass(frozen=True)
class PowerLaw:
    """amplitude · t^exponent + offset: D0, alpha, D_offset, or gamma_dot_t0, beta, gamma_dot_t_offset."""

    stem: str = "D"

    @property
    def table(self) -> dict[str, Parameter]:
        """Parameters by name."""
        _level(self.stem)
        names = list(POWER_LAW)[:3] if self.stem == "D" else list(POWER_LAW)[3:]
        return {name: POWER_LAW[name] for name in names}

    def __call__(self, values: Any, t: jax.Array) -> jax.Array:
        """Return the rate."""
        amplitude, exponent, offset = values
        return amplitude * t**exponent + offset


@register_static
@dataclass(frozen=True)
class CurvedPower:
    """level · (1 + slope · ((t/t_ref)^exponent − 1)/exponent): a power law with offset in coordinates without a ridge.

    level is the rate at t_ref, slope its logarithmic derivative there; at exponent 0 the bracket is a logarithm. The
    power law's own parameters follow by `power_law`; they run to infinity at exponent 0, these do not.
    """

    t_ref: float
    stem: str = "D"

    def __post_init__(self):
        if not self.t_ref > 0:
            raise ValueError(f"CurvedPower: t_ref={self.t_ref} must be a positive time in seconds.")

    @property
    def table(self) -> dict[str, Parameter]:
        """Parameters by name."""
        level, exponent = _level(self.stem), POWER_LAW[EXPONENT[self.stem]]
        slope = Parameter(-20.0, 20.0, 0.0)
        return {f"{self.stem}_ref": level, EXPONENT[self.stem]: exponent, f"{self.stem}_slope": slope}

    def __call__(self, values: Any, t: jax.Array) -> jax.Array:
        """Return the rate."""
        level, exponent, slope = values
        log_time = jnp.log(t / self.t_ref)
        return level * (1 + slope * log_time * _relative_growth(exponent * log_time))

    def power_law(self, values: Any) -> tuple:
        """Return amplitude, exponent and offset of the same rate as a PowerLaw."""
        level, exponent, slope = values
        share = slope / exponent
        return level * share * self.t_ref**-exponent, exponent, level * (1 - share)

    def from_power_law(self, values: Any) -> tuple:
        """Return level, exponent and slope of the same rate, given amplitude, exponent and offset."""
        amplitude, exponent, offset = values
        varying = amplitude * self.t_ref**exponent
        return varying + offset, exponent, varying * exponent / (varying + offset)


def _relative_growth(x: jax.Array) -> jax.Array:
    """Return (eˣ − 1)/x, with its series near zero."""
    small = jnp.abs(x) < 1e-5
    safe = jnp.where(small, 1.0, x)
    return jnp.where(small, 1 + x / 2 + x * x / 6, jnp.expm1(safe) / safe)


@register_static
@dataclass(frozen=True)
class Ageing:
    """late + (early − late) · exp(−t/time): a rate that relaxes."""

    time: float  # s, the start of its own parameter
    stem: str = "D"

    @property
    def table(self) -> dict[str, Parameter]:
        """Parameters by name."""
        level, time = _level(self.stem), Parameter(1e-3 * self.time, 1e3 * self.time, self.time, "s")
        return {f"{self.stem}_early": level, f"{self.stem}_late": level, f"{self.stem}_time": time}

    def __call__(self, values: Any, t: jax.Array) -> jax.Array:
        """Return the rate."""
        early, late, time = values
        return late + (early - late) * jnp.exp(-t / time)


@register_static
@dataclass(frozen=True)
class Stretched:
    """amplitude · exp(−(t/time)^stretch) + offset."""

    time: float
    stem: str = "D"

    @property
    def table(self) -> dict[str, Parameter]:
        """Parameters by name."""
        level, time = _level(self.stem), Parameter(1e-3 * self.time, 1e3 * self.time, self.time, "s")
        names = [f"{self.stem}_{word}" for word in ("amplitude", "time", "stretch", "floor")]
        return dict(zip(names, (level, time, Parameter(0.05, 4.0, 1.0), level), strict=True))

    def __call__(self, values: Any, t: jax.Array) -> jax.Array:
        """Return the rate."""
        amplitude, time, stretch, floor = values
        return amplitude * jnp.exp(-((t / time) ** stretch)) + floor


@register_static
@dataclass(frozen=True)
class Knots:
    """A rate given at times: straight lines between them, or a natural cubic spline; constant beyond the ends."""

    times: tuple[float, ...]
    stem: str = "D"
    cubic: bool = False

    def __post_init__(self):
        if len(self.times) < 2 or np.any(np.diff(self.times) <= 0):
            raise ValueError(f"Knots: times {self.times} must increase and be at least two.")

    @property
    def table(self) -> dict[str, Parameter]:
        """Parameters by name."""
        return {f"{self.stem}_{i + 1}": _level(self.stem) for i in range(len(self.times))}

    def __call__(self, values: Any, t: jax.Array) -> jax.Array:
        """Return the rate."""
        knots, values = np.asarray(self.times), jnp.stack([jnp.asarray(v) for v in values])
        t = jnp.clip(t, knots[0], knots[-1])
        right = jnp.clip(jnp.searchsorted(knots, t, side="right"), 1, len(knots) - 1)
        start, width = (jnp.asarray(a)[right - 1] for a in (knots, np.diff(knots)))
        u = (t - start) / width
        line = (1 - u) * values[right - 1] + u * values[right]
        if not self.cubic:
            return line
        bend = jnp.asarray(_second_derivatives(knots)) @ values
        lift = ((1 - u) ** 3 - (1 - u)) * bend[right - 1] + (u**3 - u) * bend[right]
        return line + lift * width**2 / 6


def _second_derivatives(knots: np.ndarray) -> np.ndarray:
    """Return the matrix from values at knots to the second derivatives of their natural cubic spline."""
    n, h = len(knots), np.diff(knots)
    left, right = np.eye(n), np.zeros((n, n))
    for i in range(1, n - 1):
        left[i, i - 1 : i + 2] = h[i - 1] / 6, (h[i - 1] + h[i]) / 3, h[i] / 6
        right[i, i - 1 : i + 2] = 1 / h[i - 1], -1 / h[i - 1] - 1 / h[i], 1 / h[i]
    return np.linalg.solve(left, right)
