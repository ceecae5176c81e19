"""What a command says when it fails: files that are missing, errors in a user's own code, and what its folder keeps."""

import argparse
import errno
import json
import os
import subprocess
import sys

import pytest

from shardfit.cli import main, record
from shardfit.cli.error_messages import describe

MODEL = """
import jax.numpy as jnp, numpy as np, shardfit as sf
{top}
def residual(p, rows):
    {line}
def make_problem():
    {before}
    t = np.linspace(0, 1, 20)
    return sf.Problem(sf.Objective({{"a": sf.residual_term(residual, {{"t": t, "y": 2 * t}})}}), {{"a": 1.0}})
"""
USUAL = {"top": "", "before": "pass", "line": 'return rows["y"] - p["a"] * rows["t"]'}


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        (
            "lookup",
            {"line": 'return rows["z"]'},
            ["asks for 'z'", "rows has t, y", "in mishap_lookup.py, line 5, residual", 'rows["z"]'],
        ),
        ("division", {"line": "return rows['y'] * (1 / 0)"}, ["ZeroDivisionError", "in mishap_division.py, line 5"]),
        ("claim", {"before": "assert 1 > 2, 'too few'"}, ["too few", "in mishap_claim.py, line 7, make_problem"]),
        ("value", {"before": "raise ValueError('no data')"}, ["no data", "in mishap_value.py, line 7"]),
        (
            "file",
            {"before": "open('mishap_fil.toml')"},
            ["mishap_fil.toml: no such file", "Did you mean 'mishap_file.toml'"],
        ),
        ("syntax", {"top": "def f(:"}, ["cannot be loaded: SyntaxError", "mishap_syntax.py, line 3"]),
        ("top", {"top": "a = undefined"}, ["NameError", "in mishap_top.py, line 3"]),
        ("package", {"top": "import nosuchpackage"}, ["nosuchpackage", "in mishap_package.py, line 3"]),
    ],
)
def test_errors_in_own_code_name_its_line(tmp_path, monkeypatch, capsys, name, change, words):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    module = f"mishap_{name}"
    (tmp_path / f"{module}.py").write_text(MODEL.format(**USUAL | change))
    (tmp_path / f"{module}.toml").write_text(f'problem = "{module}:make_problem"\nout = "run"\n')
    assert main(["fit", f"{module}.toml"]) == 2
    told = capsys.readouterr().err
    assert all(word in told for word in words), told
    assert "Traceback" not in told
    assert main(["fit", f"{module}.toml", "--debug"]) == 2
    assert "Traceback" in capsys.readouterr().err


def test_what_nobody_foresaw_shows_where_and_is_an_error(monkeypatch, capsys):
    def broken(args):
        return {}["a defect of the library"]

    monkeypatch.setattr("shardfit.cli.devices.run", broken)
    monkeypatch.setattr("shardfit.cli.error_messages._is_own", lambda frame: False)
    assert main(["devices"]) == 2  # 1 means that a check failed
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize("command", [["vlbi", "info"], ["vlbi", "image"], ["vlbi", "posterior"], ["vlbi", "ring"]])
def test_missing_files_in_plain_words(command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m87.uvfits").touch()
    assert main([*command, "m78.uvfits"]) == 2
    told = capsys.readouterr().err
    assert told.startswith("shardfit: m78.uvfits: no such file or folder. Did you mean 'm87.uvfits'?")


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (errno.ENOSPC, "no space left"),
        (errno.EACCES, "may not be read"),
        (errno.EROFS, "read-only"),
        (errno.EIO, "x: "),
    ],
)
def test_errors_of_the_system(code, words):
    text = describe(OSError(code, "whatever", "x"))
    assert words in text and text.startswith("x") and "Errno" not in text


def test_the_folder_keeps_what_went_wrong(tmp_path):
    folder = tmp_path / "run"
    told = record.Record(folder, {"format": record.FORMAT, "command": ["fit"], "files": {}, "exit": None})
    told.write()
    (folder / "config.json").touch()
    told.mark_failed(2, "the detector was off")
    assert record.read(folder)["error"] == "the detector was off" and record.read(folder)["exit"] == 2


def test_going_on_keeps_the_record_and_how_it_ended(tmp_path):
    told = record.Record(tmp_path, {"format": record.FORMAT, "command": ["survey", "run"], "files": {}, "exit": None})
    told.write()
    told.mark_failed(2, "the disk was full")
    args = argparse.Namespace(argv=["survey", "resume"])
    record.go_on(args, tmp_path)
    now = record.read(tmp_path)
    assert now["command"] == ["survey", "run"] and now["exit"] is None and "error" not in now and now["process"]
    args.record.finish(0)
    assert record.read(tmp_path)["exit"] == 0


def test_processes_print_what_python_prints_and_nothing_else():
    script = "import os; from shardfit.cli.rank import keep_output_clean; keep_output_clean(); "
    script += "os.write(1, b'[Gloo] connected'); print('{}')"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "{}\n" and "[Gloo]" in done.stderr


def test_processes_record_the_command_as_it_was_typed(monkeypatch):
    asked = []
    monkeypatch.setattr("shardfit.cli.launch.supervise", lambda job: asked.append((job, os.environ[record.TYPED])) or 0)
    assert main(["fit", "fit.toml", "--processes", "2", "--out", "runs"]) == 0
    (job, typed), *_ = asked
    assert "--processes" not in job.command and record.TYPED not in os.environ
    monkeypatch.setenv(record.TYPED, typed)
    assert record._typed(["fit", "fit.toml", "--out", "runs"]) == json.loads(typed)
    assert "--processes" in json.loads(typed)
    assert record._typed(["sample", "other.toml"]) == ["sample", "other.toml"]  # a command inside a command


def test_names_of_the_wrong_kind(tmp_path, monkeypatch, capsys):
    """A folder for a file, a file for a folder, a misspelt one, and one in a folder that is not there."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dir").mkdir()
    (tmp_path / "fit.toml").touch()
    for words, expected in (
        ("fit fit.tml", "fit.tml: no such file. Did you mean 'fit.toml'? `shardfit init fit fit.tml`"),
        ("fit dir", "dir is a folder, not a file."),
        ("show fit.toml", "fit.toml is a file, not a folder."),
        ("survey status dri", "dri: no such folder. Did you mean 'dir'?"),
        ("seismic init no/x.toml", "no/x.toml: no such file or folder. There is no folder no."),
        ("population init dir --force", "dir is a folder, not a file."),
        ("population fit fit.toml --rows abc", "abc must be a whole number, at least 2"),
        ("completion", "required: SHELL\n"),
    ):
        assert main(words.split()) == 2
        assert expected in capsys.readouterr().err, words


def test_a_reader_that_has_seen_enough(tmp_path):
    done = subprocess.run(
        f"{sys.executable} -m shardfit data list | true; echo ${{PIPESTATUS[0]}}",
        shell=True,
        executable="/bin/bash",
        capture_output=True,
        text=True,
    )
    assert done.stdout == "0\n" and done.stderr == ""
