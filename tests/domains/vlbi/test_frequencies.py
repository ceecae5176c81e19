"""Files of several IFs and channels as AIPS, DIFMAP, CASA and eht-imaging lay them out; truth by direct Fourier sum."""

import numpy as np
import pytest

from shardfit.domains.vlbi import noise_scale
from shardfit.domains.vlbi.closures import quadrangles, triangles
from shardfit.domains.vlbi.joining import join
from shardfit.domains.vlbi.observation import Observation
from shardfit.domains.vlbi.operations import average_scans
from shardfit.domains.vlbi.selfcal import self_calibrate
from shardfit.domains.vlbi.text import write_text
from shardfit.domains.vlbi.uvfits import read_uvfits, write_uvfits
from tests.domains.vlbi.layouts import COMPONENTS, LAYOUTS, MAS, SIGMA, layout, truth

fits = pytest.importorskip("astropy.io.fits")


def read(path, **options) -> Observation:
    found = read_uvfits(path, **options)
    assert isinstance(found, Observation)
    return found


def chi2(obs, spectrum=0.0):
    """χ² per real measurement of the components the file was made of."""
    residual = (obs.vis["I"] - truth(obs.u, obs.v, obs.hz, spectrum)) / obs.sigma["I"]
    return float(np.mean(np.abs(residual) ** 2) / 2)


@pytest.mark.parametrize("kind", LAYOUTS)
def test_the_true_components_explain_every_layout(tmp_path, kind):
    """Averaged at one frequency these data are hundreds of standard deviations off."""
    obs = read(layout(tmp_path / "a.uvfits", kind))
    assert chi2(obs) == pytest.approx(1.0, abs=0.15)
    assert len(obs.frequencies) > 2
    assert obs.frequencies.min() > 4.59e9
    assert obs.frequencies.max() < 5.11e9
    assert set(obs.stations.names) == {"BR", "FD", "KP", "LA"}
    assert all(len(np.unique(one.hz)) == 1 for one in obs.by_frequency())
    separate = read_uvfits(tmp_path / "a.uvfits", channels="separate")
    assert isinstance(separate, list)
    assert len(separate) == 8
    for one in separate:
        assert chi2(one) == pytest.approx(1.0, abs=0.4)


def test_averages_are_made_where_they_smear_less_than_the_noise(tmp_path):
    noisy = read(layout(tmp_path / "a.uvfits", "aips", noise=300.0))
    assert len(noisy.frequencies) == 1
    assert chi2(noisy) == pytest.approx(1.0, abs=0.2)
    narrow = read(layout(tmp_path / "b.uvfits", "aips", band=0.002))
    assert len(narrow.frequencies) == 1
    assert narrow.freq_hz == pytest.approx(4.85e9, rel=1e-3)
    assert chi2(narrow) == pytest.approx(1.0, abs=0.2)


def test_closures_and_averages_keep_frequencies_apart(tmp_path):
    obs = read(layout(tmp_path / "a.uvfits", "aips"))
    parts = obs.by_frequency()
    for make in (triangles, quadrangles):
        table = make(obs)
        assert len(table) == sum(len(make(one)) for one in parts)
        assert (np.ptp(obs.hz[table.row], axis=1) == 0).all()
    means = average_scans(obs)
    np.testing.assert_array_equal(means.frequencies, obs.frequencies)
    assert len(means) == sum(len(average_scans(one)) for one in parts)
    together = join([one.replace(mjd=obs.mjd) for one in parts[:2]])
    np.testing.assert_array_equal(together.frequencies, obs.frequencies[:2])
    assert noise_scale(obs, longest_s=61.0).factor == pytest.approx(1.0, abs=0.25)


