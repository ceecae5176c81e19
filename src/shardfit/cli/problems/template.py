"""What `shardfit init fit` and `init sample` write: a configuration with every section, and a model that runs."""

CONFIG = """\
# A problem of your own, in five commands. If fit, sample or consensus is interrupted, run it again to continue.
#   shardfit plan {path}         what an evaluation will cost
#   shardfit fit {path}          the best parameters, with error bars where the solver has them
#   shardfit sample {path}       draws from the posterior
#   shardfit consensus {path}    the same, the rows in shards
#   shardfit calibrate {path}    do the intervals hold?
problem = "{module}:make_problem"   # module:function in this folder; make_problem(**settings) returns a Problem
out = "runs/{stem}"
seed = 0

[settings]                       # what make_problem is called with
rows = 2000

[fit]
solver = "lbfgsb"                # lbfgsb, lbfgs, adam, swarm, cmaes, lm (without priors), ...; its options beside it
maxiter = 100
errors = true                    # error bars from the curvature, where the solver has none

[sample]
method = "nuts"                  # or "rto": perturbed refits, for images and other problems of many parameters
out = "runs/{stem}-posterior"    # each method has a folder of its own
chains = 4
draws = 1000                     # of each chain; raise it and run again to add draws
# warmup = 500
# target_accept = 0.8            # nearer to 1 if there are divergences

[consensus]                      # the rows in shards, each with its own chains
out = "runs/{stem}-consensus"
shards = 8
# by = "angle"                   # name of a row entry: every shard gets its share of each value
# workers = 2                    # processes that share the shards

[calibrate]
make = "{module}:simulate_problem"  # simulate_problem(params, key) returns the Problem of data simulated at params
out = "runs/{stem}-calibration"
n = 100

[run]
# devices = 4                    # fit: they share the rows; sample: chains run on them side by side
# rows = 1                       # sample: of these, so many share the rows of each chain
"""

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
