"""Images: coordinates, blur, model visibilities, FITS; golden values come from eht-imaging 1.4.0."""

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter

from shardfit.domains.vlbi.constants import FWHM_TO_SIGMA, UAS
from shardfit.domains.vlbi.fits_image import read_image, write_image
from shardfit.domains.vlbi.images import Image, blank, gaussian, prior, ring, visibilities
from tests.reference import REFERENCE

FWHM = 2 * np.sqrt(2 * np.log(2))


@pytest.fixture(scope="module")
def golden():
    with np.load(REFERENCE / "vlbi" / "real_101_lo.npz") as z:
        wanted = ("image", "image_blur20", "prior", "ns_image", "ns_model_vis", "prep_u", "prep_v")
        return {name: z[name] for name in z.files if name in wanted or name.startswith("model_vis")}


def test_golden_image_and_prior(golden):
    grid = blank(32, 128 * UAS)
    main = ring(grid, 1.0, 21 * UAS, 5 * FWHM * UAS, asymmetry=0.6, position_angle_rad=np.deg2rad(160))
    halo = np.exp(-0.5 * (grid.x**2 + grid.y[:, None] ** 2) / (35 * UAS) ** 2)
    x, y = np.meshgrid(grid.x, grid.y)
    peak = np.exp(-0.5 * ((np.hypot(x, y) / UAS - 21) / 5) ** 2) * (
        1 + 0.6 * np.cos(np.arctan2(x, y) - np.deg2rad(160))
    )
    both = main.replace(values={"I": main.values["I"] * peak.sum() + 0.02 * halo}).normalise(0.6)
    np.testing.assert_allclose(both.values["I"], golden["image"], rtol=1e-10)
    np.testing.assert_allclose(prior(grid, 0.6, 40 * UAS).values["I"], golden["prior"], rtol=1e-10)


@pytest.mark.parametrize(("shape", "width"), [((64, 48), 3.7), ((5, 8), 4.0), ((7, 3), 0.1)])
def test_blur_is_that_of_scipy(shape, width):
    """Also where the Gaussian is wider than the image, which is then reflected more than once."""
    image = Image({"I": np.random.default_rng(0).random(shape)}, 1.0)
    expected = gaussian_filter(image.values["I"], width)
    np.testing.assert_allclose(image.blur(width / FWHM_TO_SIGMA).values["I"], expected, rtol=1e-13)


def test_golden_blur(golden):
    image = Image({"I": golden["image"]}, 4 * UAS)
    np.testing.assert_allclose(image.blur(20 * UAS).values["I"], golden["image_blur20"], rtol=1e-12)
    np.testing.assert_array_equal(image.blur(0.0).values["I"], golden["image"])


@pytest.mark.parametrize("pulse", ["triangle", "rect", "delta"])
def test_golden_visibilities(golden, pulse):
    image = Image({"I": golden["image"]}, 4 * UAS, pulse=pulse)
    expected = golden["model_vis_prep" + ("" if pulse == "triangle" else f"_{pulse}")]
    found = visibilities(image, golden["prep_u"], golden["prep_v"])["I"]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12 * np.abs(expected).max())


def test_golden_visibilities_of_a_rectangle(golden):
    image = Image({"I": golden["ns_image"]}, 5 * UAS)
    assert image.shape == (20, 24)
    found = visibilities(image, golden["prep_u"], golden["prep_v"])["I"]
    expected = golden["ns_model_vis"]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12 * np.abs(expected).max())


def test_coordinates():
    image = blank(4, 4.0, ny=3)
    np.testing.assert_allclose(image.x, [1.5, 0.5, -0.5, -1.5])
    np.testing.assert_allclose(image.y, [1, 0, -1])
    east = gaussian(image, 1.0, 0.3, x_rad=1.5, y_rad=1.0)
    assert east.values["I"].argmax() == 0
    assert east.flux == pytest.approx(1)
    bright = ring(blank(33, 33.0), 2.0, 8.0, 3.0, asymmetry=0.9, position_angle_rad=np.pi / 2)
    assert bright.flux == pytest.approx(2)
    assert bright.x[bright.values["I"].max(0).argmax()] > 0


