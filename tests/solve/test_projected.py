"""L-BFGS on the device with bounds: the minimum that scipy's finds, in fits, in slots, resumed, in either precision."""

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize

import shardfit as sf
from shardfit.solve.capabilities import require
from tests.surveys.small import AXES, P, found_at
from tests.surveys.small import problem as small_problem

DRAW = np.random.default_rng(3)
POSITIVE = np.abs(DRAW.normal(size=(40, 25)))
SEEN = POSITIVE @ np.maximum(DRAW.normal(size=25), 0) + 0.01 * DRAW.normal(size=40)
TURNED = np.linalg.qr(DRAW.normal(size=(20, 20)))[0]
STEEP = TURNED @ np.diag(np.logspace(0, 3, 20)) @ TURNED.T
PULL = 5 * DRAW.normal(size=20)


def rosenbrock(x):
    return jnp.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


CASES = {
    "some active": (rosenbrock, np.full(10, -1.0), (-2.0, 0.8)),
    "none active": (rosenbrock, np.full(10, -1.0), (-5.0, 5.0)),
    "from a bound": (rosenbrock, np.full(10, -2.0), (-2.0, 0.5)),
    "narrow valley": (lambda x: 0.5 * x @ (STEEP @ x) - PULL @ x, np.zeros(20), (-0.1, 0.1)),
    "positive": (lambda x: jnp.sum((POSITIVE @ x - SEEN) ** 2), np.full(25, 1.0), (0.0, np.inf)),
    "one end": (lambda x: jnp.sum((x - 3) ** 4) + x[0] * x[1], np.full(5, 1.0), (-np.inf, 2.0)),
    "a corner": (lambda x: jnp.sum(x), np.full(5, 1.0), (0.0, 2.0)),
    "at the answer": (lambda x: jnp.sum((x - 1) ** 2), np.full(5, 0.5), (0.0, 0.5)),
    "other units": (lambda x: rosenbrock(1e-6 * x), np.full(4, -1e6), (-2e6, 0.9e6)),
}


def bounded(case, precision="float64"):
    function, x0, ends = CASES[case]
    return sf.Problem(sf.Objective({"f": sf.penalty(function)}), x0, bounds=ends, precision=precision)


@pytest.mark.parametrize("solver", ["lbfgs", "lbfgs-bt"])
@pytest.mark.parametrize("case", CASES)
def test_the_minimum_is_that_of_scipy(case, solver):
    function, x0, ends = CASES[case]
    result = sf.fit(bounded(case), solver, maxiter=1000, certify=False, progress=False)
    reference = sf.fit(bounded(case), "lbfgsb", maxiter=1000, certify=False, progress=False)
    assert result.status.converged
    assert np.all((result.params >= ends[0]) & (result.params <= ends[1]))
    span = float(function(x0)) - reference.value
    # of the Rosenbrock function in other units scipy's own answers differ more: its curvature starts at 1
    assert result.value <= reference.value + (1e-7 if case != "other units" else 1e-3) * abs(span) + 1e-9
    assert result.evaluations <= 2.5 * reference.evaluations + 10


def test_what_a_bound_holds_is_on_it():
    """Exactly: a coordinate that rounding keeps off its bound would be moved for ever."""
    result = sf.fit(bounded("positive"), "lbfgs", certify=False, progress=False)
    exact, _ = scipy.optimize.nnls(POSITIVE, SEEN)
    np.testing.assert_array_equal(result.params == 0, exact == 0)
    np.testing.assert_allclose(result.params, exact, atol=1e-3)
    assert result.at_bound


def test_single_precision_and_named_parameters():
    result = sf.fit(bounded("some active", "float32"), "lbfgs", certify=False, progress=False)
    exact = sf.fit(bounded("some active"), "lbfgsb", certify=False, progress=False)
    assert result.status.converged and result.params.dtype == np.float32
    assert result.value == pytest.approx(exact.value, rel=1e-5)


def test_bounds_that_nothing_reaches_change_little():
    """The first steps are those of a problem without bounds."""
    loose = bounded("none active").replace(bounds=(-1e9, 1e9))
    free = sf.Problem(loose.objective, loose.x0)
    runs = [sf.fit(p, "lbfgs", maxiter=6, certify=False, progress=False) for p in (loose, free)]
    np.testing.assert_allclose(runs[0].history["value"], runs[1].history["value"], rtol=1e-8)


def test_a_bounded_fit_is_resumed_to_the_bit(tmp_path):
    options = {"maxiter": 60, "certify": False, "progress": False}
    whole = sf.fit(bounded("narrow valley"), "lbfgs", **options)
    stopped = sf.fit(
        bounded("narrow valley"), "lbfgs", run_dir=tmp_path, callback=lambda shot: shot.step >= 7, every=1, **options
    )
    assert stopped.status is sf.Status.INTERRUPTED
    resumed = sf.fit(bounded("narrow valley"), "lbfgs", run_dir=tmp_path, **options)
    np.testing.assert_array_equal(resumed.params, whole.params)
    np.testing.assert_array_equal(resumed.history["value"], whole.history["value"])


@pytest.mark.parametrize("devices", [None, (2, 2)])
def test_a_bounded_fit_becomes_a_survey_unchanged(tmp_path, devices):
    problem = small_problem().replace(bounds={"m": (-0.5, 0.25)})
    axes = {"soft": AXES["soft"], "data": AXES["data"]}
    control = sf.SurveyControl(4, progress=False)
    where = None if devices is None else sf.mesh(rows=devices[0], runs=devices[1])
    with sf.survey(problem, axes, run_dir=tmp_path, control=control, maxiter=100, mesh=where) as found:
        assert found.complete and found.converged == 1
        for row in found.ledger.rows():
            weights = {"reg": {"soft": row["axis.soft"]}, "data": row["axis.data"]}
            alone = problem.replace(objective=problem.objective.with_weights(**weights))
            reference = sf.fit(alone, "lbfgsb", certify=False, progress=False)
            value, m, _ = found_at(found, row["id"])
            assert value == pytest.approx(reference.value, rel=1e-7)
            np.testing.assert_allclose(m, reference.params["m"], atol=1e-3)
            assert np.all((m >= -0.5) & (m <= 0.25)) and np.isin([-0.5, 0.25], m).any()
    assert P > 4  # some of them are free


def test_every_use_takes_bounds():
    for use in ("fit", "survey", "plan"):
        require(bounded("positive"), sf.LBFGS(), use)
