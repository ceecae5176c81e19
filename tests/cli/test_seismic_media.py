"""`shardfit seismic` with VTI and viscoacoustic waves: gathers, inversion, migration, and errors before any work."""

import csv
import re
from pathlib import Path

import numpy as np
import pytest

from shardfit.cli.seismic.config import read_config
from shardfit.cli.seismic.invert import inversion_options
from shardfit.cli.seismic.setup import build
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
{model}
[start]
metres = 60.0
{start}
[survey]
dt = 0.003
nt = 120
f_peak = 8.0
delay = 0.15
source_depth = 60.0
source_step = 200.0
receiver_depth = 40.0
receiver_step = 40.0
[simulation]
widths = 6
waves = "{waves}"
{simulation}
[inversion]
epochs = 3
batchsize = "all"
learning_rate = 4.0
certify = false
[inversion.conditioning]
rows = 2
smoothing = 1.0
"""
KINDS = {
    "vti": {"model": "epsilon = 0.12\ndelta = 0.12", "start": "epsilon = 0.128\ndelta = 0.12"},
    "viscoacoustic": {"model": "q = 30.0", "start": "q = 60.0", "simulation": "f_ref = 10.0\nmechanisms = 2"},
}
FIELDS = {"vti": ("epsilon", "delta"), "viscoacoustic": ("q",)}


def configuration(waves):
    return SMALL.format(**{"waves": waves, "model": "", "start": "", "simulation": ""} | KINDS[waves])


def write(tmp_path, text):
    (tmp_path / "run.toml").write_text(text)
    return tmp_path / "run.toml"


@pytest.mark.slow
@pytest.mark.parametrize("waves", KINDS)
def test_model_invert_its_files_and_migrate(capsys, tmp_path, waves):
    data, out, fields = tmp_path / "data", tmp_path / "out", FIELDS[waves]
    config = write(tmp_path, configuration(waves))
    code, text, err = run(capsys, "seismic", "model", config, "--out", data)
    assert code == 0, err
    assert {"gathers.npz", "model.npz", *(f"{name}.npz" for name in fields)} <= {path.name for path in data.iterdir()}
    files = 'file = "data/model.npz"\n' + "\n".join(f'{name} = "data/{name}.npz"' for name in fields)
    own = configuration(waves).replace('name = "lens"\nshape = [20, 28]\ndh = 20.0\n' + KINDS[waves]["model"], files)
    config.write_text(own + '[data]\nfile = "data/gathers.npz"\n')
    code, text, err = run(capsys, "seismic", "invert", config, "--out", out)
    assert code == 0, err
    assert f"engine jax: {waves} waves, for which there is no compiled kernel; memory" in text
    rows = list(csv.DictReader((out / "metrics.csv").read_text().splitlines()))
    assert float(rows[-1]["loss"]) < float(rows[0]["loss"])
    assert set(load_result(out).params) == {"vp", fields[0]}
    for name, file in (("vp", "model"), (fields[0], fields[0])):
        assert np.array_equal(load_result(out).params[name].astype(np.float32), np.load(out / f"{file}.npy"))
        assert f"model_error_{name}" in rows[0] and f"model error (rms) of {name}" in text
    page = (out / "report.html").read_text()
    caption = {"vti": "Epsilon, likewise", "viscoacoustic": "Quality factors, likewise"}[waves]
    assert f"{waves} waveform inversion" in page and caption in page
    code, text, err = run(capsys, "seismic", "rtm", config, "--out", tmp_path / "rtm", "--max-shots", 1)
    assert code == 0, err
    assert np.ptp(np.load(tmp_path / "rtm" / "image.npy")) > 0


@pytest.mark.parametrize(
    ("waves", "old", "new", "complaint"),
    [
        (
            "vti",
            'waves = "vti"',
            'waves = "vtl"',
            "acoustic, elastic, vti, viscoacoustic. Did you mean 'vti'",
        ),
        ("vti", 'waves = "vti"', 'waves = "acoustic"', "[model]: epsilon is for vti waves. Set waves = 'vti'"),
        ("vti", "delta = 0.12\n[start]", "delta = 0.2\n[start]", "is below delta, where waves grow without limit"),
        ("vti", "epsilon = 0.12", "epsilon = 0.12\nq = 3.0", "[model]: q is for viscoacoustic waves"),
        ("vti", "epochs = 3", 'epochs = 3\nfitted = ["eps"]', "unknown fitted parameter of vti waves: 'eps'"),
        ("vti", "epochs = 3", "epochs = 3\nfitted = []", "fitted = [] must be a list of parameters, at least one"),
        ("vti", "epochs = 3", "epochs = 3\ntv = 1.0", "tikhonov and tv are for the one velocity of acoustic waves"),
        ("vti", "widths = 6", 'widths = 6\nengine = "native"', "the native engine has no vti waves. Use engine='jax'"),
        ("viscoacoustic", "q = 30.0", "q = -3.0", "q = -3 at cell (0, 0) is not positive"),
        ("viscoacoustic", "q = 30.0", 'q = "none.npz"', "none.npz"),
        ("viscoacoustic", "f_ref = 10.0", "f_ref = 100.0", "100 Hz is outside the band 2 to 32 Hz"),
        (
            "viscoacoustic",
            "widths = 6",
            "widths = 6\nv_max = 2410.0",
            "velocity of the highest frequencies reaches",
        ),
        ("viscoacoustic", "dt = 0.003", "dt = 0.005", "dt=0.005 s is unstable at v_max="),
    ],
)
def test_errors_come_first(capsys, tmp_path, waves, old, new, complaint):
    text = configuration(waves)
    assert old in text
    code, _, err = run(capsys, "seismic", "invert", write(tmp_path, text.replace(old, new)), "--out", tmp_path / "out")
    assert code == 2 and complaint in err, err
    assert not (tmp_path / "out").exists()


def test_least_squares_migration_is_refused(capsys, tmp_path):
    config = write(tmp_path, configuration("vti") + "[rtm]\niterations = 2\n")
    code, _, err = run(capsys, "seismic", "rtm", config, "--out", tmp_path / "out", "--max-shots", 1)
    assert code == 2 and "least-squares migration is acoustic. Use iterations=0 with vti waves" in err


PAGE = Path(__file__).resolve().parents[2] / "docs" / "seismic.md"


@pytest.mark.parametrize("waves", KINDS)
def test_configurations_of_the_page(tmp_path, waves):
    """They are complete, and what they describe can be simulated."""
    (text,) = (b for b in re.findall(r"```toml\n(.*?)```", PAGE.read_text(), re.DOTALL) if f'waves = "{waves}"' in b)
    config = read_config(write(tmp_path, text))
    setup = build(config, None, 2, need_start=True)
    options = inversion_options(config).of(setup.sim)
    assert setup.sim.waves == waves and options.fitted == setup.sim.usual
    name = FIELDS[waves][0]
    assert setup.start[name].max() == getattr(config.start, name) != getattr(config.model, name)
