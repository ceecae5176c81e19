"""Problems with a contrast and an offset for each of 23 angles: integrated out, or sampled with all the rest."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import shardfit as sf
from shardfit.core.terms import RowTerm
from shardfit.domains.xpcs import Experiment, FitOptions, curved, fit_correlation, laminar_flow, simulate
from shardfit.domains.xpcs.problem import TERM
from shardfit.domains.xpcs.recipes.posterior import posterior_problem
from shardfit.domains.xpcs.terms import joint_term

ANGLES = 23
SCALES = ("scales", "contrast", "offset")  # names of the parameters that are sampled or not


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
        return (jnp.sum(p[SCALES[0]][rows["angle"]] * basis(p, rows), -1) - rows["y"]) / rows["sigma"]

    term = sf.linear_term(basis, rows, groups="angle", marginal=True)
    sampled = sf.Objective({"decays": sf.residual_term(residual, rows)})
    return sf.Problem(sf.Objective({"decays": term}), start), sf.Problem(sampled, {**start, SCALES[0]: scales})


def flow(frames: int = 30) -> tuple[sf.Problem, sf.Problem]:
    """Two-time correlations of a sheared sample, as `sample_correlation` draws from them: 7 parameters, or all 53."""
    rng = np.random.default_rng(3)
    law = laminar_flow()
    truth = dict(zip(law.names, (8000.0, -0.25, 300.0, 2e-3, -0.2, 1e-4, -4.0), strict=True))
    scales = 0.3 + 0.03 * rng.standard_normal(ANGLES), 1 + 0.01 * rng.standard_normal(ANGLES)
    measured = Experiment(np.linspace(-90, 90, ANGLES), frames, 20.0 / frames, contrast=scales[0], offset=scales[1])
    data = simulate(law, truth, measured, 1)
    options = FitOptions(scaling="individual")
    fitted = fit_correlation(data, curved(law, data), options, sf.RunOptions(progress=False))
    short = posterior_problem(fitted)
    term = dict(short.objective.items())[TERM]
    assert isinstance(term, RowTerm)
    model, geometry, design = term.args
    rows = {name: term.rows[name] for name in ("pairs", "y", "w")}
    joint = joint_term(rows, model, geometry, design, fitted.setup.n_points)
    x0 = {**short.x0, "contrast": fitted.contrast, "offset": fitted.offset}
    return short, short.replace(objective=sf.Objective({TERM: joint}), x0=x0, name="flow, all")


PAIRS: dict[str, Callable[[], tuple[sf.Problem, sf.Problem]]] = {"decays": decays, "flow": flow}
