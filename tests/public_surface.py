"""What users rely on besides names of Python, as lines of text: commands with their options, keys of configurations."""

import argparse
import importlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from shardfit.cli.commands import COMMANDS, Parser, add_commands, all_commands
from shardfit.cli.schema import configuration, homes
from shardfit.domains.vlbi.recipes.survey_config import Settings
from shardfit.options.writing import keys as options_keys
from shardfit.options.writing import table

LISTS = Path(__file__).resolve().parent / "public"
SCIENCES = ("population", "seismic", "vlbi", "xpcs")  # others may be installed
CONFIGURATIONS = ("population", "problems", "seismic", "surveys", "xpcs")
OF_ALL = ("--debug", "--help", "--no-cache", "--quiet")
PAGE = Path(__file__).resolve().parents[1] / "docs" / "configuration.md"
TITLES = {
    "fit": "A problem of your own",
    "survey": "Surveys",
    "population": "Population models",
    "seismic": "Seismic inversion",
    "xpcs": "XPCS",
}
HEAD = (
    "# Configuration keys\n\n"
    "All keys of all TOML files, as the commands read them. An `init` command writes a file with every key as a line; "
    "`shardfit schema KIND` prints the same as JSON schema, for editors that complete and check TOML.\n"
    "A wrong value ends the command with file, section, key, value, and what is allowed. Sections that name a solver "
    "or a method take its options beside these keys.\n"
)


def commands(before: Sequence[str] = ()) -> Iterator[str]:
    """Yield a line for each command: its name, arguments by place, options."""
    parser = Parser(prog="shardfit")
    add_commands(parser, all_commands(), before)
    for word in before:
        parser = _inner(parser)[word]
    names = _inner(parser)
    own = names if before else {*(command.name for command in COMMANDS), *SCIENCES}
    for name in sorted(own):
        yield from commands([*before, name])
    if not names:
        places = [str(action.metavar or action.dest).upper() for action in parser._actions if not action.option_strings]
        options = sorted(set(parser.options()) - set(OF_ALL))
        yield " ".join(["shardfit", *before, *places, *options])


def _inner(parser: argparse.ArgumentParser) -> dict[str, Parser]:
    found = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    return next((dict(action.choices) for action in found), {})


def keys() -> Iterator[str]:
    """Yield a line for each key of each kind of configuration."""
    for name in CONFIGURATIONS:
        config = importlib.import_module(f"shardfit.cli.{name}.config").Config
        yield from (f"{name}.{key}" for key in options_keys(config))


def page() -> str:
    """Return docs/configuration.md, which lists all keys with what they may be and mean."""
    lines = [HEAD]
    for kind in ("fit", "survey", *SCIENCES):
        if kind in homes():
            lines += [f"## {TITLES[kind]}\n", f"`shardfit init {kind}` writes one.\n", table(configuration(kind))]
    lines += ["## Section [vlbi] of a survey\n", table(Settings).rstrip()]
    return "\n".join(lines) + "\n"


def names(domain: str) -> Iterator[str]:
    """Yield what a domain exports."""
    yield from sorted(importlib.import_module(f"shardfit.domains.{domain}").__all__)


SURFACE = {
    "commands.txt": commands,
    "keys.txt": keys,
    "vlbi.txt": lambda: names("vlbi"),
    "xpcs.txt": lambda: names("xpcs"),
}

if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    for file, lines in SURFACE.items():
        (LISTS / file).write_text("".join(f"{line}\n" for line in lines()), encoding="utf-8")
