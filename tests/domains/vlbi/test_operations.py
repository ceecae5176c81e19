"""Averages, noise and scaling of M87, day 101, low band; golden values come from eht-imaging 1.4.0."""

import json

import numpy as np
import pytest

from shardfit.domains.vlbi import operations as ops
from shardfit.domains.vlbi.constants import UAS
from shardfit.domains.vlbi.uvfits import read_uvfits
from tests.reference import M87, REFERENCE

pytest.importorskip("astropy")


@pytest.fixture(scope="module")
def golden():
    with np.load(REFERENCE / "vlbi" / "real_101_lo.npz") as z:
        return {name: z[name] for name in z.files if name.partition("_")[0] in TABLES}


@pytest.fixture(scope="module")
def about():
    return json.loads((REFERENCE / "vlbi" / "real_101_lo.json").read_text())


@pytest.fixture(scope="module")
def raw():
    return read_uvfits(M87, dtype=np.float32)


def snr_order(raw, about):
    obs = ops.average_scans(raw).drop_unused_stations()
    return ops.rescale_zero_baselines(
        obs, about["zbl_jy"], ops.total_flux(obs, "AP", "AA"), uv_max=0.1e9
    ).order_by_snr()


TABLES = {
    "avg": lambda raw, about: ops.average_scans(raw),
    "avglegacy": lambda raw, about: ops.average_scans(raw, weights="legacy"),
    "avg60": lambda raw, about: ops.average_time(raw, 60),
    "snrorder": snr_order,
    "taper5": lambda raw, about: ops.reverse_taper(snr_order(raw, about), 5 * UAS),
    "prep": lambda raw, about: ops.add_fractional_noise(snr_order(raw, about), about["frac_noise"]),
    "scans": None,
}


@pytest.mark.parametrize("table", [name for name in TABLES if name != "scans"])
def test_golden_tables(golden, about, raw, table):
    obs = TABLES[table](raw, about)
    assert obs.stations.names == tuple(golden[f"{table}_site"])
    assert len(obs) == about[f"{table}_n"]
    assert obs.nominal_resolution == pytest.approx(about[f"{table}_res_rad"], rel=1e-14)
    np.testing.assert_array_equal(np.c_[obs.ant1, obs.ant2], np.c_[golden[f"{table}_i1"], golden[f"{table}_i2"]])
    for name, found in {"time": obs.time, "tint": obs.tint, "u": obs.u, "v": obs.v}.items():
        np.testing.assert_allclose(found, golden[f"{table}_{name}"], rtol=1e-14, err_msg=name)
    np.testing.assert_allclose(obs.vis["I"], golden[f"{table}_vis"], rtol=1e-12)
    np.testing.assert_allclose(obs.sigma["I"], golden[f"{table}_sigma"], rtol=1e-14)


def test_golden_scans_and_flux(golden, about, raw):
    np.testing.assert_array_equal(ops.scan_table(raw), golden["scans_hr"])
    averaged = ops.average_scans(raw)
    np.testing.assert_array_equal(averaged.scans, golden["scans_hr"])
    assert ops.total_flux(averaged, "AA", "AP") == pytest.approx(about["zbl_tot_jy"], rel=1e-14)


def test_common_time(raw):
    shared = ops.average_scans(raw, common_time=True)
    own = ops.average_scans(raw)
    assert len(shared) == len(own)
    assert len(np.unique(shared.time)) == len(shared.scans) <= len(np.unique(own.time))
    assert sorted(shared.sigma["I"]) == pytest.approx(sorted(own.sigma["I"]))


def test_missing_samples_do_not_enter_an_average(raw):
    obs = raw.select(np.arange(len(raw)) < 30)
    gap = np.arange(len(obs)) % 3 == 0
    sigma = np.where(gap, np.inf, obs.sigma["I"])
    both = obs.replace(
        vis={"I": obs.vis["I"], "Q": np.where(gap, 0, obs.vis["I"])}, sigma={"I": obs.sigma["I"], "Q": sigma}
    )
    for weights in ("inverse", "legacy"):
        expected = ops.average_scans(obs.select(~gap), weights=weights)
        found = ops.average_scans(both, weights=weights)
        np.testing.assert_allclose(found.vis["Q"], expected.vis["I"])
        np.testing.assert_allclose(found.sigma["Q"], expected.sigma["I"])


