"""Single scattering: first order of the traces, and the image that fits what it explains."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shardfit.domains.seismic import Recording, WaveOptions, born, propagate
from shardfit.domains.seismic.recipes import MigrationOptions, rtm
from tests.domains.seismic.cases import ENGINES, fast_compile_jit, relative, small
from tests.domains.seismic.test_rtm import layers


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_born_traces_are_the_first_order(engine):
    sim, velocity, wavelet, shots = small(nt=60)
    change = jnp.asarray(np.random.default_rng(0).normal(size=sim.shape))
    found = fast_compile_jit(lambda c: born(sim, velocity, c, wavelet, shots, engine))(change)
    traces = fast_compile_jit(lambda v: propagate(sim, v, wavelet, shots, engine))
    expected = (np.asarray(traces(velocity + 0.1 * change)) - np.asarray(traces(velocity - 0.1 * change))) / 0.2
    assert relative(found, expected) < 1e-6
    bar = jnp.asarray(np.random.default_rng(1).normal(size=found.shape))

    def pulled(bar):
        return jax.vjp(lambda c: born(sim, velocity, c, wavelet, shots, engine), jnp.zeros(sim.shape))[1](bar)[0]

    assert np.vdot(fast_compile_jit(pulled)(bar), change) == pytest.approx(np.vdot(bar, found), rel=1e-10)


@pytest.mark.slow
def test_least_squares_migration_finds_what_scattered():
    """Data made by single scattering: few steps explain most of them, and the image has the change's amplitude."""
    sim, smooth, recording = layers()
    change = np.zeros(sim.shape)
    change[20:24, 20:40] = 60.0
    background = np.asarray(propagate(sim, jnp.asarray(smooth), recording.wavelet, recording.shots))
    scattered = np.asarray(born(sim, smooth, change, recording.wavelet, recording.shots))
    data = Recording(recording.shots, recording.wavelet, background + scattered)
    options = MigrationOptions(iterations=8, high_pass=False)
    image = rtm(sim, smooth, data, options, waves=WaveOptions(precision="float64"))
    explained = np.asarray(born(sim, smooth, image, recording.wavelet, recording.shots))
    assert relative(explained, scattered) < 0.3
    assert np.abs(image[20:24, 22:38]).mean() > 5 * np.abs(image[30:38, 22:38]).mean()
    assert 0.2 < np.vdot(image, change) / np.vdot(change, change) < 1.2


def test_options_are_checked():
    with pytest.raises(ValueError, match="iterations = -1"):
        MigrationOptions(iterations=-1)
