"""Errors of data, judged by the scatter of closure phases."""

import numpy as np
import pytest

from shardfit.domains.vlbi import Gains, Night, average_scans, flag, noise_scale, read_uvfits, simulate
from shardfit.domains.vlbi.recipes import known_image
from tests.domains.vlbi.arrays import observed
from tests.reference import M87

NIGHT = Night(start_h=0.0, stop_h=6.0, cadence_s=20.0, tint_s=10.0)


@pytest.fixture(scope="module")
def noisy():
    """Right errors, gains and phases that are random at every time."""
    spoilt = Gains(offset=0.1, scatter=0.1, random_phase=True)
    return simulate(known_image("ring", 32), night=NIGHT, gains=spoilt, seed=3)


def test_right_errors_are_found_right_whatever_the_gains(noisy):
    seen = noise_scale(noisy)
    assert abs(seen.factor - 1) < 4 * seen.sd
    assert seen.sd < 0.03 and seen.samples > 1000


@pytest.mark.parametrize("factor", [0.5, 3.0])
def test_wrong_errors_are_found_by_their_factor(noisy, factor):
    said = noisy.replace(sigma={name: sigma / factor for name, sigma in noisy.sigma.items()})
    seen, right = noise_scale(said, snr=15 * factor), noise_scale(noisy, snr=15)
    assert seen.samples == right.samples  # the same closures
    assert seen.factor == pytest.approx(factor * right.factor, rel=1e-12)


@pytest.mark.parametrize("source", ["ring", "double"])
def test_what_the_source_does_is_no_noise(source):
    """Without noise little is left, though errors are a thousandth of the amplitudes."""
    clean = simulate(known_image(source, 32), night=NIGHT, noise=False)
    bright = clean.replace(sigma={k: s * np.median(clean.snr) / 1000 for k, s in clean.sigma.items()})
    assert noise_scale(bright).factor < 0.05


@pytest.mark.slow
def test_standard_errors_cover_the_truth():
    away = []
    for seed in range(12):
        seen = noise_scale(simulate(known_image("ring", 32), night=Night(0.0, 2.0, 20.0, 10.0), seed=seed))
        away.append((seen.factor - 1) / seen.sd)
    assert 0.5 < np.std(away) < 1.8 and abs(np.mean(away)) < 1.0


def test_real_data():
    seen = noise_scale(read_uvfits(M87))
    assert 0.9 < seen.factor < 1.2


def test_too_few_samples_are_refused(noisy):
    with pytest.raises(ValueError, match="have one before and one after.*not averaged"):
        noise_scale(average_scans(noisy.replace(scans=None)))
    two = flag(noisy, stations=[name for name in noisy.stations.names if name not in ("AA", "LM")])
    with pytest.raises(ValueError, match="0 closure phases"):
        noise_scale(two)
    obs, _ = observed("vlba15")
    with pytest.raises(ValueError, match="larger longest_s"):
        noise_scale(obs, longest_s=1e-3)
