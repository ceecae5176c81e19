"""The comparison with other systems names tests and commands: they exist, and nothing is claimed without one."""

import re
import shlex
from pathlib import Path

import pytest

from benchmarks import __main__ as runner
from shardfit.cli import commands

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "compared.md").read_text(encoding="utf-8")
ROWS = [
    tuple(cell.strip() for cell in line.strip().strip("|").split(" | "))
    for line in PAGE.splitlines()
    if line.startswith("| ") and not line.startswith(("| feature", "| **"))
]
STATES = ("done", "better", "part", "not done")
SHOWN = sorted({word for row in ROWS if len(row) > 2 for word in re.findall(r"`([^`]+)`", row[2])})


def test_rows_have_a_state_and_what_is_claimed_is_shown():
    assert len(ROWS) > 100
    for feature, state, *shown in ROWS:
        assert state.startswith(STATES), feature
        assert state.startswith("not done") or shown and "`" in shown[0], f"nothing shows {feature!r}"


def test_better_says_what_is_better():
    assert all(":" in state for _, state, *_ in ROWS if state.startswith("better"))


@pytest.mark.parametrize("shown", SHOWN)
def test_what_shows_a_row_exists(shown):
    """A test by file and name, a suite of benchmarks, or a command that is understood."""
    if shown.startswith("tests/"):
        file, _, name = shown.partition("::")
        assert re.search(rf"^def {name}\b", (ROOT / file).read_text(), re.MULTILINE), shown
    elif shown.startswith("python -m benchmarks "):
        assert set(shown.split()[3:]) <= set(runner.known())
    else:
        program, *words = shlex.split(shown)
        parser = commands.Parser(prog=program)
        commands.add_commands(parser, commands.all_commands(), words)
        assert program == "shardfit" and callable(commands.parse(parser, words).run)
