"""Synthetic data: geometry against real and golden u, v; noise and gains by seed."""

import numpy as np
import pytest

from shardfit.domains.vlbi.closures import quadrangles, triangles
from shardfit.domains.vlbi.constants import UAS
from shardfit.domains.vlbi.geometry import hour_angle, parallactic_angle, sidereal_time, uv_coordinates
from shardfit.domains.vlbi.images import blank, gaussian, ring, visibilities
from shardfit.domains.vlbi.models import MODELS
from shardfit.domains.vlbi.observation import Stations
from shardfit.domains.vlbi.recipes import known_image, observe
from shardfit.domains.vlbi.simulation import EHT2017, Gains, Night, read_array, simulate
from shardfit.domains.vlbi.uvfits import read_uvfits, write_uvfits
from tests.reference import M87, REFERENCE

NIGHT = Night(start_h=0.0, stop_h=24.0, cadence_s=1800.0, tint_s=60.0, bandwidth_hz=2e9)


@pytest.fixture(scope="module")
def image():
    grid = blank(20, 128 * UAS, ra_hours=12.513729, dec_deg=12.391123, mjd=57854, source="M87")
    unpolarised = ring(grid, 0.6, 21 * UAS, 12 * UAS, asymmetry=0.6)
    plane = unpolarised.values["I"]
    return unpolarised.replace(values={"I": plane, "Q": 0.1 * plane, "U": -0.05 * plane, "V": 0.02 * plane})


def test_golden_coordinates_and_noise(image):
    pytest.importorskip("astropy")
    expected = read_uvfits(REFERENCE / "vlbi" / "sim_pol.uvfits")
    obs = simulate(image, expected.stations, NIGHT)
    assert obs.baseline_names == expected.baseline_names
    np.testing.assert_allclose(obs.time, expected.time, atol=1e-6)
    scale = expected.uv_distance.max()
    np.testing.assert_allclose(obs.u, expected.u, atol=3e-5 * scale)
    np.testing.assert_allclose(obs.v, expected.v, atol=3e-5 * scale)
    sma = np.array(["SMA" in name for name in obs.baseline_names])  # its two feeds differ in the golden array
    for name in "IQUV":
        np.testing.assert_allclose(obs.sigma[name][~sma], expected.sigma[name][~sma], rtol=1e-6)


def test_coordinates_of_the_real_observation():
    pytest.importorskip("astropy")
    obs = read_uvfits(M87)
    angle = hour_angle(obs.mjd, obs.time, obs.ra_hours)
    xyz = obs.stations.xyz
    u, v = uv_coordinates(xyz[obs.ant1], xyz[obs.ant2], angle, obs.dec_deg, obs.freq_hz)
    scale = obs.uv_distance.max()
    assert max(np.abs(u - obs.u).max(), np.abs(v - obs.v).max()) < 5e-5 * scale
    names = [name for name in EHT2017.names if name != "SP"]
    np.testing.assert_allclose(
        [EHT2017.xyz[EHT2017.index(n)] for n in names], [xyz[obs.stations.index(n)] for n in names]
    )


def test_sidereal_time_of_the_almanac():
    # 2000 January 1, 12h: 18h 41m 50.548s
    expected = 2 * np.pi * (18 + 41 / 60 + 50.548 / 3600) / 24
    assert sidereal_time(51544, 12.0) == pytest.approx(expected, abs=1e-6)


def test_noise_has_the_stated_size_and_follows_the_seed(image):
    obs, again, other, clean = (
        simulate(image, night=NIGHT, seed=seed, noise=noise)
        for seed, noise in ((1, True), (1, True), (2, True), (1, False))
    )
    np.testing.assert_array_equal(obs.vis["Q"], again.vis["Q"])
    assert (obs.vis["I"] != other.vis["I"]).all()
    for name, model in visibilities(image, obs.u, obs.v).items():
        np.testing.assert_allclose(clean.vis[name], model)
        z = (obs.vis[name] - model) / obs.sigma[name]
        assert np.mean(np.abs(z) ** 2) / 2 == pytest.approx(1, abs=0.2)
    assert len(obs.stations) == 8
    assert "SP" not in {n for name in obs.baseline_names for n in name.split("-")}  # never above its horizon


