"""Visibilities of simple shapes in closed form. Lengths are in µas, u and v in wavelengths, fluxes in Jy.

A position (x, y), µas to the east and north, multiplies by exp(2πi (u x + v y)). Angles run from north to east.
"""

from collections.abc import Callable, Mapping

import jax.numpy as jnp
import numpy as np

from shardfit.domains.vlbi.constants import FWHM_TO_SIGMA, UAS

NODES = 64  # of the integral for Bessel functions: exact to rounding up to arguments of about 40


def bessel(order: int, z):
    """Bessel function J of whole order, (1/π) ∫ cos(kτ - z sin τ) dτ from 0 to π, by the midpoint rule."""
    tau = np.pi * (np.arange(NODES) + 0.5) / NODES
    return jnp.mean(jnp.cos(order * tau - z[..., None] * np.sin(tau)), -1)


def _blurred(p: Mapping, u, v):
    """Transform of a circular Gaussian of FWHM `width`."""
    return jnp.exp(-2 * (np.pi * FWHM_TO_SIGMA * UAS * p["width"]) ** 2 * (u**2 + v**2))


def gaussian(p: Mapping, u, v):
    """Circular Gaussian: flux, width (FWHM)."""
    return p["flux"] * _blurred(p, u, v) + 0j


def ellipse(p: Mapping, u, v):
    """Elliptical Gaussian: flux, width (geometric mean of the FWHM), and a strain: e_plus north, e_cross diagonal.

    The axes have the ratio exp √(e_plus² + e_cross²). Other than an angle, these are smooth for a circle.
    """
    q2, cross = u**2 + v**2, 2 * u * v
    size = jnp.sqrt(p["e_plus"] ** 2 + p["e_cross"] ** 2 + 1e-24)
    stretched = jnp.cosh(size) * q2 + jnp.sinh(size) / size * (p["e_plus"] * (v**2 - u**2) + p["e_cross"] * cross)
    return p["flux"] * jnp.exp(-2 * (np.pi * FWHM_TO_SIGMA * UAS * p["width"]) ** 2 * stretched) + 0j


def disk(p: Mapping, u, v):
    """Uniform disk: flux, diameter, softened by a Gaussian of FWHM width."""
    z = np.pi * UAS * p["diameter"] * jnp.sqrt(u**2 + v**2 + 1e-12)
    small = z < 1e-4
    safe = jnp.where(small, 1.0, z)
    return p["flux"] * jnp.where(small, 1 - z**2 / 8, 2 * bessel(1, safe) / safe) * _blurred(p, u, v) + 0j


def ring(p: Mapping, u, v):
    """Thin ring: flux, diameter, made thick by a Gaussian of FWHM width."""
    return mring(p, u, v)


def mring(p: Mapping, u, v):
    """Ring whose brightness goes as 1 + Σ c_m cos mθ + s_m sin mθ: flux, diameter, width, c1, s1, c2, s2, …"""
    q = jnp.sqrt(u**2 + v**2 + 1e-12)
    z = np.pi * UAS * p["diameter"] * q
    sin, cos = u / q, v / q
    total, turn, m = bessel(0, z) + 0j, jnp.ones_like(z) + 0j, 1
    while f"c{m}" in p:
        turn = turn * (cos + 1j * sin)
        total = total + 1j**m * bessel(m, z) * (p[f"c{m}"] * turn.real + p[f"s{m}"] * turn.imag)
        m += 1
    return p["flux"] * total * _blurred(p, u, v)


SHAPES: dict[str, Callable] = {f.__name__: f for f in (gaussian, ellipse, disk, ring, mring)}
PARAMETERS = {
    "gaussian": ("flux", "width"),
    "ellipse": ("flux", "width", "e_plus", "e_cross"),
    "disk": ("flux", "diameter", "width"),
    "ring": ("flux", "diameter", "width"),
    "mring": ("flux", "diameter", "width"),
}
UNITS = {"flux": "Jy", "width": "µas", "diameter": "µas", "x": "µas", "y": "µas"}


def parameters(name: str, modes: int = 1) -> tuple[str, ...]:
    """Return the parameters of a shape, without its position; modes: of an m-ring."""
    more = [f"{part}{m}" for m in range(1, modes + 1) for part in "cs"] if name == "mring" else []
    return (*PARAMETERS[name], *more)
