"""Models by formula: what their words say, and start models that keep water and means."""

import numpy as np
import pytest

from shardfit.domains.seismic import models


def test_layers_begin_where_said():
    found = models.layers((101, 7), 10.0, tops=(0.0, 0.2, 0.5), speeds=(1500.0, 2000.0, 3000.0))
    assert found.shape == (101, 7)
    assert np.flatnonzero(np.diff(found[:, 3])).tolist() == [19, 49]
    with pytest.raises(ValueError, match="must rise from 0"):
        models.layers((10, 10), 10.0, tops=(0.0, 0.5), speeds=(1500.0, 1600.0, 1700.0))


def test_lens_is_a_gaussian():
    found = models.lens((101, 81), (10.0, 5.0), background=2000.0, change=-300.0, radius=50.0)
    assert found[50, 40] == pytest.approx(1700.0)
    assert found[55, 40] == pytest.approx(2000 - 300 * np.exp(-0.5))
    assert found[50, 50] == pytest.approx(2000 - 300 * np.exp(-0.5))


@pytest.mark.parametrize("seed", range(4))
def test_faulted_section(seed):
    found = models.faulted_section((120, 360), 25.0, seed=seed)
    assert np.array_equal(found, models.faulted_section((120, 360), 25.0, seed=seed))
    assert found.min() >= 1500 and found.max() <= 4500 and found.max() > 3800
    assert models.water_cells(found).sum(0).tolist() == [9] * 360
    # faults and dips: neighbouring columns differ in many places, and depth makes rock faster
    assert (np.diff(found, axis=1) != 0).mean() > 0.02
    assert found[-30:].mean() > found[10:40].mean() + 800
    # the same section on a finer grid
    fine = models.faulted_section((239, 719), 12.5, seed=seed)
    assert np.mean(fine[::2, ::2] != found) < 0.02


def test_seeds_differ():
    assert np.any(models.faulted_section((50, 90), 40.0, 0) != models.faulted_section((50, 90), 40.0, 1))


def test_smoothing_keeps_water_and_does_not_mix_it_in():
    truth = np.full((60, 40), 2500.0)
    truth[:10] = 1500.0
    water = models.water_cells(truth)
    assert np.allclose(models.smoothed(truth, 100.0, 10.0, water), truth)
    assert np.any(np.abs(models.smoothed(truth, 100.0, 10.0) - truth) > 300)


def test_smoothing_is_a_gaussian_of_that_many_metres():
    spike = np.full((101, 101), 2000.0)
    spike[50, 50] += 1000.0
    found = models.smoothed(spike, 50.0, (10.0, 5.0)) - 2000.0
    z = 10.0 * (np.arange(101) - 50)
    assert np.sqrt((found.sum(1) * z**2).sum() / found.sum()) == pytest.approx(50.0, rel=0.01)
    assert np.sqrt((found.sum(0) * (z / 2) ** 2).sum() / found.sum()) == pytest.approx(50.0, rel=0.01)
    with pytest.raises(ValueError, match="must be positive"):
        models.smoothed(spike, 0.0, 10.0)


def test_linear_in_depth():
    water = np.zeros((11, 5), bool)
    water[:2] = True
    found = models.linear_in_depth((11, 5), 10.0, 1500.0, 2500.0, water)
    assert found[:, 2].tolist() == [1500, 1500, *np.linspace(1700, 2500, 9)]


@pytest.mark.parametrize("make", [models.layers, models.lens, models.faulted_section, models.linear_in_depth])
def test_impossible_grids(make):
    with pytest.raises(ValueError, match="at least 2 cells"):
        make((1, 10), 10.0)
    with pytest.raises(ValueError, match="positive spacing"):
        make((10, 10), -1.0)


def test_water_deeper_than_the_model():
    with pytest.raises(ValueError, match="whole depth"):
        models.faulted_section((20, 30), 10.0, water=500.0)
