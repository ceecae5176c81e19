"""The inversion that both sides of the case `marmousi` run: model, start, batches of shots, and what they report."""

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.core import memory
from benchmarks.seismic_scene import Scene, ricker

DH, DT, F_PEAK, BOUNDS = 30.0, 2.5e-3, 5.0, (1000.0, 5000.0)
RATE = 25.0  # m/s per step
# gradients that matter are 1e-10 to 1e-7; squares of those under 1e-19 vanish in float32, which must not divide by less
EPSILON = 1e-12
WATER, SMOOTH = 7, 10  # rows; cells of the Gaussian that makes the start


def truth(asked: dict) -> Scene:
    """Return the true model and the survey above it."""
    with np.load(asked["model"]) as stored:
        velocity = np.ascontiguousarray(stored["vp"][:, slice(*asked.get("columns", [None]))], np.float32)
    nx = velocity.shape[1]
    sources = np.array([(1, round(x)) for x in np.linspace(4, nx - 5, asked["shots"])])
    receivers = np.array([(2, x) for x in range(0, nx, 2)])
    wavelet = ricker(F_PEAK, DT, asked["nt"])
    return Scene(velocity, wavelet, sources, receivers, asked["order"], DH, DT, BOUNDS[1], F_PEAK)


def start(velocity: np.ndarray) -> np.ndarray:
    """Return the model smoothed by a Gaussian, edges repeated, the water kept."""
    reach = 4 * SMOOTH
    kernel = np.exp(-0.5 * (np.arange(-reach, reach + 1) / SMOOTH) ** 2)
    kernel /= kernel.sum()
    found = np.pad(velocity[WATER:].astype(float), reach, mode="edge")
    for axis in (0, 1):
        found = np.apply_along_axis(np.convolve, axis, found, kernel, mode="valid")
    return np.concatenate([velocity[:WATER], found]).astype(np.float32)


def batches(asked: dict) -> np.ndarray:
    """Return the shots of every step (steps, batch): the survey reshuffled whenever all its shots were used."""
    rng, need = np.random.default_rng(1), asked["steps"] * asked["batch"]
    order = np.concatenate([rng.permutation(asked["shots"]) for _ in range(-(-need // asked["shots"]))])
    return order[:need].reshape(asked["steps"], asked["batch"])


def mask(velocity: np.ndarray) -> np.ndarray:
    """Return 1 where the model is free: below the water."""
    free = np.ones_like(velocity)
    free[:WATER] = 0
    return free


def described(invert: Callable[[], np.ndarray], loss: Callable[[np.ndarray], Any], true: np.ndarray) -> tuple:
    """Return what `serve` needs for invert() → final model, whose loss over all shots is told."""
    before, last = memory("VmRSS"), {}

    def timed():
        last["model"] = invert()

    def describe() -> dict:
        peak = memory("VmHWM") - before
        told = {"peak": peak, "shape": list(true.shape)}
        for when, model in (("", last["model"]), ("_start", start(true))):
            told |= {f"error{when}": float(np.sqrt(np.mean((model - true) ** 2))), f"loss{when}": float(loss(model))}
        return told

    return timed, describe
