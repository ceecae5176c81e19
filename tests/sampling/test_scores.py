"""Leave-one-out against its closed form for a line with Gaussian noise, and what cannot be scored."""

from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

import shardfit as sf
from shardfit.sampling.posterior import Posterior
from shardfit.sampling.quality.pointwise import row_blocks, row_terms
from shardfit.sampling.quality.scores import compare, information_criteria, loo, waic

N, SIGMA = 60, 0.5
RNG = np.random.default_rng(3)
X = np.linspace(-1, 1, N)
Y = 1.0 + 2.0 * X + SIGMA * RNG.normal(size=N)
LOG_NORM = {"line": np.log(SIGMA * np.sqrt(2 * np.pi))}


def residual(params, rows):
    return (rows["y"] - jnp.polyval(params["c"], rows["x"])) / SIGMA


def problem(degree, chunk=None):
    term = sf.residual_term(residual, {"x": X, "y": Y}, chunk=chunk)
    return sf.Problem(sf.Objective({"line": term}), {"c": np.zeros(degree + 1)}, name=f"degree {degree}")


def exact(degree, without=None):
    """Mean and covariance of the coefficients with flat priors, all rows or all but one."""
    design = np.vander(X, degree + 1) / SIGMA
    keep = np.arange(N) != without
    covariance = np.linalg.inv(design[keep].T @ design[keep])
    return covariance @ design[keep].T @ (Y[keep] / SIGMA), covariance


