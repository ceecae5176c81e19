"""Laplace standard deviations against dense Hessians, analytic Gaussians and truths drawn from the prior."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shardfit as sf
from shardfit.core.precision import arithmetic
from shardfit.stats.laplace import NoMinimum, laplace

N = 60


def residual(p, r):
    return (r["kernel"] @ p["signal"] - r["y"]) / r["sigma"]


def rough(p):
    return 0.5 * jnp.sum((p["signal"][1:] - p["signal"][:-1]) ** 2) / 0.1 + 0.5 * jnp.sum((p["signal"] - 1) ** 2)


def smooth_problem(rng, transform=None, penalties=True):
    """Blurred, noisy measurements of a positive or signed signal, with a roughness prior; 40 data for 60 unknowns."""
    x = np.linspace(0, 1, N)
    places = rng.uniform(0, 1, 40)
    kernel = np.exp(-0.5 * ((places[:, None] - x) / 0.05) ** 2)
    truth = 1.5 + np.sin(6 * x)
    rows = {"kernel": kernel, "y": kernel @ truth + 0.3 * rng.standard_normal(40), "sigma": np.full(40, 0.3)}

    terms = {"data": sf.residual_term(residual, rows)} | ({"rough": sf.penalty(rough)} if penalties else {})
    return sf.Problem(sf.Objective(terms), {"signal": np.full(N, 1.5)}, transforms={"signal": transform})


def dense(problem, params, scale=1.0):
    with arithmetic("float64"):
        space = problem.space
        hessian = jax.hessian(lambda z: problem.objective.value(space.unpack(z)))(space.pack(params))
        return np.linalg.inv(scale * np.asarray(hessian))


def converged(problem):
    return sf.fit(problem, "lbfgs", ftol=0, gtol=1e-10, maxiter=2000, progress=False, certify=False).params


@pytest.mark.parametrize(
    ("transform", "scale"),
    [("log", 2.5), *(pytest.param(*case, marks=pytest.mark.slow) for case in ((None, 1.0), (None, 2.5), ("log", 1.0)))],
)
def test_equals_dense_hessian(transform, scale):
    problem = smooth_problem(np.random.default_rng(1), transform)
    params = converged(problem)
    covariance = dense(problem, params, scale)
    found = laplace(problem, params, scale=scale, rank=30, probes=400)
    slope = params["signal"] if transform == "log" else 1.0
    exact = np.sqrt(np.diag(covariance)) * slope
    assert np.abs(found.sd["signal"] / exact - 1).max() < 0.1
    assert np.median(np.abs(found.sd["signal"] / exact - 1)) < 2 * found.uncertainty
    assert found.uncertainty < 0.03


@pytest.mark.slow
def test_full_rank_is_exact():
    problem = smooth_problem(np.random.default_rng(2))
    params = converged(problem)
    found = laplace(problem, params, rank=N, probes=4)
    np.testing.assert_allclose(found.sd["signal"], np.sqrt(np.diag(dense(problem, params))), rtol=1e-4)


@pytest.mark.parametrize("precision", ["float64", "float32"])
def test_a_matrix_is_exact_where_probes_guess(precision):
    problem = smooth_problem(np.random.default_rng(2), "log").replace(precision=precision)
    params = converged(problem.replace(precision="float64"))
    found = laplace(problem, params, scale=2.5)
    covariance = dense(problem, params, 2.5)
    exact = np.sqrt(np.diag(covariance)) * params["signal"]
    close = {"float64": 1e-9, "float32": 1e-3}[precision]
    np.testing.assert_allclose(found.sd["signal"], exact, rtol=close)
    assert (found.uncertainty, found.rank) == (0.0, N)
    assert found.lowest > 0
    slope = params["signal"]
    flux = found.sd_of(lambda p: p["signal"].sum())
    assert flux == pytest.approx(np.sqrt(slope @ covariance @ slope), rel=close)


def test_least_curvature_of_a_matrix():
    turn, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(9, 9)))
    hessian = turn @ np.diag([0.5, 2, 3, 4, 5, 6, 7, 8, 9]) @ turn.T
    problem = sf.Problem(sf.Objective({"bowl": sf.penalty(lambda p, h: 0.5 * p @ h @ p, hessian)}), np.zeros(9))
    size = np.sqrt(np.diag(hessian))
    assert laplace(problem, np.zeros(9)).lowest == pytest.approx(np.linalg.eigvalsh(hessian / np.outer(size, size))[0])


@pytest.mark.slow
def test_sd_of_a_function_of_all_parameters():
    problem = smooth_problem(np.random.default_rng(3), "log")
    params = converged(problem)
    slope = params["signal"]  # of the sum, in logarithms
    exact = np.sqrt(slope @ dense(problem, params) @ slope)
    found = laplace(problem, params, rank=30, probes=400)
    np.testing.assert_allclose(found.sd_of(lambda p: p["signal"].sum()), exact, rtol=1e-5)


def test_devices_do_not_matter():
    problem = smooth_problem(np.random.default_rng(4))
    params = converged(problem)
    one = laplace(problem, params, rank=40, probes=40)
    many = laplace(problem, params, rank=40, probes=40, mesh=sf.mesh(rows=3))
    np.testing.assert_allclose(many.sd["signal"], one.sd["signal"], rtol=1e-6)


@pytest.mark.slow
def test_probes_are_unbiased():
    problem = smooth_problem(np.random.default_rng(5))
    params = converged(problem)
    exact = np.diag(dense(problem, params))
    found = [laplace(problem, params, rank=40, probes=40, seed=s).sd["signal"] ** 2 for s in range(30)]
    mean, error = np.mean(found, 0), np.std(found, 0, ddof=1) / np.sqrt(30)
    assert np.mean(((mean - exact) / error) ** 2) < 1.6


def test_coverage_of_truths_drawn_from_the_prior():
    """Error bars hold the truth as often as they promise, when truth and noise follow the model."""
    rng = np.random.default_rng(6)
    base = smooth_problem(rng)
    with arithmetic("float64"):
        precision = np.asarray(jax.hessian(lambda z: base.objective.only("rough").value({"signal": z}))(np.ones(N)))
    factor = np.linalg.cholesky(np.linalg.inv(precision))
    rows = base.objective.terms[0].rows
    pulls = []
    for _ in range(12):
        truth = 1 + factor @ rng.standard_normal(N)
        data = {**rows, "y": rows["kernel"] @ truth + 0.3 * rng.standard_normal(40)}
        problem = base.replace(objective=base.objective.with_rows(data=data))
        params = converged(problem)
        pulls.append((params["signal"] - truth) / laplace(problem, params, rank=40, probes=40).sd["signal"])
    # 12 truths with some ten independent numbers each: the share within one sigma has an error of about 0.04
    assert 0.56 < np.mean(np.abs(pulls) < 1) < 0.80
    assert 0.8 < np.std(pulls) < 1.25


def test_no_minimum_is_refused():
    problem = sf.Problem(sf.Objective({"saddle": sf.penalty(lambda p: p[0] ** 2 - p[1] ** 2)}), np.zeros(2))
    for rank in (None, 2):
        with pytest.raises(NoMinimum, match=r"curvature -1\), so they are no minimum"):
            laplace(problem, np.zeros(2), rank=rank)


@pytest.mark.parametrize(
    ("options", "text"),
    [({"rank": 0}, "rank=0"), ({"probes": 1}, "probes=1"), ({"scale": -1.0}, "scale=-1.0")],
)
def test_options_are_checked(options, text):
    with pytest.raises(ValueError, match=text):
        laplace(smooth_problem(np.random.default_rng(0)), {"signal": np.ones(N)}, **options)


def test_bound_is_refused():
    problem = smooth_problem(np.random.default_rng(0)).replace(bounds={"signal": (0.0, 2.0)}, x0={"signal": np.ones(N)})
    with pytest.raises(ValueError, match="at its bound"):
        laplace(problem, {"signal": np.full(N, 2.0)})


def test_without_penalties():
    rng = np.random.default_rng(7)
    x = rng.standard_normal((50, 5))
    rows = {"x": x, "y": x @ np.arange(5.0) + rng.standard_normal(50)}
    problem = sf.Problem(sf.Objective({"data": sf.residual_term(lambda p, r: r["x"] @ p - r["y"], rows)}), np.zeros(5))
    found = laplace(problem, converged(problem))
    np.testing.assert_allclose(found.sd, np.sqrt(np.diag(np.linalg.inv(x.T @ x))), rtol=1e-6)
