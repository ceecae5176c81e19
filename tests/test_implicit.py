"""solution: derivatives of an answer by its data, args and weights, against closed forms and finite differences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shardfit as sf
from shardfit.core.errors import NotConvergedError

T = np.linspace(0.0, 4.0, 15)
Y = 3.0 * np.exp(-T / 1.5) + 0.1 * np.random.default_rng(0).standard_normal(T.size)
ROWS = {"t": T, "y": Y}


def decay(p, rows, background):
    return (p["a"] * jnp.exp(-rows["t"] / p["tau"]) + background - rows["y"]) / 0.1


def problem_of(**options):
    terms = {
        "d": sf.residual_term(decay, ROWS, np.float64(0.0)),
        "ridge": sf.residual_penalty(lambda p: p["tau"] - 1.0, weight=0.5),
    }
    return sf.Problem(sf.Objective(terms), {"a": 1.0, "tau": 1.0}, **options)


def answer(problem, y, background, weight):
    objective = problem.objective.with_rows(d={**ROWS, "y": y}).with_args(d=(background,)).with_weights(ridge=weight)
    return sf.solution(problem, objective, certify=False)


def central(fn, x, h=1e-4):
    return (fn(x + h) - fn(x - h)) / (2 * h)


@pytest.fixture(autouse=True)
def wide():
    with jax.enable_x64(True):
        yield


@pytest.mark.parametrize(
    "options",
    [{}, {"transforms": {"tau": sf.Log()}}, {"fixed": "a"}, {"bounds": {"a": (None, 2.5)}}],
    ids=["free", "transformed", "fixed", "at a bound"],
)
def test_derivatives_are_those_of_fits_nearby(options):
    problem = problem_of(**options)
    slopes = jax.grad(lambda *at: answer(problem, *at)["tau"], argnums=(0, 1, 2))(jnp.asarray(Y), 0.0, 0.5)

    def tau(y=Y, background=0.0, weight=0.5):
        return float(answer(problem, y, background, weight)["tau"])

    nudge = np.eye(T.size)[3]
    assert slopes[0][3] == pytest.approx(central(lambda h: tau(y=Y + h * nudge), 0.0), rel=1e-5)
    assert slopes[1] == pytest.approx(central(lambda b: tau(background=b), 0.0), rel=1e-5)
    assert slopes[2] == pytest.approx(central(lambda w: tau(weight=w), 0.5, 1e-2), rel=1e-3)


def test_a_straight_line_has_the_closed_form_and_a_gradient_goes_on_through_it():
    x = np.stack([T, np.ones_like(T)])
    problem = sf.Problem(
        sf.Objective({"d": sf.residual_term(lambda p, r: r["x"] @ p - r["y"], {"x": x.T, "y": Y})}), np.zeros(2)
    )

    def fitted(y):
        return sf.solution(problem, problem.objective.with_rows(d={"x": x.T, "y": y}))

    np.testing.assert_allclose(jax.jacrev(fitted)(jnp.asarray(Y)), np.linalg.pinv(x.T), atol=1e-10)
    projected = x.T @ np.linalg.pinv(x.T)
    gradient = jax.grad(lambda y: 0.5 * jnp.sum((jnp.asarray(x.T) @ fitted(y) - y) ** 2))(jnp.asarray(Y))
    np.testing.assert_allclose(gradient, Y - projected @ Y, atol=1e-9)


def test_what_stays_at_a_bound_does_not_follow_the_data():
    problem = problem_of(bounds={"a": (None, 2.5)})
    slope = jax.grad(lambda y: answer(problem, y, 0.0, 0.5)["a"])(jnp.asarray(Y))
    np.testing.assert_array_equal(slope, 0)


@pytest.mark.parametrize("change", [jax.jit, jax.vmap, jax.hessian], ids=["jit", "vmap", "second derivative"])
def test_what_cannot_be_done_is_said(change):
    problem, y = problem_of(), jnp.asarray(Y)
    with pytest.raises(TypeError, match="a fit runs on the host"):
        change(lambda y: answer(problem, y, 0.0, 0.5)["tau"])(y[None] if change is jax.vmap else y)


def test_what_has_no_derivative_is_refused():
    objective = sf.Objective({"d": sf.residual_term(lambda p, r: (p["a"] + p["b"]) * r["t"] - r["y"], ROWS)})
    flat = sf.Problem(objective, {"a": 1.0, "b": 1.0})
    with pytest.raises(ValueError, match="do not determine a, b"):
        jax.grad(lambda y: sf.solution(flat, objective.with_rows(d={**ROWS, "y": y}))["a"])(jnp.asarray(Y))
    with pytest.raises(NotConvergedError, match="step"):
        sf.solution(problem_of(), maxiter=1)
    with pytest.raises(ValueError, match="other terms"):
        sf.solution(problem_of(), objective)


def test_the_callers_precision_may_be_less_than_the_problems():
    problem = problem_of()
    with jax.enable_x64(False):
        slope = jax.grad(lambda y: answer(problem, y, 0.0, 0.5)["tau"])(jnp.asarray(Y))
    exact = jax.grad(lambda y: answer(problem, y, 0.0, 0.5)["tau"])(jnp.asarray(Y))
    assert slope.dtype == jnp.float32
    np.testing.assert_allclose(slope, exact, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("options", [{"transforms": {"tau": sf.Log()}}, {"tied": {"a": lambda p: 2 * p["tau"]}}])
def test_a_caller_in_32_bits_gets_the_same_derivatives(options):
    problem = problem_of(**options)
    wide = jax.grad(lambda y: answer(problem, y, 0.0, 0.5)["a"])(jnp.asarray(Y))
    with jax.enable_x64(False):
        narrow = jax.grad(lambda y: answer(problem, y, 0.0, 0.5)["a"])(jnp.asarray(Y))
    np.testing.assert_allclose(narrow, wide, rtol=1e-4, atol=1e-6)


BASE = 0.0


def test_derivatives_are_of_the_constants_of_now(monkeypatch):
    term = sf.residual_term(lambda p, rows: p["a"] - BASE * rows["y"] - rows["y"], ROWS)
    problem = sf.Problem(sf.Objective({"d": term}), {"a": 1.0})
    for base in (0.0, 1.0):
        monkeypatch.setitem(globals(), "BASE", base)
        slope = jax.grad(lambda y: sf.solution(problem, problem.objective.with_rows(d={**ROWS, "y": y}))["a"])(Y)
        np.testing.assert_allclose(slope, (1 + base) / T.size, rtol=1e-8)
