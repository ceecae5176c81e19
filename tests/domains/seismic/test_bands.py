"""The band filter against scipy's, and what a filter must be: linear, symmetric, the same on both sides."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.signal import butter, sosfiltfilt

from shardfit.domains.seismic import Simulation, filtered, low_pass
from tests.domains.seismic.cases import relative
from tests.domains.seismic.lens import problem_of, survey

SIM = Simulation((30, 40), 10.0, 2e-3, 600, 2500.0, 10.0, 2, widths=0)


def pulse(at=300):
    return np.random.default_rng(0).normal(size=600) * np.exp(-(((np.arange(600) - at) / 30) ** 2))


@pytest.mark.parametrize(("corner", "order"), [(5.0, 3), (8.0, 4), (20.0, 6)])
def test_agrees_with_filtering_forward_and_backward(corner, order):
    sos = butter(order, corner, fs=1 / SIM.dt, output="sos")
    expected = sosfiltfilt(sos, np.pad(pulse(), 600))[600:-600]
    found = filtered(pulse(), low_pass(SIM, corner, order))
    assert relative(found[100:-100], expected[100:-100]) < 1e-6


def test_response_is_one_half_at_the_corner():
    frequencies = np.arange(SIM.nt + 1) / (2 * SIM.nt * SIM.dt)
    assert np.interp(12.5, frequencies, low_pass(SIM, 12.5)) == pytest.approx(0.5, abs=1e-9)
    assert low_pass(SIM, 12.5)[[0, -1]].tolist() == [1, 0]


def test_is_symmetric_and_differentiable():
    response = low_pass(SIM, 8.0)
    a, b = (np.random.default_rng(i).normal(size=600) for i in (1, 2))
    assert np.vdot(filtered(a, response), b) == pytest.approx(np.vdot(a, filtered(b, response)), rel=1e-12)
    slope = jax.grad(lambda x: jnp.vdot(filtered(x, response), b))(jnp.asarray(a))
    assert relative(slope, filtered(b, response)) < 1e-12


def test_a_band_of_the_truth_has_no_misfit_and_less_power_above_the_corner():
    sim, start, truth, wavelet, shots, data = survey()
    response = low_pass(sim, 15.0)
    how = {"response": response, "precision": "float64"}
    exact = problem_of(sim, truth, wavelet, shots, data, **how)
    assert float(exact.objective.value(exact.x0)) < 1e-12
    off = problem_of(sim, start, wavelet, shots, data, **how)
    assert float(off.objective.value(off.x0)) > 1e-4
    spectrum = np.abs(np.fft.rfft(filtered(data, response).astype(float)))
    frequencies = np.fft.rfftfreq(sim.nt, sim.dt)
    assert spectrum[..., frequencies > 40].max() < 0.02 * spectrum.max()


def test_corners_outside_the_time_axis_are_refused():
    for corner in (0.1, 250.0, -1.0, np.nan):
        with pytest.raises(ValueError, match="half the sampling frequency"):
            low_pass(SIM, corner)
    with pytest.raises(ValueError, match="order=2"):
        low_pass(SIM, 5.0, 2)
