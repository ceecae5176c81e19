"""`shardfit survey retry`: run the failed points of a survey again."""

import argparse

from shardfit.cli.surveys.resume import add_arguments, go_on

EXAMPLES = ("shardfit survey retry runs/m87",)
__all__ = ["add_arguments", "run"]


def run(args: argparse.Namespace) -> int:
    """Run failed and missing points."""
    return go_on(args, retry=True)
