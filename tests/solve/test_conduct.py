"""How solvers behave: limits, callbacks, interruption, non-finite values, bad options, number of traces."""

import jax.numpy as jnp
import numpy as np
import pytest

import shardfit as sf
from tests.solve.cases import DECAY, decay_residual, least_squares_problem, penalty_problem, stochastic_problem

BUILT_IN = ["lbfgsb", "lbfgs", "lbfgs-bt", "lm", "adam"]


def fast(*names):
    """Every built-in solver, those that are not named as slow tests."""
    return [pytest.param(name, marks=() if name in names else pytest.mark.slow) for name in BUILT_IN]


@pytest.mark.parametrize("name", BUILT_IN)
def test_step_limit_returns_and_says_so(name):
    result = sf.fit(least_squares_problem(), name, maxiter=2, progress=False)
    assert result.status is sf.Status.MAX_STEPS and not result.success
    assert result.steps == 2 and "maxiter" in result.message


@pytest.mark.parametrize("name", BUILT_IN)
def test_callback_every_k_steps_and_stop(name):
    seen = []

    def stop_at_six(snapshot):
        seen.append(snapshot.step)
        assert set(snapshot.params) == {"a", "tau", "c"}
        return snapshot.step >= 6

    tight = {"ftol": 0.0, "gtol": 0.0} | ({"xtol": 0.0} if name == "lm" else {})
    result = sf.fit(least_squares_problem(), name, callback=stop_at_six, every=3, progress=False, **tight)
    assert seen == [3, 6]
    assert result.status is sf.Status.INTERRUPTED and result.steps == 6 and "callback" in result.message


@pytest.mark.parametrize("name", BUILT_IN)
def test_ctrl_c_returns_the_best_so_far(name):
    def interrupt(snapshot):
        raise KeyboardInterrupt

    start = float(least_squares_problem().objective.value(least_squares_problem().x0))
    result = sf.fit(least_squares_problem(), name, callback=interrupt, every=4, progress=False)
    assert result.status is sf.Status.INTERRUPTED
    assert result.value < start


def wall(p, rows):
    """A model that is NaN beyond p = 2, with its minimum at 1.9."""
    return jnp.where(p < 2, 1, jnp.nan) * (p - 1.9) * rows["v"]


@pytest.mark.parametrize("name", fast("lbfgsb", "lm")[:4])
def test_non_finite_trials_do_not_lose_the_answer(name):
    problem = sf.Problem(sf.Objective({"wall": sf.residual_term(wall, {"v": np.full(50, 3.0)})}), np.array(-40.0))
    result = sf.fit(problem, name, progress=False)
    assert np.isfinite(result.value)
    assert float(result.params) == pytest.approx(1.9, abs=1e-3)


def test_best_finite_point_is_kept_when_a_run_breaks():
    def cliff(p):
        return jnp.where(p > -1, (p + 2) ** 2, jnp.nan)

    problem = sf.Problem(sf.Objective({"cliff": sf.penalty(cliff)}), np.array(1.0))
    result = sf.fit(problem, "sgd", learning_rate=0.15, maxiter=100, progress=False)
    assert result.status is sf.Status.NONFINITE and not result.success
    assert np.isfinite(result.value) and -1 < float(result.params) < 1


@pytest.mark.parametrize("name", fast("lbfgs", "lm"))
def test_nan_at_the_start_is_an_error_that_names_the_cause(name):
    def root(p, rows):
        return jnp.sqrt(p["a"] - 1.0) * rows["v"] + p["b"]

    problem = sf.Problem(sf.Objective({"root": sf.residual_term(root, {"v": np.ones(4)})}), {"a": 1.0, "b": 1.0})
    with pytest.raises(sf.NonFiniteError, match="'root'"):
        sf.fit(problem, name, progress=False)
    with pytest.raises(sf.NonFiniteError, match="with respect to a"):
        sf.fit(problem, name, certify=False, progress=False)


@pytest.mark.parametrize(
    ("solver", "options", "message"),
    [
        ("lbfgz", {}, "Did you mean 'lbfgs'"),
        ("lbfgs", {"max_iter": 3}, "Did you mean 'maxiter'"),
        ("adam", {"learningrate": 3}, "Did you mean 'learning_rate'"),
        ("adam", {"momentum": 0.9}, "momentum"),
        ("lbfgs", {"maxiter": 0}, "at least 1"),
        ("lbfgs", {"gtol": -1.0}, "gtol"),
        (sf.LBFGS(), {"maxiter": 5}, "Set them on the object"),
        (3, {}, "Give a name"),
        ("adam", {"batch": 1000}, "211 rows"),
    ],
)
def test_bad_options_are_refused_before_work(solver, options, message):
    with pytest.raises((TypeError, ValueError), match=message):
        sf.fit(least_squares_problem(), solver, **options)


