"""`shardfit seismic` in three dimensions: a lattice of sources and receivers, memory that is planned, errors."""

import numpy as np
import pytest

from shardfit.cli.seismic.config import read_config
from shardfit.cli.seismic.setup import build
from tests.command_line import run

pytest.importorskip("matplotlib")
pytest.importorskip("optax")

SMALL = """
[model]
name = "lens"
shape = [12, 11, 13]
dh = [20.0, 25.0, 20.0]
[start]
metres = 60.0
[survey]
dt = 0.004
nt = 60
f_peak = 6.0
delay = 0.2
source_step = 100.0
source_depth = 40.0
receiver_step = 50.0
receiver_depth = 20.0
[simulation]
widths = 3
engine = "jax"
[inversion]
epochs = 2
batchsize = 2
learning_rate = 10.0
certify = false
memory = "segmented"
"""


@pytest.fixture
def config(tmp_path):
    file = tmp_path / "run.toml"
    file.write_text(SMALL)
    return file


def test_survey_is_a_lattice(config):
    setup = build(read_config(config), None, None, need_start=True)
    assert setup.truth.shape == setup.start.shape == setup.sim.shape == (12, 11, 13)
    assert setup.sources.tolist() == [[2, y, x] for y in (1, 5, 9) for x in (1, 6, 11)]
    chosen, x = setup.line(0)
    assert np.array_equal(x, 20.0 * setup.receivers[0, chosen, 2]) and np.ptp(setup.receivers[0, chosen, 1]) == 0


@pytest.mark.slow
def test_model_invert_its_files_and_migrate(capsys, tmp_path, config):
    data, out = tmp_path / "data", tmp_path / "out"
    code, _, err = run(capsys, "seismic", "model", config, "--out", data)
    assert code == 0, err
    own = SMALL.replace('name = "lens"\nshape = [12, 11, 13]\ndh = [20.0, 25.0, 20.0]\n', 'file = "data/model.npz"\n')
    config.write_text(own + '[data]\nfile = "data/gathers.npz"\n')
    code, text, err = run(capsys, "seismic", "invert", config, "--out", out, "--max-shots", 2)
    assert code == 0, err
    assert "12 × 11 × 13 cells" in text and "jax: as asked; memory: segmented: as asked, " in text
    assert np.load(out / "model.npy").shape == (12, 11, 13)
    assert "waveform inversion in three dimensions" in (out / "report.html").read_text()
    config.write_text(own.replace('engine = "jax"', 'engine = "auto"') + '[data]\nfile = "data/gathers.npz"\n')
    code, text, err = run(capsys, "seismic", "rtm", config, "--out", tmp_path / "rtm", "--max-shots", 1)
    assert code == 0, err
    assert np.load(tmp_path / "rtm" / "image.npy").shape == (12, 11, 13)


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ('name = "lens"', 'name = "faulted"', "shape (12, 11, 13) must be (nz, nx)"),
        ("dh = [20.0, 25.0, 20.0]", "dh = [20.0, 25.0]", "dh = (20.0, 25.0) for 3 axes"),
        ("widths = 3", "widths = [3, 3, 3, 3]", "one width or one per edge"),
        ("widths = 3", 'widths = 3\nwaves = "elastic"', "must be (nz, nx)"),
    ],
)
def test_errors_come_first(capsys, tmp_path, config, old, new, complaint):
    config.write_text(SMALL.replace(old, new))
    code, _, err = run(capsys, "seismic", "invert", config, "--out", tmp_path / "out")
    assert code == 2 and complaint in err, err


def test_lines_are_written_as_segy_only(capsys, tmp_path, config):
    code, _, err = run(capsys, "seismic", "model", config, "--out", tmp_path, "--format", "sgy", "--max-shots", 1)
    assert code == 2 and "Use npz for three dimensions" in err
