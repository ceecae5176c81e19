"""Reading and writing visibility files; golden values come from eht-imaging 1.4.0, which rounds averages to 32 bits."""

import json
from dataclasses import replace

import numpy as np
import pytest

from shardfit.domains.vlbi.fits_units import read_units
from shardfit.domains.vlbi.observation import Observation, Stations, make_observation
from shardfit.domains.vlbi.operations import average_scans
from shardfit.domains.vlbi.text import read_text, write_text
from shardfit.domains.vlbi.uvfits import read_uvfits, write_uvfits
from tests.reference import M87, REFERENCE

pytest.importorskip("astropy")


@pytest.fixture(scope="module")
def m87():
    return M87


@pytest.fixture(scope="module")
def polarised():
    return REFERENCE / "vlbi" / "sim_pol.uvfits"


@pytest.fixture(scope="module")
def small():
    """Three stations, two times, all Stokes parameters."""
    rng = np.random.default_rng(3)
    vis = {name: rng.normal(size=6) + 1j * rng.normal(size=6) for name in "IQUV"}
    return make_observation(
        time=np.repeat([3.0, 3.5], 3),
        tint=np.full(6, 10.0),
        ant1=[0, 0, 1] * 2,
        ant2=[1, 2, 2] * 2,
        u=rng.normal(size=6) * 1e9,
        v=rng.normal(size=6) * 1e9,
        vis=vis,
        sigma={name: np.full(6, 0.01) for name in vis},
        stations=Stations(("B", "A", "C"), rng.normal(size=(3, 3)) * 1e6, np.array([100.0, 200.0, 300.0])),
        freq_hz=230e9,
        bandwidth_hz=2e9,
        mjd=57854,
        source="test",
        ra_hours=12.5,
        dec_deg=12.4,
        scans=[[2.9, 3.1], [3.4, 3.6]],
    )


def same(a, b, rtol):
    assert a.stations.names == b.stations.names
    assert list(a.vis) == list(b.vis)
    np.testing.assert_array_equal(np.c_[a.ant1, a.ant2], np.c_[b.ant1, b.ant2])
    for name in ("time", "tint", "u", "v"):
        x = getattr(b, name)
        np.testing.assert_allclose(getattr(a, name), x, rtol=0, atol=rtol * np.abs(x).max(), err_msg=name)
    for name in b.vis:
        np.testing.assert_allclose(a.vis[name], b.vis[name], rtol=0, atol=rtol * np.abs(b.vis[name]).max())
        np.testing.assert_allclose(a.sigma[name], b.sigma[name], rtol=rtol)
    for name in ("freq_hz", "bandwidth_hz", "mjd", "source"):
        assert getattr(a, name) == getattr(b, name)
    assert a.ra_hours == pytest.approx(b.ra_hours, rel=1e-12)
    assert a.dec_deg == pytest.approx(b.dec_deg, rel=1e-12)


@pytest.mark.parametrize("band", ["lo", "hi"])
def test_release_files_read_without_a_warning(band):
    obs = read_uvfits(M87.with_name(M87.name.replace("_lo_", f"_{band}_")))
    assert list(obs.vis) == ["I"]  # polarisation was removed: RL, LR and RR - LL are no data
    assert len(obs) > 2000
    assert obs.freq_hz == pytest.approx(229.07e9 if band == "hi" else 227.07e9, rel=1e-4)


