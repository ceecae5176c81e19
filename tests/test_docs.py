"""What the pages print works: Python blocks run, commands are understood."""

import re
import shlex
from pathlib import Path

import pytest

from shardfit.cli import commands, main

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
SLOW = ("ehtim", "homodyne")  # pages whose blocks fit what those of vlbi and xpcs fit already
BLOCK = re.compile(r"^ *```(\w+)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)


def blocks(page, *languages):
    """Line and text of a page's blocks in these languages."""
    text = page.read_text(encoding="utf-8")
    for block in BLOCK.finditer(text):
        if block[1] in languages:
            yield text.count("\n", 0, block.start(2)), block[2]


def command_lines(page):
    """Line and words of the commands of a page, comments left out; a backslash continues a line."""
    for line, text in blocks(page, "bash", "sh", "console"):
        begun = ""
        for number, words in enumerate(text.splitlines(), line + 1):
            begun += words.removesuffix("\\")
            if not words.endswith("\\"):
                yield number, shlex.split(begun, comments=True)
                begun = ""


def with_blocks(*languages):
    marks = {page: [pytest.mark.slow] if page.stem in SLOW else [] for page in PAGES}
    return [pytest.param(page, id=page.stem, marks=marks[page]) for page in PAGES if any(blocks(page, *languages))]


def commands_of(program):
    return [
        pytest.param(words[1:], id=f"{page.stem}:{line}")
        for page in PAGES
        for line, words in command_lines(page)
        if words[:1] == [program]
    ]


@pytest.mark.parametrize("page", with_blocks("python"))
def test_python_blocks_run_as_printed(page, tmp_path, monkeypatch):
    """Blocks of a page continue each other."""
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "page"}
    for line, text in blocks(page, "python"):
        exec(compile("\n" * line + text, str(page), "exec"), namespace)


def test_languages_are_known():
    """A block in a language that no test reads would go unseen; py is other packages' code, see test_migrating.py."""
    fences = {word for page in PAGES for word in re.findall(r"^ *```(.+)$", page.read_text("utf-8"), re.MULTILINE)}
    assert fences <= {"python", "py", "bash", "toml", "text"}


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
