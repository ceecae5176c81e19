"""Images drawn from the posterior: they fit the data, cover the truth, and depend on the seed alone."""

import jax
import numpy as np
import pytest

from shardfit.core.precision import arithmetic
from shardfit.domains.vlbi import (
    EHT2017,
    UAS,
    Gains,
    Night,
    add_fractional_noise,
    blank,
    chi2,
    cross_correlation,
    known_image,
    plots,
    posterior,
    regrid,
    simulate,
)
from shardfit.domains.vlbi.latent_image import Scene, picture
from shardfit.domains.vlbi.whitened import compress, polar_arrays, polar_residual, visibility_residual
from tests.domains.vlbi.arrays import observed

NIGHT = {"cadence_s": 2400.0}
PIXELS = {"npix": 16, "fov_uas": 128.0}


def data(gains: bool = False, seed: int = 0, offset: float = 0.035):
    """A ring with 1 % noise on top of the thermal one, both in the data and in their errors."""
    truth = known_image("ring", 64)
    errors = Gains(offset * gains, 0.05 * np.sqrt(0.5) * gains, random_phase=gains)
    obs = simulate(truth, EHT2017, Night(**NIGHT), seed=seed, gains=errors, noise=False)
    sigma = np.hypot(obs.sigma["I"], 0.01 * np.abs(obs.vis["I"]))
    noise = np.random.default_rng(seed).normal(size=(2, len(sigma)))
    return obs.replace(vis={"I": obs.vis["I"] + sigma * (noise[0] + 1j * noise[1])}, sigma={"I": sigma}), truth


@pytest.fixture(scope="module")
def drawn():
    obs, truth = data()
    return posterior(obs, **PIXELS, flux=0.5, products="vis", draws=40, seed=1), obs, truth


@pytest.mark.slow
def test_draws_fit_the_data(drawn):
    found, obs, _ = drawn
    assert found.images.shape == (40, 16, 16)
    assert (found.images >= 0).all()
    assert 0.9 < found.chi2.mean() < 1.1
    one = found.about.replace(values={"I": found.images[0]})
    assert chi2(obs, one, ("vis",))["vis"] == pytest.approx(found.chi2[0], rel=1e-3)


@pytest.mark.slow
def test_spread_covers_the_truth(drawn):
    found, _, truth = drawn
    flux = found.of(lambda image: image.flux)
    assert abs(flux.mean() - truth.flux) < 4 * flux.std()
    at = truth.blur(20 * UAS).values["I"].reshape(16, 4, 16, 4)[:, 1:3, :, 1:3].mean((1, 3)) * 16
    blurred = found.blur(20 * UAS)
    z = ((blurred.mean().values["I"] - at) / blurred.sd().values["I"])[at > 0.1 * at.max()]
    assert 0.3 < np.sqrt(np.mean(z**2)) < 2.0
    assert blurred.quantile(0.9).values["I"].sum() > blurred.quantile(0.1).values["I"].sum()


def test_a_figure_of_draws(drawn):
    figure = plots.draws(drawn[0], most=3)
    assert [axes.get_title("left") for axes in figure.axes if axes.get_title("left")][-1] == "draw 3"


def test_numbers_say_what_they_are_of(drawn):
    numbers = drawn[0].numbers
    assert numbers.independent
    assert set(numbers.draws) == {"flux", "sigma", "length", "slope", "width"}
    assert "flux" in str(numbers)


@arithmetic("float64")
def test_prior_has_the_variance_it_names():
    scene = Scene(blank(16, 128 * UAS).grid, 0.6, 12 * UAS, 1e3 * UAS)
    arrays, rng = scene.arrays(), np.random.default_rng(0)
    pictures = jax.vmap(lambda y: picture(y, np.zeros(4), arrays))(rng.standard_normal((400, scene.n)))
    logs = np.log(np.asarray(pictures))
    spread = (logs - logs.mean((1, 2), keepdims=True)).std()
    assert spread == pytest.approx(2.0, rel=0.05)  # the median of sigma
    assert np.asarray(pictures).sum((1, 2)).std() > 0.2
    found = scene.start(np.asarray(known_image("ring", 16).values["I"]))
    assert np.isfinite(found).all()


