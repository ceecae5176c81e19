"""Linear coefficients integrated out, against sampling everything: the same posterior, coefficients included."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import shardfit as sf
from benchmarks.problems.linear import PAIRS, SCALES
from shardfit.core.precision import arithmetic
from shardfit.sampling.quality.diagnostics import ess_bulk

N_ANGLES, SIGMA = 23, 0.01
START = {"lograte": np.log(0.8), "power": 1.1}


def curve(p, rows):
    return jnp.exp(-2 * jnp.exp(p["lograte"]) * rows["t"] ** p["power"])


def basis(p, rows):
    f = curve(p, rows)
    return jnp.stack([f, jnp.ones_like(f)], axis=-1)


def residual(p, rows):
    c = p["c"][rows["angle"]]
    return (c[:, 0] * curve(p, rows) + c[:, 1] - rows["y"]) / rows["sigma"]


def data():
    rng = np.random.default_rng(2)
    n = 40 * N_ANGLES
    rows = {"t": rng.uniform(0.05, 4, n), "angle": np.arange(n) % N_ANGLES, "sigma": np.full(n, SIGMA)}
    c = np.stack([rng.uniform(0.15, 0.3, N_ANGLES), 1 + 0.02 * rng.standard_normal(N_ANGLES)], axis=1)
    model = c[rows["angle"], 0] * np.exp(-1.6 * rows["t"] ** 1.1) + c[rows["angle"], 1]
    return rows | {"y": model + SIGMA * rng.standard_normal(n)}, c


def correlation(posterior):
    """Return the correlation of rate and power, and its Monte Carlo error: from draws' influence on it."""
    x, y = ((draws - draws.mean()) / draws.std() for draws in (np.asarray(posterior.draws[name]) for name in START))
    found = np.mean(x * y)
    influence = x * y - 0.5 * found * (x**2 + y**2)
    return found, influence.std() / np.sqrt(ess_bulk(influence[..., None]).min())


def exact_correlation(problem, posterior):
    """Return the correlation of rate and power under the integrated density, by sums over a grid of six sds."""
    middle, width = posterior.mean(), posterior.sd()
    axes = [middle[name] + width[name] * np.linspace(-6, 6, 61) for name in START]
    x, y = (part.ravel() for part in np.meshgrid(*axes))
    with arithmetic("float64"):
        points = dict(zip(START, map(jnp.asarray, (x, y)), strict=True))
        value = np.asarray(jax.jit(jax.vmap(problem.objective.place().value))(points))
    covariance = np.cov(x, y, aweights=np.exp(value.min() - value))
    return covariance[0, 1] / np.sqrt(covariance[0, 0] * covariance[1, 1])


def test_only_integrated_coefficients_have_a_posterior():
    problem = sf.Problem(sf.Objective({"g2": sf.linear_term(basis, data()[0], groups="angle")}), START)
    with pytest.raises(ValueError, match=r"'g2' are at their best .* marginalised\(problem\)"):
        sf.sample(problem)
    twins = sf.linear_term(
        lambda p, r: jnp.concatenate([basis(p, r)] * 2, -1), data()[0], groups="angle", marginal=True
    )
    with pytest.raises(ValueError, match="do not determine all 4 linear coefficients of 23 of 23 groups"):
        sf.sample(sf.Problem(sf.Objective({"g2": twins}), START))


@pytest.mark.slow
def test_46_coefficients_integrated_or_sampled_leave_the_same_posterior():
    rows, c = data()
    short = sf.marginalised(sf.Problem(sf.Objective({"g2": sf.linear_term(basis, rows, groups="angle")}), START))
    long = sf.Problem(sf.Objective({"g2": sf.residual_term(residual, rows)}), START | {"c": c})
    options = {"chains": 4, "draws": 1500, "warmup": 400, "progress": False}
    integrated, sampled = (sf.sample(problem, seed=i, **options) for i, problem in enumerate((short, long)))
    for name in START:
        one, other = np.asarray(integrated.draws[name]).ravel(), np.asarray(sampled.draws[name]).ravel()
        assert abs(one.mean() - other.mean()) < 0.1 * other.std()
        assert one.std() == pytest.approx(other.std(), rel=0.08)
    exact = exact_correlation(short, integrated)
    for posterior in (integrated, sampled):
        found, error = correlation(posterior)
        assert error < 0.03
        assert abs(found - exact) < 4 * error
    drawn = sf.recover(short, integrated.draws, jax.random.key(3))
    expected = np.asarray(sampled.draws["c"])
    mean, sd = expected.mean((0, 1)), expected.std((0, 1))
    np.testing.assert_array_less(np.abs(drawn.mean((0, 1)) - mean), 0.12 * sd)
    np.testing.assert_allclose(drawn.std((0, 1)), sd, rtol=0.12)

    def with_rate(coefficients, posterior):
        rate = posterior.draws["lograte"].ravel()
        return [np.corrcoef(coefficients[..., g, 0].ravel(), rate)[0, 1] for g in range(N_ANGLES)]

    np.testing.assert_allclose(with_rate(drawn, integrated), with_rate(expected, sampled), atol=0.1)
    assert integrated.evaluations < sampled.evaluations / 2


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] if n == "flow" else []) for n in PAIRS])
def test_what_is_integrated_is_the_integral_of_what_is_sampled(name):
    """Up to a constant: the Gaussian integral over the scales, from value and curvature of the joint density."""
    short, long = PAIRS[name]()
    with arithmetic("float64"):
        joint, start = long.objective.place(None), {k: jnp.asarray(v) for k, v in long.x0.items()}
        flat, unflat = ravel_pytree({k: v for k, v in start.items() if k in SCALES})

        def at(flat, rest):
            return joint.value({**rest, **unflat(flat)})

        found = []
        for move in (0.0, 0.003, -0.01):
            rest = {k: v * (1 + move) for k, v in start.items() if k not in SCALES}
            slope, curve = jax.grad(at)(flat, rest), jax.hessian(at)(flat, rest)
            best = at(flat, rest) - 0.5 * slope @ jnp.linalg.solve(curve, slope)
            integral = best + 0.5 * jnp.linalg.slogdet(curve)[1]
            found.append(float(short.objective.place(None).value(rest) - integral))
    np.testing.assert_allclose(found, found[0], atol=1e-5)
