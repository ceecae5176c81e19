"""Beams, rings in images, and geometric models: against images of the same shapes, and against themselves."""

import numpy as np
import pytest

from shardfit.domains.vlbi import beams, recipes, rings, shapes
from shardfit.domains.vlbi.constants import UAS
from shardfit.domains.vlbi.images import blank, gaussian, ring, visibilities
from shardfit.domains.vlbi.recipes.geometric import fit_shape
from tests.domains.vlbi.arrays import observed

GRID = blank(128, 160 * UAS, **recipes.simulated.M87_LIKE)
U, V = np.random.default_rng(0).uniform(-8e9, 8e9, (2, 50))


def softened(values, fwhm):
    return GRID.replace(values={"I": values}).normalise(0.6).blur(fwhm * UAS)


def _disc(diameter):
    x, y = np.meshgrid(GRID.x, GRID.y)
    return np.clip((0.5 * diameter * UAS - np.hypot(x, y)) / GRID.pixel_rad + 0.5, 0, 1)


CASES = {
    "gaussian": ({"flux": 0.6, "width": 30.0}, lambda: gaussian(GRID, 0.6, 30 * UAS)),
    "disk": ({"flux": 0.6, "diameter": 50.0, "width": 10.0}, lambda: softened(_disc(50), 10)),
}


@pytest.mark.parametrize("name", CASES)
def test_shapes_are_those_of_their_images(name):
    params, image = CASES[name]
    np.testing.assert_allclose(shapes.SHAPES[name](params, U, V), visibilities(image(), U, V)["I"], atol=4e-3)


def test_an_ellipse_has_its_axes():
    x, y = np.meshgrid(GRID.x, GRID.y)
    pa, major, minor = 0.6, 40 * UAS, 20 * UAS
    along, across = x * np.sin(pa) + y * np.cos(pa), x * np.cos(pa) - y * np.sin(pa)
    sigma = np.array([major, minor]) / np.sqrt(8 * np.log(2))
    image = GRID.replace(values={"I": np.exp(-0.5 * ((along / sigma[0]) ** 2 + (across / sigma[1]) ** 2))})
    strain = np.log(2.0)
    params = {
        "flux": 0.6,
        "width": np.sqrt(800.0),
        "e_plus": strain * np.cos(2 * pa),
        "e_cross": strain * np.sin(2 * pa),
    }
    np.testing.assert_allclose(shapes.ellipse(params, U, V), visibilities(image.normalise(0.6), U, V)["I"], atol=2e-3)


def test_a_lopsided_ring_points_where_it_should():
    image = ring(GRID, 0.6, 21 * UAS, 4 * UAS, asymmetry=0.5, position_angle_rad=2.0)
    params = {"flux": 0.6, "diameter": 42.0, "width": 4.0, "c1": 0.5 * np.cos(2.0), "s1": 0.5 * np.sin(2.0)}
    # a ring of Gaussian profile is nearly, not quite, a thin ring convolved with a Gaussian
    np.testing.assert_allclose(shapes.mring(params, U, V), visibilities(image, U, V)["I"], atol=8e-3)


@pytest.mark.parametrize("order", [0, 1, 4])
def test_bessel_functions(order):
    special = pytest.importorskip("scipy.special")
    z = np.linspace(0, 40, 81)
    np.testing.assert_allclose(shapes.bessel(order, z), special.jv(order, z), atol=1e-6)


def mring_data(seed, noise=True):
    """Visibilities of a true m-ring at the baselines and errors of a night."""
    obs = recipes.observe(recipes.known_image("ring", 16), gains=0.0, random_phase=False, cadence_s=1800.0)
    truth = {"flux": 0.6, "diameter": 42.0, "width": 12.0, "c1": -0.4, "s1": 0.2}
    model = np.asarray(shapes.mring(truth, obs.u, obs.v))
    sigma = 5 * obs.sigma["I"]
    draw = np.random.default_rng(seed).normal(size=(2, len(obs)))
    return obs.replace(vis={"I": model + noise * sigma * (draw[0] + 1j * draw[1])}, sigma={"I": sigma}), truth