def test_several_frequencies_are_written_as_ifs(tmp_path):
    obs = read(layout(tmp_path / "a.uvfits", "aips"))
    obs = obs.select(np.arange(len(obs)) % 7 != 3)
    for name, some in (("b", obs), ("c", average_scans(obs))):
        write_uvfits(some, tmp_path / f"{name}.uvfits")
        back = join_separate(tmp_path / f"{name}.uvfits")
        assert len(back) == len(some)
        np.testing.assert_allclose(back.hz, some.hz, rtol=1e-12)
        for field in "uv":
            np.testing.assert_allclose(getattr(back, field), getattr(some, field), atol=1e-6 * some.uv_distance.max())
        np.testing.assert_allclose(back.vis["I"], some.vis["I"], rtol=1e-5)
    with fits.open(tmp_path / "b.uvfits") as hdus:
        assert len(hdus[0].data) < len(obs) / 2  # frequencies of one time and baseline share a group
    with pytest.raises(ValueError, match=r"write_text: the rows are of \d frequencies, 4\.\d+ to 5\.\d+ GHz"):
        write_text(obs, tmp_path / "a.csv")


def join_separate(path) -> Observation:
    """Read a file without averages; rows stay at their times."""
    parts = read_uvfits(path, channels="separate")
    fields = ("time", "tint", "ant1", "ant2", "u", "v", "hz")
    rows = {name: np.concatenate([getattr(one, name) for one in parts]) for name in fields}
    order = np.lexsort((rows["ant2"], rows["tint"], rows["ant1"], rows["hz"], rows["time"]))
    products = {
        kind: {"I": np.concatenate([getattr(one, kind)["I"] for one in parts])[order]} for kind in ("vis", "sigma")
    }
    return parts[0].replace(**{name: x[order] for name, x in rows.items()}, **products)


def test_gains_are_those_of_all_frequencies_together(tmp_path):
    from shardfit.domains.vlbi.images import Image

    obs = read(layout(tmp_path / "a.uvfits", "aips", gains=0.2))
    assert chi2(obs) > 100
    image = Image({"I": np.zeros((40, 40))}, 0.5 * MAS, pulse="delta", freq_hz=obs.freq_hz)
    values = np.zeros((40, 40))
    for flux, x, y in COMPONENTS:
        values[np.abs(image.grid.y - y * MAS).argmin(), np.abs(image.grid.x - x * MAS).argmin()] = flux
    found = self_calibrate(obs, image.replace(values={"I": values})).data
    assert np.abs(found.vis["I"] - truth(found.u, found.v, found.hz)).std() < 2 * SIGMA


def test_one_file_of_several_frequencies_tells_the_spectral_index(tmp_path):
    from shardfit.domains.vlbi.recipes import spectral_image

    obs = read(layout(tmp_path / "a.uvfits", "aips", band=0.2, spectrum=-0.8))
    options = {"npix": 40, "fov_uas": 20000.0, "restarts": 0, "maxiter": 150, "data": {"vis": 10.0}}
    found = spectral_image(obs, fluxes=[1.8], **options)
    assert len(found.data) == len(obs.frequencies)
    assert found.mean_alpha == pytest.approx(-0.8, abs=0.2)  # over a fifth of the frequency; -0.68
    assert found.fluxes[0] / found.fluxes[-1] == pytest.approx((obs.hz.min() / obs.hz.max()) ** -0.8, rel=0.05)
    with pytest.raises(ValueError, match="2 fluxes for 1 observations"):
        spectral_image(obs, fluxes=[1.8, 1.7])
    with pytest.raises(ValueError, match="needs 2 frequencies"):
        spectral_image(obs.by_frequency()[0])


def test_odd_rows_and_names_of_other_writers(tmp_path, caplog):
    def odd(rows, names):
        rows["tint"][:3] = np.nan, 1e30, -1
        names[1:3] = "  FD", "KP\t"

    obs = read(layout(tmp_path / "a.uvfits", "casa", edit=odd))
    assert set(obs.stations.names) == {"BR", "FD", "KP", "LA"}
    np.testing.assert_array_equal(obs.tint, 30.0)
    assert "INTTIM of 3 of 288 rows" in caplog.text

    def few(rows, names):
        kept = (rows["one"] <= 2) & (rows["two"] <= 2)
        for name, values in rows.items():
            rows[name] = values[kept]

    pair = read(layout(tmp_path / "b.uvfits", "difmap", edit=few))
    assert pair.drop_unused_stations().stations.names == ("BR", "FD")
    assert chi2(pair) == pytest.approx(1.0, abs=0.3)
