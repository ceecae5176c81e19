"""`shardfit consensus`: the rows in shards, each sampled by itself, combined and corrected."""

import argparse
from collections.abc import Sequence

from shardfit.cli import options as shared
from shardfit.cli.problems.config import add_common, close, common_options, read_config

EXAMPLES = ("shardfit consensus decay.toml --shards 8 --out runs/shards",)


def add_arguments(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Add the file, where to run, and how many shards."""
    add_common(parser)
    parser.add_argument("--shards", type=shared.positive, metavar="K", help="shards (default: `shards` of the file)")


def run(args: argparse.Namespace) -> int:
    """Sample all shards, combine them, print the summary, and write the report."""
    config = read_config(args.config)
    options = common_options(config, args, "consensus") | config.section("consensus")
    if args.shards is not None:
        options["shards"] = args.shards
    from shardfit.sampling.shards.shard_consensus import consensus
    from shardfit.sampling.shards.shard_control import ShardControl

    control = {name: options.pop(name) for name in ("progress", "slots", "workers", "patience") if name in options}
    options["control"] = ShardControl(**control)
    problem = config.make_problem()
    given = config.make_problem if "workers" in control else problem  # workers make their own
    return close(consensus(given, **options), problem, options["run_dir"])
