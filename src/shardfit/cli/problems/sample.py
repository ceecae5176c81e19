"""`shardfit sample`: draws from the posterior of a problem of one's own."""

import argparse
from collections.abc import Sequence
from typing import Any

from shardfit.cli import options as shared
from shardfit.cli.problems.config import add_common, close, common_options, read_config

EXAMPLES = (
    "shardfit init sample decay.toml",
    "shardfit sample decay.toml --out runs/decay --seed 1",
    "shardfit sample decay.toml --out runs/decay --draws 4000      # adds draws",
)


def add_arguments(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Add the file, where to run, and how many draws."""
    add_common(parser)
    parser.add_argument(
        "--draws", type=shared.positive, metavar="N", help="of each chain; more than are stored adds to them"
    )


def run(args: argparse.Namespace) -> int:
    """Sample, print the summary, and write the report."""
    config = read_config(args.config)
    options: dict[str, Any] = (
        {"method": config.sample.method} | common_options(config, args, "sample") | config.section("sample")
    )
    if args.draws is not None:
        options["draws"] = args.draws
    from shardfit.sampling.run import sample

    problem = config.make_problem()
    return close(sample(problem, **options), problem, options["run_dir"])
