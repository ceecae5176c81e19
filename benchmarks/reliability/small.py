"""Small problems for the campaigns; nothing is compiled, and JAX is not started, before they are fitted."""

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

import shardfit as sf
from shardfit.surveys.axes import Axis, weight_axis
from shardfit.surveys.control import SurveyControl
from shardfit.surveys.designs import grid
from shardfit.surveys.run import survey

DRAW = np.random.default_rng(1)
T = np.linspace(0, 5, 40)
ROWS = {"t": T, "y": 2 * np.exp(-0.7 * T) + 0.1 * DRAW.normal(size=T.size)}
START = {"a": 1.0, "k": 1.0}


def residual(params: Any, rows: Any) -> Any:
    """Return the residuals of a decay."""
    return (rows["y"] - params["a"] * jnp.exp(-params["k"] * rows["t"])) / 0.1


def decay(priors: bool = True, model: Any = residual, **options: Any) -> sf.Problem:
    """Return a decay of amplitude a and rate k. model: other residuals."""
    given = {"priors": {"a": sf.Normal(0.0, 5.0), "k": sf.LogNormal(0.0, 1.0)}} if priors else {}
    return sf.Problem(sf.Objective({"decay": sf.residual_term(model, ROWS)}), START, name="decay", **given, **options)


A = DRAW.normal(size=(37, 6))
Y = A @ np.linspace(-1, 1, 6) + 0.1 * DRAW.normal(size=37)


def line(params: Any, rows: Any, offset: Any) -> Any:
    """Return the residuals of a straight line in six dimensions."""
    return rows["A"] @ params["m"] - rows["y"] + offset


def soft(params: Any) -> Any:
    """Return a penalty that keeps the problem from being linear."""
    return jnp.sum(jnp.sqrt(0.01 + params["m"] ** 2))


def survey_of(points: int, model: Any = line) -> tuple[sf.Problem, dict[str, Any]]:
    """Return a problem, and axes whose grid has so many points."""
    terms = {"data": sf.residual_term(model, {"A": A, "y": Y}, 0.0), "soft": sf.penalty(soft)}
    offsets = max(1, points // 4)
    axes = {
        "soft": weight_axis("soft", (0.1, 0.3, 1.0, 3.0)),
        "offset": Axis(
            tuple(0.5 * k / offsets for k in range(offsets)),
            lambda start, value: start._replace(objective=start.objective.with_args(data=(value,))),
        ),
    }
    return sf.Problem(sf.Objective(terms), {"m": np.zeros(6)}, name="line"), axes


def make_survey(folder: Path, points: int, model: Any = line, **options: Any) -> Any:
    """Run a survey of the line and return its table."""
    problem, axes = survey_of(points, model)
    control = SurveyControl(options.pop("slots", 4), progress=False, **options)
    return survey(problem, axes, run_dir=folder, design=grid(axes), maxiter=60, control=control)
