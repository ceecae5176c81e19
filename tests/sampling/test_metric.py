"""Metrics from draws and gradients: exact for Gaussians, and what they say of many coordinates."""

import jax.numpy as jnp
import numpy as np
import pytest

from shardfit.core.precision import arithmetic
from shardfit.sampling.chains.metric import Dense, LowRank, most_draws

RNG = np.random.default_rng(0)


def rows(covariance_root, m):
    """Draws (m, n) of a Gaussian and their gradients."""
    z = RNG.standard_normal((m, len(covariance_root))) @ covariance_root.T
    return z, np.linalg.solve(covariance_root @ covariance_root.T, z.T).T


def matrix(metric, n):
    return np.asarray(metric.along(metric.against(jnp.eye(n))))


@pytest.mark.parametrize("kind", [Dense, LowRank])
def test_a_gaussian_is_known_from_a_few_more_draws_than_coordinates(kind):
    n = 30
    turn = np.linalg.qr(RNG.standard_normal((n, n)))[0]
    root = turn * np.geomspace(0.03, 10, n)
    with arithmetic("float64"):
        metric = kind.of(jnp.full(n, 0.5))
        for _ in range(3):
            metric = metric.renewed(*map(jnp.asarray, rows(root, 300)), jnp.ones(300, bool))
        white = np.linalg.solve(root, np.linalg.solve(root, matrix(metric, n)).T)
        np.testing.assert_allclose(np.linalg.eigvalsh(white), 1, atol=1.3)  # variances below twice the metric's stay
        assert np.linalg.eigvalsh(white).min() > 0.4
        x = jnp.asarray(RNG.standard_normal((n, 2)))
        np.testing.assert_allclose(metric.gradient(metric.against(x)), x, rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(metric.scales(), np.sqrt(np.diag(matrix(metric, n))), rtol=1e-9)


@pytest.mark.parametrize("m", [60, 400])
def test_few_directions_of_many_coordinates(m):
    """Five long directions among 700 coordinates of different scales; also from fewer rows than directions."""
    n, scale = 700, np.geomspace(0.1, 10, 700)
    turn = np.linalg.qr(RNG.standard_normal((n, 5)))[0]
    root = scale[:, None] * (np.eye(n) + turn * (np.geomspace(10, 50, 5) - 1) @ turn.T)
    with arithmetic("float64"):
        z, gradients = (jnp.asarray(part) for part in rows(root, m))
        metric = LowRank.of(jnp.ones(n)).renewed(z, gradients, jnp.ones(m, bool))
        assert metric.basis.shape == (n, 128) and int(metric.rank) >= 5
        white = np.linalg.solve(root, np.asarray(metric.along(jnp.eye(n))))
        size = np.linalg.svd(white)[1]
        assert size.max() / size.min() < 20  # 5,000 without it


def test_odd_numbers_leave_a_metric_as_it_is():
    with arithmetic("float64"):
        metric = LowRank.of(jnp.ones(3))
        after = metric.renewed(jnp.full((9, 3), jnp.nan), jnp.ones((9, 3)), jnp.ones(9, bool))
        np.testing.assert_array_equal(after.scale, 1)


def test_memory_is_bounded():
    assert most_draws(10**5, 4) * 2 * 10**5 <= 2**24 and most_draws(50, 4) == 400
