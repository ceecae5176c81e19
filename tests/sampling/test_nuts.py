"""Chains on densities whose moments are known, on meshes, and from starts that are no good."""

import json
from importlib.resources import files

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shardfit import Objective, Problem, mesh, penalty, residual_term
from shardfit.core.precision import arithmetic
from shardfit.core.status import Status
from shardfit.sampling.chains.nuts import NUTS
from shardfit.sampling.quality.diagnostics import ess_bulk, rhat
from shardfit.solve import loop

QUICK = NUTS(chains=4, warmup=60, draws=250)
QUICK16 = NUTS(chains=16, warmup=100, draws=50)


def run(problem, solver=QUICK, seed=0, given=None, on=None, ticks=512):
    """Return the payload of a run to its end, and its last state."""
    with arithmetic(problem.precision):
        objective = problem.objective.place(on)
        now = loop.start(solver, jnp.asarray(problem.z0()), None, None, jax.random.key(seed), given)
        now = loop.replicate(now, on)
        while int(now.state.status) == Status.RUNNING.code:
            now, _ = loop.advance(solver, problem.space, objective, now, None, ticks, np.iinfo(np.int32).max)
        return {name: np.asarray(leaf) for name, leaf in solver.payload(now.state).items()}, now.state


def around_one(x, rows):
    return rows["a"] @ (x - 1)


def gaussian(n, condition):
    """Return a problem with a normal posterior around 1, and its covariance."""
    basis, _ = np.linalg.qr(np.random.default_rng(0).standard_normal((n, n)))
    precision = basis @ np.diag(np.geomspace(1, condition, n)) @ basis.T
    objective = Objective({"data": residual_term(around_one, {"a": np.linalg.cholesky(precision).T})})
    return Problem(objective, np.zeros(n)), np.linalg.inv(precision)


def require_moments(z, mean, covariance, within):
    """Assert mean and covariance, both in standard deviations."""
    z, sd = z.reshape(-1, len(mean)), np.sqrt(np.diag(covariance))
    np.testing.assert_allclose((z.mean(0) - mean) / sd, 0, atol=within)
    np.testing.assert_allclose(np.cov((z / sd).T), covariance / np.outer(sd, sd), atol=2 * within)


def test_a_gaussian():
    """Moments of a correlated normal density, statistics of draws, and the same draws however the run is cut."""
    problem, covariance = gaussian(4, 1e3)
    drawn, state = run(problem)
    assert drawn["z"].shape == (4, 250, 4)
    require_moments(drawn["z"], np.ones(4), covariance, 0.15)
    assert not drawn["diverging"].any()
    assert np.all((drawn["accept"] > 0) & (drawn["accept"] <= 1))
    assert 0.65 < drawn["accept"].mean() < 0.95
    assert np.all(drawn["gradients"] < 2.0 ** (drawn["depth"] + 1))
    a = np.asarray(problem.objective.terms[0].rows["a"])
    np.testing.assert_allclose(drawn["value"], 0.5 * np.sum(((drawn["z"] - 1) @ a.T) ** 2, -1), rtol=1e-9, atol=1e-9)
    assert np.all(drawn["energy"] > 0)
    useful = drawn["gradients"].sum() + drawn["warmup_gradients"].sum()
    assert 0.8 < useful / (4 * int(state.tick)) <= 1
    # gradients make the metric of a normal density exact: whitened by its root, the covariance is the identity
    white = np.linalg.solve(np.asarray(state.pool.metric.root), np.linalg.cholesky(covariance))
    np.testing.assert_allclose(np.linalg.svd(white)[1], 1, rtol=0.3)

    np.testing.assert_array_equal(run(problem, ticks=7)[0]["z"], drawn["z"])
    assert not np.any(run(problem, seed=1)[0]["z"] == drawn["z"])


def test_rows_and_chains_over_devices():
    """On 2 x 2 devices, with chains that do not divide by them, the moments stay."""
    problem, covariance = gaussian(4, 1e3)
    drawn, _ = run(problem, NUTS(chains=3, warmup=60, draws=300), on=mesh(rows=2, runs=2))
    require_moments(drawn["z"], np.ones(4), covariance, 0.18)


def gamma(x):
    return x["a"] - 2 * jnp.log(x["a"])  # shape 3 without the Jacobian


def test_transforms_and_given_covariance():
    """A positive parameter: the Jacobian counts with its power, so a gamma density's shape rises by one."""
    problem = Problem(Objective({"gamma": penalty(gamma)}), {"a": 2.0}, transforms={"a": "log"})
    solver = NUTS(chains=8, warmup=60, draws=500, temper=2.0)
    x = np.exp(run(problem, solver, given={"root": np.array([[0.6]]), "spread": 1.5})[0]["z"])
    assert abs(x.mean() - 4) < 0.2
    assert abs(x.var() - 4) < 0.7


def narrow(x):
    return jnp.where(jnp.abs(x) < 0.1, 50 * x**2, jnp.nan)


def test_starts_without_a_density_move_to_the_centre():
    """Chains that begin outside the domain are brought in; if the centre itself is outside, the run says so."""
    objective, solver = Objective({"wall": penalty(narrow)}), NUTS(chains=4, warmup=50, draws=50)
    drawn, state = run(Problem(objective, 0.0), solver)
    assert Status.of(state.status) is Status.COMPLETED
    assert np.all(np.abs(drawn["z"]) < 0.1)
    _, state = run(Problem(objective, 5.0), solver)
    assert Status.of(state.status) is Status.NONFINITE


