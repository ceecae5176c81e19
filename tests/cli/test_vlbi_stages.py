"""`shardfit vlbi image` with --pol and with --spectral-index."""

import numpy as np
import pytest

from tests.command_line import run

pytest.importorskip("astropy")
pytest.importorskip("matplotlib")
SHORT = ("--preset", "eht", "--npix", 32, "--maxiter", 40, "--restarts", 0)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A polarised ring at 227.1 GHz, and a fainter one without polarisation at 345 GHz."""
    from shardfit.domains.vlbi import known_image, observe, write_uvfits

    folder = tmp_path_factory.mktemp("stages")
    total = known_image("ring", 32)
    linear = {"Q": 0.2 * total.values["I"], "U": 0.1 * total.values["I"]}
    images = total.replace(values={**total.values, **linear}), total.normalise(0.45).replace(freq_hz=345e9)
    paths = [folder / name for name in ("polarised.uvfits", "high.uvfits")]
    for image, path in zip(images, paths, strict=True):
        write_uvfits(observe(image, cadence_s=1200.0), path)
    return paths


@pytest.mark.slow
def test_polarisation(capsys, files, tmp_path):
    from shardfit.domains.vlbi import cross_correlation, read_image

    out = tmp_path / "out"
    code, text, err = run(capsys, "vlbi", "image", files[0], "--pol", "--flux", 0.6, "--out", out, *SHORT)
    assert code == 1, err  # so few steps leave doubts
    assert "linear fraction 0.2" in text
    image, total = read_image(out / "polarisation.fits"), read_image(out / "image.fits")
    assert "together with Stokes I" in text
    assert not np.allclose(image.values["I"], total.values["I"], rtol=1e-3, atol=0)
    assert cross_correlation(image.replace(values={"I": image.values["I"]}), total) > 0.9
    angle = 0.5 * np.angle(image.values["Q"].sum() + 1j * image.values["U"].sum())
    assert np.rad2deg(angle) == pytest.approx(13.28, abs=3)  # half of atan(0.1/0.2)
    assert (out / "figures" / "polarisation.png").stat().st_size > 5000
    report = (out / "report.html").read_text()
    assert "Ticks lie along the electric vector" in report
    stored = (out / "polarisation" / "01" / "result.json").stat().st_mtime_ns
    code, again, _ = run(capsys, "vlbi", "image", files[0], "--pol", "--flux", 0.6, "--out", out, *SHORT)
    assert code == 0
    assert (out / "polarisation" / "01" / "result.json").stat().st_mtime_ns == stored


@pytest.mark.slow
def test_spectral_index(capsys, files, tmp_path):
    from astropy.io import fits

    out = tmp_path / "out"
    flags = ("--spectral-index", "--fluxes", "0.6,0.45", "--out", out)
    code, text, err = run(capsys, "vlbi", "image", *files, *flags, *SHORT)
    assert code == 1, err
    index = np.log(0.45 / 0.6) / np.log(345 / 227.1)
    found = float(text.partition("spectral index ")[2].split()[0])
    assert found == pytest.approx(index, abs=0.15)
    header = fits.getheader(out / "alpha.fits")
    assert (header["NAXIS1"], header["NAXIS2"], header["BUNIT"]) == (32, 32, "")
    for name in ("image", "spectral_index"):
        assert (out / "figures" / f"{name}.png").stat().st_size > 5000
    report = (out / "report.html").read_text()
    assert "high.uvfits" in report
    assert "RING at 2 frequencies" in report


@pytest.mark.parametrize(
    ("which", "flags", "expected"),
    [
        ((1,), ("--pol",), "needs Stokes Q, U, but these data have I only"),
        ((0, 1), (), "are different bands"),
        ((0, 1), ("--spectral-index", "--pol"), "--pol does not go with"),
        ((0,), ("--pol-mode", "P"), "--pol-mode goes with --pol"),
        ((0,), ("--pol", "--pol-mode", "Q"), "must be one of P, IP"),
        ((0, 1), ("--spectral-index", "--flux", 0.6), "Give --fluxes"),
        ((0, 1), ("--spectral-index", "--fluxes", "0.6;0.5"), "commas between"),
        ((0, 1), ("--spectral-index", "--fluxes", "0.6"), "1 fluxes for 2"),
        ((0,), ("--spectral-index",), "needs 2 frequencies"),
        ((0,), ("--fluxes", "0.6"), "goes with --spectral-index"),
    ],
)
def test_what_does_not_go_together(capsys, files, tmp_path, which, flags, expected):
    chosen = [files[k] for k in which]
    code, _, err = run(capsys, "vlbi", "image", *chosen, *flags, "--out", tmp_path / "out")
    assert code == 2
    assert expected in err
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_weights(capsys, files, tmp_path):
    out = tmp_path / "out"
    flags = ("--preset", "eht", "--flux", 0.6, "--npix", 16, "--restarts", 0, "--folds", 3, "--slots", 8, "--out", out)
    argv = ("vlbi", "weights", files[0], "--try", "simple=1,1000", "--try", "tv=0.1,1", *flags)
    code, text, err = run(capsys, *argv)
    assert code == 1, err
    assert "chosen: simple=1" in text
    lines = (out / "scores.csv").read_text().splitlines()
    assert lines[0] == "simple,tv,held out,error,fitted,fold 0,fold 1,fold 2"
    assert len(lines) == 5
    assert (out / "image.fits").exists()
    assert (out / "figures" / "scores.png").stat().st_size > 5000
    assert "Weights by cross-validation" in (out / "report.html").read_text()
    stored = (out / "survey" / "ledger.sqlite").stat().st_size
    code, again, _ = run(capsys, *argv)
    assert code == 0
    assert [line for line in again.splitlines() if "chosen" in line] == [
        line for line in text.splitlines() if "chosen" in line
    ]
    assert (out / "survey" / "ledger.sqlite").stat().st_size == stored


def test_weights_that_cannot_be_tried(capsys, files, tmp_path):
    for flags, expected in ((("--try", "simple"), "NAME=A,B"), (("--try", "simpel=1,2"), "Did you mean 'simple'")):
        code, _, err = run(capsys, "vlbi", "weights", files[0], *flags, "--out", tmp_path / "out")
        assert code == 2
        assert expected in err
