"""Absorbing edges: convolutional perfectly matched layers (CPML) in second-order form, held in strips.

Per axis, with memory fields ψ and ζ that live in the layers only, D and DD the first and second difference:

    t  = (1 + b) DD u + b' D u + D(a ψ);    L += (1 + b) t + a ζ
    ψ <- b D u + a ψ;                       ζ <- b t + a ζ          (old values on the right)

b and a vanish outside the layer of W cells; b' = D b reaches M cells further, and so do the terms added to L.
"""

from typing import NamedTuple

import numpy as np

from shardfit.domains.seismic.simulation import Simulation
from shardfit.domains.seismic.stencil import FIRST

REFLECTION = 1e-3  # aimed at normal incidence, in the continuous limit


class Profile(NamedTuple):
    """CPML coefficients of one axis, (n,) for each padded cell; slope is the difference b' times the spacing."""

    a: np.ndarray
    b: np.ndarray
    slope: np.ndarray


def profiles(sim: Simulation) -> tuple[Profile, ...]:
    """Return the CPML coefficients along every axis, float64."""
    return tuple(_profile(sim, axis) for axis in range(len(sim.shape)))


def damping(sim: Simulation, axis: int, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return a and b at places along an axis, in cells of the padded grid, whole or between; zero outside the layers.

    Beyond the last cell the outermost value goes on.
    """
    low, high = sim.pairs[axis]
    a, b = np.zeros(len(places)), np.zeros(len(places))
    for width, depth in ((low, low - places), (high, places - (sim.padded[axis] - 1 - high))):
        if width:
            inside = depth > 0
            e = np.clip(depth[inside] / width, 0, 1)
            sigma = 3 * sim.v_max * np.log(1 / REFLECTION) / (2 * width * sim.dh[axis]) * e**2
            alpha = np.pi * sim.f_peak * (1 - e)
            a[inside] = np.exp(-(sigma + alpha) * sim.dt)
            b[inside] = sigma / (sigma + alpha) * (a[inside] - 1)
    return a, b


def _profile(sim: Simulation, axis: int) -> Profile:
    m, n = sim.half, sim.padded[axis]
    a, b = damping(sim, axis, np.arange(-m, n + m))
    slope = sum(d * (b[m + k : n + m + k] - b[m - k : n + m - k]) for k, d in enumerate(FIRST[sim.order], start=1))
    return Profile(a[m:-m], b[m:-m], np.asarray(slope))