@pytest.mark.parametrize(("dtype", "rtol"), [(np.float32, 1e-15), (np.float64, 2e-7)])
def test_golden_raw_table(m87, dtype, rtol):
    obs = read_uvfits(m87, dtype=dtype)
    with np.load(REFERENCE / "vlbi" / "real_101_lo.npz") as z:
        assert obs.stations.names == tuple(z["raw_site"])
        np.testing.assert_array_equal(obs.stations.xyz, z["tarr_xyz"])
        for name, found in {"time": obs.time, "tint": obs.tint, "u": obs.u, "v": obs.v}.items():
            np.testing.assert_allclose(found, z[f"raw_{name}"], rtol=1e-15)
        np.testing.assert_array_equal(np.c_[obs.ant1, obs.ant2], np.c_[z["raw_i1"], z["raw_i2"]])
        np.testing.assert_allclose(obs.vis["I"], z["raw_vis"], rtol=2 * rtol)
        np.testing.assert_allclose(obs.sigma["I"], z["raw_sigma"], rtol=rtol)
    about = json.loads((REFERENCE / "vlbi" / "real_101_lo.json").read_text())
    assert obs.nominal_resolution == pytest.approx(about["raw_res_rad"], rel=1e-14)
    assert obs.freq_hz == about["rf_hz"]
    assert obs.bandwidth_hz == about["bw_hz"]
    assert obs.mjd == about["mjd"]
    assert obs.ra_hours == pytest.approx(about["ra_hr"], rel=1e-14)
    assert obs.dec_deg == pytest.approx(about["dec_deg"], rel=1e-14)


def test_golden_polarised_file(polarised):
    obs = read_uvfits(polarised, dtype=np.float32)
    with np.load(REFERENCE / "vlbi" / "sim.npz") as z:
        assert obs.stations.names == tuple(z["pol_site"])
        np.testing.assert_array_equal(np.c_[obs.ant1, obs.ant2], np.c_[z["pol_i1"], z["pol_i2"]])
        np.testing.assert_allclose(obs.time, z["uvfits_time"], rtol=1e-15)
        for name in ("u", "v"):  # the golden ones are rounded to 32 bits
            np.testing.assert_allclose(getattr(obs, name), z[f"uvfits_{name}"], rtol=2e-7)
        for name, prefix in (("I", ""), ("Q", "q"), ("U", "u"), ("V", "v")):
            np.testing.assert_allclose(obs.vis[name], z[f"uvfits_{prefix}vis"], rtol=1e-10)
            np.testing.assert_allclose(obs.sigma[name], z[f"uvfits_{prefix}sigma"], rtol=1e-10)
    assert obs.scans is None  # this file's scan table is 75 days long


@pytest.mark.parametrize("file", ["m87", "polarised", "written"])
def test_units_are_those_that_astropy_reads(file, small, tmp_path, request):
    from astropy.io import fits

    path = tmp_path / "written.uvfits" if file == "written" else request.getfixturevalue(file)
    if file == "written":
        write_uvfits(small, path)
    units = read_units(path)
    with fits.open(path) as hdus:
        assert len(units) == len(hdus)
        for unit, hdu in zip(units, hdus, strict=True):
            cards = {k: v for k, v in hdu.header.items() if k not in ("", "HISTORY", "COMMENT")}
            assert {k: v.rstrip() if isinstance(v, str) else v for k, v in cards.items()} == unit.header
            assert unit.offset == hdu.fileinfo()["datLoc"]
            for name in [] if unit is units[0] else hdu.columns.names:
                np.testing.assert_array_equal(unit.column(name), hdu.data[name], err_msg=name)


def test_cards_and_columns_of_any_kind(tmp_path):
    """Text with quotes, exponents of two kinds, scaled and logical columns."""
    from astropy.io import fits

    columns = [
        fits.Column("SCALED", "I", array=np.array([1, 3], np.int16)),
        fits.Column("YES", "L", array=np.array([True, False])),
        fits.Column("TEXT", "5A", array=np.array(["a b", "c"])),
        fits.Column("PAIR", "2E", array=np.array([[1.0, 2.0], [3.0, 4.0]])),
        fits.Column("EMPTY", "0D", array=np.zeros((2, 0))),
    ]
    table = fits.BinTableHDU.from_columns(columns, name="AIPS AN")
    table.header.update({"QUOTE": "it's / so", "SMALL": 1.5e-300, "WHOLE": -7, "FLAG": True})
    path = tmp_path / "kinds.fits"
    fits.HDUList([fits.PrimaryHDU(), table]).writeto(path)
    path.write_bytes(path.read_bytes().replace(b"1.5E-300", b"1.5D-300"))
    unit = read_units(path)[1]
    unit = replace(unit, header={**unit.header, "TSCAL1": 0.5, "TZERO1": 1.0})
    assert [unit.header[key] for key in ("QUOTE", "SMALL", "WHOLE", "FLAG")] == ["it's / so", 1.5e-300, -7, True]
    np.testing.assert_array_equal(unit.column("SCALED"), [1.5, 2.5])
    np.testing.assert_array_equal(unit.column("YES"), [True, False])
    assert unit.column("TEXT").tolist() == ["a b", "c"]
    np.testing.assert_array_equal(unit.column("PAIR"), [[1, 2], [3, 4]])
    with pytest.raises(ValueError, match=r"TFORM1 = '1PE\(3\)' is not read"):
        replace(unit, header={**unit.header, "TFORM1": "1PE(3)"}).column("TEXT")