def test_gains_leave_closures_alone(image):
    gains = Gains(offset=0.2, scatter=0.1, random_phase=True)
    clean, moved = (simulate(image, night=NIGHT, seed=3, gains=g, noise=False) for g in (None, gains))
    assert np.std(np.log(np.abs(moved.vis["I"] / clean.vis["I"]))) > 0.1
    assert np.std(np.angle(moved.vis["I"] / clean.vis["I"])) > 1
    np.testing.assert_allclose(np.sin(np.deg2rad(triangles(moved).value - triangles(clean).value)), 0, atol=1e-9)
    np.testing.assert_allclose(quadrangles(moved).value, quadrangles(clean).value, atol=1e-9)


def test_written_and_read(image, tmp_path):
    pytest.importorskip("astropy")
    obs = simulate(image, night=NIGHT)
    write_uvfits(obs, tmp_path / "a.uvfits")
    found = read_uvfits(tmp_path / "a.uvfits", station_order="file")
    for name in "IQUV":
        np.testing.assert_allclose(found.vis[name], obs.vis[name], rtol=0, atol=1e-7)
    assert found.baseline_names == obs.baseline_names


@pytest.mark.parametrize("name", list(MODELS))
def test_known_images(name):
    found = known_image(name, 64, flux=0.7)
    assert found.flux == pytest.approx(0.7)
    assert found.values["I"].min() >= 0
    edge = np.concatenate([found.values["I"][[0, -1]].ravel(), found.values["I"][:, [0, -1]].ravel()])
    assert edge.max() < 1e-2 * found.values["I"].max()  # well inside the field
    size = np.hypot(*np.meshgrid(found.x, found.y)) / UAS
    middle = found.values["I"][size < 6].mean() / found.values["I"].max()
    assert middle > 0.8 if name == "disk" else middle < 0.6
    with pytest.raises(ValueError, match="Did you mean 'ring'"):
        known_image("rnig")


def test_array_from_text(tmp_path):
    path = tmp_path / "array.txt"
    path.write_text("# two stations\nA 1e6 2e6 3e6 100\n\nB, 4e6, 5e6, 6e6, 200  # south\n")
    found = read_array(path)
    assert found.names == ("A", "B")
    np.testing.assert_array_equal(found.xyz, [[1e6, 2e6, 3e6], [4e6, 5e6, 6e6]])
    np.testing.assert_array_equal(found.sefd, [100, 200])


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("A 1 2 3", "line 1: not a name and four numbers"),
        ("A 1 2 3 4\nB 1 2 x 4", "line 2"),
        ("A 1 2 3 4", "at least two"),
        ("A 1 2 3 4\nB 1 2 3 0", "SEFD positive"),
        ("A 1 2 3 4\nB 1 2 nan 4", "finite"),
        ("A 1 2 3 4\nA 1 2 3 4", "all different"),
        ("\x00\xff binary", "line 1"),
    ],
)
def test_bad_arrays(tmp_path, text, why):
    path = tmp_path / "array.txt"
    path.write_text(text)
    with pytest.raises(ValueError, match=why) as raised:
        read_array(path)
    assert "array.txt" in str(raised.value)


def test_refused(image):
    with pytest.raises(ValueError, match="stop_h"):
        Night(stop_h=-1.0)
    with pytest.raises(ValueError, match="no two stations"):
        simulate(image, night=Night(elevation_deg=(89.9, 90.0)))
    with pytest.raises(ValueError, match="positions"):
        simulate(image, Stations(("A", "B"), np.full((2, 3), np.nan), np.ones(2)))
    with pytest.raises(TypeError, match="Did you mean 'cadence_s'"):
        observe(image, cadence=1.0)


