"""Normal equations of models with reverse derivatives only, and of models with none."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shardfit import (
    Gram,
    Log,
    NormalEquations,
    Objective,
    ParityError,
    Problem,
    fit,
    mesh,
    residual_penalty,
    residual_term,
    statistic_term,
)

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


def test_a_mistake_in_the_model_is_no_lack_of_derivatives():
    with jax.enable_x64(True), pytest.raises(ValueError, match="term 'data': its function asks for 'absent'"):
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


def line_sums(p, rows, real):
    return {"xx": real @ rows["x"] ** 2, "xy": real @ (rows["x"] * rows["y"]), "yy": real @ rows["y"] ** 2}


def line_solve(t, p):
    a = p["a"]
    value = 0.5 * (t["yy"] - 2 * a * t["xy"] + a**2 * t["xx"])
    return Gram(value, jnp.stack([a * t["xx"] - t["xy"]]), t["xx"].reshape(1, 1))


def without_real(p, rows, real):
    return line_sums(p, rows, jnp.ones_like(real))


def wrong_solve(t, p):
    value, gradient, matrix = line_solve(t, p)
    return value, gradient, 1.1 * matrix


def line_residual(p, rows):
    return p["a"] * rows["x"] - rows["y"]


def line_statistic(p, rows):
    return 0.5 * line_residual(p, rows) ** 2


OWN = NormalEquations(line_sums, line_solve, n_residuals=len(X))


@pytest.mark.parametrize(
    ("kind", "shards", "chunk"),
    [
        (residual_term, 4, 4),
        pytest.param(residual_term, 1, None, marks=pytest.mark.slow),
        pytest.param(statistic_term, 4, 4, marks=pytest.mark.slow),
    ],
)
def test_own_normal_equations_serve_least_squares(kind, shards, chunk):
    """As the generic ones, through weight, transform and held parameters, on every layout; error bars too."""
    x0 = {"a": 1.0}
    fn = line_residual if kind is residual_term else line_statistic

    def solved(term, **options):
        problem = Problem(Objective({"data": term}), x0, transforms={"a": Log()})
        return fit(problem, "lm", **options)

    own = solved(kind(fn, ROWS, weight=2.0, chunk=chunk, gram=OWN), mesh=mesh(rows=shards))
    generic = solved(residual_term(line_residual, ROWS, weight=2.0))
    np.testing.assert_allclose(own.params["a"], generic.params["a"], rtol=1e-9)
    np.testing.assert_allclose(own.stderr["a"], generic.stderr["a"], rtol=1e-7)


@pytest.mark.parametrize(
    "equations", [NormalEquations(without_real, line_solve), NormalEquations(line_sums, wrong_solve)]
)
def test_wrong_normal_equations_are_found(equations):
    problem = Problem(Objective({"data": residual_term(line_residual, ROWS, gram=equations)}), {"a": 1.0})
    with pytest.raises(ParityError, match="normal equations"):
        fit(problem, "lm")


def test_own_normal_equations_of_other_shapes_are_refused():
    equations = NormalEquations(line_sums, lambda t, p: (t["yy"], t["xy"], t["xx"]))
    problem = Problem(Objective({"data": residual_term(line_residual, ROWS, gram=equations)}), {"a": 1.0})
    with pytest.raises(ValueError, match=r"for 1 parameters\. Return Gram"):
        fit(problem, "lm", certify=False)


def test_a_statistic_term_that_is_not_counted_has_no_scaled_errors():
    term = statistic_term(line_statistic, ROWS, gram=NormalEquations(line_sums, line_solve))
    result = fit(Problem(Objective({"data": term}), {"a": 1.0}), "lm")
    assert result.stderr is None
    assert "n_residuals" in result.note
    with pytest.raises(TypeError, match="normal equations: 'lm'"):
        Objective({"data": term}).residuals({"a": 1.0})
