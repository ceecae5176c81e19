"""Every method that is shipped is calibrated where it should be, and two that are wrong on purpose are caught."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shardfit as sf
from shardfit.sampling.posterior import Posterior
from shardfit.sampling.shards.shard_plan import ShardPlan

QUICK = {"chains": 2, "warmup": 150, "draws": 150}
TIMES = np.linspace(0.1, 3, 24)


# ---- problems -------------------------------------------------------------------------------------------------------


def decay_residual(p, rows):
    return (rows["y"] - p["a"] * jnp.exp(-rows["t"] / p["tau"])) / 0.1


def make_decay(params, key):
    """A nonlinear model with a positive parameter."""
    y = params["a"] * np.exp(-TIMES / params["tau"]) + 0.1 * np.asarray(jax.random.normal(key, TIMES.shape))
    objective = sf.Objective({"decay": sf.residual_term(decay_residual, {"t": TIMES, "y": y})})
    return sf.Problem(objective, DECAY, priors={"a": sf.Normal(1.0, 0.5), "tau": sf.LogNormal(0.0, 0.5)})


DECAY = {"a": 1.0, "tau": 1.0}
DESIGN = np.random.default_rng(0).normal(size=(40, 3)) @ np.array([[1, 0.95, 0], [0, 0.3, 0], [0, 0, 1.0]])


def line_residual(p, rows):
    return rows["A"] @ p["w"] - rows["y"]


def make_line(params, key):
    """A Gaussian posterior with correlated parameters."""
    y = DESIGN @ params["w"] + np.asarray(jax.random.normal(key, (40,)))
    objective = sf.Objective({"line": sf.residual_term(line_residual, {"A": DESIGN, "y": y})})
    return sf.Problem(objective, LINE, priors={"w": sf.Normal(0.0, 2.0)})


LINE = {"w": np.zeros(3)}


def waiting(p, rows):
    return p["rate"] * rows["t"] - jnp.log(p["rate"])


def make_waiting(params, key):
    """Few events on each shard and a logarithmic coordinate: the Jacobian counts."""
    t = np.asarray(jax.random.exponential(key, (24,))) / params["rate"]
    objective = sf.Objective({"times": sf.statistic_term(waiting, {"t": t})})
    return sf.Problem(objective, {"rate": 1.0}, priors={"rate": sf.Gamma(4.0, 4.0)})


def decay_and_one(p, rows):
    decay = jnp.exp(-rows["t"] / p["tau"])
    return jnp.stack([decay, jnp.ones_like(decay)], axis=-1)


GROUPS = np.arange(48) % 4
TWICE = np.tile(TIMES, 2)


def make_marginal(params, key):
    """Contrast and offset of four groups integrated out; they are drawn from their prior with the data."""
    own, noise = jax.random.split(key)
    c = np.array([1.0, 0.5]) + np.array([0.3, 0.2]) * np.asarray(jax.random.normal(own, (4, 2)))
    y = c[GROUPS, 0] * np.exp(-TWICE / params["tau"]) + c[GROUPS, 1] + 0.1 * np.asarray(jax.random.normal(noise, (48,)))
    rows = {"t": TWICE, "group": GROUPS, "y": y, "sigma": np.full(48, 0.1)}
    term = sf.linear_term(decay_and_one, rows, groups="group", prior=(np.array([1.0, 0.5]), np.array([0.3, 0.2])))
    problem = sf.Problem(sf.Objective({"g2": term}), {"tau": 1.0}, priors={"tau": sf.LogNormal(0.0, 0.5)})
    return sf.marginalised(problem)


def laplace(problem, seed):
    """Draw from the Gaussian around the fit."""
    result = sf.least_squares(problem, progress=False, certify=False)
    w = np.random.default_rng(seed).multivariate_normal(result.params["w"], result.covariance, size=(1, 200))
    return Posterior({"w": w}, w, {}, None, "laplace", extra={"independent": True})


# ---- what is right --------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("make", "x0"), [(make_decay, DECAY), (make_waiting, {"rate": 1.0}), (make_line, LINE)])
def test_nuts(make, x0):
    found = sf.calibrate(make, x0, "nuts", 200, **QUICK)
    assert found.passed, str(found)


@pytest.mark.slow
def test_nuts_with_linear_parameters_integrated_out():
    found = sf.calibrate(make_marginal, {"tau": 1.0}, "nuts", 100, **QUICK)
    assert found.passed, str(found)


@pytest.mark.slow
@pytest.mark.parametrize(("make", "x0"), [(make_waiting, {"rate": 1.0}), (make_line, LINE)])
@pytest.mark.parametrize("rule", ["full", "draws"])
def test_consensus(make, x0, rule):
    found = sf.calibrate(make, x0, "consensus", 100, shards=4, rule=rule, **QUICK)
    assert found.passed, str(found)


@pytest.mark.slow
def test_consensus_of_gaussians_needs_no_correction():
    found = sf.calibrate(make_line, LINE, "consensus", 100, shards=4, correct=False, **QUICK)
    assert found.passed, str(found)


@pytest.mark.slow
def test_laplace_of_a_gaussian():
    found = sf.calibrate(make_line, LINE, laplace, 60)
    assert found.passed, str(found)


@pytest.mark.slow
def test_perturbed_refits_of_a_linear_model():
    found = sf.calibrate(make_line, LINE, "rto", 40, draws=150)
    assert found.passed, str(found)


FEW = np.linspace(0.1, 3, 8)


def few_residual(p, rows):
    return (rows["y"] - p["a"] * jnp.exp(-p["k"] * rows["t"])) / 0.15


def make_few(params, key):
    """Two parameters and eight data: bent enough that refits without weights are off."""
    y = params["a"] * np.exp(-params["k"] * FEW) + 0.15 * np.asarray(jax.random.normal(key, FEW.shape))
    objective = sf.Objective({"decay": sf.residual_term(few_residual, {"t": FEW, "y": y})})
    return sf.Problem(objective, {"a": 1.0, "k": 1.0}, priors={"a": sf.Normal(1.0, 0.3), "k": sf.Normal(1.0, 0.4)})


@pytest.mark.slow
def test_perturbed_refits_with_weights():
    found = sf.calibrate(make_few, {"a": 1.0, "k": 1.0}, "rto", 150, seed=1, draws=120, slots=16)
    assert found.passed, str(found)


# ---- what is wrong --------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_jacobian_that_every_shard_takes_whole_is_caught(monkeypatch):
    make = ShardPlan.make

    def untempered(problem, division):
        plan = make(problem, division)
        return replace(plan, solver=replace(plan.solver, temper=1.0))

    found = sf.calibrate(make_waiting, {"rate": 1.0}, "consensus", 100, shards=4, correct=False, **QUICK)
    monkeypatch.setattr(ShardPlan, "make", staticmethod(untempered))
    wrong = sf.calibrate(make_waiting, {"rate": 1.0}, "consensus", 100, shards=4, correct=False, **QUICK)
    assert not wrong.passed and wrong.p < 1e-3 < found.p, f"{found}\n{wrong}"


@pytest.mark.slow
def test_a_rule_for_single_parameters_is_caught_where_they_are_correlated():
    wrong = sf.calibrate(make_line, LINE, "consensus", 100, shards=4, rule="consensus_mc", correct=False, **QUICK)
    assert not wrong.passed and wrong.p < 1e-3, str(wrong)
