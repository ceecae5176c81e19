"""Bounds of optax solvers: steps are projected, and a run may end on a bound."""

import jax.numpy as jnp
import numpy as np
import optax
import pytest

import shardfit as sf
from shardfit.core.status import Status


def bowl(p, middle):
    return jnp.sum((p["a"] - middle) ** 2)


def problem(**options):
    objective = sf.Objective({"bowl": sf.penalty(bowl, np.array([2.0, -3.0, 0.5]))})
    return sf.Problem(objective, {"a": np.zeros(3)}, **options)


@pytest.mark.parametrize(("solver", "rate"), [("adam", 0.1), ("sgd", 0.1), ("rmsprop", 0.01)])
def test_the_answer_lies_on_the_bounds(solver, rate):
    found = sf.fit(
        problem(bounds={"a": (-1.0, 1.0)}), solver, learning_rate=rate, maxiter=2000, keep=1, gtol=1e-4, progress=False
    )
    assert found.params["a"][:2].tolist() == [1.0, -1.0]
    assert found.params["a"][2] == pytest.approx(0.5, abs=0.02)
    assert np.abs(found.history["x"]).max() <= 1


def test_pressing_against_bounds_is_convergence():
    box = problem(bounds={"a": (np.array([-1.0, -1.0, 0.0]), np.array([1.0, 1.0, 0.4]))})
    found = sf.fit(box, optax.sgd(0.1), maxiter=500, progress=False)
    assert found.status is Status.CONVERGED_GRADIENT
    assert found.steps < 100


def test_one_side_only_and_none():
    half = sf.fit(problem(bounds={"a": (None, 1.0)}), "sgd", learning_rate=0.1, maxiter=200, progress=False)
    assert half.params["a"] == pytest.approx([1.0, -3.0, 0.5], abs=1e-5)
    free = sf.fit(problem(), "sgd", learning_rate=0.1, maxiter=200, progress=False)
    assert free.params["a"] == pytest.approx([2.0, -3.0, 0.5], abs=1e-5)


def test_a_resumed_run_keeps_its_bounds(tmp_path):
    options = {"learning_rate": 0.1, "progress": False, "certify": False, "gtol": 0.0}
    box = problem(bounds={"a": (-1.0, 1.0)})
    sf.fit(box, "adam", maxiter=7, run_dir=tmp_path, **options)
    longer = sf.fit(box, "adam", maxiter=40, run_dir=tmp_path, **options)
    whole = sf.fit(box, "adam", maxiter=40, **options)
    assert longer.params["a"].tolist() == whole.params["a"].tolist()


def test_callbacks_see_the_gradient():
    seen = []
    sf.fit(problem(), optax.sgd(0.1), maxiter=3, callback=seen.append, every=1, progress=False)
    for shot in seen:
        expected = 2 * (shot.params["a"] - np.array([2.0, -3.0, 0.5]))
        assert np.abs(shot.slope).max() == pytest.approx(shot.gradient)
        assert shot.slope == pytest.approx(expected)
