"""A zoo of models: every honest one passes the certificate, every wrong one is caught and its cause named."""

import jax.numpy as jnp
import numpy as np
import pytest

import shardfit as sf
from shardfit.check import evaluations
from shardfit.check.certificate import certify, certify_answer
from shardfit.check.probe import choose_rows
from shardfit.core.errors import ParityError
from tests.check import zoo

QUICK = (
    "decay",
    "decay, float32",
    "kernel masses at drawn centres",
    "foreign function",
    "absolute residuals",
    "wave equation",
    "block sums: bins",
)


@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in zoo.HONEST])
def test_an_honest_model_passes(name):
    """Also at another point, from which the parameters have moved."""
    problem = zoo.HONEST[name]()
    start = certify(problem)
    both = certify_answer(problem, start, problem.z0() * 1.1)
    assert both.points == ("x0", "answer")
    assert max(both.finite_difference.values()) <= 1e-4 and max(both.blocks.values(), default=0) <= 1e-7
    assert sum(both.undecided.values()) <= 0.01 * sum(both.probe_rows.values())


@pytest.mark.parametrize(
    "name",
    [
        n if w.words == zoo.MIXES or "reverse" in n or "weights" in n else pytest.param(n, marks=pytest.mark.slow)
        for n, w in zoo.WRONG.items()
    ],
)
def test_a_wrong_model_is_caught(name):
    with pytest.raises(ParityError, match=zoo.WRONG[name].words):
        certify(zoo.WRONG[name].problem())


@pytest.mark.parametrize("solver, chunk", [("lm", None), ("lbfgsb", 500)])
def test_a_fit_of_mixed_rows_is_refused(solver, chunk):
    problem = zoo.residuals(lambda p, r: r["y"] - p["a"] * (r["x"] - r["x"].mean()) - p["k"], chunk=chunk)
    with pytest.raises(ParityError, match="term 'd' depends on which rows share a block.*mean.*statistic_term"):
        sf.fit(problem, solver, progress=False)


@pytest.mark.slow
def test_a_gradient_wrong_only_at_the_answer_is_caught():
    problem = zoo.wrong_far_away()
    assert certify(problem).finite_difference["d"] < 1e-6
    with pytest.raises(ParityError, match="near the answer of the fit, which therefore cannot be trusted"):
        sf.fit(problem, "lbfgs", progress=False)


def test_normal_equations_are_compared_with_value_and_gradient(monkeypatch):
    assert certify(zoo.residuals(zoo.decay), gram=True).gram["d"] < 1e-12
    right = evaluations.gram
    monkeypatch.setattr(evaluations, "gram", lambda *args: right(*args)._replace(gradient=1.01 * right(*args).gradient))
    with pytest.raises(ParityError, match="term 'd': the normal equations differ from value and gradient by"):
        certify(zoo.residuals(zoo.decay, transforms={"a": "log"}), gram=True)  # traced anew


@pytest.mark.parametrize(
    "problem",
    [
        lambda: zoo.penalised(lambda p: jnp.sum(jnp.floor(p)), np.full(3, 0.5)),
        lambda: zoo.residuals(lambda p, r: r["y"]),
    ],
    ids=["step function", "parameters not used"],
)
def test_a_flat_objective_is_noted(problem):
    result = sf.fit(problem(), "lbfgs", progress=False)
    assert "The gradient is exactly zero at x0 and around it" in result.note


def test_a_problem_is_certified_once(monkeypatch):
    problem = zoo.residuals(zoo.decay)
    first = sf.fit(problem, "lbfgs", progress=False)
    monkeypatch.setattr("shardfit.check.certificate._examine", None)
    again = sf.fit(problem, "lbfgs", progress=False)
    assert again.certificate == first.certificate
    assert "1024 rows of 'd' probed at x0 and answer" in str(again)


def test_the_probe_holds_neighbours_and_all_of_few_rows():
    def rows_of(n):
        term = sf.statistic_term(lambda p, r: p * r, np.arange(n, dtype=float))
        return choose_rows(sf.Objective({"t": term}), 1, 0).index["t"]

    assert (np.unique(rows_of(1000)) == np.arange(1000)).all()
    assert len(rows_of(1000)) == len(rows_of(1010)) == 1024  # data of about one size share the program
    index = rows_of(100_000)
    assert len(np.unique(index)) == len(index) == 4096 and index.max() < 100_000
    assert np.mean(np.diff(index) == 1) > 0.4
