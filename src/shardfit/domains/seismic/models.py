"""Velocity models made by formula, (nz, nx) or (nz, ny, nx) in m/s, and start models for an inversion.

Lengths are metres and do not depend on the grid: the same section may be sampled finely or coarsely.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

WATER = 1500.0  # m/s


def layers(
    shape: tuple[int, ...],
    dh: Any,
    tops: Sequence[float] = (0.0, 0.15, 0.4, 0.7),
    speeds: Sequence[float] = (WATER, 1900.0, 2400.0, 3100.0),
) -> np.ndarray:
    """Flat layers. tops: where each begins, as fractions of the whole depth; speeds: m/s.

    Example: `layers((100, 300), 10.0)`.
    """
    if len(tops) != len(speeds) or tops[0] != 0 or np.any(np.diff(tops) <= 0):
        raise ValueError(f"layers: tops {tuple(tops)} must rise from 0, one for each of the {len(speeds)} speeds.")
    z = _axes(shape, dh)[0]
    return _tiled(np.asarray(speeds, float)[np.searchsorted(tops, z / z[-1], side="right") - 1], shape)


def lens(
    shape: tuple[int, ...], dh: Any, background: float = 2000.0, change: float = 400.0, radius: float | None = None
) -> np.ndarray:
    """A Gaussian anomaly in the middle of a uniform medium. change: m/s at its centre; radius: standard deviation in m.

    By default the radius is a tenth of the shorter side. Example: `lens((100, 100), 10.0, change=-300.0)`.
    """
    axes = _axes(shape, dh)
    radius = float(0.1 * min(along[-1] for along in axes)) if radius is None else radius
    if not radius > 0:
        raise ValueError(f"lens: radius={radius!r} m must be positive.")
    squared = sum(part**2 for part in np.ix_(*(along - along[-1] / 2 for along in axes)))
    return background + change * np.exp(-0.5 * squared / radius**2)


def faulted_section(shape: tuple[int, ...], dh: Any, seed: int = 0, water: float | None = None) -> np.ndarray:
    """Water, flat young layers, and below an unconformity folded, dipping layers cut by normal faults.

    seed decides layers and faults. water: its depth in metres, by default 7 % of the whole. Speeds are 1500 to
    about 4500 m/s. Example: `faulted_section((100, 300), 15.0, seed=1)`.
    """
    if len(shape) != 2:
        raise ValueError(
            f"faulted_section: shape {tuple(shape)} must be (nz, nx); layers and lens have three dimensions."
        )
    rng = np.random.default_rng(seed)
    z, x = _axes(shape, dh)
    depth, width = z[-1], x[-1]
    water = float(0.07 * depth) if water is None else water
    if not 0 <= water < depth:
        raise ValueError(f"faulted_section: water={water!r} m must be between 0 and the whole depth, {depth:g} m.")
    thickness = depth * rng.uniform(0.025, 0.09, 80)
    contrast = rng.normal(0.0, 260.0, 80)
    old = z[:, None] - _displacement(rng, z, x, depth, width)
    young = np.broadcast_to(z[:, None] - 0.01 * depth * np.sin(2 * np.pi * x / width), shape)
    above = z[:, None] < depth * (0.26 + 0.05 * np.cos(2 * np.pi * x / width + rng.uniform(0, 6)))
    place = np.where(above, young, old + depth)  # old layers are others than young ones
    layer = np.searchsorted(np.cumsum(thickness), place).clip(0, 79)
    trend = 1600.0 + 2300.0 * (np.where(above, young, 0.5 * (old + z[:, None])) / depth).clip(0, 1.2)
    velocity = (trend + np.where(above, 0.45, 1.0) * contrast[layer]).clip(1550.0, 4500.0)
    return np.where(z[:, None] < water, WATER, velocity)


def water_cells(velocity: Any, speed: float = WATER) -> np.ndarray:
    """Return a mask of the cells from the top down that have the speed of water, to 1 m/s."""
    return np.logical_and.accumulate(np.abs(np.asarray(velocity) - speed) <= 1.0, axis=0)


def smoothed(velocity: Any, metres: float, dh: Any, water: Any = None) -> np.ndarray:
    """Smooth by a Gaussian of this standard deviation. water: mask of cells to keep, which do not leak into the rest.

    Example: `smoothed(model, 300.0, 15.0, water=water_cells(model))`.
    """
    from scipy.ndimage import gaussian_filter

    if not metres > 0:
        raise ValueError(f"smoothed: metres={metres!r} must be positive.")
    velocity = np.asarray(velocity, float)
    rock = np.ones(velocity.shape) if water is None else 1.0 - np.asarray(water)
    sigma = metres / np.broadcast_to(dh, velocity.ndim)
    # both ends of the quotient see the same cells, so a sharp sea floor stays sharp
    total, weight = (gaussian_filter(a, sigma, mode="nearest", truncate=6.0) for a in (velocity * rock, rock))
    return np.where(rock > 0, total / np.where(rock > 0, weight, 1.0), velocity)


def linear_in_depth(
    shape: tuple[int, ...], dh: Any, top: float = WATER, bottom: float = 4000.0, water: Any = None
) -> np.ndarray:
    """Speed that grows in proportion to depth, from `top` to `bottom` m/s. water: mask of cells with 1500 m/s.

    Example: `linear_in_depth((100, 300), 15.0, 1600.0, 3800.0)`.
    """
    z = _axes(shape, dh)[0]
    velocity = _tiled(top + (bottom - top) * z / z[-1], shape)
    return velocity if water is None else np.where(water, WATER, velocity)


def _axes(shape: tuple[int, ...], dh: Any) -> tuple[np.ndarray, ...]:
    """Return depths and positions of the cells in metres."""
    steps = np.broadcast_to(np.asarray(dh, float), len(shape))
    if min(shape) < 2 or min(steps) <= 0:
        raise ValueError(f"shape {tuple(shape)} with spacing {dh}: at least 2 cells a side and a positive spacing.")
    return tuple(step * np.arange(n) for step, n in zip(steps, shape, strict=True))


def _tiled(column: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return a model that depends on the depth alone."""
    return np.broadcast_to(column.reshape(-1, *(1,) * (len(shape) - 1)), shape).copy()


def _displacement(rng: np.random.Generator, z: np.ndarray, x: np.ndarray, depth: float, width: float) -> np.ndarray:
    """Return how far the old layers lie below their first place: dip, an anticline, and four faults that lean."""
    dip = 0.12 * depth * (x / width - 0.5)
    fold = -0.22 * depth * np.exp(-0.5 * ((x / width - rng.uniform(0.55, 0.7)) / 0.13) ** 2)
    total = np.broadcast_to(dip + fold, (len(z), len(x))).copy()
    for place in np.linspace(0.2, 0.75, 4) + rng.uniform(-0.04, 0.04, 4):
        lean, throw = rng.uniform(0.35, 0.6) * rng.choice([-1.0, 1.0]), depth * rng.uniform(0.04, 0.1)
        trace = place * width + lean * (z[:, None] - 0.5 * depth)
        total += throw * np.sign(lean) * (x > trace)
    return total
