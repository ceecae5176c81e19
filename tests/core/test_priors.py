"""Priors against scipy's densities, as terms of a problem, and the coordinates that they bring."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats as st

import shardfit as sf
from shardfit.core.precision import arithmetic
from shardfit.core.transforms import Box, Chain, Interval, Log, Shift, Simplex, log_det

CASES = {
    "normal": (sf.Normal(1.0, 2.0), st.norm(1, 2), [-3.0, 0.5, 4.0]),
    "lognormal": (sf.LogNormal(0.3, 0.7), st.lognorm(0.7, scale=np.exp(0.3)), [0.1, 1.0, 5.0]),
    "half normal": (sf.HalfNormal(2.0), st.halfnorm(scale=2), [0.1, 3.0]),
    "half cauchy": (sf.HalfCauchy(5.0), st.halfcauchy(scale=5), [0.1, 30.0]),
    "exponential": (sf.Exponential(2.0), st.expon(scale=2), [0.1, 3.0]),
    "gamma": (sf.Gamma(25.0, 4.0), st.gamma(25, scale=0.25), [3.0, 6.0, 9.0]),
    "beta": (sf.Beta(2.0, 3.0), st.beta(2, 3), [0.1, 0.9]),
    "uniform": (sf.Uniform(-1.0, 3.0), st.uniform(-1, 4), [-0.5, 2.9]),
    "truncated": (sf.TruncatedNormal(1.0, 2.0, 0.0, 3.0), st.truncnorm(-0.5, 1, 1, 2), [0.1, 2.9]),
    "far tail": (sf.TruncatedNormal(0.0, 1.0, 8.0, np.inf), st.truncnorm(8, np.inf), [8.01, 9.0]),
}


@pytest.mark.parametrize("name", CASES)
def test_density_and_draws_are_scipys(name):
    prior, reference, x = CASES[name]
    with arithmetic("float64"):
        np.testing.assert_allclose(jax.jit(prior.log_prob)(np.array(x)), reference.logpdf(x), rtol=1e-9)
        draws = np.asarray(jax.jit(lambda: prior.sample(jax.random.key(0), (2000,)))())
    assert st.kstest(draws, reference.cdf).pvalue > 1e-3


TRANSFORMS = [
    Log(),
    Interval(-1.0, 3.0),
    Shift(2.0, 1),
    Shift(2.0, -1),
    sf.Softplus(),
    sf.TanInterval(-1.0, 3.0),
    sf.Above(1.0),
    sf.Below(1.0),
    Box((-1.0, 0.0, -np.inf, -np.inf), (2.0, np.inf, 5.0, np.inf)),
    Chain(Log(), Box((0.0, -np.inf, -np.inf, 0.1), (1.0, 2.0, np.inf, 0.3))),
    Simplex(),
]


@pytest.mark.parametrize("transform", TRANSFORMS, ids=str)
def test_volume_is_the_determinant_of_the_derivative(transform):
    with arithmetic("float64"):

        @jax.jit
        def all_of_it(z):
            slopes = jax.jacfwd(lambda z: transform.forward(z)[: z.size])(z)
            return transform.inverse(transform.forward(z)), slopes, jnp.sum(log_det(transform, z))

        z = np.array([-1.3, 0.2, 0.9, -0.4])
        back, slopes, volume = all_of_it(z)
        np.testing.assert_allclose(back, z, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(volume, np.linalg.slogdet(slopes)[1], rtol=1e-10)


class Doubled:
    """A transform of one's own, without log_det."""

    def forward(self, z):
        return 2 * z + z**3

    def inverse(self, x):
        return x / 2


def test_volume_of_a_transform_without_a_word_about_it():
    with arithmetic("float64"):
        z = jnp.array([0.5, -1.0])
        np.testing.assert_allclose(log_det(Doubled(), z), np.sum(np.log(2 + 3 * np.asarray(z) ** 2)))
    with pytest.raises(ValueError, match="log_det"):
        log_det(Doubled(), jnp.zeros(1000))


def residual(params, rows):
    return (rows["y"] - params["a"] * jnp.exp(-params["k"] * rows["t"])) / 0.1


