"""`shardfit data list`: what there is, how large it is, under which licence."""

import argparse
from collections.abc import Sequence

from shardfit.data import DATASETS


def add_arguments(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Nothing to choose."""


def run(args: argparse.Namespace) -> int:
    """Print one line per data set."""
    for dataset in DATASETS:
        print(f"{dataset.name:<12} {dataset.size / 1e6:4.1f} MB  {dataset.summary}; {dataset.licence}")
    return 0
