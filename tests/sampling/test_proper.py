"""Posteriors without an integral: what is known before anything is evaluated, and what after the fit."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shardfit as sf
from shardfit.core.objective import Objective
from shardfit.sampling.density import sampled
from shardfit.sampling.proper import _reads
from shardfit.sampling.start import find_start

ROWS = {"t": np.linspace(0, 1, 12), "y": np.linspace(1, 2, 12)}
X0 = {"a": 1.0, "b": 0.5}


def of_a(params, rows):
    return rows["y"] - params["a"] * rows["t"]


def of_both(params, rows):
    return of_a(params, rows) - params["b"]


def hidden(params, rows):
    """b goes into a function, a loop and a branch, and comes out of none of them."""

    @jax.jit
    def scaled(params):
        return params["a"] * rows["t"], params["b"] * rows["t"]

    lost = jax.lax.fori_loop(0, 3, lambda i, c: (c[0], c[1] + params["b"]), (params["a"], params["b"]))[0]
    return rows["y"] - scaled(params)[0] - lost + jnp.zeros_like(params["b"])


def problem(fn=of_a, x0=X0, weight=1.0, chunk=None, **more):
    term = sf.residual_term(fn, ROWS, weight=weight, chunk=chunk)
    return sf.Problem(sf.Objective({"data": term}), x0, **more)


IMPROPER = {
    "unread": {},
    "without ends": {"priors": {"a": sf.Normal(), "b": sf.Flat()}},
    "one end": {"bounds": {"b": (0.0, None)}},
    "logarithm": {"transforms": {"b": "log"}},
    "in the program, not in the value": {"fn": hidden},
    "in blocks": {"chunk": 5},
}
PROPER = {
    "read": {"fn": of_both},
    "read in blocks": {"fn": of_both, "chunk": 5},
    "prior": {"priors": {"a": sf.Flat(), "b": sf.Normal()}},
    "two ends": {"bounds": {"b": (0.0, 1.0)}},
    "held": {"fixed": ["b"]},
}


@pytest.fixture
def nothing_runs(monkeypatch):
    def evaluated(*args, **options):
        raise AssertionError("the objective was evaluated")

    monkeypatch.setattr(Objective, "_evaluate", evaluated)


@pytest.mark.parametrize("case", IMPROPER)
def test_a_parameter_that_nothing_reads_is_named_before_the_first_evaluation(case, nothing_runs):
    with pytest.raises(ValueError, match=r"sample: the posterior is improper: .* say anything of b, so .* hold it"):
        sf.sample(problem(**IMPROPER[case]), progress=False)


def test_terms_of_no_weight_say_nothing(nothing_runs):
    with pytest.raises(ValueError, match=r"improper.* say anything of a, b \(together\)"):
        sampled(problem(of_both, weight=0.0))


@pytest.mark.parametrize("case", PROPER)
def test_what_has_an_integral_passes(case):
    assert sampled(problem(**PROPER[case])).box is None


def test_programs_are_read_once():
    sampled(problem(of_both))
    before = _reads.cache_info().misses
    sampled(problem(of_both, {"a": 3.0, "b": 2.0}))
    assert _reads.cache_info().misses == before


def test_parts_of_an_array_are_found_after_the_fit():
    """The program reads the array; that one number of it does not matter is for curvature to tell."""

    def first_two(w, rows):
        return rows["y"] - w[0] - w[1] * rows["t"]

    target = sampled(problem(first_two, np.ones(3)))
    with pytest.raises(ValueError, match=r"improper: .* say anything of x\[2\], so"):
        find_start(target)


X = np.random.default_rng(0).normal(size=(30, 2))


def separated(w, rows, gap):
    """Labels that a line separates."""
    odds, label = rows["x"] @ w, rows["x"][:, 0] > gap
    return jnp.logaddexp(0, odds) - label * odds


def slow_tail(x, power):
    return 0.5 * power * jnp.log1p(x**2)


def test_a_density_that_does_not_fall_far_away_is_named_before_any_chain_begins():
    """Separation under flat priors; a tail that falls like one over the distance. With priors, or faster, it passes."""
    term = sf.statistic_term(separated, {"x": X}, 0.0)
    with pytest.raises(ValueError, match=r"improper: far along x\[0\]"):
        find_start(sampled(sf.Problem(sf.Objective({"labels": term}), np.zeros(2))))
    assert (
        find_start(sampled(sf.Problem(sf.Objective({"labels": term}), np.zeros(2), priors=sf.Normal(0.0, 3.0)))).root
        is not None
    )

    def tail(power):
        return sampled(sf.Problem(sf.Objective({"tail": sf.penalty(slow_tail, power)}), 0.5))

    for power in (0.5, 1.0):
        with pytest.raises(ValueError, match="improper"):
            find_start(tail(power))
    assert find_start(tail(2.0)).root is not None  # Cauchy


def banana(x):
    return x[0] ** 2 / 200 + 0.5 * (x[1] + 0.1 * (x[0] ** 2 - 100)) ** 2


@pytest.mark.parametrize("beside", [0.0, 1e-9, 1e-3])
def test_a_start_beside_the_mode_says_nothing_of_tails(beside):
    find_start(sampled(sf.Problem(sf.Objective({"d": sf.penalty(banana)}), np.array([0.0, 10.0 + beside]))))
