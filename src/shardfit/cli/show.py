"""`shardfit show DIR`: a result, a posterior or a survey in the terminal."""

import argparse
from collections.abc import Sequence

from shardfit.cli import options
from shardfit.cli.outcome import record_output

EXAMPLES = ("shardfit show runs/decay", "shardfit show runs/decay --json | jq .parameters")


def add_arguments(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Add the run directory."""
    parser.add_argument("run_dir", metavar="DIR", help="folder of a fit, posterior or survey")
    options.add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Print what the folder holds."""
    from shardfit.report.folders import outcome_of, require_kind

    kind = require_kind(args.run_dir).name
    if record_output(args, **outcome_of(args.run_dir)):
        return 0
    {"fit": _fit, "posterior": _posterior, "survey": _survey}[kind](args.run_dir)
    return 0


def _survey(folder: str) -> None:
    from shardfit.cli.surveys.run import summary
    from shardfit.surveys.reading import Survey

    with Survey(folder) as survey:
        print(summary(survey))


def _posterior(folder: str) -> None:
    from shardfit.sampling.store import load_posterior

    print(load_posterior(folder))


def _fit(folder: str) -> None:
    from shardfit.io.results import load_result
    from shardfit.report.values import number

    result = load_result(folder)
    print(result)
    for name, value in result.derived.items():
        print(f"  {name}: {number(float(value)) if getattr(value, 'ndim', 0) == 0 else value}")
    print("parts: " + ", ".join(f"{name} {value:.8g}" for name, value in result.parts.items()))
    layout = result.layout
    devices = layout.get("rows", 1) * layout.get("runs", 1)
    print(f"ran on {devices} × {layout.get('platform', '?')} in {result.precision}")
