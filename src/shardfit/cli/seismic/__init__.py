"""`shardfit seismic`: make shot gathers of a model, invert gathers for a model, migrate them."""

from collections.abc import Sequence

from shardfit.cli.commands import Command, Parser, add_commands

COMMANDS = (
    Command("init", "write a commented configuration that runs as it is", "shardfit.cli.seismic.init"),
    Command("model", "make shot gathers of a velocity model", "shardfit.cli.seismic.model"),
    Command("invert", "fit a velocity model to shot gathers, with report", "shardfit.cli.seismic.invert"),
    Command("rtm", "migrate shot gathers: an image of the reflectors", "shardfit.cli.seismic.rtm"),
)


def add_arguments(parser: Parser, argv: Sequence[str]) -> None:
    """Add the commands of seismics."""
    add_commands(parser, COMMANDS, argv)
