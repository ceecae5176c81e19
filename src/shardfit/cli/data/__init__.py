"""`shardfit data`: the public data sets that come with the package."""

from collections.abc import Sequence

from shardfit.cli.commands import Command, Parser, add_commands

EXAMPLES = ("shardfit data list", "shardfit data get m87 .")
COMMANDS = (
    Command("list", "print the data sets, their sizes and licences", "shardfit.cli.data.listing"),
    Command("get", "copy or download a data set, with its checksum", "shardfit.cli.data.getting"),
)


def add_arguments(parser: Parser, argv: Sequence[str]) -> None:
    """Add the commands."""
    add_commands(parser, COMMANDS, argv)
