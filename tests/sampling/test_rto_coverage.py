"""Perturbed refits of 200 latent numbers of a positive signal: against NUTS, and their coverage of various truths."""

import jax.numpy as jnp
import numpy as np
import pytest

import shardfit as sf

N, DATA = 200, 80
X = np.linspace(0, 1, N)
BLUR = np.exp(-0.5 * ((np.linspace(0.02, 0.98, DATA)[:, None] - X) / 0.03) ** 2)
BLUR /= BLUR.sum(1, keepdims=True)
SMOOTH = np.linalg.cholesky(np.exp(-np.abs(X[:, None] - X) / 0.1))
# the first is drawn from the prior, the others are not
TRUTHS = {
    "prior": np.exp(SMOOTH @ np.random.default_rng(100).standard_normal(N)),
    "step": np.where((X > 0.3) & (X < 0.6), 3.0, 0.5),
    "peaks": 0.4 + 4 * np.exp(-0.5 * ((X - 0.25) / 0.03) ** 2) + 2 * np.exp(-0.5 * ((X - 0.7) / 0.06) ** 2),
    "sine": 1.2 + np.sin(9 * X),
}

pytestmark = pytest.mark.slow


def residual(p, rows, smooth):
    return (rows["y"] - rows["blur"] @ jnp.exp(smooth @ p)) / rows["sigma"]


def made(truth, seed=1):
    clean = BLUR @ truth
    sigma = np.full(DATA, 0.1 * np.sqrt(np.mean(clean**2)))
    rows = {"blur": BLUR, "y": clean + sigma * np.random.default_rng(seed).standard_normal(DATA), "sigma": sigma}
    objective = sf.Objective({"data": sf.residual_term(residual, rows, SMOOTH)})
    return sf.Problem(objective, np.zeros(N), priors=sf.Normal(0.0, 1.0))


def signals(posterior):
    return np.exp(posterior.flat("x") @ SMOOTH.T)


@pytest.fixture(scope="module")
def exact():
    """Signals of the step by NUTS."""
    return signals(sf.sample(made(TRUTHS["step"]), "nuts", draws=300, warmup=300, progress=False))


@pytest.mark.parametrize("weights", [False, True])
def test_equals_nuts(exact, weights):
    posterior = sf.sample(made(TRUTHS["step"]), "rto", draws=300, weights=weights, progress=False)
    share = None if posterior.weights is None else posterior.weights.ravel()
    found = signals(posterior)
    mean = np.average(found, axis=0, weights=share)
    sd = np.sqrt(np.average((found - mean) ** 2, axis=0, weights=share))
    assert np.abs((mean - exact.mean(0)) / exact.std(0)).mean() < 0.12
    assert np.median(sd / exact.std(0)) == pytest.approx(1.0, abs=0.06)
    if weights:
        assert posterior.extra["pareto_k"] < 0.7


@pytest.mark.parametrize("name", TRUTHS)
def test_covers(name):
    found = signals(sf.sample(made(TRUTHS[name]), "rto", draws=200, weights=False, progress=False))
    low, high = np.quantile(found, (0.025, 0.975), axis=0)
    assert np.mean((low < TRUTHS[name]) & (TRUTHS[name] < high)) > 0.9
