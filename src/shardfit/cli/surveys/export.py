"""`shardfit survey export`: the table for other programs."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from shardfit.cli import options
from shardfit.cli.outcome import record_output

EXAMPLES = ("shardfit survey export runs/m87 points.csv", "shardfit survey export runs/m87 points.parquet")


def add_arguments(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Add the file."""
    parser.add_argument("run_dir", metavar="RUN", help="run directory of a survey")
    parser.add_argument("file", metavar="FILE", help="ends in .csv, .parquet, or .nc (netCDF, with the pictures)")
    options.add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Write the file."""
    from shardfit.surveys.reading import Survey

    kind = Path(args.file).suffix
    with Survey(args.run_dir) as survey:
        if kind == ".csv":
            survey.to_csv(args.file)
        elif kind == ".parquet":
            survey.to_parquet(args.file)
        elif kind == ".nc":
            survey.to_xarray().to_netcdf(args.file)
        else:
            raise ValueError(f"{args.file}: the name must end in .csv, .parquet or .nc.")
        record_output(args, points=len(survey), files=[args.file])
        print(f"{len(survey):,} points: {args.file}")
    return 0
