"""Fast distribution function, cosine and sine against SciPy and NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import ndtr

from shardfit.stats.histogram import above, bin_counts, window
from shardfit.stats.normal import cdf, pdf
from shardfit.stats.waves import cos_sin


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


def test_cdf_is_right_to_rounding():
    z = np.linspace(-12, 9, 20_001)
    np.testing.assert_allclose(cdf(jnp.asarray(z)), ndtr(z), rtol=1e-13, atol=0)
    far = np.linspace(-37, -12, 2001)  # rounding of z² shows in exp(-z²/2)
    np.testing.assert_allclose(cdf(jnp.asarray(far)), ndtr(far), rtol=1e-12, atol=0)


def test_cdf_in_single_precision():
    z = np.linspace(-9, 6, 20_001).astype(np.float32)
    found = cdf(jnp.asarray(z))
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, ndtr(z.astype(float)), rtol=3e-5, atol=0)
    near = np.abs(z) < 3
    np.testing.assert_allclose(found[near], ndtr(z[near].astype(float)), rtol=3e-6, atol=0)


def test_cdf_derivatives():
    z = jnp.linspace(-5.0, 5.0, 101)
    np.testing.assert_allclose(jax.vmap(jax.grad(cdf))(z), pdf(z), rtol=1e-15)
    np.testing.assert_allclose(jax.vmap(jax.grad(jax.grad(cdf)))(z), -z * pdf(z), rtol=1e-12, atol=1e-300)
    assert float(cdf(jnp.inf)) == 1.0
    assert float(cdf(-jnp.inf)) == 0.0


@pytest.mark.parametrize(("dtype", "limit"), [(np.float64, 3e-15), (np.float32, 2e-6)])
def test_cos_sin(dtype, limit):
    turns = np.linspace(-50, 50, 40_001).astype(dtype)
    cosine, sine = cos_sin(jnp.asarray(turns))
    phase = 2 * np.pi * (turns.astype(float) - np.round(turns.astype(float)))
    np.testing.assert_allclose(cosine, np.cos(phase), atol=limit)
    np.testing.assert_allclose(sine, np.sin(phase), atol=limit)
    assert cosine.dtype == dtype


def test_cos_sin_derivative():
    turns = jnp.linspace(-1.0, 1.0, 41)
    slope = jax.vmap(jax.grad(lambda u: cos_sin(u)[0] + 2 * cos_sin(u)[1]))(turns)
    phase = 2 * np.pi * turns
    np.testing.assert_allclose(slope, 2 * np.pi * (-jnp.sin(phase) + 2 * jnp.cos(phase)), atol=1e-13)


def test_soft_histogram():
    location, edges = np.array([0.3, 1.0, -2.0]), np.array([-1.0, 0.0, 0.5, 2.0])
    found = above(jnp.asarray(location), 0.7, jnp.asarray(edges))
    np.testing.assert_allclose(found, ndtr((location[:, None] - edges) / 0.7), rtol=1e-13)
    expected = np.diff(ndtr((edges - location[:, None]) / 0.7), axis=1).sum(0)
    np.testing.assert_allclose(bin_counts(found.sum(0)), expected, rtol=1e-12)


def test_window_is_one_inside_and_zero_outside():
    x = jnp.array([0.0, 1.0, 1.5, 2.0, 3.0])
    np.testing.assert_allclose(window(x, 1.0, 2.0), [0, 0.5, 1, 0.5, 0], atol=1e-5)
