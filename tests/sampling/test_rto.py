"""Randomise, then optimise: exact for linear models, weighted against quadrature for others, honest about the rest."""

import jax.numpy as jnp
import numpy as np
import pytest

import shardfit as sf
from shardfit.sampling.refits import rto as module
from shardfit.sampling.refits.rto import rto
from shardfit.surveys.ledger import LEDGER, points_finished

RNG = np.random.default_rng(0)
A = RNG.standard_normal((30, 3))
SIGMA = 0.5
Y = A @ np.array([1.0, -0.5, 2.0]) + SIGMA * RNG.standard_normal(30)
DRAWS = 200
SLOTS = 8  # the same for all: one compiled program serves several tests


def line(p, rows):
    return (rows["y"] - rows["A"] @ p) / rows["sigma"]


def linear(weight=1.0):
    """A linear model, whose sigma may be hidden in the weight, with its posterior's mean and covariance."""
    rows = {"A": A, "y": Y, "sigma": np.full(30, SIGMA * np.sqrt(weight))}
    terms = {"data": sf.residual_term(line, rows, weight=weight, chunk=16), "prior": sf.residual_penalty(_around)}
    precision = A.T @ A / SIGMA**2 + np.eye(3) / 1.5**2
    mean = np.linalg.solve(precision, A.T @ Y / SIGMA**2 + 0.2 / 1.5**2)
    return sf.Problem(sf.Objective(terms), np.zeros(3)), mean, np.linalg.inv(precision)


def _around(p):
    return (p - 0.2) / 1.5


def _decay(p, r):
    return (r["y"] - jnp.exp(-p["k"] * r["t"])) / r["sigma"]


def bent(transform=None):
    """One parameter whose data are an exponential of it: a skewed posterior."""
    rows = {"t": np.array([0.3, 1.5]), "y": np.array([1.4, 0.3]), "sigma": np.array([0.6, 0.6])}
    return sf.Problem(
        sf.Objective({"data": sf.residual_term(_decay, rows)}),
        {"k": 0.8},
        priors={"k": sf.Normal(1.0, 0.7)},
        transforms={"k": transform},
    )


def density(k, sd=0.7):
    """The density of `bent`, up to a constant."""
    residuals = [(y - np.exp(-k * t)) / 0.6 for t, y in ((0.3, 1.4), (1.5, 0.3))]
    return np.exp(-0.5 * (residuals[0] ** 2 + residuals[1] ** 2 + ((k - 1.0) / sd) ** 2))


@pytest.mark.parametrize(("weights", "weight"), [(True, 1.0), (False, 4.0)])
def test_linear_models_have_their_gaussian(weights, weight):
    problem, mean, covariance = linear(weight)
    posterior = rto(problem, draws=DRAWS, weights=weights, progress=False, slots=SLOTS)
    sd = np.sqrt(np.diag(covariance))
    assert np.abs((posterior.mean() - mean) / sd).max() < 4 / np.sqrt(DRAWS)
    np.testing.assert_allclose(posterior.covariance() / np.outer(sd, sd), covariance / np.outer(sd, sd), atol=0.25)
    assert posterior.z.shape == (1, DRAWS, 3)
    if weights:
        np.testing.assert_allclose(posterior.weights, 1 / DRAWS, rtol=1e-6)
    else:
        assert "approximate where it is not" in posterior.note


@pytest.mark.parametrize("transform", [pytest.param(None, marks=pytest.mark.slow), "log"])
def test_weights_correct_for_what_is_bent(transform):
    problem = bent(transform)
    x = np.linspace(1e-6 if transform else -3.0, 6.0, 4001)
    mean = density(x) @ x / density(x).sum()
    sd = np.sqrt(density(x) @ (x - mean) ** 2 / density(x).sum())
    posterior = rto(problem, draws=2 * DRAWS, progress=False, slots=SLOTS)
    assert posterior.extra["pareto_k"] < 0.7
    assert posterior.mean()["k"] == pytest.approx(mean, abs=5 * sd / np.sqrt(2 * DRAWS))
    assert posterior.sd()["k"] == pytest.approx(sd, rel=0.15)