def test_round_trip_of_a_release_file(m87, tmp_path):
    obs = read_uvfits(m87)
    write_uvfits(obs, tmp_path / "a.uvfits")
    same(read_uvfits(tmp_path / "a.uvfits"), obs, 1e-7)
    averaged = average_scans(obs)
    write_uvfits(averaged, tmp_path / "b.uvfits")
    found = read_uvfits(tmp_path / "b.uvfits")
    same(found, averaged, 2e-7)
    np.testing.assert_allclose(found.scans, averaged.scans, atol=1e-7)
    with pytest.raises(OSError, match=r"b\.uvfits"):
        write_uvfits(averaged, tmp_path / "b.uvfits")


@pytest.mark.parametrize("polrep", ["circ", "stokes", None])
def test_round_trip_of_all_stokes_parameters(small, tmp_path, polrep):
    write_uvfits(small, tmp_path / "a.uvfits", polrep=polrep)
    found = read_uvfits(tmp_path / "a.uvfits")
    same(found, small, 3e-7)
    assert found.polrep == (polrep or "circ")
    np.testing.assert_allclose(found.scans, small.scans, atol=1e-6)


def test_round_trip_keeps_missing_samples_missing(small, tmp_path):
    sigma = {name: np.array(s) for name, s in small.sigma.items()}
    vis = {name: np.array(x) for name, x in small.vis.items()}
    sigma["V"][2], vis["V"][2], sigma["Q"][1], vis["Q"][1] = np.inf, 0, np.inf, 0
    obs = small.replace(vis=vis, sigma=sigma)
    write_uvfits(obs, tmp_path / "a.uvfits")
    same(read_uvfits(tmp_path / "a.uvfits"), obs, 3e-7)
    only_v = small.replace(vis={k: vis[k] for k in "IV"}, sigma={k: small.sigma[k] for k in "IV"})
    write_uvfits(only_v, tmp_path / "b.uvfits")
    same(read_uvfits(tmp_path / "b.uvfits"), only_v, 3e-7)


def test_station_order(small, tmp_path):
    reordered = small.with_stations([2, 1, 0])
    write_uvfits(reordered, tmp_path / "a.uvfits")
    assert read_uvfits(tmp_path / "a.uvfits").stations.names == ("B", "A", "C")
    same(read_uvfits(tmp_path / "a.uvfits", station_order="file"), reordered, 3e-7)


def with_channels(small, path, edit=None):
    """File of two IFs with three channels each; the value of a sample is its channel number."""
    from astropy.io import fits

    write_uvfits(small, path, overwrite=True)
    with fits.open(path) as hdus:
        data = np.zeros((len(small), 1, 1, 2, 3, 4, 3), np.float32)
        data[..., :2, 0] = np.arange(6).reshape(2, 3, 1) + 1.0
        data[..., 2] = 4.0
        if edit is not None:
            edit(data)
        old = hdus[0]
        names = ["UU---SIN", "VV---SIN", "WW---SIN", "BASELINE", "DATE", "DATE", "INTTIM"]
        groups = fits.GroupData(data, bitpix=-32, parnames=names, pardata=[old.data.par(i) for i in range(len(names))])
        new = fits.GroupsHDU(groups)
        new.header.update({k: old.header[k] for k in old.header if k[:5] in ("CTYPE", "CRVAL", "CDELT", "CRPIX")})
        new.header.update({"CDELT4": 1e8, "OBSRA": 187.5, "OBSDEC": 12.4, "OBJECT": "test"})
        new.header.update({f"PSCAL{i}": 1.0 for i in range(1, 8)})
        columns = [fits.Column("FRQSEL", "1J", array=[1]), fits.Column("IF FREQ", "2D", array=[[0.0, 1e9]])]
        frequencies = fits.BinTableHDU.from_columns(columns, name="AIPS FQ")
        fits.HDUList([new, hdus[1], frequencies]).writeto(path, overwrite=True)
    return path


