"""Source estimation recovers what the data were made with."""

import numpy as np
import pytest

from shardfit.domains.seismic import Recording, SourceOptions, WaveOptions, estimate_source, propagate, ricker
from tests.domains.seismic.cases import relative
from tests.domains.seismic.lens import problem_of, survey

WAVES = WaveOptions(precision="float64")
NT = 420  # all waves have passed: a filter in the frequency domain needs whole ones


def modelled(wavelet):
    sim, start, _, _, shots, _ = survey(4, NT)
    return np.asarray(propagate(sim, start, wavelet, shots))


def test_scalar_common_and_per_shot():
    sim, start, _, wavelet, shots, _ = survey(4, NT)
    data = modelled(-2.5 * wavelet)
    found = estimate_source(sim, start, Recording(shots, wavelet, data), SourceOptions("scalar"), waves=WAVES)
    assert relative(found, -2.5 * wavelet) < 1e-12
    factors = np.array([1.0, -0.5, 3.0, 2.0])[:, None]
    data = modelled(factors * wavelet)
    each = SourceOptions("scalar", per_shot=True)
    each = estimate_source(sim, start, Recording(shots, wavelet, data), each, waves=WAVES, batchsize=3)
    assert relative(each, factors * wavelet) < 1e-12


@pytest.mark.parametrize("per_shot", [False, True])
def test_filter_recovers_another_wavelet(per_shot):
    sim, start, _, _, shots, _ = survey(4, NT)
    guess = ricker(22.0, sim.dt, sim.nt)
    truth = 0.7 * np.roll(ricker(25.0, sim.dt, sim.nt), 4)
    recording, source = Recording(shots, guess, modelled(truth)), SourceOptions(per_shot=per_shot, damping=1e-8)
    found = estimate_source(sim, start, recording, source, waves=WAVES)
    assert found.shape == ((4, sim.nt) if per_shot else (sim.nt,))
    assert relative(found, np.broadcast_to(truth, found.shape)) < 0.02
    assert relative(np.broadcast_to(guess, found.shape), np.broadcast_to(truth, found.shape)) > 0.5


@pytest.mark.parametrize("kind", ["scalar", "filter"])
@pytest.mark.parametrize("of", ["shots", "traces", "samples"])
def test_what_has_no_weight_has_no_share(kind, of):
    """Dead traces made the wavelet too weak, and spikes anything."""
    sim, start, _, wavelet, shots, _ = survey(4, NT)
    data = modelled(1.7 * wavelet)
    n, receivers = data.shape[:2]
    bad = np.zeros((n, receivers), bool)
    bad[1 if of == "shots" else slice(None), :: 1 if of == "shots" else 3] = True
    weights = {"shots": 1.0 - bad[:, 0], "traces": 1.0 - bad, "samples": (1.0 - bad)[..., None] * np.ones(NT)}[of]
    for wrong in (0.0, 1e4 * np.random.default_rng(0).standard_normal(data.shape)):
        recording = Recording(shots, wavelet, np.where(bad[..., None], wrong, data), weights)
        found = estimate_source(sim, start, recording, SourceOptions(kind, damping=1e-9), waves=WAVES, batchsize=3)
        assert relative(found, 1.7 * wavelet) < (1e-12 if kind == "scalar" else 1e-3)


@pytest.mark.parametrize("kind", ["scalar", "filter"])
def test_matching_inside_the_loss_forgives_the_source(kind):
    sim, start, _, wavelet, shots, _ = survey(4, NT)
    data = np.array([1.0, -0.5, 3.0, 2.0])[:, None, None] * modelled(wavelet)
    # the filter is damped by 1e-3 of the largest power, and what it leaves is of that order
    for match, most in ((kind, 1e-20 if kind == "scalar" else 2e-3), (None, np.inf)):
        found = problem_of(sim, start, wavelet, shots, data, match=match, precision="float64")
        value = float(found.objective.value(found.x0))
        assert value < most
    assert value > 0.1
