"""Bank of places: kernel centres and Fourier positions at which a training sample is compared with a model.

Built once from the training sample, with the counts there and their uncertainties; a comparison draws a few places
anew at every step. Frozen, a pytree, saved as one npz file.
"""

from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import register_dataclass

from shardfit.core.errors import suggestion
from shardfit.core.objective import as_key
from shardfit.core.precision import arithmetic
from shardfit.core.rows import sum_blocks
from shardfit.core.terms import static
from shardfit.stats.kde import Kernel, fourier_values, kernel_of, kernel_values, make_kernel, sample_covariance, scott

ROWS, PLACES = 2048, 128  # points x places looked at in one go: 2 MB in float64


@dataclass(frozen=True)
class BankOptions:
    """How a bank is made.

    kernels, positions: places drawn at each step (default 10 per dimension); size: how many times more the bank holds.
    bandwidth: factor on Scott's rule, which goes by the number of kernels per step; covariant: kernels follow the whole
    covariance instead of its diagonal. reach: Fourier positions extend to reach / standard deviation on each axis;
    one_sided: only positive ones, as published, instead of both signs. inverse_density: power in [0, 1] by which sparse
    regions are favoured, 1 being even coverage; its candidates are this many times the bank.
    """

    kernels: int | None = None
    positions: int | None = None
    size: int = 300
    bandwidth: float = 1.0
    covariant: bool = False
    reach: float = 1.0
    one_sided: bool = False
    inverse_density: float = 0.0
    candidates: int = 100

    def __post_init__(self):
        for name in ("kernels", "positions", "size", "candidates"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"BankOptions: {name}={value} must be at least 1.")
        for name in ("bandwidth", "reach"):
            if not getattr(self, name) > 0:
                raise ValueError(f"BankOptions: {name}={getattr(self, name)} must be positive.")
        if not 0 <= self.inverse_density <= 1:
            raise ValueError(f"BankOptions: inverse_density={self.inverse_density} must lie between 0 and 1.")

    def per_step(self, dimensions: int) -> tuple[int, int]:
        """Return the numbers of kernels and positions of one comparison."""
        usual = 10 * dimensions
        return self.kernels or usual, self.positions or usual


class Places(NamedTuple):
    """Places of one comparison, with the training sample's counts and uncertainties there; complex for Fourier."""

    kernel: Kernel
    centres: Any  # (k, d)
    kernel_counts: Any
    kernel_errors: Any
    positions: Any  # (q, d)
    fourier_counts: Any
    fourier_errors: Any
    weight: Any  # sum of the training weights


@register_dataclass
@dataclass(frozen=True)
class Bank:
    """All places, and how many of each one comparison draws."""

    all: Places
    kernels: int = static()
    positions: int = static()

    def draw(self, key: Any) -> Places:
        """Return the places of one comparison, drawn with replacement; equal keys (or numbers) give equal places."""
        first, second = jax.random.split(as_key(key))
        every = self.all
        k = jax.random.randint(first, (self.kernels,), 0, len(every.centres), jnp.int32)
        q = jax.random.randint(second, (self.positions,), 0, len(every.positions), jnp.int32)
        return every._replace(
            centres=jnp.asarray(every.centres)[k],
            kernel_counts=jnp.asarray(every.kernel_counts)[k],
            kernel_errors=jnp.asarray(every.kernel_errors)[k],
            positions=jnp.asarray(every.positions)[q],
            fourier_counts=jnp.asarray(every.fourier_counts)[q],
            fourier_errors=jnp.asarray(every.fourier_errors)[q],
        )

    def save(self, path: str | Path) -> None:
        """Write the bank as one npz file of plain arrays."""
        arrays = {name: getattr(self.all, name) for name in Places._fields if name != "kernel"}
        arrays |= {f"kernel_{f.name}": getattr(self.all.kernel, f.name) for f in fields(Kernel)}
        with open(path, "wb") as file:  # a name without .npz stays as it is
            np.savez(file, kernels=self.kernels, positions_per_step=self.positions, **arrays)

    @staticmethod
    def load(path: str | Path) -> "Bank":
        """Read a bank written by save, or by DiffOpt's `KPretrainer.save`."""
        with np.load(path, allow_pickle=False) as file:
            if {"kernelcov", "kde_counts"} <= set(file.files):
                return _pretrained(file)
            missing = {"kernels", "positions_per_step", "centres", "kernel_whiten"} - set(file.files)
            if missing:
                raise ValueError(f"{path} is not a bank: {min(missing)!r} is missing. Make it with make_bank and save.")
            kernel = Kernel(*(file[f"kernel_{f.name}"] for f in fields(Kernel)))
            places = Places(kernel, *(file[name] for name in Places._fields[1:]))
            return Bank(places, int(file["kernels"]), int(file["positions_per_step"]))


def make_bank(
    points: Any, weights: Any = None, options: BankOptions | None = None, *, seed: int = 0, **changes: Any
) -> Bank:
    """Build a bank from a training sample: points (n, d), weights (n,) or None.

    Centres are draws from the sample's own density estimate (points plus jitter), positions are even in a box.

    Example: `bank = make_bank(points, kernels=20, bandwidth=0.3, seed=1)`.
    """
    options = _options(options, changes)
    points, weights = _check(points, weights)
    d = points.shape[1]
    kernels, positions = options.per_step(d)
    _kernel_of(points, weights, options)  # a sample that has none should say so first
    rng = np.random.default_rng(seed)
    centres = _draw_centres(points, weights, options, options.size * kernels, rng)
    span = options.reach / np.sqrt(np.diag(sample_covariance(points, weights)))
    low = np.zeros(d) if options.one_sided else -span
    return bank_at(points, weights, centres, rng.uniform(low, span, (options.size * positions, d)), options)