@arithmetic("float64")
@pytest.mark.parametrize("gains", [False, True])
def test_residuals_of_the_truth_have_unit_variance(gains):
    """Over many noise realisations, station gains included."""
    squares = []
    for seed in range(4):
        obs, truth = data(gains, seed, offset=0.0)
        seen = compress(obs, truth.grid, 0.6)
        signal = seen.visible @ truth.values["I"].ravel()
        if gains:
            arrays, n = polar_arrays(obs, np.full(len(obs.stations), 0.05))
            signal = np.append(signal, np.zeros(2 + len(obs.stations)))  # centred, and no constant gain errors
            squares.append(np.sum(polar_residual(signal, {"basis": seen.basis, **arrays}) ** 2) / n)
        else:
            rest = np.sum(visibility_residual(signal, {"target": seen.target}) ** 2) + seen.rest
            squares.append(rest / seen.n)
            assert len(seen.target) < 0.5 * seen.n
    assert np.mean(squares) == pytest.approx(1.0, abs=0.08)


@pytest.mark.slow
def test_unknown_gains_and_phases():
    obs, truth = data(gains=True)
    found = posterior(obs, **PIXELS, flux=0.5, gain_error=0.05, draws=30, seed=1)
    again = posterior(obs, **PIXELS, flux=0.5, gain_error=0.05, draws=30, seed=1)
    np.testing.assert_array_equal(found.images, again.images)
    assert 0.85 < found.chi2.mean() < 1.15
    at = truth.values["I"].reshape(16, 4, 16, 4).sum((1, 3))
    mean = found.mean().values["I"]
    centroid = found.of(lambda image: np.sum(image.x * image.values["I"]) / image.flux) / UAS
    assert np.abs(centroid).max() < 3  # where data know no position, images are centred
    # closure phases do not know the position
    shifted = np.fft.ifft2(np.fft.fft2(mean - mean.mean()) * np.fft.fft2(at - at.mean()).conj()).real.max()
    assert shifted / (mean.std() * at.std() * at.size) > 0.85


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"products": "viz"}, "unknown products 'viz'"),
        ({"npix": 4}, "npix=4 must be a whole number, at least 8"),
        ({"draws": 1}, "draws=1 must be"),
        ({"gain_error": 0.0}, "gain_error=0.0 must be positive"),
        ({"gain_error": {"ALMO": 0.1, "others": 0.1}}, "'ALMO', which did not observe"),
        ({"gain_error": {"AA": 0.1}}, "AZ.* is missing. Name them, or 'others'"),
        ({"npix": 8, "products": "vis"}, "too coarse for the longest baseline"),
        ({"npix": 16, "start": known_image("ring", 32)}, "Make it with the same npix"),
        ({"npix": 16, "products": "vis", "flux": 1e-9}, "above the noise"),
    ],
)
def test_bad_input(options, expected):
    with pytest.raises(ValueError, match=expected):
        posterior(data()[0], **{"fov_uas": 128.0, **options})


@pytest.mark.slow
def test_the_field_follows_the_array():
    """A core and jet seven resolutions long, of an array whose resolution is wider than the EHT's whole field."""
    seen, truth = observed("vlba43")
    seen = add_fractional_noise(seen, 0.02)  # of the errors alone: what pixels leave out
    found = posterior(seen, npix=24, flux=1.0, products="vis", draws=10, seed=1)
    assert 24 * found.about.pixel_rad == pytest.approx(8 * seen.nominal_resolution)
    assert found.chi2.mean() < 1.2  # the errors are larger than the noise
    flux = found.of(lambda image: image.flux)
    assert flux.mean() == pytest.approx(truth.flux, abs=max(3 * flux.std(ddof=1), 0.02 * truth.flux))
    beam = seen.nominal_resolution
    mean = found.mean().blur(beam)
    assert cross_correlation(mean, regrid(truth.blur(beam), 24, 8 * beam)) > 0.98
