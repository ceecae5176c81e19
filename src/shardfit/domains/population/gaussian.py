"""A normal distribution in two dimensions, found by comparing random samples with a training sample."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np

from shardfit.core.objective import Objective
from shardfit.core.problem import Problem
from shardfit.core.transforms import Above, TanInterval
from shardfit.stats.bank import Bank, make_bank
from shardfit.stats.compare import comparison_term, kernel_difference, row_normals

if TYPE_CHECKING:  # fits run without jaxtyping
    from jaxtyping import Array, Float

TRUTH = {"mean": (1.6, 2.9), "variance": (0.8, 1.25), "correlation": -0.2}
START = {"mean": (0.0, 0.0), "variance": (1.0, 1.0), "correlation": 0.0}
TRANSFORMS = {"variance": Above(0.001), "correlation": TanInterval(-0.999, 0.999)}


def correlated(
    variance: Float[Array, "... 2"], correlation: Any, normals: Float[Array, "... 2"]
) -> Float[Array, "... 2"]:
    """Return vectors of given variances and correlation from unit normals: variance (..., 2), normals (..., 2)."""
    first, second = normals[..., 0], normals[..., 1]
    mixed = correlation * first + jnp.sqrt(1 - correlation**2) * second
    return jnp.sqrt(variance) * jnp.stack([first, mixed], axis=-1)


def sample(params: dict, rows: dict, key: Any) -> Float[Array, "n 2"]:
    """Return one point per row, (n, 2), drawn anew for every key."""
    normals = row_normals(key, rows["row"], (2,))
    return params["mean"] + correlated(params["variance"], params["correlation"], normals)


def training(n: int = 10_000, seed: int = 0) -> Float[np.ndarray, "n 2"]:
    """Return the training sample (n, 2) of the truth."""
    v, c = np.array(TRUTH["variance"]), TRUTH["correlation"] * np.sqrt(np.prod(TRUTH["variance"]))
    covariance = np.array([[v[0], c], [c, v[1]]])
    return np.random.default_rng(seed).multivariate_normal(TRUTH["mean"], covariance, n)


@lru_cache(maxsize=2)
def _published_bank(seed: int) -> Bank:
    """Return 20 kernels on 10 000 points: a fit and its report use the same."""
    return make_bank(training(seed=seed), kernels=20, seed=seed)


def problem(
    n: int = 5000,
    *,
    seed: int = 0,
    bank: Bank | None = None,
    misfit: Any = kernel_difference,
    precision: str = "float64",
) -> Problem:
    """Return the comparison of n model points per step with 10 000 training points through 20 kernels."""
    bank = _published_bank(seed) if bank is None else bank
    term = comparison_term(sample, {"row": np.arange(n, dtype=np.int32)}, bank, misfit=misfit)
    start = {name: np.asarray(value) for name, value in START.items()}
    return Problem(
        Objective({"density": term}), start, transforms=TRANSFORMS, name="two-dimensional normal", precision=precision
    )