@arithmetic("float64")
def bank_at(points: Any, weights: Any, centres: Any, positions: Any, options: BankOptions | None = None) -> Bank:
    """Build a bank at given places: centres (k, d), positions (q, d)."""
    options = _options(options, {})
    points, weights = _check(points, weights)
    kernel = _kernel_of(points, weights, options)
    given = np.ones(len(points)) if weights is None else weights
    centres, positions = np.asarray(centres, float), np.asarray(positions, float)
    k = _at_places(_kernel_sums, points, given, centres, kernel)
    f = _at_places(_fourier_sums, points, given, positions, kernel)
    waves, wave_errors = f[0] + 1j * f[1], np.sqrt(f[2]) + 1j * np.sqrt(f[3])
    places = Places(kernel, centres, k[0], np.sqrt(k[1]), positions, waves, wave_errors, given.sum())
    if not (k[1] > 0).all():
        raise ValueError(
            "a kernel centre is so far from the training sample that its count is zero. Remove outliers, or raise "
            "bandwidth."
        )
    return Bank(places, *options.per_step(points.shape[1]))


@arithmetic("float64")
def density(points: Any, weights: Any, at: Any) -> np.ndarray:
    """Return the sample's Gaussian density estimate (Scott's rule, effective number of points) at places (m, d)."""
    points, weights = _check(points, weights)
    given = np.ones(len(points)) if weights is None else weights
    kernel = make_kernel(points, weights, scott(_effective(given), points.shape[1]), covariant=True)
    return _at_places(_kernel_sums, points, given, np.asarray(at, float), kernel)[0] / given.sum()


def _pretrained(file):
    """A file of `diffopt.kdescent.KPretrainer`: the same numbers under other names."""
    centres = np.asarray(file["kernel_centers"], float)
    kernel = kernel_of(np.asarray(file["kernelcov"], float), centres.mean(0))
    names = ("kde_counts", "kde_err", "fourier_positions", "fourier_counts", "fourier_err", "training_sum_of_weights")
    places = Places(kernel, centres, *(np.asarray(file[name], _double(file[name])) for name in names))
    return Bank(places, int(file["num_eval_kernels"]), int(file["num_eval_fourier_positions"]))


def _double(array):
    return complex if np.iscomplexobj(array) else float


def _kernel_of(points, weights, options):
    d = points.shape[1]
    bandwidth = options.bandwidth * scott(options.per_step(d)[0], d)
    return make_kernel(points, weights, bandwidth, covariant=options.covariant)


def _effective(weights):
    return weights.sum() ** 2 / (weights**2).sum()


def _draw_centres(points, weights, options, n, rng):
    if options.inverse_density == 0:
        return _from_density(points, weights, n, rng)
    # all candidates stay candidates, whatever chunks their densities are computed in
    candidates = _from_density(points, weights, options.candidates * n, rng)
    chance = density(points, weights, candidates) ** -options.inverse_density
    return candidates[rng.choice(len(candidates), n, replace=False, p=chance / chance.sum())]


def _from_density(points, weights, n, rng):
    share = None if weights is None else weights / weights.sum()
    effective = len(points) if weights is None else _effective(weights)
    spread = scott(effective, points.shape[1]) ** 2 * sample_covariance(points, weights)
    jitter = rng.multivariate_normal(np.zeros(points.shape[1]), spread, n, method="eigh")
    return points[rng.choice(len(points), n, p=share)] + jitter


def _at_places(sums, points, weights, places, kernel):
    """Return sums(points, weights, places) at all places, in blocks of places and of points."""
    n = len(places)
    short = -n % min(PLACES, n)
    padded = np.concatenate([places, places[:short]]).reshape(-1, min(PLACES, n), places.shape[1])
    sums_at = _sum_over_points(sums, points, weights, padded, kernel)
    return [np.asarray(a).reshape(-1)[:n] for a in sums_at]


@partial(jax.jit, static_argnums=0)
def _sum_over_points(sums, points, weights, places, kernel):
    def at(block):
        def of_rows(rows, mask):
            w = rows[1] if mask is None else jnp.where(mask, rows[1], 0.0)
            return sums(rows[0], w, block, kernel)

        return sum_blocks(of_rows, (points, weights), None, ROWS)

    return jax.lax.map(at, places)


def _kernel_sums(points, weights, centres, kernel):
    values = kernel_values(kernel, points, centres)
    return weights @ values, (weights * weights) @ (values * values)


def _fourier_sums(points, weights, positions, kernel):
    cosine, sine = fourier_values(points, positions)
    squares = weights * weights
    return weights @ cosine, weights @ sine, squares @ (cosine * cosine), squares @ (sine * sine)


def _options(options, changes):
    try:
        return BankOptions(**changes) if options is None else BankOptions(**{**vars(options), **changes})
    except TypeError:
        names = [f.name for f in fields(BankOptions)]
        odd = next(name for name in changes if name not in names)
        raise TypeError(f"make_bank: unknown option {odd!r}.{suggestion(odd, names)}") from None


def _check(points, weights):
    points = np.asarray(points, float)
    if points.ndim == 1:
        points = points[:, None]
    if points.ndim != 2 or len(points) <= points.shape[1]:
        raise ValueError(f"points have shape {points.shape}; give (n, d) with more points than dimensions.")
    if not np.isfinite(points).all():
        raise ValueError("points hold NaN or infinity. Remove these points first.")
    if weights is None:
        return points, None
    weights = np.asarray(weights, float)
    if weights.shape != points.shape[:1]:
        raise ValueError(f"weights have shape {weights.shape} for {len(points)} points. Give one each.")
    if not (np.isfinite(weights).all() and (weights >= 0).all() and weights.sum() > 0):
        raise ValueError("weights must be finite, not negative, and not all zero.")
    return points, weights
