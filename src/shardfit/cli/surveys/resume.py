"""`shardfit survey resume`: go on where a survey stopped, wherever it ran before."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from shardfit.cli.surveys.config import SAVED, read_config
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
    path = Path(args.run_dir) / SAVED
    if not path.is_file():
        raise FileNotFoundError(f"{args.run_dir} holds no survey of the command line: {SAVED} is missing.")
    return run_config(read_config(path), path.read_text(encoding="utf-8"), Path(args.run_dir), args, **how)
