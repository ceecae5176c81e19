"""`shardfit data list`: what there is, how large it is, under which licence."""

import argparse
from collections.abc import Sequence

EXAMPLES = ("shardfit data list",)


def add_arguments(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Nothing to choose."""


def run(args: argparse.Namespace) -> int:
    """Print one line per data set."""
    from shardfit.data import DATASETS

    for dataset in DATASETS:
        where = "comes with shardfit" if dataset.shipped else "is downloaded"
        print(f"{dataset.name:<12} {dataset.size / 1e6:4.1f} MB  {where:<19}  {dataset.summary}; {dataset.licence}")
    return 0
