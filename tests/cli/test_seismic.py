"""`shardfit seismic`: configuration, gathers, inversion, migration, and errors before any work."""

import contextlib
import csv
import io
import re
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from shardfit.cli import main
from shardfit.cli.seismic.report import _stopped, summary
from shardfit.core.result import Result
from shardfit.core.status import Status
from shardfit.domains.seismic.recipes.invert import Inversion
from shardfit.io.results import load_result
from tests.command_line import run

pytest.importorskip("matplotlib")
pytest.importorskip("optax")

SMALL = """
show_every = 4
film = false
[model]
name = "layers"
shape = [24, 40]
dh = 40.0
[start]
metres = 150.0
[survey]
dt = 0.005
nt = 160
f_peak = 4.0
delay = 0.3
source_step = 320.0
receiver_step = 80.0
receiver_depth = 80.0
[simulation]
widths = 8
engine = "auto"
[inversion]
epochs = 5
batchsize = 2
[inversion.conditioning]
rows = 3
"""


@pytest.fixture
def config(tmp_path):
    file = tmp_path / "run.toml"
    file.write_text(SMALL)
    return file


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Return an inversion's configuration, its folder and what it printed."""
    folder = tmp_path_factory.mktemp("finished")
    file, said = folder / "run.toml", io.StringIO()
    file.write_text(SMALL.replace("film = false\n", ""))
    with contextlib.redirect_stdout(said):
        code = main(["seismic", "invert", str(file), "--out", str(folder / "out"), "--devices", "2", "--seed", "3"])
    assert code == 0
    assert "160 samples; adam, 5 epochs, 2 shots per step, 2 devices" in said.getvalue()
    return file, folder / "out", said.getvalue()


def test_init_writes_what_is_read(capsys, tmp_path):
    from shardfit.cli.seismic.config import read_config
    from shardfit.cli.seismic.invert import inversion_options
    from shardfit.cli.seismic.setup import build

    file = tmp_path / "run.toml"
    assert run(capsys, "seismic", "init", file)[0] == 0
    config = read_config(file)
    options, setup = inversion_options(config), build(config, None, None, need_start=True)
    options.check(setup.sim, setup.n_shots, 1)
    assert options.bands == (4.0, None) and options.conditioning.rows == 6 and not config.film
    assert setup.truth.shape == (80, 200) and setup.n_shots == 25
    code, _, err = run(capsys, "seismic", "init", file)
    assert code == 2 and "already exists" in err


@pytest.mark.slow
def test_model_then_invert_its_file(capsys, tmp_path, config):
    pytest.importorskip("segyio")
    code, text, err = run(capsys, "seismic", "model", config, "--out", tmp_path / "data", "--format", "sgy")
    assert code == 0, err
    assert "5 shots, 20 receivers, 160 samples" in text
    names = {p.name for p in (tmp_path / "data").iterdir()}
    assert names == {"command.json", "gathers.sgy", "model.npz", "model.png", "ricker.png", "observed_data.png"}
    text = SMALL.replace('name = "layers"\n', "").replace("metres = 150.0", 'kind = "linear"\nbottom = 3000.0')
    config.write_text(text + '[data]\nfile = "data/gathers.sgy"\n')
    code, text, err = run(capsys, "seismic", "invert", config, "--out", tmp_path / "out", "--epochs", 1)
    assert code == 0, err
    assert "model error" not in text  # no truth is known
    assert "Waveform inversion of gathers.sgy" in (tmp_path / "out" / "report.html").read_text()


def test_positions_of_a_file_outside_the_model_are_told_in_metres(tmp_path, config):
    from shardfit.cli.seismic.config import read_config
    from shardfit.cli.seismic.setup import build
    from shardfit.domains.seismic.files import save_gathers
    from shardfit.domains.seismic.gathers import Gathers

    sources, receivers = np.array([[20.0, 5100.0]]), np.array([[[20.0, 5000.0], [20.0, 5300.0]]])
    save_gathers(tmp_path / "far.npz", Gathers(np.ones((1, 2, 160), np.float32), 0.005, sources, receivers))
    config.write_text(SMALL + '[data]\nfile = "far.npz"\n')
    with pytest.raises(ValueError, match="far.npz: .* 5000.0 to 5300.0 m along x, the model from 0.0 .* `origin`"):
        build(read_config(config), None, None, True)
    config.write_text(SMALL + '[data]\nfile = "far.npz"\norigin = [0.0, 5000.0]\n')
    assert build(read_config(config), None, None, True).n_shots == 1


