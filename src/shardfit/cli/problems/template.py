"""What `shardfit init fit` and `init sample` write: a configuration with every section, and a model that runs."""

from shardfit.cli.problems.config import Config
from shardfit.options.writing import template

HEAD = """\
# A problem of your own, in five commands. If fit, sample or consensus is interrupted, run it again to continue.
#   shardfit plan {path}         what an evaluation will cost
#   shardfit fit {path}          the best parameters, with error bars where the solver has them
#   shardfit sample {path}       draws from the posterior
#   shardfit consensus {path}    the same, the rows in shards
#   shardfit calibrate {path}    do the intervals hold?
# All there is stands here, as comments what need not be said.

"""


def text(path: str, module: str, stem: str) -> str:
    """Return a configuration. path: its own; module: that of the model; stem: of the run directories."""
    values = {
        "problem": f"{module}:make_problem",
        "out": f"runs/{stem}",
        "seed": 0,
        "settings": {"rows": 2000},
        "fit": {"solver": "lbfgsb", "errors": True, "maxiter": 100},
        "sample": {"method": "nuts", "out": f"runs/{stem}-posterior", "chains": 4, "draws": 1000},
        "consensus": {"out": f"runs/{stem}-consensus", "shards": 8},
        "calibrate": {"make": f"{module}:simulate_problem", "out": f"runs/{stem}-calibration", "n": 100},
    }
    return HEAD.format(path=path) + template(Config, values)


MODEL = '''\
"""A model of one's own: change `decay`, the rows and the priors into yours."""

import jax
import jax.numpy as jnp
import numpy as np
import shardfit as sf

NOISE = 0.1


def decay(params, rows):
    """A block of rows in, one residual for each out, in units of its error."""
    return (rows["y"] - params["amplitude"] * jnp.exp(-rows["t"] / params["lifetime"])) / NOISE


def problem_of(rows):
    terms = {"decay": sf.residual_term(decay, rows)}
    priors = {"amplitude": sf.Normal(1.0, 2.0), "lifetime": sf.LogNormal(0.0, 1.0)}
    start, units = {"amplitude": 1.0, "lifetime": 1.0}, {"lifetime": "s"}
    return sf.Problem(sf.Objective(terms), start, priors=priors, units=units, name="decay")


def make_problem(rows=2000):
    """The problem of the data; here they are made up, in yours they are read from a file."""
    return simulate_problem({"amplitude": 2.0, "lifetime": 1.5}, jax.random.key(0), rows)


def simulate_problem(params, key, rows=200):
    """The problem of data simulated at params, which `calibrate` asks for."""
    t = np.linspace(0.0, 5.0, rows)
    y = params["amplitude"] * np.exp(-t / params["lifetime"]) + NOISE * np.asarray(jax.random.normal(key, t.shape))
    return problem_of({"t": t, "y": y})
'''
