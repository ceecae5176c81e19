"""Polarised images of a simulated ring whose polarisation is known."""

import numpy as np
import pytest

from shardfit import RunOptions
from shardfit.domains import vlbi
from shardfit.domains.vlbi import recipes
from shardfit.domains.vlbi.fits_image import read_image, write_image

SHORT = {"systematic": 0.02, "maxiter": 60, "restarts": 1}
FRACTION = 0.3


def polarised_ring(npix=32, twist=0.5):
    """Ring of 30 % linear polarisation whose electric vector turns once around it."""
    total = recipes.known_image("ring", npix)
    x, y = np.meshgrid(total.x, total.y)
    linear = FRACTION * total.values["I"] * np.exp(2j * (np.arctan2(x, y) + twist))
    return total.replace(values={"I": total.values["I"], "Q": linear.real, "U": linear.imag})


def linear(image):
    return image.values["Q"] + 1j * image.values["U"]


def agreement(found, truth):
    """Complex correlation of two images of P: 1 for equal patterns, half its angle is a rotation of all ticks."""
    a, b = linear(found), linear(truth)
    return np.vdot(b, a) / np.sqrt(np.vdot(a, a).real * np.vdot(b, b).real)


@pytest.fixture(scope="module")
def truth():
    return polarised_ring()


@pytest.fixture(scope="module")
def obs(truth):
    return recipes.observe(truth, seed=0, cadence_s=1200.0)


@pytest.fixture(scope="module")
def total(truth):
    return truth.replace(values={"I": truth.values["I"]})


@pytest.fixture(scope="module")
def found(obs, total):
    return vlbi.polarimetric_image(obs, total, mode="P", **SHORT)


@pytest.mark.slow
def test_pattern_is_recovered(found, truth):
    match = agreement(found.image, truth)
    assert abs(match) > 0.95
    assert abs(np.rad2deg(np.angle(match)) / 2) < 2
    assert found.mean_fraction == pytest.approx(FRACTION, abs=0.03)
    assert found.net_fraction < 0.02  # ticks of all directions cancel
    assert all(value < 1.2 for value in found.chi2.values())


@pytest.mark.slow
def test_electric_vector_angle_on_the_ring(found, truth):
    bright = truth.values["I"] > 0.3 * truth.values["I"].max()
    off = np.angle(np.exp(2j * found.evpa) / np.exp(1j * np.angle(linear(truth))))[bright] / 2
    assert np.median(np.abs(np.rad2deg(off))) < 5
    assert found.fraction[bright].mean() == pytest.approx(FRACTION, abs=0.05)


def test_stokes_i_stays(found, total):
    assert np.allclose(found.image.values["I"], total.values["I"], rtol=1e-12, atol=0)
    assert list(found.image.values) == ["I", "Q", "U"]


def test_nothing_is_random(obs, total, found):
    other = vlbi.polarimetric_image(obs, total, mode="P", run=RunOptions(seed=1), **SHORT)
    assert np.array_equal(linear(other.image), linear(found.image))


@pytest.mark.slow
def test_from_an_imaging_result(obs, truth):
    stage = recipes.image(obs, preset="eht", npix=32, maxiter=60, restarts=1, flux=0.6)
    found = vlbi.polarimetric_image(stage, mode="P", **{**SHORT, "systematic": 0.0})
    assert np.allclose(found.image.values["I"], stage.image.values["I"], rtol=1e-12, atol=0)
    assert found.mean_fraction == pytest.approx(FRACTION, abs=0.06)
    assert found.data is not stage.data  # calibrated to the image, since the stage was not
    with pytest.raises(TypeError, match="own image"):
        vlbi.polarimetric_image(stage, stage.image)
    joint = vlbi.polarimetric_image(stage)
    assert joint.data is stage.data  # closures and P/I need no calibration
    assert joint.options.mode == "IP"
    assert joint.mean_fraction == pytest.approx(FRACTION, abs=0.03)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["IV", "IPV"])
def test_circular_polarisation(truth, mode):
    circular = truth.replace(values={**truth.values, "V": 0.1 * truth.values["I"]})
    obs = recipes.observe(circular, seed=0, cadence_s=1800.0)
    start = truth.replace(values={"I": truth.values["I"]})
    found = vlbi.polarimetric_image(obs, start, mode=mode, restarts=0, systematic=0.02)
    assert not np.array_equal(found.image.values["I"], start.values["I"])
    assert found.image.values["V"].sum() / found.image.flux == pytest.approx(0.1, rel=0.1)
    assert not found.doubts
    if mode == "IPV":
        assert abs(agreement(found.image, truth)) > 0.95


