"""Colours of two populations of galaxies, star-forming and quenched, in halos of known mass: 20 parameters.

log M* = intercept + slope · log Mh. Mean colours, their variances and correlation, the quenched fraction, and how the
quenched population differs (offset of the mean, scale of the spread) run linearly from their values at the lowest halo
mass to those at the highest. A halo gives two weighted points, one of each population; its up-weight says how many
halos it stands for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from shardfit.core.objective import Objective
from shardfit.core.problem import Problem
from shardfit.core.term_makers import statistic_term
from shardfit.core.transforms import Above, TanInterval
from shardfit.domains.population.halos import even, triangular, upweights
from shardfit.stats.bank import BankOptions, make_bank
from shardfit.stats.compare import CHUNK, density_residuals, row_normals, sample_counts
from shardfit.stats.histogram import window

if TYPE_CHECKING:  # fits run without jaxtyping
    from jaxtyping import Array, Float

LIGHTEST, HEAVIEST = 11.0, 14.0  # log10 halo masses between which quantities run
BINS = ((9.0, 9.5), (10.25, 10.75), (11.5, 12.0))  # of log10 stellar mass
OPTIONS = BankOptions(kernels=20, positions=20, bandwidth=0.3, reach=3.0)
NUMBER_SCALE = 100.0  # a difference of so many galaxies in the heaviest bin weighs like one other term

POSITIVE, FRACTION, CORRELATION = Above(0.001), TanInterval(0.0, 1.0), TanInterval(-0.999, 0.999)
END_TRANSFORMS = {
    "variance": POSITIVE,
    "correlation": CORRELATION,
    "quenched": FRACTION,
    "offset2": POSITIVE,
    "spread": POSITIVE,
}
TRANSFORMS = {"light": END_TRANSFORMS, "heavy": END_TRANSFORMS}


def _end(mean, variance, correlation, quenched, offset1, offset2, spread):
    arrays = {"mean": np.array(mean), "variance": np.array(variance)}
    scalars = {"correlation": correlation, "quenched": quenched, "offset1": offset1, "offset2": offset2}
    return {**arrays, **scalars, "spread": spread}


TRUTH = {
    "stellar": {"intercept": -2.0, "slope": 1.0},
    "light": _end((1.4, 1.1), (0.7, 0.4), 0.3, 0.2, -0.1, 1.6, 0.3),
    "heavy": _end((2.0, 1.6), (0.5, 0.5), 0.75, 0.95, -0.6, 1.2, 1.1),
}
_GUESS = _end((0.0, 0.0), (1.0, 1.0), 0.0, 0.5, 0.0, 1.0, 1.0)
START = {"stellar": {"intercept": -3.0, "slope": 1.1}, "light": _GUESS, "heavy": _GUESS}


def stellar_mass(params: dict, logm: Float[Array | np.ndarray, " n"]) -> Float[Array | np.ndarray, " n"]:
    """Return log10 stellar mass of halos of log10 mass logm."""
    return params["stellar"]["intercept"] + params["stellar"]["slope"] * logm


def galaxies(
    params: dict, logm: Float[Array | np.ndarray, " n"], normals: Float[Array | np.ndarray, "n 2 2"]
) -> tuple[Float[Array, "n 2 2"], Float[Array, "n 2"]]:
    """Return colours (n, 2, 2) and shares (n, 2) of each halo's star-forming and quenched point; normals (n, 2, 2)."""
    t = ((logm - LIGHTEST) / (HEAVIEST - LIGHTEST))[:, None]
    light, heavy = params["light"], params["heavy"]

    def between(name):
        return light[name] + (heavy[name] - light[name]) * t

    def covariance(end):
        return end["correlation"] * jnp.sqrt(end["variance"][0] * end["variance"][1])

    variance, low, high = between("variance"), covariance(light), covariance(heavy)
    first = jnp.sqrt(variance[:, :1])
    mixed = (low + (high - low) * t) / first  # Cholesky factor of the interpolated covariance
    rest = jnp.sqrt(variance[:, 1:] - mixed**2)
    spread = jnp.concatenate([jnp.ones_like(t), between("spread")], axis=1)
    noise = jnp.stack([first * normals[..., 0], mixed * normals[..., 0] + rest * normals[..., 1]], axis=-1)
    offset = jnp.concatenate([between("offset1"), between("offset2")], axis=1)
    centre = jnp.stack([between("mean"), between("mean") + offset], axis=1)
    quenched = between("quenched")
    return centre + spread[..., None] * noise, jnp.concatenate([1 - quenched, quenched], axis=1)


