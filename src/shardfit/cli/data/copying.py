"""`shardfit data copy NAME [DIR]`: a copy to work with."""

import argparse
from collections.abc import Sequence

from shardfit.data import copy


def add_arguments(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Add the name and the folder."""
    parser.add_argument("name", metavar="NAME", help="a data set; `shardfit data list` prints them")
    parser.add_argument("folder", metavar="DIR", nargs="?", default=".", help="folder to copy into (.)")


def run(args: argparse.Namespace) -> int:
    """Copy, and print what is there now."""
    target = copy(args.name, args.folder)
    for path in sorted(target.iterdir()):
        print(path)
    return 0