def test_leakage_makes_cross_hands_of_stokes_i():
    """Of an unpolarised point, RL is d_R1 e^{2iφ1} I + (d_L2 e^{-2iφ2})* I; two stations' terms fit all their rows."""
    point = blank(8, 40 * UAS, ra_hours=12.5, dec_deg=12.4, freq_hz=230e9, mjd=57854)
    point = gaussian(point, 1.0, 2 * UAS)
    night = Night(stop_h=12, cadence_s=1200.0)
    clean = simulate(point, EHT2017, night, noise=False)
    obs = simulate(point, EHT2017, night, gains=Gains(leakage=0.05), noise=False)
    assert set(obs.vis) == set("IQUV")
    rl = obs.vis["Q"] + 1j * obs.vis["U"]
    angle = hour_angle(57854, obs.time, 12.5)
    turn = np.stack([np.exp(2j * parallactic_angle(xyz, angle, 12.4)) for xyz in EHT2017.xyz], 1)
    rows = np.arange(len(obs))
    k = len(EHT2017)
    design = np.zeros((len(obs), 2 * k), complex)  # d_R of the first station, conjugate d_L of the second
    design[rows, obs.ant1] = turn[rows, obs.ant1] * clean.vis["I"]
    design[rows, k + obs.ant2] = turn[rows, obs.ant2] * clean.vis["I"]
    found = np.linalg.lstsq(design, rl, rcond=None)[0]
    np.testing.assert_allclose(design @ found, rl, atol=1e-12)
    used = np.unique(obs.ant1)
    assert 0.02 < np.abs(found[used]).mean() < 0.15
    assert np.abs(obs.vis["I"] / clean.vis["I"] - 1).max() < 0.05  # of second order


def test_leakage_leaves_noise_and_gains_alone():
    image = gaussian(blank(8, 40 * UAS, ra_hours=12.5, dec_deg=12.4, freq_hz=230e9, mjd=57854), 1.0, 2 * UAS)
    one, two = (simulate(image, gains=Gains(scatter=0.1, leakage=d), seed=3).vis["I"] for d in (0.0, 1e-9))
    np.testing.assert_allclose(one, two, atol=1e-8)


def test_opacity_makes_noise():
    image = gaussian(blank(8, 40 * UAS, ra_hours=12.5, dec_deg=12.4, freq_hz=230e9, mjd=57854), 1.0, 2 * UAS)
    clear, thick = (simulate(image, EHT2017, Night(opacity=tau)) for tau in (0.0, 0.1))
    ratio = thick.sigma["I"] / clear.sigma["I"]
    assert ratio.min() > np.exp(0.1)  # the way through the air is longer than at the zenith
    assert ratio.max() < np.exp(0.1 / np.sin(np.deg2rad(9.9)))
    with pytest.raises(ValueError, match="opacity"):
        Night(opacity=-0.1)


def test_parallactic_angle_is_zero_on_the_meridian():
    xyz = EHT2017.xyz[2]
    transit = -np.arctan2(xyz[1], xyz[0])
    angles = parallactic_angle(xyz, np.array([transit - 0.3, transit, transit + 0.3]), 12.4)
    assert angles[1] == pytest.approx(0, abs=1e-12)
    assert angles[0] == pytest.approx(-angles[2])
    assert angles[2] > 0  # after transit


def test_array_files_of_ehtim(tmp_path):
    path = tmp_path / "array.txt"
    path.write_text(
        "#Site X Y Z SEFDR SEFDL FR_PAR FR_EL FR_OFF DR_RE DR_IM DL_RE DL_IM\n"
        "PV 5088967.9 -301681.6 3825015.8 1400 5600 1 0 0 0.01 0.0 0.0 0.0\n"
        "SPT 0.01 0.01 -6359609.7 118 118\n"
    )
    found = read_array(path)
    assert found.names == ("PV", "SPT")
    assert found.sefd == pytest.approx([2800, 118])
    path.write_text("PV 1 2 3 4 5 6\nAA 1 2 3 4\n")
    with pytest.raises(ValueError, match="line 1"):
        read_array(path)
