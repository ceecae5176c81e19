"""Shards in slots: each finds what its own objective has, on any mesh."""

import jax.numpy as jnp
import numpy as np
import pytest

import shardfit
from shardfit.core.objective import Objective
from shardfit.core.precision import arithmetic
from shardfit.core.problem import Problem
from shardfit.core.term_makers import penalty, residual_term
from shardfit.sampling.chains.nuts import NUTS
from shardfit.sampling.shards.splitting import Shards
from shardfit.solve.lbfgs import LBFGS
from shardfit.surveys.engine import Engine
from tests.sampling.shard_cases import decay

N, K = 23, 5
DRAW = np.random.default_rng(3)
A = DRAW.normal(size=(N, 2))
Y = A @ [1.0, -2.0] + 0.3 * DRAW.normal(size=N)
PRIOR = 0.5


def residual(p, rows):
    return rows["A"] @ p["w"] - rows["y"]


@pytest.fixture(scope="module")
def problem():
    objective = Objective(
        {
            "data": residual_term(residual, {"A": A, "y": Y}, chunk=3),
            "ridge": penalty(lambda p: 0.5 * (p["w"] ** 2).sum(), weight=PRIOR),
        }
    )
    return Problem(objective, {"w": np.zeros(2)})


def solution(part):
    """Return the minimum of a shard's objective by linear algebra."""
    term = part.terms[0]
    a, y = np.asarray(term.rows["A"])[: term.n_rows], np.asarray(term.rows["y"])[: term.n_rows]
    return np.linalg.solve(a.T @ a + PRIOR / K * np.eye(2), a.T @ y)


@pytest.mark.parametrize(("rows", "runs"), [(None, None), (3, 2)])
def test_every_shard_is_fitted_to_its_own_rows(problem, rows, runs):
    mesh = None if rows is None else shardfit.mesh(rows, runs)
    parts = tuple(problem.objective.split(K))
    shards = Shards(problem, parts, problem.z0(), rows or 1)
    ended = [p for batch in Engine(shards, LBFGS(), 2, mesh).run(shards.points()) for p in batch]
    assert sorted(point.id for point in ended) == list(range(K))
    for point in ended:
        np.testing.assert_allclose(point.z, solution(parts[point.id]), rtol=1e-6)


def test_densities_of_shards_multiply_to_the_whole():
    """Prior and Jacobian are shared among them, in coordinates that are not the parameters."""
    whole, z = decay(), np.array([[0.3], [1.4]])
    with arithmetic("float64"):
        value, slope = NUTS(chains=2).evaluate(whole.space, whole.objective, jnp.asarray(z), None)
        shard = NUTS(chains=2, temper=1 / K)
        found = [shard.evaluate(whole.space, part, jnp.asarray(z), None) for part in whole.objective.split(K)]
    np.testing.assert_allclose(np.sum([v for v, _ in found], axis=0), value, rtol=1e-12)
    np.testing.assert_allclose(np.sum([g for _, g in found], axis=0), slope, rtol=1e-10)


def test_own_starts_and_some_of_the_shards(problem):
    parts = tuple(problem.objective.split(K))
    starts = np.stack([solution(part) for part in parts])
    shards = Shards(problem, parts, starts)
    ended = [p for batch in Engine(shards, LBFGS(), 2).run(shards.points([3, 1])) for p in batch]
    assert {point.id: point.steps for point in ended} == {1: 0, 3: 0}


def test_a_mesh_that_it_was_not_made_for(problem):
    shards = Shards(problem, tuple(problem.objective.split(K)), problem.z0())
    with pytest.raises(ValueError, match="made for 1 devices per shard, but the mesh has 2"):
        list(Engine(shards, LBFGS(), 2, shardfit.mesh(2, 1)).run(shards.points()))
