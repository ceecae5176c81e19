import json

import pytest

from shardfit.cli import main
from shardfit.io.results import load_result

pytest.importorskip("astropy")


def run(capsys, *argv):
    code = main([str(word) for word in argv])
    out, err = capsys.readouterr()
    return code, out, err


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Simulated data, the truth behind them, and a finished run."""
    pytest.importorskip("matplotlib")
    folder = tmp_path_factory.mktemp("vlbi")
    files = [str(folder / name) for name in ("ring.uvfits", "truth.fits", "out")]
    assert main(["vlbi", "simulate", "--out", files[0], "--truth", files[1], "--seed", "3"]) == 0
    short = ["--npix", "32", "--maxiter", "60", "--restarts", "1", "--flux", "0.6"]
    assert main(["vlbi", "image", files[0], "--out", files[2], *short]) == 0
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
    from shardfit.domains.vlbi.image import blank, ring
    from shardfit.domains.vlbi.recipes import cross_correlation

    image, truth = read_image(folder / "out" / "image.fits"), read_image(folder / "truth.fits")
    assert truth.shape == (64, 64)
    grid = blank(32, truth.pixel_rad * 64)
    radius, width = 21 * truth.pixel_rad / 2, 12 * truth.pixel_rad / 2  # pixels of 2 µas
    # lopsided to the south; 0.94 with seeds 0 to 3
    known = ring(grid, 0.6, radius, width, asymmetry=0.6, position_angle_rad=2.7925)
    assert cross_correlation(image, known) > 0.9


def test_other_commands_read_the_run(capsys, folder):
    assert load_result(folder / "out").steps <= 60
    code, out, _ = run(capsys, "show", folder / "out")
    assert code == 0
    assert "χ² of cphase" in out
    code, out, _ = run(capsys, "report", folder / "out")
    assert code == 0


def test_chi2(capsys, folder):
    out = folder / "out"
    code, text, _ = run(capsys, "vlbi", "chi2", folder / "ring.uvfits", out / "image.fits", "--flux", "0.6", "--json")
    assert code == 0
    found = json.loads(text)
    parts = load_result(out).parts
    assert found["chi2"] == pytest.approx({name: parts[f"data.{name}"] for name in found["chi2"]}, rel=1e-9)
    code, text, _ = run(capsys, "vlbi", "chi2", folder / "ring.uvfits", folder / "truth.fits")
    assert code == 0
    assert [line.split()[0] for line in text.splitlines()] == ["amp", "cphase", "logcamp"]
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
    for name in ("image", "info", "chi2", "simulate"):
        assert name in out
    code, out, _ = run(capsys, "vlbi", "image", "--help")
    assert code == 0
    assert "--restarts" in out


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (("vlbi", "imgae"), "unknown command 'vlbi imgae'. Did you mean 'image'?"),
        (("vlbi", "image"), "required: FILE"),
        (("vlbi", "image", "RING", "--npxi", "3"), "Did you mean '--npix'?"),
        (("vlbi", "image", "nowhere.uvfits"), "nowhere.uvfits"),
        (("vlbi", "image", "TEXT"), "cannot be read"),
        (("vlbi", "image", "RING", "--npix", "1"), "npix=1"),
        (("vlbi", "image", "RING", "--flux", "-1"), "flux=-1.0 must be positive"),
        (("vlbi", "image", "RING", "--solver", "lbgfs"), "Did you mean 'lbfgs'?"),
        (("vlbi", "image", "RING", "--out", "TEXT"), "Name a directory"),
        (("vlbi", "image", "RING", "--seed", "-1"), "zero or positive"),
        (("vlbi", "simulate", "--out", "x", "--seed", "-1"), "zero or positive"),
        (("vlbi", "simulate"), "required: --out"),
        (("vlbi", "chi2", "RING", "TEXT"), "cannot be read"),
        (("vlbi", "info", "TEXT"), "cannot be read"),
    ],
)
def test_errors_are_one_message(capsys, folder, tmp_path, monkeypatch, argv, expected):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text").write_text("not data")
    names = {"RING": folder / "ring.uvfits", "TEXT": tmp_path / "text"}
    code, _, err = run(capsys, *(names.get(word, word) for word in argv))
    assert code == 2
    assert expected in err
    assert "Traceback" not in err
    assert not (tmp_path / "vlbi-out").exists()
