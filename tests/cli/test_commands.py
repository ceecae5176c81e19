import importlib
import re
import shlex
import subprocess
import sys

import numpy as np
import pytest

from shardfit.cli import app, commands, main
from shardfit.core.result import Result
from shardfit.core.status import Status
from shardfit.io.results import save_result
from tests.command_line import run


@pytest.fixture
def run_dir(tmp_path):
    result = Result(
        params={"a": np.array(2.0)},
        value=1.5,
        parts={"data": 1.5},
        status=Status.MAX_STEPS,
        solver="lm(maxiter=3)",
        steps=3,
        evaluations=4,
        history={"value": np.array([3.0, 1.5]), "gradient": np.array([1.0, 0.5])},
        timings={"total": 0.1},
        layout={"platform": "cpu", "rows": 1, "runs": 1, "processes": 1},
        units={"a": "Hz"},
    )
    return str(save_result(result, tmp_path / "run"))


def test_show(capsys, run_dir):
    code, out, _ = run(capsys, "show", run_dir)
    assert code == 0
    for expected in ("a = 2 Hz", "step limit reached", "Raise maxiter", "data 1.5", "1 × cpu"):
        assert expected in out


def test_report(capsys, run_dir):
    pytest.importorskip("matplotlib")
    code, out, _ = run(capsys, "report", run_dir)
    assert code == 0
    assert "report.html" in out


def test_devices(capsys):
    code, out, _ = run(capsys, "devices")
    assert code == 0
    assert "jax " in out
    assert "× cpu" in out


@pytest.mark.parametrize("argv", [(), ("--help",), ("-h",)])
def test_help_lists_every_command(capsys, argv):
    code, out, _ = run(capsys, *argv)
    assert code == 0
    for command in commands.all_commands():
        assert command.name in out


def test_version(capsys):
    code, out, _ = run(capsys, "--version")
    assert code == 0
    assert out.startswith("shardfit ")


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (("dmeo",), "unknown command 'dmeo'. Did you mean 'demo'?"),
        (("demo", "--onl", "vlbi"), "unknown option '--onl'. Did you mean '--only'?"),
        (("demo", "--outt=5"), "unknown option '--outt'. Did you mean '--out'?"),
        (("show",), "required: DIR"),
        (("show", "a", "b"), "too many arguments: 'b'"),
        (("vlbi", "simulate", "--out", "x.uvfits", "--seed", "-1"), "zero or positive"),
        (("vlbi", "image", "x.uvfits", "--devices", "0"), "--devices: 0 must be a whole number, at least 1"),
        (("completion", "bsh"), "'bsh' is not one of the choices. Did you mean 'bash'?"),
        (("--debgu", "devices"), "unknown option '--debgu'. Did you mean '--debug'?"),
    ],
)
def test_misspelt_command_lines(capsys, argv, expected):
    code, _, err = run(capsys, *argv)
    assert code == 2
    assert expected in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (("show", "nowhere"), "nowhere: no such folder"),
        (("report", "nowhere"), "nowhere: no such folder"),
        (("demo", "--only", "nothing"), "no such chapter"),
        (("vlbi", "image", "x.uvfits", "--devices", "1000"), "JAX sees"),
    ],
)
def test_errors_are_one_message(capsys, argv, expected, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, _, err = run(capsys, *argv)
    assert code == 2
    assert expected in err
    assert "Traceback" not in err
    code, _, err = run(capsys, *argv, "--debug")
    assert code == 2
    assert "Traceback" in err


@pytest.fixture
def science(monkeypatch):
    """A command with commands of its own, as a science brings."""
    module = type(sys)("fake_science")
    leaf = type(sys)("fake_leaf")
    leaf.add_arguments = lambda parser, argv: parser.add_argument("--size", type=int)
    leaf.run = lambda args: args.size
    module.COMMANDS = (commands.Command("image", "make an image", "fake_leaf"),)
    monkeypatch.setitem(sys.modules, "fake_science", module)
    monkeypatch.setitem(sys.modules, "fake_leaf", leaf)
    toy = commands.Command("toy", "radio images", "fake_science")
    monkeypatch.setattr(commands, "COMMANDS", (*commands.COMMANDS, toy))


def test_a_science_adds_commands(capsys, science):
    assert main(["toy", "image", "--size", "7"]) == 7
    code, out, _ = run(capsys, "toy")
    assert code == 0
    assert "make an image" in out
    code, _, err = run(capsys, "toy", "imgae")
    assert code == 2
    assert "Did you mean 'image'?" in err


def test_help_imports_no_command():
    code = "import sys; from shardfit.cli import main; main(['--help']); "
    code += "sys.exit(any(m.startswith(('shardfit.report', 'matplotlib')) for m in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0


def every_command():
    """(words, module) of every command of this package and its sciences."""

    def walk(words, found):
        for command in found:
            module = importlib.import_module(command.module)
            inner = getattr(module, "COMMANDS", None)
            yield from walk([*words, command.name], inner) if inner else [([*words, command.name], module)]

    return list(walk([], commands.all_commands()))


def test_the_help_of_the_command_is_named(capsys):
    told = run(capsys, "vlbi", "image", "a", "--npix", "abc")[2]
    assert (
        "argument --npix: abc must be a whole number, at least 2.\n" in told
        and "Try `shardfit vlbi image --help`" in told
    )
    assert "'1:' is not a number.\n" in run(capsys, "vlbi", "study", "a", "--share", "1:")[2]
    assert "0 must be a whole number, at least 1" in run(capsys, "vlbi", "image", "a", "--devices", "0")[2]
    assert "Try `shardfit vlbi --help`" in run(capsys, "vlbi", "imaeg")[2]
    assert "65536" in run(capsys, "serve", ".", "--port", "99999")[2]
    assert "Known: bash, fish, zsh." in run(capsys, "completion", "tcsh")[2]


@pytest.mark.parametrize("group", ["", "vlbi", "seismic", "population", "xpcs", "survey", "data"])
def test_groups_of_commands_have_examples(capsys, group):
    assert "examples:\n  shardfit" in run(capsys, *([group] if group else []), "--help")[1]


def test_examples_of_every_command_parse():
    """Help shows lines to copy: each must be a command line of that very command."""
    for words, module in every_command():
        assert isinstance(module.EXAMPLES, tuple) and any(" ".join(words) in line for line in module.EXAMPLES), words
        for line in module.EXAMPLES:
            for part in re.split(r"[|>]", line.partition("#")[0])[:1]:
                given = shlex.split(part)
                if given[:1] != ["shardfit"]:
                    continue  # a line of a shell
                args = app.parsed(given[1:])
                assert args.run is not None, line


@pytest.mark.parametrize("words", [w for w, _ in every_command()], ids=" ".join)
def test_help_of_every_command(capsys, words):
    assert main([*words, "--help"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"usage: shardfit {' '.join(words)}") and "--quiet" in out


def test_names_and_texts_of_commands_share_lines(capsys):
    out = run(capsys, "--help")[1]
    for command in commands.all_commands():
        assert re.search(rf"^ +{command.name} +{re.escape(command.help[:20])}", out, re.MULTILINE), command.name
