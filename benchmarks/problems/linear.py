"""Problems with a contrast and an offset for each of 23 angles: integrated out, or sampled with all the rest."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import shardfit as sf
from benchmarks.problems import densities

ANGLES = 23
SCALES = "scales"  # the parameter (angles, 2) that is sampled or not


def decay(p: Any, rows: Any) -> jax.Array:
    """Return the stretched exponential of every row."""
    return jnp.exp(-2 * jnp.exp(p["lograte"]) * rows["t"] ** p["power"])


def decays(points: int = 40, sigma: float = 0.01) -> tuple[sf.Problem, sf.Problem]:
    """Decays at 23 angles, two shared parameters: with the scales integrated out, and with all 48 parameters."""
    rng = np.random.default_rng(2)
    n, start = points * ANGLES, {"lograte": np.log(0.8), "power": 1.1}
    rows = {"t": rng.uniform(0.05, 4, n), "angle": np.arange(n) % ANGLES, "sigma": np.full(n, sigma)}
    scales = np.stack([rng.uniform(0.15, 0.3, ANGLES), 1 + 0.02 * rng.standard_normal(ANGLES)], axis=1)
    own = scales[rows["angle"]]
    clean = own[:, 0] * np.exp(-1.6 * rows["t"] ** 1.1) + own[:, 1]
    rows["y"] = clean + sigma * rng.standard_normal(n)

    def basis(p, rows):
        found = decay(p, rows)
        return jnp.stack([found, jnp.ones_like(found)], axis=-1)

    def residual(p, rows):
        return (jnp.sum(p[SCALES][rows["angle"]] * basis(p, rows), -1) - rows["y"]) / rows["sigma"]

    term = sf.linear_term(basis, rows, groups="angle", marginal=True)
    sampled = sf.Objective({"decays": sf.residual_term(residual, rows)})
    return sf.Problem(sf.Objective({"decays": term}), start), sf.Problem(sampled, {**start, SCALES: scales})


def correlations() -> tuple[sf.Problem, sf.Problem]:
    """The shard of two-time correlations: seven parameters, and with the scales 53."""
    short = densities.xpcs()
    term = dict(short.objective.items())["pairs"]
    angles = term.args[0]

    def residual(p, rows, angles):
        model = p[SCALES][:, 0] * densities.correlation(p, rows, angles) + p[SCALES][:, 1]
        return (model - rows["y"]) / densities.NOISE

    objective = sf.Objective({"pairs": sf.residual_term(residual, term.rows, angles)})
    scales = np.tile([0.3, 1.0], (ANGLES, 1))
    priors = {**short.priors, SCALES: sf.Flat()}
    return short, sf.Problem(objective, {**densities.TRUTH, SCALES: scales}, priors=priors, name="xpcs, all")


PAIRS: dict[str, Callable[[], tuple[sf.Problem, sf.Problem]]] = {"decays": decays, "xpcs": correlations}
