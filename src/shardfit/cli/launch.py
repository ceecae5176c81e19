"""`shardfit launch -n N -- SCRIPT`: many processes, of this machine or of several, that work as one."""

import argparse
import json
import os
import shlex
from collections.abc import Sequence

from shardfit.cli.options import positive, whole, without_option
from shardfit.cli.rank import FORMS, python_command
from shardfit.cli.record import TYPED
from shardfit.distributed.hosts import SSH, parse_hosts
from shardfit.distributed.launchers import EXCHANGE_SECONDS, START_SECONDS
from shardfit.distributed.supervisor import Job, Restarts, supervise

EXAMPLES = (
    "shardfit launch -n 4 -- script.py --rows 1e8",
    "shardfit launch -n 4 --restarts 2 --shrink --logs logs -- population fit smf.toml --out runs/smf",
    "shardfit launch --hosts node1:2,node2:2 -- script.py",
)


def add_arguments(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Add the options of a job."""
    parser.add_argument(
        "-n", metavar="N", type=positive, help="number of processes; with --hosts, of those the first N (all)"
    )
    parser.add_argument(
        "--hosts", metavar="HOSTS", help="machines and numbers of processes: a:2,b:2, or a file with a line for each"
    )
    parser.add_argument("--ssh", metavar="COMMAND", default=SSH, help=f"command that reaches a host ({SSH})")
    parser.add_argument(
        "--devices-per-process", metavar="D", type=positive, default=1, help="CPU devices, or GPUs, of each process (1)"
    )
    parser.add_argument(
        "--timeout",
        metavar="S",
        type=positive,
        default=EXCHANGE_SECONDS,
        help=f"seconds that processes wait for the slowest in an exchange before all end ({EXCHANGE_SECONDS})",
    )
    parser.add_argument(
        "--start-timeout",
        metavar="S",
        type=positive,
        default=START_SECONDS,
        help=f"seconds that they wait for each other before work: joining, loading data ({START_SECONDS})",
    )
    parser.add_argument("--restarts", metavar="N", type=whole, default=0, help="start again up to N times (0)")
    parser.add_argument("--shrink", action="store_true", help="restart without the processes that failed")
    parser.add_argument(
        "--grow", action="store_true", help="with --shrink: the restart after that has all of them again"
    )
    parser.add_argument(
        "--logs",
        metavar="DIR",
        help="folder that keeps the output of every process, rank-0.log on; rank 0's is shown too",
    )
    parser.add_argument("command", metavar="COMMAND", nargs="+", help=f"after `--`: {FORMS}")


def run(args: argparse.Namespace) -> int:
    """Check, start, watch; 0 when every process ended well."""
    hosts = parse_hosts(args.hosts) if args.hosts else ()
    size = args.n if args.n is not None else len(hosts)
    if args.n is None and not hosts:
        raise ValueError("how many processes? Give -n N, or --hosts a:2,b:2 for those of several machines.")
    if hosts and size > len(hosts):
        raise ValueError(f"-n {size}: --hosts has places for {len(hosts)} processes. Give more: HOST:PROCESSES.")
    if args.grow and not args.shrink:
        raise ValueError("--grow goes back to all processes after a restart without some of them: give --shrink too.")
    kind, name, _ = python_command(args.command)
    job = Job(
        tuple(args.command),
        size,
        args.devices_per_process,
        timeout=args.timeout,
        start_timeout=args.start_timeout,
        logs=args.logs,
        hosts=hosts[:size],
        ssh=tuple(shlex.split(args.ssh)),
        script=name if kind == "script" else None,
    )
    return supervise(job, Restarts(args.restarts, args.shrink, args.grow))


def again(args: argparse.Namespace, argv: Sequence[str]) -> int:
    """Start a command of ours once more in --processes N processes, --devices D of each."""
    words = without_option(without_option(argv, "--processes"), "--devices")
    devices = getattr(args, "devices", None) or 1
    before = os.environ.get(TYPED)
    os.environ[TYPED] = json.dumps(list(argv))  # what the processes record: the command as it was typed
    try:
        return supervise(Job(("shardfit", *words), args.processes, devices))
    finally:
        os.environ.pop(TYPED) if before is None else os.environ.update({TYPED: before})
