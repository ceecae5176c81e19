"""Profile likelihood intervals against closed forms: asymmetric, with nuisance parameters, open at bounds."""

from dataclasses import replace
from statistics import NormalDist
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import brentq

import shardfit as sf

RNG = np.random.default_rng(3)
COUNTS = np.array([3.0, 1.0, 4.0])
TIMES = RNG.exponential(2.0, 8)
NORMAL = RNG.normal(1.0, 2.0, 6)


def quantile(level):
    return NormalDist().inv_cdf((1 + level) / 2)


def poisson(p, rows):
    return p["rate"] + p.get("background", 0.0) - rows["n"] * jnp.log(p["rate"] + p.get("background", 0.0))


def decay(p, rows):
    return jnp.log(p["tau"]) + rows["t"] / p["tau"]


def normal(p, rows):
    return jnp.log(p["sd"]) + 0.5 * ((rows["x"] - p["mean"]) / p["sd"]) ** 2


def made(fn, rows, x0, **fields):
    return sf.Problem(sf.Objective({"data": sf.statistic_term(fn, rows)}), x0, **fields)


def interval(problem, name, **options):
    return sf.profile(problem, sf.fit(problem, certify=False, ftol=1e-14, gtol=1e-8), name, **options)


def roots(rise, best, level, far) -> Any:
    """Where a convex function with its minimum at best has risen by half the quantile of χ²."""
    target = 0.5 * quantile(level) ** 2
    return [brentq(lambda x: rise(x) - rise(best) - target, best, end) for end in far]


@pytest.mark.parametrize("level", [0.68, 0.95])
def test_poisson_mean(level):
    problem = made(poisson, {"n": COUNTS}, {"rate": 2.0}, bounds={"rate": (1e-6, None)}, units={"rate": "1/s"})
    found = interval(problem, "rate", level=level)
    n, total = COUNTS.size, COUNTS.sum()
    exact = roots(lambda rate: n * rate - total * np.log(rate), total / n, level, (1e-3, 50.0))
    np.testing.assert_allclose(found.interval, exact, rtol=2e-3)
    assert found.open == (False, False)
    assert found.upper - found.estimate > 1.2 * (found.estimate - found.lower)
    assert (np.diff(found.values) > 0).all()
    np.testing.assert_allclose(
        found.rises, [n * v - total * np.log(v) for v in found.values] - _least(n, total), atol=1e-6
    )
    assert "1/s" in str(found)


def _least(n, total):
    return total - total * np.log(total / n)


@pytest.mark.parametrize("transform", [None, "log"])
def test_lifetime(transform):
    bounds = None if transform else {"tau": (1e-3, None)}
    problem = made(decay, {"t": TIMES}, {"tau": 1.0}, transforms={"tau": transform}, bounds=bounds)
    exact = roots(lambda tau: TIMES.size * np.log(tau) + TIMES.sum() / tau, TIMES.mean(), 0.68, (0.05, 50.0))
    np.testing.assert_allclose(interval(problem, "tau").interval, exact, rtol=2e-3)


