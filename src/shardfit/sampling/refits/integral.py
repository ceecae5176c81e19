"""The integral of a problem's density: exactly where it is a Gaussian, else by points, with an error and a check."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from shardfit.core.problem import Problem
from shardfit.sampling.density import sampled, values_on_z
from shardfit.sampling.shards.importance import importance_sample
from shardfit.sampling.start import find_start
from shardfit.solve.covariance import of_residuals

TRIED, NEAR, FAR = 32, 0.5, 1e4  # points at which a density is compared with its Gaussian, from where to where
ALIKE, ROUNDING = 1e-3, 1e3  # largest difference of the logarithms, beside so many units of rounding
POINTS, ROUNDS, MOST = 4000, 6, 100_000
ACCURACY, LARGEST_ERROR = 0.01, 0.025  # of the logarithm: what is worked for, and what is let pass
LARGEST_K = 0.5  # above it weights have no variance, and an error says nothing


class Integral(NamedTuple):
    """The log of an integral, its standard error, and how it was done."""

    log_mass: float
    error: float
    method: str
    note: str = ""


def integral(problem: Problem, gaussian: tuple[np.ndarray, np.ndarray] | None, mesh: Any, seed: int) -> Integral:
    """Return the integral of exp(-objective) over a problem's parameters; raise if it cannot be had to 0.05.

    gaussian: mean and precision in the problem's coordinates, as far as the density is known to be near one.
    """
    if gaussian is not None and of_residuals(problem.objective) and problem.space.plain and problem.box is None:
        exact = _of_gaussian(problem, *gaussian, mesh)
        if exact is not None:
            return exact
    target = sampled(problem, "evidence")
    start = find_start(target, mesh, seed)
    around = start.gaussians()
    if not around and gaussian is not None and problem.space.plain and problem.box is None:
        around = [(gaussian[0], np.linalg.inv(gaussian[1]))]
    if not around:
        raise ValueError(
            "evidence: the density has no curvature to draw points by (too many coordinates, or no second "
            "derivatives). correct=False gives Laplace's approximation, which nothing checks."
        )
    placed, dtype = target.objective.place(mesh), target.z0().dtype

    def density(points: np.ndarray) -> np.ndarray:
        found = -np.asarray(values_on_z(placed, target.space, jnp.asarray(points, dtype)), float)
        return np.where(np.isnan(found), -np.inf, found)

    found = importance_sample(density, around, POINTS, seed, ROUNDS, MOST, lambda w: w.mass_error / ACCURACY)
    if not (found.k <= LARGEST_K and found.mass_error <= LARGEST_ERROR):
        raise ValueError(
            f"evidence: the posterior is too unlike Gaussians for its integral: importance sampling has Pareto k "
            f"{found.k:.2f}, and an error of {found.mass_error:.2g}. Use other coordinates (standardised effects of a "
            "hierarchy, logarithms of scales), or correct=False for Laplace's approximation, which nothing checks."
        )
    note = f"{start.note} Importance sampling: {found.values} values, Pareto k {found.k:.2f}."
    return Integral(found.log_mass, found.mass_error, "importance", note.strip())


def _of_gaussian(problem: Problem, mean: np.ndarray, precision: np.ndarray, mesh: Any) -> Integral | None:
    """Return the integral of a density that is its Gaussian, to rounding; None of others."""
    unit = np.sqrt(np.diag(precision))
    lower = np.linalg.cholesky(precision / np.outer(unit, unit))
    noise = np.random.default_rng(0).standard_normal((TRIED, mean.size))
    noise *= np.geomspace(NEAR, FAR, TRIED)[:, None]
    away = np.linalg.solve(lower.T, noise.T).T / unit
    dtype = problem.z0().dtype
    points = np.vstack([mean, mean + away]).astype(dtype)
    values = np.asarray(values_on_z(problem.objective.place(mesh), problem.space, jnp.asarray(points)), float)
    expected = 0.5 * np.sum(noise**2, axis=1)
    rounding = ROUNDING * np.finfo(dtype).eps * (np.abs(values[0]) + expected)
    if not np.all(np.abs(values[1:] - values[0] - expected) < ALIKE + rounding):
        return None
    log_det = np.sum(np.log(np.diag(lower))) + np.sum(np.log(unit))
    return Integral(float(0.5 * mean.size * np.log(2 * np.pi) - values[0] - log_det), 0.0, "gaussian")
