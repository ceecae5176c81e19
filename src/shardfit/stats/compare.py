"""Terms that compare a model sample with a bank of places: KDE and Fourier descent.

All points enter each count; it is the places of comparison that are drawn anew at every step, with one key that is the
same on every device.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from shardfit.core.term_makers import statistic_term
from shardfit.core.terms import StatisticTerm
from shardfit.stats.bank import Bank, Places
from shardfit.stats.kde import fourier_values, kernel_values

CHUNK = 4096


def sample_counts(places: Places, points: jax.Array, weights: jax.Array | None = None) -> dict[str, jax.Array]:
    """Return what each row adds to the counts at the places.

    points: (n, d), or (n, m, d) where a row has m points; weights: the same without d, or None. The sums over rows of
    `kernel` (n, k), `cos` and `sin` (n, q) and `weight` (n,) are the counts and the weight of the sample.
    """
    d = places.centres.shape[-1]
    if points.ndim not in (2, 3) or points.shape[-1] != d:
        raise ValueError(
            f"the model's sample has shape {points.shape}, but the bank's places have {d} coordinates. Return points "
            f"(n, {d}), or (n, m, {d}) for m points in a row, in the coordinates of the training sample."
        )
    w = jnp.ones(points.shape[:-1], points.dtype) if weights is None else weights
    if points.ndim == 3:
        flat = sample_counts(places, points.reshape(-1, points.shape[-1]), w.reshape(-1))
        return jax.tree.map(lambda leaf: leaf.reshape(*w.shape, *leaf.shape[1:]).sum(1), flat)
    cosine, sine = fourier_values(points, places.positions)
    values = {"kernel": kernel_values(places.kernel, points, places.centres), "cos": cosine, "sin": sine}
    return {name: value * w[:, None] for name, value in values.items()} | {"weight": w}


def chi2(counts: dict, places: Places) -> jax.Array:
    """Return the mean squared difference of counts in units of the training sample's uncertainties."""
    residuals = (
        (counts["kernel"] - places.kernel_counts) / places.kernel_errors,
        (counts["cos"] - places.fourier_counts.real) / places.fourier_errors.real,
        (counts["sin"] - places.fourier_counts.imag) / places.fourier_errors.imag,
    )
    return jnp.mean(jnp.concatenate(residuals) ** 2)


def density_chi2(counts: dict, places: Places) -> jax.Array:
    """Return chi2 with the model scaled to the weight of the training sample: shapes are compared, not numbers."""
    scale = places.weight / counts["weight"]
    return chi2({name: value * scale for name, value in counts.items()}, places)


def density_difference(counts: dict, places: Places) -> jax.Array:
    """Return the mean squared differences of densities and of Fourier values per unit weight, added up."""
    kernel, fourier = density_residuals(counts, places)
    return jnp.mean(kernel**2) + jnp.mean(jnp.abs(fourier) ** 2)


def kernel_difference(counts: dict, places: Places) -> jax.Array:
    """Return the mean squared difference of densities alone."""
    return jnp.mean(density_residuals(counts, places)[0] ** 2)


def density_residuals(counts: dict, places: Places, tiny: float = 0.0) -> tuple[jax.Array, jax.Array]:
    """Return model minus training density (k,) and Fourier value (q,), each per unit weight; tiny keeps off 0/0."""
    own = counts["weight"] + tiny
    kernel = counts["kernel"] / own - places.kernel_counts / places.weight
    fourier = (counts["cos"] + 1j * counts["sin"]) / own - places.fourier_counts / places.weight
    return kernel, fourier


@dataclass(frozen=True)
class _Counts:
    """Function of a comparison term: the model's sample of a block of rows, counted at this step's places."""

    sample: Callable
    by_row: bool

    def __call__(self, params, rows, bank, *rest):
        *args, key = rest[:-1] if self.by_row else rest
        places_key, sample_key = jax.random.split(key)
        sampled = self.sample(params, rows, *args, rest[-1] if self.by_row else sample_key)
        points, weights = sampled if isinstance(sampled, tuple) else (sampled, None)
        return sample_counts(bank.draw(places_key), points, weights)


@dataclass(frozen=True)
class _Misfit:
    """Loss of a comparison term, at the same places."""

    misfit: Callable

    def __call__(self, totals, bank, *rest):
        return self.misfit(totals, bank.draw(jax.random.split(rest[-1])[0]))


def comparison_term(
    sample: Callable,
    rows: Any,
    bank: Bank,
    *args: Any,
    misfit: Callable = density_chi2,
    weight: Any = 1.0,
    chunk: int | str | None = CHUNK,
    row_keys: bool = False,
) -> StatisticTerm:
    """Make a term that compares a model sample with a bank's training sample at places drawn anew at every step.

    sample(params, rows, *args, key) returns points (n, d), or (points, weights); both may have m points per row. With
    row_keys its last argument is an array (n,) of keys, one for each row, which do not depend on how rows are split:
    draws that differ per row come from them. misfit(counts, places) is chi2, density_chi2, density_difference,
    kernel_difference or your own.

    Example: `comparison_term(lambda p, rows, key: p["mean"] + rows["noise"], {"noise": noise}, bank)`.
    """
    fn, stochastic = _Counts(sample, bool(row_keys)), "rows" if row_keys else True
    return statistic_term(
        fn, rows, bank, *args, loss=_Misfit(misfit), weight=weight, chunk=chunk, stochastic=stochastic
    )


def normals(keys: jax.Array, shape: tuple[int, ...] = ()) -> jax.Array:
    """Return unit normals (n, *shape), each row's from its own key; keys (n,)."""
    return jax.vmap(lambda key: jax.random.normal(key, shape))(keys)


def row_normals(key: Any, index: jax.Array, shape: tuple[int, ...] = ()) -> jax.Array:
    """Return unit normals (n, *shape) that depend on the key and each row's number index (n,) only."""
    return jax.vmap(lambda i: jax.random.normal(jax.random.fold_in(key, i), shape))(index)
