"""Reference posteriors of posteriordb: densities against scipy, draws against the reference's moments."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.integrate import solve_ivp

import shardfit as sf
from benchmarks.problems import posteriordb
from benchmarks.problems.densities import potential
from shardfit import data
from shardfit.sampling.quality.diagnostics import ess_bulk, mcse_mean, rhat

POSTERIORS = posteriordb.load()
SHORT = {name.partition("-")[0]: name for name in POSTERIORS}
QUICKEST = ("eight_schools", "kidiq")
LATER = [name if name in QUICKEST else pytest.param(name, marks=pytest.mark.slow) for name in SHORT]


def eight_schools(p, d):
    likelihood = stats.norm.logpdf(d["y"], p["mu"] + p["tau"] * p["z"], d["sigma"]).sum()
    prior = stats.norm.logpdf(p["mu"], 0, 5) + stats.cauchy.logpdf(p["tau"], 0, 5) + stats.norm.logpdf(p["z"]).sum()
    return likelihood + prior


def kidiq(p, d):
    line = p["alpha"] + p["beta"] * np.array(d["mom_iq"])
    return stats.norm.logpdf(d["kid_score"], line, p["sigma"]).sum() + stats.cauchy.logpdf(p["sigma"], 0, 2.5)


def kilpisjarvi_mod(p, d):
    likelihood = stats.norm.logpdf(d["y"], p["alpha"] + p["beta"] * np.array(d["x"]), p["sigma"]).sum()
    alpha = stats.norm.logpdf(p["alpha"], d["pmualpha"], d["psalpha"])
    return likelihood + alpha + stats.norm.logpdf(p["beta"], d["pmubeta"], d["psbeta"])


def garch(p, d):
    """Density of mu, alpha0, alpha1 and the share: beta1 is flat, so its slope in the share counts."""
    variance, total = d["sigma1"] ** 2, 0.0
    beta1 = p["share"] * (1 - p["alpha1"])
    for y in d["y"]:
        total += stats.norm.logpdf(y, p["mu"], np.sqrt(variance))
        variance = p["alpha0"] + p["alpha1"] * (y - p["mu"]) ** 2 + beta1 * variance
    return total + np.log(1 - p["alpha1"])


def hudson_lynx_hare(p, d):
    a, b, c, e = p["theta"]
    slope = lambda _, w: [(a - b * w[1]) * w[0], (-c + e * w[0]) * w[1]]  # noqa: E731
    path = solve_ivp(slope, (0, 20), p["z_init"], "DOP853", d["ts"], rtol=1e-11, atol=1e-11).y.T
    likelihood = stats.lognorm.logpdf(d["y"], p["sigma"], scale=path).sum()
    likelihood += stats.lognorm.logpdf(d["y_init"], p["sigma"], scale=p["z_init"]).sum()
    prior = stats.norm.logpdf(p["theta"], [1, 0.05, 1, 0.05], [0.5, 0.05, 0.5, 0.05]).sum()
    prior += stats.lognorm.logpdf(p["sigma"], 1, scale=np.exp(-1)).sum()
    return likelihood + prior + stats.lognorm.logpdf(p["z_init"], 1, scale=10).sum()


def gp_pois_regr(p, d):
    x = np.array(d["x"])
    kernel = p["alpha"] ** 2 * np.exp(-((x[:, None] - x) ** 2) / (2 * p["rho"] ** 2)) + p["sigma"] * np.eye(len(x))
    prior = stats.gamma.logpdf(p["rho"], 25, scale=1 / 4) + stats.norm.logpdf(p["alpha"], 0, 2)
    return stats.multivariate_normal.logpdf(d["y"], cov=kernel) + prior + stats.norm.logpdf(p["sigma"], 0, 1)


ORACLES = {"eight_schools": eight_schools, "kidiq": kidiq, "garch": garch, "hudson_lynx_hare": hudson_lynx_hare}
ORACLES |= {"kilpisjarvi_mod": kilpisjarvi_mod, "gp_pois_regr": gp_pois_regr}


def near(problem, name, n):
    """Return n points (n, size) of z about a sixth of a coordinate from the start, or nearer where it is steep."""
    size = 0.01 if name == "kilpisjarvi_mod" else 0.15
    return problem.z0() + size * np.random.default_rng(5).standard_normal((n, problem.space.size))


@pytest.mark.parametrize("name", LATER)
def test_density_is_that_of_scipy_up_to_a_constant(name):
    known = POSTERIORS[SHORT[name]]
    problem = known.problem.unconstrained()
    with jax.enable_x64(True):
        points = [problem.space.host_params(z) for z in near(problem, name, 6)]
        ours = np.array([float(problem.objective.value(params)) for params in points])
    theirs = np.array([-ORACLES[name](params, known.data) for params in points])
    # Runge and Kutta's steps are the only approximation, at points far from the mode
    np.testing.assert_allclose(np.diff(ours), np.diff(theirs), rtol=1e-9, atol=2e-4 if "lynx" in name else 1e-8)


@pytest.mark.parametrize("name", LATER)
def test_gradient_is_that_of_finite_differences(name):
    problem = POSTERIORS[SHORT[name]].problem.unconstrained()
    with jax.enable_x64(True):
        density = jax.jit(potential(problem))
        z = jnp.asarray(near(problem, name, 1)[0])
        gradient = np.asarray(jax.grad(density)(z))
        step = 1e-5 * np.eye(len(z))
        different = np.array([float(density(z + h) - density(z - h)) / 2e-5 for h in step])
    np.testing.assert_allclose(gradient, different, rtol=1e-5, atol=1e-5 * np.abs(gradient).max())


def test_every_number_of_the_reference_is_compared():
    facts = json.loads((data.folder("posteriordb") / "summaries.json").read_text())
    assert facts.keys() == POSTERIORS.keys()
    for known in POSTERIORS.values():
        params = {name: np.broadcast_to(leaf, (2, 3, *np.shape(leaf))) for name, leaf in known.problem.x0.items()}
        assert known.numbers(params).keys() == known.moments.keys()


DRAWS = {"eight_schools": 1500}  # 1000 of each chain suffice for the others


SEEDS = [4, pytest.param(5, marks=pytest.mark.slow), pytest.param(6, marks=pytest.mark.slow)]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", LATER)
def test_draws_have_the_moments_of_the_reference(name, seed):
    known = POSTERIORS[SHORT[name]]
    found = sf.sample(known.problem, chains=4, draws=DRAWS.get(name, 1000), seed=seed, progress=False)
    numbers = known.numbers(found.draws)
    draws = np.stack([numbers[label] for label in known.moments], -1)
    mean, sd, error = (np.array([m[key] for m in known.moments.values()]) for key in ("mean", "sd", "mcse_mean"))
    assert np.all(np.abs(draws.mean((0, 1)) - mean) < 4 * np.hypot(error, mcse_mean(draws)))
    np.testing.assert_allclose(draws.std((0, 1)), sd, rtol=0.1)
    assert rhat(draws).max() <= 1.01
    assert min(ess_bulk(draws).min(), ess_bulk(found.z).min()) >= 1000
    assert found.stats["diverging"].mean() < 0.01
