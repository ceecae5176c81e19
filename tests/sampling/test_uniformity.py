"""Tests of uniform ranks: right as often as they say, and awake to shifts, widths and slopes."""

import numpy as np
import pytest

from shardfit.sampling.quality.uniformity import UniformRanks


@pytest.fixture(scope="module")
def uniform():
    return UniformRanks(200, 99)


def test_p_values_are_uniform_for_uniform_ranks(uniform):
    ranks = np.random.default_rng(1).integers(0, 100, size=(200, 400))
    for p in (uniform.p_of_histogram(ranks), uniform.p_of_function(ranks)):
        assert abs(np.mean(p < 0.05) - 0.05) < 0.035
        assert abs(np.mean(p) - 0.5) < 0.06


def test_bands_hold_whole_functions(uniform):
    below = uniform.below(np.random.default_rng(2).integers(0, 100, size=(200, 600)))
    low, high = uniform.band(0.9)
    inside = ((below >= low[:, None]) & (below <= high[:, None])).all(0)
    assert inside.mean() == pytest.approx(0.9, abs=0.04)


@pytest.mark.parametrize(("a", "b"), [(1.6, 1.0), (0.6, 0.6), (2.0, 2.0)])
def test_other_ranks_are_seen(uniform, a, b):
    ranks = (100 * np.random.default_rng(3).beta(a, b, size=(200, 50))).astype(int)
    assert np.median(uniform.p_of_function(ranks)) < 0.01
    assert np.median(uniform.p_of_histogram(ranks)) < 0.02


@pytest.mark.parametrize(("n", "draws", "bins"), [(200, 99, 20), (60, 99, 10), (12, 99, 2), (8, 99, 1), (500, 9, 10)])
def test_bins_divide_the_ranks_and_are_filled(n, draws, bins):
    uniform = UniformRanks(n, draws)
    assert uniform.bins == bins
    ranks = np.random.default_rng(4).integers(0, draws + 1, size=(n, 3))
    assert (uniform.histogram(ranks).sum(0) == n).all()
    assert (uniform.p_of_histogram(ranks) <= 1).all()
