"""`shardfit demo`: fit a black-hole ringdown on one and on several devices, check the answer, write the report."""

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

from shardfit.cli.processes import request_devices


def add_arguments(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Add the options of the demo."""
    parser.add_argument("--out", metavar="DIR", default="demo-out", help="run directory to write (demo-out)")
    parser.add_argument("--devices", metavar="N", type=int, help="devices to split the rows over (2 where available)")
    parser.add_argument("--rows", metavar="N", type=int, default=200_000, help="rows of generated data (200000)")
    parser.add_argument("--seed", metavar="S", type=int, default=0, help="seed of the generated data (0)")
    parser.add_argument("--repeats", metavar="N", type=int, default=60, help="fits of the error-bar check (60)")


def run(args: argparse.Namespace) -> int:
    """Run the demo; 0 when every check holds, 1 otherwise."""
    began = time.perf_counter()
    devices = request_devices(args.devices, default=2)
    if args.repeats < 10:
        raise ValueError(f"--repeats {args.repeats}: fewer than 10 fits say nothing about error bars.")
    if args.seed < 0:
        raise ValueError(f"--seed {args.seed}: a seed is zero or positive.")

    from shardfit.cli.demo_pages import write_pages
    from shardfit.cli.demo_study import make_study
    from shardfit.report.values import coordinates, pair, seconds

    out = Path(args.out)
    print(f"A black hole rings down: {args.rows:,} rows, 8 parameters, {devices} device{'s' * (devices > 1)}")
    study = make_study(out, args.rows, devices, args.seed, args.repeats, lambda text: print(f"  … {text}", flush=True))
    report = write_pages(out, study)
    print()
    for c in coordinates(study.fit):
        value, error = pair(c.value, c.error)
        print(f"  {c.name:<20} {value:>12} ± {error:<9} {c.unit}")
    print()
    for check in study.checks:
        print(f"  {'ok  ' if check.holds else 'FAIL'} {check.name}: {check.found}")
    print(f"\nreport: {report}  ({seconds(time.perf_counter() - began)} in all)")
    return 0 if all(check.holds for check in study.checks) else 1
