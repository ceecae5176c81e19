import io

import numpy as np
import pytest

from shardfit.report.gallery.thumbnails import PALETTES, limits_of, png

image = pytest.importorskip("PIL.Image")
matplotlib = pytest.importorskip("matplotlib")


def pixels(content):
    return np.asarray(image.open(io.BytesIO(content)).convert("RGB"))


@pytest.mark.parametrize(("name", "tolerance"), [("afmhot", 1), ("viridis", 14)])
def test_palettes_are_the_usual_ones(name, tolerance):
    """Viridis is drawn through eleven of its colours: off by 14 of 255 at most."""
    table = np.frombuffer(PALETTES[name], np.uint8).reshape(256, 3).astype(int)
    usual = 255 * matplotlib.colormaps[name](np.arange(256))[:, :3]
    assert np.abs(table - usual).max() <= tolerance


def test_png_shows_the_picture():
    picture = np.linspace(0, 1, 15).reshape(3, 5)
    found = pixels(png(picture)).astype(int)
    assert found.shape == (3, 5, 3)
    expected = 255 * matplotlib.colormaps["afmhot"](picture)[..., :3]
    assert np.abs(found - expected).max() <= 2
    assert found[0, 0].sum() == 0  # the first row is on top


def test_stretches_and_limits():
    picture = np.array([[0.0, 0.25, 1.0]])
    grey = np.frombuffer(PALETTES["afmhot"], np.uint8).reshape(256, 3)
    np.testing.assert_array_equal(pixels(png(picture, stretch="sqrt"))[0], grey[[0, 128, 255]])
    np.testing.assert_array_equal(pixels(png(picture, limits=(0, 2)))[0], grey[[0, 32, 128]])
    np.testing.assert_array_equal(pixels(png(10.0 ** np.array([[-9, -1.2, 0]]), stretch="log"))[0], grey[[0, 153, 255]])


def test_large_pictures_are_averaged():
    picture = np.kron(np.arange(6.0).reshape(2, 3), np.ones((10, 10)))
    np.testing.assert_array_equal(pixels(png(picture, most=3)), pixels(png(np.arange(6.0).reshape(2, 3))))
    assert pixels(png(np.ones((7, 5)), most=4)).shape == (4, 3, 3)


@pytest.mark.parametrize(
    "picture", [np.full((2, 2), np.nan), np.zeros((2, 2)), np.array([[np.inf, 1.0], [2.0, -np.inf]])]
)
def test_odd_pictures_are_shown_as_well(picture):
    assert pixels(png(picture)).shape == (2, 2, 3)


def test_limits_of_several():
    assert limits_of(np.array([[1.0, np.nan]]), np.array([[-3.0, np.inf]])) == (-3.0, 1.0)


def test_unknown_palette_is_refused():
    with pytest.raises(ValueError, match="afmhot"):
        png(np.ones((2, 2)), "../../secret")
