"""A success is confirmed: what only looks like a minimum to a solver is left, at few evaluations where it is one."""

import jax.numpy as jnp
import numpy as np
import pytest

import shardfit as sf
from benchmarks.problems import nist
from benchmarks.problems.mgh import PROBLEMS
from benchmarks.problems.scalings import CASES

QUIET = {"progress": False, "certify": False}


def made(name):
    case = CASES[name]
    objective = sf.Objective({"data": sf.residual_term(case.residual, case.rows)})
    return sf.Problem(objective, case.x0, bounds=case.bounds)


def of_values(fn, x0, **options):
    return sf.Problem(sf.Objective({"value": sf.penalty(fn)}), x0, **options)


@pytest.mark.parametrize("name", ["meyer", "brown badly scaled", "valley, narrow"])
@pytest.mark.parametrize("solver", ["lbfgsb", "lbfgs"])
def test_no_false_success_where_scales_differ(name, solver):
    problem = made(name)
    found = sf.fit(problem, solver, **QUIET)
    better = sf.fit(problem.replace(x0=found.params), "lm", **QUIET)
    assert not found.success or found.value - better.value <= 1e-4 * better.value + 1e-13


@pytest.mark.parametrize(
    ("name", "solver"),
    [("chebyquad", "lbfgsb"), ("chebyquad", "lm"), ("brown_almost_linear", "lm"), ("osborne_1", "lbfgsb")],
)
def test_no_false_success_from_a_hundred_times_the_start(name, solver):
    one = PROBLEMS[name]
    problem = sf.Problem(sf.Objective({"data": sf.residual_term(one.residual, one.rows)}), one.start(100))
    found = sf.fit(problem, solver, **QUIET)
    assert not found.success or one.solved(2 * found.value)


@pytest.mark.parametrize("solver", ["lbfgsb", "adam"])
def test_a_peak_that_has_left_its_data_is_no_success(solver):
    one = nist.load()["Eckerle4"]
    problem = sf.Problem(sf.Objective({"data": sf.residual_term(one.residual, one.rows)}), np.asarray(one.starts[0]))
    assert not sf.fit(problem, solver, **QUIET).success


@pytest.mark.parametrize("solver", ["lbfgsb", "lbfgs", "adam"])
def test_a_saddle_is_left(solver):
    found = sf.fit(of_values(lambda p: p[0] ** 2 + (1 - p[1] ** 2) ** 2, np.array([0.0, 0.0])), solver, **QUIET)
    assert found.value < 1e-6 and abs(found.params[1]) == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize(("n", "most"), [(1, 4), (4, 10), (8, 10), (40, 6)])
def test_a_minimum_costs_few_evaluations(n, most):
    curvature = np.geomspace(1, 30, n)
    problem = of_values(lambda p: 1 + jnp.sum(curvature * jnp.cosh(p - 0.5)), np.full(n, 0.5))
    found = sf.fit(problem, "lbfgs", **QUIET)
    assert found.success and found.steps == 0 and not found.note
    assert found.evaluations <= 1 + most


def test_a_start_that_nothing_confirms_is_told():
    term = sf.statistic_term(
        lambda p, rows, key: (p - 1.5) ** 2 + 0 * rows["v"], {"v": np.ones(9)}, stochastic=True, weight=1 / 9
    )
    problem = sf.Problem(sf.Objective({"noisy": term}), np.array(1.5))
    found = sf.fit(problem, "adam", **QUIET)
    assert found.steps == 0 and "met at the start" in found.note


def test_a_parameter_without_effect_makes_an_answer_doubtful():
    problem = of_values(lambda p: (p["a"] - 2) ** 2 + 1 + 0 * p["b"], {"a": 1.0, "b": 3.0})
    found = sf.fit(problem, "lbfgs", **QUIET)
    assert found.status.converged and not found.success
    assert "does not depend on b" in found.message


def test_float32_answers_are_confirmed_in_their_precision():
    problem = of_values(lambda p: jnp.sum(jnp.cosh(p - 1.0)), np.array([3.0, -1.0, 0.2]), precision="float32")
    found = sf.fit(problem, "lbfgs", **QUIET)
    assert found.success and np.allclose(found.params, 1, atol=1e-3)


@pytest.mark.parametrize("solver", ["lbfgsb", "lbfgs"])
def test_legs_go_on_to_the_bit(solver, tmp_path):
    problem = made("saddle")
    whole = sf.fit(problem, solver, **QUIET)
    sf.fit(problem, solver, maxiter=whole.steps - 1, run_dir=tmp_path, **QUIET)
    assert list(tmp_path.glob("ckpt/start-*.npz")) and list(tmp_path.glob("ckpt/*-2.*"))
    resumed = sf.fit(problem, solver, run_dir=tmp_path, **QUIET)
    np.testing.assert_array_equal(resumed.params, whole.params)
    np.testing.assert_array_equal(resumed.history["value"], whole.history["value"])
    assert (resumed.steps, resumed.evaluations, resumed.status) == (whole.steps, whole.evaluations, whole.status)
    assert not (np.diff(whole.history["step"]) < 0).any()
    sf.fit(problem, solver, maxiter=1, run_dir=tmp_path, resume="never", **QUIET)
    assert not [*tmp_path.glob("ckpt/state-2.npz"), *tmp_path.glob("ckpt/journal-2.bin")]
