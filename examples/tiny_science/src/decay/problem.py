"""From counts to a Problem that `fit`, surveys and plans take."""

import numpy as np

import shardfit as sf
from decay.counts import expected


def residual(params, rows):
    """(expected - counted) / sigma, (n,)."""
    return (expected(params, rows["time"]) - rows["counts"]) / rows["sigma"]


def background_residual(params, known):
    """Distance of the background from what is known of it, in units of its error."""
    return (params["background"] - known) / known**0.5


def decay_problem(rows, background: float = 10.0, weight: float = 0.0) -> sf.Problem:
    """Fit of activity, half-life and background. background: counts known from elsewhere, which count by weight."""
    terms = {
        "data": sf.residual_term(residual, rows),
        "known": sf.residual_penalty(background_residual, np.float64(background), weight=weight),
    }
    return sf.Problem(
        sf.Objective(terms),
        x0={
            "activity": float(rows["counts"].max()),
            "half_life": float(rows["time"].max()) / 2,
            "background": background,
        },
        transforms={"activity": sf.Log(), "half_life": sf.Log(), "background": sf.Log()},
        units={"activity": "counts", "half_life": "s", "background": "counts"},
        decode=lambda p: {"decay constant (1/s)": np.log(2) / p["half_life"]},
        name="decay",
    )
