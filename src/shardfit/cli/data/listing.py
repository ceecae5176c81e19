"""`shardfit data list`: what there is, how large it is, under which licence."""

import argparse
from collections.abc import Sequence

from shardfit.cli import options
from shardfit.cli.outcome import record_output

EXAMPLES = ("shardfit data list", "shardfit data list --json | jq '.datasets[].name'")


def add_arguments(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Nothing to choose."""
    options.add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Print one line per data set."""
    from shardfit.data import DATASETS

    names = ("name", "size", "shipped", "summary", "licence")
    if record_output(args, datasets=[{name: getattr(dataset, name) for name in names} for dataset in DATASETS]):
        return 0
    for dataset in DATASETS:
        where = "comes with shardfit" if dataset.shipped else "is downloaded"
        print(f"{dataset.name:<12} {dataset.size / 1e6:4.1f} MB  {where:<19}  {dataset.summary}; {dataset.licence}")
    return 0