T = np.linspace(0, 5, 40)
ROWS = {"t": T, "y": 2 * np.exp(-0.7 * T) + 0.1 * np.sin(9 * T)}
START = {"a": 1.0, "k": 1.0}


def problem(**more):
    return sf.Problem(sf.Objective({"decay": sf.residual_term(residual, ROWS)}), START, **more)


def test_gaussian_priors_are_residuals_and_others_are_not():
    gaussian = problem(priors={"a": sf.Normal(1.5, 0.01), "k": sf.Flat()})
    by_squares, by_value = sf.least_squares(gaussian), sf.fit(gaussian, gtol=1e-9)
    np.testing.assert_allclose(by_squares.params["a"], by_value.params["a"], rtol=1e-5)
    assert abs(by_squares.params["a"] - 1.5) < 0.05 < abs(sf.fit(problem()).params["a"] - 1.5)
    with pytest.raises(TypeError, match="prior"):
        sf.least_squares(problem(priors={"a": sf.HalfCauchy(1.0)}))


def test_ends_of_a_prior_become_coordinates():
    made = problem(priors={"a": sf.Uniform(0.0, 4.0), "k": sf.LogNormal(0.0, 1.0)})
    assert made.space.transforms == (Interval(0.0, 4.0), Log())
    made = problem(priors={"a": sf.Uniform(0.0, 4.0)}, transforms={"a": "log"})
    assert made.space.transforms[0] == Log()
    again = made.replace(priors={"a": sf.Uniform(0.0, 3.0)})  # in place of the earlier ones
    assert again.objective.names == ("decay", "prior")


def test_density_in_coordinates_integrates_to_one():
    made = problem(priors={"a": sf.Uniform(0.0, 4.0), "k": sf.LogNormal(0.0, 0.5)}, fixed=["a"])
    with arithmetic("float64"):
        grid = jnp.linspace(-6, 6, 2001)
        alone = made.objective.only("prior")

        def density(z):
            return jnp.exp(-alone.value(made.space.unpack(z)) + made.space.log_jacobian(z))

        total = jnp.trapezoid(jax.vmap(density)(grid[:, None]), grid)
    np.testing.assert_allclose(total, 1 / 4.0, rtol=1e-6)  # the held one keeps its density


def test_unconstrained_has_the_same_minimum():
    bounded = problem(bounds={"k": (0.8, 2.0), "a": (0.0, None)})
    free = bounded.unconstrained()
    assert free.box is None and free.unconstrained() is free
    np.testing.assert_allclose(sf.fit(free).params["a"], sf.fit(bounded).params["a"], rtol=1e-3)
    on_bound = problem(bounds={"k": (1.0, 2.0)}).unconstrained()
    np.testing.assert_allclose(on_bound.x0["k"], 1.001)
    held = problem(bounds={"k": (0.5, 2.0)}, fixed=["a"]).unconstrained()
    assert held.space.held_labels() == ["a"] and held.space.size == 1


@pytest.mark.parametrize(
    ("priors", "words"),
    [
        ({"a": 3.0}, "no log_prob"),
        ({"b": sf.Normal()}, "no parameter 'b'"),
        ({"a": sf.Normal(0.0, -1.0)}, "sd=-1.0 of a's Normal must be positive"),
        ({"a": sf.Normal(np.nan, 1.0)}, "not finite"),
        ({"a": sf.Uniform(3.0, 2.0)}, "the first must be below"),
        ({"a": sf.Uniform(2.0, 3.0)}, "no density"),
    ],
)
def test_what_is_no_prior_is_named(priors, words):
    with pytest.raises((TypeError, ValueError), match=words):
        problem(priors=priors)


def test_a_joint_prior_is_a_term():
    joint = sf.prior(lambda p: -0.5 * ((p["a"] - 2 * p["k"]) / 1e-3) ** 2)
    made = sf.Problem(sf.Objective({"decay": sf.residual_term(residual, ROWS), "tie": joint}), START)
    best = sf.fit(made).params
    np.testing.assert_allclose(best["a"], 2 * best["k"], rtol=1e-3)
