"""Diagnostics against ArviZ, against chains whose effective draws are known, and against chains that do not mix."""

import numpy as np
import pytest

from shardfit.sampling.quality import diagnostics

# ArviZ 0.23.4 on `chains()`: rhat, ess, mcse, bfmi with its methods of the same names
ARVIZ = {
    "rhat": (1.0000268772827339, 1.066005476265775, 1.084815239427619, 0.9989182462054541),
    "ess_bulk": (1996.1999717041151, 44.19826668311636, 38.42708967178332, 5906.307707129655),
    "ess_tail": (1838.4982612079727, 414.458078794544, 58.01317012187788, 1724.3063128285187),
    "ess_mean": (2035.6723794445252, 44.623199945233345, 38.17932979134481, 5903.629683050794),
    "mcse_mean": (1.166475743523775, 0.16207807583613226, 0.15967472499142965, 0.012736035244316381),
    "mcse_sd": (15.977845083599659, 0.02877770604689639, 0.10709664920191428, 0.019405804948656034),
}
ARVIZ_AT_30 = {
    "ess_quantile": (1991.4821457274459, 243.6577071446407, 50.236370043441816, 3028.260922886372),
    "mcse_quantile": (0.022566655633931704, 0.10438277749576103, 0.21462467456279816, 0.019882791222079366),
}
ARVIZ_BFMI = (0.07828537980657532, 0.1838144947020063, 0.09729021897041219, 0.09671775300546535)


def autoregressive(noise, correlation):
    x = np.empty_like(noise)
    x[:, 0] = noise[:, 0]
    for t in range(1, noise.shape[1]):
        x[:, t] = correlation * x[:, t - 1] + np.sqrt(1 - correlation**2) * noise[:, t]
    return x


def chains():
    """(4, 500, 4): heavy-tailed, one chain apart, slow, anticorrelated. RandomState's numbers never change."""
    x = autoregressive(np.random.RandomState(7).normal(size=(4, 500, 4)), np.array([0.0, 0.6, 0.95, -0.5]))
    x[..., 0] = np.exp(2 * x[..., 0])
    x[0, :, 1] += 1.0
    return x


@pytest.mark.parametrize("name", ARVIZ)
def test_equals_arviz(name):
    np.testing.assert_allclose(getattr(diagnostics, name)(chains()), ARVIZ[name], rtol=1e-10)


@pytest.mark.parametrize("name", ARVIZ_AT_30)
def test_quantiles_equal_arviz(name):
    np.testing.assert_allclose(getattr(diagnostics, name)(chains(), 0.3), ARVIZ_AT_30[name], rtol=1e-10)


def test_energies_equal_arviz():
    np.testing.assert_allclose(diagnostics.bfmi(chains()[..., 2]), ARVIZ_BFMI, rtol=1e-10)


@pytest.mark.parametrize("correlation", [-0.4, 0.0, 0.5, 0.9])
def test_autoregressive_chains_have_the_effective_draws_of_theory(correlation):
    noise = np.random.default_rng(1).normal(size=(8, 4000, 1))
    expected = noise.size * (1 - correlation) / (1 + correlation)
    x = autoregressive(noise, correlation)
    np.testing.assert_allclose(diagnostics.ess_mean(x), expected, rtol=0.12)
    np.testing.assert_allclose(diagnostics.ess_bulk(x), expected, rtol=0.12)


def test_chains_apart_or_of_other_width_are_seen():
    x = np.random.default_rng(2).normal(size=(4, 500, 3))
    x[0, :, 1] += 3.0
    x[0, :, 2] *= 6.0
    good, apart, wide = diagnostics.rhat(x)
    assert good < 1.01 < 1.1 < min(apart, wide)


def test_a_single_number_a_constant_and_stuck_chains():
    x = np.random.default_rng(3).normal(size=(2, 100))
    assert diagnostics.rhat(x).shape == ()
    constant = np.ones((2, 100))
    assert all(np.isnan(f(constant)) for f in (diagnostics.rhat, diagnostics.ess_bulk, diagnostics.ess_tail))
    stuck = np.repeat([[1.0], [2.0]], 100, axis=1)
    assert diagnostics.rhat(stuck) > 1e6
    assert np.isnan(diagnostics.rhat(np.where(x == x[0, 0], np.nan, x)))


def test_blocks_change_nothing():
    x = chains()
    np.testing.assert_array_equal(diagnostics.in_blocks(diagnostics.rhat, x, 4000), diagnostics.rhat(x))


def test_too_few_draws_are_refused():
    with pytest.raises(ValueError, match="too few"):
        diagnostics.rhat(np.zeros((4, 3)))
    with pytest.raises(ValueError, match="shape"):
        diagnostics.rhat(np.zeros(30))


def test_equal_weights_are_as_good_as_none():
    x, weights = chains(), np.full((4, 500), 1 / 2000)
    np.testing.assert_allclose(diagnostics.mcse_weighted(x, weights), diagnostics.mcse_mean(x), rtol=1e-8)
    assert diagnostics.ess_weights(weights) == pytest.approx(2000)
    middle = diagnostics.weighted_quantile(x.reshape(2000, 4), weights.ravel(), 0.5)[0]
    np.testing.assert_allclose(middle, np.median(x, axis=(0, 1)), rtol=1e-10)


def test_weighted_error_is_the_spread_of_repetitions():
    """N(0, 1) from draws of N(0, 2²): the error of the mean, over 400 repetitions, is what one of them predicts."""
    x = 2 * np.random.default_rng(4).normal(size=(2, 500, 400))
    weights = np.exp(-0.5 * x**2 + 0.5 * (x / 2) ** 2)
    weights /= weights.sum((0, 1))
    predicted = [diagnostics.mcse_weighted(x[..., i], weights[..., i]) for i in range(40)]
    assert np.std((weights * x).sum((0, 1))) == pytest.approx(np.mean(predicted), rel=0.12)
