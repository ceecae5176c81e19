"""The sites of a NumPyro model: what it is traced with, which of them are parameters, and what a density cannot have.

A trace is one draw, and what a model does at another it does not say. So a model is traced several times, and refused
where its sites, or the ranges of its parameters, are not the same each time.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from shardfit.core.extras import require_extra
from shardfit.core.priors import between
from shardfit.core.transforms import Identity, Simplex, Transform

TRACES = 4
WHO = "from_numpyro"


class Sites(NamedTuple):
    """latent: sites by name, with values drawn from their priors. edged: observed sites whose support follows them."""

    latent: dict[str, dict]
    edged: tuple[str, ...]


def traced(model: Callable, args: tuple, given: Mapping, seed: int, values: Mapping | None = None) -> dict[str, dict]:
    """Return what model(*args, **given) does, by name, at given values of sites and draws of the others."""
    with require_extra(WHO, "numpyro"):
        from numpyro import handlers

    known = handlers.substitute(handlers.seed(model, jax.random.key(seed)), data=dict(values or {}))
    return handlers.trace(handlers.substitute(known, substitute_fn=_undrawn)).get_trace(*args, **given)


def _undrawn(site: dict) -> Any:
    """Return a value for a prior that cannot be drawn from, as an improper one; None for others."""
    if site["type"] != "sample" or site["is_observed"] or site["value"] is not None:
        return None
    try:
        jax.eval_shape(lambda key: site["fn"].sample(key), jax.random.key(0))
    except NotImplementedError:
        from numpyro.infer.initialization import init_to_uniform

        return init_to_uniform(site)
    return None


def read_sites(model: Callable, args: tuple, given: Mapping, seed: int) -> Sites:
    """Return the sites of a model; raise for one that has no density of a fixed number of continuous parameters."""
    traces = [traced(model, args, given, seed + i) for i in range(TRACES)]
    for name, site in traces[0].items():
        _require_whole(name, site)
    found = [_latent(trace) for trace in traces]
    if not found[0]:
        raise ValueError(f"{WHO}: the model has no latent site, so there is nothing to fit.")
    for name, site in found[0].items():
        _require_continuous(name, site)
    for other in found[1:]:
        differ = [name for name in {**found[0], **other} if _shape_in(found[0], name) != _shape_in(other, name)]
        if differ:
            raise ValueError(
                f"{WHO}: site {differ[0]!r} is there, or has its shape, for some values of the others only. A density "
                "needs the same numbers always: write both cases, and choose by jnp.where."
            )
    moving = {n for n, site in traces[0].items() if site["type"] == "sample" and _moves([t.get(n) for t in traces])}
    for name in found[0]:
        if name in moving:
            raise ValueError(
                f"{WHO}: the support of site {name!r} depends on other sites, so it has no coordinates of its own. Use "
                f"a share of it as the site: for Uniform(0, t), u = numpyro.sample('u', dist.Uniform(0, 1)) and {name} "
                f"= numpyro.deterministic({name!r}, t * u)."
            )
    return Sites(found[0], tuple(sorted(moving)))


def _latent(trace: Mapping[str, dict]) -> dict[str, dict]:
    return {name: site for name, site in trace.items() if site["type"] == "sample" and not site["is_observed"]}


def _shape_in(sites: Mapping[str, dict], name: str) -> tuple | None:
    return np.shape(sites[name]["value"]) if name in sites else None


def _require_whole(name: str, site: dict) -> None:
    if site["type"] == "plate" and len(site["value"]) != site["args"][0]:
        raise ValueError(
            f"{WHO}: plate {name!r} takes {len(site['value'])} of its {site['args'][0]} members: a density needs all "
            "of them. Leave subsample_size out; for memory, give the data as rows= and a chunk=."
        )
    if site["type"] == "param":
        raise ValueError(
            f"{WHO}: {name!r} is a numpyro.param, which has no prior, so it would stay at its first value. Make it a "
            "site (numpyro.sample; dist.ImproperUniform is flat), or an argument."
        )


def _require_continuous(name: str, site: dict) -> None:
    kind, dtype = type(site["fn"]).__name__, jnp.asarray(site["value"]).dtype
    if getattr(site["fn"], "is_discrete", False) or jnp.issubdtype(dtype, jnp.integer):
        raise ValueError(
            f"{WHO}: site {name!r} is discrete ({kind}): gradients do not reach it. Sum it out in the model, or sample "
            "with NumPyro's own enumeration."
        )
    if not jnp.issubdtype(dtype, jnp.floating):
        raise ValueError(f"{WHO}: site {name!r} has numbers of type {dtype} ({kind}). Use sites of real numbers.")
    if type(site["fn"]).__name__ == "Delta":
        raise ValueError(f"{WHO}: site {name!r} is a constant (Delta). Use numpyro.deterministic for it.")


def _moves(sites: list[dict | None]) -> bool:
    """Return whether the support of a site is not the same in all traces."""
    (ends, kind), *others = [jax.tree.flatten(site["fn"].support) for site in sites if site is not None]
    return any(k != kind or not all(map(np.array_equal, ends, e)) for e, k in others)


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


def coordinates_of(name: str, site: dict) -> Transform:
    """Return the coordinates of a latent site, by the constraint of its support."""
    from numpyro.distributions import biject_to, constraints

    base = site["fn"].support
    while isinstance(base, constraints.independent):
        base = base.base_constraint
    if base is constraints.real or base is constraints.real_vector:
        return Identity()
    if base is constraints.simplex:
        return Simplex()
    if hasattr(base, "lower_bound") or hasattr(base, "upper_bound"):
        low, high = getattr(base, "lower_bound", -np.inf), getattr(base, "upper_bound", np.inf)
        return between(low, high, np.shape(site["value"]))
    try:
        biject_to(base)
    except NotImplementedError:
        raise ValueError(
            f"{WHO}: site {name!r} lies on {base}, onto which NumPyro has no map from unconstrained numbers. Write it "
            "by others (numpyro.infer.reparam has ways)."
        ) from None
    return Bijector(base)
