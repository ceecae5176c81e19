"""The Levenberg–Marquardt state machine by itself: fed with Grams from a plain Jacobian, without objective or loop."""

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import least_squares

import shardfit as sf
from benchmarks.problems import mgh, nist
from shardfit.core.gram import Gram
from shardfit.core.status import Status
from shardfit.solve.covariance import covariance
from shardfit.solve.lm import LM
from shardfit.solve.trust_region import factored_step, trust_step

TIGHT = LM(ftol=1e-20, gtol=1e-15, xtol=1e-15)
LIMIT = 2000
pytestmark = pytest.mark.usefixtures("behind_doors")


@pytest.fixture(autouse=True)
def float64():
    with jax.enable_x64(True):
        yield


def gram_of(residual, x, rows):
    r, jacobian = residual(x, rows), jax.jacfwd(residual)(x, rows)
    return Gram(0.5 * r @ r, jacobian.T @ r, jacobian.T @ jacobian)


@partial(jax.jit, static_argnums=(0, 1))
def solve(solver, residual, rows, x0, lower=None, upper=None):
    """Return (final state, evaluations)."""

    def tick(carry):
        state, ticks = carry
        return solver.tell(state, gram_of(residual, solver.ask(state), rows)), ticks + 1

    def running(carry):
        return (carry[0].status == Status.RUNNING.code) & (carry[1] < LIMIT)

    return jax.lax.while_loop(running, tick, (solver.init(x0, lower, upper), 0))


def converged(state) -> bool:
    return Status.of(state.status).converged


def assert_minimum(problem, state):
    assert problem.solved(2 * float(state.value)), (Status.of(state.status), 2 * float(state.value))


@pytest.mark.parametrize("name", ["rosenbrock", "brown_dennis", "osborne_2", "linear_rank_one"])
def test_reaches_known_minimum(name):
    problem = mgh.PROBLEMS[name]
    state, ticks = solve(LM(), problem.residual, problem.rows, jnp.asarray(problem.x0))
    assert_minimum(problem, state)
    assert converged(state)
    assert ticks < 200


@pytest.mark.slow
@pytest.mark.parametrize("problem", mgh.PROBLEMS.values(), ids=lambda p: p.name)
def test_reaches_every_known_minimum(problem):
    assert_minimum(problem, solve(LM(), problem.residual, problem.rows, jnp.asarray(problem.x0))[0])


@pytest.mark.parametrize("name", ["BoxBOD", "Lanczos3", "MGH17"])
def test_certified_digits_and_standard_errors(name):
    check_certified(nist.load()[name], least_digits=8)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Bennett5", "ENSO", "Gauss2", "Hahn1", "MGH09", "MGH10", "Rat43", "Thurber"])
def test_certified_digits_of_more_sets(name):
    check_certified(nist.load()[name], least_digits=6)


def check_certified(regression, least_digits):
    for start in regression.starts:
        state, _ = solve(TIGHT, regression.residual, regression.rows, jnp.asarray(start))
        assert regression.score(state.x) >= least_digits
        errors = covariance(state.matrix, regression.dof, state.value, scale=True)
        assert nist.lre(errors.stderr, regression.sd).min() >= 6


BOXES = {
    "inactive": ([-5, -5], [5, 5]),
    "upper active": ([-5, -5], [0.5, 5]),
    "lower active": ([1.5, -5], [5, 5]),
    "both active": ([-5, 1.5], [0.8, 5]),
    "half open": ([-np.inf, -np.inf], [np.inf, 0.3]),
}


@pytest.mark.parametrize("box", BOXES.values(), ids=BOXES.keys())
@pytest.mark.parametrize("name", ["rosenbrock", "jennrich_sampson"])
def test_bounds_agree_with_scipy(name, box):
    problem = mgh.PROBLEMS[name]
    lower, upper = np.array(box, float)
    x0 = np.clip(problem.x0, lower + 0.1, upper - 0.1)
    state, _ = solve(LM(), problem.residual, problem.rows, jnp.asarray(x0), jnp.asarray(lower), jnp.asarray(upper))
    assert np.all(state.x >= lower) and np.all(state.x <= upper)
    assert converged(state)
    residual, jacobian = compiled(problem.residual)
    found = least_squares(
        lambda x: np.asarray(residual(x, problem.rows)),
        x0,
        lambda x: np.asarray(jacobian(x, problem.rows)),
        bounds=(lower, upper),
        **dict.fromkeys(("ftol", "xtol", "gtol"), 1e-14),
    )
    # scipy stays inside the box by a hair: it may be worse by that much, never better by more
    assert float(state.value) <= found.cost * (1 + 1e-6) + 1e-10


