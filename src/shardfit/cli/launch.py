"""`shardfit launch -n N -- SCRIPT`: many processes on this machine that work as one."""

import argparse
from collections.abc import Sequence

from shardfit.cli.options import without_option
from shardfit.cli.rank import FORMS, python_command
from shardfit.distributed.launchers import EXCHANGE_SECONDS, START_SECONDS
from shardfit.distributed.supervisor import Job, supervise

EXAMPLES = (
    "shardfit launch -n 4 -- script.py --rows 1e8",
    "shardfit launch -n 4 --restarts 2 --shrink --logs logs -- population fit smf.toml --out runs/smf",
)


def add_arguments(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Add the options of a job."""
    parser.add_argument("-n", metavar="N", type=int, required=True, help="number of processes")
    parser.add_argument(
        "--devices-per-process", metavar="D", type=int, default=1, help="CPU devices, or GPUs, of each process (1)"
    )
    parser.add_argument(
        "--timeout",
        metavar="S",
        type=int,
        default=EXCHANGE_SECONDS,
        help=f"seconds that processes wait for the slowest in an exchange before all end ({EXCHANGE_SECONDS})",
    )
    parser.add_argument(
        "--start-timeout",
        metavar="S",
        type=int,
        default=START_SECONDS,
        help=f"seconds that they wait for each other before work: joining, loading data ({START_SECONDS})",
    )
    parser.add_argument("--restarts", metavar="K", type=int, default=0, help="start again up to K times (0)")
    parser.add_argument("--shrink", action="store_true", help="restart without the processes that failed")
    parser.add_argument(
        "--logs",
        metavar="DIR",
        help="folder that keeps the output of every process, rank-0.log on; rank 0's is shown too",
    )
    parser.add_argument("command", metavar="COMMAND", nargs="+", help=f"after `--`: {FORMS}")


def run(args: argparse.Namespace) -> int:
    """Check, start, watch; 0 when every process ended well."""
    for option, value, least in (
        ("-n", args.n, 1),
        ("--devices-per-process", args.devices_per_process, 1),
        ("--timeout", args.timeout, 1),
        ("--start-timeout", args.start_timeout, 1),
        ("--restarts", args.restarts, 0),
    ):
        if value < least:
            raise ValueError(f"{option} {value}: at least {least} is needed.")
    python_command(args.command)
    limits = {"timeout": args.timeout, "start_timeout": args.start_timeout}
    job = Job(tuple(args.command), args.n, args.devices_per_process, logs=args.logs, **limits)
    return supervise(job, args.restarts, args.shrink)


def again(args: argparse.Namespace, argv: Sequence[str]) -> int:
    """Start a command of ours once more in --processes N processes, --devices D of each."""
    words = without_option(without_option(argv, "--processes"), "--devices")
    devices = getattr(args, "devices", None) or 1
    return supervise(Job(("shardfit", *words), args.processes, devices), 0, False)
