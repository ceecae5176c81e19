"""Badly scaled fits: units that differ by up to 10²⁴, steep starts, narrow valleys, offsets, saddles and flat places.

Each is a least squares of few parameters; what is right is judged by a second fit from the answer, see scalings.py.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

RNG = np.random.default_rng(11)
T = np.linspace(0.0, 3.0, 40)
NOISE = 0.02 * RNG.standard_normal(T.size)


@dataclass(frozen=True)
class Case:
    """residual(p, rows) -> (n,); rows: arrays; x0: parameters; bounds: as in a Problem."""

    residual: Callable
    rows: Mapping[str, np.ndarray]
    x0: Any
    bounds: Any = None


def _decay(units, start, y=None, bounds=None):
    height, rate = units
    y = 2 * np.exp(-0.7 * T) + NOISE if y is None else y
    residual = lambda p, r: p["a"] * height * jnp.exp(-p["k"] * rate * r["t"]) - r["y"]  # noqa: E731
    return Case(residual, {"t": T, "y": y}, {"a": start[0] / height, "k": start[1] / rate}, bounds)


def _meyer():
    t = 45 + 5.0 * np.arange(1, 17)
    y = np.array(
        [34780, 28610, 23650, 19630, 16370, 13720, 11540, 9744, 8261, 7030, 6005, 5147, 4427, 3820, 3307, 2872], float
    )
    return Case(
        lambda p, r: p[0] * jnp.exp(p[1] / (r["t"] + p[2])) - r["y"], {"t": t, "y": y}, np.array([0.02, 4e3, 250])
    )


def _line(slope, offset, far):
    x = far + T
    residual = lambda p, r: p["m"] * slope * r["x"] + p["c"] * offset - r["y"]  # noqa: E731
    return Case(residual, {"x": x, "y": 3 * x + 1 + NOISE}, {"m": 0.0, "c": 0.0})


def _peak(width, place, start):
    residual = lambda p, r: p["h"] * jnp.exp(-(((r["x"] - p["m"]) / p["w"]) ** 2)) - r["y"]  # noqa: E731
    x = place + width * (T - 1.5)
    y = 5 * np.exp(-(((x - place) / (0.4 * width)) ** 2)) + NOISE
    return Case(residual, {"x": x, "y": y}, {"h": start[0], "m": place + start[1] * width, "w": start[2] * width})


def _polynomial(degree, length):
    x = np.linspace(0, length, 60)
    y = np.cos(2 * x / length)
    powers = jnp.arange(degree + 1)
    return Case(lambda p, r: r["x"][:, None] ** powers @ p - r["y"], {"x": x, "y": y}, np.zeros(degree + 1))


def _valley(steep):
    row = {"i": np.arange(2)}
    return Case(lambda p, r: jnp.stack([steep * (p[1] - p[0] ** 2), 1 - p[0]])[r["i"]], row, np.array([-1.2, 1.0]))


def _powell():
    row = {"i": np.arange(2)}
    return Case(
        lambda p, r: jnp.stack([1e4 * p[0] * p[1] - 1, jnp.exp(-p[0]) + jnp.exp(-p[1]) - 1.0001])[r["i"]],
        row,
        np.array([0.0, 1.0]),
    )


def _brown():
    row = {"i": np.arange(3)}
    return Case(lambda p, r: jnp.stack([p[0] - 1e6, p[1] - 2e-6, p[0] * p[1] - 2])[r["i"]], row, np.array([1.0, 1.0]))


def _saddle():
    row = {"i": np.arange(2)}
    return Case(lambda p, r: jnp.stack([p[0], 1 - p[1] ** 2])[r["i"]], row, np.array([1.0, 0.0]))


def _counts(units):
    residual = lambda p, r: (p["n"] * units * jnp.exp(-r["t"]) + p["b"] - r["y"]) / jnp.sqrt(r["y"])  # noqa: E731
    return Case(residual, {"t": T, "y": 1e9 * np.exp(-T) + 1e3}, {"n": 1e8 / units, "b": 1.0})


CASES: dict[str, Case] = {
    "decay 1e12, 1e-12": _decay((1e12, 1e-12), (1.0, 1.0)),
    "decay 1e-12, 1e12": _decay((1e-12, 1e12), (1.0, 1.0)),
    "decay 1e12, 1e12": _decay((1e12, 1e12), (1.0, 1.0)),
    "decay far": _decay((1e6, 1e-9), (40.0, 5.0)),
    "decay from zero": _decay((1e9, 1e-7), (0.0, 0.0)),
    "decay growing": _decay((1.0, 1e-3), (1.0, -8.0)),
    "decay of 1e-7": _decay((1e7, 1.0), (1.0, 1.0), y=1e-7 * (2 * np.exp(-0.7 * T) + NOISE)),
    "decay bounded": _decay((1e8, 1e-8), (1.0, 1.0), bounds={"a": (0, 1.5e-8), "k": (0, 5e8)}),
    "meyer": _meyer(),
    "line far from zero": _line(1.0, 1.0, 1e4),
    "line in other units": _line(1e-9, 1e9, 10.0),
    "peak of nanometres": _peak(1e-9, 1e-6, (1.0, 0.2, 0.6)),
    "peak at 1e6": _peak(1.0, 1e6, (1.0, 0.2, 0.6)),
    "polynomial": _polynomial(4, 1e3),
    "polynomial of 1e-4": _polynomial(4, 1e-4),
    "valley": _valley(10.0),
    "valley, narrow": _valley(1e4),
    "powell badly scaled": _powell(),
    "brown badly scaled": _brown(),
    "saddle": _saddle(),
    "counts": _counts(1e-6),
}
