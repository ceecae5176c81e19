"""Evidence where it is known: Gaussians, ends of intervals, several modes, flat tops, heavy tails, bent densities."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, special

import shardfit as sf

RNG = np.random.default_rng(3)
Y = 1.3 + 0.7 * RNG.normal(size=20)
COUNTS = RNG.poisson(4.0, 15).astype(float)
NORMAL = jax.scipy.stats.norm.logpdf


def density(fn, x0, *args, **more):
    """A problem whose posterior is a density of mass one, if fn is."""
    return sf.Problem(sf.Objective({"p": sf.prior(fn, *args)}), np.asarray(x0, float), **more)


def mean_of(sigma, **more):
    data = sf.residual_term(lambda p, rows: (rows["y"] - p["m"]) / sigma, {"y": Y})
    truth = integrate.quad(lambda m: np.exp(-0.5 * (np.sum((Y - m) ** 2) - np.sum((Y - 1) ** 2)) / sigma**2), 0.0, 1.0)
    return sf.Problem(sf.Objective({"d": data}), {"m": 0.5}, **more), np.log(truth[0]) - 0.5 * np.sum(
        (Y - 1) ** 2
    ) / sigma**2


def mixture(x, means):
    return jax.scipy.special.logsumexp(jnp.log(jnp.array([0.3, 0.7])) + jnp.sum(NORMAL(x - means), axis=1))


def two(size, apart):
    means = np.zeros((2, size))
    means[:, 0] = -apart, apart
    return density(mixture, means[1] + 0.1, means), 0.0


def flat_top():
    def value(x):
        return -(np.logaddexp(20 * (x - 3), 0) + np.logaddexp(-20 * (x + 3), 0))

    def fn(x):
        return -jnp.sum(jnp.logaddexp(20 * (x - 3), 0.0) + jnp.logaddexp(-20 * (x + 3), 0.0))

    return density(fn, np.zeros(2)), 2 * np.log(integrate.quad(lambda x: np.exp(value(x)), -6, 6, points=[-3, 3])[0])


def counts():
    data = sf.statistic_term(lambda p, rows: p["l"] - rows["k"] * jnp.log(p["l"]), {"k": COUNTS})
    total = COUNTS.sum()
    truth = special.gammaln(2 + total) - special.gammaln(2) - (2 + total) * np.log(16)
    return sf.Problem(sf.Objective({"d": data}), {"l": 3.0}, priors={"l": sf.Gamma(2.0, 1.0)}), truth


def all_heads():
    data = sf.statistic_term(lambda p, rows: -rows["k"] * jnp.log(p["q"]), {"k": np.ones(5)})
    return sf.Problem(sf.Objective({"d": data}), {"q": 0.5}, priors={"q": sf.Beta(1.0, 1.0)}), -np.log(6)


def heavy(x):
    return jnp.sum(jax.scipy.stats.t.logpdf(x, 3.0))


def spike(x):
    return jnp.logaddexp(jnp.sum(NORMAL(x, 0, 0.01)), jnp.sum(NORMAL(x, 0, 3.0))) - np.log(2)


def ring(x):
    return NORMAL(jnp.sqrt(jnp.sum(x**2) + 1e-12), 5, 0.2) - jnp.log(2 * jnp.pi * 5)


def banana(x):
    return NORMAL(x[0], 0, 3.0) + NORMAL(x[1] + 0.1 * (x[0] ** 2 - 9))


def funnel(x):
    return NORMAL(x[0], 0, 3.0) + jnp.sum(NORMAL(x[1:], 0, jnp.exp(x[0] / 2)))


def twenty():
    root = RNG.normal(size=(20, 20)) + 3 * np.eye(20)
    inverse = np.linalg.inv(root)
    return density(lambda x: jnp.sum(NORMAL(inverse @ x)) + np.linalg.slogdet(inverse)[1], np.ones(20)), 0.0


SCALES = 10.0 ** np.array([-8, -2, 3, 8])
CASES = {
    "an end beyond which the mode lies": lambda: mean_of(0.7, priors={"m": sf.Uniform(0.0, 1.0)}),
    "an end far below the mode": lambda: mean_of(0.07, priors={"m": sf.Uniform(0.0, 1.0)}),
    "bounds": lambda: mean_of(0.7, bounds={"m": (0.0, 1.0)}),
    "two modes": lambda: two(2, 5.0),
    "two close modes": lambda: two(2, 1.5),
    "two modes of ten numbers": lambda: two(10, 5.0),
    "a flat top": flat_top,
    "counts": counts,
    "all heads": all_heads,
    "heavy tails": lambda: (density(heavy, np.full(4, 0.3)), 0.0),
    "a spike on a slab": lambda: (density(spike, np.ones(2)), 0.0),
    "a ring": lambda: (density(ring, np.array([4.0, 1.0])), 0.0),
    "a banana": lambda: (density(banana, np.array([0.1, 0.1])), 0.0),
    "scales": lambda: (density(lambda x: jnp.sum(NORMAL(x / SCALES) - jnp.log(SCALES)), 0.5 * SCALES), 0.0),
    "twenty numbers": twenty,
}


BESIDE = ("bounds", "two close modes", "two modes of ten numbers", "all heads", "a ring")  # like others that are fast


@pytest.mark.parametrize("case", [pytest.param(c, marks=[pytest.mark.slow] * (c in BESIDE)) for c in CASES])
def test_evidence_is_that_of_analysis(case):
    problem, truth = CASES[case]()
    found = sf.evidence(problem)
    assert found.log_z == pytest.approx(truth, abs=0.05)
    assert 0 < found.error < 0.026 and abs(found.log_z - truth) < 4 * found.error
    assert found.log_z == pytest.approx(found.occam - found.value)


def test_a_funnel_is_refused():
    with pytest.raises(ValueError, match=r"too unlike Gaussians.*Pareto k"):
        sf.evidence(density(funnel, np.full(6, 0.1)))


def test_without_correction_it_is_laplaces():
    problem, _ = two(2, 5.0)
    found = sf.evidence(problem, correct=False)
    assert found.log_z == pytest.approx(np.log(0.7), abs=1e-6)
    assert np.isnan(found.error) and found.method == "laplace"


def test_priors_that_are_no_densities_are_told():
    cut, _ = mean_of(0.7, priors={"m": sf.Normal(0.0, 1.0)}, bounds={"m": (0.0, 1.0)})
    assert "Priors of m are cut off by bounds" in sf.evidence(cut).note
    bent = sf.Objective(
        {
            "d": sf.residual_term(lambda p, rows: rows["y"] - p, {"y": Y}),
            "p": sf.residual_penalty(lambda p: jnp.atleast_1d(p**2)),
        }
    )
    with pytest.raises(ValueError, match="not linear in the parameters"):
        sf.evidence(sf.Problem(bent, np.array(1.0)))
