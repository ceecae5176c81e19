"""Robust losses of ordinary residuals: values of scipy, errors that cover, on every layout."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize

import shardfit as sf

N, SIGMA = 122, 0.05  # shards of four are padded
RNG = np.random.default_rng(1)
X = np.linspace(0, 5, N)
Y = 2 * np.exp(-X / 1.3) + 0.5 + SIGMA * RNG.standard_normal(N) + RNG.uniform(-3, 3, N) * (RNG.random(N) < 0.15)
START = np.array([1.5, 1.0, 0.3])


def decay(p, rows):
    return (p[0] * jnp.exp(-rows["x"] / p[1]) + p[2] - rows["y"]) / SIGMA


def problem(loss, f_scale=1.0, model=decay, x0=START, **fields):
    term = sf.residual_term(model, {"x": X, "y": Y}, loss=loss, f_scale=f_scale, chunk=25, weight=2.0)
    return sf.Problem(sf.Objective({"data": term}), x0, **fields)


def scipys(loss, f_scale, **options):
    def residuals(p):
        return (p[0] * np.exp(-X / p[1]) + p[2] - Y) / SIGMA

    tight = dict.fromkeys(("ftol", "xtol", "gtol"), 1e-15)
    return optimize.least_squares(residuals, START, "3-point", loss=loss, f_scale=f_scale, **tight, **options)


@pytest.mark.parametrize(
    ("loss", "f_scale", "shards"),
    [("linear", 1.0, 1), ("soft_l1", 0.5, 4), ("huber", 1.5, 1), ("cauchy", 1.0, 4), ("arctan", 2.0, 1)],
)
def test_minima_are_those_of_scipy(loss, f_scale, shards):
    result = sf.fit(problem(loss, f_scale), "lm", mesh=sf.mesh(rows=shards))
    theirs = scipys(loss, f_scale)
    assert result.success, result.message
    assert result.value == pytest.approx(2 * theirs.cost, rel=1e-8)
    np.testing.assert_allclose(result.params, theirs.x, rtol=1e-6)
    assert result.evaluations <= 2 * theirs.nfev


def test_a_parameter_at_a_bound_is_as_if_held():
    bounds = (np.array([0, 0, 0.6]), np.full(3, np.inf))
    result = sf.fit(problem("cauchy", bounds=bounds, x0=np.array([1.5, 1.0, 0.7])), "lm")
    assert result.params[2] == 0.6
    held = sf.fit(problem("cauchy", fixed=[False, False, True], x0=np.array([1.5, 1.0, 0.6])), "lm")
    np.testing.assert_allclose(result.params, held.params, rtol=1e-6)
    assert held.stderr[2] == 0 and np.all(held.stderr[:2] > 0)


def test_other_solvers_find_the_same():
    one, other = (sf.fit(problem("soft_l1"), name) for name in ("lm", "lbfgs"))
    np.testing.assert_allclose(other.params, one.params, rtol=1e-4)
    np.testing.assert_allclose(sf.error_bars(problem("soft_l1"), one).stderr, one.stderr, rtol=1e-6)


def line(p, rows):
    return {"re": p["a"] + p["b"] * rows["x"] - rows["y"]}


def spread_of(loss, p, rows):
    """The sandwich as the textbook has it: A⁻¹BA⁻¹ n/(n - p)."""
    slope, bend = {"soft_l1": (lambda s: (1 + s) ** -0.5, lambda s: -0.5 * (1 + s) ** -1.5)}[loss]
    r, j = p["a"] + p["b"] * X - rows["y"], np.stack([np.ones(N), X], axis=1)
    a = np.linalg.inv(j.T @ ((slope(r**2) + 2 * r**2 * bend(r**2))[:, None] * j))
    return a @ (j.T @ ((slope(r**2) * r)[:, None] ** 2 * j)) @ a * N / (N - 2)


def test_errors_are_the_sandwich_and_cover():
    """68 % of 200 sets with heavy tails, within three of its own standard deviations."""
    inside = []
    rng = np.random.default_rng(3)
    for _ in range(120):
        rows = {"x": X, "y": 1 + 2 * X + rng.standard_t(2, N)}
        made = sf.Problem(sf.Objective({"data": sf.residual_term(line, rows, loss="soft_l1")}), {"a": 0.0, "b": 0.0})
        result = sf.fit(made, "lm", certify=False)
        inside += [abs(result.params["a"] - 1) < result.stderr["a"], abs(result.params["b"] - 2) < result.stderr["b"]]
    assert result.covariance is not None
    np.testing.assert_allclose(result.covariance, spread_of("soft_l1", result.params, rows), rtol=1e-6)
    assert "sandwich" in result.note and result.dof is None
    assert abs(np.mean(inside) - 0.683) < 0.11


def test_complex_residuals_count_by_their_length():
    def both(p, rows):
        return (p["a"] + 1j * p["b"] - rows["v"]) / SIGMA

    rng = np.random.default_rng(2)
    v = 1 + 2j + SIGMA * (rng.standard_normal(80) + 1j * rng.standard_normal(80))
    v[:9] += 3 - 4j
    made = sf.Problem(sf.Objective({"v": sf.residual_term(both, {"v": v}, loss="cauchy")}), {"a": 0.9, "b": 1.8})
    result = sf.fit(made, "lm")
    assert result.status.converged
    best = optimize.minimize(
        lambda p: 0.5 * np.sum(np.log1p(np.abs(p[0] + 1j * p[1] - v) ** 2 / SIGMA**2)), [0.9, 1.8], tol=1e-12
    )
    assert result.value == pytest.approx(best.fun, rel=1e-8)


def test_many_sets_at_once_are_fitted_as_each_alone():
    sets = np.stack([Y, 0.5 * Y + 0.3])
    many = sf.fit_many(problem("huber"), {"data": {"y": sets}}, certify=False)
    for i, y in enumerate(sets):
        term = sf.residual_term(decay, {"x": X, "y": y}, loss="huber", chunk=25, weight=2.0)
        alone = sf.fit(sf.Problem(sf.Objective({"data": term}), START), "lm", certify=False)
        np.testing.assert_allclose(many.params[i], alone.params, rtol=1e-6)
        np.testing.assert_allclose(many.stderr[i], alone.stderr, rtol=1e-5)


def test_what_cannot_be_robust_is_refused():
    with pytest.raises(ValueError, match="Did you mean 'huber'"):
        problem("hubert")
    with pytest.raises(ValueError, match="f_scale=0 must be"):
        problem("huber", 0)
    with pytest.raises(ValueError, match="one weight"):
        sf.residual_term(line, {"x": X, "y": Y}, loss="huber", weight={"re": 1.0})
    with pytest.raises(TypeError, match="'data' has none"):
        sf.fit(problem("huber"), "lm-cg")