def test_raw_binary_is_placed_by_the_survey(tmp_path, config):
    from shardfit.cli.seismic.config import read_config
    from shardfit.cli.seismic.setup import build, model_data

    made = build(read_config(config), None, None, need_start=False)
    traces = model_data(made, read_config(config), print)
    traces.tofile(tmp_path / "gathers.bin")
    config.write_text(SMALL + '[data]\nfile = "gathers.bin"\nshape = [5, 20, 160]\n')
    found = build(read_config(config), None, None, need_start=False)
    assert isinstance(found.observed, np.memmap) and np.array_equal(found.observed, traces)
    assert np.array_equal(found.sources, made.sources) and np.array_equal(found.receivers, made.receivers)


def test_invert_leaves_a_run_folder(capsys, finished):
    _, out, text = finished
    assert "5 shots of 20 receivers" in text and "2 devices" in text and "SSIM" in text
    pictures = {p.name for p in out.glob("*.png")}
    assert pictures == {"ricker.png", "observed_data.png", "loss.png", "epoch_0004.png"}
    model = np.load(out / "model.npy")
    assert model.shape == (24, 40) and np.isfinite(model).all()
    rows = list(csv.DictReader((out / "metrics.csv").read_text().splitlines()))
    assert [row["epoch"] for row in rows] == ["0", "1", "2", "3", "4", "5"]
    assert float(rows[-1]["loss"]) < float(rows[0]["loss"])
    assert float(rows[-1]["model_error"]) < float(rows[0]["model_error"])
    result = load_result(out)
    assert result.steps == 5 and result.status.name == "COMPLETED"
    assert np.array_equal(result.params["velocity"].astype(np.float32), model)
    assert run(capsys, "show", out)[0] == 0
    page = (out / "report.html").read_text()
    assert "No parity certificate" not in page and "rows probed" in page
    assert "the model &#x27;layers&#x27;" in page and "structural similarity" in page


def test_a_finished_run_is_not_done_again_and_another_is_refused(capsys, finished):
    file, out, _ = finished
    before = {name: (out / name).read_bytes() for name in ("model.npy", "metrics.csv", "epoch_0004.png")}
    code, _, err = run(capsys, "seismic", "invert", file, "--out", out, "--seed", 9)
    assert code == 2 and "belongs to another fit: seed" in err
    again = ("seismic", "invert", file, "--out", out, "--seed", 3, "--devices", 1, "--resume", "must")
    code, _, err = run(capsys, *again)
    assert code == 0, err
    assert {name: (out / name).read_bytes() for name in before} == before


def test_max_shots_are_spread_over_the_survey(config):
    from shardfit.cli.seismic.config import read_config
    from shardfit.cli.seismic.setup import build

    whole = build(read_config(config), None, None, need_start=False)
    some = build(read_config(config), None, 3, need_start=False)
    assert some.sources.tolist() == whole.sources[[0, 2, 4]].tolist()
    assert some.shots.sources.cells.shape[0] == some.receivers.shape[0] == 3


def test_noise_has_the_size_asked_for(config):
    from shardfit.cli.seismic.config import read_config
    from shardfit.cli.seismic.setup import build, model_data

    clean_config = read_config(config)
    config.write_text(SMALL + "[data]\nnoise = 0.1\n")
    clean, noisy = (model_data(build(c, None, None, False), c, print) for c in (clean_config, read_config(config)))
    size = np.sqrt(np.mean((noisy - clean) ** 2) / np.mean(clean**2))
    assert size == pytest.approx(0.1, rel=0.05)


def test_rtm(capsys, tmp_path, config):
    out = tmp_path / "rtm"
    velocity = tmp_path / "v.npy"
    np.save(velocity, np.full((24, 40), 2000.0, np.float32))
    code, text, err = run(capsys, "seismic", "rtm", config, "--out", out, "--max-shots", 3, "--velocity", velocity)
    assert code == 0, err
    assert "migrating 3 shots" in text
    image = np.load(out / "image.npy")
    assert image.shape == (24, 40) and np.isfinite(image).all() and np.ptp(image) > 0
    assert (out / "image.png").is_file()


