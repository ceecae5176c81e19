"""Problems with a contrast and an offset for each of 23 angles: integrated out, or sampled with all the rest."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import shardfit as sf
from benchmarks.problems import densities

ANGLES = 23
SCALES = "scales"  # the parameter (angles, 2) that is sampled or not
SIGMA = 0.01
DECAY = {"lograte": np.log(0.8), "power": 1.1}
DECAY_PRIORS = {"lograte": sf.Normal(0.0, 1.0), "power": sf.Normal(1.0, 0.3)}


def decay(p: Any, rows: Any) -> jax.Array:
    """Return stretched exponentials (n, angles)."""
    return jnp.exp(-2 * jnp.exp(p["lograte"]) * rows["t"] ** p["power"])


def decay_and_one(p: Any, rows: Any) -> jax.Array:
    """Return the basis functions (n, angles, 2)."""
    found = decay(p, rows)
    return jnp.stack([found, jnp.ones_like(found)], axis=-1)


def decay_residual(p: Any, rows: Any) -> jax.Array:
    """Return all residuals (n, angles), with the scales as parameters."""
    return (p[SCALES][:, 0] * decay(p, rows) + p[SCALES][:, 1] - rows["y"]) / rows["sigma"]


def decays(longest: float) -> tuple[sf.Problem, sf.Problem]:
    """Decays of 40 points at 23 angles, two shared parameters: scales integrated out, and all 48 parameters.

    longest: time to which they are followed; the decay is by a factor of five at 1.
    """
    rng = np.random.default_rng(2)
    rows = {"t": longest * rng.uniform(0.01, 1, (40, ANGLES)), "sigma": np.full((40, ANGLES), SIGMA)}
    scales = np.stack([rng.uniform(0.15, 0.3, ANGLES), 1 + 0.02 * rng.standard_normal(ANGLES)], axis=1)
    clean = scales[:, 0] * np.exp(-1.6 * rows["t"] ** 1.1) + scales[:, 1]
    rows["y"] = clean + SIGMA * rng.standard_normal(clean.shape)
    term = sf.linear_term(decay_and_one, rows, groups=np.arange(ANGLES), marginal=True)
    short = sf.Problem(sf.Objective({"decays": term}), DECAY, priors=DECAY_PRIORS, name="decays")
    objective = sf.Objective({"decays": sf.residual_term(decay_residual, rows)})
    priors = {**DECAY_PRIORS, SCALES: sf.Flat()}
    return short, sf.Problem(objective, {**DECAY, SCALES: scales}, priors=priors, name="decays, all")


def correlation_residual(p: Any, rows: Any, angles: Any) -> jax.Array:
    """Return residuals (pairs, angles) of two-time correlations, with the scales as parameters."""
    model = p[SCALES][:, 0] * densities.correlation(p, rows, angles) + p[SCALES][:, 1]
    return (model - rows["y"]) / densities.NOISE


def correlations() -> tuple[sf.Problem, sf.Problem]:
    """The shard of two-time correlations: seven parameters, and with the scales 53."""
    short = densities.xpcs()
    term = dict(short.objective.items())["pairs"]
    objective = sf.Objective({"pairs": sf.residual_term(correlation_residual, term.rows, *term.args)})
    start = {**densities.TRUTH, SCALES: np.tile([0.3, 1.0], (ANGLES, 1))}
    return short, sf.Problem(objective, start, priors={**short.priors, SCALES: sf.Flat()}, name="xpcs, all")


PAIRS: dict[str, Callable[[], tuple[sf.Problem, sf.Problem]]] = {
    "decays": partial(decays, 4.0),
    "decays cut short": partial(decays, 0.7),
    "xpcs": correlations,
}
