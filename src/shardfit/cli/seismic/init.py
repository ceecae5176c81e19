"""`shardfit seismic init`: a commented configuration that runs as it is."""

import argparse
from collections.abc import Sequence

from shardfit.cli.outcome import record_output
from shardfit.cli.toml import add_new_file, write_new
from shardfit.options.writing import template

EXAMPLES = ("shardfit seismic init line.toml",)
HEAD = """\
# What `shardfit seismic model`, `invert` and `rtm` read: all there is, as comments what need not be said. Options given
# to a command win. Names of files are relative to this one.

"""
VALUES = {
    "model": {"name": "faulted", "shape": [80, 200], "dh": 25.0},
    "start": {"kind": "smoothed", "metres": 250.0, "water": 1500.0},
    "survey": {
        "dt": 0.0025,
        "nt": 880,
        "f_peak": 5.0,
        "delay": 0.3,
        "source_depth": 25.0,
        "source_step": 200.0,
        "receiver_depth": 50.0,
        "receiver_step": 25.0,
    },
    "inversion": {
        "epochs": 40,
        "batchsize": 8,
        "learning_rate": 25.0,
        "bands": [4.0, "all"],
        "conditioning": {"rows": 6, "smoothing": 1.0},
    },
}


def text() -> str:
    """Return the configuration, which runs as it is."""
    from shardfit.cli.seismic.config import Config

    return HEAD + template(Config, VALUES)


def add_arguments(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Add the file."""
    add_new_file(parser)


def run(args: argparse.Namespace) -> int:
    """Write the configuration."""
    path = write_new(args.file, text(), args.force)
    record_output(args, files=[path])
    print(f"{path}: now `shardfit seismic invert {path}`")
    return 0
