"""`shardfit show RUN_DIR`: the result in the terminal."""

import argparse
from collections.abc import Sequence


def add_arguments(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Add the run directory."""
    parser.add_argument("run_dir", metavar="RUN_DIR", help="folder that holds result.json and arrays.npz")


def run(args: argparse.Namespace) -> int:
    """Print the result, its parts, and where it ran."""
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
