"""Residuals whose scale is a parameter have no density of their own."""

import jax.numpy as jnp
import numpy as np
import pytest

import shardfit as sf
from shardfit.sampling.density import sampled

RNG = np.random.default_rng(0)
X = np.linspace(0.1, 2, 40)
ROWS = {"x": X, "y": 1 + 2 * X + 0.3 * RNG.normal(size=40), "sigma": 0.2 + 0.1 * X}
X0 = {"a": 1.0, "b": 0.0, "s": 0.5}


def line(p, r):
    return r["y"] - p["a"] - p["b"] * r["x"]


SCALED = {
    "sigma": lambda p, r: line(p, r) / p["s"],
    "its logarithm": lambda p, r: line(p, r) * jnp.exp(-p["s"]),
    "a factor of known errors": lambda p, r: line(p, r) / (p["s"] * r["sigma"]),
    "added to known errors": lambda p, r: line(p, r) / jnp.sqrt(p["s"] ** 2 + r["sigma"] ** 2),
    "with x": lambda p, r: line(p, r) * jnp.exp(-p["s"] * r["x"]),
    "logarithms of data": lambda p, r: (jnp.log(r["y"]) - p["a"] - p["b"] * r["x"]) / p["s"],
    "several products": lambda p, r: {"one": line(p, r) / r["sigma"], "two": line(p, r) / p["s"]},
    "complex data": lambda p, r: (r["y"] * jnp.exp(1j * r["x"]) - p["a"] - 1j * p["b"]) / p["s"],
}
FIXED = {
    "known errors": lambda p, r: (line(p, r) - p["s"]) / r["sigma"],
    "a factor of the model": lambda p, r: (r["y"] - p["s"] * (p["a"] + p["b"] * r["x"])) / r["sigma"],
    "a product of amplitudes": lambda p, r: r["y"] - p["s"] * p["a"] * r["x"] - p["b"],
    "an exponent": lambda p, r: r["y"] - p["a"] * jnp.exp(-p["s"] * r["x"]) - p["b"],
    "a phase": lambda p, r: 2 * jnp.sin(0.5 * (r["y"] - p["s"] - p["b"] * r["x"])) / 0.3 + p["a"],
    "data that are not rows": lambda p, r: (1.0 - p["s"] - p["a"] * r["x"] - p["b"]) / r["sigma"],
}


def problem(fn, **more):
    priors = {"a": sf.Normal(0, 5), "b": sf.Normal(0, 5), "s": sf.HalfNormal(2.0)}
    return sf.Problem(sf.Objective({"d": sf.residual_term(fn, ROWS)} | more), X0, priors=priors)


@pytest.mark.parametrize("case", SCALED)
def test_a_parameter_that_scales_residuals_is_refused(case):
    with pytest.raises(ValueError, match=r"sample: s scales the residuals of term 'd'.*statistic_term"):
        sf.sample(problem(SCALED[case]), progress=False)


def test_a_scale_inside_a_robust_loss_is_refused():
    term = sf.residual_term(SCALED["sigma"], ROWS, loss="cauchy")
    with pytest.raises(ValueError, match=r"s scales the residuals of term 'd'.*Their loss lacks.*'cauchy'"):
        sampled(sf.Problem(sf.Objective({"d": term}), X0))


@pytest.mark.parametrize("case", FIXED)
def test_other_parameters_are_not_scales(case):
    sampled(problem(FIXED[case]))


def test_a_term_may_bring_the_logarithm():
    sampled(problem(SCALED["sigma"], norm=sf.penalty(lambda p: 40 * jnp.log(p["s"]))))
    sampled(problem(SCALED["sigma"], norm=sf.statistic_term(lambda p, r: jnp.log(p["s"]) + 0 * r["x"], ROWS)))