def test_film(tmp_path, config, monkeypatch):
    from shardfit.cli.seismic.config import read_config
    from shardfit.cli.seismic.pictures import save_film
    from shardfit.cli.seismic.setup import build
    from shardfit.domains.seismic import snapshots

    monkeypatch.setattr(snapshots, "wavefield", partial(snapshots.wavefield, frames=4))
    setup = build(read_config(config), None, None, need_start=False)
    save_film(tmp_path, setup, setup.truth, "auto")
    assert (tmp_path / "wavefield.gif").read_bytes()[:4] == b"GIF8"
    assert (tmp_path / "wavefield.png").is_file()


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("film = false", "flim = false", "has no key 'flim'. Did you mean 'film'"),
        ("dh = 40.0", "dx = 40.0", "[model] has no key 'dx'"),
        (
            "dh = 40.0",
            "dh = 'wide'",
            "[model] dh = 'wide' must be a positive number in m or a pair",
        ),
        ("shape = [24, 40]", "shape = [24]", "must be a pair of whole numbers, at least 1 or a triple"),
        ("[survey]", "[[survey]]", "must be a section, [survey]"),
        ("epochs = 5", "epoch = 5", "[inversion] has no key 'epoch'. Did you mean 'epochs'"),
        ("epochs = 5", "learning_rate = 'fast'", "[inversion] learning_rate = 'fast' must be a positive number in m/s"),
        ("epochs = 5", "epochs = 0", "epochs = 0 must be a whole number"),
        ("epochs = 5", "bands = 3.0", "bands = 3.0 must be a list of positive numbers or 'all'"),
        ("epochs = 5", "bands = [3.0, 'rest']", "bands = [3.0, 'rest'] must be a list"),
        ("epochs = 5", "bands = [300.0]", "corner 300.0 Hz must lie between"),
        ("epochs = 5", "bounds = [1500.0]", "bounds = [1500.0] must be a pair of numbers or texts"),
        ("epochs = 5", "bounds = [2000.0, 3000.0]", "outside the bounds"),
        ("batchsize = 2", "batchsize = 'many'", "batchsize = 'many' must be a whole number, at least 1 or a list"),
        ("batchsize = 2", "batchsize = [2, 'all']", "batchsize=(2, None) are numbers of 2 bands, and there is 1"),
        ("epochs = 5", "loss = 'l3'", "loss = 'l3' must be one of l2, l1"),
        ("rows = 3", "row = 3", "[inversion.conditioning] has no key 'row'. Did you mean 'rows'"),
        ('name = "layers"', 'name = "layer"', "Did you mean 'layers'"),
        ('name = "layers"', 'name = "layers"\nfile = "vp.npz"', "a name or a file, not both"),
        ('name = "layers"', 'file = "vp.npz"', "no such file"),
        ("shape = [24, 40]\n", "", "shape is missing"),
        ("dh = 40.0\n", "", "dh is missing"),
        ("metres = 150.0", "kind = 'smooth'", "Did you mean 'smoothed'"),
        ("metres = 150.0", "metres = -1", "metres = -1 must be a positive number in m"),
        ("dt = 0.005", "dt = 0.02", "the largest stable dt is"),
        ("dt = 0.005\n", "", "dt (seconds) and nt (samples) are needed"),
        ("receiver_depth = 80.0", "receiver_depth = 2000.0", "receiver_depth = 2000 m is outside the model: 0 to"),
        ("source_step = 320.0", "source_step = 0.0", "source_step = 0.0 must be a positive number in m"),
        ("delay = 0.3", "delay = 0.1", "cuts off the beginning"),
        ("batchsize = 2", "batchsize = 9", "batchsize=9 is more than the 5 shots"),
        ('engine = "auto"', 'engine = "fast"', "engine = 'fast' must be one of auto, jax, native"),
        ('engine = "auto"', 'engine = "auto"\nv_max = 2000.0', "above v_max=2000"),
        ('engine = "auto"', 'engine = "auto"\norder = 5', "order=5 is not known"),
        ("film = false", "film = false\nseed = -1", "seed = -1 must be a whole number, zero or positive"),
        ("film = false", "a = = 1", "is not valid TOML"),
        ("[start]", "[data]\nnoise = -0.1\n[start]", "[data] noise = -0.1 must be a number, zero or positive"),
        ("[start]", "[data]\nfile = 'gathers.npz'\n[start]", "no such file"),
    ],
)
def test_complaints_come_before_work(capsys, tmp_path, config, old, new, complaint):
    assert old in SMALL
    config.write_text(SMALL.replace(old, new))
    code, _, err = run(capsys, "seismic", "invert", config, "--out", tmp_path / "out")
    assert code == 2 and complaint in err, err
    assert len(err.splitlines()) == 2  # one line, and where to see more
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"traces": np.zeros((5, 20, 160), np.float32)}, "zero everywhere"),
        ({"traces": np.full((5, 20, 160), np.nan, np.float32)}, "NaN or infinity in shot 0"),
        ({"traces": np.ones((5, 20, 150), np.float32)}, "nt = 160, but gathers.npz has 150 samples"),
        ({"traces": np.ones((5, 19, 160), np.float32)}, "has 5 of 19"),
        ({"dt": 0.004}, "has dt=0.004 s, but 0.005 s was given"),
    ],
)
def test_data_that_do_not_fit(capsys, tmp_path, config, change, complaint):
    np.savez(tmp_path / "gathers.npz", **{"traces": np.ones((5, 20, 160), np.float32), "dt": 0.005, **change})
    config.write_text(SMALL + '[data]\nfile = "gathers.npz"\n')
    code, _, err = run(capsys, "seismic", "invert", config, "--out", tmp_path / "out")
    assert code == 2 and complaint in err, err
    assert not (tmp_path / "out").exists()


