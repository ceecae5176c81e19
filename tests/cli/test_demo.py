"""The demo: its chapters run as printed, and one page leads to all of them."""

import os
import re
import shlex
import subprocess
import sys

import pytest

from shardfit.cli import main
from shardfit.cli.commands import all_commands
from shardfit.cli.demo import Told, run_in_turn, write_index
from shardfit.cli.demo_chapters import CHAPTERS, SETUP
from tests.command_line import one_device

SHORTEST = "population"


def test_every_chapter_names_commands_that_exist():
    known = {command.name for command in all_commands()}
    for words in (*SETUP, *(words for chapter in CHAPTERS for words in chapter.commands)):
        assert shlex.split(words)[0] in known, words


def test_one_chapter_end_to_end(tmp_path):
    pytest.importorskip("matplotlib")
    out = tmp_path / "out"
    command = [sys.executable, "-m", "shardfit", "demo", "--only", SHORTEST, "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, env=one_device())
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"page: {out}" in done.stdout and "Galaxies" in done.stdout
    page = (out / "index.html").read_text()
    assert page.count("<img") == 1 and "all ran" in page
    for link in re.findall(r'href="(?!data:)([^"]+)"', page):
        assert (out / link).is_file(), link
    assert "$ shardfit population fit smf.toml" in (out / f"{SHORTEST}.log").read_text()


def test_the_first_command_that_fails_ends_a_chapter(capfd, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run_in_turn(["population init smf.toml", "population init smf.toml", "data list"]) == 2
    out, err = capfd.readouterr()
    assert out.count("$ shardfit population init smf.toml") == 2 and "data list" not in out
    assert "already exists" in err


def test_a_failed_chapter_is_told(tmp_path):
    page = write_index(tmp_path, [Told(CHAPTERS[0], 1.0, 2, "no such file")])
    text = page.read_text()
    assert "1 failed" in text and "exit code 2" in text and "<img" not in text


def test_other_folders_are_left_alone(tmp_path, capsys):
    (tmp_path / "thesis.tex").write_text("years of work")
    assert main(["demo", "--out", str(tmp_path)]) == 2
    assert "was not made by" in capsys.readouterr().err
    assert (tmp_path / "thesis.tex").read_text() == "years of work"
    assert main(["demo", "--only", "vlib", "--out", str(tmp_path / "new")]) == 2
    assert "Did you mean 'vlbi'?" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


@pytest.mark.slow
def test_whole_demo(tmp_path):
    pytest.importorskip("matplotlib")
    out = tmp_path / "out"
    done = subprocess.run(
        [sys.executable, "-m", "shardfit", "demo", "--out", str(out)],
        capture_output=True,
        text=True,
        env=os.environ | {"XLA_FLAGS": ""},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for chapter in CHAPTERS:
        assert (out / chapter.out / "report.html").is_file(), chapter.out
        assert (out / chapter.out / chapter.picture).is_file(), chapter.picture
    assert (out / "index.html").read_text().count("<img") == len(CHAPTERS)
