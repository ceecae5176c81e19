"""Surveys of decay: how far the half-life depends on what is assumed of the background, and on the noise."""

import numpy as np

import shardfit as sf
from decay.counts import as_rows, read, simulate
from decay.problem import decay_problem

EXAMPLE = """\
[decay]
data = ""                 # a CSV file; left empty: simulated counts
background = 15.0         # known from elsewhere, counts

[axes]
weight = [0.0, 0.1, 1.0]  # of that knowledge
bootstrap = [0, 1, 2, 3]  # seeds: counts drawn anew around those measured
"""


def make(settings, axes):
    """Return problem, axes and options of `survey`."""
    rows = read(settings["data"]) if settings.get("data") else simulate()
    known = {"weight": lambda values: sf.weight_axis("known", values), "bootstrap": lambda v: sf.seed_axis(v, resample)}
    for name in axes:
        if name not in known:
            raise ValueError(f"[axes]: decay has no axis {name!r}. Known: {', '.join(known)}.")
    problem = decay_problem(rows, float(settings.get("background", 10.0)))
    return problem, {name: known[name](values) for name, values in axes.items()}, {}


def resample(start, generator: np.random.Generator):
    """Draw counts anew around those measured."""
    rows = dict(start.objective.items())["data"].rows
    drawn = as_rows(rows["time"], generator.poisson(np.asarray(rows["counts"])))
    return start._replace(objective=start.objective.with_rows(data=drawn))