@pytest.mark.slow
def test_a_ring_is_fitted_with_its_errors():
    """Over ten nights the answers scatter by what the errors say."""
    pulls = []
    for seed in range(10):
        obs, truth = mring_data(seed)
        found = fit_shape(obs, "mring", products=("vis",), start=truth)
        assert found.result.success
        assert 0.7 < found.chi2["vis"] < 1.3
        pulls += [(found.values[name] - value) / found.errors[name] for name, value in truth.items()]
    assert 0.7 < np.sqrt(np.mean(np.square(pulls))) < 1.35  # 50 numbers: ± 0.1


@pytest.mark.slow
def test_sizes_are_searched_for():
    obs, truth = mring_data(0)
    found = fit_shape(obs, "mring", products=("amp", "cphase"))
    for name in ("diameter", "width", "flux", "c1", "s1"):
        assert found.values[name] == pytest.approx(truth[name], abs=5 * found.errors[name])
    assert not found.doubts
    wrong = fit_shape(obs, "gaussian", products=("amp", "cphase"))
    assert any("does not explain" in doubt for doubt in wrong.doubts)


@pytest.mark.slow
def test_closures_keep_the_flux():
    obs, _ = mring_data(0)
    found = fit_shape(obs, "ring", products=("cphase_cov",), start={"diameter": 40.0}, fixed={"flux": 0.6})
    assert found.values["flux"] == 0.6


@pytest.mark.parametrize(
    ("change", "expected"),
    [({"shape": "rnig"}, "Did you mean 'ring'"), ({"start": {"size": 1.0}}, "no parameter 'size'")],
)
def test_bad_shapes(change, expected):
    obs, _ = mring_data(0)
    with pytest.raises(ValueError, match=expected):
        fit_shape(obs, **change)


def test_ring_of_an_image():
    image = ring(GRID, 0.6, 21 * UAS, 10 * UAS, asymmetry=0.4, position_angle_rad=2.5)
    moved = image.replace(values={"I": np.roll(image.values["I"], (6, -4), (0, 1))})
    for one, (x, y) in ((image, (0, 0)), (moved, (4, -6))):
        found = rings.extract_ring(one)
        assert found.diameter / UAS == pytest.approx(42, abs=1.5)
        assert found.width / UAS == pytest.approx(10, abs=1.5)
        assert found.pa_rad == pytest.approx(2.5, abs=0.05)
        assert found.asymmetry == pytest.approx(0.2, abs=0.03)
        assert found.x_rad / GRID.pixel_rad == pytest.approx(x, abs=1.0)
        assert found.y_rad / GRID.pixel_rad == pytest.approx(y, abs=1.0)
        assert found.diameter_sd < 2 * UAS
        assert found.contrast < 0.05


def test_rings_of_several_images():
    made = [ring(GRID, 0.6, r * UAS, 10 * UAS, asymmetry=0.4, position_angle_rad=p) for r, p in ((20, 6.2), (22, 0.1))]
    found = rings.mean_ring([rings.extract_ring(one) for one in made])
    assert found.diameter / UAS == pytest.approx(42, abs=1.5)
    assert found.diameter_sd / UAS == pytest.approx(2, abs=0.7)
    assert np.cos(found.pa_rad - 0.0084) > 0.99  # the mean of 6.2 and 0.1 is near north
    with pytest.raises(ValueError, match="no rings"):
        rings.mean_ring([])


def _polarised(order, phase, fraction=0.2, shift=(0, 0)):
    """A ring whose polarisation has one mode only."""
    image = ring(GRID, 0.6, 21 * UAS, 10 * UAS)
    angle = np.arctan2(*np.meshgrid(image.x, image.y))
    linear = fraction * image.values["I"] * np.exp(1j * (order * angle + phase))
    planes = {"I": image.values["I"], "Q": linear.real, "U": linear.imag}
    return image.replace(values={name: np.roll(plane, shift, (0, 1)) for name, plane in planes.items()})


