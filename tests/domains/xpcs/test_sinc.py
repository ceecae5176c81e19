"""sin(x)/x and its derivatives against more digits, at all sizes of x."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shardfit.core.precision import arithmetic
from shardfit.domains.xpcs.sinc import SMALL, sinc_and_slope

rng = np.random.default_rng(4)
POINTS = np.concatenate(
    [
        [0.0, -0.0, 1e-300, SMALL, -SMALL, np.nextafter(SMALL, 0), np.nextafter(SMALL, 1)],
        rng.uniform(-SMALL, SMALL, 500),
        rng.uniform(-10, 10, 5000),
        np.pi / 2 * np.arange(-60, 61),
        rng.uniform(-1e3, 1e3, 5000),
        10 ** rng.uniform(3, 7, 500),
    ]
)


def exact(x):
    """Return value, first and second derivative in extended precision; near zero by their series."""
    x = np.asarray(x, np.longdouble)
    near = np.abs(x) < 0.5
    far = np.where(near, 1, x)
    value = np.sin(far) / far
    slope = (np.cos(far) - value) / far
    bend = -value - 2 * slope / far
    term, series = np.ones_like(x), [np.ones_like(x), np.zeros_like(x), np.zeros_like(x)]
    for k in range(1, 14):
        term = term * np.longdouble(-1) / ((2 * k) * (2 * k + 1))
        series[0] = series[0] + term * x ** (2 * k)
        series[1] = series[1] + term * 2 * k * x ** (2 * k - 1)
        series[2] = series[2] + term * 2 * k * (2 * k - 1) * x ** (2 * k - 2)
    return [np.where(near, s, f) for s, f in zip(series, (value, slope, bend), strict=True)]


@pytest.mark.skipif(np.finfo(np.longdouble).eps > 1e-18, reason="needs extended precision to compare with")
def test_value_and_derivatives_are_right_to_rounding():
    with arithmetic("float64"):
        x = jnp.asarray(POINTS)
        (value, slope), (first, second) = jax.jit(lambda x: jax.jvp(sinc_and_slope, (x,), (jnp.ones_like(x),)))(x)
    wanted = exact(POINTS)
    np.testing.assert_allclose(value, wanted[0].astype(float), atol=5e-16, rtol=0)
    np.testing.assert_allclose(slope, wanted[1].astype(float), atol=5e-15, rtol=0)
    np.testing.assert_array_equal(first, slope)
    np.testing.assert_allclose(second, wanted[2].astype(float), atol=5e-13, rtol=0)


def test_far_out_it_is_small_and_in_single_precision_it_is_sine_over_x():
    with arithmetic("float64"):
        value, slope = sinc_and_slope(jnp.array([1e12, -1e200]))
    assert np.all(np.abs(value) <= [1.1e-12, 1.1e-200]) and np.all(np.abs(slope) <= [1.1e-12, 1.1e-200])
    x = np.linspace(-20, 20, 101, dtype=np.float32)
    np.testing.assert_allclose(sinc_and_slope(jnp.asarray(x))[0], np.sinc(x / np.pi), atol=3e-7)
