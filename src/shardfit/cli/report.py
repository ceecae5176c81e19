"""`shardfit report RUN_DIR`: report.html of a fit or a posterior, made anew; of a survey, its gallery as one file."""

import argparse
from collections.abc import Sequence
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Add the run directory."""
    parser.add_argument("run_dir", metavar="RUN_DIR", help="folder of a fit, posterior or survey")


def run(args: argparse.Namespace) -> int:
    """Write the report and print where it is."""
    from shardfit.sampling.store import POSTERIOR
    from shardfit.surveys.ledger import LEDGER

    folder = Path(args.run_dir)
    if (folder / POSTERIOR).is_file():
        from shardfit.report.posterior import report_posterior as write
    elif (folder / LEDGER).is_file():
        from shardfit.report.gallery.offline import write_offline as write
    else:
        from shardfit.report.run import report_run as write
    print(f"report: {write(folder)}")
    return 0
