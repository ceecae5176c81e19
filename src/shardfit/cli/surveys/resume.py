"""`shardfit survey resume`: go on where a survey stopped, without its configuration file, from any folder.

As `survey run CONFIG --resume must` does with that file.
"""

import argparse
from collections.abc import Sequence
from typing import Any

from shardfit.cli import record
from shardfit.cli.surveys.config import saved_config
from shardfit.cli.surveys.run import add_places, run_config

EXAMPLES = ("shardfit survey resume runs/m87", "shardfit survey resume runs/m87 --limit 100")


def add_arguments(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Add the run directory."""
    parser.add_argument("run_dir", metavar="RUN", help="run directory of a survey")
    add_places(parser)


def run(args: argparse.Namespace) -> int:
    """Run the points that are missing."""
    return go_on(args)


def go_on(args: argparse.Namespace, **how: Any) -> int:
    """Run what is missing; how: retry or more, see `SurveyControl`."""
    with record.in_original_cwd(args.run_dir) as (folder,):
        return run_config(*saved_config(folder), folder, args, resume="must", **how)
