"""Every solver on every kind of problem: one protocol, one Result, an honest status."""

import jax
import numpy as np
import pytest
from scipy.optimize import curve_fit

import shardfit as sf
from tests.solve.cases import DECAY, PROBLEMS, SOLVERS, X, Y, least_squares_problem, stochastic_problem

NEEDS_RESIDUALS = {"lm"}


def decay(x, a, tau, c):
    return a * np.exp(-x / tau) + c


@pytest.fixture(scope="module")
def best_decay():
    found, covariance = curve_fit(decay, X, Y, [1, 1, 0.2], DECAY["sigma"], absolute_sigma=True)
    value = 0.5 * np.sum(((Y - decay(X, *found)) / DECAY["sigma"]) ** 2)
    return dict(zip(("a", "tau", "c"), found, strict=True)), value, covariance


# relatives of solvers that run on every kind of problem
RELATIVES = ("default", "lbfgs-bt", "adamw", "sgd", "rmsprop")
PAIRS = [
    pytest.param(name, kind, marks=pytest.mark.slow if name in RELATIVES and kind != "least squares" else ())
    for name in SOLVERS
    for kind in PROBLEMS
]


@pytest.mark.parametrize(("name", "kind"), PAIRS)
def test_every_solver_on_every_problem(name, kind, best_decay):
    solver, options = SOLVERS[name]()
    problem = PROBLEMS[kind]()
    if name in NEEDS_RESIDUALS and kind != "least squares":
        with pytest.raises(TypeError, match="needs residuals"):
            sf.fit(problem, solver, **options)
        return
    result = sf.fit(problem, solver, progress=False, **options)
    start = float(problem.objective.value(problem.x0))
    target = best_decay[1] if kind == "least squares" else 0.0
    # first-order methods with a fixed rate get near, the others there
    close = 2e-2 if name in ("sgd", "rmsprop", "adam", "adamw", "optax object", "callable") else 1e-5
    assert result.value - target < close * (start - target)
    assert jax.tree.structure(result.params) == jax.tree.structure(problem.x0)
    assert result.value == pytest.approx(float(problem.objective.value(result.params)), rel=1e-12, abs=1e-19)
    assert set(result.parts) == set(problem.objective.names)
    assert result.status.converged or not result.success
    assert result.steps >= 1 and result.evaluations >= 1
    assert len(result.history["value"]) == len(result.history["gradient"]) == len(result.history["seconds"])
    assert result.timings["total"] >= result.timings["compile"] > 0
    assert result.certificate["finite_difference"].keys() == set(problem.objective.names)
    assert result.layout["platform"] == "cpu" and result.precision == "float64"


@pytest.mark.parametrize("name", ["lbfgsb", "lbfgs", "lbfgs-bt", "lm"])
@pytest.mark.parametrize("rows", [pytest.param(2, marks=pytest.mark.slow), 3])
def test_the_answer_does_not_depend_on_the_mesh(name, rows):
    problem = least_squares_problem()
    tight = {"ftol": 1e-14, "gtol": 1e-8}
    alone = sf.fit(problem, name, progress=False, **tight)
    split = sf.fit(problem, name, mesh=sf.mesh(rows=rows), progress=False, **tight)
    assert split.value == pytest.approx(alone.value, rel=1e-12)
    for a, b in zip(jax.tree.leaves(alone.params), jax.tree.leaves(split.params), strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-7)
    assert split.layout["rows"] == rows
    assert max(split.certificate["sharded"].values()) < 1e-12


def test_lm_standard_errors_equal_scipys(best_decay):
    result = sf.least_squares(least_squares_problem(), progress=False)
    params, value, covariance = best_decay
    order = ["a", "c", "tau"]  # pytree order
    pick = [("a", "tau", "c").index(k) for k in order]
    np.testing.assert_allclose(result.covariance, covariance[np.ix_(pick, pick)], rtol=1e-4)
    for name in order:
        assert result.params[name] == pytest.approx(params[name], rel=1e-6)
        i = order.index(name)
        assert result.stderr[name] == pytest.approx(np.sqrt(result.covariance[i, i]), rel=1e-12)
    assert "±" in str(result) and "<table>" in result._repr_html_()


@pytest.mark.parametrize("name", ["lbfgsb", "lm"])
def test_bounds_hold(name):
    seen = []
    problem = least_squares_problem(transforms=None, bounds={"tau": (0.5, 1.1), "a": (0, None)})
    result = sf.fit(problem, name, progress=False, callback=lambda s: seen.append(s.params["tau"]), every=1)
    assert result.params["tau"] == pytest.approx(1.1, abs=1e-9)
    assert all(0.5 <= tau <= 1.1 for tau in seen) and seen
    assert result.success


def test_float32_stays_float32():
    result = sf.fit(least_squares_problem(precision="float32"), "lbfgs", progress=False)
    assert all(leaf.dtype == np.float32 for leaf in jax.tree.leaves(result.params))
    assert result.value == pytest.approx(sf.fit(least_squares_problem(), "lbfgs", progress=False).value, rel=1e-3)


def test_stochastic_terms_get_a_fresh_key_every_step():
    result = sf.fit(stochastic_problem(), "adam", maxiter=300, learning_rate=0.05, progress=False)
    values = result.history["value"]
    assert abs(float(result.params)) < 0.2
    assert len(set(values[-20:].tolist())) == 20  # noise differs from step to step


def test_mini_batches_reach_the_answer_and_report_the_whole_value():
    problem = least_squares_problem()
    options = {"learning_rate": 2e-2, "maxiter": 600, "batch": 64, "progress": False}
    result = sf.fit(problem, "adam", seed=3, **options)
    whole = float(problem.objective.value(result.params))
    best = sf.fit(problem, "lbfgs", progress=False).value
    assert result.value == pytest.approx(whole, rel=1e-12)
    assert whole < 1.3 * best
    options |= {"maxiter": 40}
    begun = result.history["value"][:41]
    again = sf.fit(problem, "adam", seed=3, mesh=sf.mesh(rows=3), **options)
    np.testing.assert_allclose(again.history["value"], begun, rtol=1e-9)
    other = sf.fit(problem, "adam", seed=4, **options)
    assert not np.array_equal(other.history["value"], begun)


def test_optax_with_a_schedule_and_with_a_line_search():
    """Schedules have closures with empty cells; optax's L-BFGS evaluates and differentiates by itself."""
    optax = pytest.importorskip("optax")
    schedule = optax.exponential_decay(0.05, 50, 0.5)
    clipped = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(schedule))
    problem = least_squares_problem()
    best = sf.fit(problem, progress=False).value
    for transform in (clipped, optax.lbfgs()):
        result = sf.fit(problem, transform, maxiter=300, progress=False)
        assert result.value < 1.01 * best and abs(sum(result.parts.values()) - result.value) < 1e-9 * best