def test_nuisance_parameters_are_fitted_again():
    problem = made(normal, {"x": NORMAL}, {"mean": 0.0, "sd": 1.0}, transforms={"sd": "log"})
    found = interval(problem, "mean", level=0.95)
    half = NORMAL.std() * np.sqrt(np.expm1(quantile(0.95) ** 2 / NORMAL.size))
    np.testing.assert_allclose(found.interval, [NORMAL.mean() - half, NORMAL.mean() + half], rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("sigma", [pytest.param(True, marks=pytest.mark.slow), False])
def test_straight_lines_have_their_standard_errors(sigma):
    x = np.linspace(0, 1, 12)
    rows = {"x": x, "y": 1 + 2 * x + 0.3 * RNG.standard_normal(12)} | ({"sigma": np.full(12, 0.3)} if sigma else {})
    term = sf.residual_term(lambda p, r: (r["y"] - p[0] - p[1] * r["x"]) / r.get("sigma", 1.0), rows)
    problem = sf.Problem(sf.Objective({"line": term}), np.zeros(2))
    result = sf.fit(problem, "lm", certify=False)
    found = sf.profile(problem, result, "x[1]")
    half = quantile(0.68) * result.stderr[1]
    np.testing.assert_allclose(found.interval, [result.params[1] - half, result.params[1] + half], rtol=2e-3)


def test_open_at_a_bound():
    problem = made(
        poisson,
        {"n": COUNTS},
        {"rate": 1.0, "background": 2.0},
        bounds={"rate": (0.0, None), "background": (1.9, 2.1)},
    )
    found = interval(problem, "rate", level=0.95)
    assert found.open == (True, False)
    assert found.lower == 0.0
    assert "lower end is open" in str(found)


def test_what_the_data_do_not_say_is_open_on_both_sides():
    problem = made(
        lambda p, r: decay(p, r) + 0 * p["none"], {"t": TIMES}, {"tau": 1.0, "none": 1.0}, bounds={"tau": (0.1, 9)}
    )
    found = interval(problem, "none")
    assert found.open == (True, True)
    assert found.interval == (-np.inf, np.inf)


def test_held_values_stay_and_other_minima_are_reported():
    problem = made(normal, {"x": NORMAL}, {"mean": 0.0, "sd": 2.0}, fixed="sd")
    found = interval(problem, "mean")
    half = quantile(0.68) * 2.0 / np.sqrt(NORMAL.size)
    np.testing.assert_allclose(found.upper - found.estimate, half, rtol=2e-3)
    two = sf.Problem(
        sf.Objective({"two": sf.penalty(lambda p: 20 * (p**2 - 1) ** 2 + p)}), np.array(1.0), bounds=(-3, 3)
    )
    with pytest.raises(ValueError, match="not the lowest minimum"):
        interval(two, "x", level=1 - 1e-12)


def test_bad_questions():
    problem = made(decay, {"t": TIMES}, {"tau": 1.0}, bounds={"tau": (0.1, None)})
    result = sf.fit(problem, certify=False)
    with pytest.raises(ValueError, match="no free number 'tua'.*tau"):
        sf.profile(problem, result, "tua")
    with pytest.raises(ValueError, match="level=95"):
        sf.profile(problem, result, "tau", level=95)
    early = replace(result, params={"tau": np.array(1.2 * result.params["tau"])})
    with pytest.raises(ValueError, match="not at a minimum"):
        sf.profile(problem, early, "tau")


@pytest.mark.slow
def test_quantiles_of_a_skewed_posterior_agree():
    """A lifetime, with the prior 1/tau under which intervals of confidence and of probability agree best."""
    times = np.random.default_rng(8).exponential(2.0, 20)
    rows, x0, transforms = {"t": times}, {"tau": 1.0}, {"tau": "log"}
    found = interval(made(decay, rows, x0, transforms=transforms), "tau")
    terms = {"data": sf.statistic_term(decay, rows), "prior": sf.prior(lambda p: -jnp.log(p["tau"]))}
    posterior = sf.sample(sf.Problem(sf.Objective(terms), x0, transforms=transforms), draws=5000, progress=False)
    width = posterior.sd()["tau"]
    # the likelihood leaves out a shift of order 1/n, a fifth of a standard deviation here at most
    np.testing.assert_allclose(found.interval, posterior.quantile((0.16, 0.84))["tau"], atol=0.2 * width)
    assert found.upper - found.estimate > 1.1 * (found.estimate - found.lower)


@pytest.mark.parametrize("side", [-1, 1])
def test_an_answer_at_its_bound_has_the_end_that_is_left(side):
    """A straight line through known errors, whose slope a bound stops: the rise is a parabola cut at the bound."""
    t, sigma = np.linspace(-1.0, 1.0, 20), 0.3
    rows = {"t": t, "y": 1.0 + np.where(np.arange(20) % 2, 0.2, -0.2), "sigma": np.full(20, sigma)}
    free = np.polyfit(t, rows["y"], 1)[0]
    bound = free - 0.05 * side  # the best slope lies beyond it
    ends = {"b": (None, bound) if side > 0 else (bound, None)}
    term = sf.residual_term(lambda p, r: (r["y"] - p["a"] - p["b"] * r["t"]) / r["sigma"], rows)
    problem = sf.Problem(sf.Objective({"line": term}), {"a": 1.0, "b": float(bound - 0.5 * side)}, bounds=ends)
    result = sf.fit(problem, "lm", certify=False)
    found, q = sf.profile(problem, result, "b"), quantile(0.68)
    width = np.hypot(q * sigma / np.sqrt(np.sum((t - t.mean()) ** 2)), 0.05)
    near, far = (found.upper, found.lower) if side > 0 else (found.lower, found.upper)
    assert np.isclose(near, bound) and np.isclose(far, free - side * width, atol=2e-3 * width)
    assert found.open == ((side < 0), (side > 0)) and "cut" in str(found) and np.isfinite(found.rises).all()
    other = sf.profile(problem, result, "a")  # the slope is fitted again, and may leave its bound
    assert np.isclose(other.upper - other.lower, 2 * q * sigma / np.sqrt(20), rtol=5e-3) and not any(other.open)
