"""Least squares without matrices: answers and errors against the dense solution, on every layout."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shardfit as sf
from shardfit.core.products import normal_product, of_signs

N = 300
RNG = np.random.default_rng(0)
TRUTH = np.cumsum(RNG.standard_normal(N)) / np.sqrt(N)
NEAR = (np.arange(2 * N + 3)[:, None] + np.arange(-3, 4)) % N  # shards of four are padded
KERNEL = np.exp(-0.5 * (np.arange(-3, 4) / 1.2) ** 2) / 3
SIGMA = np.full(len(NEAR), 0.01)
ROWS = {"near": NEAR, "y": TRUTH[NEAR] @ KERNEL + SIGMA * RNG.standard_normal(len(NEAR)), "sigma": SIGMA}


def blurred(p, rows):
    return (p[rows["near"]] @ KERNEL - rows["y"]) / rows["sigma"]


def smooth(p):
    return (p[1:] - p[:-1]) * np.sqrt(N)


def problem(model=blurred, prior=smooth, x0=None, **fields):
    objective = sf.Objective({"data": sf.residual_term(model, ROWS, chunk=100), "smooth": sf.residual_penalty(prior)})
    return sf.Problem(objective, np.zeros(N) if x0 is None else x0, **fields)


def exact(made, at):
    """Values and standard errors of a linear problem by the whole matrix."""
    with jax.enable_x64(True):
        here = made.objective.gram(at)
    return at - np.linalg.solve(here.matrix, here.gradient), np.sqrt(np.diag(np.linalg.inv(here.matrix)))


@pytest.mark.parametrize("shards", [1, 4])
def test_a_linear_inverse_problem(shards):
    made = problem()
    best, errors = exact(made, np.zeros(N))
    result = sf.fit(made, "lm-cg", draws=60, mesh=sf.mesh(rows=shards), certify=False)
    assert result.status.converged and result.evaluations < 200
    np.testing.assert_allclose((result.params - best) / errors, 0, atol=1e-5)
    ratio = result.stderr / errors
    assert abs(ratio.mean() - 1) < 0.03 and ratio.std() < 0.15
    assert "60 sampled solves, uncertain by 9%" in result.note


def test_units_do_not_matter():
    """However far they are apart."""
    units = 2.0 ** RNG.integers(-20, 21, N)
    plain = sf.fit(problem(), "lm-cg", certify=False)
    scaled = problem(lambda p, r: blurred(p / units, r), lambda p: smooth(p / units))
    other = sf.fit(scaled, "lm-cg", certify=False)
    assert abs(other.steps - plain.steps) <= 1
    # but for rounding inside of the model, and for trials around the answer, which has one scale for a large array
    assert abs(other.evaluations - plain.evaluations) <= 3 + 9
    np.testing.assert_allclose(other.params / units, plain.params, rtol=1e-9, atol=1e-12)


def test_a_nonlinear_model_with_held_parameters_agrees_with_lm():
    made = problem(lambda p, r: blurred(p - 3, r), x0=np.full(N, 3.0), transforms="log", fixed=np.arange(N) < 3)
    one, other = (sf.fit(made, name, certify=False) for name in ("lm", "lm-cg"))
    assert other.status.converged and other.evaluations < 400
    assert other.value == pytest.approx(one.value, rel=1e-9)
    np.testing.assert_array_equal(other.params[:3], 3.0)
    np.testing.assert_allclose(other.params, one.params, rtol=1e-4)


def test_a_run_that_stops_and_goes_on_is_the_same_to_the_bit(tmp_path):
    whole = sf.fit(problem(), "lm-cg", draws=3, certify=False)
    sf.fit(problem(), "lm-cg", draws=3, maxiter=1, run_dir=tmp_path, certify=False)
    resumed = sf.fit(problem(), "lm-cg", draws=3, run_dir=tmp_path, certify=False)
    np.testing.assert_array_equal(resumed.params, whole.params)
    np.testing.assert_array_equal(resumed.stderr, whole.stderr)
    assert resumed.evaluations == whole.evaluations


def test_what_nothing_depends_on_stays_and_what_is_not_determined_has_no_errors():
    rows = {"x": np.linspace(0, 1, 40)}
    term = sf.residual_term(lambda p, r: r["x"] * (p["a"] + p["b"]) - 1, rows)
    start = {"a": 0.0, "b": 1.0, "unused": 5.0}
    result = sf.fit(sf.Problem(sf.Objective({"line": term}), start), "lm-cg", draws=4, certify=False)
    assert result.status.converged
    assert result.params["unused"] == 5.0 and "Nothing depends on 1 parameters" in result.note
    assert np.isinf(result.stderr["unused"])
    best = float(np.sum(rows["x"]) / np.sum(rows["x"] ** 2))
    assert result.params["a"] + result.params["b"] == pytest.approx(best, rel=1e-8)


def test_float32():
    made = problem(precision="float32")
    best, errors = exact(problem(), np.zeros(N))
    result = sf.fit(made, "lm-cg", certify=False)
    assert result.params.dtype == np.float32 and result.status.converged
    np.testing.assert_allclose((result.params - best) / errors, 0, atol=0.05)


def test_bounds_and_terms_without_residuals_are_refused():
    with pytest.raises(ValueError, match="'lm-cg' does not support bounds"):
        sf.fit(problem(bounds=(0.0, 1.0)), "lm-cg")
    valley = sf.Problem(sf.Objective({"valley": sf.penalty(lambda p: jnp.sum(p**4))}), np.ones(3))
    with pytest.raises(TypeError, match="'valley' has none"):
        sf.fit(valley, "lm-cg")


def of_parts(p, rows):
    return {"b": rows["a"] @ p - rows["y"], "a": (rows["a"].real @ p)[:, None] * jnp.ones(2)}


@jax.custom_vjp
def backward_only(p):
    return 0.3 * p


backward_only.defvjp(lambda p: (0.3 * p, None), lambda _, ct: (0.3 * ct,))


def test_products_of_every_kind_of_residual():
    a = RNG.standard_normal((23, 5)) + 1j * RNG.standard_normal((23, 5))
    data = sf.residual_term(of_parts, {"a": a, "y": a.real.sum(1)}, chunk=4, weight={"b": 2.0, "a": 1.0})
    whole = sf.Objective({"data": data, "prior": sf.residual_penalty(backward_only)})
    with jax.enable_x64(True):
        space, z = sf.Problem(whole, np.zeros(5)).space, jnp.arange(5.0)
        matrix, signs = whole.gram(z).matrix, []
        for shards in (1, 4):
            placed = whole.place(sf.mesh(rows=shards))
            np.testing.assert_allclose(jax.jit(normal_product)(placed, space, z, z + 1), matrix @ (z + 1), rtol=1e-12)
            drawn = jax.jit(jax.vmap(of_signs, (None, None, None, 0)))
            signs.append(drawn(placed, space, z, jax.random.split(jax.random.key(0), 500)))
    np.testing.assert_allclose(signs[0], signs[1], rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(np.mean(np.square(signs[0]), axis=0) / np.diag(matrix), 1, atol=0.25)
