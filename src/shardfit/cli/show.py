"""`shardfit show RUN_DIR`: a result or a posterior in the terminal."""

import argparse
from collections.abc import Sequence
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Add the run directory."""
    parser.add_argument("run_dir", metavar="RUN_DIR", help="folder of a fit or of a posterior")


def run(args: argparse.Namespace) -> int:
    """Print the result, its parts, and where it ran; or the table of a posterior."""
    from shardfit.sampling.store import POSTERIOR, load_posterior

    if (Path(args.run_dir) / POSTERIOR).is_file():
        print(load_posterior(args.run_dir))
        return 0
    from shardfit.io.results import load_result
    from shardfit.report.values import number

    result = load_result(args.run_dir)
    print(result)
    for name, value in result.derived.items():
        print(f"  {name}: {number(float(value)) if getattr(value, 'ndim', 0) == 0 else value}")
    print("parts: " + ", ".join(f"{name} {value:.8g}" for name, value in result.parts.items()))
    layout = result.layout
    devices = layout.get("rows", 1) * layout.get("runs", 1)
    print(f"ran on {devices} × {layout.get('platform', '?')} in {result.precision}")
    return 0
