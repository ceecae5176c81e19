"""Simulated speckle of known samples: fields, pixels and photons drawn as they arise, nothing of the package in it.

A pixel sums `modes` independent speckles (contrast 1/modes), or, with `width`, sees speckles of a field that is smooth
over pixels, so that neighbours share them. Intensities become counts (Poisson, `counts` a pixel and frame on average;
0: none are lost). Correlations are those of a detector's pixels: mean(I_i I_j)/(mean(I_i) mean(I_j)), i = j too.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

DT, GAP = 0.1, 2e6  # s between frames; Å between the plates of a shear cell
PLANES = 64  # of the fluid, across the gap


@dataclass(frozen=True)
class Speckles:
    """An experiment: law (t) → J in Å²/s; azimuths; shear (t) → 1/s; frames; pixels of an angle; see the module.

    flow_angle: azimuth of the velocity. moving: (share of the field, Å/s) of what drifts through the rest.
    """

    law: Callable[[np.ndarray], np.ndarray]
    phi: tuple[float, ...] = (0.0,)
    shear: Callable[[np.ndarray], np.ndarray] | None = None
    frames: int = 100
    pixels: int = 600
    modes: int = 4
    counts: float = 1.0
    width: float = 0.0
    q: float = 0.0054
    moving: tuple[float, float] | None = None
    flow_angle: float = 0.0
    normalisation: float = 0.0  # relative error of the level of an angle


def times(frames: int) -> np.ndarray:
    """Return the times of the frames in s; the first is half a frame, as power laws of time need it."""
    t = DT * np.arange(frames)
    return np.where(t < DT / 2, DT / 2, t)


def integral(rate: np.ndarray) -> np.ndarray:
    """Return the integral of a rate from the first frame to each (trapezoids)."""
    return DT * np.concatenate([[0.0], np.cumsum(0.5 * (rate[1:] + rate[:-1]))])


def fields(made: Speckles, angle: float, number: int, rng: np.random.Generator) -> np.ndarray:
    """Return complex Gaussian fields (number, frames) at one azimuth."""
    path = integral(made.law(times(made.frames)))
    g1 = np.exp(-0.5 * made.q**2 * np.abs(path[:, None] - path))
    along = np.cos(np.deg2rad(angle - made.flow_angle))
    if made.moving is not None:
        share, speed = made.moving
        drift = np.exp(1j * made.q * along * speed * DT * np.arange(made.frames))
        return (1 - share) * _gaussian(g1, number, rng) + share * _gaussian(g1, number, rng) * drift
    if made.shear is not None:  # planes of the fluid scatter independently, each is carried along by its own velocity
        turn = made.q * GAP * along * integral(made.shear(times(made.frames)))
        heights = (np.arange(PLANES) + 0.5) / PLANES - 0.5
        g1 = g1 * np.mean(np.cos(heights[:, None, None] * (turn[:, None] - turn)), axis=0)
    return _gaussian(g1, number, rng)


def _gaussian(g1: np.ndarray, number: int, rng: np.random.Generator) -> np.ndarray:
    values, vectors = np.linalg.eigh(g1)
    kept = values > 1e-9 * values[-1]
    root = vectors[:, kept] * np.sqrt(values[kept])
    draws = rng.standard_normal((2, number, kept.sum())) @ root.T
    return (draws[0] + 1j * draws[1]) / np.sqrt(2)


def intensities(made: Speckles, angle: float, rng: np.random.Generator) -> np.ndarray:
    """Return what the pixels (pixels, frames) of one azimuth count."""
    if made.width == 0:
        seen = sum(np.abs(fields(made, angle, made.pixels, rng)) ** 2 for _ in range(made.modes)) / made.modes
    else:  # a row of fine points; a speckle is `width` pixels wide, a pixel averages FINE of them
        fine = 4
        kernel = np.exp(-0.5 * (np.arange(-20, 21) / (0.5 * made.width * fine)) ** 2)
        kernel /= np.sqrt(np.sum(kernel**2))
        smooth = fields(made, angle, made.pixels * fine + 40, rng)
        smooth = np.stack([np.convolve(column, kernel, "valid") for column in smooth.T], axis=1)
        seen = (np.abs(smooth) ** 2).reshape(made.pixels, fine, made.frames).mean(1)
    seen = np.asarray(seen)
    return rng.poisson(made.counts * seen).astype(float) if made.counts > 0 else seen


def correlations(made: Speckles, seed: int) -> np.ndarray:
    """Return measured two-time correlations (angles, frames, frames) with their diagonal."""
    rng, found = np.random.default_rng(seed), []
    for angle in made.phi:
        seen = intensities(made, angle, rng)
        mean = seen.mean(0)
        level = 1 + made.normalisation * rng.standard_normal()
        found.append(level * (seen.T @ seen) / len(seen) / np.outer(mean, mean))
    return np.stack(found)