def _core_knot(npix):
    """Core of 5 % and knot of 29 %, with different angles: sky, and place of the knot."""
    empty = vlbi.blank(npix, 128 * vlbi.UAS, ra_hours=12.51, dec_deg=12.39, freq_hz=227.1e9, mjd=57854)
    total, p = 0.0, 0.0
    for flux, width, x, y, m, angle in ((0.6, 18, 15, -15, 0.05, 30.0), (0.25, 20, -15, 15, 0.29, -60.0)):
        part = vlbi.gaussian(empty, flux, width * vlbi.UAS, x_rad=x * vlbi.UAS, y_rad=y * vlbi.UAS).values["I"]
        total, p = total + part, p + m * part * np.exp(2j * np.deg2rad(angle))
    return empty.replace(values={"I": total, "Q": p.real, "U": p.imag})


@pytest.mark.slow
def test_knot_is_right_though_stokes_i_and_gains_are_not():
    """The image to begin with has half of the knot's flux; the joint fit brings flux, fraction and angle back."""
    sky = _core_knot(48)
    obs = recipes.observe(sky, seed=3, gains=0.1, cadence_s=2400.0)
    start = _core_knot(24)
    x, y = np.meshgrid(start.x, start.y)
    total = start.replace(values={"I": np.where(x > y, 1.0, 0.5) * start.values["I"]}).normalise(sky.flux)
    found = vlbi.polarimetric_image(obs, total, restarts=0)
    beam = obs.nominal_resolution
    near = np.hypot(x + 15 * vlbi.UAS, y - 15 * vlbi.UAS) < 0.5 * beam
    one, two = (image.blur(beam) for image in (found.image, start))
    fractions = [linear(image)[near].sum() / image.values["I"][near].sum() for image in (one, two)]
    assert abs(fractions[0] - fractions[1]) < 0.02
    flux = [image.values["I"][near].sum() for image in (one, total.blur(beam), two)]
    assert flux[1] < 0.7 * flux[2]
    assert flux[0] == pytest.approx(flux[2], rel=0.1)
    assert not found.doubts


def test_written_planes_read_back(found, tmp_path):
    pytest.importorskip("astropy")
    write_image(found.image, tmp_path / "p.fits")
    back = read_image(tmp_path / "p.fits")
    assert all(np.array_equal(back.values[k], found.image.values[k]) for k in "IQU")
    write_image(found.image.replace(values={"I": found.fraction}), tmp_path / "m.fits", unit="")
    with pytest.raises(ValueError, match="JY/PIXEL"):
        read_image(tmp_path / "m.fits")


def test_ticks_follow_the_electric_vector(truth):
    pytest.importorskip("matplotlib")
    from shardfit.domains.vlbi import plots

    north = truth.replace(values={"I": truth.values["I"], "Q": 0.2 * truth.values["I"], "U": 0 * truth.values["I"]})
    ticks = plots.polarisation(north).axes[0].collections[-1]
    lines = np.array(ticks.get_segments())
    assert len(lines) > 20
    assert np.allclose(lines[:, 0, 0], lines[:, 1, 0])
    assert (lines[:, 1, 1] > lines[:, 0, 1]).all()
    assert np.allclose(ticks.get_array(), 0.2)
    with pytest.raises(ValueError, match="needs Q and U"):
        plots.polarisation(truth.replace(values={"I": truth.values["I"]}))


def test_data_without_polarisation(total):
    plain = recipes.observe(total, seed=0, cadence_s=3600.0)
    with pytest.raises(ValueError, match=r"needs Stokes Q, U, but these data have I only"):
        vlbi.polarimetric_image(plain, total)


@pytest.mark.parametrize(
    ("options", "error", "expected"),
    [
        ({"mode": "I"}, ValueError, "must be one of P, IP"),
        ({"tolerence": 0.1}, TypeError, "Did you mean 'tolerance'"),
        ({"mode": "IPV"}, ValueError, "needs Stokes Q, U, V, but these data have I, Q, U only"),
        ({"data": {"pviz": 1.0}}, ValueError, "Did you mean 'pvis'"),
        ({"regularisers": {}}, ValueError, "regularisers is empty"),
        ({"restarts": -1}, ValueError, "must not be negative"),
        ({"regularizers": {"hw": 1.0}}, TypeError, "Did you mean 'regularisers'"),
        ({"stokes_i": None}, TypeError, "needs stokes_i"),
    ],
)
def test_bad_options(obs, total, options, error, expected):
    with pytest.raises(error, match=expected):
        vlbi.polarimetric_image(obs, **{"stokes_i": total, **options})
