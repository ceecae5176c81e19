"""`shardfit survey` and `shardfit init survey`: from a configuration to a table, stopped and resumed on the way."""

import csv
import json
import os
import sys

import pytest

from shardfit.surveys.reading import Survey
from tests.command_line import run

CONFIG = """
problem = "survey_of_lines:make"
out = "{out}"

[axes]
weight = [0.0, 0.1, 1.0, 10.0]
prior = [0.0, 1.0]

[solver]
name = "lbfgs"
maxiter = 50
sweep = "weight"

[run]
slots = 4
"""
MODULE = """
import numpy as np
from shardfit import Axis, Objective, Problem, penalty, residual_term, weight_axis


def residual(p, rows):
    return p["a"] * rows["x"] + p["b"] - rows["y"]


def distance(p, prior):
    return (p["a"] - prior) ** 2


def make(settings, axes):
    x = np.linspace(0, 1, 20)
    objective = Objective({
        "data": residual_term(residual, {"x": x, "y": 2 * x + 1}),
        "reg": penalty(distance, np.float64(settings.get("prior", 0.0))),
    })
    def prior(start, value):
        return start._replace(objective=start.objective.with_args(reg=(np.float64(value),)))
    made = {"weight": weight_axis("reg", axes["weight"]), "prior": Axis(axes["prior"], prior)}
    return Problem(objective, {"a": 0.0, "b": 0.0}, name="lines"), made, {}
"""


@pytest.fixture
def config(tmp_path, monkeypatch):
    (tmp_path / "survey_of_lines.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    file = tmp_path / "survey.toml"
    file.write_text(CONFIG.format(out=tmp_path / "out"))
    return file


def test_run_stop_resume_rank_export(capsys, config, tmp_path):
    out = tmp_path / "out"
    code, text, _ = run(capsys, "survey", "run", config, "--limit", 3)
    assert code == 1 and "3 of 8 points" in text  # not complete
    code, text, _ = run(capsys, "survey", "resume", out)
    assert code == 0 and "8 of 8 points" in text
    code, text, _ = run(capsys, "survey", "status", out)
    assert code == 0 and "failed" not in text
    code, text, _ = run(capsys, "survey", "retry", out)
    assert code == 0
    code, text, _ = run(capsys, "survey", "top", out, "-n", 2, "--by", "data", "--below", "reg=100")
    assert code == 0 and "best 2" in text
    code, text, _ = run(capsys, "survey", "top", out, "--where", "weight=10", "prior=0")
    assert code == 0 and "1 points, best 1" in text
    for wrong, words in (("weight=7", "no point has this value. There are 0, 0.1, 1, 10"), ("tv=1", "Axes are weight")):
        code, _, err = run(capsys, "survey", "top", out, "--where", wrong)
        assert code == 2 and words in err
    code, text, _ = run(capsys, "survey", "top", out, "-n", 1, "--tag", "good [bold]")
    assert "best 1 by data" in text  # a weight is an axis: values cannot be compared
    assert "8 points are tagged 'good [bold]'" in text
    assert run(capsys, "survey", "tag", out, 3, "--note", "odd")[0] == 0
    assert "point 3: good [bold]; odd" in run(capsys, "survey", "tag", out)[1]
    for number, began in ((6, "at its own start"), (4, "where point 6 ended")):
        code, text, err = run(capsys, "survey", "point", out, number, "--out", tmp_path / str(number))
        assert code == 0, err
        assert f"started {began}" in text
        values = text.splitlines()[2].replace(",", " ").replace(";", " ").split()
        assert float(values[1]) == pytest.approx(float(values[5]), rel=1e-6)
    assert "weight" in (tmp_path / "6" / "report.html").read_text()
    assert "no such point" in run(capsys, "survey", "point", out, 99)[2]
    table = tmp_path / "table.csv"
    assert run(capsys, "survey", "export", out, table)[0] == 0
    rows = list(csv.DictReader(table.read_text().splitlines()))
    assert [int(row["id"]) for row in rows] == list(range(8))
    # without the penalty the line is found
    with Survey(out) as found:
        assert found.params(0)["a"] == pytest.approx(2.0, abs=1e-4)


def test_a_module_of_the_present_folder_is_found(capsys, tmp_path, monkeypatch):
    (tmp_path / "lines_beside_me.py").write_text(MODULE)
    (tmp_path / "survey.toml").write_text(CONFIG.format(out="out").replace("survey_of_lines", "lines_beside_me"))
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path not in ("", str(tmp_path))])
    monkeypatch.chdir(tmp_path)
    code, text, err = run(capsys, "survey", "run", "survey.toml", "--limit", 1)
    assert code == 1 and "1 of 8 points" in text, err


