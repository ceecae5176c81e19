"""L-BFGS: its direction against the two-loop recursion, its state along a kink, and what its loop brings along."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shardfit as sf
from shardfit.core.work import size_of
from shardfit.solve import loop
from shardfit.solve.base import ValueAndGrad
from shardfit.solve.lbfgs import LBFGS, MAX_TRIALS, _direction, _store
from shardfit.solve.registry import as_solver
from tests.solve.cases import least_squares_problem, penalty_problem


def two_loops(pairs, gradient):
    """Nocedal's recursion; pairs from old to young."""
    q, shares = gradient.copy(), []
    for s, y in reversed(pairs):
        shares.append(s @ q / (s @ y))
        q -= shares[-1] * y
    q *= pairs[-1][0] @ pairs[-1][1] / (pairs[-1][1] @ pairs[-1][1]) if pairs else 1
    for (s, y), share in zip(pairs, reversed(shares), strict=True):
        q += (share - y @ q / (s @ y)) * s
    return -q


@pytest.mark.usefixtures("behind_doors")
@pytest.mark.parametrize("memory", [1, 3, 10])
def test_direction_is_that_of_the_two_loop_recursion(memory):
    """With more steps than places, steps that are not wanted, and a pair of negative curvature among them."""
    rng = np.random.default_rng(memory)
    hessian = np.diag(rng.uniform(0.1, 10, 12))
    store, aim = jax.jit(_store), jax.jit(_direction)
    with jax.enable_x64(True):
        gradient = rng.normal(size=12)
        pairs, kept = LBFGS(memory=memory).init(jnp.zeros(12), None, None).pairs, []
        for k in range(8):
            s = rng.normal(size=12)
            wanted, y = k != 3, hessian @ s * (-1 if k == 5 else 1)
            if not wanted:
                s, y = 0 * s, 0 * y
            gradient = gradient + y
            pairs = store(pairs, s, y, gradient, wanted)
            kept = (kept + ([(s, y)] if s @ y > 0 else []))[-memory:]
            found, slope = aim(pairs, gradient, np.linalg.norm(gradient))
            expected = two_loops(kept, gradient)
            np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9 * np.abs(expected).max())
            np.testing.assert_allclose(slope, expected @ gradient, rtol=1e-9)


def test_without_pairs_the_direction_has_unit_length():
    with jax.enable_x64(True):
        pairs = LBFGS(memory=2).init(jnp.zeros(3), None, None).pairs
        found, slope = _direction(pairs, jnp.array([3.0, 0.0, 4.0]), 5.0)
    np.testing.assert_allclose(found, [-0.6, 0, -0.8])
    assert float(slope) == -5


@pytest.mark.usefixtures("behind_doors")
def test_the_state_is_of_its_point_along_a_kink():
    """A search that ends in a kink goes back to its best trial, and evaluates it again."""

    def value(x):
        return jnp.abs(x[0] - 0.3) + 0.01 * x[1] ** 2

    solver = LBFGS(memory=3, gtol=0.0, ftol=0.0)
    with jax.enable_x64(True):
        evaluate = jax.jit(jax.value_and_grad(value))
        tell = jax.jit(solver.tell)
        state, returned = solver.init(jnp.array([1.0, 1.0]), None, None), 0
        for _ in range(120):
            state = tell(state, ValueAndGrad(*evaluate(solver.ask(state))))
            there = evaluate(state.x)
            np.testing.assert_allclose(state.value, there[0], rtol=1e-15)
            np.testing.assert_allclose(state.gradient, there[1], rtol=1e-15)
            returned += int(state.trials) > MAX_TRIALS
    assert returned
    assert float(state.value) < 1e-2


@pytest.mark.parametrize("make", [least_squares_problem, penalty_problem])
def test_parts_come_with_the_loop(make):
    problem = make()
    result = sf.fit(problem, "lbfgs", progress=False, certify=False, maxiter=7)
    again = sf.fit(problem, "lbfgs", progress=False, maxiter=7)
    there = problem.objective.parts(result.params)
    assert list(result.parts) == list(there) == list(again.parts)
    for name, part in there.items():
        np.testing.assert_allclose([result.parts[name], again.parts[name]], float(part), rtol=1e-12)


@pytest.mark.usefixtures("behind_doors")
def test_short_runs_on_little_data_are_compiled_sooner():
    def chosen(rows, solver):
        term = sf.residual_term(lambda p, r: p["a"] * r["x"] - 1, {"x": np.ones((rows, 64))})
        objective = sf.Objective({"line": term})
        with jax.enable_x64(True):
            program, z = solver.program(), np.ones(1)
            space = sf.Problem(objective, {"a": 1.0}).space
            run = loop.start(program, z, None, None, jax.random.key(0), None)
            return loop._compiled(program, space, objective, run, None, 0, 0).advance

    assert chosen(100, LBFGS()) is loop._quick_advance
    assert chosen(100_000, LBFGS()) is loop.advance
    assert chosen(100, as_solver("sgd")) is loop.advance


def test_work_counts_the_rounds_of_a_scan():
    def rounds(x):
        return jax.lax.scan(lambda c, _: (c * 2.0, None), x, None, length=10)[0]

    assert 300 <= size_of(jax.make_jaxpr(rounds)(np.ones(30)).jaxpr).work < 700