def test_refits_go_on_where_they_were_interrupted(tmp_path, monkeypatch):
    problem, *_ = linear()
    whole = rto(problem, draws=60, progress=False, slots=SLOTS)
    real = module.survey

    def interrupted(limit):
        def survey(*args, control, **options):
            real(*args, control=type(control)(slots=control.slots, limit=limit, progress=False), **options).close()
            raise KeyboardInterrupt

        monkeypatch.setattr(module, "survey", survey)
        with pytest.raises(KeyboardInterrupt):
            rto(problem, draws=60, run_dir=tmp_path, progress=False, slots=SLOTS)
        monkeypatch.setattr(module, "survey", real)

    (tmp_path / "refits-000").mkdir()
    (tmp_path / "refits-000" / LEDGER).touch()  # its maker ended in its first instant
    interrupted(25)
    interrupted(35)  # after the last refit, before the draws are written
    resumed = rto(problem, draws=60, run_dir=tmp_path, progress=False, slots=SLOTS)
    np.testing.assert_array_equal(resumed.z, whole.z)
    assert points_finished(tmp_path / "refits-000") == 60  # none is made in vain
    more = rto(problem, draws=80, run_dir=tmp_path, progress=False, slots=SLOTS)
    np.testing.assert_array_equal(more.z[:, :60], whole.z)
    for words in ("belongs to another fit", "frame.npz is of another run"):
        with pytest.raises(sf.CheckpointError, match=words):
            rto(bent(), draws=60, run_dir=tmp_path, progress=False)
        (tmp_path / "config.json").unlink()


@pytest.mark.slow
def test_devices_give_the_same_draws():
    problem, *_ = linear()
    options = {"draws": 24, "weights": False, "progress": False, "slots": SLOTS}
    alone, split = rto(problem, **options), rto(problem, mesh=sf.mesh(rows=2, runs=2), **options)
    np.testing.assert_allclose(split.z, alone.z, atol=1e-3)  # refits end within their tolerance


def test_refits_that_do_not_converge_are_tried_again_and_reported(monkeypatch):
    problem, *_ = linear()
    again = rto(problem, draws=20, weights=False, maxiter=1, progress=False, slots=SLOTS)
    assert again.extra["again"] > 10
    assert again.extra["lost"] == 0
    assert "refits were tried again; 0 have no answer" in again.note
    monkeypatch.setattr(module, "CHANCES", 0)
    with pytest.raises(RuntimeError, match=r"of 20 refits did not converge \(.*MAX_STEPS"):
        rto(problem, draws=20, weights=False, maxiter=1, progress=False, slots=SLOTS)


def test_hyper_parameters_are_weighted_by_evidence():
    problem, *_ = linear()
    axis = sf.Axis((0.01, 1.0, 100.0), _stretched)
    posterior = rto(problem, draws=60, axes={"width": axis}, progress=False, slots=SLOTS)
    share, log_z = posterior.extra["hyper_share"], posterior.extra["hyper_log_evidence"]
    exact = [_gaussian_evidence(1.5 * width) for width in (0.01, 1.0, 100.0)]
    np.testing.assert_allclose(log_z - log_z[1], np.array(exact) - exact[1], rtol=1e-8)
    np.testing.assert_allclose(share, np.exp(log_z - log_z.max()) / np.exp(log_z - log_z.max()).sum())
    assert posterior.size >= 60
    assert len(posterior.extra["hyper_point"]) == posterior.size


def _stretched(start, width):
    return start._replace(objective=start.objective.with_weights(prior=1 / width**2))


def _gaussian_evidence(sd):
    covariance = sd**2 * A @ A.T + SIGMA**2 * np.eye(30)
    left = Y - A @ np.full(3, 0.2)
    return -0.5 * left @ np.linalg.solve(covariance, left) - 0.5 * np.linalg.slogdet(covariance)[1]


def test_evidence_of_a_linear_model_is_exact():
    problem, *_ = linear()
    found = sf.evidence(problem)
    constant = 30 * np.log(SIGMA)  # of the data's errors, which residuals leave out
    assert found.log_z == pytest.approx(_gaussian_evidence(1.5) + constant, rel=1e-9)
    assert sf.evidence(linear(4.0)[0]).log_z == pytest.approx(found.log_z + 30 * np.log(2.0), rel=1e-9)


@pytest.mark.parametrize("transform", [None, "log"])
def test_evidence_does_not_depend_on_coordinates(transform):
    priors = {"k": sf.Normal(1.0, 0.2)}
    narrow = bent(transform).replace(priors=priors)
    value = sf.evidence(narrow).log_z
    x = np.linspace(0.01, 2.5, 500)
    exact = np.log(np.trapezoid(density(x, 0.2), x) / (0.2 * np.sqrt(2 * np.pi)))
    assert value == pytest.approx(exact, abs=0.02)


def test_bad_questions():
    counts = sf.Objective({"counts": sf.statistic_term(lambda p, r: p - r["n"] * jnp.log(p), {"n": np.ones(3)})})
    with pytest.raises(TypeError, match="rto needs residuals"):
        rto(sf.Problem(counts, 1.0), draws=10)
    with pytest.raises(TypeError, match="no option 'wieghts'.*weights"):
        rto(bent(), draws=10, wieghts=True)
    with pytest.raises(ValueError, match="draws=1 must lie between 2"):
        rto(bent(), draws=1)
    one = sf.residual_term(lambda p, r: r["y"] - p["a"] - p["b"], {"y": np.ones(4)})
    with pytest.raises(ValueError, match="improper.*a, b"):
        rto(sf.Problem(sf.Objective({"sum": one}), {"a": 0.0, "b": 0.0}), draws=10, progress=False)
    tv = sf.Objective({**dict(linear()[0].objective.items()), "tv": sf.penalty(lambda p: jnp.sum(jnp.abs(p)))})
    with pytest.raises(TypeError, match="'tv' is no density"):
        sf.evidence(sf.Problem(tv, np.zeros(3)))