def test_models_that_do_not_fit(capsys, tmp_path, config):
    np.save(tmp_path / "vp.npy", np.where(np.eye(24, 40) > 0, np.nan, 2000.0))
    config.write_text(SMALL.replace('name = "layers"\nshape = [24, 40]', 'file = "vp.npy"'))
    code, _, err = run(capsys, "seismic", "invert", config, "--out", tmp_path / "out")
    assert code == 2 and "not finite at cell (0, 0)" in err
    np.save(tmp_path / "vp.npy", np.full((25, 40), 2000.0))
    config.write_text(SMALL.replace("metres = 150.0", 'kind = "file"\nfile = "vp.npy"'))
    code, _, err = run(capsys, "seismic", "invert", config, "--out", tmp_path / "out")
    assert code == 2 and "has shape (25, 40), the true model (24, 40)" in err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("option", ["--max-shots", "--epochs", "--batchsize", "--show-every"])
def test_counts_must_be_positive(capsys, config, option):
    code, _, err = run(capsys, "seismic", "invert", config, option, 0)
    assert code == 2 and "0 must be a whole number, at least 1" in err


def test_unknown_words(capsys, config):
    code, _, err = run(capsys, "seismic", "inverse", config)
    assert code == 2 and "Did you mean 'invert'" in err
    code, _, err = run(capsys, "seismic", "invert", config, "--epoch", 3)
    assert code == 2 and "Did you mean '--epochs'" in err
    code, _, err = run(capsys, "seismic", "invert", "missing.toml")
    assert code == 2 and "shardfit seismic init missing.toml" in err


def test_marmousi_of_a_folder(capsys, tmp_path, config, marmousi_data):
    from shardfit.cli.seismic.config import read_config
    from shardfit.cli.seismic.setup import build

    config.write_text('[model]\nname = "marmousi"\n[survey]\ndt = 0.003\nnt = 100\n')
    assert build(read_config(config), str(marmousi_data), None, True).truth.shape == (101, 401)
    code, _, err = run(capsys, "seismic", "model", config, "--data", tmp_path, "--out", tmp_path / "out")
    assert code == 2 and "holds no Marmousi model" in err


def test_bounds_are_numbers_or_files(tmp_path, config):
    from shardfit.cli.seismic.config import read_config
    from shardfit.cli.seismic.invert import inversion_options

    highest = np.full((24, 40), 4000.0, np.float32)
    np.save(tmp_path / "highest.npy", highest)
    config.write_text(SMALL.replace("epochs = 5", 'epochs = 5\nbounds = [1450.0, "highest.npy"]'))
    low, high = inversion_options(read_config(config)).bounds
    assert low == 1450.0
    assert np.array_equal(high, highest)


