"""Jacobians with nearly dependent columns: the triangular factor instead of JᵀJ, against QR of the whole matrix."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import lsq_linear

import shardfit as sf
from shardfit.core.factor import factored
from shardfit.core.gram import Gram

DEGREE, N = 12, 203  # shards of four are padded
X = np.linspace(0, 1, N)
POWERS = np.vander(X, DEGREE + 1, increasing=True)
Y = POWERS @ np.random.default_rng(0).standard_normal(DEGREE + 1) + 0.01 * np.random.default_rng(1).standard_normal(N)
LENGTHS = np.linalg.norm(POWERS, axis=0)
ROOT = np.linalg.qr(POWERS / LENGTHS, mode="r")


def polynomial(p, rows):
    return rows["y"] - sum(p[i] * rows["x"] ** i for i in range(len(p)))


def problem(size=DEGREE + 1, **fields):
    term = sf.residual_term(polynomial, {"x": X, "y": Y}, chunk=37)
    return sf.Problem(sf.Objective({"data": term}), np.zeros(size), **fields)


@pytest.mark.parametrize("shards", [1, 4])
def test_a_polynomial_of_degree_twelve_takes_few_evaluations(shards):
    result = sf.fit(problem(), "lm", mesh=sf.mesh(rows=shards), certify=False)
    best = np.linalg.lstsq(POWERS / LENGTHS, Y, rcond=None)[0] / LENGTHS
    variance = np.sum((POWERS @ best - Y) ** 2) / (N - DEGREE - 1)
    errors = np.sqrt(variance * np.sum(np.linalg.inv(ROOT) ** 2, axis=1)) / LENGTHS
    assert result.status.converged
    assert result.evaluations <= 6
    assert "triangular factor" in result.note
    np.testing.assert_allclose((result.params - best) / errors, 0, atol=1e-5)
    np.testing.assert_allclose(result.stderr, errors, rtol=1e-6)


def test_a_run_that_stops_and_goes_on_is_the_same_to_the_bit(tmp_path):
    whole = sf.fit(problem(), "lm", certify=False)
    sf.fit(problem(), "lm", maxiter=1, run_dir=tmp_path, certify=False)
    resumed = sf.fit(problem(), "lm", run_dir=tmp_path, certify=False)
    np.testing.assert_array_equal(resumed.params, whole.params)
    np.testing.assert_array_equal(resumed.covariance, whole.covariance)
    assert (resumed.evaluations, resumed.note) == (whole.evaluations, whole.note)


def test_errors_of_another_solvers_answer_come_from_the_factor():
    fitted = sf.fit(problem(), "lm", certify=False)
    np.testing.assert_allclose(sf.error_bars(problem(), fitted).stderr, fitted.stderr, rtol=1e-7)


def test_bounds():
    lower, upper = np.full(DEGREE + 1, -0.5), np.full(DEGREE + 1, 0.8)
    result = sf.fit(problem(bounds=(lower, upper)), "lm", certify=False)
    found = lsq_linear(POWERS, Y, (lower, upper), tol=1e-14, max_iter=1000)
    assert result.status.converged
    assert result.value <= found.cost * (1 + 1e-9)
    assert np.all((result.params >= lower) & (result.params <= upper))


def test_float32():
    result = sf.fit(problem(5, precision="float32"), "lm", certify=False)
    best, rest = np.linalg.lstsq(POWERS[:, :5], Y, rcond=None)[:2]
    assert result.params.dtype == np.float32
    assert result.status.converged and result.evaluations <= 6
    errors = np.sqrt(np.diag(np.linalg.inv(POWERS[:, :5].T @ POWERS[:, :5])) * rest / (N - 5))
    np.testing.assert_allclose((result.params - best) / errors, 0, atol=1e-2)
    np.testing.assert_allclose(result.stderr, errors, rtol=1e-3)


def twice(p, rows):
    return rows["y"] - (p["a"] + p["b"]) * rows["x"] - p["c"] * jnp.exp(rows["x"])


def test_parameters_that_the_data_do_not_tell_apart_have_infinite_errors():
    term = sf.residual_term(twice, {"x": X, "y": Y})
    start = {"a": 0.1, "b": 0.2, "c": 0.3, "unused": 1.0}
    result = sf.fit(sf.Problem(sf.Objective({"data": term}), start), "lm", certify=False)
    assert result.status.converged and result.evaluations < 12
    assert all(np.isinf(result.stderr[name]) for name in ("a", "b", "unused")) and np.isfinite(result.stderr["c"])
    assert abs(result.params["a"]) < 1e3
    np.testing.assert_allclose(result.params["unused"], 1.0)


@pytest.mark.usefixtures("behind_doors")
@pytest.mark.parametrize("shards", [1, 4])
def test_the_factor_is_that_of_qr(shards):
    with jax.enable_x64(True):
        made = problem()
        here = jax.jit(factored)(made.objective.place(sf.mesh(rows=shards)), made.space, jnp.zeros(DEGREE + 1), None)
    root = np.array(here.root) / LENGTHS
    np.testing.assert_allclose(np.abs(root), np.abs(ROOT), rtol=1e-6, atol=1e-13)
    assert np.all(np.tril(root, -1) == 0)
    np.testing.assert_allclose(here.gradient, -POWERS.T @ Y, rtol=1e-12)
    assert bool(here.sharp)


def test_terms_with_equations_of_their_own_keep_them():
    own = sf.NormalEquations(
        lambda p, r, real: {"xx": real @ r["x"] ** 2, "xy": real @ (r["x"] * r["y"]), "yy": real @ r["y"] ** 2},
        lambda t, p: (0.5 * (t["yy"] - 2 * p * t["xy"] + p**2 * t["xx"]), [p * t["xx"] - t["xy"]], [[t["xx"]]]),
    )
    term = sf.residual_term(lambda p, r: r["y"] - p * r["x"], {"x": X, "y": Y}, gram=own)
    with jax.enable_x64(True):
        made = sf.Problem(sf.Objective({"data": term}), 0.5)
        assert isinstance(factored(made.objective, made.space, jnp.array([0.5]), None), Gram)
