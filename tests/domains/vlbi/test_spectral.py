"""Spectral images of a simulated ring whose spectral index is known."""

import numpy as np
import pytest

from benchmarks import spectra
from shardfit.domains import vlbi
from shardfit.domains.vlbi import recipes
from shardfit.domains.vlbi.constants import UAS

FREQUENCIES = (227.1e9, 345e9)
SHORT = {"preset": "eht", "npix": 32, "maxiter": 60, "restarts": 1}
CALIBRATED = {"data": {"vis": 10.0}, "tolerance": 0.01}


@pytest.fixture(scope="module")
def truth():
    """Ring of 0.6 Jy at 227 GHz and its index, -1 in the middle and flatter to the north."""
    total = recipes.known_image("ring", 32)
    index = np.clip(-1 + 0.8 * total.y[:, None] / (21 * UAS), -2.5, 0.5) * np.ones(total.shape)
    return total, index


def at(truth, hz):
    total, index = truth
    values = total.values["I"] * (hz / total.freq_hz) ** index
    return total.replace(values={"I": values}, freq_hz=hz)


def mean(values, truth):
    weight = truth[0].values["I"] / truth[0].flux
    return (weight * values).sum()


@pytest.fixture(scope="module")
def channels(truth):
    return [
        recipes.observe(at(truth, hz), seed=k, cadence_s=1200.0, gains=0.0, random_phase=False)
        for k, hz in enumerate(FREQUENCIES)
    ]


@pytest.fixture(scope="module")
def found(channels, truth):
    fluxes = [at(truth, hz).flux for hz in FREQUENCIES]
    return vlbi.spectral_image(channels, ref_hz=FREQUENCIES[0], fluxes=fluxes, **CALIBRATED, **SHORT)


@pytest.mark.slow
def test_mean_index(found, truth):
    assert found.mean_alpha == pytest.approx(mean(truth[1], truth), abs=0.1)
    assert found.fluxes == pytest.approx([at(truth, hz).flux for hz in FREQUENCIES], rel=0.03)


def test_structure_of_the_index(found, truth):
    one, other = (values - mean(values, truth) for values in (found.alpha, truth[1]))
    match = mean(one * other, truth) / np.sqrt(mean(one**2, truth) * mean(other**2, truth))
    assert match > 0.6
    north, south = (mean(np.where(side, found.alpha, 0), truth) / mean(side, truth) for side in _halves(truth[0]))
    assert north - south > 0.4


def _halves(image):
    y = image.y[:, None] * np.ones(image.shape)
    return y > 0, y < 0


def test_image_at_every_frequency(found, truth):
    assert found.image.freq_hz == FREQUENCIES[0]
    for hz, flux in zip(FREQUENCIES, found.fluxes, strict=True):
        image = found.at(hz)
        assert image.freq_hz == hz
        assert image.flux == pytest.approx(flux, rel=0.03)
        assert recipes.cross_correlation(image, at(truth, hz)) > 0.95


def test_chi2_of_every_channel(found):
    assert found.chi2["vis"].shape == (2,)
    assert (found.chi2["vis"] < 2).all()
    assert found.chi2["vis"].sum() == pytest.approx(found.result.parts["data.vis"], rel=1e-9)


@pytest.mark.slow
def test_closures_give_the_mean(truth):
    noisy = [recipes.observe(at(truth, hz), seed=k, cadence_s=1200.0) for k, hz in enumerate(FREQUENCIES)]
    fluxes = [at(truth, hz).flux for hz in FREQUENCIES]
    one, two = (vlbi.spectral_image(noisy, fluxes=fluxes, **SHORT) for _ in range(2))
    assert one.mean_alpha == pytest.approx(mean(truth[1], truth), abs=0.15)
    assert one.image.freq_hz == pytest.approx(np.sqrt(np.prod(FREQUENCIES)))
    assert np.array_equal(one.alpha, two.alpha)


@pytest.mark.slow
def test_second_order(channels, truth):
    third = recipes.observe(at(truth, 280e9), seed=2, cadence_s=1200.0, gains=0.0, random_phase=False)
    found = vlbi.spectral_image([*channels, third], order=2, **CALIBRATED, **{**SHORT, "restarts": 0})
    assert found.beta is not None
    assert found.chi2["vis"].shape == (3,)
    assert found.at(280e9).flux == pytest.approx(at(truth, 280e9).flux, rel=0.05)


def test_picture_of_the_index(found):
    pytest.importorskip("matplotlib")
    from shardfit.domains.vlbi import plots

    shown = plots.spectral_index(found.image, found.alpha).axes[0].images[0].get_array()
    bright = found.image.values["I"] > 0.05 * found.image.values["I"].max()
    assert np.array_equal(np.ma.getmaskarray(np.ma.masked_invalid(shown)), ~bright)


@pytest.mark.parametrize(
    ("change", "error", "expected"),
    [
        ({"order": 3}, ValueError, "must be 1"),
        ({"order": 2}, ValueError, "order 2 needs 3 frequencies, the observations have 227.1 GHz, 345 GHz"),
        ({"fluxes": (0.6,)}, ValueError, "1 fluxes for 2 observations"),
        ({"fluxes": (0.6, -1.0)}, ValueError, "must be positive"),
        ({"flux": 0.6}, TypeError, "Give fluxes="),
        ({"fov": 100}, TypeError, "Did you mean 'fov_uas'"),
        ({"regularisers": {"l2_alfa": 1.0}}, ValueError, "Did you mean 'l2_alpha'"),
    ],
)
def test_bad_options(channels, change, error, expected):
    with pytest.raises(error, match=expected):
        vlbi.spectral_image(channels, **change)


def test_bad_observations(channels):
    one, two = channels
    with pytest.raises(ValueError, match="needs 2 frequencies"):
        vlbi.spectral_image([one, one])
    with pytest.raises(ValueError, match="too close"):
        vlbi.spectral_image([one, one.replace(freq_hz=229e9)])
    with pytest.raises(ValueError, match="different positions"):
        vlbi.spectral_image([one, two.replace(dec_deg=-29.0)])


@pytest.mark.slow
@pytest.mark.parametrize(("name", "allowed"), [("jet", 0.1), ("double", 0.25), ("halo", 0.25)])
def test_index_of_other_sources(name, allowed):
    """Core and jet of the VLBA, a double and a core with a halo of the EHT: not the ring that weights began with."""
    skies = [spectra.sky(name, hz) for hz in spectra.SEEN[name][4]]
    fluxes = [one.flux for one in skies]
    options = {"fluxes": fluxes, "npix": 32, "fov_uas": skies[0].pixel_rad * 32 / UAS, "restarts": 1}
    seen = spectra.observed(name, 0.0, 0)
    found = vlbi.spectral_image(seen, ref_hz=skies[0].freq_hz, data={"vis": 10.0}, **options)
    octave = np.log(skies[1].freq_hz / skies[0].freq_hz)
    assert found.mean_alpha == pytest.approx(np.log(fluxes[1] / fluxes[0]) / octave, abs=0.03)
    assert spectra.index_error(skies, [found.at(one.freq_hz) for one in skies]) < allowed  # 0.06, 0.17, 0.17
    assert np.abs(found.alpha - found.mean_alpha).max() < 2.6
    assert not found.mask[found.image.values["I"] < 0.04 * found.image.values["I"].max()].any()
    assert not found.doubts