@cache
def compiled(residual):
    return jax.jit(residual), jax.jit(jax.jacfwd(residual))


def test_bounds_in_many_dimensions():
    rng = np.random.default_rng(0)
    rows = {"a": rng.standard_normal((60, 12)), "y": 3 * rng.standard_normal(60)}
    lower, upper = -0.2 * np.ones(12), 0.1 * np.ones(12)
    state, ticks = solve(LM(), linear, rows, jnp.zeros(12), jnp.asarray(lower), jnp.asarray(upper))
    found = least_squares(lambda x: rows["a"] @ x - rows["y"], np.zeros(12), bounds=(lower, upper), gtol=1e-14)
    assert converged(state)
    assert ticks < 40
    np.testing.assert_allclose(state.value, found.cost, rtol=1e-8)


def linear(x, rows):
    return rows["a"] @ x - rows["y"]


def undefined_beyond_two(x, rows):
    """Return NaN where the first trial lands."""
    return jnp.where(x[0] > 2, jnp.nan, jnp.exp(5 * (x[0] - 1)) - rows["y"])


def test_nan_trials_shorten_the_step():
    rows = {"y": np.array([3.0, 3.1])}
    state, ticks = solve(LM(), undefined_beyond_two, rows, jnp.array([0.1]))
    assert converged(state)
    assert ticks > state.steps + 1, "no trial was rejected: the test tests nothing"
    np.testing.assert_allclose(state.x, 1 + np.log(3.05) / 5, rtol=1e-10)


def test_nan_at_start_is_reported():
    state, ticks = solve(LM(), undefined_beyond_two, {"y": np.ones(2)}, jnp.array([2.5]))
    assert Status.of(state.status) is Status.NONFINITE
    assert ticks == 1
    assert np.all(np.isfinite(state.x))


def test_vmap_equals_one_by_one():
    problem = mgh.PROBLEMS["kowalik_osborne"]
    starts = jnp.asarray(problem.x0) * jnp.array([[1.0], [1.1], [3.0]])
    one = partial(solve, LM(), problem.residual, problem.rows)
    together, ticks = jax.vmap(one)(starts)
    for i, start in enumerate(starts):
        alone, n = one(start)
        assert ticks[i] == n
        np.testing.assert_allclose(together.x[i], alone.x, rtol=1e-9)


def test_units_do_not_matter():
    """Powers of two rescale without rounding, so the runs are the same to the bit."""
    problem, units = mgh.PROBLEMS["osborne_1"], 2.0 ** np.array([20, -30, 5, 12, -9])
    scaled = lambda x, rows: problem.residual(x / units, rows)  # noqa: E731
    plain, ticks = solve(LM(), problem.residual, problem.rows, jnp.asarray(problem.x0))
    other, same_ticks = solve(LM(), scaled, problem.rows, jnp.asarray(problem.x0 * units))
    assert ticks == same_ticks
    np.testing.assert_allclose(other.x / units, plain.x, rtol=1e-9)


SINGLE = ["brown_dennis", "kowalik_osborne", "wood"]
MORE_SINGLE = [
    "bard",
    "freudenstein_roth",
    "gaussian",
    "jennrich_sampson",
    "meyer",
    "osborne_1",
    "osborne_2",
    "penalty_i",
]


@pytest.mark.parametrize("name", [*SINGLE, *(pytest.param(name, marks=pytest.mark.slow) for name in MORE_SINGLE)])
def test_float32_converges(name):
    """From many starts, so that no single rounding decides."""
    problem = mgh.PROBLEMS[name]
    factors = 1 + 1e-2 * np.random.default_rng(0).standard_normal((12, len(problem.x0)))
    with jax.enable_x64(False):
        starts = jnp.asarray(problem.x0 * factors, jnp.float32)
        state, ticks = jax.vmap(partial(solve, LM(), problem.residual, problem.rows))(starts)
    assert state.x.dtype == jnp.float32
    ends = [Status.of(code) for code in state.status]
    assert all(end.converged for end in ends), ends
    nearest = min(problem.minima, key=lambda least: abs(least - 2 * float(state.value[0])))
    np.testing.assert_allclose(2 * state.value, nearest, rtol=1e-2 if name == "meyer" else 1e-3, atol=1e-9)
    assert ticks.max() < 200


