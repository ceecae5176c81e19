"""What every side of the seismic suite is given, as plain arrays, and how its memory is watched.

NumPy only: the environments of peers lack our packages.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.core import memory, reset_peak

DH, DT, V_MAX, F_PEAK, LAYER = 10.0, 1e-3, 4200.0, 10.0, 20
DT_VOLUME = 8e-4  # beyond 0.6 dh / (sqrt(3) v_max) deepwave takes two steps for one: twice the work, another answer


@dataclass(frozen=True)
class Scene:
    """A model (nz, nx) in m/s, a wavelet (nt,), and positions (n, 2) in cells (z, x); every shot has all receivers.

    Or (nz, ny, nx) and (z, y, x).
    """

    velocity: np.ndarray
    wavelet: np.ndarray
    sources: np.ndarray
    receivers: np.ndarray
    order: int
    dh: float = DH
    dt: float = DT
    v_max: float = V_MAX
    f_peak: float = F_PEAK


def scene(asked: dict) -> Scene:
    """Return a rough model whose velocity grows with depth. asked: shape, nt, shots, order."""
    nz, *between, nx = asked["shape"]
    depth = np.arange(nz).reshape(-1, *(1 for _ in asked["shape"][1:])) / nz
    velocity = 1600 + 2400 * depth + np.random.default_rng(0).uniform(0, 100, asked["shape"])
    middle = [n // 2 for n in between]
    sources = np.array([(2, *middle, round(x)) for x in np.linspace(5, nx - 6, asked["shots"])])
    receivers = np.array([(3, *middle, x) for x in range(0, nx, 2)])
    dt = DT_VOLUME if between else DT
    wavelet = ricker(F_PEAK, dt, asked["nt"])
    return Scene(velocity.astype(np.float32), wavelet, sources, receivers, asked["order"], dt=dt)


def solid(velocity: np.ndarray) -> dict[str, np.ndarray]:
    """Return the elastic medium, (nz, nx) each, whose P waves have a velocity: shear waves slower, density rough."""
    rho = 2000 + np.random.default_rng(1).uniform(0, 100, velocity.shape)
    return {"vp": velocity, "vs": velocity / np.float32(1.8), "rho": rho.astype(np.float32)}


def ricker(f_peak: float, dt: float, nt: int) -> np.ndarray:
    """Return the wavelet (nt,), float32, its peak at 1.5 / f_peak."""
    q = (np.pi * f_peak * (np.arange(nt) * dt - 1.5 / f_peak)) ** 2
    return ((1 - 2 * q) * np.exp(-q)).astype(np.float32)


def watched(call: Callable[[], Any], file: str) -> tuple[Callable, Callable]:
    """Return what `serve` needs: the call, compiled, and a description that writes its last array to a file.

    Memory is what calls need beyond libraries and inputs; what compiling needs for a moment does not count.
    """
    before = memory("VmRSS")
    last = {"array": call()}
    reset_peak()

    def timed():
        last["array"] = call()

    def describe() -> dict:
        peak = memory("VmHWM") - before
        np.save(file, np.asarray(last["array"]))
        return {"peak": peak}

    return timed, describe
