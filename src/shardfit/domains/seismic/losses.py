"""Losses between modelled and observed traces, both (shots, receivers, nt).

A loss is a small frozen object, loss(modelled, observed, weights) → (sums, counts), both (shots,): the mean over any
set of shots is the sum of their sums over the sum of their counts, wherever the shots are. weights: None, or anything
that broadcasts to the traces; 0 removes. Losses of samples count samples; losses of whole traces count traces, multiply
both by the weights scaled to a largest value of 1, and give a trace that largest value. An observed trace a million
times weaker than the strongest of its shot is rounding, without a shape to compare with: they leave it out.
"""

from dataclasses import dataclass, fields
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from shardfit.core.errors import suggestion
from shardfit.domains.seismic.arrays import PerShot, PerTrace, Series, Traces

Sums = tuple[PerShot, PerShot]
DENSITIES = ("square", "abs", "shift")
QUIET = 1e-6  # share of a reference amplitude below which a trace counts as silent
SILENT = 1e-18  # amplitude whose square float32 can still hold


def _check_density(loss: Any) -> None:
    if loss.density not in DENSITIES:
        raise ValueError(
            f"{type(loss).__name__}: unknown density {loss.density!r}.{suggestion(str(loss.density), DENSITIES)}"
        )


def _require_positive(loss: Any) -> None:
    for field in fields(loss):
        value = getattr(loss, field.name)
        if isinstance(value, float | int) and not (np.isfinite(value) and value > 0):
            raise ValueError(f"{type(loss).__name__}: {field.name}={value!r} must be a positive number.")


@dataclass(frozen=True)
class SampleLoss:
    """A loss that is a sum over samples of a function of the residual."""

    def of_residual(self, residual: Traces) -> Traces:
        """Return the contribution of every sample."""
        raise NotImplementedError

    def bend(self, residual: Traces) -> Traces:
        """Return slope over residual: the curvature of the parabola that touches the loss there and lies above it."""
        away = jnp.where(jnp.abs(residual) > SILENT, residual, SILENT)
        return jax.grad(lambda r: jnp.sum(self.of_residual(r)))(away) / away

    def __call__(self, modelled: Traces, observed: Traces, weights: Any = None) -> Sums:
        """Return weighted sums over the samples of every shot, and the sums of the weights."""
        found = self.of_residual(modelled - observed)
        weights = jnp.ones_like(found) if weights is None else jnp.broadcast_to(weights, found.shape)
        return jnp.sum(weights * found, (1, 2)), jnp.sum(weights.astype(found.dtype), (1, 2))


@dataclass(frozen=True)
class L2(SampleLoss):
    """Squared residuals."""

    def of_residual(self, residual: Traces) -> Traces:
        """Return r²."""
        return residual**2


@dataclass(frozen=True)
class L1(SampleLoss):
    """Absolute residuals."""

    def of_residual(self, residual: Traces) -> Traces:
        """Return |r|."""
        return _size(residual)


@dataclass(frozen=True)
class Huber(SampleLoss):
    """Squares up to delta, then a line. delta: in units of the normalised data."""

    delta: float = 0.1

    def __post_init__(self):
        _require_positive(self)

    def of_residual(self, residual: Traces) -> Traces:
        """Return r² where |r| < delta, else delta (2 |r| - delta)."""
        size = _size(residual)
        return jnp.where(size < self.delta, residual**2, self.delta * (2 * size - self.delta))


@dataclass(frozen=True)
class StudentT(SampleLoss):
    """Negative logarithm of Student's t distribution: far outliers hardly count."""

    nu: float = 3.0
    scale: float = 0.1

    def __post_init__(self):
        _require_positive(self)

    def of_residual(self, residual: Traces) -> Traces:
        """Return (ν + 1) / 2 · log(1 + (r / scale)² / ν)."""
        return 0.5 * (self.nu + 1) * jnp.log1p((residual / self.scale) ** 2 / self.nu)


@dataclass(frozen=True)
class TraceLoss:
    """A loss that is a sum over whole traces."""

    def of_traces(self, modelled: Traces, observed: Traces) -> PerTrace:
        """Return the contribution of every trace, (shots, receivers)."""
        raise NotImplementedError

    def __call__(self, modelled: Traces, observed: Traces, weights: Any = None) -> Sums:
        """Return weighted sums over the traces of every shot, and the sums of the weights."""
        whole = jnp.ones(modelled.shape[:2], modelled.dtype)
        if weights is not None:
            weights = jnp.broadcast_to(weights, modelled.shape).astype(modelled.dtype)
            whole = weights.max(-1)
            shape = weights / jnp.where(whole > 0, whole, 1)[..., None]
            modelled, observed = modelled * shape, observed * shape
        loud = jnp.max(jnp.abs(observed), -1)
        whole = jnp.where(loud > QUIET * jnp.max(loud, 1, keepdims=True), whole, 0)
        return jnp.sum(whole * self.of_traces(modelled, observed), 1), jnp.sum(whole, 1)


@dataclass(frozen=True)
class Correlation(TraceLoss):
    """1 - <d, o> / (|d| |o|): amplitudes do not matter."""

    def of_traces(self, modelled: Traces, observed: Traces) -> PerTrace:
        """Return one minus the normalised correlation."""
        modelled, observed = units(modelled, observed)
        return 1 - jnp.sum(modelled * observed, -1)