def bin_sums(params: dict, rows: dict, banks: tuple, key: Any) -> tuple[dict, ...]:
    """Return what each halo adds to the counts of every bin of stellar mass. rows: logm, upweight, row, each (n,)."""
    places_key, noise_key = jax.random.split(key)
    colours, shares = galaxies(params, rows["logm"], row_normals(noise_key, rows["row"], (2, 2)))
    mass = stellar_mass(params, rows["logm"])
    out = []
    for i, ((low, high), bank) in enumerate(zip(BINS, banks, strict=True)):
        inside = shares * (rows["upweight"] * window(jnp.asarray(mass), low, high))[:, None]
        out.append(sample_counts(bank.draw(jax.random.fold_in(places_key, i)), colours, inside))
    return tuple(out)


def misfit(totals: tuple, banks: tuple, key: Any) -> Float[Array, ""]:
    """Return the mean of all squared differences: densities and Fourier values in each bin, and one number count."""
    places_key = jax.random.split(key)[0]
    squares = []
    for i, (counts, bank) in enumerate(zip(totals, banks, strict=True)):
        kernel, fourier = density_residuals(counts, bank.draw(jax.random.fold_in(places_key, i)), tiny=1e-10)
        squares += [kernel**2, fourier.real**2 + fourier.imag**2]
    number = (totals[-1]["weight"] - banks[-1].all.weight) / NUMBER_SCALE
    return jnp.mean(jnp.concatenate([*squares, number[None] ** 2]))


def training(n: int = 5000, seed: int = 0) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, "n 2"]]:
    """Return log10 stellar mass (m,) and colours (m, 2) of a survey of halos most common at 12.5.

    Each point of a halo is kept with the probability of its share.
    """
    rng = np.random.default_rng(seed)
    logm = triangular(n, 12.5, rng)
    colours, shares = galaxies(TRUTH, jnp.asarray(logm), jnp.asarray(rng.standard_normal((n, 2, 2))))
    kept = rng.random((n, 2)) < np.asarray(shares)
    mass = np.broadcast_to(np.asarray(stellar_mass(TRUTH, logm))[:, None], kept.shape)
    return mass[kept], np.asarray(colours, float)[kept]


def make_banks(mass: Float[np.ndarray, " n"], colours: Float[np.ndarray, "n 2"], seed: int = 0) -> tuple:
    """Return one bank for each bin of stellar mass, of the training points inside it."""
    chosen = [(mass >= low) & (mass < high) for low, high in BINS]
    return tuple(make_bank(colours[inside], options=OPTIONS, seed=seed + i) for i, inside in enumerate(chosen))


def halo_rows(n: int = 10_000, few: int | None = None, seed: int = 0) -> dict[str, np.ndarray]:
    """Return model halos: n draws most common at 11, or `few` evenly spaced ones up-weighted to stand for them."""
    many = triangular(n, LIGHTEST, np.random.default_rng([seed, 1]))
    logm = many if few is None else even(few)
    weight = np.ones(n) if few is None else upweights(logm, many)
    return {"logm": logm, "upweight": weight.astype(float), "row": np.arange(len(logm), dtype=np.int32)}


def problem(
    n: int = 10_000, few: int | None = None, *, seed: int = 0, chunk: int | None = CHUNK, precision: str = "float64"
) -> Problem:
    """Return the fit of the 20 parameters; few: that many up-weighted halos instead of n.

    Example: `fit(colours.problem(few=500), "adam", learning_rate=0.03, maxiter=600, x_scale=1.0)`.
    """
    banks = make_banks(*training(seed=seed), seed=seed)
    rows = halo_rows(n, few, seed)
    term = statistic_term(bin_sums, rows, banks, loss=misfit, chunk=chunk, stochastic=True)
    name = "galaxy colours" if few is None else "galaxy colours, up-weighted halos"
    return Problem(Objective({"colours": term}), START, transforms=TRANSFORMS, name=name, precision=precision)
