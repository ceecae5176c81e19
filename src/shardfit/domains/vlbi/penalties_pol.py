"""Regularisers of polarisation, of the physical maps I, m, phi, v (n,) over the pixels of the mask."""

from collections.abc import Callable

import jax.numpy as jnp

from shardfit.domains.vlbi.penalties import Scalar, Scales, squares, steps, variation
from shardfit.domains.vlbi.transforms import Maps, Pixels, safe_sqrt, stokes


def _positive_log(x: Pixels) -> Pixels:
    return jnp.log(jnp.where(x > 0, x, 1.0))


def msimple(maps: Maps, s: Scales) -> Scalar:
    """Σ I ln m; a negative weight discourages low fractions."""
    return jnp.sum(maps["I"] * _positive_log(maps["m"]))


def hw(maps: Maps, s: Scales) -> Scalar:
    """Σ I [(1+m)/2 ln((1+m)/2) + (1-m)/2 ln((1-m)/2)], Holdaway–Wardle entropy."""
    up, down = (1 + maps["m"]) / 2, (1 - maps["m"]) / 2
    return jnp.sum(maps["I"] * (up * _positive_log(up) + down * _positive_log(down)))


def ptv(maps: Maps, s: Scales) -> Scalar:
    """Total variation of the complex image P."""
    q, u = (squares(steps(part, s)) for part in stokes(maps, ("Q", "U")))
    return jnp.sum(safe_sqrt(q + u + s.epsilon_tv))


def _circular(maps: Maps) -> Pixels:
    return maps["I"] * maps["v"]


def vflux(maps: Maps, s: Scales) -> Scalar:
    """(Σ V - F_V)²."""
    return (jnp.sum(_circular(maps)) - s.vflux) ** 2


def l1v(maps: Maps, s: Scales) -> Scalar:
    """Σ |V|."""
    return jnp.sum(jnp.abs(_circular(maps)))


def l2v(maps: Maps, s: Scales) -> Scalar:
    """Σ V²."""
    return jnp.sum(_circular(maps) ** 2)


def vtv(maps: Maps, s: Scales) -> Scalar:
    """Total variation of V."""
    return variation(steps(_circular(maps), s), s.epsilon_tv)


def vtv2(maps: Maps, s: Scales) -> Scalar:
    """Squared differences of V."""
    return jnp.sum(squares(steps(_circular(maps), s)))


# name: (value, divisor when normalised)
PENALTIES: dict[str, tuple[Callable, Callable]] = {
    "msimple": (msimple, lambda s: s.flux),
    "hw": (hw, lambda s: s.flux),
    "ptv": (ptv, lambda s: s.flux / s.beam),
    "vflux": (vflux, lambda s: s.vflux**2),
    "l1v": (l1v, lambda s: jnp.abs(s.vflux)),
    "l2v": (l2v, lambda s: s.vflux**2),
    "vtv": (vtv, lambda s: jnp.abs(s.vflux) / s.beam),
    "vtv2": (vtv2, lambda s: s.vflux**2 / s.beam**4),
}


def evaluate(name: str, maps: Maps, scales: Scales) -> Scalar:
    """Value of a polarimetric regulariser of the physical maps."""
    value, divisor = PENALTIES[name]
    return value(maps, scales) / divisor(scales) if scales.norm else value(maps, scales)