@pytest.mark.parametrize(("order", "phase"), [(0, 0.4), (1, -2.0), (2, 0.0), (2, np.pi), (-3, 1.0)])
def test_polarisation_around_a_ring(order, phase):
    modes = rings.ring_modes(_polarised(order, phase), (-3, 0, 1, 2), centre=(0.0, 0.0), outer_rad=40 * UAS)
    for m, beta in modes.items():
        assert beta == pytest.approx(0.2 * np.exp(1j * phase) if m == order else 0.0, abs=2e-3)


def test_radial_polarisation_has_phase_zero():
    """East of the centre the electric vector points to the east: Q < 0, U = 0."""
    image = _polarised(2, 0.0)
    east = image.values["Q"][image.shape[0] // 2, : image.shape[1] // 2]
    assert east.min() < -0.9 * 0.2 * image.values["I"].max()
    assert rings.ring_modes(image)[2].real > 0.15


def test_modes_follow_the_ring():
    moved = rings.ring_modes(_polarised(2, 1.0, shift=(5, -3)))[2]
    assert moved == pytest.approx(0.2 * np.exp(1j), abs=0.02)
    with pytest.raises(ValueError, match="no Stokes Q"):
        rings.ring_modes(ring(GRID, 0.6, 21 * UAS, 10 * UAS))
    with pytest.raises(ValueError, match="no range"):
        rings.ring_modes(_polarised(2, 0.0), centre=(0.0, 0.0), inner_rad=2.0, outer_rad=1.0)


@pytest.mark.parametrize("name", ["vlba15", "eht2022", "alma"])
def test_beam(name):
    obs, truth = observed(name)
    beam = beams.fit_beam(obs)
    grid = blank(64, 6 * beam.major, freq_hz=truth.freq_hz)
    dirty = beams.dirty_beam(obs, grid).values["I"]
    x, y = np.meshgrid(grid.x, grid.y)
    along = x * np.sin(beam.pa_rad) + y * np.cos(beam.pa_rad)
    across = x * np.cos(beam.pa_rad) - y * np.sin(beam.pa_rad)
    ellipse = np.exp(-4 * np.log(2) * ((along / beam.major) ** 2 + (across / beam.minor) ** 2))
    inside = ellipse > 0.5
    assert np.abs(dirty - ellipse)[inside].max() < 0.1
    assert beam.minor <= beam.major
    flux = beams.dirty_image(obs, blank(64, 0.1 * beam.minor)).values["I"]
    assert np.ptp(flux) < 0.1 * np.abs(flux).max()  # hardly changes over a tenth of the beam


def test_the_beam_follows_errors_not_averages():
    obs, _ = observed("eht2022")
    raw, noisy = beams.fit_beam(obs), recipes.prepare(obs, systematic=0.1)
    averaged = beams.fit_beam(recipes.prepare(obs, average=True))
    assert (averaged.major, averaged.minor) == pytest.approx((raw.major, raw.minor), rel=0.01)
    other = beams.fit_beam(noisy)  # baselines of high signal-to-noise ratio no longer decide alone
    assert other.major * other.minor < 0.9 * raw.major * raw.minor
    assert beams.fit_beam(noisy, "uniform") == beams.fit_beam(obs.order_by_snr(), "uniform")


def test_dirty_image_of_a_point_is_the_beam_there():
    obs, _ = observed("eht2022")
    grid = blank(64, 200 * UAS)
    x, y = grid.x[20], grid.y[40]
    point = obs.replace(vis={"I": 0.7 * np.exp(2j * np.pi * (obs.u * x + obs.v * y))}, sigma=obs.sigma)
    found = beams.dirty_image(point, grid, "uniform").values["I"]
    assert np.unravel_index(found.argmax(), found.shape) == (40, 20)
    assert found.max() == pytest.approx(0.7, rel=1e-6)
    with pytest.raises(ValueError, match="unknown weighting"):
        beams.dirty_image(point, grid, "robust")


def test_no_ring():
    with pytest.raises(ValueError, match="Is there a ring"):
        rings.extract_ring(gaussian(GRID, 0.6, 30 * UAS))
