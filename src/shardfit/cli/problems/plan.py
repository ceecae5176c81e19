"""`shardfit plan`: what an evaluation of a problem of one's own will cost, before anything runs."""

import argparse
import re
from collections.abc import Sequence

from shardfit.cli import options
from shardfit.cli.outcome import record_output
from shardfit.cli.problems.config import WRITER, read_config

UNITS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
EXAMPLES = (
    "shardfit plan fit.toml",
    "shardfit plan fit.toml --devices 64 --memory 16G    # on devices that are not here yet",
    "shardfit plan fit.toml --devices 64,512,4096 --cluster ethernet",
    "shardfit plan fit.toml --devices 64,512 --cluster latency=2e-6,bandwidth=5e10,speed=40",
)


def add_arguments(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Add the file, the solver, and the devices to plan for."""
    options.add_config(parser, WRITER)
    parser.add_argument("--solver", metavar="NAME", help="lm, lbfgsb, lbfgs, adam, … (default: `solver` of the file)")
    parser.add_argument(
        "--devices",
        metavar="N",
        type=_numbers,
        default=[],
        help="devices that would share the rows (1); of several, 64,512, memory is for the first and times are for all",
    )
    parser.add_argument(
        "--cluster",
        metavar="WHAT",
        help="infiniband (default), ethernet, or numbers of your own: latency=2e-6,speed=40",
    )
    parser.add_argument("--memory", metavar="BYTES", type=_bytes, help="of each, e.g. 16G (what is free now)")
    options.add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Print the plan; 0 if it fits."""
    from shardfit.planning import plan

    config = read_config(args.config)
    solver = args.solver or config.fit.solver
    first = args.devices[0] if args.devices else None
    asked = {"mesh": first, "devices": args.devices, "memory": args.memory, "cluster": args.cluster}
    predicted = plan(config.make_problem(), solver, **asked)
    if not record_output(args, **predicted.to_dict()):
        print(predicted)
    return 0 if predicted.fits else 1


def _numbers(text: str) -> list[int]:
    return [options.positive(number) for number in text.split(",")]


def _bytes(text: str) -> int:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kMGT]?)B?", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text} is not a number of bytes such as 16G or 500M")
    return int(float(match[1]) * UNITS[match[2]])
