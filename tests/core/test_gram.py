"""Normal equations of models with reverse derivatives only, and of models with none."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shardfit import Objective, Problem, fit, mesh, residual_penalty, residual_term

X = np.linspace(0.1, 3.0, 37)
ROWS = {"x": X, "y": 1.4 * np.exp(-0.7 * X) + 0.02 * np.sin(9 * X)}
PARAMS = {"a": np.float64(1.0), "k": np.array([0.5, 0.1])}


def decay(p, x):
    return p["a"] * jnp.exp(-p["k"][0] * x) + p["k"][1] * x * jnp.array([1.0, 0.5j])[:, None]


@jax.custom_vjp
def backward_only(p, x):
    return decay(p, x)


backward_only.defvjp(lambda p, x: (decay(p, x), (p, x)), lambda kept, ct: jax.vjp(decay, *kept)[1](ct))


@jax.custom_vjp
def scaled(p):
    return 0.3 * p["k"]


scaled.defvjp(lambda p: (0.3 * p["k"], None), lambda _, ct: ({"a": jnp.zeros(()), "k": 0.3 * ct},))


def objective(model, prior, chunk=None):
    def residual(p, rows):
        return {"y": (rows["y"] - model(p, rows["x"])).T, "sum": p["a"] - rows["x"]}

    weight = {"y": 2.0, "sum": 0.5}
    return Objective(
        {"data": residual_term(residual, ROWS, chunk=chunk, weight=weight), "prior": residual_penalty(prior)}
    )


@pytest.mark.parametrize("shards", [1, 4])
@pytest.mark.parametrize("chunk", [None, 5])
def test_reverse_derivatives_give_the_same_normal_equations(shards, chunk):
    with jax.enable_x64(True):
        forward = objective(decay, lambda p: 0.3 * p["k"]).gram(PARAMS)
        reverse = objective(backward_only, scaled, chunk).place(mesh(rows=shards)).gram(PARAMS)
    for one, other in zip(forward, reverse, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("shards", [4, pytest.param(1, marks=pytest.mark.slow)])
def test_least_squares_on_reverse_derivatives(shards):
    one, other = (
        fit(Problem(objective(*models, chunk=7), PARAMS), "lm", mesh=mesh(rows=shards), gtol=1e-10, certify=False)
        for models in ((decay, lambda p: 0.3 * p["k"]), (backward_only, scaled))
    )
    assert other.success
    for name in PARAMS:
        np.testing.assert_allclose(other.params[name], one.params[name], rtol=1e-12)
        np.testing.assert_allclose(other.stderr[name], one.stderr[name], rtol=1e-9)


def test_a_model_without_derivatives_is_named():
    def foreign(p, rows):
        shape = jax.ShapeDtypeStruct(rows["x"].shape, rows["x"].dtype)
        return jax.pure_callback(lambda a, x: a * x, shape, p["a"], rows["x"], vmap_method="sequential")

    with (
        jax.enable_x64(True),
        pytest.raises(TypeError, match="term 'callback': its residuals cannot be differentiated"),
    ):
        Objective({"callback": residual_term(foreign, ROWS)}).gram(PARAMS)


def test_a_mistake_in_the_model_is_raised_as_it_is():
    with jax.enable_x64(True), pytest.raises(KeyError, match="absent"):
        Objective({"data": residual_term(lambda p, r: r["absent"], ROWS)}).gram(PARAMS)


@pytest.mark.slow
def test_least_squares_on_an_ode_solver_with_its_own_adjoint():
    diffrax = pytest.importorskip("diffrax")

    def solved(p, rows, adjoint):
        term = diffrax.ODETerm(lambda t, y, k: -k * y)
        saveat = diffrax.SaveAt(t1=True)
        control = diffrax.PIDController(rtol=1e-9, atol=1e-9)

        def one(x):
            solver = diffrax.Tsit5()
            return diffrax.diffeqsolve(
                term, solver, 0.0, x, 0.01, p["a"], p["k"], saveat=saveat, stepsize_controller=control, adjoint=adjoint
            ).ys[0]

        return rows["y"] - jax.vmap(one)(rows["x"])

    one, other = (
        fit(
            Problem(Objective({"ode": residual_term(lambda p, r, a=a: solved(p, r, a), ROWS)}), {"a": 1.0, "k": 0.5}),
            "lm",
        )
        for a in (diffrax.DirectAdjoint(), diffrax.RecursiveCheckpointAdjoint())
    )
    assert other.success
    for name in one.params:
        assert other.params[name] == pytest.approx(float(one.params[name]), rel=1e-9)
