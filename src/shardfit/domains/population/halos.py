"""Halo catalogues that any process can make its own part of: row i depends on i and the catalogue's length only."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:  # fits run without jaxtyping
    from jaxtyping import Float


def log_masses(n: int, part: slice = slice(None), top: float = 0.9) -> Float[np.ndarray, " n"]:
    """Return log10 mass of a part of n halos that follow a power law from 1e10 to 1e10 / (1 - top).

    Ranks run evenly from 0 to top, M = 1e10 / (1 - rank), ascending.

    Example: `log_masses(10**8, slice(0, 10**6))` makes the first million of a hundred million.
    """
    if n < 2:
        raise ValueError(f"log_masses: n={n} halos; at least 2 are needed.")
    if not 0 < top < 1:
        raise ValueError(f"log_masses: top={top} must lie between 0 and 1.")
    start, stop, step = part.indices(n)
    index = np.arange(start, stop, step)
    rank = index * (top / (n - 1))
    rank[index == n - 1] = top
    return np.log10(1e10 / (1 - rank))


def blocks(n: int, size: int = 1 << 20):
    """Iterate over slices of at most `size` rows that cover n."""
    for start in range(0, n, size):
        yield slice(start, min(n, start + size))


def triangular(n: int, mode: float, rng: np.random.Generator) -> Float[np.ndarray, " n"]:
    """Return log10 masses (n,) with a triangular density on [11, 14]."""
    return rng.triangular(11.0, mode, 14.0, n) if 11.0 < mode < 14.0 else 11.0 + 3.0 * (1 - np.sqrt(rng.random(n)))


def even(n: int) -> Float[np.ndarray, " n"]:
    """Return log10 masses (n,) spaced evenly over [11, 14]."""
    return np.linspace(11.0, 14.0, n)


def upweights(
    few: Float[np.ndarray, " few"], many: Float[np.ndarray, " many"], bins: int = 49
) -> Float[np.ndarray, " few"]:
    """Return for each of few halos how many of the many it stands for: the ratio of their histograms at its mass."""
    edges = np.linspace(10.999, 14.001, bins + 1)
    own, theirs = (np.histogram(masses, edges)[0] for masses in (few, many))
    place = np.digitize(few, edges) - 1
    if place.min() < 0 or place.max() >= bins:
        raise ValueError("upweights: masses must lie within [11, 14].")
    return theirs[place] / own[place]
