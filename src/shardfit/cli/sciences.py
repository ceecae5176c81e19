"""`shardfit sciences`: what is installed, from which package, and what each science can do."""

import argparse
from collections.abc import Sequence

from shardfit.cli import commands, options
from shardfit.cli.outcome import record_output
from shardfit.sciences import GROUP, Installed, installed

EXAMPLES = ("shardfit sciences", "shardfit sciences --json")


def add_arguments(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Nothing to choose."""
    options.add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Print the sciences; 1 if one of them cannot be used."""
    found = installed()
    about = [{"name": e.name, "package": e.package, "usable": e.science is not None, "about": _lines(e)} for e in found]
    record_output(args, sciences=about)
    if not found:
        print(
            f"no science is registered in {GROUP!r}: this is a bare source tree. `pip install -e .` registers its own."
        )
        return 1
    for each in found:
        print("\n  ".join([f"{each.name} (package {each.package})", *_lines(each)]))
    return 1 if any(each.science is None for each in found) else 0


def _lines(each: Installed) -> list[str]:
    science = each.science
    if science is None:
        return [f"cannot be used: {each.problem}"]
    lines = [science.help]
    if science.commands is not None:
        taken = science.name in {command.name for command in commands.COMMANDS}
        lines.append(f"no command: `shardfit {each.name}` is another" if taken else f"`shardfit {each.name}`")
    if science.survey is not None:
        lines.append(f"`shardfit init survey --science {each.name}`")
    return lines + [f"reads *{suffix}: {content}" for suffix, content in science.data.items()]
