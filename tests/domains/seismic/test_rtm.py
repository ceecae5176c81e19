"""Reverse-time migration puts a reflector where it is, whatever the batches and devices."""

from functools import cache

import jax
import numpy as np
import pytest

import shardfit as sf
from shardfit.domains.seismic import Recording, Simulation, WaveOptions, acquisition, propagate, ricker
from shardfit.domains.seismic.recipes import MigrationOptions, rtm
from shardfit.domains.seismic.recipes.rtm import laplacian
from tests.domains.seismic.cases import relative

DEPTH = 25
DOUBLE = WaveOptions(precision="float64")


@cache
def layers():
    sim = Simulation((40, 60), 8.0, 1e-3, 300, 2600.0, 25.0, 4, widths=10)
    smooth, truth = np.full(sim.shape, 2000.0), np.full(sim.shape, 2000.0)
    truth[DEPTH:] = 2200
    wavelet = ricker(25.0, sim.dt, sim.nt)
    shots = acquisition(sim, [(1, x) for x in range(5, 60, 10)], [(1, x) for x in range(0, 60, 3)])
    with jax.enable_x64(True):
        data = np.asarray(propagate(sim, jax.numpy.asarray(truth), wavelet, shots))
    return sim, smooth, Recording(shots, wavelet, data)


def test_a_reflector_is_at_its_depth():
    image = rtm(*layers())
    inside = np.abs(image[8:36, 15:45])  # away from sources and edges
    depths = 8 + inside.argmax(0)
    assert np.abs(np.median(depths) - DEPTH) <= 2
    profile = inside.mean(1)
    assert profile[DEPTH - 8 - 2 : DEPTH - 8 + 3].max() > 3 * np.median(profile)


def test_batches_and_devices_do_not_matter():
    whole = rtm(*layers(), MigrationOptions(batchsize=6), waves=DOUBLE)
    for batchsize, mesh in ((4, None), (1, None), (4, sf.mesh(rows=4))):
        assert relative(rtm(*layers(), MigrationOptions(batchsize), waves=DOUBLE, mesh=mesh), whole) < 1e-10


def test_image_is_minus_the_gradient_of_the_misfit():
    sim, smooth, recording = layers()
    bare = rtm(*layers(), MigrationOptions(compensation=0.0, high_pass=False), waves=DOUBLE)
    direction = np.random.default_rng(0).normal(size=sim.shape)

    def misfit(step):
        found = propagate(sim, jax.numpy.asarray(smooth + step * direction), recording.wavelet, recording.shots)
        return float(np.sum((np.asarray(found) - recording.observed) ** 2) / np.mean(recording.observed**2))

    slope = (misfit(1e-3) - misfit(-1e-3)) / 2e-3
    assert -np.vdot(bare, direction) == pytest.approx(slope, rel=1e-5)


def test_laplacian_of_a_parabola():
    z, x = np.mgrid[:6, :7]
    found = laplacian(2.0 * (3.0 * z) ** 2 + (2.0 * x) ** 2, (3.0, 2.0))
    assert found[1:-1, 1:-1] == pytest.approx(6.0)
