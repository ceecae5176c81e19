"""NumPyro models as problems: their latent sites are the parameters, their observed sites the data.

The model stays NumPyro's: it is traced with its sites substituted, and its log densities become the terms of an
objective, which can then be fitted, sampled, split over devices, or divided into shards like any other.
"""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from shardfit.core.objective import Objective
from shardfit.core.precision import arithmetic
from shardfit.core.problem import Problem
from shardfit.core.term_makers import prior, statistic_term
from shardfit.sampling.numpyro_sites import Sites, coordinates_of, read_sites, traced


def from_numpyro(
    model: Callable,
    *args: Any,
    rows: Mapping[str, Any] | None = None,
    x0: Mapping[str, Any] | None = None,
    chunk: int | None = None,
    seed: int = 0,
    precision: str = "float64",
    **options: Any,
) -> Problem:
    """Return the problem of a NumPyro model: model(*args, **rows, **options).

    rows: arrays with one common leading axis that the model takes by keyword, and whose likelihood is a sum over that
    axis: they can be split over devices, chunks and shards. Latent sites must not have that axis. Without rows, all of
    the model is one term. x0: where to start, by site; drawn from the priors by default. chunk: rows at once.

    Example: `from_numpyro(regression, rows={"x": x, "y": y})`.
    """
    rows = {} if rows is None else dict(rows)
    few = {**options, **{name: np.asarray(array)[:1] for name, array in rows.items()}}
    with arithmetic(precision):
        sites = read_sites(model, args, few, seed)
        start = {name: np.asarray(site["value"]) for name, site in sites.latent.items()}
        transforms = {name: coordinates_of(name, site) for name, site in sites.latent.items()}
        _require_one_density(model, args, few, sites)
        if rows:
            _require_apart(model, args, {**options, **rows}, few, sites, seed)
        terms = _terms(model, args, rows, few, options, chunk, sites)
    given = {name: _of_site(name, value, start) for name, value in (x0 or {}).items()}
    name = getattr(model, "__name__", "model")
    return Problem(Objective(terms), start | given, transforms=transforms, name=name, precision=precision)


def _of_site(name: str, value: Any, start: Mapping[str, np.ndarray]) -> np.ndarray:
    if name not in start:
        raise ValueError(f"from_numpyro: x0 names {name!r}, which is no latent site ({', '.join(start)}).")
    if np.shape(value) != start[name].shape:
        raise ValueError(f"from_numpyro: x0 of {name!r} has shape {np.shape(value)}, the site {start[name].shape}.")
    return np.asarray(value, start[name].dtype)


def _terms(model, args, rows, few, options, chunk, sites: Sites) -> dict[str, Any]:
    if not rows:
        observed = _Joint(model, False, sites.edged)
        return {"prior": prior(_Joint(model, True), args, options), "model": prior(observed, args, options)}
    return {
        "likelihood": statistic_term(_PerRow(model, sites.edged), rows, args, options, chunk=chunk),
        "prior": prior(_Joint(model, True), args, few),
    }


def _require_one_density(model: Callable, args: tuple, given: Mapping, sites: Sites) -> None:
    """Raise if the density changes with the key of random numbers while all latent sites stay."""
    values = {name: site["value"] for name, site in sites.latent.items()}
    for latent in (True, False):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of observed values that have no density at this draw of the priors
            one, other = (_log_densities(model, values, args, given, latent, key=key) for key in (0, 1))
        moved = [name for name in one if not np.array_equal(one[name], other[name], equal_nan=True)]
        if moved:
            raise ValueError(
                f"from_numpyro: the density of site {moved[0]!r} is random though every latent site is given: the "
                "model draws numbers beside its sites (numpyro.prng_key, handlers.block). Make them sites, or "
                "arguments."
            )


def _require_apart(model: Callable, args: tuple, whole: Mapping, few: Mapping, sites: Sites, seed: int) -> None:
    """Raise if latent sites, or their densities, change with the rows that the model is given."""
    drawn = traced(model, args, whole, seed)
    values = {name: site["value"] for name, site in sites.latent.items()}
    grown = [n for n, value in values.items() if n not in drawn or np.shape(drawn[n]["value"]) != np.shape(value)]
    if grown:
        raise ValueError(
            f"from_numpyro: site {grown[0]!r} has a number for every row, which cannot be split from its row. Call it "
            "without rows=, all data as arguments: the model is then one term."
        )
    of_all, of_few = (_log_densities(model, values, args, given, True) for given in (whole, few))
    moved = [name for name in of_few if not np.allclose(jnp.sum(of_all[name]), jnp.sum(of_few[name]), equal_nan=True)]
    if moved:
        raise ValueError(
            f"from_numpyro: the prior of site {moved[0]!r} depends on the rows, of which a device sees only some. Give "
            "what it needs of them (a mean, a number of rows) as an argument."
        )


def _log_densities(
    model: Callable,
    params: Mapping,
    args: tuple,
    options: Mapping,
    latent: bool,
    edged: tuple[str, ...] = (),
    key: int = 0,
) -> dict[str, Any]:
    """Return the log densities of latent or of observed sites, number by number, at given latent sites."""
    densities = {}
    for name, site in traced(model, args, options, key, params).items():
        if site["type"] == "sample" and site["is_observed"] != latent:
            value = jnp.asarray(site["value"])  # an array of NumPy would be compared with supports on the host
            density = site["fn"].log_prob(value)
            if name in edged:  # NumPyro's densities do not end where their supports do
                density = jnp.where(site["fn"].support(value), density, -jnp.inf)
            densities[name] = density if site["scale"] is None else site["scale"] * density
    return densities


@dataclass(frozen=True)
class _Joint:
    """log density of all latent sites, or of all observed ones."""

    model: Callable
    latent: bool
    edged: tuple[str, ...] = ()

    def __call__(self, params, args, options):
        densities = _log_densities(self.model, params, args, options, self.latent, self.edged)
        return sum((jnp.sum(density) for density in densities.values()), jnp.zeros(()))


@dataclass(frozen=True)
class _PerRow:
    """-log likelihood of every row."""

    model: Callable
    edged: tuple[str, ...]

    def __call__(self, params, rows, args, options):
        n = jax.tree.leaves(rows)[0].shape[0]
        total = jnp.zeros(n)
        for name, density in _log_densities(self.model, params, args, {**options, **rows}, False, self.edged).items():
            if density.ndim == 0 or density.shape[0] != n:
                raise ValueError(
                    f"from_numpyro: the log density of observed site {name!r} has shape {density.shape} for {n} rows. "
                    "Give it the rows as its first axis, or call without rows=."
                )
            total -= density.reshape(n, -1).sum(1)
        return total
