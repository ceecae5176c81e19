"""A black hole rings down before an array of detectors: the built-in problem, with generated data.

After a merger the remnant rings in modes whose frequency and decay time follow from its mass and spin alone. Two modes
measured independently must therefore name the same black hole. The detectors and their noise are imagined.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from shardfit.core.objective import Objective
from shardfit.core.precision import arithmetic
from shardfit.core.problem import Problem
from shardfit.core.terms import residual_term
from shardfit.core.transforms import Interval

MODES = ("mode220", "mode330")
SOLAR_MASS = 4.925490947e-6  # s, G M☉ / c³
DURATION = 0.030  # s
N_DETECTORS = 40
# 2π f M and Q, each as a + b (1 - spin)^c: Berti, Cardoso & Will, Phys. Rev. D 73, 064030 (2006)
FREQUENCY = {"mode220": (1.5251, -1.1568, 0.1292), "mode330": (1.8956, -1.3043, 0.1818)}
QUALITY = {"mode220": (0.7000, 1.4187, -0.4990), "mode330": (0.9000, 2.3430, -0.4810)}

TRUE_MASS, TRUE_SPIN = 70.0, 0.69  # solar masses, dimensionless
TRUE_AMPLITUDE = {"mode220": 1.0, "mode330": 0.4}
TRUE_PHASE = {"mode220": 0.6, "mode330": -0.9}
START = {
    "mode220": {"amplitude": 0.5, "decay": 3.0, "frequency": 230.0, "phase": 0.0},
    "mode330": {"amplitude": 0.5, "decay": 3.0, "frequency": 410.0, "phase": 0.0},
}
UNITS = {"amplitude": "10⁻²¹", "decay": "ms", "frequency": "Hz", "phase": "rad"}
SCALES = {"amplitude": "log", "decay": "log", "frequency": Interval(100.0, 700.0)}


@dataclass(frozen=True, eq=False)
class Ringdown:
    """Generated data. rows: time, plus, cross, sigma, strain, each (n,); detector: (n,) numbers; truth: parameters."""

    rows: dict[str, np.ndarray]
    detector: np.ndarray
    truth: dict[str, dict[str, float]]


def mode_of(name: str, mass: float, spin: float) -> tuple[float, float]:
    """Return (frequency in Hz, decay time in ms) of a mode of a black hole. mass: solar masses."""
    (a, b, c), (p, q, r) = FREQUENCY[name], QUALITY[name]
    frequency = (a + b * (1 - spin) ** c) / (2 * np.pi * mass * SOLAR_MASS)
    return frequency, 1e3 * (p + q * (1 - spin) ** r) / (np.pi * frequency)


def black_hole(params: Any) -> dict[str, Any]:
    """Return mass (solar masses) and spin of the remnant as each mode tells them."""
    remnant = {}
    for name in MODES:
        (a, b, c), (p, q, r) = FREQUENCY[name], QUALITY[name]
        mode = params[name]
        quality = 1e-3 * jnp.pi * mode["frequency"] * mode["decay"]
        left = ((quality - p) / q) ** (1 / r)  # 1 - spin
        remnant[f"{name}: mass (solar masses)"] = (a + b * left**c) / (2 * jnp.pi * mode["frequency"] * SOLAR_MASS)
        remnant[f"{name}: spin"] = 1 - left
    return remnant


def strain(params: Any, rows: Any) -> Any:
    """Strain of both modes in units of 1e-21. rows: time (n,) s, plus and cross (n,) antenna patterns → (n,)."""
    total = 0.0
    for name in MODES:
        mode = params[name]
        phase = 2 * jnp.pi * mode["frequency"] * rows["time"] + mode["phase"]
        envelope = mode["amplitude"] * jnp.exp(-1e3 * rows["time"] / mode["decay"])
        total += envelope * (rows["plus"] * jnp.cos(phase) + rows["cross"] * jnp.sin(phase))
    return total


@arithmetic("float64")
def exact_strain(params: Any, rows: Any) -> np.ndarray:
    """Return the strain as a NumPy array, computed in float64."""
    return np.asarray(strain(params, rows))


def residual(params: Any, rows: Any) -> Any:
    """Normalised residual. rows as in Ringdown → (n,) dimensionless."""
    return (rows["strain"] - strain(params, rows)) / rows["sigma"]


def simulate(n_rows: int = 200_000, seed: int = 0) -> Ringdown:
    """Generate data of an array of detectors with random orientation and unequal noise."""
    if n_rows < 500:
        raise ValueError(f"simulate: {n_rows} rows are too few for the eight parameters. Use at least 500.")
    rng = np.random.default_rng(seed)
    up, azimuth, turn = rng.uniform(-1, 1, N_DETECTORS), *rng.uniform(0, 2 * np.pi, (2, N_DETECTORS))
    even, odd = 0.5 * (1 + up**2) * np.cos(2 * azimuth), up * np.sin(2 * azimuth)
    plus = even * np.cos(2 * turn) - odd * np.sin(2 * turn)
    cross = even * np.sin(2 * turn) + odd * np.cos(2 * turn)
    # low enough for the model to be nearly linear within its errors: at twice this, error bars covered 64 % and 92 %
    noise = rng.uniform(0.08, 0.16, N_DETECTORS)
    detector, sample = np.arange(n_rows) % N_DETECTORS, np.arange(n_rows) // N_DETECTORS
    rows = {
        "time": DURATION * sample / (sample[-1] + 1),
        "plus": plus[detector],
        "cross": cross[detector],
        "sigma": noise[detector],
    }
    truth = {}
    for name in MODES:
        frequency, decay = mode_of(name, TRUE_MASS, TRUE_SPIN)
        mode = {"amplitude": TRUE_AMPLITUDE[name], "decay": decay, "frequency": frequency, "phase": TRUE_PHASE[name]}
        truth[name] = {key: float(value) for key, value in mode.items()}
    return Ringdown(observe(rows, truth, rng), detector, truth)


def observe(rows: Mapping[str, np.ndarray], truth: Any, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Return the rows with a new realisation of the strain: signal of the truth plus noise."""
    signal = exact_strain(truth, rows)
    return {**rows, "strain": signal + rows["sigma"] * rng.standard_normal(len(signal))}


def problem_of(rows: Mapping[str, np.ndarray], start: Any = None) -> Problem:
    """Return the fit of both modes: amplitudes and decay times positive, frequencies between 100 and 700 Hz."""
    return Problem(
        Objective({"strain": residual_term(residual, dict(rows))}),
        START if start is None else start,
        transforms={name: SCALES for name in MODES},
        units={name: UNITS for name in MODES},
        name="black-hole ringdown",
        decode=black_hole,
    )