def test_a_table_of_points(capsys, config, tmp_path):
    config.write_text(
        config.read_text()
        + """
[design]
kind = "table"
table = [{ weight = 0.1, prior = 1.0 }, { weight = 10.0, prior = 0.0 }]
"""
    )
    code, text, err = run(capsys, "survey", "run", config)
    assert code == 0 and "2 of 2 points" in text, err
    with Survey(tmp_path / "out") as found:
        assert found.column("weight").tolist() == [0.1, 10.0]


def test_workers_go_with_no_limit(capsys, config):
    code, _, err = run(capsys, "survey", "run", config, "--workers", 2, "--limit", 3)
    assert code == 2 and "cannot be combined with --devices or --limit" in err


def test_init_writes_what_run_reads(capsys, tmp_path):
    from shardfit.cli.surveys.config import read_config

    file = tmp_path / "survey.toml"
    assert run(capsys, "init", "survey", file)[0] == 0
    config = read_config(file)
    assert config.science == "vlbi" and config.settings["data"] == "ring" and "tv" in config.axes
    code, _, err = run(capsys, "init", "survey", file)
    assert code == 2 and "--force" in err
    assert run(capsys, "init", "survy", tmp_path / "x.toml")[0] == 2
    assert run(capsys, "init", "survey", file, "--force", "--data", 'a "b".uvfits')[0] == 0
    assert read_config(file).settings["data"] == 'a "b".uvfits'


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("problem =", "problm ="), "either science"),
        (("survey_of_lines:make", "survey_of_lines:mak"), "cannot be loaded"),
        (("[run]", "[rum]"), "has no key 'rum'. Did you mean 'run'"),
        (("slots = 4", "slot = 4"), "Did you mean 'slots'"),
        (("slots = 4", "slots = 0"), "[run] slots = 0 must be a whole number, at least 1"),
        (("maxiter", "maxitr"), "Did you mean 'maxiter'"),
        (('name = "lbfgs"', 'name = "lm-cg"'), "cannot share a batch"),
        (("[axes]", "[axes"), "not valid TOML"),
    ],
)
def test_a_wrong_configuration_is_refused(capsys, config, tmp_path, change, message):
    config.write_text(config.read_text().replace(*change))
    code, _, err = run(capsys, "survey", "run", config)
    assert code == 2 and message in err
    assert not (tmp_path / "out").exists()


def test_another_survey_in_the_same_folder_is_refused(capsys, config):
    run(capsys, "survey", "run", config, "--limit", 1)
    config.write_text(config.read_text().replace("10.0]", "11.0]"))
    code, _, err = run(capsys, "survey", "run", config)
    assert code == 2 and "belongs to another survey" in err
    assert "10.0]" in (config.parent / "out" / "survey.toml").read_text()  # resume goes on with the first one


@pytest.mark.slow
def test_workers_share_the_points(capsys, config, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(tmp_path) + os.pathsep + os.environ.get("PYTHONPATH", ""))
    code, text, err = run(capsys, "survey", "run", config, "--workers", 2)
    assert code == 0 and "8 of 8 points" in text, err


def test_points_that_met_no_tolerance_can_be_continued(config, capsys, tmp_path):
    path = tmp_path / "short.toml"
    path.write_text(config.read_text().replace("maxiter = 50", "maxiter = 1"))
    out = tmp_path / "short"
    code, text, _ = run(capsys, "survey", "run", path, "--out", out)
    assert code == 1 and "0.0% converged" in text and f"shardfit survey continue {out}" in text
    code, text, _ = run(capsys, "survey", "continue", out, "--steps", "50")
    assert not code and "8 of 8 points, 100.0% converged" in text and "continue" not in text


def points(folder):
    with Survey(folder) as found:
        return [(row["id"], row["value"], row["axis.weight"]) for row in found.ledger.rows("ORDER BY id")]


