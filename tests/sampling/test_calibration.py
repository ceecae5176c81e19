"""Calibration: methods that are right pass, methods that are wrong fail, and say how."""

import jax
import numpy as np
import pytest

import shardfit as sf
from shardfit.sampling.posterior import Posterior
from shardfit.sampling.quality.calibration import Calibration

N, SIGMA = 12, 0.7
X = np.stack([np.ones(N), np.linspace(-1, 2, N)], axis=1)
PRIOR = {"c": sf.Normal(np.array([0.0, 1.0]), np.array([1.0, 0.5]))}


def residual(params, rows):
    return (rows["y"] - rows["x"] @ params["c"]) / SIGMA


def make_line(params, key):
    y = X @ params["c"] + SIGMA * np.asarray(jax.random.normal(key, (N,)))
    return sf.Problem(
        sf.Objective({"line": sf.residual_term(residual, {"x": X, "y": y})}), {"c": np.zeros(2)}, priors=PRIOR
    )


def exact(problem, seed, width=1.0, shift=0.0):
    """Draw from the closed-form posterior, or from a wrong one: too narrow, too far."""
    y = problem.objective.terms[0].rows["y"]
    precision = X.T @ X / SIGMA**2 + np.diag(1 / PRIOR["c"].sd ** 2)
    covariance = np.linalg.inv(precision)
    mean = covariance @ (X.T @ y / SIGMA**2 + PRIOR["c"].mean / PRIOR["c"].sd ** 2)
    noise = np.random.default_rng(seed).normal(size=(1, 300, 2)) @ np.linalg.cholesky(covariance).T
    c = mean + width * noise + shift * np.sqrt(np.diag(covariance))
    return Posterior({"c": c}, c, {}, None, "exact", extra={"independent": True})


def weighted(problem, seed):
    """Draw from twice the width and weigh."""
    wide = exact(problem, seed, width=2.0)
    residuals = (problem.objective.terms[0].rows["y"] - wide.z[0] @ X.T) / SIGMA
    values = 0.5 * (residuals**2).sum(1) + 0.5 * (((wide.z[0] - PRIOR["c"].mean) / PRIOR["c"].sd) ** 2).sum(1)
    centre = wide.z[0].mean(0)
    proposal = 0.5 * np.einsum(
        "di,ij,dj->d", wide.z[0] - centre, np.linalg.inv(np.cov(wide.z[0].T)), wide.z[0] - centre
    )
    weights = np.exp(proposal - values - np.max(proposal - values))[None]
    return Posterior(wide.draws, wide.z, {}, weights / weights.sum(), "weighted", extra={"independent": True})


def test_the_exact_posterior_passes():
    found = sf.calibrate(make_line, {"c": np.zeros(2)}, exact, 60)
    assert found.passed and found.p > 0.05, str(found)
    assert found.names == ("c[0]", "c[1]", "log density") and found.ranks.shape == (60, 3)
    np.testing.assert_allclose(found.coverage(0.8), 0.8, atol=0.16)
    assert "exact is calibrated" in str(found) and "as they should" in str(found)


def test_a_wrong_posterior_fails():
    found = sf.calibrate(make_line, {"c": np.zeros(2)}, exact, 50, width=0.4)
    assert not found.passed and found.p < 0.001
    assert "NOT calibrated" in str(found) and "too narrow" in str(found)


def test_weights_of_draws_count():
    found = sf.calibrate(make_line, {"c": np.zeros(2)}, weighted, 30)
    assert found.passed, str(found)


@pytest.mark.parametrize(
    ("a", "b", "word"), [(0.5, 0.5, "too narrow"), (2.5, 2.5, "too wide"), (1, 2, "too high"), (2, 1, "too low")]
)
def test_ranks_say_how_draws_are_wrong(a, b, word):
    ranks = (100 * np.random.default_rng(0).beta(a, b, size=(200, 2))).astype(int)
    found = Calibration(("a", "b"), ranks, 99, "a method", np.full(200, 1.1), np.ones(200), {7: "no start."})
    assert found.p < 0.001 and word in found.shape(0)
    for said in ("1 more data sets gave no draws, the first (number 7): no start.", "200 posteriors have an R-hat"):
        assert said in found.message


def test_the_log_density_sees_a_method_that_ignores_the_data():
    def prior_only(problem, seed):
        c = np.random.default_rng(seed).normal(PRIOR["c"].mean, PRIOR["c"].sd, size=(1, 200, 2))
        return Posterior({"c": c}, c, {}, None, "prior", extra={"independent": True})

    found = sf.calibrate(make_line, {"c": np.zeros(2)}, prior_only, 40)
    p = found.p_values["function"]
    assert p[0] > 0.01 and p[1] > 0.01 > p[2] and not found.passed


@pytest.mark.slow  # the page on posteriors does the same
def test_nuts_runs_all_data_sets_in_slots():
    found = sf.calibrate(make_line, {"c": np.zeros(2)}, "nuts", 40, slots=20, warmup=100, draws=120, chains=2)
    assert found.passed, str(found)
    assert len(found.ranks) == 40 and not found.failed and found.rhat.shape == (40,)


def test_what_cannot_be_calibrated_is_refused():
    def make(params, key):
        objective = sf.Objective({"line": sf.residual_term(lambda p, r: r["y"] - p["c"][0], {"y": X[:, 0]})})
        return sf.Problem(objective, {"c": np.zeros(2)}, priors=PRIOR)

    with pytest.raises(ValueError, match="outside make_problem"):
        sf.calibrate(make, {"c": np.zeros(2)}, exact, 10)

    def flat(params, key):
        return make_line(params, key).replace(priors={"c": sf.Flat()})

    with pytest.raises(ValueError, match="Flat, which cannot be drawn from"):
        sf.calibrate(flat, {"c": np.zeros(2)}, exact, 10)
    with pytest.raises(ValueError, match="at least 10"):
        sf.calibrate(make_line, {"c": np.zeros(2)}, exact, 5)


def test_truths_of_tied_parameters_follow():
    seen = []

    def make(params, key):
        seen.append(params)
        made, start = make_line(params, key), {"c": np.zeros(2), "twice": 0.0}
        return made.replace(x0=start, priors=PRIOR, tied={"twice": lambda p: 2 * p["c"][0]})

    def draws_of_nothing(problem, seed):
        c = np.random.default_rng(seed).normal(size=(1, 20, 2))
        return Posterior({"c": c, "twice": 2 * c[..., 0]}, c, {}, None, "none", extra={"independent": True})

    found = sf.calibrate(make, {"c": np.zeros(2), "twice": 0.0}, draws_of_nothing, 10, ranks=9)
    assert found.names == ("c[0]", "c[1]", "log density") and len(seen) == 11
    assert all(params["twice"] == 2 * params["c"][0] for params in seen)