def test_channels_are_averaged_or_kept_apart(small, tmp_path):
    def flag(data):
        data[:, 0, 0, 0, 1, :, 2] = 0  # one channel flagged
        data[2, ..., 1, 2] = np.nan  # LL of one row flagged
        data[0, ..., 2] = -1  # a row flagged

    path = with_channels(small, tmp_path / "a.uvfits", flag)
    average = read_uvfits(path, channels="average")
    assert len(average) == 5
    np.testing.assert_allclose(average.vis["I"], np.mean([1, 3, 4, 5, 6]))
    assert average.freq_hz == pytest.approx(230.6e9)  # the mean of the channels, not that of the header
    light_s = small.u[1:] / 230e9  # u and v are those of the channels that are there
    np.testing.assert_allclose(average.u, light_s * np.mean([230, 230.2, 231, 231.1, 231.2]) * 1e9, rtol=1e-6)
    assert average.bandwidth_hz == pytest.approx(6e8)
    # weight 4 per hand and channel: σ of I is 1/2/√5/√2, of the row with one hand 1/2/√5
    assert np.sort(average.sigma["I"]) == pytest.approx(np.array([1 / np.sqrt(40)] * 4 + [1 / np.sqrt(20)]))
    assert np.isinf(average.sigma["V"]).sum() == 1

    apart = read_uvfits(path, channels="separate")
    assert [obs.vis["I"][0].real for obs in apart] == [1, 3, 4, 5, 6]
    assert [obs.freq_hz for obs in apart] == pytest.approx([230e9, 230.2e9, 231e9, 231.1e9, 231.2e9])
    assert {obs.bandwidth_hz for obs in apart} == {1e8}
    for obs in apart:
        np.testing.assert_allclose(obs.u, apart[0].u * obs.freq_hz / 230e9)