@pytest.mark.slow
def test_a_bound_cuts_the_posterior():
    """Some perturbations have no answer inside the bound: those that have, weighted, are the posterior."""
    y = np.array([0.2, 0.1, -0.1, 0.3, 0.2])
    term = sf.residual_term(lambda p, r: (r["y"] - p["a"]) / r["sigma"], {"y": y, "sigma": np.full(5, 0.5)})
    fields = {"bounds": {"a": (0.0, 2.0)}, "priors": {"a": sf.Normal(0.0, 1.0)}}
    posterior = rto(sf.Problem(sf.Objective({"data": term}), {"a": 0.3}, **fields), draws=800, progress=False)
    x = np.linspace(0, 2, 4001)
    share = np.exp(-0.5 * ((y[:, None] - x) ** 2).sum(0) / 0.25 - 0.5 * x**2)
    mean = share @ x / share.sum()
    sd = np.sqrt(share @ (x - mean) ** 2 / share.sum())
    assert posterior.extra["lost"] > 0
    assert "have no answer" in posterior.note
    assert posterior.mean()["a"] == pytest.approx(mean, abs=5 * sd / np.sqrt(posterior.size))
    assert posterior.sd()["a"] == pytest.approx(sd, rel=0.15)


@pytest.mark.slow
def test_complex_residuals_and_weights_of_parts():
    x = np.linspace(0, 1, 20)
    noise = RNG.standard_normal(20) + 1j * RNG.standard_normal(20)

    def fn(p, r):
        wave = (r["y"] - p["a"] * jnp.exp(1j * r["x"])) / 0.1
        return {"wave": wave, "line": (r["x"] * p["b"] - r["x"]) / 0.2}

    rows = {"x": x, "y": 1.3 * np.exp(1j * x) + 0.1 * noise}
    term = sf.residual_term(fn, rows, weight={"wave": 1.0, "line": 2.0}, chunk=7)
    problem = sf.Problem(sf.Objective({"data": term}), {"a": 1.0, "b": 1.0})
    posterior = rto(problem, draws=DRAWS, weights=False, progress=False, slots=SLOTS)
    assert posterior.sd()["a"] == pytest.approx(0.1 / np.sqrt(20), rel=0.15)
    assert posterior.sd()["b"] == pytest.approx(0.2 / np.sqrt(2 * np.sum(x**2)), rel=0.15)


@pytest.mark.slow
def test_more_parameters_than_a_matrix_is_formed_for():
    n = 1200
    kernel = RNG.standard_normal((60, n)) / np.sqrt(n)
    y = kernel @ RNG.standard_normal(n) + 0.3 * RNG.standard_normal(60)
    term = sf.residual_term(line, {"A": kernel, "y": y, "sigma": np.full(60, 0.3)})
    problem = sf.Problem(sf.Objective({"data": term}), np.zeros(n), priors=sf.Normal(0.0, 1.0))
    posterior = rto(problem, draws=200, progress=False)
    precision = kernel.T @ kernel / 0.09 + np.eye(n)
    sd = np.sqrt(np.diag(np.linalg.inv(precision)))
    left = (posterior.mean() - np.linalg.solve(precision, kernel.T @ y / 0.09)) / sd
    assert np.sqrt(np.mean(left**2) * 200) == pytest.approx(1.0, abs=0.15)
    assert np.median(posterior.sd() / sd) == pytest.approx(1.0, abs=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("weights", [True, False])
def test_float32(weights):
    problem, mean, covariance = linear()
    posterior = rto(problem.replace(precision="float32"), draws=DRAWS, weights=weights, progress=False, slots=SLOTS)
    sd = np.sqrt(np.diag(covariance))
    assert posterior.z.dtype == np.float32
    assert np.abs((posterior.mean() - mean) / sd).max() < 4 / np.sqrt(DRAWS)
    np.testing.assert_allclose(posterior.sd() / sd, 1, atol=0.15)


def test_robust_losses_are_refused():
    term = sf.residual_term(line, {"A": A, "y": Y, "sigma": np.full(30, SIGMA)}, loss="cauchy")
    with pytest.raises(TypeError, match="'data' has the loss 'cauchy'"):
        rto(sf.Problem(sf.Objective({"data": term}), np.zeros(3)))
