import json

import numpy as np
import pytest

from shardfit.cli import main
from shardfit.io.results import load_result
from tests.command_line import run

pytest.importorskip("astropy")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Simulated data, the truth behind them, and a finished run."""
    pytest.importorskip("matplotlib")
    folder = tmp_path_factory.mktemp("vlbi")
    files = [str(folder / name) for name in ("ring.uvfits", "truth.fits", "out")]
    assert main(["vlbi", "simulate", "--out", files[0], "--truth", files[1], "--seed", "3"]) == 0
    short = ["--preset", "eht", "--npix", "32", "--maxiter", "60", "--restarts", "1", "--flux", "0.6"]
    assert main(["vlbi", "image", files[0], "--out", files[2], *short]) == 1  # so few steps leave doubts
    return folder


def test_run_directory_is_complete(folder):
    out = folder / "out"
    for name in ("image.fits", "result.json", "arrays.npz", "report.html", "env.json"):
        assert (out / name).is_file(), name
    names = ("image", "amplitudes", "closure_phases", "uv_coverage", "convergence")
    for name in names:
        assert (out / "figures" / f"{name}.png").stat().st_size > 5000
    text = (out / "report.html").read_text()
    assert text.count("<img") == len(names)
    assert "RING from ring.uvfits" in text
    assert "χ² per measurement" in text
    assert "http://" not in text


def test_image_looks_like_the_truth(folder):
    from shardfit.domains.vlbi.fits_image import read_image
    from shardfit.domains.vlbi.images import blank, ring
    from shardfit.domains.vlbi.recipes import cross_correlation

    image, truth = read_image(folder / "out" / "image.fits"), read_image(folder / "truth.fits")
    assert truth.shape == (64, 64)
    grid = blank(32, truth.pixel_rad * 64)
    radius, width = 21 * truth.pixel_rad / 2, 12 * truth.pixel_rad / 2  # pixels of 2 µas
    # lopsided to the south; 0.94 with seeds 0 to 3
    known = ring(grid, 0.6, radius, width, asymmetry=0.6, position_angle_rad=2.7925)
    assert cross_correlation(image, known) > 0.9


def test_other_commands_read_the_run(capsys, folder):
    assert 60 < load_result(folder / "out").steps <= 120
    code, out, _ = run(capsys, "show", folder / "out")
    assert code == 0
    assert "χ² of cphase" in out
    code, out, _ = run(capsys, "report", folder / "out")
    assert code == 0


def test_second_call_takes_the_stored_fits(capsys, folder):
    short = ["--preset", "eht", "--npix", "32", "--maxiter", "60", "--restarts", "1", "--flux", "0.6"]
    fits = [folder / "out" / "fits" / name / "result.json" for name in ("01", "02")]
    made = [path.stat().st_mtime_ns for path in fits]
    code, out, _ = run(capsys, "vlbi", "image", folder / "ring.uvfits", "--out", folder / "out", *short)
    assert code == 1
    assert [path.stat().st_mtime_ns for path in fits] == made
    assert " 1/2 round 1, first fit" in out
    assert " 2/2 round 1, restart 1" in out
    assert "doubtful: χ² of amp is" in out
    code, _, err = run(capsys, "vlbi", "image", folder / "ring.uvfits", "--out", folder / "out", *short, "--prior", 50)
    assert code == 2
    assert "belongs to another fit" in err


@pytest.mark.slow
def test_m87_preset(capsys, folder, tmp_path):
    from shardfit.domains.vlbi import read_uvfits

    out = tmp_path / "out"
    small = ("--npix", 32, "--maxiter", 20, "--restarts", 0, "--devices", 1)
    code, text, _ = run(capsys, "vlbi", "image", folder / "ring.uvfits", "--preset", "m87", "--out", out, *small)
    assert code == 1  # so few steps leave doubts
    assert " 4/4 round 4, first fit" in text
    assert "self-calibrated" in text
    assert (out / "figures" / "gains.png").stat().st_size > 5000
    assert len(read_uvfits(out / "calibrated.uvfits")) == len(read_uvfits(folder / "ring.uvfits"))
    report = (out / "report.html").read_text()
    for expected in ("self-calibrated", "round 4, calibrate", "Station gains"):
        assert expected in report


def test_report_says_how_it_ended(folder):
    stored = json.loads((folder / "out" / "result.json").read_text())
    assert stored["status"] in ("COMPLETED", "CONVERGED_VALUE", "CONVERGED_GRADIENT")
    text = (folder / "out" / "report.html").read_text()
    assert '<span class="badge warn">doubtful' in text  # χ² of amplitudes is far above 1 after 60 steps
    assert "Doubtful: χ² of amp is" in text
    assert stored["steps"] > 60  # of both fits


def test_selfcal(capsys, folder, tmp_path):
    from shardfit.domains.vlbi import read_uvfits
    from shardfit.domains.vlbi.images import visibilities

    files = folder / "ring.uvfits", folder / "truth.fits"
    exact = ("--interval", "time", "--systematic", 0)
    code, out, _ = run(capsys, "vlbi", "selfcal", *files, "--out", tmp_path / "cal.uvfits", *exact)
    assert code == 0
    assert "0 of them not converged" in out
    before, after = (float(word) for word in out.splitlines()[1].replace(",", "").split() if word[0].isdigit())
    assert after < 0.01 * before
    assert "  LM " in out
    from shardfit.domains.vlbi.fits_image import read_image

    obs, truth = read_uvfits(tmp_path / "cal.uvfits"), read_image(files[1])
    off = (obs.vis["I"] - visibilities(truth, obs.u, obs.v)["I"]) / obs.sigma["I"]
    used = obs.uv_distance > 0.1e9  # baselines within a site take no part
    assert 0.3 < np.mean(np.abs(off[used]) ** 2) / 2 < 1.0  # gains take up some of the noise
    code, out, _ = run(
        capsys,
        "vlbi",
        "selfcal",
        *files,
        "--out",
        tmp_path / "b.uvfits",
        "--method",
        "phase",
        "--stations",
        "LM,SM",
        "--gain-table",
        tmp_path / "gains",
    )
    assert code == 0
    assert sorted(line.split()[0] for line in out.splitlines()[2:-1]) == ["LM", "SM"]
    assert {file.name.rpartition("_")[2] for file in (tmp_path / "gains").iterdir()} == {"LM.txt", "SM.txt"}


def test_info_and_a_polarised_ring(capsys, folder, tmp_path):
    from shardfit.domains.vlbi import read_image, write_image

    assert "errors        " in run(capsys, "vlbi", "info", folder / "ring.uvfits")[1]
    image = read_image(folder / "truth.fits")
    assert "β₂" not in run(capsys, "vlbi", "ring", folder / "truth.fits")[1]
    planes = {"I": image.values["I"], "Q": -0.1 * image.values["I"], "U": 0.0 * image.values["I"]}
    write_image(image.replace(values=planes), tmp_path / "polarised.fits")
    assert "β₂" in run(capsys, "vlbi", "ring", tmp_path / "polarised.fits")[1]
    told = json.loads(run(capsys, "vlbi", "ring", tmp_path / "polarised.fits", "--json")[1])
    assert 0 <= told["beta2"][0]["modulus"] < 0.1


def test_netcal(capsys, folder, tmp_path):
    from shardfit.domains.vlbi import read_uvfits

    file, out = folder / "ring.uvfits", tmp_path / "net.uvfits"
    code, text, _ = run(capsys, "vlbi", "netcal", file, "--flux", 0.6, "--out", out)
    assert code == 0
    assert "one site: AA, AP" in text and "one site: JC, SM" in text
    assert sorted(line.split()[0] for line in text.splitlines()[4:]) == ["AA", "AP", "JC", "SM"]
    before, after = (read_uvfits(path) for path in (file, out))
    within = before.uv_distance < 1e7
    off = [np.abs(np.median(np.abs(obs.vis["I"][within])) - 0.6) for obs in (before, after)]
    assert off[1] < 0.01 < off[0]
    code, _, err = run(capsys, "vlbi", "netcal", file, "--flux", 0.6, "--stations", "LM", "--out", out)
    assert code == 2
    assert "no partner" in err


def test_images_of_another_frequency_are_refused(capsys, folder, tmp_path):
    from shardfit.domains.vlbi.fits_image import read_image, write_image

    write_image(read_image(folder / "truth.fits").replace(freq_hz=86e9), tmp_path / "low.fits")
    for command in (("chi2",), ("selfcal", "--out", tmp_path / "x.uvfits")):
        argv = ("vlbi", command[0], folder / "ring.uvfits", tmp_path / "low.fits", *command[1:])
        code, _, err = run(capsys, *argv)
        assert code == 2
        assert "227.1 GHz" in err
        assert "86 GHz" in err
        assert "--any-frequency" in err
    code, _, _ = run(capsys, "vlbi", "chi2", folder / "ring.uvfits", tmp_path / "low.fits", "--any-frequency")
    assert code == 0


def test_simulate_other_images_and_arrays(capsys, folder, tmp_path):
    from shardfit.domains.vlbi import EHT2017, read_uvfits

    lines = ["# name x y z SEFD", ""]
    for k in (0, 4, 5, 6):
        lines.append(" ".join(map(str, (EHT2017.names[k], *EHT2017.xyz[k], EHT2017.sefd[k]))))
    (tmp_path / "array.txt").write_text("\n".join(lines))
    out = tmp_path / "a.uvfits"
    for image in ("crescent", "disk", "double", folder / "truth.fits"):
        argv = ("--image", image, "--array", tmp_path / "array.txt", "--gains", 0, "--no-phases", "--flux", 0.8)
        code, text, err = run(capsys, "vlbi", "simulate", "--out", out, *argv, "--stop", 8)
        assert code == 0, err
        assert "0.8 Jy" in text
    obs = read_uvfits(out, station_order="file")
    assert set(obs.stations.names) == {"AA", "LM", "PV", "SM"}
    assert obs.time.max() < 8
    lower = ("--freq", 43, "--scale", 7, "--cadence", 1800, "--bandwidth", 0.256, "--truth", tmp_path / "low.fits")
    assert run(capsys, "vlbi", "simulate", "--out", out, *lower)[0] == 0
    low = read_uvfits(out)
    assert (low.freq_hz, low.bandwidth_hz) == pytest.approx((43e9, 0.256e9))
    assert np.diff(np.unique(low.time)).min() == pytest.approx(0.5, abs=1e-3)
    assert "diameter   294" in run(capsys, "vlbi", "ring", tmp_path / "low.fits")[1]
    code, _, err = run(capsys, "vlbi", "simulate", "--out", out, "--image", folder / "truth.fits", "--scale", 2)
    assert code == 2 and "--scale is for known images" in err
    assert "--freq: -1 must be a positive number" in run(capsys, "vlbi", "simulate", "--out", out, "--freq", -1)[2]


def damaged(folder, tmp_path, change):
    """Copy of the simulated data with some bytes of its header or weights changed."""
    from astropy.io import fits

    path = tmp_path / "damaged.uvfits"
    with fits.open(folder / "ring.uvfits") as hdus:
        change(hdus)
        hdus.writeto(path, overwrite=True)
    return path


def all_flagged(hdus):
    hdus[0].data["DATA"][..., 2] = -1.0


def linear_feeds(hdus):
    hdus["AIPS AN"].data["POLTYA"][:] = "X"
    hdus["AIPS AN"].data["POLTYB"][:] = "Y"


def unknown_stokes(hdus):
    hdus[0].header["CRVAL3"] = 17.0


@pytest.mark.parametrize(
    ("change", "expected"),
    [(all_flagged, "every visibility is flagged"), (linear_feeds, "feed"), (unknown_stokes, "Stokes codes")],
)
def test_unsuitable_data_are_refused(capsys, folder, tmp_path, change, expected):
    path = damaged(folder, tmp_path, change)
    for command in (("info", path), ("image", path, "--out", tmp_path / "out")):
        code, _, err = run(capsys, "vlbi", *command)
        assert code == 2
        assert expected in err
        assert "damaged.uvfits" in err
    assert not (tmp_path / "out").exists()


def test_chi2_of_an_image_prepares_data_as_its_record_says(capsys, folder, tmp_path):
    image = folder / "out" / "image.fits"
    given = ("vlbi", "chi2", folder / "ring.uvfits", image)
    _, text, _ = run(capsys, *given, "--preset", "eht", "--flux", "0.6", "--json")
    _, found, _ = run(capsys, *given, "--json")
    assert json.loads(found)["chi2"] == json.loads(text)["chi2"]
    assert json.loads(found)["preset"] == "eht"
    _, told, _ = run(capsys, *given)
    assert "data prepared as for the image: --preset eht --flux 0.6 (" in told
    copy = tmp_path / "image.fits"  # no record beside it
    copy.write_bytes(image.read_bytes())
    _, other, _ = run(capsys, *given[:3], copy, "--json")
    assert json.loads(other)["preset"] == "default"
    assert json.loads(other)["chi2"] != json.loads(text)["chi2"]


def test_chi2(capsys, folder):
    out = folder / "out"
    code, text, _ = run(
        capsys, "vlbi", "chi2", folder / "ring.uvfits", out / "image.fits", "--preset", "eht", "--flux", "0.6", "--json"
    )
    assert code == 0
    found = json.loads(text)
    parts = load_result(out).parts
    assert found["chi2"] == pytest.approx({name: parts[f"data.{name}"] for name in found["chi2"]}, rel=1e-9)
    code, text, _ = run(capsys, "vlbi", "chi2", folder / "ring.uvfits", folder / "truth.fits")
    assert code == 0
    assert [line.split()[0] for line in text.splitlines()] == ["amp", "cphase", "logcamp", "vis", "amp"]
    assert 0.5 < float(text.splitlines()[3].split()[1]) < 1.2
    assert float(text.splitlines()[1].split()[1]) < 1.3


def test_info(capsys, folder):
    code, out, _ = run(capsys, "vlbi", "info", folder / "ring.uvfits")
    assert code == 0
    for expected in ("RING", "AA, PV, ", "Gλ", "µas (nominal)", "227.100 GHz"):
        assert expected in out


def test_simulation_depends_on_the_seed_alone(capsys, folder, tmp_path):
    for name, seed in (("same", 3), ("other", 4)):
        assert run(capsys, "vlbi", "simulate", "--out", tmp_path / name, "--seed", seed)[0] == 0
    first = (folder / "ring.uvfits").read_bytes()
    assert (tmp_path / "same").read_bytes() == first
    assert (tmp_path / "other").read_bytes() != first


def test_help(capsys):
    code, out, _ = run(capsys, "vlbi")
    assert code == 0
    for name in ("image", "info", "chi2", "selfcal", "netcal", "simulate"):
        assert name in out
    code, out, _ = run(capsys, "vlbi", "image", "--help")
    assert code == 0
    assert "--restarts" in out


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (("vlbi", "imgae"), "unknown command 'imgae'. Did you mean 'image'?"),
        (("vlbi", "image"), "required: FILE"),
        (("vlbi", "image", "RING", "--npxi", "3"), "Did you mean '--npix'?"),
        (("vlbi", "image", "nowhere.uvfits"), "nowhere.uvfits"),
        (("vlbi", "image", "TEXT"), "cannot be read"),
        (("vlbi", "image", "RING", "--npix", "1"), "--npix: 1 must be a whole number, at least 2"),
        (("vlbi", "image", "RING", "--npix", "16", "--fov", "2000"), "too coarse"),
        (("vlbi", "image", "RING", "--npix", "33", "--operator", "nufft"), "even numbers of pixels"),
        (("vlbi", "image", "RING", "--preset", "m78"), "Did you mean 'm87'?"),
        (("vlbi", "image", "RING", "--devices", "99"), "--devices 99: JAX sees"),
        (("vlbi", "image", "RING", "--devices", "0"), "at least 1"),
        (("vlbi", "image", "RING", "--resume", "must"), "holds no run to resume"),
        (("vlbi", "simulate", "--out", "x", "--image", "rong"), "Did you mean 'ring'?"),
        (("vlbi", "simulate", "--out", "x", "--array", "TEXT"), "line 1: not a name and four numbers"),
        (("vlbi", "simulate", "--out", "x", "--gains", "-1"), "zero or positive"),
        (("vlbi", "simulate", "--out", "x", "--flux", "0"), "positive"),
        (("vlbi", "selfcal", "RING", "TRUTH"), "required: --out"),
        (("vlbi", "selfcal", "RING", "TRUTH", "--out", "x", "--stations", "XX"), "no station 'XX'"),
        (("vlbi", "selfcal", "RING", "TRUTH", "--out", "x", "--interval", "day"), "'time', 'scan' or a length"),
        (("vlbi", "image", "RING", "--flux", "-1"), "--flux: -1 must be a positive number"),
        (("vlbi", "image", "RING", "--solver", "lbgfs"), "Did you mean 'lbfgs'?"),
        (("vlbi", "image", "RING", "--out", "TEXT"), "Name a directory"),
        (("vlbi", "image", "RING", "--seed", "-1"), "zero or positive"),
        (("vlbi", "simulate", "--out", "x", "--seed", "-1"), "zero or positive"),
        (("vlbi", "simulate"), "required: --out"),
        (("vlbi", "posterior", "RING", "--gain-error", "a"), "write a number, and STATION=NUMBER"),
        (("vlbi", "posterior", "RING", "--zero-baseline"), "--zero-baseline needs --flux"),
        (("vlbi", "chi2", "RING", "TEXT"), "cannot be read"),
        (("vlbi", "info", "TEXT"), "cannot be read"),
    ],
)
def test_errors_are_one_message(capsys, folder, tmp_path, monkeypatch, argv, expected):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text").write_text("not data")
    names = {"RING": folder / "ring.uvfits", "TEXT": tmp_path / "text", "TRUTH": folder / "truth.fits"}
    code, _, err = run(capsys, *(names.get(word, word) for word in argv))
    assert code == 2
    assert expected in err
    assert "Traceback" not in err
    assert not (tmp_path / "vlbi-out").exists()
    assert not (tmp_path / "x").exists()


def test_beam_of_the_image(folder):
    from astropy.io import fits

    header = fits.getheader(folder / "out" / "image.fits")
    assert 10e-6 / 3600 < header["BMIN"] <= header["BMAJ"] < 60e-6 / 3600
    assert "main lobe of the array" in (folder / "out" / "report.html").read_text()


def test_ring_and_model(capsys, folder):
    code, text, err = run(capsys, "vlbi", "ring", folder / "truth.fits")
    assert code == 0, err
    assert float(text.split()[1]) == pytest.approx(42, abs=2)
    code, text, _ = run(capsys, "vlbi", "ring", folder / "truth.fits", folder / "out" / "image.fits", "--json")
    assert 30 < json.loads(text)["diameter"] / 4.848e-12 < 50
    code, text, err = run(capsys, "vlbi", "model", folder / "ring.uvfits", "--tolerance", 0.1, "--json")
    assert code == 0, err
    found = json.loads(text)
    # of the thin ring whose blur is seen; the peaks of a thick one lie further in
    assert found["values"]["diameter"] == pytest.approx(43.4, abs=0.5)
    assert 0 < found["errors"]["diameter"] < 0.5


def test_movie_command_refuses_what_it_cannot_do(folder, capsys):
    data = folder / "ring.uvfits"
    for words, message in (
        (("--products", "all"), "give closures or vis"),
        (("--frames", "1"), "at least 2"),
        (("--preset", "m87"), "self-calibration"),
    ):
        code, _, err = run(capsys, "vlbi", "movie", data, "--out", folder / "no-movie", *words)
        assert code == 2 and message in err
    assert not (folder / "no-movie").exists()


@pytest.mark.slow
def test_movie_command_leaves_a_movie(folder, capsys):
    from shardfit.domains import vlbi

    out = folder / "movie"
    short = ("--frames", "4", "--npix", "16", "--fov", "128", "--flux", "0.6", "--restarts", "0", "--tolerance", "0.1")
    code, text, err = run(capsys, "vlbi", "movie", folder / "ring.uvfits", "--out", out, *short)
    assert code == 1, err
    assert "4 frames" in text and "one image" in text
    assert len(vlbi.read_movie(out / "movie.fits")) == 4
    assert (out / "movie.gif").read_bytes()[:3] == b"GIF"
    page = (out / "report.html").read_text()
    assert page.count("<img") >= 3 and "h UTC" in page


@pytest.mark.slow
def test_errors_of_a_top_set(capsys, tmp_path):
    """Phases are not calibrated here, so visibilities are not explained: the spread is all there is, and it is said."""
    out = tmp_path / "survey"
    settings = 'data = "ring"\nflux = 0.6\nnpix = 16\nfov_uas = 128.0\naverage = 7200.0\ndata_weights = { vis = 1.0 }'
    axes = "simple = [1.0, 100.0]"
    config = f'science = "vlbi"\nout = "{out}"\n[vlbi]\n{settings}\n[axes]\n{axes}\n[solver]\nmaxiter = 5\n'
    (tmp_path / "survey.toml").write_text(config)
    assert run(capsys, "survey", "run", tmp_path / "survey.toml")[0] == 0
    code, text, err = run(capsys, "vlbi", "errors", out, "--blur", 10, "--align")
    assert code == 1, err
    assert "doubtful: no error bars under the regularisers" in text and "far too small" in text
    assert (out / "errors" / "sd.fits").exists() and (out / "errors" / "errors.png").exists()
    assert "have no spread" in run(capsys, "vlbi", "errors", out, "--below", "data.vis=0")[2]


@pytest.mark.slow
def test_posterior_leaves_images_and_measures_the_ring(capsys, folder, tmp_path):
    short = ("--npix", 16, "--draws", 10, "--flux", 0.6, "--gain-error", "0.05,LM=0.1", "--zero-baseline", "--ring")
    code, text, err = run(capsys, "vlbi", "posterior", folder / "ring.uvfits", "--out", tmp_path / "out", *short)
    assert code == 0, err
    assert "ring diameter" in text or "no ring" in text
    assert (tmp_path / "out" / "mean.fits").exists() and "draws" in (tmp_path / "out" / "report.html").read_text()


def test_products_of_few_stations(capsys, caplog, folder):
    """Three stations have no closure amplitudes, two no closures: images are made of the rest, which is said."""
    stations = (
        "MK -5464075 -2495248 2148297 1500",
        "BR -2112065 -3705356 4726814 1500",
        "SC 2607849 -5488069 1932740 1500",
    )
    (folder / "three.txt").write_text("\n".join(stations) + "\n")
    array = ["--array", folder / "three.txt", "--freq", 43, "--bandwidth", 0.256, "--scale", 10, "--cadence", 1800]
    assert run(capsys, "vlbi", "simulate", *array, "--out", folder / "three.uvfits")[0] == 0
    image = ["vlbi", "image", folder / "three.uvfits", "--out", folder / "three", "--npix", 16, "--restarts", 0]
    code, _, err = run(capsys, *image, "--products", "amp,cphase,logcamp")
    assert code == 2 and "no 'logcamp' can be formed" in err and "amplitudes four. Name the products without it" in err
    code, out, err = run(capsys, *image)
    assert (
        code in (0, 1) and "no logcamp can be formed" in caplog.text and "χ² cphase" in out and "χ² logcamp" not in out
    )
    pair = stations[:2]
    (folder / "two.txt").write_text("\n".join(pair) + "\n")
    array[1] = folder / "two.txt"
    assert run(capsys, "vlbi", "simulate", *array, "--out", folder / "two.uvfits")[0] == 0
    two = ["vlbi", "image", folder / "two.uvfits", "--out", folder / "two", "--npix", 16, "--restarts", 0]
    code, out, err = run(capsys, *two)
    assert "no cphase and no logcamp" in caplog.text and "turned by 180°" in out + err
    code, out, _ = run(capsys, *image, "--products", "amp,cphase=2", "--out", folder / "weighted")
    assert code in (0, 1) and "χ² cphase" in out and "logcamp" not in out
    code, _, err = run(capsys, *image, "--products", "amp=high")
    assert code == 2 and "is not like amp,cphase" in err
    code, _, err = run(capsys, *image, "--products", "amp", "--preset", "m87")
    assert code == 2 and "have data of their own" in err