def test_refuses_what_it_cannot_read(small, polarised, tmp_path):
    path = tmp_path / "odd.uvfits"
    good = polarised.read_bytes()

    def refused(content, why, **options):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=rf"odd\.uvfits: .*{why}"):
            read_uvfits(path, **options)

    code = b"CRVAL3  =                 -1.0"
    assert code in good
    refused(good.replace(code, b"CRVAL3  =                 -5.0"), "linear correlations")
    refused(good.replace(code, b"CRVAL3  =                  7.0"), "Stokes codes")
    refused(good[: len(good) // 3], "truncated")
    refused(b"", "cannot be read as uvfits")
    refused(b"SIMPLE  = what", "cannot be read as uvfits")
    refused(good.replace(b"AIPS AN ", b"AIPS XX "), "no antenna table")
    with_channels(small, path, lambda data: data[..., 2].fill(0))
    for channels in ("average", "separate"):
        refused(path.read_bytes(), "no valid data", channels=channels)
    with pytest.raises(FileNotFoundError, match=r"none\.uvfits"):
        read_uvfits(tmp_path / "none.uvfits")
    with pytest.raises(ValueError, match="channels"):
        read_uvfits(polarised, channels="all")


def test_refuses_linear_feeds(small, tmp_path):
    from astropy.io import fits

    path = tmp_path / "linear.uvfits"
    write_uvfits(small, path)
    with fits.open(path, mode="update") as hdus:
        hdus[1].data["POLTYA"][1] = "X"
    with pytest.raises(ValueError, match=r"linear\.uvfits: POLTYA has feeds \['X'\]"):
        read_uvfits(path)


@pytest.mark.parametrize("seed", range(40))
def test_damaged_files_are_read_or_refused(polarised, tmp_path, seed):
    rng = np.random.default_rng(seed)
    content = bytearray(polarised.read_bytes())
    header = 3 * 2880
    match seed % 4:
        case 0:
            content = content[: rng.integers(len(content))]
        case 1:  # anywhere
            for i in rng.integers(0, len(content), 30):
                content[i] = rng.integers(256)
        case 2:  # text of the first header
            for i in rng.integers(0, header, 4):
                content[i] = rng.integers(32, 127)
        case 3:  # digits of the first header
            digits = [i for i in range(header) if 48 <= content[i] <= 57]
            for i in rng.choice(digits, 3):
                content[i] = rng.integers(48, 58)
    path = tmp_path / "damaged.uvfits"
    path.write_bytes(content)
    try:
        obs = read_uvfits(path)
    except (ValueError, OSError) as error:
        assert "damaged.uvfits" in str(error)
    else:
        assert isinstance(obs, Observation)
        assert np.isfinite(obs.vis["I"] / obs.sigma["I"]).all()


CSV = """#SRC:M87,DATE(MJD):57854,FREQ:227.0707GHz
#time(UTC),T1,T2,U(lambda),V(lambda),Iamp(Jy),Iphase(d),Isigma(Jy)
00.68472223,AA,PV,-4421105664.0000,-4546788352.0000,0.15288800,-173.9646,0.00348128
00.68472223,AA,AP,805263.3750,-1692975.3750,1.21032094,-40.7774,0.00395426
00.68472223,AP,PV,-4421920256.0000,-4545111552.0000,0.15816707,-153.0618,0.03025321
"""


def test_text_table(m87, tmp_path):
    path = tmp_path / "a.csv"
    path.write_text(CSV)
    obs = read_text(path)
    raw = read_uvfits(m87)
    raw = raw.select(np.isclose(raw.time, 0.68472223, atol=1e-7)).drop_unused_stations()
    assert obs.stations.names == raw.stations.names
    assert (obs.mjd, obs.source, obs.freq_hz) == (57854, "M87", 227.0707e9)
    # same tint for all, so rows with the same first station may be in another order
    order = [obs.baseline_names.index(name) for name in raw.baseline_names]
    np.testing.assert_allclose(obs.vis["I"][order], raw.vis["I"], rtol=2e-6)
    np.testing.assert_allclose(obs.sigma["I"][order], raw.sigma["I"], rtol=2e-6)
    np.testing.assert_allclose(obs.u[order], raw.u, rtol=1e-12)
    write_text(obs, tmp_path / "b.csv")
    again = read_text(tmp_path / "b.csv", stations=obs.stations)
    np.testing.assert_allclose(again.vis["I"], obs.vis["I"], rtol=1e-7)
    path.write_text(CSV.replace(",", "  "))  # the .txt form
    np.testing.assert_array_equal(read_text(path).u, obs.u)


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("#SRC", "#XXX", "no comment of the form"),
        ("Iamp", "Xamp", "no comment with the columns"),
        ("0.15288800", "nan", "line 3"),
        ("0.15288800,", "", "line 3"),
        ("00.68472223,AA,AP", "00.68472223,AA,PV", "both baseline AA-PV"),
    ],
)
def test_text_table_refused(tmp_path, old, new, why):
    path = tmp_path / "odd.csv"
    path.write_text(CSV.replace(old, new))
    with pytest.raises(ValueError, match=rf"odd\.csv.*{why}"):
        read_text(path)


@pytest.mark.parametrize(
    ("parameter", "value", "expected"),
    [
        ("UU---SIN", 1e3, "light-seconds: no baseline"),
        ("DATE", 2457900.0, "days apart"),
    ],
)
def test_absurd_rows_are_refused(small, tmp_path, parameter, value, expected):
    from astropy.io import fits

    path = tmp_path / "odd.uvfits"
    write_uvfits(small, path)
    with fits.open(path, mode="update", memmap=False) as hdus:
        number = [hdus[0].header[f"PTYPE{i}"] for i in range(1, 1 + hdus[0].header["PCOUNT"])].index(parameter)
        raw = (value - hdus[0].header.get(f"PZERO{number + 1}", 0.0)) / hdus[0].header.get(f"PSCAL{number + 1}", 1.0)
        hdus[0].data.par(number)[1] = raw
    with pytest.raises(ValueError, match=expected):
        read_uvfits(path)


