"""Smoothed weights: the shape of a known tail, what they leave alone, and what they refuse."""

import numpy as np
import pytest

from shardfit.sampling.quality.psis import pareto_fit, smoothed


@pytest.mark.parametrize("k", [-0.3, 0.0, 0.3, 0.8])
def test_the_fit_finds_the_shape_of_a_pareto_tail(k):
    u = np.random.default_rng(1).uniform(size=(20000, 2))
    x = -np.log(u) if k == 0 else np.expm1(-k * np.log(u)) / k
    shape, scale = pareto_fit(np.sort(3.0 * x, axis=0))
    np.testing.assert_allclose(shape, k, atol=0.03)
    np.testing.assert_allclose(scale, 3.0, rtol=0.05)


def test_importance_ratios_of_normals_have_the_tail_of_theory():
    # p = N(0, 1), q = N(0, s): w(x) ~ exp(c x²), whose tail has k = 1 − s² for s < 1
    draws = 0.6 * np.random.default_rng(2).normal(size=100000)
    log_weights, k = smoothed(-0.5 * draws**2 + 0.5 * (draws / 0.6) ** 2)
    assert isinstance(k, float)
    assert abs(k - (1 - 0.36)) < 0.12
    assert np.exp(log_weights).sum() == pytest.approx(1.0)


def test_a_wide_proposal_gives_a_small_k_and_the_target_moments():
    draws = 1.5 * np.random.default_rng(3).normal(size=4000)
    log_weights, k = smoothed(-0.5 * draws**2 + 0.5 * (draws / 1.5) ** 2)
    assert k < 0.2
    assert np.exp(log_weights) @ draws**2 == pytest.approx(1.0, abs=0.06)


def test_columns_are_smoothed_as_if_alone_and_order_is_kept():
    given = np.random.default_rng(4).normal(size=(500, 3)) * [0.2, 1.0, 3.0]
    together, k = smoothed(given, [1.0, 1.0, 0.3])
    for i, efficiency in enumerate([1.0, 1.0, 0.3]):
        alone, k_alone = smoothed(given[:, i], efficiency)
        np.testing.assert_allclose(alone, together[:, i], rtol=1e-12)
        assert k_alone == pytest.approx(k[i], rel=1e-10)
        np.testing.assert_array_equal(np.argsort(alone, kind="stable"), np.argsort(given[:, i], kind="stable"))


def test_few_draws_equal_weights_and_zero_weights():
    assert smoothed(np.arange(8.0))[1] == np.inf
    weights, k = smoothed(np.full(100, 7.0))
    assert k == -np.inf
    np.testing.assert_allclose(weights, -np.log(100))
    given = np.random.default_rng(5).normal(size=200)
    given[:150] = -np.inf
    weights, k = smoothed(given)
    assert np.isfinite(k) and (weights[:150] == -np.inf).all()


@pytest.mark.parametrize(
    ("weights", "message"),
    [([0.0, np.nan], "NaN"), ([0.0, np.inf], "NaN"), ([-np.inf] * 9, "all weights are zero"), (3.0, "shape")],
)
def test_bad_weights_are_refused(weights, message):
    with pytest.raises(ValueError, match=message):
        smoothed(weights)


def test_equals_arviz():
    # ArviZ 0.23.4: psislw of these log weights
    log_weights, k = smoothed(np.random.RandomState(8).standard_t(4, size=1000))
    assert k == pytest.approx(1.0167885882434016, rel=1e-10)
    assert log_weights.max() == pytest.approx(-1.554681703578964, rel=1e-10)
    assert np.exp(log_weights) @ np.arange(1000) == pytest.approx(472.6222655881368, rel=1e-10)
