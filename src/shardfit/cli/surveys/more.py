"""`shardfit survey continue`: go on with the points that met no tolerance."""

import argparse
from collections.abc import Sequence

from shardfit.cli import options
from shardfit.cli.surveys import resume

EXAMPLES = ("shardfit survey continue runs/m87 --steps 2000",)


def add_arguments(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Add how long."""
    resume.add_arguments(parser, argv)
    parser.add_argument(
        "--steps", type=options.positive, default=4000, metavar="N", help="most steps for each, in float64 (4000)"
    )


def run(args: argparse.Namespace) -> int:
    """Run missing points, then those that have not converged."""
    return resume.go_on(args, more=args.steps)
