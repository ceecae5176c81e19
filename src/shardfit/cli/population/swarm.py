"""`shardfit population swarm`: search the box of a built-in problem with a swarm."""

import argparse

from shardfit.cli.population.fit import add_arguments, run_study

EXAMPLES = ("shardfit population swarm smf.toml --out swarm",)
__all__ = ["EXAMPLES", "add_arguments", "run"]


def run(args: argparse.Namespace) -> int:
    """Search the box."""
    return run_study(args, lambda config, study: {**config.swarm.given(), "name": "swarm"})