@dataclass(frozen=True)
class Envelope(TraceLoss):
    """Mean squared difference of the envelopes to the given power, 1 or 2: phases do not matter."""

    power: int = 2
    floor: float = 1e-6  # envelope below which its root is rounded off, so that it has a slope at 0

    def __post_init__(self):
        if self.power not in (1, 2):
            raise ValueError(f"Envelope: power={self.power!r} must be 1 or 2.")
        _require_positive(self)

    def of_traces(self, modelled: Traces, observed: Traces) -> PerTrace:
        """Return the mean over time of (E_d^p - E_o^p)²."""
        return jnp.mean((self._powered(modelled) - self._powered(observed)) ** 2, -1)

    def _powered(self, traces):
        squared = envelope_squared(traces)
        return squared if self.power == 2 else jnp.sqrt(squared + self.floor**2) - self.floor


@dataclass(frozen=True)
class NIM(TraceLoss):
    """Normalised integration: mean squared difference of the cumulative curves of the traces made densities.

    density: 'square', 'abs', or 'shift', which adds what makes both traces positive. This is the Cramér distance.
    """

    density: str = "square"

    def __post_init__(self):
        _check_density(self)

    def of_traces(self, modelled: Traces, observed: Traces) -> PerTrace:
        """Return the mean over time of the squared difference of cumulative curves."""
        first, second = (_cumulative(d) for d in densities(self.density, modelled, observed))
        return jnp.mean((first - second) ** 2, -1)


@dataclass(frozen=True)
class W2(TraceLoss):
    """Squared quadratic Wasserstein distance along time between the traces made densities, in trace lengths squared.

    floor: share of its mass that a density gets on top, evenly, so that its cumulative curve rises everywhere.

    It has kinks: where a quantile passes from one sample to the next, with 'abs' also where a sample passes zero.
    A difference quotient whose step carries one across them misses the gradient, which is exact between them.
    """

    density: str = "square"
    floor: float = 1e-3

    def __post_init__(self):
        _check_density(self)
        _require_positive(self)

    def of_traces(self, modelled: Traces, observed: Traces) -> PerTrace:
        """Return the mean squared distance of the inverse cumulative curves."""
        nt = modelled.shape[-1]
        times = jnp.linspace(0, 1, nt + 1, dtype=modelled.dtype)
        levels = (jnp.arange(nt, dtype=modelled.dtype) + 0.5) / nt

        def quantiles(density):
            curves = jnp.pad(_cumulative(_shares(density) + self.floor / nt), ((0, 0), (0, 0), (1, 0)))
            invert = jax.vmap(lambda curve: jnp.interp(levels, curve, times))
            return invert(curves.reshape(-1, nt + 1)).reshape(modelled.shape)

        first, second = (quantiles(d) for d in densities(self.density, modelled, observed))
        return jnp.mean((first - second) ** 2, -1)


Loss = SampleLoss | TraceLoss
NAMED: dict[str, Loss] = {
    "l2": L2(),
    "l1": L1(),
    "huber": Huber(),
    "student-t": StudentT(),
    "correlation": Correlation(),
    "envelope": Envelope(),
    "nim": NIM(),
    "w2": W2(),
}


def as_loss(loss: str | Loss) -> Loss:
    """Return a loss from a name or an object: `as_loss("l2")`, `as_loss(Huber(0.5))`."""
    if isinstance(loss, Loss):
        return loss
    if loss not in NAMED:
        raise ValueError(f"unknown loss {loss!r}.{suggestion(str(loss), NAMED)}")
    return NAMED[loss]


def units(modelled: Traces, observed: Traces) -> tuple[Traces, Traces]:
    """Return both divided by the norms of their traces; a silent trace stays silent, with a finite slope."""

    def unit(traces):
        squared = jnp.sum(traces**2, -1, keepdims=True)
        return traces / jnp.sqrt(jnp.where(squared > QUIET**2, squared, 1))

    modelled, observed = _scaled(modelled, observed)
    return unit(modelled), unit(observed)


def _scaled(modelled: Traces, observed: Traces) -> tuple[Traces, Traces]:
    """Return both with largest amplitudes about 1, for what is normalised next: squares of weak traces underflow."""
    loud, own = (jax.lax.stop_gradient(jnp.max(jnp.abs(t), -1, keepdims=True)) for t in (observed, modelled))
    own = jnp.maximum(own, QUIET * loud)
    return modelled / jnp.where(own > SILENT, own, 1), observed / jnp.where(loud > SILENT, loud, 1)


def envelope_squared(traces: Series) -> Series:
    """Return the squared modulus of the analytic signal along the last axis."""
    nt = traces.shape[-1]
    gain = np.zeros(nt)
    gain[0], gain[1 : (nt + 1) // 2] = 1, 2
    if nt % 2 == 0:
        gain[nt // 2] = 1
    analytic = jnp.fft.ifft(jnp.fft.fft(traces) * gain.astype(traces.dtype))
    return analytic.real**2 + analytic.imag**2


def densities(name: str, modelled: Traces, observed: Traces) -> tuple[Traces, Traces]:
    """Return both traces made non-negative, up to a factor."""
    if name != "shift":
        modelled, observed = _scaled(modelled, observed)
        return (modelled**2, observed**2) if name == "square" else (_size(modelled), _size(observed))
    lift = -jnp.minimum(modelled.min(-1, keepdims=True), observed.min(-1, keepdims=True))
    return modelled + lift, observed + lift


def _size(x: Series) -> Series:
    return x * jnp.sign(x)  # unlike abs, without slope at 0


def _cumulative(density: Series) -> Series:
    return jnp.cumsum(_shares(density), -1)


def _shares(density: Series) -> Series:
    total = jnp.sum(density, -1, keepdims=True)
    return density / jnp.where(total > QUIET**2, total, 1)
