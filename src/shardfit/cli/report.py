"""`shardfit report DIR`: report.html of a fit or a posterior, made anew; of a survey, its gallery as one file."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from shardfit.cli import options
from shardfit.cli.outcome import record_output

EXAMPLES = ("shardfit report runs/decay",)


def add_arguments(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Add the run directory."""
    parser.add_argument("run_dir", metavar="DIR", help="folder of a fit, posterior or survey")
    options.add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Write the report and print where it is."""
    from shardfit.report.folders import require_kind

    kind = require_kind(args.run_dir).name
    if kind == "posterior":
        from shardfit.report.posterior import report_posterior as write
    elif kind == "survey":
        from shardfit.report.gallery.offline import write_offline as write
    else:
        from shardfit.report.run import report_run as write
    page = write(Path(args.run_dir))
    record_output(args, report=page)
    print(f"report: {page}")
    return 0
