"""Nothing stale: what a function reaches may be edited in any way, and the next fit or evaluation is of what it is."""

import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shardfit as sf
from shardfit.core.current import as_they_are
from shardfit.core.functions import shared_objective
from shardfit.core.recent import present
from tests.check.edits import OTHER, SAME, apply, script

# each by another cache of JAX, or another way of Python's; the rest of the list is compared by what tells it apart
EVALUATED = (
    "global", "value in a submodule", "eval", "helper wrapped in jit", "jit of an object", "body of a scan",
    "body of a while", "branch of a cond", "rule of a custom_jvp", "checkpoint", "array, in place", "bound method",
    "closure", "attribute of a class", "another object of a library",
)  # fmt: skip
ROWS = {"t": np.linspace(0.0, 2.0, 9), "y": np.linspace(1.0, 0.2, 9)}


def content_of(model):
    objective = shared_objective(sf.Objective({"m": sf.penalty(model)}))
    with as_they_are(objective):
        return objective.terms[0].fn, present.key


@pytest.mark.parametrize("name", OTHER)
def test_another_computation_is_told_apart(name):
    before, edit = OTHER[name]
    with script(before) as main:
        first = content_of(main.model)
        apply(main, edit)
        assert content_of(main.model) != first


@pytest.mark.parametrize("name", sorted(SAME.keys() - {"answer of a cached property"}))  # it is traced once more
def test_the_same_computation_is_not(name):
    before, edit = SAME[name]
    with script(before) as main:
        first = content_of(main.model)[1]
        assert content_of(main.model)[1] == first
        apply(main, edit)
        assert content_of(main.model)[1] == first


@pytest.mark.parametrize("name", EVALUATED)
def test_an_objective_is_evaluated_as_its_functions_are(name):
    before, edit = OTHER[name]
    with script(before) as main:
        objective, x = sf.Objective({"m": sf.penalty(lambda p: main.model(p) * 1.0)}), np.float64(0.7)
        values = [float(objective.value(x))]
        apply(main, edit)
        values += [float(objective.value(x)), float(objective.parts(x)["m"])]
        assert values[1] == pytest.approx(float(main.model(x)))
        assert values[1] == values[2] != values[0]


C, RATE, TABLE = 1.0, [0.1], np.ones(9)


@jax.jit
def helper(t):
    return C * t


def model(p, rows):
    return rows["y"] - C * p["a"] * jnp.asarray(TABLE)[0] * jnp.exp(-helper(rows["t"]))


def problem_of(fn=model, **more):
    return sf.Problem(sf.Objective({"decay": sf.residual_term(fn, ROWS)}), {"a": 1.0}, **more)


def amplitude(factor):
    """Return the answer of least squares with this for C."""
    shape = factor * np.exp(-factor * ROWS["t"])
    return float(shape @ ROWS["y"] / (shape @ shape))


@pytest.mark.parametrize("solver", ["lbfgsb", "lbfgs", "lm"])
def test_a_fit_is_of_the_constants_of_now(solver, monkeypatch):
    problem = problem_of()
    helper(ROWS["t"])  # JAX keeps this program, too
    for factor in (1.0, 2.0, 1.0):
        monkeypatch.setitem(globals(), "C", factor)
        result = sf.fit(problem, solver)
        assert result.params["a"] == pytest.approx(amplitude(factor), rel=1e-5)
        bars = sf.error_bars(problem, result, absolute_sigma=True)
        slope = factor * np.exp(-factor * ROWS["t"])
        assert bars.stderr["a"] == pytest.approx(1 / np.sqrt(slope @ slope), rel=1e-5)


def test_an_array_that_changed_in_place_is_seen_in_either_precision(monkeypatch):
    monkeypatch.setitem(globals(), "TABLE", np.ones(9))
    for precision in ("float32", "float64"):
        problem = problem_of(precision=precision)
        before = float(sf.fit(problem, "lm").params["a"])
        TABLE[:] *= 2.0
        assert sf.fit(problem, "lm").params["a"] == pytest.approx(before / 2, rel=1e-5)


def test_nothing_is_traced_again_while_nothing_changes(monkeypatch):
    traced = []

    def counted(p, rows):
        traced.append(1)
        return model(p, rows)

    monkeypatch.setitem(globals(), "C", 1.0)
    assert sf.fit(problem_of(counted), "lm").success
    count = len(traced)
    assert sf.fit(problem_of(counted).replace(x0={"a": 1.5}), "lm").success
    assert len(traced) == count
    monkeypatch.setitem(globals(), "C", 2.0)
    assert sf.fit(problem_of(counted), "lm").success
    assert len(traced) > count
    count = len(traced)
    monkeypatch.setitem(globals(), "C", 1.0)  # its programs are still there
    assert sf.fit(problem_of(counted), "lm").success
    assert len(traced) == count


def test_a_callback_may_change_a_constant_and_sees_that_it_did(monkeypatch):
    problem, seen = problem_of(), []

    def look(snapshot):
        for factor in (3.0, 1.0):
            monkeypatch.setitem(globals(), "C", factor)
            seen.append(float(problem.objective.value({"a": 1.0})))
        return True

    sf.fit(problem, "lbfgs", callback=look, every=1)
    assert seen[0] == pytest.approx(0.5 * np.sum((ROWS["y"] - 3 * np.exp(-3 * ROWS["t"])) ** 2))
    assert seen[1] == pytest.approx(0.5 * np.sum((ROWS["y"] - np.exp(-ROWS["t"])) ** 2))


def test_what_cannot_be_read_is_traced_anew_and_said(monkeypatch):
    def fn(p, rows):
        return rows["y"] - eval("C") * p["a"]

    problem = problem_of(fn)
    for factor in (1.0, 2.0):
        monkeypatch.setitem(globals(), "C", factor)
        result = sf.fit(problem, "lm", certify=False)
        assert result.params["a"] == pytest.approx(ROWS["y"].mean() / factor)
        assert "traced anew at every fit" in result.note and "eval" in result.note


def test_a_look_costs_little(monkeypatch):
    objective = shared_objective(problem_of().objective)
    with as_they_are(objective):
        pass
    began = time.process_time()
    for _ in range(100):
        with as_they_are(objective):
            pass
    assert time.process_time() - began < 0.1  # 0.2 ms is usual on a busy machine; reading all anew took 1.3
