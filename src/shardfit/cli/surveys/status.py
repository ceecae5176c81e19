"""`shardfit survey status`: the progress of a survey, and what failed."""

import argparse
from collections.abc import Sequence

from shardfit.cli import options
from shardfit.cli.outcome import record_output
from shardfit.cli.surveys.run import summary

EXAMPLES = ("shardfit survey status runs/m87", "shardfit survey status runs/m87 --json | jq .points")
SHOWN = 10


def add_arguments(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Add the run directory."""
    parser.add_argument("run_dir", metavar="RUN", help="run directory of a survey")
    options.add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Print the state."""
    from shardfit.report.folders import outcome_of
    from shardfit.surveys.reading import Survey

    with Survey(args.run_dir) as survey:
        failures = survey.failures()
        if record_output(args, **outcome_of(args.run_dir), failures=failures):
            return 0
        print(summary(survey))
        for row in failures[:SHOWN]:
            point = ", ".join(f"{name}={row[f'axis.{name}']}" for name in survey.heading.axes)
            print(f"  failed: point {row['id']} ({point}), attempt {row['attempt']}: {row['reason']}")
        if len(failures) > SHOWN:
            print(f"  ... and {len(failures) - SHOWN} more; `shardfit survey export` has all")
    return 0
