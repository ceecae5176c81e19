"""Movies: their frames, what an array sees of them, and how well they are recovered."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shardfit as sf
from shardfit.core.precision import arithmetic
from shardfit.domains import vlbi
from shardfit.domains.vlbi import movie_problem as problems
from shardfit.domains.vlbi.constants import UAS
from shardfit.domains.vlbi.images import visibilities
from shardfit.domains.vlbi.movies import seen
from tests.domains.vlbi.arrays import eht2022
from tests.domains.vlbi.golden import fast_compile_jit
from tests.domains.vlbi.small import EVERY, GRID, small_data

# visibilities of one time share gains, and times are random here
STOKES_I = tuple(name for name in EVERY if name not in ("pvis", "m", "vvis", "v", "calvis"))
HOURS = np.array([0.0, 1.0, 2.5, 4.0, 5.0])


def drifting(n=13, npix=16, start=0.0, stop=6.0):
    """A core, and a knot that moves away from it, six hours long."""
    grid = vlbi.blank(npix, 128 * UAS, ra_hours=17.761, dec_deg=-29.0, freq_hz=229e9, mjd=57850, source="DRIFT")
    core = vlbi.gaussian(grid, 1.5, 24 * UAS).values["I"]
    knots = [vlbi.gaussian(grid, 0.6, 20 * UAS, x_rad=-(8 + 20 * p) * UAS, y_rad=16 * p * UAS) for p in _steps(n)]
    frames = tuple(grid.replace(values={"I": core + one.values["I"]}) for one in knots)
    return vlbi.Movie(frames, start + (stop - start) * _steps(n))


def _steps(n):
    return np.linspace(0, 1, n)


@pytest.fixture(scope="module")
def truth():
    return drifting(start=8.5, stop=14.5)


def test_between_frames_images_and_visibilities_are_linear(truth):
    half = truth.at(0.25 * truth.time_h[3] + 0.75 * truth.time_h[4])
    np.testing.assert_allclose(
        half.values["I"], 0.25 * truth.frames[3].values["I"] + 0.75 * truth.frames[4].values["I"], rtol=1e-12
    )
    assert truth.at(0.0).flux == truth.frames[0].flux  # beyond the ends nothing changes
    rng = np.random.default_rng(1)
    u, v = 4e9 * rng.normal(size=(2, 30))
    time = rng.uniform(8, 15, 30)
    found = seen(truth, time, u, v)["I"]
    for k in range(30):
        expected = visibilities(truth.at(time[k]), u[k : k + 1], v[k : k + 1])["I"][0]
        np.testing.assert_allclose(found[k], expected, rtol=1e-10)


def test_a_movie_that_stands_still_is_seen_as_its_image(truth):
    still = vlbi.Movie((truth.frames[0],) * 3, [8.0, 11.0, 15.0])
    one, other = (vlbi.observe(s, start_h=8.5, stop_h=14.5, seed=2) for s in (truth.frames[0], still))
    np.testing.assert_allclose(one.vis["I"], other.vis["I"], rtol=1e-12)
    assert not np.allclose(one.vis["I"], vlbi.observe(truth, start_h=8.5, stop_h=14.5, seed=2).vis["I"])


def test_files_keep_a_movie(truth, tmp_path):
    path = tmp_path / "movie.fits"
    uneven = vlbi.Movie(truth.frames[:3], [1.0, 1.5, 4.0])
    vlbi.write_movie(uneven, path)
    back = vlbi.read_movie(path)
    np.testing.assert_array_equal(back.time_h, uneven.time_h)
    assert back.frames[0].mjd == 57850 and back.frames[0].source == "DRIFT"
    for one, other in zip(back.frames, uneven.frames, strict=True):
        np.testing.assert_array_equal(one.values["I"], other.values["I"])
    vlbi.write_image(truth.frames[0], tmp_path / "image.fits")
    with pytest.raises(ValueError, match=r"image\.fits: cannot be read .* expected three"):
        vlbi.read_movie(tmp_path / "image.fits")
    with pytest.raises(ValueError, match=r"movie\.fits: cannot be read .*several planes along"):
        vlbi.read_image(path)


@pytest.mark.parametrize(
    ("frames", "hours", "message"),
    [((), [], "no frames"), (2, [1.0, 1.0], "rise from frame to frame"), (2, [1.0], "shape")],
)
def test_what_is_no_movie(truth, frames, hours, message):
    with pytest.raises(ValueError, match=message):
        vlbi.Movie(truth.frames[:frames] if frames else (), hours)


def small_problem(hours=HOURS, gap=False, **more):
    data = small_data(5)
    rng = np.random.default_rng(4)
    times = np.append(np.repeat(np.array([0.2, 0.7, 1.9, 3.0, 4.4]), 6), [0.3, 2.0, 4.9])
    if gap:
        times = np.where(times > 2.5, times + 0.0, np.minimum(times, 0.9))
    parts = problems.split_times(data, times, hours)
    prior = rng.uniform(0.5, 1.5, GRID.shape)
    init = rng.uniform(0.5, 1.5, (len(hours), *GRID.shape))
    weights = dict.fromkeys(STOKES_I, 1.0)
    regs = dict.fromkeys([name for name in problems.REGULARISERS if "log" not in name], 1.0)
    settings = {"data_weights": weights, "reg_weights": regs, "fluxes": 4.0, "beam": 2.0, "epsilon_tv": 1e-6} | more
    return problems.movie_problem(parts, hours, GRID, prior, init=init, operator="separable", **settings), data, parts


def test_no_measurement_is_lost_or_counted_twice():
    _, data, parts = small_problem()
    for name, one in data.products.items():
        values = np.concatenate([p.products[name].value for p in parts if name in p.products])
        np.testing.assert_array_equal(np.sort(np.abs(values).ravel()), np.sort(np.abs(one.value).ravel()))


@arithmetic("float64")
def test_equal_frames_are_one_image():
    """The data term of a movie that stands still is that of imaging_problem, product by product."""
    movie, data, _ = small_problem()
    image = np.random.default_rng(5).uniform(0.5, 1.5, GRID.n_pixels)
    weights = dict.fromkeys(STOKES_I, 1.0)
    common = {"data_weights": weights, "reg_weights": {"tv": 1.0}, "flux": 4.0, "beam": 2.0, "operator": "separable"}
    one = vlbi.imaging_problem(data, GRID, np.ones(GRID.shape), **common)
    expected = one.objective.parts({"I": image})
    found = movie.objective.parts({"I": np.tile(image, (len(HOURS), 1))})
    for name in STOKES_I:
        np.testing.assert_allclose(found[f"data.{name}"], expected[f"data.{name}"], rtol=1e-10, err_msg=name)
    assert float(found["reg.dt"]) == 0.0 and float(found["reg.di"]) < 1e-25


@arithmetic("float64")
@pytest.mark.parametrize("gap", [False, True])
def test_every_part_against_finite_differences(gap):
    found, _, _ = small_problem(gap=gap)
    direction = jnp.asarray(np.random.default_rng(8).normal(size=found.space.size))
    z = found.z0()

    @fast_compile_jit
    def along(step, objective):
        return jax.jvp(lambda step: objective.parts(found.space.unpack(z + step * direction)), (step,), (jnp.ones(()),))

    h = 1e-5
    (above, _), (_, slopes), (below, _) = (along(jnp.asarray(s), found.objective) for s in (h, 0.0, -h))
    for name, slope in slopes.items():
        difference = (above[name] - below[name]) / (2 * h)
        np.testing.assert_allclose(slope, difference, rtol=2e-5, atol=1e-8 * (1 + abs(above[name])), err_msg=name)
        assert name.startswith("offset") or abs(slope) > 0, name


@arithmetic("float64")
@pytest.mark.parametrize("devices", [2, 4])
def test_split_over_devices(devices):
    found, _, _ = small_problem()
    one, many = found.objective, found.objective.place(sf.mesh(rows=devices))
    np.testing.assert_allclose(float(many.value(found.x0)), float(one.value(found.x0)), rtol=1e-12)


def test_smooth_change_costs_the_same_however_many_frames():
    coarse, fine = (drifting(n) for n in (25, 49))
    scales = dict(small_problem()[0].objective.items())["reg"].args[0]
    values = [
        float(problems.dt(np.stack([f.values["I"].ravel() for f in m.frames]), m.time_h, scales))
        for m in (coarse, fine)
    ]
    assert values[0] == pytest.approx(values[1], rel=0.02)


@pytest.mark.slow
def test_a_movie_is_recovered_where_one_image_fails(truth):
    obs = vlbi.observe(truth, eht2022(), gains=0.0, random_phase=False, start_h=8.5, stop_h=14.5, seed=3)
    options = {"npix": 16, "fov_uas": 128, "flux": 2.1, "data": {"vis": 1.0}, "systematic": 0.01, "restarts": 0}
    found = vlbi.movie(obs, frames=7, **options)
    assert found.static.chi2["vis"] > 10 > 2 > found.chi2["vis"]
    x = truth.frames[0].x
    true = np.array([(truth.at(t).values["I"].sum(0) @ x) / truth.at(t).flux for t in found.movie.time_h])
    east = np.array([(one.values["I"].sum(0) @ x) / one.flux for one in found.movie.frames])
    assert np.abs(east - true).max() < 0.4 * np.ptp(true)
    assert np.corrcoef(east, true)[0, 1] > 0.97
    short = vlbi.movie(obs, frames=7, maxiter=3, **options)
    assert short.result.steps == 3 and any("limit of 3 steps" in doubt for doubt in short.doubts)
    counts = np.isfinite(found.part_chi2["vis"])
    assert counts.all() and found.counts.sum() == len(found.data)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"frames": 1}, "at least 2"),
        ({"frames": [9.0, 10.0]}, "lie outside the frames"),
        ({"frames": [9.0, 9.0, 15.0]}, "rising"),
        ({"joining": {"dx": 1.0}}, "unknown name 'dx'"),
        ({"preset": "m87"}, "self-calibration"),
        ({"light_curve": [1.0, 2.0]}, "light_curve has shape"),
    ],
)
def test_bad_options_are_refused_before_work(truth, options, message):
    obs = vlbi.observe(truth, start_h=8.5, stop_h=14.5)
    with pytest.raises(ValueError, match=message):
        vlbi.movie(obs, **options)
    with pytest.raises(TypeError, match="no option 'rounds'"):
        vlbi.movie(obs, rounds=())


def test_times_that_do_not_rise_are_named_with_the_file(truth, tmp_path):
    from astropy.io import fits

    path = tmp_path / "back.fits"
    vlbi.write_movie(truth, path)
    with fits.open(path, mode="update") as units:
        units["TIME_H"].data[1] = 99.0
    with pytest.raises(ValueError, match=r"back\.fits: Movie: time_h must be finite and rise"):
        vlbi.read_movie(path)
