"""Targets of which the answer is known, or is that there is none: what a sampler may say of each.

A target that is hard may be told to be so (not converged, divergences, an error); none may be wrong and converged.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jax.scipy.stats import norm, t
from scipy import stats

import shardfit as sf


@dataclass(frozen=True)
class Target:
    """seen(x (m, n)) gives numbers (m, k) of known means and standard deviations; None: there is no posterior."""

    problem: Callable[[], sf.Problem]
    seen: Callable[[np.ndarray], np.ndarray] | None = None
    mean: tuple[float, ...] = ()
    sd: tuple[float, ...] = ()


def density(fn: Callable, x0: np.ndarray, *args: Any, **more: Any) -> Callable[[], sf.Problem]:
    """Return what makes the problem of a log density of one array."""
    start = np.asarray(x0, float)
    return lambda: sf.Problem(sf.Objective({"p": sf.penalty(lambda x, *a: -fn(x, *a), *args)}), start, **more)


def first(*at: int) -> Callable[[np.ndarray], np.ndarray]:
    """Return the function that takes some of the numbers."""
    return lambda x: x[:, list(at)]


def funnel(x):
    """Neal's: a scale of nine effects."""
    return norm.logpdf(x[0], 0, 3.0) + jnp.sum(norm.logpdf(x[1:], 0, jnp.exp(x[0] / 2)))


def easy_funnel(x):
    """The same in standardised effects."""
    return jnp.sum(norm.logpdf(x))


def banana(x, bend):
    """A bent Gaussian."""
    return norm.logpdf(x[0], 0, 3.0) + norm.logpdf(x[1] + bend * (x[0] ** 2 - 9.0))


def mixture(x, means, sds, logs):
    """Gaussians with their own widths."""
    return logsumexp(logs + jnp.sum(norm.logpdf(x, means, sds[:, None]), axis=1))


def modes(size: int, apart: float, share: float = 0.3, sds: tuple[float, float] = (1.0, 1.0), at: int = 1) -> Target:
    """Return a mixture of two Gaussians along the first number, the chains beginning at one of them."""
    means = np.zeros((2, size))
    means[:, 0] = -apart, apart
    mean = (1 - 2 * share) * apart
    var = share * sds[0] ** 2 + (1 - share) * sds[1] ** 2 + apart**2 - mean**2
    made = density(mixture, means[at] + 0.1, means, np.array(sds), np.log([share, 1 - share]))
    return Target(made, first(0), (mean,), (float(np.sqrt(var)),))


def gaussian(size: int, condition: float, seed: int = 0) -> Target:
    """Return a rotated Gaussian."""
    rng = np.random.default_rng(seed)
    turn = np.linalg.qr(rng.normal(size=(size, size)))[0]
    precision = (turn * np.geomspace(1, condition, size)) @ turn.T
    sd = np.sqrt(np.diag(np.linalg.inv(precision)))
    made = density(lambda x, p: -0.5 * x @ p @ x, np.full(size, 0.1), precision)
    return Target(made, first(0, 1, size - 1), (0.0,) * 3, tuple(sd[[0, 1, size - 1]].tolist()))


def independent(fn: Callable, size: int, mean: float, sd: float, x0: float = 0.3, **more: Any) -> Target:
    """Return numbers of one density each."""
    made = density(lambda x: jnp.sum(fn(x)), np.full(size, x0), **more)
    return Target(made, first(0, size - 1), (mean,) * 2, (sd,) * 2)


def cauchy(size: int) -> Target:
    """Return Cauchy numbers, seen by their arc tangents."""
    made = density(lambda x: -jnp.sum(jnp.log1p(x**2)), np.full(size, 0.3))
    return Target(made, lambda x: np.arctan(x[:, :1]), (0.0,), (float(np.pi / np.sqrt(12)),))


EFFECTS = np.array([28.0, 8, -3, 7, -1, 1, 18, 12]), np.array([15.0, 10, 16, 11, 9, 11, 10, 18])


