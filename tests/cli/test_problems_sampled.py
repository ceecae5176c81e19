"""shardfit sample: from a configuration to draws, a table and a report; more draws; clear errors."""

import textwrap

import pytest

from shardfit.cli.app import main
from shardfit.sampling.store import load_posterior

MODEL = """
import jax.numpy as jnp, numpy as np, shardfit as sf

def make_problem(noise):
    t = np.linspace(0, 5, 30)
    rows = {"t": t, "y": 2 * np.exp(-0.7 * t) + noise * np.sin(7 * t)}
    def residual(p, rows):
        return (rows["y"] - p["a"] * jnp.exp(-p["k"] * rows["t"])) / noise
    term = sf.residual_term(residual, rows)
    priors = {"a": sf.Normal(0.0, 5.0), "k": sf.LogNormal(0.0, 1.0)}
    return sf.Problem(sf.Objective({"decay": term}), {"a": 1.0, "k": 1.0}, priors=priors, name="decay")

def line_residual(p, rows):
    return rows["y"] - p["a"] * rows["t"]

def simulate_line(params, key):
    import jax
    t = np.linspace(0, 1, 10)
    rows = {"t": t, "y": params["a"] * t + np.asarray(jax.random.normal(key, t.shape))}
    term = sf.residual_term(line_residual, rows)
    return sf.Problem(sf.Objective({"line": term}), {"a": 0.0}, priors={"a": sf.Normal()})

def line():
    return simulate_line({"a": 0.0}, __import__("jax").random.key(0))
"""
CONFIG = """
problem = "decay_for_sampling:make_problem"
out = "run"
[settings]
noise = 0.1
[sample]
chains = 2
warmup = 100
draws = 150
[consensus]
shards = 2
chains = 2
warmup = 100
draws = 150
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sample")
    (folder / "decay_for_sampling.py").write_text(textwrap.dedent(MODEL))
    (folder / "sample.toml").write_text(CONFIG)
    return folder


@pytest.mark.slow
def test_draws_table_and_report(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    code = main(["sample", "sample.toml"])  # 300 draws are too few to be called converged, and the code says so
    shown = capsys.readouterr().out
    assert code in (0, 1) and "rhat" in shown and (folder / "run" / "report.html").stat().st_size > 10_000
    assert "Data at the draws" in (folder / "run" / "report.html").read_text()
    first = load_posterior(folder / "run")
    main(["sample", "sample.toml", "--draws", "200"])
    more = load_posterior(folder / "run")
    assert more.z.shape == (2, 200, 2) and (more.z[:, :150] == first.z).all()
    capsys.readouterr()
    assert main(["show", "run"]) == 0 and "ess_bulk" in capsys.readouterr().out


@pytest.mark.slow
def test_shards_are_combined(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    assert main(["consensus", "sample.toml", "--out", "shards"]) in (0, 1)
    assert "2 shards" in capsys.readouterr().out and (folder / "shards" / "report.html").exists()
    whole, shards = load_posterior(folder / "run"), load_posterior(folder / "shards")
    assert abs(shards.mean()["k"] - whole.mean()["k"]) < whole.sd()["k"]


@pytest.mark.slow
def test_calibration(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    text = 'problem = "decay_for_sampling:line"\nout = "line"\n[calibrate]\nmake = "decay_for_sampling:simulate_line"\n'
    (folder / "calibrate.toml").write_text(text + "n = 20\nranks = 19\nchains = 1\nwarmup = 50\ndraws = 60\n")
    assert main(["calibrate", "calibrate.toml"]) == 0
    assert "20" in capsys.readouterr().out and (folder / "line" / "figures" / "calibration.png").exists()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ('problem = "decay_for_sampling:make_problem"', "problem is missing"),
        ('out = "run"', "out is missing"),
        ("[settings]", "has no key 'noise'"),
    ],
)
def test_what_is_wrong_is_named(folder, monkeypatch, capsys, change, words):
    monkeypatch.chdir(folder)
    (folder / "wrong.toml").write_text(CONFIG.replace(change, ""))
    assert main(["sample", "wrong.toml"]) == 2
    assert words in capsys.readouterr().err


def test_a_template_to_start_from(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.py").write_text("mine = True\n")
    assert main(["init", "sample", "mine.toml"]) == 0
    out = capsys.readouterr().out
    assert "shardfit sample mine.toml" in out and "was not changed" in out
    assert (tmp_path / "model.py").read_text() == "mine = True\n"
