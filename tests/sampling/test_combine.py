"""Rules that combine posteriors of shards: published numbers, exact Gaussians, outliers, bad input."""

from pathlib import Path

import numpy as np
import pytest

from shardfit.sampling.shards.combine import RULES, combine

GOLDEN = Path(__file__).resolve().parents[1] / "data" / "xpcs" / "consensus.npz"
FULL = ("full", "debiased", "draws", "robust")


@pytest.fixture(scope="module")
def published():
    with np.load(GOLDEN) as found:
        return dict(found)


@pytest.fixture(scope="module")
def golden_draws(published):
    shards, parameters = published["samples"].shape[:2]
    return published["samples"].reshape(shards, parameters, -1).swapaxes(1, 2)


@pytest.mark.parametrize("rule", ["consensus_mc", "robust_consensus_mc"])
def test_published_rules(published, golden_draws, rule):
    found = combine(golden_draws, rule)
    np.testing.assert_allclose(found.mean, published[f"{rule}_exact_mean"], rtol=1e-12)
    np.testing.assert_allclose(np.diag(found.covariance), published[f"{rule}_exact_var"], rtol=1e-12)


def test_published_full_covariance(published, golden_draws):
    found = combine(golden_draws, "full")
    np.testing.assert_allclose(found.mean, published["matrix_consensus_mean"], rtol=1e-10)
    np.testing.assert_allclose(found.covariance, published["matrix_consensus_cov"], rtol=1e-8, atol=1e-18)


def gaussian_shards(shards=8, n=4, draws=4000, seed=0):
    """Return draws of random Gaussians, very unequal in scale, and the exact product."""
    rng = np.random.default_rng(seed)
    scale = np.logspace(-6, 3, n)
    roots = scale[:, None] * (np.eye(n) + 0.6 * rng.normal(size=(shards, n, n)))
    means = scale * rng.normal(size=(shards, n))
    found = means[:, None] + np.einsum("kij,kdj->kdi", roots, rng.normal(size=(shards, draws, n)))
    unit = np.einsum("kij,klj->kil", roots, roots) / np.outer(scale, scale)
    precision = np.linalg.inv(unit)
    covariance = np.linalg.inv(precision.sum(0))
    mean = scale * (covariance @ np.einsum("kij,kj->i", precision, means / scale))
    return found, mean, np.outer(scale, scale) * covariance


@pytest.mark.parametrize("rule", FULL[:3])
def test_gaussian_shards_combine_exactly(rule):
    draws, mean, covariance = gaussian_shards()
    found = combine(draws, rule)
    sd = np.sqrt(np.diag(covariance))
    np.testing.assert_allclose((found.mean - mean) / sd, 0, atol=0.1)
    np.testing.assert_allclose(found.covariance / np.outer(sd, sd), covariance / np.outer(sd, sd), atol=0.08)
    assert found.used.all()
    if rule == "draws":
        np.testing.assert_allclose(found.points.mean(0), found.mean)


def test_rules_by_parameter_lose_correlations():
    draws, _, covariance = gaussian_shards()
    assert np.abs(np.corrcoef(covariance)).min() > 0  # correlated
    assert np.count_nonzero(combine(draws, "consensus_mc").covariance) == 4


def test_few_draws_make_precisions_too_large():
    """Hartlap's factor: the combined variance of many poor shards is right on average only with it."""
    n, shards, draws = 6, 400, 20
    own = np.random.default_rng(1).normal(size=(shards, draws, n))
    plain, better = (np.trace(combine(own, rule).covariance) * shards / n for rule in ("full", "debiased"))
    assert plain < 0.7
    assert better == pytest.approx(1, abs=0.03)


@pytest.mark.parametrize("rule", ["robust", "robust_consensus_mc"])
def test_an_outlying_shard_is_left_out_and_named(rule):
    draws = np.random.default_rng(2).normal(size=(9, 500, 2))
    draws[4] += 50
    found = combine(draws, rule)
    assert list(np.flatnonzero(~found.used)) == [4]
    np.testing.assert_allclose(found.mean, 0, atol=0.1)


def test_shards_that_scatter_as_they_should_are_kept():
    rng = np.random.default_rng(3)
    for shards in (4, 30):
        means = rng.normal(size=(shards, 1, 3))
        assert combine(means + rng.normal(size=(shards, 300, 3)), "robust").used.all()


def test_a_rule_needs_some_shards():
    draws = np.random.default_rng(3).normal(size=(3, 300, 1)) + np.array([0, 100, 200])[:, None, None]
    for rule in ("robust", "robust_consensus_mc"):
        assert combine(draws, rule).used.all()


def test_bad_input():
    draws = np.random.default_rng(4).normal(size=(3, 50, 2))
    with pytest.raises(ValueError, match="unknown rule 'ful'. Did you mean 'full'"):
        combine(draws, "ful")
    with pytest.raises(ValueError, match="too few for a covariance"):
        combine(draws[:, :4])
    stuck = draws.copy()
    stuck[1, :, 0] = 3.0
    for rule in FULL:
        with pytest.raises(ValueError, match="its chains are stuck"):
            combine(stuck, rule)
    with pytest.raises(ValueError, match="3 effective draws for 2 parameters"):
        combine(draws, "debiased", np.array([50, 3, 50]))
    assert set(RULES) >= set(FULL)