def test_flag(raw):
    kept = ops.flag(raw, snr_below=5, uv_below=0.1e9, uv_above=7e9, stations="JC", before_h=1.0, after_h=6.0)
    assert kept.snr.min() >= 5
    assert 0.1e9 <= kept.uv_distance.min() <= kept.uv_distance.max() <= 7e9
    assert not any("JC" in name for name in kept.baseline_names)
    assert 1 <= kept.time.min() <= kept.time.max() <= 6
    assert len(ops.flag(raw)) == len(raw)
    with pytest.raises(ValueError, match="no station 'XX'"):
        ops.flag(raw, stations=("AA", "XX"))


def test_taper_undoes_reverse_taper(raw):
    again = ops.taper(ops.reverse_taper(raw, 5 * UAS), 5 * UAS)
    np.testing.assert_allclose(again.vis["I"], raw.vis["I"])
    np.testing.assert_allclose(again.sigma["I"], raw.sigma["I"])


def test_noise_is_added_to_every_product(raw):
    both = raw.replace(vis={**raw.vis, "V": raw.vis["I"] * 0}, sigma={**raw.sigma, "V": raw.sigma["I"]})
    noisy = ops.add_fractional_noise(both, 0.1)
    np.testing.assert_allclose(noisy.sigma["V"] ** 2, raw.sigma["I"] ** 2 + (0.1 * np.abs(raw.vis["I"])) ** 2)
    assert raw.sigma["I"] is both.sigma["I"] or np.array_equal(raw.sigma["I"], both.sigma["I"])


@pytest.mark.parametrize(
    ("operation", "why"),
    [
        (lambda obs: ops.average_scans(obs, weights="equal"), "weights"),
        (lambda obs: ops.average_scans(obs.replace(scans=[[0.0, 1.0]])), "lie in no scan"),
        (lambda obs: ops.average_time(obs, 0), "seconds"),
        (lambda obs: ops.add_fractional_noise(obs, -0.1), "fraction"),
        (lambda obs: ops.reverse_taper(obs, 1e-3), "taper"),
        (lambda obs: ops.total_flux(obs, "AA", "SR"), "no rows on AA-SR"),
        (lambda obs: ops.rescale_zero_baselines(obs, -1.0, uv_max=0.1e9), "flux=-1"),
    ],
)
def test_refused(raw, operation, why):
    with pytest.raises(ValueError, match=why):
        operation(raw)


def test_flags_by_elevation(raw):
    height = np.rad2deg(ops.elevations(raw))
    assert height.shape == (len(raw), 2)
    assert height.min() > 0  # the data are real: nobody looks through the ground
    kept = ops.flag(raw, elevation_below_deg=30)
    assert len(kept) == int((height.min(1) >= 30).sum()) < len(raw)
    lost = raw.stations.xyz.copy()
    lost[raw.ant1[0]] = np.nan
    stations = type(raw.stations)(raw.stations.names, lost, raw.stations.sefd)
    with pytest.raises(ValueError, match=f"position of {raw.stations.names[raw.ant1[0]]} is not known"):
        ops.flag(raw.replace(stations=stations), elevation_below_deg=10)


def test_elevation_is_that_of_astropy(raw):
    """Of a position of date; the header's is of 2000, whose precession moves it by a quarter of a degree."""
    from astropy import units
    from astropy.coordinates import ICRS, AltAz, EarthLocation, SkyCoord
    from astropy.time import Time
    from astropy.utils import iers

    row = len(raw) // 2
    with iers.conf.set_temp("auto_download", False), iers.conf.set_temp("iers_degraded_accuracy", "ignore"):
        place = EarthLocation.from_geocentric(*raw.stations.xyz[raw.ant1[row]], unit=units.m)
        when = Time(raw.mjd + raw.time[row] / 24, format="mjd")
        source = SkyCoord(raw.ra_hours * units.hourangle, raw.dec_deg * units.deg, frame=ICRS)
        expected = source.transform_to(AltAz(obstime=when, location=place)).alt.deg
    assert np.rad2deg(ops.elevations(raw)[row, 0]) == pytest.approx(expected, abs=0.3)


def test_flags_by_polarisation(raw):
    q = np.where(np.arange(len(raw)) % 2, 0.9, 0.1) * np.abs(raw.vis["I"])
    polarised = raw.replace(vis={"I": raw.vis["I"], "Q": q, "U": 0 * q}, sigma={name: raw.sigma["I"] for name in "IQU"})
    kept = ops.flag(polarised, polarisation_above=0.5)
    assert len(kept) == (len(raw) + 1) // 2
    with pytest.raises(ValueError, match="polarisation_above needs Q and U; the data have I"):
        ops.flag(raw.replace(vis={"I": raw.vis["I"]}, sigma={"I": raw.sigma["I"]}), polarisation_above=0.5)
