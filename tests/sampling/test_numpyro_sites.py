"""Sites of NumPyro models: all kinds of them against NumPyro's own density, and models that have none."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shardfit as sf
from shardfit.core.precision import arithmetic

numpyro = pytest.importorskip("numpyro")
dist = pytest.importorskip("numpyro.distributions")
handlers = pytest.importorskip("numpyro.handlers")

RNG = np.random.default_rng(0)
Y, X, GROUP = RNG.normal(size=12), RNG.normal(size=(12, 3)), np.arange(12) % 4
S = numpyro.sample


def handled(y):
    """Handlers, plates used twice, reparameterised and deterministic sites, factors."""
    with handlers.scale(scale=0.3):
        mu = S("mu", dist.Normal(0, 1))
    tau = numpyro.deterministic("tau", jnp.exp(S("log_tau", dist.Normal(0, 1))))
    plate = numpyro.plate("groups", 4)
    with handlers.reparam(config={"theta": numpyro.infer.reparam.LocScaleReparam(0)}), plate:
        theta = S("theta", dist.Normal(mu, tau))
    with plate:
        scale = S("scale", dist.HalfNormal(1.0))
    with handlers.mask(mask=np.arange(12) < 7):
        S("y", dist.Normal(theta[GROUP], scale[GROUP]), obs=y)
    S("z", dist.Normal(mu, 1.0).mask(np.arange(12) < 7), obs=jnp.where(np.arange(12) < 7, y, np.nan))
    numpyro.factor("bend", -jnp.sum((y - mu) ** 4))


def supported(y):
    """Supports of every kind: vectors of bounds, improper ones, matrices, ordered numbers, observed edges."""
    low = S("low", dist.Uniform(np.array([0.0, 1.0, -3.0]), np.array([1.0, 5.0, -2.0])).to_event(1))
    with numpyro.plate("three", 3):
        above = S("above", dist.TruncatedNormal(0.0, 1.0, low=np.array([0.0, 1.0, -3.0])))
        same = S("same", dist.Uniform(-1.0, np.ones(3)))
    flat = S("flat", dist.ImproperUniform(dist.constraints.positive, (), ()))
    cuts = S("cuts", dist.ImproperUniform(dist.constraints.ordered_vector, (), (3,)))
    corr = S("corr", dist.LKJCholesky(3, 2.0))
    share = S("share", dist.Dirichlet(jnp.array([1.0, 2.0, 3.0])))
    angle = S("angle", dist.VonMises(0.5, 2.0))
    S("x", dist.MultivariateNormal(low + above * same + cuts, scale_tril=corr), obs=X)
    S("y", dist.Normal(X @ share + angle, flat), obs=y)
    S("edge", dist.TruncatedNormal(0.0, 1.0, low=-5.0 - flat), obs=y)


@pytest.mark.parametrize("model", [handled, supported])
def test_densities_are_numpyros(model):
    problem = sf.from_numpyro(model, Y)
    with arithmetic("float64"):
        for seed in range(2):
            z = 0.7 * jax.random.normal(jax.random.key(seed), (problem.space.size,))
            params = problem.space.unpack(z)
            reference = -numpyro.infer.util.log_density(model, (Y,), {}, params)[0]
            np.testing.assert_allclose(problem.objective.value(params), reference, rtol=1e-12)
            np.testing.assert_allclose(problem.space.pack(params), z, atol=1e-12)


def test_observed_values_end_where_their_support_does():
    def tank():
        t = S("t", dist.Pareto(1.0, 2.0))
        S("y", dist.Uniform(0.0, t), obs=np.array([0.5, 3.0]))

    problem = sf.from_numpyro(tank)
    assert np.isinf(problem.objective.value({"t": np.array(2.9)}))
    reference = 2 * np.log(3.1) - float(dist.Pareto(1.0, 2.0).log_prob(3.1))
    np.testing.assert_allclose(problem.objective.value({"t": np.array(3.1)}), reference, rtol=1e-6)


def subsampled(y):
    mu = S("mu", dist.Normal(0, 10))
    with numpyro.plate("rows", 12, subsample_size=5) as i:
        S("y", dist.Normal(mu, 1.0), obs=jnp.asarray(y)[i])


def batch(y):
    mu = S("mu", dist.Normal(0, 10))
    with numpyro.plate("rows", 1000, subsample_size=12):
        S("y", dist.Normal(mu, 1.0), obs=y)


def dependent(y):
    t = S("t", dist.HalfNormal(3.0))
    S("y", dist.Normal(S("x", dist.Uniform(0, t)), 1.0), obs=y)


def learnt(y):
    S("y", dist.Normal(S("mu", dist.Normal(0, 1)), numpyro.param("sigma", 1.5)), obs=y)


def random(y):
    S("y", dist.Normal(S("mu", dist.Normal(0, 1)) + jax.random.normal(numpyro.prng_key()), 1.0), obs=y)


def sphere(y):
    S("y", dist.Normal(S("where", dist.ProjectedNormal(jnp.ones(2)))[0], 1.0), obs=y)


def branching(y):
    k = S("k", dist.Normal(0, 1))
    S("y", dist.Normal(S("more", dist.Normal(0, 1)) if k > 0 else k, 1.0), obs=y)


def constant(y):
    S("y", dist.Normal(S("mu", dist.Normal(0, 1)), S("one", dist.Delta(1.0))), obs=y)


def hidden(y):
    return handlers.block(learnt_by_prior, hide=["sigma"])(y)


def learnt_by_prior(y):
    S("y", dist.Normal(S("mu", dist.Normal(0, 1)), S("sigma", dist.HalfNormal(1.0))), obs=y)


REFUSED = {
    subsampled: "plate 'rows' takes 5 of its 12 members",
    batch: "plate 'rows' takes 12 of its 1000 members",
    dependent: "support of site 'x' depends on other sites",
    learnt: "'sigma' is a numpyro.param",
    random: "density of site 'y' is random",
    hidden: "density of site 'y' is random",
    sphere: "site 'where' lies on Sphere",
    branching: "site 'more' is there, or has its shape, for some values",
    constant: "site 'one' is a constant",
}


@pytest.mark.parametrize("model", REFUSED, ids=lambda model: model.__name__)
def test_models_without_one_density_are_refused(model):
    with pytest.raises(ValueError, match=REFUSED[model]):
        sf.from_numpyro(model, Y)


def test_a_prior_that_reads_the_rows_is_refused():
    def scaled(y):
        S("y", dist.Normal(0.0, S("sigma", dist.HalfNormal(jnp.std(y) + 0.1))), obs=y)

    with pytest.raises(ValueError, match="prior of site 'sigma' depends on the rows"):
        sf.from_numpyro(scaled, rows={"y": Y})


def test_a_start_has_the_shape_of_its_site():
    with pytest.raises(ValueError, match=r"x0 of 'mu' has shape \(2,\), the site \(\)"):
        sf.from_numpyro(learnt_by_prior, Y, x0={"mu": np.zeros(2)})
    problem = sf.from_numpyro(learnt_by_prior, Y, x0={"mu": 3})
    assert problem.x0["mu"] == 3.0 and problem.x0["mu"].dtype == np.float64


def test_priors_of_numpyro_say_what_coordinates_they_need():
    objective = sf.Objective({"d": sf.penalty(lambda p: jnp.sum(p["w"] ** 2))})

    def transforms(prior, x0):
        return sf.Problem(objective, {"w": x0}, priors={"w": prior}).space.transforms

    assert transforms(dist.Dirichlet(jnp.ones(3)), np.ones(3) / 3) == (sf.Simplex(),)
    ends = transforms(dist.Uniform(np.zeros(2), np.array([1.0, 2.0])), np.full(2, 0.5))
    np.testing.assert_allclose(ends[0].forward(jnp.zeros(2)), [0.5, 1.0])
    with pytest.raises(ValueError, match="w has a LKJCholesky, whose numbers are no interval each"):
        transforms(dist.LKJCholesky(3, 1.0), np.eye(3))
    with pytest.raises(ValueError, match="a Poisson is a prior of whole numbers"):
        transforms(dist.Poisson(3.0), np.array(2.0))
