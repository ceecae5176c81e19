"""consensus where shards are no Gaussians: logistic regression against one NUTS, coefficients integrated out."""

import jax.numpy as jnp
import numpy as np
import pytest

from shardfit.core.objective import Objective
from shardfit.core.precision import arithmetic
from shardfit.core.priors import Normal
from shardfit.core.problem import Problem
from shardfit.core.terms import statistic_term
from shardfit.sampling.density import values_on_z
from shardfit.sampling.run import sample
from shardfit.sampling.shards.shard_consensus import consensus
from shardfit.sampling.shards.shard_control import ShardControl
from shardfit.stats.linear import linear_term


def logistic_loss(p, rows):
    odds = rows["x"] @ p["w"]
    return jnp.logaddexp(0, odds) - rows["y"] * odds


def logistic(n, size, seed=0):
    """Return a logistic regression with correlated columns, and a constant that makes successes rare."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, size)) @ (np.eye(size) + 0.5 * rng.normal(size=(size, size)) / np.sqrt(size))
    x[:, 0] = 1
    w = np.append(-2.0, rng.normal(size=size - 1) / np.sqrt(size))
    y = (rng.uniform(size=n) < 1 / (1 + np.exp(-x @ w))).astype(float)
    objective = Objective({"data": statistic_term(logistic_loss, {"x": x, "y": y})})
    return Problem(objective, {"w": np.zeros(size)}, priors={"w": Normal(0.0, 2.0)}, name="logistic")


def moments(posterior):
    z, w = posterior.z.reshape(-1, posterior.z.shape[2]), posterior.weights
    w = np.full(len(z), 1 / len(z)) if w is None else w.ravel()
    away = z - w @ z
    return w @ z, (w[:, None] * away).T @ away


def errors(found, truth):
    """Return the largest error of a mean in sd, the range of sd ratios, and the largest error of a correlation."""
    (mean, covariance), (true_mean, true_covariance) = found, truth
    sd, true_sd = np.sqrt(np.diag(covariance)), np.sqrt(np.diag(true_covariance))
    away = covariance / np.outer(sd, sd) - true_covariance / np.outer(true_sd, true_sd)
    return np.max(np.abs(mean - true_mean) / true_sd), *(f(sd / true_sd) for f in (np.min, np.max)), np.abs(away).max()


@pytest.mark.slow
@pytest.mark.parametrize(("n", "size", "shards"), [(1500, 4, 4), (20_000, 10, 4), (20_000, 10, 16)])
def test_logistic_regression(n, size, shards):
    problem = logistic(n, size)
    truth = moments(sample(problem, draws=4000, progress=False))
    found = consensus(problem, shards, correct=10_000, control=ShardControl(progress=False))
    mean, least, most, correlation = errors(moments(found), truth)
    assert mean < 0.1
    assert 0.95 < least <= most < 1.05
    assert correlation < 0.05
    assert found.extra["pareto_k"] < 0.5
    assert found.verdict()
    plain = errors((found.extra["uncorrected_mean"], found.extra["uncorrected_covariance"]), truth)
    assert plain[0] > mean
    by_parameter = consensus(problem, shards, rule="consensus_mc", correct=False, control=ShardControl(progress=False))
    assert errors(moments(by_parameter), truth)[3] > 0.2  # all correlations are lost
    assert found.layout["useful_gradients"] > 0.9


GROUPS, ROWS = 3, 240


def decaying(p, rows):
    return jnp.stack([jnp.exp(-p["k"] * rows["t"]), jnp.ones_like(rows["t"])], -1)


def decays():
    """Return decays with an amplitude and an offset for each of some groups, which are integrated out."""
    rng = np.random.default_rng(4)
    group, t = np.arange(ROWS) % GROUPS, rng.uniform(0, 3, ROWS)
    y = np.array([2.0, 1.0, 3.0])[group] * np.exp(-1.3 * t) + np.array([0.1, 0.5, -0.2])[group]
    rows = {"t": t, "y": y + 0.3 * rng.normal(size=ROWS), "sigma": np.full(ROWS, 0.3), "group": group}
    term = linear_term(decaying, rows, groups="group", marginal=True)
    return Problem(Objective({"decays": term}), {"k": 1.0}, priors={"k": Normal(1.0, 1.0)}, name="decays")


@pytest.mark.slow
def test_coefficients_that_are_integrated_out():
    """Marginals of shards do not multiply to the marginal; values of the whole put that right."""
    problem = decays()
    k = np.linspace(0.5, 2.5, 4001)
    with arithmetic("float64"):
        value = np.asarray(values_on_z(problem.objective.place(None), problem.space, k[:, None]))
    density = np.exp(value.min() - value)
    mean = (density @ k) / density.sum()
    sd = np.sqrt(density @ (k - mean) ** 2 / density.sum())
    found = consensus(problem, 4, correct=4000, control=ShardControl(progress=False), chains=2, warmup=150, draws=400)
    (at,), ((variance,),) = moments(found)
    assert at == pytest.approx(mean, abs=0.1 * sd)
    assert np.sqrt(variance) == pytest.approx(sd, rel=0.07)
    assert "Every shard integrates out parameters of decays" in found.note


def test_groups_of_linear_terms_are_strata():
    for part in decays().objective.split(5):
        assert np.bincount(part.terms[0].rows["group"][: part.n_rows["decays"]]).min() == ROWS // GROUPS // 5
    with pytest.raises(ValueError, match="80 rows labelled 0 for 81 shards"):
        decays().objective.split(81)
