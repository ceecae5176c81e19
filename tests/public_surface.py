"""What users rely on besides names of Python, as lines of text: commands with their options, keys of configurations."""

import argparse
import importlib
from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import get_args

from shardfit.cli.commands import COMMANDS, Parser, add_commands, all_commands
from shardfit.options.declared import Options
from shardfit.options.writing import keys as options_keys

LISTS = Path(__file__).resolve().parent / "public"
SCIENCES = ("population", "seismic", "vlbi", "xpcs")  # others may be installed
CONFIGURATIONS = ("population", "problems", "seismic", "surveys", "xpcs")
OF_ALL = ("--debug", "--help", "--no-cache", "--quiet")
OWN = ("path", "folder")  # where a configuration was read from


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
        declared = issubclass(config, Options)
        yield from (f"{name}.{key}" for key in options_keys(config)) if declared else _keys(config, name)


def _keys(kind: type, where: str) -> Iterator[str]:
    for each in fields(kind):
        if each.name in OWN:
            continue
        yield f"{where}.{each.name}"
        for inner in (each.type, *get_args(each.type)):
            if is_dataclass(inner) and isinstance(inner, type):
                yield from _keys(inner, f"{where}.{each.name}")


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
    for file, lines in SURFACE.items():
        (LISTS / file).write_text("".join(f"{line}\n" for line in lines()), encoding="utf-8")