def posterior(degree, draws=4000):
    mean, covariance = exact(degree)
    c = np.random.default_rng(degree).multivariate_normal(mean, covariance, size=(4, draws // 4))
    return Posterior({"c": c}, c, {}, None, "exact")


def predictive(degree, i, without=None):
    mean, covariance = exact(degree, without)
    row = np.vander(X[i : i + 1], degree + 1)[0]
    return norm.logpdf(Y[i], row @ mean, np.sqrt(row @ covariance @ row + SIGMA**2))


def exact_loo(degree):
    return np.array([predictive(degree, i, without=i) for i in range(N)])


def exact_density(degree):
    return np.array([predictive(degree, i) for i in range(N)])


@pytest.fixture(scope="module")
def scores():
    return {d: loo(problem(d), posterior(d), log_norm=LOG_NORM) for d in (0, 1, 4)}


@pytest.mark.parametrize("degree", [0, 1, 4])
def test_leave_one_out_is_the_closed_form(scores, degree):
    expected, score = exact_loo(degree), scores[degree]
    heavy = score.pareto_k > 0.5  # those settle slowly
    np.testing.assert_allclose(score.pointwise[~heavy], expected[~heavy], atol=0.05)
    np.testing.assert_allclose(score.pointwise[heavy], expected[heavy], atol=0.3)
    assert score.elpd == pytest.approx(expected.sum(), abs=0.1 + 0.3 * heavy.sum())
    assert score.se == pytest.approx(np.sqrt(N * expected.var()), rel=0.02)
    assert score.parameters == pytest.approx(exact_density(degree).sum() - expected.sum(), rel=0.06)
    assert (score.pareto_k < 0.7).all() and not score.note


def test_waic_agrees_and_blocks_change_nothing(scores):
    whole = waic(problem(1), posterior(1), log_norm=LOG_NORM)
    assert whole.elpd == pytest.approx(scores[1].elpd, abs=0.1)
    blocks = waic(problem(1, chunk=7), posterior(1), log_norm=LOG_NORM, memory=4000 * 8 * 13)
    np.testing.assert_allclose(blocks.pointwise, whole.pointwise, rtol=1e-10)


def test_a_block_never_exceeds_its_memory():
    p = problem(1)
    sizes = [b.log_likelihoods.nbytes for b in row_blocks(p, posterior(1), row_terms(p, None, "t"), memory=10**6)]
    assert max(sizes) <= 10**6 and len(sizes) == 2


def test_weights_of_draws_count():
    wide = posterior(1, 20000)
    mean, covariance = exact(1)
    z = (wide.z - mean) * 1.5
    log_ratio = -0.5 * np.einsum("cdi,ij,cdj->cd", z, np.linalg.inv(covariance), z) * (1 - 1 / 2.25)
    weights = np.exp(log_ratio)
    weighted = Posterior({"c": mean + z}, mean + z, {}, weights / weights.sum(), "importance")
    for score in (loo, waic):
        found = score(problem(1), weighted, log_norm=LOG_NORM)
        assert found.elpd == pytest.approx(exact_loo(1).sum(), abs=0.15)


def test_the_comparison_has_the_errors_of_paired_differences(scores):
    comparison = compare({f"degree {d}": score for d, score in scores.items()})
    assert comparison.names == ("degree 1", "degree 4", "degree 0")
    expected = exact_loo(0) - exact_loo(1)
    assert comparison.difference[2] == pytest.approx(expected.sum(), abs=0.3)
    assert comparison.se[2] == pytest.approx(np.sqrt(N * expected.var()), rel=0.05)
    assert comparison.se[1] < 0.5 * scores[1].se
    assert "degree 4" in str(comparison)


def test_several_terms_products_and_statistics_are_rows():
    two = sf.Objective(
        {
            "complex": sf.residual_term(
                lambda p, r: {"a": r["y"] * (1 + 1j) * p, "b": r["y"] - p}, {"y": Y}, weight=2.0
            ),
            "counts": sf.statistic_term(lambda p, r: (r["y"] - p) ** 2, {"y": Y[:5]}),
            "robust": sf.residual_term(lambda p, r: 3 * (r["y"] - p), {"y": Y[:7]}, loss="cauchy", weight=2.0),
            "smooth": sf.penalty(lambda p: p**2),
        }
    )
    p = sf.Problem(two, 1.0)
    draws = np.random.default_rng(1).normal(1, 0.1, size=(2, 50))
    score = waic(p, Posterior(draws, draws[..., None], {}, None, "made up"))
    assert score.rows == {"complex": N, "counts": 5, "robust": 7}
    lines = [
        b.log_likelihoods
        for b in row_blocks(p, Posterior(draws, draws[..., None], {}, None, ""), row_terms(p, None, ""))
    ]
    rows = two.only("complex", "counts", "robust")
    np.testing.assert_allclose(sum(b.sum(1) for b in lines)[0], -rows.value(draws[0, 0]), rtol=1e-10)


def test_a_row_that_decides_alone_is_counted():
    y = Y.copy()
    y[30] = 40.0
    p = sf.Problem(sf.Objective({"line": sf.residual_term(residual, {"x": X, "y": y})}), {"c": np.zeros(2)})
    score = loo(p, posterior(1))
    assert "1 of 60 rows have Pareto k above 0.7" in str(score)


def test_information_criteria_of_a_line():
    p = problem(1)
    log_norm = N * LOG_NORM["line"]
    mean, _ = exact(1)
    found = information_criteria(p, SimpleNamespace(params={"c": mean}), log_norm)
    expected = norm.logpdf(Y, np.polyval(mean, X), SIGMA).sum()
    assert found.log_likelihood == pytest.approx(expected, rel=1e-8)
    assert found.aic == pytest.approx(4 - 2 * expected) and found.bic == pytest.approx(2 * np.log(N) - 2 * expected)
    assert found.n == N and found.aicc > found.aic


def test_what_has_no_rows_of_its_own_is_refused():
    nonlinear = sf.statistic_term(lambda p, r: r["y"] * p, {"y": Y}, loss=lambda t: t**2)
    p = sf.Problem(sf.Objective({"sum": nonlinear, "line": sf.residual_term(lambda p, r: r["y"] - p, {"y": Y})}), 1.0)
    draws = np.ones((1, 10))
    one = Posterior(draws, draws[..., None], {}, None, "made up")
    with pytest.raises(TypeError, match=r"terms=\['line'\]"):
        loo(p, one)
    with pytest.raises(ValueError, match="Did you mean 'line'"):
        loo(p, one, terms=["lime"])
    assert waic(p, one, terms=["line"]).parameters == pytest.approx(0, abs=1e-9)
    with pytest.raises(ValueError, match="Score the same rows"):
        compare({"a": waic(problem(1), posterior(1)), "b": loo(problem(1), posterior(1))})