def test_resume_means_what_it_means_for_a_fit(capsys, config, tmp_path):
    out = tmp_path / "out"
    code, _, err = run(capsys, "survey", "run", config, "--resume", "must")
    assert code == 2 and "holds no survey to resume" in err and not out.exists()
    assert run(capsys, "survey", "run", config, "--limit", 3)[0] == 1
    assert run(capsys, "survey", "tag", out, 0, "--name", "old")[0] == 0
    code, text, _ = run(capsys, "survey", "run", config, "--resume", "must")
    assert code == 0 and "8 of 8 points" in text
    whole = points(out)
    code, text, _ = run(capsys, "survey", "run", config, "--resume", "never", "--limit", 3)
    assert code == 1 and "3 of 8 points" in text
    assert "old" not in run(capsys, "survey", "tag", out)[1]
    assert run(capsys, "survey", "run", config)[0] == 0 and points(out) == whole
    other = config.with_name("other.toml")
    other.write_text(config.read_text().replace("10.0]", "20.0]"))
    earlier = (out / "command.json").read_bytes()
    code, _, err = run(capsys, "survey", "run", other)
    assert code == 2 and "--resume never starts anew" in err
    assert (out / "command.json").read_bytes() == earlier  # still that of the survey which is there
    assert run(capsys, "survey", "run", other, "--resume", "never")[0] == 0
    assert "20.0" in (out / "survey.toml").read_text() and points(out) != whole


def test_the_seed_of_a_survey(capsys, config, tmp_path):
    text = config.read_text().replace("[run]", '[design]  # few\nkind = "latin"\npoints = 5\nseed = 0\n\n[run]')
    config.write_text(text)
    assert run(capsys, "survey", "run", config)[0] == 0
    three = ("--seed", 3, "--out", tmp_path / "three", "--json", "--limit", 2)
    code, told, _ = run(capsys, "survey", "run", config, *three)
    assert code == 1 and json.loads(told)["seed"] == 3
    code, told, err = run(capsys, "survey", "resume", tmp_path / "three")
    assert code == 0, err
    assert points(tmp_path / "three") != points(tmp_path / "out")
    config.write_text("seed = 3\n" + text.replace("seed = 0", "seed = 3"))
    assert run(capsys, "survey", "run", config, "--out", tmp_path / "same")[0] == 0
    assert points(tmp_path / "same") == points(tmp_path / "three")
    config.write_text(
        text.replace('[design]  # few\nkind = "latin"\npoints = 5\nseed = 0\n', "").replace(
            "[axes]", 'design = { kind = "latin", points = 5, seed = 0 }\n[axes]'
        )
    )
    code, _, err = run(capsys, "survey", "run", config, "--seed", 4, "--out", tmp_path / "four")
    assert code == 2 and "Write it there: seed = 4" in err and not (tmp_path / "four").exists()


def test_a_survey_is_read_from_any_folder(capsys, tmp_path, monkeypatch):
    """Names in its configuration are relative to where it was made, which command.json knows."""
    home, away = tmp_path / "home", tmp_path / "away"
    home.mkdir(), away.mkdir()
    (home / "x.txt").write_text("0 0.5 1")
    (home / "lines_at_home.py").write_text(MODULE.replace("np.linspace(0, 1, 20)", "np.loadtxt('x.txt')"))
    (home / "survey.toml").write_text(CONFIG.format(out="out").replace("survey_of_lines", "lines_at_home"))
    monkeypatch.chdir(home)
    assert run(capsys, "survey", "run", "survey.toml", "--limit", 3)[0] == 1
    monkeypatch.chdir(away)
    code, text, err = run(capsys, "survey", "resume", "../home/out", "--json")
    assert code == 0, err
    assert json.loads(text)["result"]["points"] == 8 and not list(away.iterdir())
    code, text, err = run(capsys, "survey", "point", "../home/out", 2, "--out", "two", "--json")
    assert code == 0, err
    told = json.loads(text)
    assert told["out"] == str(away / "two") and told["result"]["point"] == 2 and told["result"]["kind"] == "fit"
    assert json.loads((away / "two" / "command.json").read_text())["folder"] == str(away)
    code, text, err = run(capsys, "rerun", "two", "--json")
    assert code == 0, err
    assert json.loads(text)["bit_equal"] and json.loads(text)["same"]
    (home / "out" / "command.json").rename(home / "out" / "kept.json")
    code, _, err = run(capsys, "survey", "retry", "../home/out")
    assert code == 2 and "x.txt" in err


def test_what_surveys_say_to_programs(capsys, config, tmp_path):
    out = tmp_path / "out"
    assert run(capsys, "survey", "run", config)[0] == 0
    answers = {
        ("status",): {"kind", "points", "total", "failures"},
        ("top", "-n", 2, "--by", "data"): {"points", "by", "best"},
        ("tag",): {"points"},
        ("tag", 1, "--name", "good"): {"changed", "tag"},
    }
    for (name, *more), keys in answers.items():
        code, text, err = run(capsys, "survey", name, out, *more, "--json")
        assert code == 0 and keys <= set(json.loads(text)), err
    text = run(capsys, "survey", "export", out, tmp_path / "t.csv", "--json", "--quiet")[1]
    assert json.loads(text) == {"points": 8, "files": [str(tmp_path / "t.csv")]}