def test_bands_have_their_own_numbers(config):
    from shardfit.cli.seismic.config import read_config
    from shardfit.cli.seismic.invert import band_marks, inversion_options

    bands = 'bands = [3.0, 4.5, "all"]\nsolver = "plbfgs"\nepochs = [5, 4, 3]'
    config.write_text(SMALL.replace("epochs = 5", bands).replace("batchsize = 2", 'batchsize = [1, 2, "all"]'))
    options = inversion_options(read_config(config))
    assert options.steps == (5, 4, 3)
    assert options.batchsizes == (1, 2, None)
    assert band_marks(options) == [(0, "3 Hz"), (6, "4.5 Hz"), (11, "all")]


def test_fewer_devices_than_processes(monkeypatch):
    from shardfit.cli.seismic.setup import split

    monkeypatch.setattr("jax.process_count", lambda: 2)
    with pytest.raises(ValueError, match="--devices 1: 2 processes share the shots.*leave --devices out"):
        split(1)


def inverted(results, metrics, bounds=None):
    return Inversion({}, tuple(results), metrics, np.zeros(1), "jax", SimpleNamespace(bounds=bounds))


def test_the_answer_of_all_bands_has_the_steps_of_all():
    kept = {"params": {}, "value": 1.0, "parts": {}, "status": Status.MAX_STEPS, "solver": "adam", "steps": 2}
    first = Result(**kept, evaluations=3, history={}, timings={}, layout={}, certificate={"summary": "checked"})
    metrics = {"loss": np.array([3.0, 2.0, 1.0]), "band": np.zeros(3, int)}
    told = summary(inverted([first, first], metrics), SimpleNamespace(truth=None))
    assert told.certificate == first.certificate and told.steps == 4 and told.success


def test_an_inversion_whose_loss_did_not_fall_or_that_a_bound_stopped_is_doubtful():
    kept = {"value": 1.0, "parts": {}, "status": Status.MAX_STEPS, "solver": "adam", "steps": 2, "evaluations": 3}
    last = Result({"velocity": np.ones(50)}, **kept, history={}, timings={}, layout={}, at_bound=("velocity[3]",))
    setup, metrics = SimpleNamespace(truth=None), {"loss": np.array([1.0, 2.0, 1.0]), "band": np.array([0, 1, 1])}

    def told(last=last, bounds=None, **changed):
        return summary(inverted([last], metrics | changed, bounds), setup).verdict()

    assert not told() and "2% of the cells" in told().reasons[0]
    assert told(bounds=(1.0, 2.0)).word == "completed at a bound" and told(replace(last, at_bound=())).success
    assert "did not fall" in told(bounds=(1.0, 2.0), loss=np.array([3.0, 1.0, 1.0])).reasons[0]
    assert not told(bounds=(1.0, 2.0), loss=np.array([3.0, 1.0, np.nan]))


def test_room_above_the_fastest_start_as_far_as_dt_allows(config):
    """The fastest wave of a start once was the ceiling of what an inversion could find."""
    from shardfit.cli.seismic.config import read_config
    from shardfit.cli.seismic.setup import MARGIN, ROOM, build
    from shardfit.domains.seismic import largest_dt

    def built(config):
        return build(read_config(config), None, None, need_start=True)

    setup = built(config)
    fastest = float(setup.start.max())
    assert setup.sim.v_max == pytest.approx(ROOM * max(fastest, float(setup.truth.max())), rel=0.01)
    tight = 1.3 * largest_dt(setup.sim)  # no room for more than 1.15 times the fastest
    config.write_text(re.sub(r"(?m)^dt = .*", f"dt = {tight}", config.read_text()))
    narrow = built(config).sim
    assert MARGIN * fastest <= narrow.v_max < ROOM * fastest
    assert narrow.dt <= largest_dt(narrow)


def test_cells_at_a_bound_are_counted():
    last = SimpleNamespace(
        params={"velocity": np.array([[1500.0, 2200.0], [2200.0, 2000.0]])}, at_bound=("velocity[0,1]", "velocity[1,0]")
    )
    assert _stopped(SimpleNamespace(results=[last])) == [
        ("cells of velocity at a bound", "2 of 4, between 1500 and 2200: set bounds, or v_max")
    ]
    last.at_bound = ()
    assert _stopped(SimpleNamespace(results=[last])) == []
