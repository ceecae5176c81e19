"""Mini-batches and first-order steps: how they end, and what they report."""

import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax import monitoring

import shardfit as sf
from tests.solve.cases import least_squares_problem, penalty_problem

ROWS = {"v": np.random.default_rng(3).normal(1.5, 1.0, 200)}


def noisy(p, rows, key):
    import jax

    return (p - rows["v"]) ** 2 + 0.1 * jax.random.normal(key) * p


def noisy_problem():
    term = sf.statistic_term(noisy, ROWS, stochastic=True, weight=1 / 200)
    return sf.Problem(sf.Objective({"noisy": term}), np.array(0.0))


def test_one_step_moves_the_parameters():
    problem = penalty_problem()
    result = sf.fit(problem, "sgd", maxiter=1, learning_rate=1e-4, progress=False)
    gradient = np.asarray(problem.objective.value_and_grad(problem.x0)[1])
    assert result.steps == 1 and result.evaluations == 2
    np.testing.assert_allclose(result.params, problem.x0 - 1e-4 * gradient, rtol=1e-12)
    assert result.value == pytest.approx(float(problem.objective.value(result.params)), rel=1e-12)


def test_batches_of_a_stochastic_term_return_their_result():
    result = sf.fit(noisy_problem(), "adam", batch=50, maxiter=150, learning_rate=0.05, progress=False)
    assert result.steps == 150 and abs(float(result.params) - 1.5) < 0.3
    assert np.isfinite(result.value)


def test_the_value_after_batches_stands_for_all_rows_that_a_part_stands_for():
    problem = least_squares_problem()
    part = problem.replace(objective=problem.objective.take(lambda term, n: np.arange(0, n, 4)))
    whole = sf.fit(part, "adam", maxiter=3, progress=False)
    batched = sf.fit(part, "adam", maxiter=3, batch=20, progress=False)
    value = float(part.objective.value(batched.params))
    assert batched.value == pytest.approx(value, rel=1e-12)
    assert batched.value == pytest.approx(whole.value, rel=0.05)


def test_batches_and_devices_draw_the_same_rows_at_every_tick():
    options = {"maxiter": 20, "batch": 30, "seed": 5, "progress": False}
    one, four = (sf.fit(least_squares_problem(), "adam", mesh=m, **options) for m in (None, sf.mesh(rows=4)))
    np.testing.assert_allclose(one.history["value"], four.history["value"], rtol=1e-10)
    assert len(np.unique(one.history["value"])) == 21


@pytest.mark.parametrize("kind", ["optax", "optimistix"])
def test_a_fresh_but_equal_solver_object_compiles_nothing(kind):
    import optimistix

    compilations = []
    monitoring.register_event_duration_secs_listener(
        lambda name, *_, **__: compilations.append(name) if "backend_compile" in name else None
    )

    def model(p, rows):
        return p[0] * jnp.exp(-p[1] * rows["t"]) - rows["y"]

    t = np.linspace(0, 3, 40)
    problem = sf.Problem(
        sf.Objective({"d": sf.residual_term(model, {"t": t, "y": np.exp(-t)})}), x0=np.array([0.5, 0.5])
    )
    make = {
        "optax": lambda rate: optax.chain(optax.clip(1.0), optax.adam(optax.linear_schedule(rate, 0.0, 50))),
        "optimistix": lambda rate: optimistix.LevenbergMarquardt(rtol=rate * 1e-6, atol=rate * 1e-6),
    }[kind]
    first = sf.fit(problem, make(0.1), maxiter=40, progress=False)
    before = len(compilations)
    again = sf.fit(problem, make(0.1), maxiter=40, progress=False)
    assert before and len(compilations) == before
    assert again.value == first.value
    other = sf.fit(problem, make(1e4), maxiter=40, progress=False)
    assert other.value != first.value  # another number is another solver