def centred(x, y, s):
    """Eight schools in effects themselves: mu, log tau, theta."""
    tau = jnp.exp(x[1])
    prior = norm.logpdf(x[0], 0, 5.0) - jnp.log1p((tau / 5) ** 2) + x[1]
    return prior + jnp.sum(norm.logpdf(x[2:], x[0], tau)) + jnp.sum(norm.logpdf(y, x[2:], s))


def standardised(x, y, s):
    """Eight schools in standardised effects."""
    tau = jnp.exp(x[1])
    prior = norm.logpdf(x[0], 0, 5.0) - jnp.log1p((tau / 5) ** 2) + x[1]
    return prior + jnp.sum(norm.logpdf(x[2:])) + jnp.sum(norm.logpdf(y, x[0] + tau * x[2:], s))


def schools() -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return means and standard deviations of mu and of log tau, by quadrature."""
    y, s = EFFECTS
    mu, log_tau = np.linspace(-20, 30, 401)[:, None], np.linspace(-12, 5, 801)[None]
    tau = np.exp(log_tau)
    logs = -0.5 * (mu / 5) ** 2 - np.log1p((tau / 5) ** 2) + log_tau
    for one, error in zip(y, s, strict=True):
        var = tau**2 + error**2
        logs = logs - 0.5 * (one - mu) ** 2 / var - 0.5 * np.log(var)
    weight = np.exp(logs - logs.max())
    weight /= weight.sum()
    means = tuple(float(np.sum(weight * x)) for x in (mu, log_tau))
    return means, tuple(
        float(np.sqrt(np.sum(weight * (x - m) ** 2))) for x, m in zip((mu, log_tau), means, strict=True)
    )


SEPARATED = np.random.default_rng(0).normal(size=(40, 2))


def separation(w, x, scale):
    """Logistic regression of two classes that a line separates; scale: of the prior."""
    logits = (x @ w) * jnp.where(x[:, 0] + x[:, 1] > 0, 1.0, -1.0)
    return jnp.sum(jax.nn.log_sigmoid(logits)) - 0.5 * jnp.sum((w / scale) ** 2)


def labels(x, y):
    """Two means of one sample, which may be exchanged."""
    return jnp.sum(logsumexp(-0.5 * (y[:, None] - x) ** 2, axis=1)) - 0.5 * jnp.sum((x / 5) ** 2)


Y = np.concatenate([np.random.default_rng(1).normal(-2, 1, 50), np.random.default_rng(2).normal(2, 1, 50)])
NORMAL_CUT = float(np.sqrt(2 / np.pi))
MEANS, SDS = schools()
RING = 5.0

TARGETS: dict[str, Target] = {
    "normal": independent(norm.logpdf, 3, 0.0, 1.0),
    "scales 1e-9 to 1e9": Target(
        density(lambda x, s: jnp.sum(norm.logpdf(x / s)), 10.0 ** np.arange(-9, 10, 3), 10.0 ** np.arange(-9, 10, 3)),
        lambda x: x[:, [0, 6]] / [1e-9, 1e9],
        (0.0, 0.0),
        (1.0, 1.0),
    ),
    "gaussian 50, condition 1e4": gaussian(50, 1e4),
    "gaussian 200, condition 1e2": gaussian(200, 1e2),
    "gaussian 201, condition 1e2": gaussian(201, 1e2),
    "normal, 1000 numbers": independent(norm.logpdf, 1000, 0.0, 1.0),
    "funnel": Target(density(funnel, np.full(10, 0.1)), first(0), (0.0,), (3.0,)),
    "funnel, standardised": Target(density(easy_funnel, np.full(10, 0.1)), first(0), (0.0,), (1.0,)),
    "banana": Target(density(banana, np.array([0.1, 0.1]), 0.1), first(0, 1), (0.0, 0.0), (3.0, float(np.sqrt(2.62)))),
    "banana, thin": Target(density(banana, np.array([0.1, 0.1]), 3.0), first(0), (0.0,), (3.0,)),
    "schools, centred": Target(density(centred, np.zeros(10), *EFFECTS), first(0, 1), MEANS, SDS),
    "schools, standardised": Target(density(standardised, np.zeros(10), *EFFECTS), first(0, 1), MEANS, SDS),
    "two modes": modes(2, 5.0),
    "two modes, from the lighter": modes(2, 5.0, at=0),
    "two close modes": modes(2, 1.5),
    "two far modes": modes(2, 50.0),
    "two modes of ten numbers": modes(10, 5.0),
    "two modes of widths 1 and 0.2": modes(2, 5.0, 0.5, (1.0, 0.2)),
    "labels": Target(density(labels, np.array([-1.0, 1.0]), Y), first(0, 1), (0.0, 0.0), (2.0, 2.0)),
    "spike and slab": Target(
        density(mixture, np.ones(2), np.zeros((2, 2)), np.array([0.03, 3.0]), np.log([0.5, 0.5])),
        lambda x: np.abs(x[:, :1]),
        (0.5 * NORMAL_CUT * 3.03,),
        (float(np.sqrt(0.5 * 9.0009 - (0.5 * NORMAL_CUT * 3.03) ** 2)),),
    ),
    "ring": Target(
        density(lambda x: norm.logpdf(jnp.sqrt(jnp.sum(x**2) + 1e-12), RING, 0.2), np.array([4.0, 1.0])),
        first(0, 1),
        (0.0, 0.0),
        (float(np.sqrt(0.5 * (RING**2 + 0.12))),) * 2,
    ),
    "t of 3 degrees": Target(  # a standard deviation of so heavy tails does not settle
        density(lambda x: jnp.sum(t.logpdf(x, 3.0)), np.full(3, 0.3)),
        lambda x: stats.t.cdf(x, 3.0),
        (0.5,) * 3,
        (float(np.sqrt(1 / 12)),) * 3,
    ),
    "t of 5 degrees, 20 numbers": independent(lambda x: t.logpdf(x, 5.0), 20, 0.0, float(np.sqrt(5 / 3))),
    "cauchy": cauchy(1),
    "cauchy, ten numbers": cauchy(10),
    "half of a normal": independent(norm.logpdf, 3, NORMAL_CUT, float(np.sqrt(1 - 2 / np.pi)), bounds=(0.0, None)),
    "normal far outside its bounds": independent(
        lambda x: norm.logpdf(x, 10.0), 1, 0.8915, 0.1070, x0=0.5, bounds=(0.0, 1.0)
    ),
    "uniform": independent(lambda x: 0.0 * x, 2, 0.5, float(np.sqrt(1 / 12)), x0=0.3, bounds=(0.0, 1.0)),
    "exponential": independent(lambda x: -x, 3, 1.0, 1.0, bounds=(0.0, None)),
    "laplace": independent(lambda x: -jnp.abs(x), 3, 0.0, float(np.sqrt(2.0))),
    "flat top": independent(
        lambda x: -jnp.logaddexp(50 * (x - 3), 0.0) - jnp.logaddexp(-50 * (x + 3), 0.0), 2, 0.0, float(np.sqrt(3.0))
    ),
    "separated classes, flat priors": Target(density(separation, np.zeros(2), SEPARATED, np.inf)),
    "a sum alone": Target(density(lambda x: -0.5 * (x[0] + x[1] - 1) ** 2, np.zeros(2))),
    "a number unread": Target(density(lambda x: -0.5 * x[0] ** 2, np.zeros(2))),
    "tails of 1 / x": Target(density(lambda x: -0.5 * jnp.log1p(jnp.sum(x**2)), np.full(1, 0.3))),
    "a product alone": Target(density(lambda x: -0.5 * (x[0] * x[1] - 1) ** 2, np.array([1.0, 1.2]))),
    "a wall without end": Target(density(lambda x: -jnp.logaddexp(0.0, -x[0]) - 0.5 * x[1] ** 2, np.zeros(2))),
}
