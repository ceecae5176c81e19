"""`shardfit population`: configuration, run directory, report."""

import pytest

from shardfit.io.results import load_result
from tests.command_line import run

pytest.importorskip("matplotlib")


@pytest.mark.parametrize("name", ["smf", "gaussian", "colours", "ackley"])
def test_init_writes_what_fit_reads(capsys, tmp_path, name):
    from shardfit.cli.population.config import read_config
    from shardfit.domains.population.recipes import STUDIES

    file = tmp_path / "run.toml"
    assert run(capsys, "population", "init", file, "--problem", name)[0] == 0
    config, study = read_config(file), STUDIES[name]
    assert config.problem == name
    assert config.solver.given() == study.solver
    assert set(config.options) == set(study.options.declared_options())
    code, _, err = run(capsys, "population", "init", file)
    assert code == 2 and "already exists" in err and "--force" in err


def test_fit_leaves_a_run_directory_with_report(capsys, tmp_path):
    file, out = tmp_path / "run.toml", tmp_path / "out"
    run(capsys, "population", "init", file)
    code, text, err = run(capsys, "population", "fit", file, "--rows", "2e3", "--devices", 2, "--out", out)
    assert code == 0, err
    assert "2,000 rows" in text and "converged" in text
    result = load_result(out)
    assert abs(result.params["efficiency"] + 2.0) < 1e-4
    assert result.layout["rows"] == 2
    page = (out / "report.html").read_text()
    assert "Stellar mass function" in page and "log_scatter" in page
    assert (out / "figures" / "mass_function.png").is_file()


@pytest.mark.slow
def test_noisy_fit_shows_its_settled_answer(capsys, tmp_path):
    file, out = tmp_path / "run.toml", tmp_path / "out"
    file.write_text(
        'problem = "gaussian"\nrows = 300\n[solver]\nname = "adam"\nkeep = 1\nmaxiter = 30\n'
        "learning_rate = 1.0\nx_scale = 1.0"
    )
    code, _, err = run(capsys, "population", "fit", file, "--out", out, "--seed", 4)
    assert code == 1, err
    assert "Mean of the last 20 steps" in (out / "report.html").read_text()
    assert {p.name for p in (out / "figures").iterdir()} >= {"ellipses.png", "descent.png"}


def test_swarm(capsys, tmp_path):
    file, out = tmp_path / "run.toml", tmp_path / "out"
    file.write_text('problem = "ackley"\n[swarm]\nparticles = 60\nmaxiter = 80\n')
    code, _, err = run(capsys, "population", "swarm", file, "--out", out, "--seed", 1)
    assert code == 1, err  # a limit of steps is no tolerance
    assert load_result(out).value < -4.5
    assert (out / "figures" / "landscape.png").is_file()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("problm = 'smf'", "Did you mean 'problem'"),
        ("problem = 'smg'", "Did you mean 'smf'"),
        ("rows = 'many'", "rows = 'many' must be a whole number, at least 1"),
        ("[options]\nvarient = 'B'", "Did you mean 'variant'"),
        ("[options]\nvariant = 3", "[options] variant = 3 must be one of A, B"),
        ("[solver]\nname = 'adam'\nrate = 0.1", "[solver] has no key 'rate'. Did you mean"),
        ("seed = -1", "zero or positive"),
        ("a = = 1", "not valid TOML"),
    ],
)
def test_complaints(capsys, tmp_path, text, complaint):
    file = tmp_path / "run.toml"
    file.write_text(text)
    code, _, err = run(capsys, "population", "fit", file, "--rows", 100, "--out", tmp_path / "out")
    assert code == 2
    assert complaint in err


def test_missing_file_and_command(capsys, tmp_path):
    code, _, err = run(capsys, "population", "fit", tmp_path / "none.toml")
    assert code == 2 and "population init" in err
    code, _, err = run(capsys, "population", "fti", "x")
    assert code == 2 and "Did you mean 'fit'" in err
