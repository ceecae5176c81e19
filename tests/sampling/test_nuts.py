"""Chains on densities whose moments are known, on meshes, and from starts that are no good."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shardfit import Objective, Problem, mesh, penalty, residual_term
from shardfit.core.precision import arithmetic
from shardfit.core.status import Status
from shardfit.sampling.nuts import NUTS
from shardfit.solve import loop


def run(problem, solver, seed=0, given=None, on=None, ticks=512):
    """Return the payload of a run to its end, and its last state."""
    with arithmetic(problem.precision):
        objective = problem.objective.place(on)
        now = loop.start(solver, jnp.asarray(problem.z0()), None, None, jax.random.key(seed), given)
        now = loop.replicate(now, on)
        while int(now.state.status) == Status.RUNNING.code:
            now, _ = loop.advance(solver, problem.space, objective, now, None, ticks, np.iinfo(np.int32).max)
        return {name: np.asarray(leaf) for name, leaf in solver.payload(now.state).items()}, now.state


def gaussian(n, condition, seed=0):
    """Return a problem with a normal posterior around 1, and its covariance."""
    rng = np.random.default_rng(seed)
    basis, _ = np.linalg.qr(rng.standard_normal((n, n)))
    precision = basis @ np.diag(np.geomspace(1, condition, n)) @ basis.T
    rows = {"a": np.linalg.cholesky(precision).T}
    objective = Objective({"data": residual_term(lambda x, rows: rows["a"] @ (x - 1), rows)})
    return Problem(objective, np.zeros(n)), np.linalg.inv(precision)


def test_moments_of_a_gaussian():
    """Mean, variance and correlations of a correlated normal density; every statistic of a draw is in its range."""
    problem, covariance = gaussian(6, 1e3)
    solver = NUTS(chains=8, warmup=100, draws=400)
    drawn, state = run(problem, solver)
    z = drawn["z"].reshape(-1, 6)
    sd = np.sqrt(np.diag(covariance))
    assert np.max(np.abs(z.mean(0) - 1) / sd) < 0.08  # 3200 draws, about half of them effective
    np.testing.assert_allclose(np.cov((z / sd).T), covariance / np.outer(sd, sd), atol=0.12)
    assert drawn["z"].shape == (8, 400, 6)
    assert not drawn["diverging"].any()
    assert np.all((drawn["accept"] > 0) & (drawn["accept"] <= 1))
    assert 0.7 < drawn["accept"].mean() < 0.95
    assert np.all(drawn["gradients"] < 2.0 ** (drawn["depth"] + 1))
    np.testing.assert_allclose(drawn["value"], _values(problem, drawn["z"]), rtol=1e-9, atol=1e-9)
    useful = drawn["gradients"].sum() + drawn["warmup_gradients"].sum()
    assert useful > 0.8 * 8 * int(state.tick)
    # whitened by its root, the covariance is the identity: gradients make the metric exact for a normal density
    white = np.linalg.solve(drawn["root"], np.linalg.cholesky(covariance))
    np.testing.assert_allclose(np.linalg.svd(white)[1], 1, rtol=0.5)


def _values(problem, z):
    a = np.asarray(problem.objective.terms[0].rows["a"])
    return 0.5 * np.sum(((z - 1) @ a.T) ** 2, -1)


def test_same_draws_however_cut_and_from_the_seed():
    """Segments do not change a number; another seed does."""
    problem, _ = gaussian(3, 10)
    solver = NUTS(chains=2, warmup=20, draws=30)
    whole, pieces, other = (run(problem, solver, seed, ticks=n)[0]["z"] for seed, n in ((0, 512), (0, 7), (1, 512)))
    np.testing.assert_array_equal(whole, pieces)
    assert not np.any(whole == other)


def test_rows_and_chains_over_devices():
    """On 2 x 2 devices, with chains that do not divide by them, the moments stay."""
    problem, covariance = gaussian(4, 100)
    drawn, _ = run(problem, NUTS(chains=3, warmup=100, draws=300), on=mesh(rows=2, runs=2))
    z = drawn["z"].reshape(-1, 4)
    assert np.max(np.abs(z.mean(0) - 1) / np.sqrt(np.diag(covariance))) < 0.15
    np.testing.assert_allclose(z.var(0) / np.diag(covariance), 1, atol=0.25)


def test_transforms_and_given_covariance():
    """A positive parameter with a gamma density: the Jacobian counts, and its power can be chosen."""
    objective = Objective({"gamma": penalty(lambda x: x["a"] - 2 * jnp.log(x["a"]))})  # shape 3
    problem = Problem(objective, {"a": 2.0}, transforms={"a": "log"})
    given = {"root": np.array([[0.6]]), "spread": 1.5}
    x = np.exp(run(problem, NUTS(chains=8, warmup=60, draws=500), given=given)[0]["z"])
    assert abs(x.mean() - 3) < 0.15
    assert abs(x.var() - 3) < 0.5
    half = np.exp(run(problem, NUTS(chains=8, warmup=60, draws=500, temper=2.0), given=given)[0]["z"])
    assert abs(half.mean() - 4) < 0.2  # one more power of x


def test_starts_without_a_density_move_to_the_centre():
    """Chains that begin outside the domain are brought in; if the centre itself is outside, the run says so."""
    narrow = Objective({"wall": penalty(lambda x: jnp.where(jnp.abs(x) < 0.1, 50 * x**2, jnp.nan))})
    drawn, state = run(Problem(narrow, 0.0), NUTS(chains=4, warmup=50, draws=50))
    assert Status.of(state.status) is Status.COMPLETED
    assert np.all(np.abs(drawn["z"]) < 0.1)
    nowhere = Objective({"wall": penalty(lambda x: jnp.where(x < -5, x**2, jnp.nan))})
    _, state = run(Problem(nowhere, 0.0), NUTS(chains=4, warmup=50, draws=50))
    assert Status.of(state.status) is Status.NONFINITE


@pytest.mark.parametrize(
    "wrong", [{"chains": 0}, {"warmup": 5}, {"draws": 0}, {"target_accept": 1.0}, {"temper": 0.0}, {"max_depth": 30}]
)
def test_options_out_of_range(wrong):
    """An option that cannot work is named."""
    with pytest.raises(ValueError, match=next(iter(wrong))):
        NUTS(**wrong)


def test_root_of_wrong_shape():
    """A covariance factor of another size is refused before anything runs."""
    problem, _ = gaussian(3, 10)
    with pytest.raises(ValueError, match=r"root \(2, 2\) must be \(3,\)"):
        run(problem, NUTS(), given={"root": np.eye(2)})
