"""`shardfit plan`: what an evaluation of a problem of one's own will cost, before anything runs."""

import argparse
import json
import re
from collections.abc import Sequence

from shardfit.cli import options
from shardfit.cli.problems.config import WRITER, read_config

UNITS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
EXAMPLES = (
    "shardfit plan fit.toml",
    "shardfit plan fit.toml --shards 64 --memory 16G    # on devices that are not here yet",
)


def add_arguments(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Add the file, the solver, and the devices to plan for."""
    options.add_config(parser, WRITER)
    parser.add_argument("--solver", metavar="NAME", help="lm, lbfgsb, lbfgs, adam, … (default: `solver` of the file)")
    parser.add_argument("--shards", metavar="N", type=int, help="devices that would share the rows (1)")
    parser.add_argument("--memory", metavar="BYTES", type=_bytes, help="of each, e.g. 16G (what is free now)")
    parser.add_argument("--json", action="store_true", help="print the plan as JSON")


def run(args: argparse.Namespace) -> int:
    """Print the plan; 0 if it fits."""
    from shardfit.planning import plan

    config = read_config(args.config)
    solver = args.solver or config.fit.get("solver")
    predicted = plan(config.make_problem(), solver, mesh=args.shards, memory=args.memory)
    print(json.dumps(predicted.to_dict(), indent=1) if args.json else predicted)
    return 0 if predicted.fits else 1


def _bytes(text: str) -> int:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kMGT]?)B?", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text} is not a number of bytes such as 16G or 500M")
    return int(float(match[1]) * UNITS[match[2]])
