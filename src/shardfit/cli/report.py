"""`shardfit report RUN_DIR`: figures and report.html of a run directory, made anew."""

import argparse
from collections.abc import Sequence


def add_arguments(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Add the run directory."""
    parser.add_argument("run_dir", metavar="RUN_DIR", help="folder that holds result.json and arrays.npz")


def run(args: argparse.Namespace) -> int:
    """Write the report and print where it is."""
    from shardfit.report.run import report_run

    print(f"report: {report_run(args.run_dir)}")
    return 0