@pytest.mark.slow
def test_what_float32_cannot_reach_is_not_called_converged():
    problem = mgh.PROBLEMS["watson"]
    with jax.enable_x64(False):
        state, _ = solve(LM(), problem.residual, problem.rows, jnp.asarray(problem.x0, jnp.float32))
    assert 2 * state.value > 1.2 * problem.minima[0]
    assert Status.of(state.status) is Status.STALLED


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
@pytest.mark.parametrize("curvature", [-1.0, -1e6, 0.0])
def test_a_model_without_a_minimum_still_gives_a_step(dtype, curvature):
    """Downhill, and as far as the trust region lets it."""
    hessian = jnp.asarray([[curvature, 0.0], [0.0, 1e-3]], dtype)
    gradient, scale = jnp.asarray([1e-3, 1.0], dtype), jnp.ones(2, dtype)
    step, full, gain = trust_step(gradient, hessian, scale, jnp.asarray(1e-2, dtype), jnp.ones(2, bool))
    assert not full and (jnp.isinf(gain) or curvature == 0)
    assert gradient @ step < 0
    assert 0.5e-2 < jnp.linalg.norm(step) < 1.2e-2


def test_a_factor_gives_its_step_after_a_steep_start():
    """Scales remember the largest columns: that these are now smaller by many orders is no rounding."""
    root, along, free = jnp.array([[2.0, 1.0], [0.0, 1e-3]]), jnp.array([3.0, 1e-3]), jnp.ones(2, bool)
    for scale in (jnp.ones(2), jnp.full(2, 1e20)):
        step = factored_step(along, root, scale, jnp.asarray(1e30), free, (1e-15, 1e-15)).step
        np.testing.assert_allclose(step, jnp.linalg.solve(root, -along), rtol=1e-6)


def test_covariance_of_independent_columns():
    found = covariance(jnp.diag(jnp.array([4.0, 25.0])), 5, 10.0, scale=True)
    np.testing.assert_allclose(found.matrix, np.diag([1.0, 0.16]))
    assert found.rank == 2


@pytest.mark.parametrize("units", [1.0, 1e-12, 1e12])
def test_unidentified_parameters_have_infinite_errors(units):
    """Only the sum of the first two matters; the third is known, whatever its unit."""
    matrix = jnp.array([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 4.0]]) * jnp.outer(
        *2 * [jnp.array([1.0, units, 1.0])]
    )
    found = covariance(matrix, 5, 1.0, scale=False)
    assert found.rank == 2
    np.testing.assert_allclose(found.stderr, [np.inf, np.inf, 0.5])
    assert not np.isnan(found.matrix).any()


def test_data_of_few_digits_are_fitted_to_the_end():
    """Values of residuals near 1e-7 of the model's terms are rounding alone, steps below 1e-6 are not seen by them."""

    def hyperbola(xp, p, x):
        return p[3] + (p[1] - p[0]) / 2 * (x - p[2]) + (p[0] + p[1]) / 2 * xp.sqrt((x - p[2]) ** 2 + p[4] ** 2 / 4)

    x, truth = np.array([-32.0, -16, -8, 4, 4, 8, 16, 32]), np.array([-2.0, 0.4, -1.0, -5.0, 9.5])
    y = hyperbola(np, truth, x).astype(np.float32).astype(float)
    term = sf.residual_term(lambda p, r: hyperbola(jnp, p, r["x"]) - r["y"], {"x": x, "y": y})
    result = sf.fit(sf.Problem(sf.Objective({"d": term}), np.array([-2.5 / 3, 4 / 3, 1.0, -4.0, 0.5])), "lm")
    assert result.success, result.message
    np.testing.assert_allclose(result.params, truth, rtol=3e-6)