def test_what_cannot_be_combined_is_refused():
    import optimistix

    with pytest.raises(ValueError, match="does not support bounds.*Interval"):
        sf.fit(least_squares_problem(bounds={"a": (0, 5)}), optimistix.BFGS(1e-6, 1e-6))
    with pytest.raises(ValueError, match="'noisy' draws new random numbers.*freeze"):
        sf.fit(stochastic_problem(), "lbfgs")
    with pytest.raises(TypeError, match="'valley'"):
        sf.fit(penalty_problem(), "lm")
    with pytest.raises(ValueError, match="no callback"):
        sf.fit(least_squares_problem(), optimistix.BFGS(1e-6, 1e-6), callback=print)
    with pytest.raises(TypeError, match="needs a Problem"):
        sf.fit(least_squares_problem().objective)


def test_frozen_stochastic_problem_fits_with_any_solver():
    import jax

    problem = stochastic_problem()
    frozen = problem.replace(objective=problem.objective.freeze(jax.random.key(1)))
    assert sf.fit(frozen, "lbfgs", progress=False).success


@pytest.mark.parametrize("name", fast("lbfgsb", "lm", "adam"))
def test_a_fit_traces_the_model_a_bounded_number_of_times(name):
    traces = []

    def counted(p, rows):
        traces.append(1)
        return decay_residual(p, rows)

    def problem(seed):
        rows = {**DECAY, "y": DECAY["y"] + 0.01 * np.random.default_rng(seed).standard_normal(len(DECAY["y"]))}
        return sf.Problem(sf.Objective({"data": sf.residual_term(counted, rows)}), {"a": 1.0, "tau": 1.0, "c": 0.2})

    sf.fit(problem(0), name, maxiter=20, progress=False)
    first = len(traces)
    sf.fit(problem(1), name, maxiter=25, progress=False)
    again = len(traces) - first
    assert first <= 18  # those of the certificate are compiled beside the search, from traces of their own
    assert again <= 3  # the shape check of a new Problem, never a compilation, also with another limit


def test_progress_lines(capsys, monkeypatch):
    from shardfit.io import progress

    monkeypatch.setattr(progress, "PLAIN_SECONDS", 0.0)
    sf.fit(least_squares_problem(), "lbfgs", maxiter=5)
    assert "decay: step" in capsys.readouterr().err
    assert progress.duration(3725) == "1 h 2 min" and progress.duration(5) == "5 s"


def test_both_precisions_of_a_model_that_closes_over_an_array():
    """jax itself fails here: a loop's NumPy constant is remembered in the type of the first precision."""
    import jax

    grid = np.linspace(-2, 2, 7)

    def share(p, rows):
        return jax.nn.sigmoid((grid - p - rows["v"][:, None]) / 0.3)

    term = sf.statistic_term(share, {"v": np.linspace(-1, 1, 50)}, loss=lambda t: jnp.sum((t - 20) ** 2), chunk=16)
    values = [
        sf.fit(sf.Problem(sf.Objective({"share": term}), 0.3, precision=p), "lbfgs", progress=False).value
        for p in ("float64", "float32", "float64", "float32")
    ]
    np.testing.assert_allclose(values, values[0], rtol=1e-4)


def test_ftol_of_first_order_methods_compares_two_values():
    result = sf.fit(least_squares_problem(), "adam", ftol=1e-7, maxiter=3000, progress=False)
    assert result.status is sf.Status.CONVERGED_VALUE and result.steps > 10


def test_patience_looks_back_over_evaluations():
    """It stops at the first evaluation before which the last ones brought too little, line-search trials included."""
    patience, ptol = 7, 1e-3
    options = {"ftol": 0.0, "gtol": 0.0, "patience": patience, "ptol": ptol, "progress": False}
    options |= {"x_scale": 1.0}
    result = sf.fit(ill_scaled(), "lbfgs", **options)
    assert result.status is sf.Status.CONVERGED_PROGRESS and result.success
    values = result.history["value"]
    little = values[:-patience] - values[patience:] <= ptol * np.abs(values[patience:])
    assert little[-1] and not little[:-1].any()
    assert "patience=7" in result.solver
    with pytest.raises(ValueError, match="patience=-1 must be at least 0"):
        sf.fit(ill_scaled(), "lbfgs", patience=-1)


def ill_scaled():
    rates = np.geomspace(1e-3, 1.0, 12)
    term = sf.residual_term(lambda p, rows: rows["rate"] @ p - 1.0, {"rate": rates[:, None] * np.eye(12)})
    small = sf.penalty(lambda p: jnp.sum(p**2), weight=1e-4)
    return sf.Problem(sf.Objective({"data": term, "small": small}), np.zeros(12))


def test_a_large_state_is_handed_over_seldom():
    """Copying it takes as long as some steps: a segment is several times longer, and no longer than it must be."""
    from shardfit.solve.loop import ticks_ahead

    assert ticks_ahead(1, 0.25, 0.0, 512) == 1 and ticks_ahead(100, 0.05, 0.0, 512) == 500
    assert 5 <= ticks_ahead(1, 0.25, 0.15, 512) <= 6 and 5 <= ticks_ahead(6, 0.75, 0.15, 512) <= 6
