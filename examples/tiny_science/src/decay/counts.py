"""Counts of a decaying sample: data and forward model."""

from pathlib import Path

import jax.numpy as jnp
import numpy as np

TRUTH = {"activity": 400.0, "half_life": 120.0, "background": 15.0}


def expected(params, time):
    """Counts per interval. time: (n,) s; activity, background: counts; half_life: s → (n,) counts."""
    return params["activity"] * jnp.exp2(-time / params["half_life"]) + params["background"]


def simulate(n: int = 60, seed: int = 0) -> dict[str, np.ndarray]:
    """Counts of n intervals of ten seconds, with Poisson noise."""
    time = 10.0 * np.arange(n)
    counts = np.random.default_rng(seed).poisson(np.asarray(expected(TRUTH, time)))
    return as_rows(time, counts)


def read(path: str | Path) -> dict[str, np.ndarray]:
    """Rows of a CSV file with a header line."""
    try:
        time, counts = np.loadtxt(path, delimiter=",", skiprows=1, unpack=True, ndmin=2)
    except ValueError as error:
        raise ValueError(f"{path}: {error}. It must have two columns, time and counts, below a header line.") from None
    return as_rows(time, counts)


def as_rows(time, counts) -> dict[str, np.ndarray]:
    """Rows of the data term; the error of a count is its root, at least 1."""
    counts = np.asarray(counts, float)
    return {"time": np.asarray(time, float), "counts": counts, "sigma": np.sqrt(np.maximum(counts, 1))}