def test_gaussian_pulse_is_a_gaussian():
    image = Image({"I": np.ones((1, 1))}, 1.0, pulse="gaussian")
    fine = np.linspace(-3, 3, 2001)
    profile = np.exp(-0.5 * (fine * 3) ** 2)
    u = np.array([0.0, 0.3, 1.0])
    expected = (profile * np.exp(2j * np.pi * np.outer(u, fine))).sum(1) / profile.sum()
    np.testing.assert_allclose(visibilities(image, u, np.zeros(3))["I"], expected, atol=1e-9)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: Image({"Q": np.ones((2, 2))}, 1.0), "needs I"),
        (lambda: Image({"I": np.ones(4)}, 1.0), "expected \\(ny, nx\\)"),
        (lambda: Image({"I": np.ones((2, 2)), "Q": np.ones((2, 3))}, 1.0), "has shape"),
        (lambda: Image({"I": np.full((2, 2), np.nan)}, 1.0), "NaN"),
        (lambda: Image({"I": np.ones((2, 2))}, 0.0), "pixel_rad"),
        (lambda: Image({"I": np.ones((2, 2))}, 1.0, pulse="square"), "unknown pulse"),
        (lambda: blank(3, 1.0).normalise(1.0), "total flux"),
        (lambda: gaussian(blank(3, 1.0), 1.0, 1e-3, x_rad=9.0), "leaves nothing"),
    ],
)
def test_refused(make, why):
    with pytest.raises(ValueError, match=why):
        make()


@pytest.mark.parametrize("planes", ["I", "IQ", "IQUV"])
def test_fits_round_trip(tmp_path, planes):
    pytest.importorskip("astropy")
    rng = np.random.default_rng(0)
    about = {"ra_hours": 12.5, "dec_deg": 12.4, "freq_hz": 227e9, "mjd": 57854, "source": "M87"}
    image = Image({name: rng.normal(size=(5, 7)) for name in planes}, 2 * UAS, **about)
    write_image(image, tmp_path / "a.fits")
    found = read_image(tmp_path / "a.fits")
    assert list(found.values) == list(planes)
    for name in planes:
        np.testing.assert_array_equal(found.values[name], image.values[name])
    assert found.pixel_rad == pytest.approx(image.pixel_rad, rel=1e-14)
    for name, value in about.items():
        assert getattr(found, name) == pytest.approx(value)


def test_fits_orientation_and_extensions(tmp_path):
    fits = pytest.importorskip("astropy.io.fits")
    data = np.arange(6.0).reshape(2, 3)  # stored from south to north
    first = fits.PrimaryHDU(data)
    first.header.update({"CDELT1": -1e-9, "CDELT2": 1e-9, "BUNIT": "JY/PIXEL", "DATE-OBS": "2017-04-11"})
    second = fits.ImageHDU(data + 10, name="Q")
    fits.HDUList([first, second]).writeto(tmp_path / "a.fits")
    image = read_image(tmp_path / "a.fits")
    np.testing.assert_array_equal(image.values["I"], data[::-1])
    np.testing.assert_array_equal(image.values["Q"], data[::-1] + 10)
    assert image.mjd == 57854
    first.header["CDELT1"] = 1e-9
    first.writeto(tmp_path / "b.fits")
    np.testing.assert_array_equal(read_image(tmp_path / "b.fits").values["I"], data[::-1, ::-1])


@pytest.mark.parametrize(
    ("header", "why"),
    [({"CDELT1": -2e-9}, "not square"), ({"BUNIT": "JY/BEAM"}, "JY/BEAM"), ({"CDELT1": "x"}, "CDELT1")],
)
def test_fits_refused(tmp_path, header, why):
    fits = pytest.importorskip("astropy.io.fits")
    hdu = fits.PrimaryHDU(np.ones((2, 2)))
    hdu.header.update({"CDELT1": -1e-9, "CDELT2": 1e-9, "BUNIT": "JY/PIXEL", **header})
    path = tmp_path / "odd.fits"
    hdu.writeto(path)
    with pytest.raises(ValueError, match=rf"odd\.fits.*{why}"):
        read_image(path)
    content = path.read_bytes()
    for damaged in (content[:2000], content[:2880], b"", b"x" * 3000):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"odd\.fits"):
            read_image(path)
