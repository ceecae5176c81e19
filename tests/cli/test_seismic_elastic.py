"""`shardfit seismic` with elastic waves: gathers, inversion of vp and vs, migration, and errors before any work."""

import csv

import numpy as np
import pytest

from shardfit.io.results import load_result
from tests.command_line import run

pytest.importorskip("matplotlib")
pytest.importorskip("optax")

SMALL = """
film = false
[model]
name = "lens"
shape = [20, 28]
dh = 20.0
[start]
metres = 60.0
[survey]
dt = 0.003
nt = 120
f_peak = 6.0
delay = 0.2
source_depth = 60.0
source_step = 200.0
receiver_depth = 40.0
receiver_step = 40.0
[simulation]
widths = 6
waves = "elastic"
source = "force_z"
receiver = "velocity_z"
[inversion]
epochs = 3
batchsize = 2
learning_rate = 4.0
certify = false
[inversion.conditioning]
rows = 2
smoothing = 1.0
"""


@pytest.fixture
def config(tmp_path):
    file = tmp_path / "run.toml"
    file.write_text(SMALL)
    return file


@pytest.mark.slow
def test_model_invert_its_files_and_migrate(capsys, tmp_path, config):
    data, out = tmp_path / "data", tmp_path / "out"
    code, text, err = run(capsys, "seismic", "model", config, "--out", data)
    assert code == 0, err
    assert {"gathers.npz", "model.npz", "vs.npz", "rho.npz"} <= {path.name for path in data.iterdir()}
    files = 'file = "data/model.npz"\nvs = "data/vs.npz"\nrho = "data/rho.npz"\n'
    own = SMALL.replace('name = "lens"\nshape = [20, 28]\ndh = 20.0\n', files)
    own = own.replace("batchsize = 2", 'batchsize = "all"')  # losses of different shots say nothing about each other
    config.write_text(own + '[data]\nfile = "data/gathers.npz"\n')
    code, text, err = run(capsys, "seismic", "invert", config, "--out", out)
    assert code == 0, err
    assert "native: compiled kernel" in text or "jax:" in text
    rows = list(csv.DictReader((out / "metrics.csv").read_text().splitlines()))
    assert float(rows[-1]["loss"]) < float(rows[0]["loss"])
    for name, file in (("vp", "model"), ("vs", "vs")):
        found = np.load(out / f"{file}.npy")
        assert np.array_equal(load_result(out).params[name].astype(np.float32), found)
        assert f"model_error_{name}" in rows[0] and f"model error (rms) of {name}" in text
    assert np.ptp(np.load(out / "rho.npy")) == 0
    page = (out / "report.html").read_text()
    assert "elastic waveform inversion" in page and "Velocities of shear waves" in page
    code, text, err = run(capsys, "seismic", "rtm", config, "--out", tmp_path / "rtm", "--max-shots", 1)
    assert code == 0, err
    assert np.ptp(np.load(tmp_path / "rtm" / "image.npy")) > 0


def test_what_is_not_fitted_stays(capsys, tmp_path, config):
    config.write_text(SMALL.replace("epochs = 3", 'epochs = 2\nfitted = ["vs"]\nsolver = "plbfgs"').replace(
        "batchsize = 2", 'batchsize = "all"'
    ))  # fmt: skip
    code, text, err = run(capsys, "seismic", "invert", config, "--out", tmp_path / "out", "--max-shots", 1)
    assert code == 0, err
    params = load_result(tmp_path / "out").params
    assert set(params) == {"vs"}
    assert "of vs" in text and "of vp" not in text


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        (
            'waves = "elastic"',
            'waves = "elastc"',
            "acoustic, elastic, vti, viscoacoustic. Did you mean 'elastic'",
        ),
        ('waves = "elastic"', 'waves = "acoustic"', "[simulation]: source is for elastic waves"),
        ("dh = 20.0", "dh = 20.0\nvp_over_vs = 0.9", "vp_over_vs = 0.9 must be a number, above 1"),
        ("dh = 20.0", 'dh = 20.0\nvs = "none.npz"', "none.npz"),
        ('source = "force_z"', 'source = "force_y"', "source = 'force_y' must be one of explosive, force_x, force_z"),
        ("epochs = 3", 'epochs = 3\nfitted = ["v_s"]', "unknown fitted parameter of elastic waves: 'v_s'"),
        ("epochs = 3", "epochs = 3\nfitted = []", "fitted = [] must be a list of parameters, at least one"),
        ("epochs = 3", "epochs = 3\ntv = 1.0", "tikhonov and tv are for the one velocity of acoustic waves"),
    ],
)
def test_errors_come_first(capsys, tmp_path, config, old, new, complaint):
    config.write_text(SMALL.replace(old, new))
    code, _, err = run(capsys, "seismic", "invert", config, "--out", tmp_path / "out")
    assert code == 2 and complaint in err, err
    assert not (tmp_path / "out").exists()


def test_least_squares_migration_is_refused(capsys, tmp_path, config):
    config.write_text(SMALL + "[rtm]\niterations = 2\n")
    code, _, err = run(capsys, "seismic", "rtm", config, "--out", tmp_path / "out", "--max-shots", 1)
    assert code == 2 and "least-squares migration is acoustic" in err