def test_scans_of_one_integration(small, tmp_path):
    """A scan table may give single integrations no length."""
    from astropy.io import fits

    path = tmp_path / "one.uvfits"
    write_uvfits(small.replace(scans=[[2.99, 3.01], [3.49, 3.51]]), path)
    with fits.open(path, mode="update", memmap=False) as hdus:
        hdus["AIPS NX"].data["TIME INTERVAL"][:] = 0.0
    found = read_uvfits(path)
    assert found.scans is not None
    assert len(average_scans(found)) == len(small)


def edited(path, **columns):
    """Change columns of a file's tables, and parameters of its rows, in place; a callable gets what is there."""
    from astropy.io import fits

    with fits.open(path, mode="update", memmap=False) as hdus:
        for name, change in columns.items():
            table = next((hdu.data for hdu in hdus[1:] if name in hdu.columns.names), None)
            values = hdus[0].data.par(name) if table is None else table[name]
            values[:] = change(np.array(values)) if callable(change) else change
    return path


@pytest.mark.parametrize("bad", [-10.0, 1e7, np.nan])
def test_integration_times_that_cannot_be_are_replaced(small, tmp_path, caplog, bad):
    write_uvfits(small, tmp_path / "a.uvfits")
    some = read_uvfits(edited(tmp_path / "a.uvfits", INTTIM=lambda t: np.where(np.arange(t.size) == 1, bad, t)))
    assert "1 of 6 rows" in caplog.text
    np.testing.assert_allclose(some.tint, 10.0)
    none = read_uvfits(edited(tmp_path / "a.uvfits", INTTIM=bad))
    assert "in any row" in caplog.text
    np.testing.assert_allclose(none.tint, 1800.0, rtol=1e-5)


def test_names_of_antennas_end_at_what_is_no_text(small, tmp_path, caplog):
    path = tmp_path / "a.uvfits"
    write_uvfits(small.replace(stations=Stations(("BRXXXXXX", "LAXXXXXX", "ANT5"), *xyz_sefd(small))), path)
    raw = path.read_bytes()
    path.write_bytes(raw.replace(b"BRXXXXXX", b"BR\0A\x06EL\xc1").replace(b"LAXXXXXX", b"  LA    "))
    assert read_uvfits(path).stations.names == ("BR", "LA", "ANT5")
    assert not caplog.text
    path.write_bytes(raw.replace(b"BRXXXXXX", b"\0\0\0\0\0\0\0\0").replace(b"LAXXXXXX", b"ANT5\0\0\0\0"))
    names = read_uvfits(path).stations.names
    assert len(set(names)) == 3
    assert names[0].startswith("ANT")
    assert "told apart" in caplog.text


def xyz_sefd(obs):
    return obs.stations.xyz, obs.stations.sefd


@pytest.mark.parametrize(
    ("middle", "length", "usable"),
    [
        ([3.0, 3.5], [0.1, 0.1], True),
        ([3.5, 3.0], [0.1, 0.1], True),  # out of order
        ([3.0, 3.5], [0.501, 0.501], True),  # rounded up: neighbours share seconds
        ([3.0, 3.5], [2.0, 2.0], False),
        ([3.0, 3.0], [0.1, 0.1], False),
        ([3.0, np.nan], [0.1, 0.1], False),
    ],
)
def test_scan_tables_of_other_writers(small, tmp_path, caplog, middle, length, usable):
    """What cannot be a list of scans is left out without a warning: scans are then split at gaps."""
    path = tmp_path / "a.uvfits"
    write_uvfits(small, path)
    columns = {"TIME": np.array(middle) / 24, "TIME INTERVAL": np.array(length) / 24}
    found = read_uvfits(edited(path, **columns))
    assert (found.scans is not None) == usable
    assert not caplog.text
    assert len(average_scans(found)) == len(small)
