"""Error bars of fits by any solver: against lm, analytic likelihoods, and where there must be none."""

import jax.numpy as jnp
import numpy as np
import pytest

import shardfit as sf
from shardfit import curvature
from shardfit.stats.laplace import COLUMNS

RNG = np.random.default_rng(5)
X = np.linspace(0, 5, 80)
SIGMA = 0.05
Y = 1.5 * np.exp(-0.8 * X) + SIGMA * RNG.standard_normal(X.size)
COUNTS = RNG.poisson(7.0, 50).astype(float)


def residual(p, rows):
    return (rows["y"] - p["a"] * jnp.exp(-p["k"] * rows["x"])) / rows.get("sigma", 1.0)


def decay(sigma=True, **fields):
    rows = {"x": X, "y": Y} | ({"sigma": np.full(X.size, SIGMA)} if sigma else {})
    return sf.Problem(sf.Objective({"decay": sf.residual_term(residual, rows)}), {"a": 1.0, "k": 0.5}, **fields)


def negative_log_poisson(p, rows):
    return p["rate"] - rows["n"] * jnp.log(p["rate"])


def poisson(**fields):
    term = sf.statistic_term(negative_log_poisson, {"n": COUNTS})
    return sf.Problem(sf.Objective({"counts": term}), {"rate": 5.0}, **fields)


@pytest.mark.parametrize(("solver", "sigma"), [("lbfgsb", False), ("lbfgs", True), ("adam", True)])
def test_residuals_have_the_errors_of_lm(solver, sigma):
    problem = decay(sigma)
    options = {"maxiter": 4000, "learning_rate": 1e-2} if solver == "adam" else {"ftol": 1e-14, "gtol": 1e-9}
    found = sf.error_bars(problem, sf.fit(problem, solver, certify=False, **options))
    exact = sf.fit(problem, "lm", certify=False)
    np.testing.assert_allclose(found.covariance, exact.covariance, rtol=2e-3)
    assert found.dof == exact.dof == X.size - 2
    assert found.reduced_chi2 == pytest.approx(2 * exact.value / exact.dof, rel=1e-6)
    rho = exact.covariance[0, 1] / np.sqrt(exact.covariance[0, 0] * exact.covariance[1, 1])
    assert found.correlation()[0, 1] == pytest.approx(rho, rel=1e-2)
    np.testing.assert_allclose(np.diag(found.correlation()), 1)


@pytest.mark.parametrize("transform", [None, "log"])
def test_likelihoods_have_the_inverse_hessian(transform):
    problem = poisson(transforms={"rate": transform}, bounds=None if transform else {"rate": (1e-3, None)})
    found = sf.error_bars(problem, sf.fit(problem, certify=False, ftol=1e-14))
    assert found.stderr["rate"] == pytest.approx(np.sqrt(COUNTS.mean() / COUNTS.size), rel=1e-4)
    assert found.reduced_chi2 is None
    assert "negative log likelihood" in found.note


def test_the_hessian_in_blocks_is_the_hessian(monkeypatch):
    n = 2 * COLUMNS + 3
    matrix = RNG.standard_normal((n, n)) / np.sqrt(n)
    matrix = np.eye(n) + matrix @ matrix.T
    problem = sf.Problem(sf.Objective({"q": sf.penalty(lambda p, m: 0.5 * p @ m @ p, matrix)}), np.ones(n))
    result = sf.fit(problem, "lbfgs", certify=False, gtol=1e-10, ftol=0)
    found = sf.error_bars(problem, result)
    np.testing.assert_allclose(found.covariance, np.linalg.inv(matrix), atol=1e-10)
    monkeypatch.setattr(curvature, "DENSE", 10)
    large = sf.error_bars(problem, result)
    assert large.covariance is None
    np.testing.assert_allclose(large.stderr, found.stderr, rtol=1e-3)
    assert "without a covariance" in large.note


def test_rows_on_devices_give_the_same_errors():
    problem = poisson()
    result = sf.fit(problem, certify=False)
    alone, split = sf.error_bars(problem, result), sf.error_bars(problem, result, mesh=sf.mesh(rows=4))
    np.testing.assert_allclose(split.covariance, alone.covariance, rtol=1e-12)


def test_away_from_the_minimum_there_are_none():
    problem = poisson()
    early = sf.error_bars(problem, sf.fit(problem, "lbfgs", maxiter=1, certify=False))
    assert early.stderr is None
    assert early.covariance is None
    assert "standard errors from the minimum" in early.note


def test_a_saddle_has_none():
    saddle = sf.Objective({"saddle": sf.penalty(lambda p: p["x"] ** 2 - p["y"] ** 2)})
    problem = sf.Problem(saddle, {"x": 0.0, "y": 0.0})
    found = sf.error_bars(problem, sf.fit(problem, "lbfgs", certify=False))
    assert found.stderr is None
    assert "curves downwards" in found.note


def test_held_bounded_and_unidentified_parameters():
    terms = {
        "counts": sf.statistic_term(negative_log_poisson, {"n": COUNTS}),
        "pushes": sf.penalty(lambda p: 5 * p["pushed"] + 0 * p["none"] + p["held"]),
    }
    x0 = {"rate": 5.0, "pushed": 1.0, "none": 1.0, "held": 2.0}
    bounds = {"pushed": (0.1, 3.0), "rate": (0.1, None)}
    problem = sf.Problem(sf.Objective(terms), x0, fixed="held", bounds=bounds)
    found = sf.error_bars(problem, sf.fit(problem, certify=False, ftol=1e-14))
    assert found.stderr["held"] == 0
    assert np.isinf(found.stderr["none"])
    assert found.params["pushed"] == 0.1
    assert np.isnan(found.stderr["pushed"])
    assert found.stderr["rate"] == pytest.approx(np.sqrt(COUNTS.mean() / COUNTS.size), rel=1e-3)
    assert "At a bound" in found.note
    assert "determine 1 of 2 directions" in found.note


def test_what_cannot_be_asked():
    noisy = sf.statistic_term(lambda p, rows, key: p["rate"] * rows["n"], {"n": COUNTS}, stochastic=True, loss=_noisy)
    problem = sf.Problem(sf.Objective({"noisy": noisy}), {"rate": 1.0})
    result = sf.fit(poisson(), certify=False)
    with pytest.raises(ValueError, match="stochastic"):
        sf.error_bars(problem, result)
    with pytest.raises(ValueError, match="absolute_sigma is about residuals"):
        sf.error_bars(poisson(), result, absolute_sigma=True)
    with pytest.raises(ValueError, match="no covariance"):
        result.correlation()


def _noisy(total, key):
    return (total - 1) ** 2


def test_stored_with_the_result(tmp_path):
    problem = decay()
    found = sf.error_bars(problem, sf.fit(problem, "lm", certify=False))
    read = sf.load_result(sf.save_result(found, tmp_path / "run"), like=problem.x0)
    assert read.dof == found.dof
    np.testing.assert_array_equal(read.covariance, found.covariance)
