"""Conditioning of gradients against scipy and plain formulas, and illumination against the field itself."""

import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy.ndimage import gaussian_filter

import shardfit as sf
from shardfit.domains.seismic import Conditioning, WaveOptions, acquisition, illumination, propagate, select
from shardfit.domains.seismic.conditioning import condition, mask, optimiser, relative_to_first, smooth, weights
from tests.domains.seismic.cases import relative
from tests.domains.seismic.lens import survey


def test_mask_fades_around_points_and_is_zero_in_water():
    sim, *_, shots, _ = survey()
    factors = mask(sim, shots, Conditioning(rows=1, near=6.0))
    assert factors[0].tolist() == [0] * 40
    assert factors[2, 0] == factors[27, 4] == factors[4, 8] == 0
    assert factors[15, 20] == 1
    assert 0 < factors[6, 8] < 1
    assert np.array_equal(mask(sim, shots, Conditioning()), np.ones(sim.shape))


def test_fractional_points_are_masked_where_they_are():
    sim = survey()[0]
    factors = mask(sim, acquisition(sim, [(10.4, 20.6)], [(20, 5)]), Conditioning(near=1.0))
    assert np.argwhere(factors == 0).tolist() == [[10, 21], [20, 5]]


def test_weights():
    sim = survey()[0]
    energy = np.random.default_rng(0).uniform(0, 5, sim.shape)
    how = Conditioning(illumination=0.5, floor=0.1, depth=2.0)
    depth = (np.arange(1, 31) / 30)[:, None]
    assert weights(sim, how, energy) == pytest.approx(depth**2 / np.sqrt(energy / energy.max() + 0.1), rel=1e-12)
    with pytest.raises(ValueError, match="needs the energy"):
        weights(sim, how)


def test_smoothing_agrees_with_scipy():
    field = np.random.default_rng(0).normal(size=(30, 40))
    for sigma in (0.7, 3.0):
        assert relative(smooth(jnp.asarray(field), sigma), gaussian_filter(field, sigma, mode="reflect")) < 1e-9


def test_clip_cuts_at_the_percentile():
    field = np.random.default_rng(0).normal(size=(30, 40))
    found = condition(jnp.asarray(field), 1.0, 1.0, Conditioning(clip=90.0))
    limit = np.percentile(np.abs(field), 90)
    assert np.asarray(found) == pytest.approx(np.clip(field, -limit, limit))


@pytest.mark.parametrize("scale", [1.0, 1e-12, 1e-30])
def test_steps_do_not_depend_on_the_size_of_gradients(scale):
    gradient = np.random.default_rng(0).normal(size=(4, 5)).astype(np.float32)
    gradient[0, 0] = 1e-4
    gradient[1, 1] = 0
    ones = np.ones((4, 5))
    transform = optimiser("adam", 25.0, Conditioning(), ones, ones, eps=1e-12)
    z = jnp.zeros(20, jnp.float32)
    state = transform.init(z)
    for _ in range(3):
        step, state = transform.update(jnp.float32(scale) * gradient.ravel(), state, z)
    assert np.asarray(step) == pytest.approx(-25 * np.sign(gradient.ravel()), rel=1e-4)


def test_relative_gradients_keep_their_ratios_from_step_to_step():
    transform = relative_to_first()
    state = transform.init(jnp.zeros(2))
    first, state = transform.update(jnp.array([0.0, -4e-9]), state)
    second, _ = transform.update(jnp.array([1e-9, 0.0]), state)
    assert first.tolist() == pytest.approx([0, -1])
    assert second.tolist() == pytest.approx([0.25, 0])


def test_equal_settings_share_a_transformation():
    ones = np.ones((4, 5))
    first = optimiser("adam", 25.0, Conditioning(smoothing=1.0), ones, ones)
    assert first is optimiser("adam", 25.0, Conditioning(smoothing=1.0), ones.copy(), ones)
    assert first is not optimiser("adam", 25.0, Conditioning(smoothing=1.0), 2 * ones, ones)
    assert isinstance(first, optax.GradientTransformation)


def test_illumination_is_the_energy_of_the_field():
    sim, start, _, wavelet, shots, _ = survey()
    everywhere = [(z, x) for z in range(sim.shape[0]) for x in range(sim.shape[1])]
    some = select(shots, np.array([0, 3]))
    here = acquisition(sim, [(2, 2), (27, 10)], everywhere)
    assert np.array_equal(here.sources.cells, some.sources.cells)
    field = np.asarray(propagate(sim, jnp.asarray(start), wavelet, here))
    expected = np.sum(np.diff(field, 2) ** 2, (0, 2)).reshape(sim.shape)
    exact = illumination(sim, start, wavelet, some, every=1, waves=WaveOptions(precision="float64"))
    assert relative(exact, expected) < 1e-10
    double = WaveOptions(precision="float64")
    coarse = illumination(sim, start, wavelet, some, every=3, waves=double, mesh=sf.mesh(rows=2))
    assert coarse[::3, ::3] == pytest.approx(expected[::3, ::3], rel=1e-9)
    away = np.s_[8:22]
    assert relative(coarse[away], expected[away]) < 0.05


def test_bad_settings_are_refused():
    for change, message in [
        ({"rows": -1}, "rows = -1"),
        ({"floor": 0.0}, "floor = 0.0"),
        ({"clip": 100.0}, "clip = 100.0"),
        ({"smoothing": np.nan}, "smoothing = nan"),
    ]:
        with pytest.raises(ValueError, match=message):
            Conditioning(**change)
    with pytest.raises(ValueError, match="first-order"):
        optimiser("lbfgs", 1.0, Conditioning(), np.ones((2, 2)), np.ones((2, 2)))
