"""`shardfit data get NAME [DIR]`: a data set to work with."""

import argparse
from collections.abc import Sequence

from shardfit.cli import options
from shardfit.cli.commands import completes
from shardfit.cli.outcome import record_output

EXAMPLES = (
    "shardfit data get m87 .          # ./m87: two bands of one day, which come with the package",
    "shardfit data get m87-days       # all four days, downloaded into the cache and checked",
)


def add_arguments(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Add the name and the folder."""
    from shardfit.data import DATASETS

    name = parser.add_argument("name", metavar="NAME", help="a data set; `shardfit data list` prints them")
    completes(name, [dataset.name for dataset in DATASETS])
    parser.add_argument("folder", metavar="DIR", nargs="?", help="folder to copy it into, as DIR/NAME (stays in place)")
    options.add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Get it, and print what is there now."""
    from shardfit import data

    paths = sorted(data.get(args.name, args.folder).iterdir())
    if not record_output(args, files=paths):
        print(*paths, sep="\n")
    return 0
