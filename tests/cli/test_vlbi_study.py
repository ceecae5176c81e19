"""`shardfit vlbi study`: surveys of known images and of all days, which go on after any crash, and what they say."""

import csv
import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from shardfit.cli import main
from shardfit.cli.surveys.config import read_config
from shardfit.cli.vlbi.study import add_arguments, plan
from shardfit.cli.vlbi.study_parts import days_of
from shardfit.domains.vlbi.recipes.simulated import known_image, observe
from shardfit.domains.vlbi.uvfits import write_uvfits
from shardfit.surveys.marks import marks
from shardfit.surveys.reading import Survey

GRID = """
science = "vlbi"
out = "not used"

[vlbi]
data = "ring"
npix = 24
fov_uas = 128.0

[axes]
prior_fwhm_uas = [40, 60]
simple = [0.1, 1, 10]
tv = [1, 10]
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Two days, one of them in two bands."""
    folder = tmp_path_factory.mktemp("data")
    made = []
    for i, (mjd, freq, stop) in enumerate([(57854, 227e9, 12.0), (57854, 229e9, 12.0), (57856, 227e9, 9.0)]):
        sky = known_image("ring", 32).replace(mjd=mjd, freq_hz=freq, source="RING")
        obs = observe(sky, stop_h=stop, cadence_s=1200.0, seed=i)
        made.append(folder / f"{i}.uvfits")
        write_uvfits(obs, made[-1])
    (folder / "grid.toml").write_text(GRID)
    return made


def asked(files, out, *more):
    grid = files[0].parent / "grid.toml"
    return ["vlbi", "study", *map(str, files), "--out", str(out), "--grid", str(grid), "--flux", "0.6", *more]


def parts_of(files, out, *more):
    import argparse

    parser = argparse.ArgumentParser()
    add_arguments(parser, [])
    args = parser.parse_args(asked(files, out, *more)[2:])
    return plan(out, days_of(args.files), args)


def test_parts_are_surveys_of_the_command_line(files, tmp_path):
    training, first, second = parts_of(files, tmp_path)
    assert [part.name for part in (training, first, second)] == ["training, 2017-04-11", "2017-04-11", "2017-04-13"]
    assert training.day.files == first.day.files and len(first.day.files) == 2 and len(second.day.files) == 1
    path = tmp_path / "survey.toml"
    path.write_text(training.text())
    config = read_config(path)
    assert config.axes["data"] == ("ring", "crescent", "disk", "double") and config.settings["flux"] == 0.6
    # whole lines: every truth, every weight of the entropy
    assert training.points(1) == 48 and training.points(0.3) == training.points(0.01) == 12
    assert first.points(1) == 12 and first.points(0.5) == 6 and first.missing(0.5) == 6
    assert len(parts_of(files, tmp_path, "--train", "all")) == 4


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--share", "0"], "above 0, at most 1"),
        (["--train", "2017-04-12"], "Give one of 2017-04-11, 2017-04-13, or `all`"),
        (["--grid", "paper5"], "give paper4, or a TOML file"),
        (["--below", "data.cphase"], "write COLUMN=LIMIT"),
        (["--slots", "few"], "must be a whole number, at least 1 or 'measure'"),
    ],
)
def test_what_cannot_be_done_is_said_before_work_starts(files, tmp_path, capsys, more, message):
    out = tmp_path / "out"
    assert main(asked(files, out, *more)) == 2
    assert message in capsys.readouterr().err and not out.exists()


def test_files_that_do_not_belong_together(files, tmp_path, capsys):
    assert main(asked([files[0], files[0]], tmp_path)) == 2
    assert "is named twice" in capsys.readouterr().err
    assert main(asked([files[0].with_name("no.uvfits")], tmp_path)) == 2
    assert "no such file" in capsys.readouterr().err


def test_another_study_in_the_folder_is_refused(files, tmp_path, capsys):
    first = parts_of(files, tmp_path)[0]
    first.folder.mkdir(parents=True)
    (first.folder / "survey.toml").write_text(first.text().replace("npix = 24", "npix = 32"))
    assert main(asked(files, tmp_path)) == 2
    assert "another study is there" in capsys.readouterr().err


def points(folder):
    """What every survey of a study has found, to the bit."""
    found = {}
    for path in sorted(folder.glob("*/*/ledger.sqlite")):
        with Survey(path.parent) as survey:
            rows = [(r["id"], r["value"], r["status"], r["parent"]) for r in survey.ledger.rows("ORDER BY id")]
            found[path.parent.name, path.parent.parent.name] = rows
    return found


@pytest.mark.slow
def test_a_study_in_two_steps_and_under_fire(files, tmp_path, capsys):
    """A share first, all of it later; and the same killed again and again: equal ledgers, equal results."""
    out = tmp_path / "steps"
    few = ["--below", "data.cphase=50", "data.logcamp=50", "--slots", "4"]
    code = main(asked(files, out, "--share", "0.5", *few))
    text = capsys.readouterr().out
    assert "36 fits in 3 surveys" in text
    told = json.loads((out / "study.json").read_text())
    assert told["share"] == 0.5 and told["trainings"]["2017-04-11"]["choices"] == 6
    code = main(asked(files, out, *few))
    told = json.loads((out / "study.json").read_text())
    assert told["share"] == 1 and all(one["points"] == one["of"] for one in told["surveys"].values())
    training = told["trainings"]["2017-04-11"]
    assert training["choices"] == 12 and 0 < training["truths"]["ring"]["least"] < 1
    kept = training["passed"]
    assert code == (0 if all(one["images"] for one in told["days"].values()) else 1)
    with open(out / "choices.csv") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 12 and sum(row["passed"] == "True" for row in rows) == kept
    for row in rows:  # a choice passes where it reaches every threshold
        reached = all(float(row[t]) >= one["least"] - 1e-5 for t, one in training["truths"].items())
        assert reached == (row["passed"] == "True")
    with Survey(out / "days" / "2017-04-11") as survey:  # the gallery shows them by their tag
        tagged = [number for number, (tags, _) in marks(survey.ledger).items() if "top set" in tags]
    assert len(tagged) == told["days"]["2017-04-11"]["images"]
    page = (out / "report.html").read_text()
    assert "Training on 2017-04-11" in page and "How it was made" in page
    assert kept and 38 < told["diameter"][0] < 46  # the data are of a ring of 42 µas

    killed = tmp_path / "killed"
    command = [sys.executable, "-m", "shardfit", *asked(files, killed, *few)]
    rng, kills, sizes = np.random.default_rng(3), 0, set()
    for _ in range(9):
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=dict(os.environ))
        before = sum(map(len, points(killed).values())) if killed.exists() else 0
        wanted, end = before + int(rng.integers(0, 10)), time.monotonic() + 120
        while child.poll() is None and time.monotonic() < end and _count(killed) < wanted:
            time.sleep(0.1)
        time.sleep(float(rng.uniform(0, 0.5)))
        if child.poll() is not None:
            break
        child.send_signal(signal.SIGKILL)
        child.wait()
        kills += 1
        sizes.add(_count(killed))
    assert kills >= 5 and len(sizes) >= 4, (kills, sizes)
    assert main([str(word) for word in asked(files, killed, *few)]) == code
    assert points(killed) == points(out)
    again = json.loads((killed / "study.json").read_text())
    assert again["days"] == told["days"] and again["trainings"] == told["trainings"]


def _count(folder):
    try:
        return sum(map(len, points(folder).values()))
    except (OSError, RuntimeError, ValueError):
        return 0