def walled(x):
    """A unit normal density that falls off steeply beyond six."""
    return 0.5 * jnp.sum(x**2) + 1e6 * jnp.sum(jnp.maximum(jnp.abs(x) - 6, 0) ** 2)


def test_a_chain_that_starts_badly_does_not_slow_the_others():
    """Few starts are where steps must be a thousand times shorter: they come away, and the step suits the density."""
    problem = Problem(Objective({"walled": penalty(walled)}), np.zeros(2))
    given = {"root": np.ones(2), "spread": 3.5}
    outside = []
    for seed in (0, 1, 2):
        begun = loop.start(QUICK16, jnp.asarray(problem.z0()), None, None, jax.random.key(seed), given)
        outside.append(int(np.sum(np.abs(begun.state.trees.vectors[0]).max(0) > 6.1)))
        drawn, _ = run(problem, QUICK16, seed=seed, given=given)
        assert drawn["step_size"].min() > 0.5
        assert drawn["gradients"].mean() < 12
        assert np.abs(drawn["z"].mean(1)).max() < 1.0
    assert min(outside) > 0 and max(outside) < 8, outside


@pytest.mark.slow
def test_an_ill_conditioned_gaussian():
    """50 dimensions, condition 1e4, from a start that knows nothing."""
    problem, covariance = gaussian(50, 1e4)
    drawn, _ = run(problem, NUTS(chains=8))
    require_moments(drawn["z"], np.ones(50), covariance, 0.1)
    assert np.max(rhat(drawn["z"])) < 1.01
    assert np.min(ess_bulk(drawn["z"])) > 2000
    assert drawn["warmup_gradients"].mean() < 3500


def scaled(x, rows):
    return (x - 1) / rows["sd"]


@pytest.mark.slow
def test_many_coordinates():
    """Beyond what a dense metric is for, scales are found one by one."""
    sd = np.geomspace(0.1, 10, 250)
    problem = Problem(Objective({"data": residual_term(scaled, {"sd": sd})}), np.zeros(250))
    drawn, state = run(problem, NUTS(warmup=200))
    require_moments(drawn["z"], np.ones(250), np.diag(sd**2), 0.15)
    np.testing.assert_allclose(state.pool.metric.scales(), sd, rtol=0.01)


@pytest.mark.slow
def test_single_precision():
    """Draws have the problem's precision, and the moments of its density."""
    problem, covariance = gaussian(4, 100)
    drawn, _ = run(problem.replace(precision="float32"), NUTS(chains=8))
    assert drawn["z"].dtype == np.float32
    require_moments(drawn["z"], np.ones(4), covariance, 0.1)


def bent(x):
    return 0.5 * (x[0] ** 2 + (x[1] - x[0] ** 2) ** 2)


@pytest.mark.slow
def test_a_bent_density():
    """A normal density bent to a crescent: x1 has mean 1 and variance 3, uncorrelated with x0."""
    drawn, _ = run(Problem(Objective({"bent": penalty(bent)}), np.zeros(2)), NUTS(chains=16, draws=2000))
    require_moments(drawn["z"], np.array([0.0, 1.0]), np.diag([1.0, 3.0]), 0.08)


@pytest.mark.slow
def test_eight_schools():
    """Means and standard deviations of posteriordb's reference draws."""
    folder = files("shardfit") / "data" / "posteriordb"
    data = json.loads((folder / "eight_schools.data.json").read_text())
    known = json.loads((folder / "summaries.json").read_text())["eight_schools-eight_schools_noncentered"]["parameters"]
    rows = {"y": np.array(data["y"], float), "sigma": np.array(data["sigma"], float), "j": np.arange(8)}

    def schools(x, rows):
        return (rows["y"] - x["mu"] - x["tau"] * x["z"][rows["j"]]) / rows["sigma"]

    def priors(x):
        return 0.5 * (x["mu"] / 5) ** 2 + jnp.log1p((x["tau"] / 5) ** 2) + 0.5 * jnp.sum(x["z"] ** 2)

    objective = Objective({"schools": residual_term(schools, rows), "priors": penalty(priors)})
    problem = Problem(objective, {"mu": 0.0, "tau": 1.0, "z": np.zeros(8)}, transforms={"tau": "log"})
    z = run(problem, NUTS(chains=8, draws=1500))[0]["z"]
    for name, draws in {"mu": z[..., 0], "tau": np.exp(z[..., 1])}.items():
        error = np.hypot(known[name]["mcse_mean"], draws.std() / np.sqrt(float(ess_bulk(draws[..., None])[0])))
        assert abs(draws.mean() - known[name]["mean"]) < 4 * error
        assert abs(draws.std() / known[name]["sd"] - 1) < 0.1


@pytest.mark.parametrize(
    "wrong", [{"chains": 0}, {"warmup": 5}, {"draws": 0}, {"target_accept": 1.0}, {"temper": 0.0}, {"max_depth": 30}]
)
def test_options_out_of_range(wrong):
    """An option that cannot work is named."""
    with pytest.raises(ValueError, match=next(iter(wrong))):
        NUTS(**wrong)


def test_root_of_wrong_shape():
    """A covariance factor of another size is refused before anything runs."""
    with pytest.raises(ValueError, match=r"root \(2, 2\) must be \(4,\)"):
        run(gaussian(4, 1e3)[0], given={"root": np.eye(2)})
