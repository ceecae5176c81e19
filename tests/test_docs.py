"""What the pages print works: Python blocks run, commands are understood, configurations are accepted."""

import re
import shlex
import tomllib
from pathlib import Path

import pytest

from shardfit.cli import commands, main

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
BLOCK = re.compile(r"^(<!-- slow -->\n)? *```(\w+)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)


def blocks(page, *languages, slow=True):
    """Line and text of a page's blocks in these languages; slow=False leaves out those marked `<!-- slow -->`."""
    text = page.read_text(encoding="utf-8")
    for block in BLOCK.finditer(text):
        if block[2] in languages and (slow or not block[1]):
            yield text.count("\n", 0, block.start(3)), block[3]


LAUNCHERS = ("srun", "mpiexec")  # of clusters: what follows their options is a command of its own


def command_lines(page):
    """Line and words of the commands of a page, comments left out; a backslash continues a line."""
    for line, text in blocks(page, "bash", "sh", "console"):
        begun = ""
        for number, words in enumerate(text.splitlines(), line + 1):
            begun += words.removesuffix("\\")
            if not words.endswith("\\"):
                split = shlex.split(begun, comments=True)
                yield number, split[split.index("shardfit") :] if split[:1] and split[0] in LAUNCHERS else split
                begun = ""


def with_blocks(*languages, slow=True):
    return [pytest.param(page, id=name_of(page)) for page in PAGES if any(blocks(page, *languages, slow=slow))]


def name_of(page):
    return str(page.relative_to(ROOT).with_suffix("")).removeprefix("docs/")


def commands_of(program):
    return [
        pytest.param(words[1:], id=f"{name_of(page)}:{line}")
        for page in PAGES
        for line, words in command_lines(page)
        if words[:1] == [program]
    ]


def run_blocks(page, slow):
    """Blocks of a page continue each other."""
    namespace = {"__name__": "page"}
    for line, text in blocks(page, "python", slow=slow):
        exec(compile("\n" * line + text, str(page), "exec"), namespace)


@pytest.mark.parametrize("page", with_blocks("python", slow=False))
def test_python_blocks_run_as_printed(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_blocks(page, slow=False)


@pytest.mark.slow
@pytest.mark.parametrize(
    "page", [p for p in with_blocks("python") if "<!-- slow -->" in p.values[0].read_text("utf-8")]
)
def test_whole_pages_run_as_printed(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_blocks(page, slow=True)
    shown = re.findall(r"\.savefig\(\"([\w.]+)\"", page.read_text("utf-8"))
    assert all((tmp_path / name).is_file() for name in shown)


def test_languages_are_known():
    """A block in a language that no test reads would go unseen; py is other packages' code, see test_migrating.py."""
    fences = {word for page in PAGES for word in re.findall(r"^ *```(.+)$", page.read_text("utf-8"), re.MULTILINE)}
    assert fences <= {"python", "py", "bash", "toml", "text"}


@pytest.mark.parametrize("page", with_blocks("toml"))
def test_configurations_are_accepted(page, tmp_path):
    """Those of waves are read as the command reads them; keys that it does not know are errors there."""
    from shardfit.cli.seismic.config import read_config

    for _, text in blocks(page, "toml"):
        assert tomllib.loads(text)
        if "[model]" in text:
            (tmp_path / "fwi.toml").write_text(text)
            read_config(tmp_path / "fwi.toml")


@pytest.mark.parametrize("words", commands_of("pip"))
def test_extras_exist(words):
    known = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
    named = [extra for word in words for extra in re.findall(r"\[([\w,]+)\]", word)]
    assert words[0] == "install" and set(",".join(named).split(",")) - {""} <= known


@pytest.mark.parametrize("words", commands_of("shardfit"))
def test_commands_are_understood(words):
    parser = commands.Parser(prog="shardfit")
    commands.add_commands(parser, commands.all_commands(), words)
    assert callable(commands.parse(parser, words).run)


@pytest.mark.parametrize("words", [p for p in commands_of("shardfit") if {"init", "data"} & set(p.values[0][:2])])
def test_quick_commands_run(words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(words) == 0


@pytest.mark.parametrize("words", commands_of("make"))
def test_make_knows_its_targets(words):
    targets = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert targets and {word for word in words if "=" not in word} <= set(targets[1].split())
