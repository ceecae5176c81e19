"""NumPyro models as problems: densities against NumPyro's own, on devices, and what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shardfit as sf
from shardfit.core.precision import arithmetic

numpyro = pytest.importorskip("numpyro")
dist = pytest.importorskip("numpyro.distributions")

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 3))
ROWS = {"x": X, "y": X @ np.array([1.0, -2.0, 0.5]) + 0.3 * RNG.normal(size=60)}


def regression(x, y):
    slope = numpyro.sample("slope", dist.Normal(0.0, 2.0).expand([3]).to_event(1))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1.0))
    with numpyro.plate("data", x.shape[0]):
        numpyro.sample("obs", dist.Normal(x @ slope, sigma), obs=y)


def schools(y, sd):
    mu = numpyro.sample("mu", dist.Normal(0, 5))
    tau = numpyro.sample("tau", dist.HalfCauchy(5))
    share = numpyro.sample("share", dist.Dirichlet(jnp.ones(3)))
    with numpyro.plate("schools", y.shape[0]):
        theta = numpyro.sample("theta", dist.Normal(mu, tau))
        numpyro.sample("obs", dist.Normal(theta + share[0], sd), obs=y)


def potential(model, problem, z, args=(), kwargs=None):
    """-log density of NumPyro on our coordinates."""
    from numpyro.infer.util import log_density

    params = problem.space.unpack(z)
    return -log_density(model, args, kwargs or {}, params)[0]


@pytest.mark.parametrize("rows", [True, False])
def test_density_is_numpyros(rows):
    given = {"rows": ROWS} if rows else ROWS
    problem = sf.from_numpyro(regression, **given)
    with arithmetic("float64"):
        for seed in range(3):
            z = jax.random.normal(jax.random.key(seed), (4,))
            ours = problem.objective.value(problem.space.unpack(z))
            np.testing.assert_allclose(ours, potential(regression, problem, z, kwargs=ROWS), rtol=1e-12)


def test_rows_are_split_over_devices_and_chunks():
    whole = sf.from_numpyro(regression, rows=ROWS)
    split = sf.from_numpyro(regression, rows=ROWS, chunk=7)
    params = {"slope": np.array([1.0, 0.0, 0.3]), "sigma": np.array(0.5)}
    value = whole.objective.value(params)
    np.testing.assert_allclose(split.objective.place(sf.mesh(rows=4)).value(params), value, rtol=1e-12)
    best = sf.fit(whole).params
    np.testing.assert_allclose(best["slope"], [1.0, -2.0, 0.5], atol=0.15)


def test_constrained_sites_have_coordinates():
    data = np.array([28.0, 8, -3]), np.array([15.0, 10, 16])
    problem = sf.from_numpyro(schools, *data)
    transforms = dict(zip(problem.space.labels, problem.space.transforms, strict=True))
    assert transforms["tau"] == sf.Log() and transforms["share"] == sf.Simplex()
    with arithmetic("float64"):
        z = 0.3 * jnp.arange(problem.space.size)
        ours = problem.objective.value(problem.space.unpack(z))
        np.testing.assert_allclose(ours, potential(schools, problem, z, args=data), rtol=1e-10)


def test_what_cannot_be_split_or_differentiated_is_named():
    with pytest.raises(ValueError, match="'theta' has a number for every row"):
        sf.from_numpyro(schools, rows={"y": np.zeros(4), "sd": np.ones(4)})

    def mixture(y):
        k = numpyro.sample("k", dist.Bernoulli(0.5))
        numpyro.sample("obs", dist.Normal(k, 1.0), obs=y)

    with pytest.raises(ValueError, match="'k' is discrete"):
        sf.from_numpyro(mixture, np.zeros(3))
    with pytest.raises(ValueError, match="no latent site"):
        sf.from_numpyro(regression, rows=ROWS, x0={"slop": 1.0})


def test_numpyro_distributions_serve_as_priors():
    term = sf.residual_term(lambda p, r: r["y"] - p["a"] * r["x"][:, 0], ROWS)
    problem = sf.Problem(sf.Objective({"line": term}), {"a": 1.0}, priors={"a": dist.Gamma(2.0, 1.0)})
    assert problem.space.transforms == (sf.Log(),)
    reference = -float(dist.Gamma(2.0, 1.0).log_prob(1.3))
    np.testing.assert_allclose(float(problem.objective.parts({"a": 1.3})["prior"]), reference, rtol=1e-6)
