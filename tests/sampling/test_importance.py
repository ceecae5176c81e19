"""Weighted points: exact moments of densities that proposals only nearly fit, and k where they do not."""

import numpy as np
import pytest

from shardfit.sampling.shards.importance import ACCURACY, MOST, Proposal, importance_sample

N = 4


def test_proposals_are_normalised():
    """Weights of one t against another of known mass one: the mean ratio is one."""
    wide = Proposal(np.zeros(2), np.diag([2.0, 0.5]), 40_000)
    narrow = Proposal(np.array([0.3, 0.1]), np.array([[1.0, 0.0], [0.2, 0.3]]), 1)
    points = wide.draw(np.random.default_rng(0))
    ratio = np.exp(narrow.log_density(points) - wide.log_density(points))
    assert ratio.mean() == pytest.approx(1, abs=4 * ratio.std() / np.sqrt(len(ratio)))


def gaussian(mean, covariance):
    precision = np.linalg.inv(covariance)
    return lambda z: -0.5 * np.einsum("mi,ij,mj->m", z - mean, precision, z - mean)


def test_a_shifted_and_narrow_gaussian_is_put_right():
    rng = np.random.default_rng(1)
    scale = np.logspace(-5, 2, N)
    root = scale[:, None] * (np.eye(N) + 0.4 * rng.normal(size=(N, N)))
    covariance = root @ root.T
    sd = np.sqrt(np.diag(covariance))
    found = importance_sample(gaussian(sd, covariance), [(np.zeros(N), 0.5 * covariance)], 4000, seed=0)
    mean, spread = found.moments()
    np.testing.assert_allclose(mean / sd, 1, atol=0.1)
    np.testing.assert_allclose(spread / np.outer(sd, sd), covariance / np.outer(sd, sd), atol=0.1)
    assert found.k < 0.5
    assert found.weights.sum() == pytest.approx(1)


def banana(z):
    """Return the log density of a bent Gaussian: x normal, y - x² normal; E y = 1, var y = 2 + 0.25."""
    return -0.5 * z[:, 0] ** 2 - 0.5 * (z[:, 1] - z[:, 0] ** 2) ** 2 / 0.25


def test_a_bent_density_from_a_gaussian_of_its_tip():
    found = importance_sample(banana, [(np.zeros(2), np.diag([0.3, 0.3]))], 8000, seed=3)
    mean, spread = found.moments()
    assert found.rounds > 1  # the first proposal does not reach the ends
    np.testing.assert_allclose(mean, [0, 1], atol=0.12)
    np.testing.assert_allclose(np.diag(spread), [1, 2.25], rtol=0.25)


def test_points_are_added_until_moments_are_accurate():
    def bent(z):
        return -0.5 * z[:, 0] ** 2 - 0.5 * (z[:, 1] - 0.15 * z[:, 0] ** 2) ** 2

    found, few = (
        importance_sample(bent, [(np.zeros(2), 0.5 * np.eye(2))], 1000, 3, most=most) for most in (MOST, 4500)
    )
    assert found.error <= ACCURACY < few.error
    assert found.k < 0.7
    assert len(found.points) <= found.values <= MOST
    assert few.values <= 4500 < found.values
    mean, spread = found.moments()
    np.testing.assert_allclose(mean, [0, 0.15], atol=4 * ACCURACY)
    np.testing.assert_allclose(np.diag(spread), [1, 1.045], rtol=8 * ACCURACY)


def test_errors_are_the_scatter_of_repeated_runs():
    covariance = np.array([[1.0, 0.6], [0.6, 1.0]])
    runs = [
        importance_sample(gaussian(np.zeros(2), covariance), [(np.zeros(2), 0.7 * covariance)], 300, seed=s, rounds=1)
        for s in range(100)
    ]
    means, spreads = (np.array(a) for a in zip(*(run.moments() for run in runs), strict=True))
    sds = np.sqrt(np.diagonal(spreads, axis1=1, axis2=2))
    scatter = [means.std(0).max(), sds.std(0).max(), (spreads[:, 0, 1] / sds.prod(1)).std()]
    assert np.mean([run.error for run in runs]) == pytest.approx(max(scatter), rel=0.2)


def test_a_hopeless_proposal_says_so():
    far = gaussian(np.full(30, 8.0), np.eye(30))
    assert importance_sample(far, [(np.zeros(30), 0.05 * np.eye(30))], 200, seed=0, rounds=1).k > 0.7


def test_points_without_a_density():
    def half(z):
        with np.errstate(invalid="ignore"):
            return np.where(z[:, 0] > 0, -0.5 * np.sum(z**2, axis=1), np.nan)

    found = importance_sample(half, [(np.zeros(2), np.eye(2))], 4000, seed=0)
    assert found.moments()[0][0] == pytest.approx(np.sqrt(2 / np.pi), abs=0.05)
    with pytest.raises(ValueError, match="zero at every point"):
        importance_sample(lambda z: np.full(len(z), -np.inf), [(np.zeros(2), np.eye(2))], 10, seed=0)


def test_the_same_seed_gives_the_same_points():
    first, again, other = (importance_sample(banana, [(np.zeros(2), np.eye(2))], 100, seed=s) for s in (0, 0, 1))
    np.testing.assert_array_equal(first.points, again.points)
    assert not np.array_equal(first.points, other.points)
