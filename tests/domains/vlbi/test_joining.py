"""Days and sidebands as one observation."""

import numpy as np
import pytest

from shardfit.domains.vlbi import recipes
from shardfit.domains.vlbi.closures import triangles
from shardfit.domains.vlbi.joining import join
from shardfit.domains.vlbi.simulation import EHT2017

TRUTH = recipes.known_image("ring", 16)


def observed(seed, stations=EHT2017, **about):
    image = TRUTH.replace(**about)
    return recipes.observe(image, stations, seed=seed, stop_h=6.0, cadence_s=1800.0)


@pytest.fixture(scope="module")
def parts():
    later = EHT2017.take([7, 0, 1, 3, 4, 5, 6])  # another order, one station less
    return observed(0), observed(1, freq_hz=1.008 * TRUTH.freq_hz), observed(2, later, mjd=TRUTH.mjd + 1)


def test_rows_and_closures_are_those_of_all(parts):
    whole = join(parts)
    assert len(whole) == sum(map(len, parts))
    assert len(triangles(whole, count="max")) == sum(len(triangles(one, count="max")) for one in parts)
    assert whole.time.max() > 24
    assert sorted(np.abs(whole.vis["I"])) == pytest.approx(sorted(np.concatenate([np.abs(p.vis["I"]) for p in parts])))
    assert sorted(whole.uv_distance) == pytest.approx(sorted(np.concatenate([p.uv_distance for p in parts])))


def test_chi2_of_the_truth(parts):
    each = [recipes.chi2(one, TRUTH, ("cphase",), any_frequency=True, count="max")["cphase"] for one in parts]
    n = [len(triangles(one, count="max")) for one in parts]
    found = recipes.chi2(join(parts), TRUTH, ("cphase",), any_frequency=True, count="max")["cphase"]
    assert found == pytest.approx(np.average(each, weights=n), rel=1e-9)


def test_image_of_several(parts):
    found = recipes.image(parts, preset="eht", npix=16, maxiter=3, restarts=0, flux=0.6)
    assert len(found.data) == sum(map(len, parts))
    assert found.image.freq_hz == pytest.approx(np.mean([one.freq_hz for one in parts]))


def test_other_bands_and_places(parts):
    with pytest.raises(ValueError, match="different bands.*spectral_image"):
        join([parts[0], parts[0].replace(freq_hz=345e9)])
    with pytest.raises(ValueError, match="different positions"):
        join([parts[0], parts[0].replace(dec_deg=20.0)])
    with pytest.raises(ValueError, match="no observations"):
        join([])
    assert join([parts[0]]) is parts[0]
