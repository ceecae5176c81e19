"""NumPyro models as problems: their latent sites are the parameters, their observed sites the data.

The model stays NumPyro's: it is traced with its sites substituted, and its log densities become the terms of an
objective, which can then be fitted, sampled, split over devices, or divided into shards like any other.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from shardfit.core.extras import needed_for
from shardfit.core.objective import Objective
from shardfit.core.precision import arithmetic
from shardfit.core.problem import Problem
from shardfit.core.term_makers import prior, statistic_term
from shardfit.core.transforms import Identity, Interval, Log, Shift, Simplex, Transform


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
    with arithmetic(precision):
        sites = _sites(model, args, rows, options, seed)
        latent = {name: site for name, site in sites.items() if not site["is_observed"]}
        _require_continuous(latent)
        start = {name: np.asarray(site["value"]) for name, site in latent.items()}
        if not start:
            raise ValueError("from_numpyro: the model has no latent site, so there is nothing to fit.")
        transforms = {name: transform_of_constraint(name, site["fn"].support) for name, site in latent.items()}
        terms = _terms(model, args, rows, options, chunk, start, seed)
    given = {name: np.asarray(value) for name, value in (x0 or {}).items()}
    unknown = set(given) - set(start)
    if unknown:
        raise ValueError(f"from_numpyro: x0 names {min(unknown)!r}, which is no latent site ({', '.join(start)}).")
    name = getattr(model, "__name__", "model")
    return Problem(Objective(terms), start | given, transforms=transforms, name=name, precision=precision)


def _terms(model, args, rows, options, chunk, start, seed) -> dict[str, Any]:
    if not rows:
        return {"prior": prior(_Joint(model, True), args, options), "model": prior(_Joint(model, False), args, options)}
    one = {name: np.asarray(array)[:1] for name, array in rows.items()}
    few = _sites(model, args, one, options, seed)
    grown = [name for name, value in start.items() if name not in few or few[name]["value"].shape != value.shape]
    if grown:
        raise ValueError(
            f"from_numpyro: site {grown[0]!r} has a number for every row, which cannot be split from its row. Call it "
            "without rows=, all data as arguments: the model is then one term."
        )
    return {
        "likelihood": statistic_term(_PerRow(model), rows, args, options, chunk=chunk),
        "prior": prior(_Joint(model, True), args, {**options, **one}),
    }


def _sites(model: Callable, args: tuple, rows: Mapping, options: Mapping, seed: int) -> dict[str, dict]:
    with needed_for("from_numpyro", "numpyro"):
        from numpyro import handlers

    traced = handlers.trace(handlers.seed(model, jax.random.key(seed))).get_trace(*args, **rows, **options)
    return {name: site for name, site in traced.items() if site["type"] == "sample"}


def _require_continuous(latent: Mapping[str, dict]) -> None:
    for name, site in latent.items():
        if getattr(site["fn"], "is_discrete", False) or jnp.issubdtype(jnp.asarray(site["value"]).dtype, jnp.integer):
            raise ValueError(
                f"from_numpyro: site {name!r} is discrete ({type(site['fn']).__name__}): gradients do not reach it. "
                "Sum it out in the model, or sample with NumPyro's own enumeration."
            )


def _log_densities(model: Callable, params: Mapping, args: tuple, options: Mapping, latent: bool) -> dict[str, Any]:
    """Return the log densities of latent or of observed sites, number by number, at given latent sites."""
    from numpyro import handlers

    known = handlers.substitute(handlers.seed(model, jax.random.key(0)), data=dict(params))
    traced = handlers.trace(known).get_trace(*args, **options)
    densities = {}
    for name, site in traced.items():
        if site["type"] == "sample" and site["is_observed"] != latent:
            density = site["fn"].log_prob(site["value"])
            densities[name] = density if site["scale"] is None else site["scale"] * density
    return densities


@dataclass(frozen=True)
class _Joint:
    """log density of all latent sites, or of all observed ones."""

    model: Callable
    latent: bool

    def __call__(self, params, args, options):
        densities = _log_densities(self.model, params, args, options, self.latent)
        return sum((jnp.sum(density) for density in densities.values()), jnp.zeros(()))


@dataclass(frozen=True)
class _PerRow:
    """-log likelihood of every row."""

    model: Callable

    def __call__(self, params, rows, args, options):
        n = jax.tree.leaves(rows)[0].shape[0]
        total = jnp.zeros(n)
        for name, density in _log_densities(self.model, params, args, {**options, **rows}, False).items():
            if density.ndim == 0 or density.shape[0] != n:
                raise ValueError(
                    f"from_numpyro: the log density of observed site {name!r} has shape {density.shape} for {n} rows. "
                    "Give it the rows as its first axis, or call without rows=."
                )
            total -= density.reshape(n, -1).sum(1)
        return total


@dataclass(frozen=True)
class Bijector:
    """A constraint of NumPyro as a transform, by its own map from unconstrained numbers."""

    constraint: Any

    def _map(self):
        from numpyro.distributions import biject_to

        return biject_to(self.constraint)

    def forward(self, z):
        """Return the parameter."""
        return self._map()(z)

    def inverse(self, x):
        """Return the coordinates."""
        return self._map()._inverse(x)

    def log_det(self, z):
        """Return the logarithm of the volume's stretch."""
        return self._map().log_abs_det_jacobian(z, self._map()(z))


def transform_of_constraint(name: str, constraint: Any) -> Transform:
    """Return the coordinates of a site from the constraint of its support."""
    from numpyro.distributions import constraints

    base = constraint
    while isinstance(base, constraints.independent):
        base = base.base_constraint
    if base is constraints.real or base is constraints.real_vector:
        return Identity()
    if base is constraints.simplex:
        return Simplex()
    low, high = (getattr(base, end, None) for end in ("lower_bound", "upper_bound"))
    for end in (low, high):
        if isinstance(end, Tracer) or np.size(0.0 if end is None else end) > 1:
            raise ValueError(f"from_numpyro: the support of site {name!r} differs from number to number ({base}).")
    low, high = (None if end is None else float(np.asarray(end).reshape(())) for end in (low, high))
    if low is not None and high is not None:
        return Interval(low, high)
    if low is not None:
        return Log() if low == 0 else Shift(low, 1)
    return Shift(high, -1) if high is not None else Bijector(base)
