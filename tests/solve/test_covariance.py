"""Standard errors where parameters are held, at a bound or transformed: formulas and scipy's curve_fit as oracles."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import curve_fit

import shardfit as sf

RNG = np.random.default_rng(11)
X = np.linspace(0, 5, 120)
SIGMA = 0.05
Y = 1.5 * np.exp(-0.8 * X) + 0.3 + SIGMA * RNG.standard_normal(X.size)
X0 = {"a": 1.0, "c": 0.3, "k": 0.5}


def decay(x, a, k, c):
    return a * np.exp(-k * x) + c


def residual(p, rows):
    return rows["y"] - p["a"] * jnp.exp(-p["k"] * rows["x"]) - p["c"]


def normalised(p, rows):
    return residual(p, rows) / rows["sigma"]


def problem(fn=normalised, x0=X0, **fields):
    rows = {"x": X, "y": Y} | ({"sigma": np.full(X.size, SIGMA)} if fn is normalised else {})
    return sf.Problem(sf.Objective({"decay": sf.residual_term(fn, rows)}), x0, **fields)


def reduced(sigma=None, absolute=False):
    """Values and covariance of (a, k) with c known, by scipy."""
    return curve_fit(lambda x, a, k: decay(x, a, k, 0.3), X, Y, (1.0, 0.5), sigma, absolute)


HELD = {"fixed": {"fixed": "c"}, "value": {"fixed": {"c": 0.3}}, "bounds": {"bounds": {"c": (0.3, 0.3)}}}


@pytest.mark.parametrize("how", HELD)
@pytest.mark.parametrize("absolute", [True, False])
def test_a_held_parameter_leaves_the_covariance(how, absolute):
    made = problem(normalised if absolute else residual, **HELD[how])
    result = sf.fit(made, "lm", certify=False)
    params, covariance = reduced(np.full(X.size, SIGMA) if absolute else None, absolute)
    assert result.params["c"] == 0.3
    np.testing.assert_allclose([result.params["a"], result.params["k"]], params, rtol=1e-5)
    np.testing.assert_allclose(result.covariance[np.ix_([0, 2], [0, 2])], covariance, rtol=1e-4)
    assert not result.covariance[1].any()
    assert not result.covariance[:, 1].any()
    np.testing.assert_allclose([result.stderr["a"], result.stderr["k"]], np.sqrt(np.diag(covariance)), rtol=1e-4)
    assert result.stderr["c"] == 0.0
    assert "Held, so without error: c." in result.note


def test_holding_narrows_the_error():
    free, held = (sf.fit(problem(**fields), "lm", certify=False) for fields in ({}, {"fixed": "c"}))
    assert held.stderr["k"] < 0.6 * free.stderr["k"]


def test_a_straight_line_by_the_formula():
    rows = {"x": X, "y": 2.0 * X + 1.0 + RNG.standard_normal(X.size)}
    term = sf.residual_term(lambda p, r: r["y"] - p["slope"] * r["x"] - p["at0"], rows)
    result = sf.fit(sf.Problem(sf.Objective({"line": term}), {"at0": 1.0, "slope": 0.0}, fixed="at0"), "lm")
    slope = X @ (rows["y"] - 1) / (X @ X)
    variance = np.sum((rows["y"] - 1 - slope * X) ** 2) / (X.size - 1)
    assert result.params["slope"] == pytest.approx(slope, rel=1e-9)
    assert result.stderr["slope"] == pytest.approx(np.sqrt(variance / (X @ X)), rel=1e-9)


def test_a_bound_that_the_data_reject_is_taken_as_known():
    result = sf.fit(problem(x0=X0 | {"c": 0.15}, bounds={"c": (0.0, 0.15)}), "lm", certify=False)
    held = sf.fit(problem(fixed={"c": 0.15}), "lm", certify=False)
    assert result.params["c"] == 0.15
    np.testing.assert_allclose(result.covariance, held.covariance, rtol=1e-5)
    assert np.isnan(result.stderr["c"])
    assert result.stderr["k"] == pytest.approx(float(held.stderr["k"]), rel=1e-5)
    assert "At a bound, so taken as known in the covariance: c." in result.note


@pytest.mark.parametrize("absolute", [True, False])
def test_beside_a_bound_that_may_be_inactive_errors_are_those_without_it(absolute):
    fn = normalised if absolute else residual
    free = sf.fit(problem(fn), "lm", certify=False)
    limit = float(free.params["c"] - 0.5 * free.stderr["c"])
    result = sf.fit(problem(fn, x0=X0 | {"c": 0.2}, bounds={"c": (0.0, limit)}), "lm", certify=False)
    held = sf.fit(problem(fn, fixed={"c": limit}), "lm", certify=False)
    assert result.params["c"] == limit
    assert np.isnan(result.stderr["c"])
    assert result.dof == held.dof
    assert result.stderr["k"] == pytest.approx(float(free.stderr["k"]), rel=0.05)
    assert result.stderr["k"] > 1.5 * held.stderr["k"]
    assert "without it in the covariance, for the truth may lie inside: c." in result.note


def test_transforms_do_not_change_the_error():
    plain = sf.fit(problem(), "lm", certify=False, gtol=1e-10)
    other = sf.fit(problem(transforms={"k": "log", "a": sf.Interval(0.0, 9.0)}), "lm", certify=False, gtol=1e-10)
    np.testing.assert_allclose(other.covariance, plain.covariance, rtol=1e-6)


def test_shares_that_add_up_have_errors_that_cancel():
    rows = {
        "x": X,
        "y": 0.2 + 0.3 * X + 0.5 * X**2 + SIGMA * RNG.standard_normal(X.size),
        "sigma": np.full(X.size, SIGMA),
    }

    def shares(p, r):
        return (r["y"] - p[0] - p[1] * r["x"] - p[2] * r["x"] ** 2) / r["sigma"]

    made = sf.Problem(
        sf.Objective({"mix": sf.residual_term(shares, rows)}), np.array([0.3, 0.3, 0.4]), transforms="simplex"
    )
    result = sf.fit(made, "lm", certify=False, gtol=1e-8)
    free = np.stack([1 - X**2, X - X**2], 1) / SIGMA  # the last is one less the others
    inverse = np.linalg.inv(free.T @ free)
    np.testing.assert_allclose(result.covariance[:2, :2], inverse, rtol=1e-6)
    np.testing.assert_allclose(result.covariance.sum(0), 0, atol=1e-12)


def test_unidentified_parameters_keep_infinite_errors_beside_held_ones():
    term = sf.residual_term(lambda p, r: r["y"] - p["a"] * r["x"] - p["c"] + 0 * p["none"], {"x": X, "y": Y})
    made = sf.Problem(sf.Objective({"line": term}), {"a": 1.0, "c": 0.0, "none": 1.0}, fixed="c")
    result = sf.fit(made, "lm", certify=False)
    assert np.isinf(result.stderr["none"])
    assert np.isfinite(result.stderr["a"])
    assert result.stderr["c"] == 0
    assert "determine 1 of 2 directions" in result.note


@pytest.mark.parametrize("solver", ["lbfgsb", "lbfgs", "adam"])
def test_other_solvers_hold_too(solver):
    options = {"maxiter": 3000, "learning_rate": 3e-2} if solver == "adam" else {}
    result = sf.fit(problem(fixed={"c": 0.25}), solver, certify=False, **options)
    exact = curve_fit(lambda x, a, k: decay(x, a, k, 0.25), X, Y, (1.0, 0.5))[0]
    assert result.params["c"] == 0.25
    np.testing.assert_allclose([result.params["a"], result.params["k"]], exact, rtol=2e-3)


def test_the_swarm_needs_bounds_of_free_parameters_only():
    made = problem(fixed="c", bounds={"a": (0.5, 3.0), "k": (0.1, 3.0)})
    result = sf.fit(made, "swarm", particles=20, maxiter=60, certify=False)
    assert result.params["c"] == 0.3
    assert result.params["k"] == pytest.approx(reduced()[0][1], rel=1e-2)


@pytest.mark.parametrize("solver", ["lm", "lbfgsb", "lbfgs", "adam", "swarm"])
def test_a_problem_with_nothing_to_fit_is_evaluated(solver):
    result = sf.fit(problem(fixed=list(X0)), solver)
    residuals = (Y - decay(X, X0["a"], X0["k"], X0["c"])) / SIGMA
    assert result.value == pytest.approx(0.5 * np.sum(residuals**2), rel=1e-12)
    assert result.params == X0
    assert "All parameters are fixed" in result.note
    if solver == "lm":
        assert not result.covariance.any()
        assert result.stderr == dict.fromkeys(X0, 0.0)


def test_loops_over_held_values_compile_once():
    traces = []

    def counted(p, rows):
        traces.append(1)
        return residual(p, rows)

    term = sf.residual_term(counted, {"x": X, "y": Y})
    first = sf.Problem(sf.Objective({"decay": term}), X0, fixed={"c": 0.25})
    fits = [sf.fit(first, "lm")]
    before = len(traces)
    fits += [sf.fit(first.replace(fixed={"c": c}), "lm") for c in (0.3, 0.35)]
    assert len(traces) == before
    assert [float(f.params["c"]) for f in fits] == [0.25, 0.3, 0.35]
    assert fits[1].value < min(fits[0].value, fits[2].value), "the profile has its minimum near the truth"
